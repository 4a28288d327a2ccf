//! The agent as a process on two nodes: requests go on while it is killed, started again and taken away, and nothing of
//! it is left at the end. Its words: state, log, dry run, errors.

mod attaches;
mod check;
mod down;
mod flannel;
mod migrate;
mod pods;
mod programs;
mod renewal;
mod unit;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use bpf::pins;
use serde_json::Value;
use tempfile::TempDir;
use testkit::{Dump, World, dump, require_root, shell};

const HOSTGAP: &str = env!("CARGO_BIN_EXE_hostgap");
/// The link between the nodes.
const WIRE: [&str; 2] = ["--wire", "wire"];
/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Two nodes on one wire, each with directories of its own for what the program keeps, and an address of its pods.
struct Nodes {
    world: World,
    directory: TempDir,
    /// The name of the network.
    network: &'static str,
    /// The lease source of each node.
    sources: [String; 2],
}

impl Nodes {
    fn new(backend: &str) -> Nodes {
        let directory = tempfile::tempdir().unwrap();
        let source = format!("file:{}", directory.path().join("nodes.toml").display());
        let sources = [source.clone(), source];
        let nodes = Nodes { world: World::new(), directory, network: "pods", sources };
        let leases =
            format!("[network]\nNetwork = \"10.244.0.0/16\"\nBackend = {{ Type = \"{backend}\" }}\n");
        let node = |(number, name)| {
            format!(
                "[[node]]\nname = \"{name}\"\npublic = [\"192.0.2.{number}\"]\npods = [\"10.244.{number}.0/24\"]\n"
            )
        };
        let [a, b] = [(1, "a"), (2, "b")].map(node);
        std::fs::write(nodes.path("nodes.toml"), leases + &a + &b).unwrap();
        for short in ["a", "b"] {
            nodes.world.add(short);
            for own in ["run", "bpf", "lib"] {
                std::fs::create_dir_all(nodes.path(short).join(own)).unwrap();
            }
        }
        let (a, b) = (nodes.world.name("a"), nodes.world.name("b"));
        shell(&format!(
            "ip -n {a} link add wire type veth peer name wire netns {b}
             ip -n {a} address add 192.0.2.1/24 dev wire; ip -n {b} address add 192.0.2.2/24 dev wire
             ip -n {a} link set lo up; ip -n {b} link set lo up
             ip -n {a} link set wire up; ip -n {b} link set wire up
             ip -n {a} address add 10.244.1.9/32 dev lo; ip -n {b} address add 10.244.2.9/32 dev lo"
        ));
        nodes
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A bpffs of a node, where a test has made one. What a process under `ip netns exec` mounts itself goes with it.
    fn pins(&self, node: &str) -> PathBuf {
        pins::folder(self.world.name(node).as_str())
    }

    /// The program on a node.
    fn hostgap(&self, node: &str, args: &[&str]) -> Command {
        self.program(node, HOSTGAP, args)
    }

    /// Any program on a node.
    fn program(&self, node: &str, program: &str, args: &[&str]) -> Command {
        let of_node = self.path(node);
        let [run, lib] = ["run", "lib"].map(|own| of_node.join(own).display().to_string());
        let pins = self.pins(node);
        let bpf = if pins.exists() { pins } else { of_node.join("bpf") }.display().to_string();
        let script = format!(
            "mkdir -p /run/hostgap /run/hostgap-bpf && mount --bind {lib} /var/lib
             mount --bind {run} /run/hostgap && mount --bind {bpf} /run/hostgap-bpf && exec \"$@\""
        );
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.world.name(node).as_str(), "sh", "-c", &script, "sh", program]);
        command.args(args);
        command
    }

    /// A command of the agent, with the files of the node.
    fn agent(&self, node: &str, verb: &str) -> Command {
        let files = |name: &str| self.path(node).join(name).display().to_string();
        let mut command = self.hostgap(node, &["agent", verb]);
        command.args(["--status-dir", &files("status"), "--subnet-file", &files("subnet.env")]);
        command.args(["--network", self.network]);
        if ["run", "migrate"].contains(&verb) {
            command.args(["--bin-dir", &files("bin"), "--conf-dir", &files("net.d")]);
        }
        if verb == "run" {
            let source = &self.sources[usize::from(node == "b")];
            command.args(["--node", node, "--source", source]);
        }
        command
    }

    fn start(&self, node: &str) -> Running {
        self.start_with(node, "log", &WIRE)
    }

    fn start_with(&self, node: &str, log: &str, args: &[&str]) -> Running {
        let log = self.path(node).join(log);
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        let child = self.agent(node, "run").args(args).stdout(Stdio::null()).stderr(file).spawn().unwrap();
        Running { child, log }
    }

    /// Starts an agent that waits for another one, and returns what asks it how it is.
    fn start_waiting(&self, node: &str, args: &[&str]) -> (Running, impl Fn(&str) -> Output) {
        let socket = self.path("waiting.sock").display().to_string();
        let listen = format!("unix:{socket}");
        let args = [&["--wait", "--listen", listen.as_str()], args].concat();
        let waiting = self.start_with(node, "waiting", &args);
        let probe = move |path: &str| {
            Command::new(HOSTGAP).args(["agent", "probe", path, "--socket", &socket]).output().unwrap()
        };
        (waiting, probe)
    }

    fn output(mut command: Command) -> Output {
        command.output().unwrap()
    }

    fn status(&self, node: &str) -> Value {
        serde_json::from_slice(&Nodes::output(json(self.agent(node, "status"))).stdout).unwrap_or_default()
    }

    /// Takes everything back on both nodes, and compares them with how they were.
    #[track_caller]
    fn assert_taken_back(&self, before: &[Dump; 2]) {
        for (node, before) in ["a", "b"].iter().zip(before) {
            self.assert_taken_back_on(node, before);
        }
    }

    /// The same on one node.
    #[track_caller]
    fn assert_taken_back_on(&self, node: &str, before: &Dump) {
        for mut command in [self.agent(node, "down"), self.hostgap(node, &["clean"])] {
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        before.assert_same(&dump(&self.world.open(node)), "after all is taken back");
    }

    /// Waits until a node's agent reaches the other one.
    #[track_caller]
    fn until_reached(&self, node: &str, other: &str, running: &Running) {
        let begun = Instant::now();
        loop {
            let status = self.status(node);
            let is_own = status["pid"] == running.pid() && status["running"] == true;
            if is_own && status["peers"][other]["why_not"].is_null() && status["peers"][other].is_object() {
                return;
            }
            let log = std::fs::read_to_string(&running.log).unwrap_or_default();
            assert!(begun.elapsed() < PATIENCE, "{node} does not reach {other}: {status:#} {log}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn json(mut command: Command) -> Command {
    command.arg("--json");
    command
}

/// A process that is killed at the end.
struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// `ip` and `sh` become the program.
    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_file(path: &Path) -> bool {
    path.is_file()
}

#[test]
fn no_request_is_lost_while_agents_are_killed() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new("vxlan");
    let before = ["a", "b"].map(|node| dump(&nodes.world.open(node)));
    let (mut a, mut b) = (nodes.start("a"), nodes.start("b"));
    nodes.until_reached("a", "b", &a);
    nodes.until_reached("b", "a", &b);
    let _server = serve(nodes.hostgap("b", &["serve", "--listen", "10.244.2.9:8080"]));
    let url = "http://10.244.2.9:8080/";
    let load = ["load", url, "--rate", "500", "--duration", "6s", "--connections", "8", "--json"];
    let mut load = nodes.hostgap("a", &load).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut deaths = 0;
    while load.try_wait().unwrap().is_none() {
        for (node, other, agent) in [("a", "b", &mut a), ("b", "a", &mut b)] {
            agent.kill();
            deaths += 1;
            *agent = nodes.start(node);
            nodes.until_reached(node, other, agent);
        }
    }
    let output = load.wait_with_output().unwrap();
    let answered = answered_all(&output);
    assert!(answered >= 2_900 && deaths >= 2, "{deaths} deaths, {answered} answers");
    // No agent has repaired anything, since nothing was ever broken.
    assert_eq!(nodes.status("a")["repairs_total"], 0, "{:#}", nodes.status("a"));
    a.kill();
    b.kill();
    let shown = text(&Nodes::output(nodes.agent("a", "status")).stdout);
    assert!(shown.contains("not running; what it made stays") && shown.contains("vxlan"), "{shown}");
    // As an agent leaves it of a network that was encrypted before.
    let key = nodes.path("a").join("lib/hostgap/agent/pods.wireguard.key");
    std::fs::create_dir_all(key.parent().unwrap()).unwrap();
    std::fs::write(&key, "").unwrap();
    for (node, before) in ["a", "b"].iter().zip(&before) {
        let down = Nodes::output(nodes.agent(node, "down"));
        assert!(down.status.success() && text(&down.stdout).starts_with("pods: undid "), "{down:?}");
        before.assert_same(&dump(&nodes.world.open(node)), "after it is taken back");
        assert!(!is_file(&nodes.path(node).join("subnet.env")));
    }
    assert!(!is_file(&key));
}

/// A server that listens.
fn serve(mut command: Command) -> Running {
    let mut server = Running { child: command.stderr(Stdio::piped()).spawn().unwrap(), log: PathBuf::new() };
    let mut said = BufReader::new(server.child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.starts_with("listening on "), "{line}");
    server
}

/// How many requests of a load were answered: all that were sent.
#[track_caller]
fn answered_all(output: &Output) -> u64 {
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    for lost in ["/connection_errors", "/missed", "/unexpected/status", "/unexpected/length", "/reconnects"] {
        assert_eq!(result.pointer(lost), Some(&0.into()), "{lost} of {result:#}");
    }
    result["answered"].as_u64().unwrap()
}

#[test]
fn an_agent_that_waits_takes_over_what_another_leaves() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new("vxlan");
    let (mut first, b) = (nodes.start("a"), nodes.start("b"));
    nodes.until_reached("a", "b", &first);
    nodes.until_reached("b", "a", &b);
    let (second, probe) = nodes.start_waiting("a", &WIRE);
    until("it is ready to take over", &second, || probe("/readyz").status.success());
    assert_eq!(text(&probe("/healthz").stdout), "ok\n");
    nodes.until_reached("a", "b", &first);
    first.kill();
    nodes.until_reached("a", "b", &second);
    until("the node is in the network", &second, || probe("/readyz").status.success());
    let log = std::fs::read_to_string(&second.log).unwrap();
    assert_eq!(log.matches("another agent keeps the network on this node").count(), 1, "{log}");
    assert_eq!(nodes.status("a")["repairs_total"], 0, "{:#}", nodes.status("a"));
    assert!(!probe("/metrics").status.success(), "it is not among what can be asked");
}

#[test]
fn an_agent_that_could_not_take_over_is_not_ready() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new("vxlan");
    let (first, b) = (nodes.start("a"), nodes.start("b"));
    nodes.until_reached("a", "b", &first);
    nodes.until_reached("b", "a", &b);
    let (second, probe) = nodes.start_waiting("a", &["--wire", "none"]);
    let says = |what: &str| std::fs::read_to_string(&second.log).unwrap().contains(what);
    until("it says why it waits in vain", &second, || says("there is no link none"));
    let answer = probe("/readyz");
    assert_eq!((answer.status.code(), text(&answer.stdout).contains("not ready yet")), (Some(1), true));
    assert!(probe("/healthz").status.success());
    drop(second);
    // The socket of a killed agent is there, and nothing answers.
    let answer = probe("/readyz");
    assert!(!answer.status.success() && text(&answer.stderr).contains("could not ask the agent at"));
}

