//! Pods on the nodes' own link: what the agent installs joins them, and they, their nodes and the other nodes reach each
//! other, also when no agent is there any more.

use std::io::{ErrorKind, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Output, Stdio};
use std::time::Instant;

use linux::features::{self, Feature};
use serde_json::Value;
use testkit::{dump, require_root, skip};

use super::{Nodes, PATIENCE, Running, is_file, text, until};

const MACVLAN: [&str; 4] = ["--wire", "wire", "--attach", "macvlan"];

impl Nodes {
    /// What the agent of a node has installed for runtimes, as the plugin takes it.
    pub(super) fn configuration(&self, node: &str, agent: &Running) -> Value {
        let file = self.path(node).join(format!("net.d/10-{}.conflist", self.network));
        let begun = Instant::now();
        while !is_file(&file) {
            assert!(begun.elapsed() < PATIENCE, "{}", std::fs::read_to_string(&agent.log).unwrap());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let list: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let mut own = list["plugins"][0].clone();
        for key in ["cniVersion", "name"] {
            own[key] = list[key].clone();
        }
        own
    }

    /// Calls the plugin for `eth0` of a pod.
    fn answer(&self, verb: &str, node: &str, pod: &str, conf: &Value) -> Output {
        let mut command = self.hostgap(node, &[]);
        command.env("CNI_COMMAND", verb).env("CNI_CONTAINERID", pod).env("CNI_IFNAME", "eth0");
        command.env("CNI_NETNS", format!("/run/netns/{}", self.world.name(pod)));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(conf.to_string().as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// The same, which must work; what it prints.
    #[track_caller]
    pub(super) fn call(&self, verb: &str, node: &str, pod: &str, conf: &Value) -> String {
        let output = self.answer(verb, node, pod, conf);
        assert!(output.status.success(), "{verb} {pod}: {}", text(&output.stdout));
        text(&output.stdout)
    }

    /// The same, which must fail; the error object.
    #[track_caller]
    fn fails(&self, verb: &str, node: &str, pod: &str, conf: &Value) -> Value {
        let output = self.answer(verb, node, pod, conf);
        assert!(!output.status.success(), "{verb} {pod}: {}", text(&output.stdout));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Whether an address answers in a namespace: nothing listens at the port, and whoever has the address says so.
    #[track_caller]
    pub(super) fn assert_reaches(&self, from: &str, to: IpAddr) {
        let call = || TcpStream::connect_timeout(&SocketAddr::new(to, 9), PATIENCE);
        let error = self.world.open(from).run(call).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{from} to {to}: {error}");
    }
}

/// The address that a container got.
pub(super) fn address(result: &str) -> IpAddr {
    let result: Value = serde_json::from_str(result).unwrap();
    let address = result["ips"][0]["address"].as_str().unwrap();
    address.split_once('/').unwrap().0.parse().unwrap()
}

#[test]
fn pods_on_the_nodes_own_link_reach_each_other_and_the_nodes() {
    if !require_root() {
        return;
    }
    if let Some(unmet) = features::probe().unwrap().unmet(&[Feature::Macvlan]).first() {
        return skip(&unmet.to_string());
    }
    let nodes = Nodes::new("host-gw");
    let before = ["a", "b"].map(|node| dump(&nodes.world.open(node)));
    let mut agents = ["a", "b"].map(|node| nodes.start_with(node, "log", &MACVLAN));
    let confs = [0, 1].map(|at| nodes.configuration(["a", "b"][at], &agents[at]));
    nodes.until_reached("a", "b", &agents[0]);
    nodes.until_reached("b", "a", &agents[1]);
    assert_eq!((&confs[0]["attach"], &confs[0]["host_link"]), (&"macvlan".into(), &true.into()));
    agents.iter_mut().for_each(Running::kill);
    let pods = [("a", "pod-a", &confs[0]), ("b", "pod-b", &confs[1])];
    let [pod_a, pod_b] = pods.map(|(node, pod, conf)| {
        nodes.world.add(pod);
        address(&nodes.call("ADD", node, pod, conf))
    });
    let [node_a, node_b] = ["192.0.2.1", "192.0.2.2"].map(|node| node.parse::<IpAddr>().unwrap());
    for (from, to) in [
        ("pod-a", [pod_b, node_a, node_b]),
        ("pod-b", [pod_a, node_b, node_a]),
        ("a", [pod_a, pod_b, node_b]),
        ("b", [pod_b, pod_a, node_a]),
    ] {
        to.into_iter().for_each(|to| nodes.assert_reaches(from, to));
    }
    for (node, pod, conf) in pods {
        nodes.call("DEL", node, pod, conf);
    }
    nodes.assert_taken_back(&before);
}

/// After a restart of the machine the configuration is there before the agent has made the network again. Its death alone is
/// no reason: what it has made stays.
#[test]
fn a_node_is_ready_once_an_agent_has_made_the_network_in_this_boot() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new("host-gw");
    let before = dump(&nodes.world.open("a"));
    let mut agent = nodes.start("a");
    let mut conf = nodes.configuration("a", &agent);
    let file = nodes.path("a").join("subnet.env");
    assert_eq!(conf["readiness_file"].as_str(), file.to_str());
    conf["cniVersion"] = "1.1.0".into();
    assert_eq!(nodes.call("STATUS", "a", "pod", &conf), "");
    agent.kill();
    assert_eq!(nodes.call("STATUS", "a", "pod", &conf), "");
    // The next agent replaces nothing that STATUS looks at while it begins.
    let mut next = nodes.start("a");
    while nodes.status("a")["pid"] != next.pid() {
        assert_eq!(nodes.call("STATUS", "a", "pod", &conf), "");
    }
    assert_eq!(nodes.call("STATUS", "a", "pod", &conf), "");
    next.kill();
    nodes.assert_taken_back_on("a", &before);
    // As after a restart, nothing of the network is there but the configuration.
    let failure = nodes.fails("STATUS", "a", "pod", &conf);
    assert_eq!(failure["code"], 50, "{failure}");
    let says = "network pods does not reach other nodes yet: `readiness_file` is ";
    assert!(failure["msg"].as_str().unwrap().starts_with(says), "{failure}");
    let agent = nodes.start("a");
    until("STATUS succeeds again", &agent, || nodes.answer("STATUS", "a", "pod", &conf).status.success());
    drop(agent);
    nodes.assert_taken_back_on("a", &before);
}

/// A tunnel leads beyond the link on which such pods look for each other.
#[test]
fn pods_on_the_nodes_own_link_have_no_tunnel() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new("vxlan");
    let mut agent = nodes.agent("a", "run");
    let output = agent.args(MACVLAN).arg("--dry-run").output().unwrap();
    assert!(!output.status.success());
    let said = text(&output.stderr);
    assert!(
        said.contains("pods of macvlan find each other on the nodes' own link")
            && said.contains("ipvlan-l3s"),
        "{said}"
    );
}
