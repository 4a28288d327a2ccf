//! Services of a cluster, led to their backends on a node: from a real API server into the kernel's maps, and
//! a thousand of them.

mod astray;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use agent::Settings;
use agent::cloud::{CloudSettings, Login};
use agent::lease::{Announcement, Services, Snapshot};
use agent::source::LeaseSource;
use agent::source::kubernetes::{KubernetesSource, PREFIX};
use agent::status::Status;
use bpf::services::{self, FoundService, Protocol, Service, ServiceAddress};
use bpf::{AddressCall, pins};
use cluster::ControlPlane;
use linux::{Cgroup, Netns, NetnsPath, features};
use node::Home;
use plan::{Keeper, Kernel};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{World, require_root, run, shell};
use tokio::sync::watch;

use crate::control::Scene;
use crate::kubernetes::with_pods;
use crate::nodes::{Agent, PATIENCE};

const PORT: u16 = ControlPlane::PORT;
/// What is said of a node that is to lead Services, and knows of none.
const UNSERVED: &str = "the lease source has not said yet which Services there are";

/// A node with a wire and a control group, whose agent leads Services.
struct Node {
    netns: Netns,
    cgroup: Cgroup,
    directory: TempDir,
    network: String,
    // The last to go: it removes what is pinned.
    _world: World,
}

impl Node {
    /// In a namespace, or in one of its own. `None`, and noted, if the kernel cannot do it.
    fn new(netns: Option<Netns>) -> Option<Node> {
        if !require_root() {
            return None;
        }
        if let Err(unmet) = features::services() {
            testkit::skip(&unmet.to_string());
            return None;
        }
        let world = World::new();
        let netns = netns.unwrap_or_else(|| world.add("node"));
        for command in [
            "link add wire type veth peer name far",
            "address add 198.51.100.1/24 dev wire",
            "link set wire up",
            "link set far up",
            "link set lo up",
        ] {
            run(&netns, "ip", &command.split(' ').collect::<Vec<_>>());
        }
        let network = world.name("pods").to_string();
        let cgroup = Cgroup::named(&network).unwrap();
        cgroup.create().unwrap();
        // Journals are synchronised with each line, and the time of a disk does not belong here.
        let directory = tempfile::tempdir_in("/run").or_else(|_| tempfile::tempdir()).unwrap();
        Some(Node { netns, cgroup, directory, network, _world: world })
    }

    fn home(&self) -> Home {
        Home::at(self.directory.path().join("run"), self.directory.path().join("leases"))
    }

    fn start(&self, source: impl LeaseSource + Send + 'static) -> Agent {
        Agent::start(self.netns.try_clone().unwrap(), self.settings(), self.home(), source)
    }

    fn settings(&self) -> Settings {
        let of_node = self.directory.path();
        Settings {
            network: self.network.clone(),
            wire: Some(linux::IfName::new("wire").unwrap()),
            attach: "ptp".to_owned(),
            masquerade: false,
            runtime: None,
            installs_cli: false,
            subnet_env: of_node.join("subnet.env"),
            status: of_node.join("status"),
            listen: Vec::new(),
            path_mtu_period: std::time::Duration::from_secs(60),
            tests_offload: true,
            waits: false,
            version: String::new(),
            keys: of_node.join("keys"),
            services: Some(self.cgroup.path().to_owned()),
            cloud: CloudSettings {
                record: of_node.join("cloud"),
                period: std::time::Duration::from_secs(60),
                routes_max: 500,
                login: Login::default(),
            },
        }
    }

    fn folder(&self) -> PathBuf {
        pins::folder(&format!("{}-services", self.network))
    }

    /// What the maps have at an address, in words.
    fn found(&self, at: &ServiceAddress) -> String {
        let found = services::find(&self.folder(), at).unwrap();
        found.map_or_else(
            || "none".to_owned(),
            |FoundService { service, is_whole }| {
                assert!(is_whole);
                service.backends.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            },
        )
    }