#[track_caller]
fn until(what: &str, running: &Running, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        let log = std::fs::read_to_string(&running.log).unwrap_or_default();
        assert!(begun.elapsed() < PATIENCE, "not so: {what}: {log}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_plugin_is_installed_with_what_the_node_has() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new("host-gw");
    let (a, b) = (nodes.start("a"), nodes.start("b"));
    nodes.until_reached("a", "b", &a);
    nodes.until_reached("b", "a", &b);
    let file = nodes.path("a").join("net.d/10-pods.conflist");
    let begun = Instant::now();
    while !is_file(&file) {
        assert!(begun.elapsed() < PATIENCE, "{}", std::fs::read_to_string(&a.log).unwrap());
        std::thread::sleep(Duration::from_millis(10));
    }
    let list: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let plugin = &list["plugins"][0];
    assert_eq!((&plugin["attach"], &plugin["mtu"]), (&"ptp".into(), &1500.into()));
    assert_eq!(plugin["ipam"]["ranges"][0][0]["subnet"], "10.244.1.0/24");
    assert!(is_file(&nodes.path("a").join("bin/hostgap")));
    // A second agent does not take the network from the first.
    let second = nodes.agent("a", "run").args(WIRE).output().unwrap();
    assert!(!second.status.success());
    assert!(text(&second.stderr).contains("it belongs to process"), "{}", text(&second.stderr));
    let down = Nodes::output(nodes.agent("a", "down"));
    assert!(text(&down.stderr).contains("it belongs to process"), "{}", text(&down.stderr));
}

#[test]
fn a_damaged_record_of_a_cloud_keeps_nothing_on_the_node() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new("host-gw");
    let before = dump(&nodes.world.open("a"));
    let mut a = nodes.start("a");
    nodes.until_reached("a", "b", &a);
    a.kill();
    let records = nodes.path("a").join("lib/hostgap/agent");
    std::fs::create_dir_all(&records).unwrap();
    std::fs::write(records.join("pods.cloud.json"), "{").unwrap();
    let down = Nodes::output(nodes.agent("a", "down"));
    assert!(!down.status.success() && text(&down.stdout).starts_with("pods: undid "), "{down:?}");
    let words = ["could not read the record", "/var/lib/hostgap/agent/pods.cloud.json", "by hand"];
    assert!(words.iter().all(|word| text(&down.stderr).contains(word)), "{down:?}");
    before.assert_same(&dump(&nodes.world.open("a")), "after it is taken back");
}

