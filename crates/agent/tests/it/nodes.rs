//! Nodes on one wire, each with an agent in a thread of its own.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use agent::Settings;
use agent::cloud::{CloudSettings, Login};
use agent::source::LeaseSource;
use agent::source::file::FileSource;
use agent::status::Status;
use linux::{Netns, NetnsName};
use node::Home;
use tempfile::TempDir;
use testkit::{World, shell};
use tokio::sync::oneshot;

use crate::log::Log;

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Two nodes: `a` with 192.0.2.1 and `b` with 192.0.2.2, on one Ethernet.
pub(crate) struct Nodes {
    pub(crate) world: World,
    pub(crate) directory: TempDir,
}

/// An agent in a thread, which is asked to stop and joined when this is dropped.
pub(crate) struct Agent {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), String>>>,
    pub(crate) status: PathBuf,
    /// What it has said so far.
    pub(crate) log: Log,
}

impl Nodes {
    pub(crate) fn new() -> Nodes {
        Nodes::joined_by(|world| {
            let (a, b) = (world.name("a"), world.name("b"));
            shell(&format!("ip -n {a} link add wire type veth peer name wire netns {b}"));
        })
    }

    /// The same nodes with something else between them: `make` makes the link `wire` of each.
    pub(crate) fn joined_by(make: impl FnOnce(&World)) -> Nodes {
        let nodes = Nodes::apart();
        make(&nodes.world);
        let (a, b) = (nodes.name("a"), nodes.name("b"));
        shell(&format!(
            "ip -n {a} address add 192.0.2.1/24 dev wire; ip -n {b} address add 192.0.2.2/24 dev wire
             ip -n {a} address add 2001:db8::1/64 dev wire nodad; ip -n {b} address add 2001:db8::2/64 dev wire nodad
             ip -n {a} link set lo up; ip -n {b} link set lo up
             ip -n {a} link set wire up; ip -n {b} link set wire up"
        ));
        nodes
    }