    /// Waits until the maps have this at an address.
    #[track_caller]
    fn until_found(&self, at: &ServiceAddress, wanted: &str) {
        let begun = Instant::now();
        while self.found(at) != wanted {
            assert!(begun.elapsed() < PATIENCE, "{at} is led to {:?}, and not to {wanted:?}", self.found(at));
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Calls from a socket in the control group.
    fn call(&self, to: SocketAddr) -> std::io::Result<TcpStream> {
        let connect = || TcpStream::connect_timeout(&to, PATIENCE);
        self.cgroup.run(|| self.netns.run(connect)).unwrap().unwrap()
    }
}

impl Drop for Node {
    /// A control group does not end with the namespaces of a test.
    fn drop(&mut self) {
        let _ = services::detach(&self.folder());
        let _ = self.cgroup.remove();
    }
}

/// The node `own` in a cluster, with Services.
fn source(scene: &Scene) -> KubernetesSource {
    KubernetesSource {
        node: "own".to_owned(),
        kubeconfig: Some(scene.kubeconfig("own")),
        network: scene.network(),
        annotation_prefix: PREFIX.to_owned(),
        set_condition: false,
        services: true,
    }
}

fn socket(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// An EndpointSlice as a user writes it for endpoints that are no pods.
fn slice(family: &str, addresses: &[&str]) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": format!("web-{}", family.to_lowercase()),
            "labels": { "kubernetes.io/service-name": "web" },
        },
        "addressType": family,
        "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }],
        "endpoints": addresses.iter().map(|address| json!({ "addresses": [address] })).collect::<Vec<_>>(),
    })
}

fn patch(scene: &Scene, slice: &str, endpoints: &Value) {
    let patch = json!({ "endpoints": endpoints }).to_string();
    scene.kubectl(&["patch", "endpointslice", slice, "--type=merge", "--patch", &patch]);
}

/// Creates the Service `web` of both families, without endpoints. Its addresses.
fn create_web(scene: &Scene) -> [ServiceAddress; 2] {
    let web = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" },
        "spec": {
            "ipFamilyPolicy": "RequireDualStack",
            "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }],
        },
    });
    scene.create(PORT, &[web]);
    let shown = scene.kubectl(&["get", "service", "web", "--output", "json"]);
    let created: Value = serde_json::from_str(&shown).unwrap();
    let ips = created["spec"]["clusterIPs"].as_array().unwrap();
    [0, 1].map(|of| ServiceAddress {
        address: ips[of].as_str().unwrap().parse().unwrap(),
        port: 80,
        protocol: Protocol::Tcp,
    })
}