#[test]
fn a_dry_run_shows_commands_and_makes_nothing() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new("vxlan");
    let before = dump(&nodes.world.open("a"));
    let mut dry = nodes.agent("a", "run");
    let shown = text(&dry.args(WIRE).arg("--dry-run").output().unwrap().stdout);
    for line in [
        "type vxlan id 1 dev wire local 192.0.2.1 dstport 8472",
        "ip route replace 10.244.2.0/24 via 10.244.2.0",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    let refused =
        nodes.agent("a", "run").args(["--cloud-routes-max", "2000000000000000000"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let refused = nodes.agent("a", "run").arg("--services").output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("--services needs --source kubernetes"),
        "{}",
        text(&refused.stderr)
    );
    let encrypted = std::fs::read_to_string(nodes.path("nodes.toml")).unwrap().replace("vxlan", "wireguard");
    std::fs::write(nodes.path("nodes.toml"), encrypted).unwrap();
    let dry = nodes.agent("a", "run").args(WIRE).arg("--dry-run").output().unwrap();
    let key = "private-key /var/lib/hostgap/agent/pods.wireguard.key";
    let is_refused = text(&dry.stderr).contains("modprobe wireguard");
    assert!(is_refused != text(&dry.stdout).contains(key), "{dry:?}");
    assert!(!nodes.path("a").join("lib/hostgap/agent").exists());
    assert_eq!(std::fs::read_dir(nodes.path("a").join("run")).unwrap().count(), 0);
    before.assert_same(&dump(&nodes.world.open("a")), "after a dry run");
    let down = Nodes::output(nodes.agent("a", "down"));
    assert!(text(&down.stderr).contains("no agent has made a network pods"), "{}", text(&down.stderr));
    let status = Nodes::output(nodes.agent("a", "status"));
    assert!(text(&status.stderr).contains("`hostgap agent run` writes it"), "{}", text(&status.stderr));
}