    /// The same without a wire and addresses.
    pub(crate) fn apart() -> Nodes {
        let world = World::new();
        for short in ["a", "b"] {
            world.add(short);
        }
        Nodes { world, directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn name(&self, node: &str) -> NetnsName {
        self.world.name(node)
    }

    /// Runs a command in which `A` and `B` stand for the namespaces.
    pub(crate) fn at(&self, command: &str) -> String {
        let names = [(" A ", self.name("a")), (" B ", self.name("b"))];
        let named = names
            .iter()
            .fold(command.to_owned(), |text, (sign, name)| text.replace(sign, &format!(" {name} ")));
        shell(&named)
    }

    /// Writes the file of leases, by rename.
    pub(crate) fn write_leases(&self, backend: &str, nodes: &[(&str, &str, &str)]) {
        let both = "Network = \"10.244.0.0/16\"\nEnableIPv6 = true\nIPv6Network = \"fd00:244::/56\"";
        self.write_leases_of(both, backend, nodes);
    }

    /// The same of a network with these keys beside its backend.
    pub(crate) fn write_leases_of(&self, network: &str, backend: &str, nodes: &[(&str, &str, &str)]) {
        let mut text = format!("[network]\n{network}\nBackend = {backend}\n");
        for (name, public, pods) in nodes {
            let list =
                |text: &str| text.split(' ').map(|one| format!("{one:?}")).collect::<Vec<_>>().join(", ");
            text +=
                &format!("[[node]]\nname = {name:?}\npublic = [{}]\npods = [{}]\n", list(public), list(pods));
        }
        let path = self.leases();
        std::fs::write(path.with_extension("new"), text).unwrap();
        std::fs::rename(path.with_extension("new"), path).unwrap();
    }

    pub(crate) fn leases(&self) -> PathBuf {
        self.directory.path().join("nodes.toml")
    }

    /// What a node's own directories are.
    pub(crate) fn home(&self, node: &str) -> Home {
        let of_node = self.directory.path().join(node);
        Home::at(of_node.join("run"), of_node.join("leases"))
    }

    pub(crate) fn settings(&self, node: &str) -> Settings {
        let of_node = self.directory.path().join(node);
        Settings {
            network: "pods".to_owned(),
            wire: Some(linux::IfName::new("wire").unwrap()),
            attach: "ptp".to_owned(),
            masquerade: false,
            runtime: None,
            installs_cli: false,
            subnet_env: of_node.join("subnet.env"),
            status: of_node.join("status"),
            path_mtu_period: Duration::from_secs(1),
            tests_offload: true,
            listen: Vec::new(),
            waits: false,
            version: String::new(),
            services: None,
            keys: of_node.join("keys"),
            cloud: CloudSettings {
                record: of_node.join("cloud"),
                period: Duration::from_millis(400),
                routes_max: 500,
                login: Login::default(),
            },
        }
    }

    /// Starts a node's agent on the file of leases, and waits until the node is in the network.
    pub(crate) fn start(&self, node: &str) -> Agent {
        self.start_with(node, FileSource { path: self.leases(), node: node.to_owned() })
    }

    /// The same with another source.
    pub(crate) fn start_with(&self, node: &str, source: impl LeaseSource + Send + 'static) -> Agent {
        Agent::start(self.world.open(node), self.settings(node), self.home(node), source)
    }
}

impl Agent {
    /// Starts one in a namespace, and waits until the node is in the network.
    pub(crate) fn start(
        netns: Netns,
        settings: Settings,
        home: Home,
        source: impl LeaseSource + Send + 'static,
    ) -> Agent {
        let (mut agent, is_ready) = Agent::begin(netns, settings, home, source);
        if is_ready.recv_timeout(PATIENCE).is_err() {
            panic!("the node is not ready: {:?} {:?}", agent.stop(), Status::read(&agent.status));
        }
        agent
    }

    /// Starts one, which says when the node is in the network.
    pub(crate) fn begin(
        netns: Netns,
        settings: Settings,
        home: Home,
        source: impl LeaseSource + Send + 'static,
    ) -> (Agent, mpsc::Receiver<()>) {
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, is_ready) = mpsc::channel();
        let status = Status::path(&settings.status, &settings.network);
        let log = Log::default();
        let listening = log.clone();
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let ready = move || ready.send(()).unwrap();
            let stopped = async { drop(stopped.await) };
            let run = agent::run(settings, home, source, ready, stopped);
            let run = || runtime.block_on(run).map_err(|error| error.to_string());
            tracing::subscriber::with_default(listening, run)
        };
        let thread = std::thread::spawn(move || netns.run(work).unwrap());
        (Agent { stop: Some(stop), thread: Some(thread), status, log }, is_ready)
    }

    /// Its state, as soon as it is as expected.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&Status) -> bool) -> Status {
        let begun = Instant::now();
        loop {
            let status = Status::read(&self.status);
            match &status {
                Ok(status) if is_so(status) => return status.clone(),
                _ if begun.elapsed() > PATIENCE => panic!("not {what}: {status:#?}"),
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Waits until it has said a line with all of these words.
    #[track_caller]
    pub(crate) fn until_said(&self, words: &[&str]) {
        let begun = Instant::now();
        let is_said = || self.log.lines().iter().any(|line| words.iter().all(|word| line.contains(word)));
        while !is_said() {
            assert!(begun.elapsed() < PATIENCE, "{words:?} is not said: {:#?}", self.log.lines());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Of lines with these words there are some, and each is said once, however often the agent looks.
    #[track_caller]
    pub(crate) fn check_said_once(&self, words: &str) {
        let lines = self.log.lines();
        let with_words: Vec<&String> = lines.iter().filter(|line| line.contains(words)).collect();
        let distinct: BTreeSet<&String> = with_words.iter().copied().collect();
        assert!(!with_words.is_empty() && with_words.len() == distinct.len(), "{lines:#?}");
    }

    /// Ends it as SIGTERM does.
    pub(crate) fn stop(&mut self) -> Result<(), String> {
        drop(self.stop.take());
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop().unwrap();
        }
    }
}