#[test]
fn what_the_api_server_says_of_services_is_led() {
    let Some(scene) = Scene::new() else { return };
    let netns = NetnsPath::new(scene.plane.network().to_str().unwrap()).unwrap();
    let Some(node) = Node::new(Some(Netns::open_path(&netns).unwrap())) else { return };
    scene.create(PORT, &[with_pods("own", &["10.1.2.0/24"])]);
    scene.set_network(&json!({ "Network": "10.0.0.0/8", "Backend": { "Type": "host-gw" } }));
    let source = source(&scene);
    let (mut agent, is_ready) =
        Agent::begin(node.netns.try_clone().unwrap(), node.settings(), node.home(), source.clone());
    // Where the agent may not see Services, no pod is to start: the node is not ready.
    let forbidden =
        |why: &String| why.contains("the Services are not watched") && why.contains("is forbidden");
    let is_undecided = |status: &Status| status.undecided.as_deref() == Some(UNSERVED);
    agent.until("forbidden", |status| {
        status.source_unreachable.as_ref().is_some_and(forbidden) && is_undecided(status)
    });
    assert!(!node.settings().subnet_env.exists() && is_ready.try_recv().is_err());
    scene.give_rights_for_services();
    is_ready.recv_timeout(PATIENCE).unwrap();
    assert!(node.settings().subnet_env.exists());

    // The API server's own, at which it answers.
    let own = socket("10.96.0.1:443");
    let at = ServiceAddress { address: own.ip(), port: 443, protocol: Protocol::Tcp };
    agent.until("led", |status| {
        status.source_unreachable.is_none()
            && status
                .services
                .as_ref()
                .is_some_and(|services| services.total == 1 && services.failed.is_empty())
    });
    assert_eq!(node.found(&at), "192.0.2.1:6443");
    assert_eq!(node.call(own).unwrap().peer_addr().unwrap(), own);

    let [v4, v6] = create_web(&scene);
    // It has no endpoint yet: calls are refused, and do not wait.
    node.until_found(&v4, "");
    let refused = node.call(SocketAddr::new(v4.address, 80)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);

    scene.create(PORT, &[slice("IPv4", &["10.1.2.5", "10.1.3.5"]), slice("IPv6", &["fd00:1:2::5"])]);
    node.until_found(&v4, "10.1.2.5:8080 10.1.3.5:8080");
    node.until_found(&v6, "[fd00:1:2::5]:8080");
    patch(&scene, "web-ipv4", &json!([{ "addresses": ["10.1.3.5"] }]));
    node.until_found(&v4, "10.1.3.5:8080");
    // The last one is about to end.
    let leaving = json!({ "ready": false, "serving": true, "terminating": true });
    patch(&scene, "web-ipv4", &json!([{ "addresses": ["10.1.3.5"], "conditions": leaving }]));
    let unready = json!({ "ready": false });
    patch(&scene, "web-ipv6", &json!([{ "addresses": ["fd00:1:2::5"], "conditions": unready }]));
    node.until_found(&v6, "");
    assert_eq!(node.found(&v4), "10.1.3.5:8080");

    // No agent is needed for calls, and the next one finds what happened meanwhile.
    agent.stop().unwrap();
    assert!(node.call(own).is_ok());
    scene.kubectl(&["delete", "service", "web"]);
    services::remove(&node.folder(), &at).unwrap();
    let mut agent = node.start(source);
    node.until_found(&at, "192.0.2.1:6443");
    for at in [v4, v6] {
        node.until_found(&at, "none");
    }
    assert!(node.call(own).is_ok());
    agent.stop().unwrap();
    let take_back =
        || Keeper::take_back(&node.home().node_networks(), &node.network, &mut Kernel::new().unwrap());
    let outcomes = node.netns.run(take_back).unwrap().unwrap();
    assert!(outcomes.iter().all(|journal| !journal.is_kept()), "{outcomes:?}");
    assert!(!pins::exists(&node.folder()));
    assert_ne!(node.call(own).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

/// A source that says what a test wants.
struct ScriptedSource(watch::Receiver<Snapshot>);

impl LeaseSource for ScriptedSource {
    fn start(self, _: watch::Receiver<Option<Announcement>>) -> watch::Receiver<Snapshot> {
        self.0
    }
}

/// A Service of each number, with a port of either protocol and three backends.
fn thousand() -> Services {
    let of = |number: u8, group: u8| {
        let at = |protocol| ServiceAddress { address: [10, 96, group, number].into(), port: 80, protocol };
        let backends = (1..=3).map(|last| SocketAddr::from(([10, 1, group, last], 8000 + u16::from(number))));
        let service =
            |protocol| Service { at: at(protocol), affinity_s: 0, backends: backends.clone().collect() };
        (
            format!("space-{group}/service-{number}"),
            Arc::new([Protocol::Tcp, Protocol::Udp].map(service).to_vec()),
        )
    };
    (0..4).flat_map(|group| (0..250).map(move |number| of(number, group))).collect()
}

/// As where an agent on the node itself led them, and one in a container does not see what it has pinned.
#[test]
fn services_that_are_led_unseen_are_not_led_a_second_time() {
    let Some(node) = Node::new(None) else { return };
    let (say, receiver) = watch::channel(Snapshot::default());
    say.send_replace(Snapshot {
        network: Some(json!({ "Network": "10.0.0.0/8", "Backend": { "Type": "host-gw" } })),
        own: ["10.1.2.0/24".parse::<ipnet::IpNet>().unwrap()].into_iter().collect(),
        services: Some(thousand().into_iter().take(1).collect()),
        ..Snapshot::default()
    });
    let is_led = |status: &Status| status.services.as_ref().is_some_and(|services| services.total == 1);
    // Until a snapshot is new to an agent, it waits.
    let source = || {
        ScriptedSource({
            let mut receiver = receiver.clone();
            receiver.mark_changed();
            receiver
        })
    };
    let mut agent = node.start(source());
    agent.until("led", is_led);
    agent.stop().unwrap();
    let (folder, aside) = (node.folder(), node.directory.path().join("aside"));
    std::fs::create_dir(&aside).unwrap();
    let [folder, aside] = [&folder, &aside].map(|path| path.display().to_string());
    shell(&format!("mount --bind {folder} {aside}; umount {folder}; rmdir {folder}"));
    let netns = node.netns.try_clone().unwrap();
    let (mut agent, ready) = Agent::begin(netns, node.settings(), node.home(), source());
    assert!(ready.recv().is_err(), "it leads what is led");
    let why = agent.stop().unwrap_err();
    assert!(why.starts_with("take over the Services that the agent before led: "), "{why}");
    // The last holder of what led them goes, some time later.
    shell(&format!("umount {aside}"));
    let begun = Instant::now();
    while services::are_at(node.cgroup.path()).unwrap() {
        assert!(begun.elapsed() < PATIENCE, "the programs are still there");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let agent = node.start(source());
    agent.until("led again", is_led);
    assert_eq!(services::met(&node.folder(), node.cgroup.path()).unwrap(), AddressCall::ALL);
}

/// As an agent beside another plugin has it: the environment file is all that it writes.
#[test]
fn a_node_that_was_told_of_its_network_is_told_again() {
    let Some(node) = Node::new(None) else { return };
    let (say, receiver) = watch::channel(Snapshot::default());
    let mut snapshot = Snapshot {
        network: Some(json!({ "Network": "10.0.0.0/8", "Backend": { "Type": "host-gw" } })),
        own: ["10.1.2.0/24".parse::<ipnet::IpNet>().unwrap()].into_iter().collect(),
        services: Some(Services::new()),
        ..Snapshot::default()
    };
    say.send_replace(snapshot.clone());
    let mut changed = receiver.clone();
    changed.mark_changed();
    let mut agent = node.start(ScriptedSource(changed));
    snapshot.services = None;
    for round in ["the agent", "the next agent"] {
        let mut look = |what: &str| {
            snapshot.unreachable = Some(format!("{round}: {what}"));
            say.send_replace(snapshot.clone());
            let is_so = |status: &Status| {
                status.source_unreachable == snapshot.unreachable
                    && status.undecided.as_deref() == Some(UNSERVED)
            };
            agent.until(what, is_so);
        };
        look("no Services");
        std::fs::remove_file(node.settings().subnet_env).unwrap();
        look("no file");
        assert!(node.settings().subnet_env.exists(), "{round}");
        agent.stop().unwrap();
        let (netns, source) = (node.netns.try_clone().unwrap(), ScriptedSource(receiver.clone()));
        (agent, _) = Agent::begin(netns, node.settings(), node.home(), source);
    }
}

/// As in a rollout, which stops at a node whose next agent is not ready.
#[test]
fn an_agent_that_waits_is_not_ready_before_it_knows_the_services() {
    let Some(node) = Node::new(None) else { return };
    let (say, receiver) = watch::channel(Snapshot::default());
    let mut snapshot = Snapshot {
        network: Some(json!({ "Network": "10.0.0.0/8", "Backend": { "Type": "host-gw" } })),
        own: ["10.1.2.0/24".parse::<ipnet::IpNet>().unwrap()].into_iter().collect(),
        services: Some(thousand().into_iter().take(1).collect()),
        ..Snapshot::default()
    };
    say.send_replace(snapshot.clone());
    let mut changed = receiver.clone();
    changed.mark_changed();
    let agent = node.start(ScriptedSource(changed));
    agent.until("led", |status| status.services.as_ref().is_some_and(|services| services.total == 1));

    let services = snapshot.services.take();
    let (say, receiver) = watch::channel(snapshot.clone());
    let settings = Settings { waits: true, ..node.settings() };
    let netns = node.netns.try_clone().unwrap();
    let (mut next, _ready) = Agent::begin(netns, settings, node.home(), ScriptedSource(receiver));
    next.until_said(&["not ready: the lease source has not said yet which Services there are"]);
    say.send_replace(Snapshot { services, ..snapshot });
    next.until_said(&["ready: this agent could take the network over"]);
    next.stop().unwrap();
    drop(agent);
}

/// The journals of what stands, by their paths: one for each Service.
fn journals(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(journals(&path));
        } else if path.extension().is_some_and(|ending| ending == "journal") {
            found.insert(path.clone(), std::fs::read(path).unwrap());
        }
    }
    found
}

#[test]
fn of_a_thousand_services_the_one_that_changes_is_written() {
    let Some(node) = Node::new(None) else { return };
    let mut snapshot = Snapshot {
        network: Some(json!({ "Network": "10.0.0.0/8", "Backend": { "Type": "host-gw" } })),
        own: ["10.1.2.0/24".parse::<ipnet::IpNet>().unwrap()].into_iter().collect(),
        services: Some(thousand()),
        ..Snapshot::default()
    };
    let (say, receiver) = watch::channel(Snapshot::default());
    say.send(snapshot.clone()).unwrap();
    let begun = Instant::now();
    let agent = node.start(ScriptedSource(receiver));
    agent.until("led", |status| status.services.as_ref().is_some_and(|services| services.total == 1000));
    println!("1000 Services, 2000 entries, 6000 backends: {:?}", begun.elapsed());
    assert_eq!(services::list(&node.folder()).unwrap().len(), 2000);
    assert_eq!(services::met(&node.folder(), node.cgroup.path()).unwrap(), AddressCall::ALL);
    let run = node.directory.path().join("run");
    let before = journals(&run);

    let mut all = snapshot.services.take().unwrap();
    let changed = Arc::make_mut(all.get_mut("space-2/service-77").unwrap());
    changed[0].backends = [socket("10.1.9.9:8077")].into();
    let at = changed[0].at;
    snapshot.services = Some(all);
    let begun = Instant::now();
    say.send(snapshot.clone()).unwrap();
    node.until_found(&at, "10.1.9.9:8077");
    println!("one of them changes: {:?}", begun.elapsed());
    let after = journals(&run);
    let written: Vec<&PathBuf> =
        after.iter().filter(|(path, text)| before[*path] != **text).map(|(path, _)| path).collect();
    assert_eq!((before.len(), written.len()), (after.len(), 1), "{written:?}");
    assert!(written[0].ends_with("service-space-2%2fservice-77.journal"), "{written:?}");

    // A source that knows nothing of Services takes nothing away; one that knows that there are none does.
    snapshot.services = None;
    snapshot.unreachable = Some("it is away".to_owned());
    say.send(snapshot.clone()).unwrap();
    agent.until("away", |status| status.source_unreachable.is_some());
    assert_eq!(services::list(&node.folder()).unwrap().len(), 2000);
    snapshot.services = Some(Services::new());
    say.send(snapshot).unwrap();
    agent.until("none", |status| status.services.as_ref().is_some_and(|services| services.total == 0));
    assert_eq!(services::list(&node.folder()).unwrap(), BTreeMap::new());
}
