//! Pods on the nodes' own link: what the agent installs joins them, and they, their nodes and the other nodes reach
//! each other, also when no agent is there any more.

use std::io::{ErrorKind, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Output, Stdio};
use std::time::Instant;

use bpf::pins;
use linux::features::{self, Feature};
use serde_json::Value;
use testkit::{dump, require_root, skip};

use super::{Nodes, PATIENCE, Running, WIRE, is_file, text, until};

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

/// The agent stays on its link when a VPN brings a default route that comes first, and so do pods that come then.
#[test]
fn pods_are_on_the_link_that_the_agent_has_found() {
    if !require_root() {
        return;
    }
    if let Some(unmet) = features::probe().unwrap().unmet(&[Feature::Macvlan]).first() {
        return skip(&unmet.to_string());
    }
    let nodes = Nodes::new("host-gw");
    let a = nodes.world.name("a");
    testkit::shell(&format!("ip -n {a} route add default via 192.0.2.2 dev wire metric 100"));
    let agent = nodes.start_with("a", "log", &["--attach", "macvlan"]);
    let b = nodes.start_with("b", "log", &MACVLAN);
    nodes.until_reached("b", "a", &b);
    let conf = nodes.configuration("a", &agent);
    testkit::shell(&format!(
        "ip -n {a} link add vpn type veth peer name end; ip -n {a} address add 198.51.100.7/24 dev vpn
         ip -n {a} link set vpn up; ip -n {a} link set end up; ip -n {a} route add default dev vpn metric 1"
    ));
    nodes.world.add("pod");
    nodes.call("ADD", "a", "pod", &conf);
    nodes.assert_reaches("pod", "192.0.2.2".parse().unwrap());
    nodes.call("DEL", "a", "pod", &conf);
}

/// After a restart of the machine the configuration is there before the agent has made the network again. Its death
/// alone is no reason: what it has made stays.
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

/// A node gets another prefix while a pod stands, and what its pods share names the prefix: from then on no pod gets an
/// address that other nodes do not lead there, and when the last old one is gone the next has one of the new prefix.
#[test]
fn a_node_follows_to_another_prefix_while_a_pod_stands() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new("host-gw");
    let before = dump(&nodes.world.open("a"));
    let mut agent = nodes.start_with("a", "log", &[WIRE[0], WIRE[1], "--masquerade"]);
    let old = nodes.configuration("a", &agent);
    for pod in ["one", "two"] {
        nodes.world.add(pod);
    }
    nodes.call("ADD", "a", "one", &old);
    let file = nodes.path("nodes.toml");
    let leases = std::fs::read_to_string(&file).unwrap().replace("10.244.1.0/24", "10.244.7.0/24");
    std::fs::write(file, leases).unwrap();
    let is_new = |conf: &Value| conf["ipam"]["ranges"][0][0]["subnet"] == "10.244.7.0/24";
    until("runtimes have the new prefix", &agent, || is_new(&nodes.configuration("a", &agent)));
    let new = nodes.configuration("a", &agent);
    let failure = nodes.fails("ADD", "a", "two", &new);
    assert_eq!(failure["code"], 7, "{failure}");
    let says = "network pods stands on this node for 10.244.1.0/24, and 1 attachments rest on it; it is made anew for \
                10.244.7.0/24 when nothing rests on it any more";
    assert_eq!(failure["msg"], says);
    until("the log says it", &agent, || std::fs::read_to_string(&agent.log).unwrap().contains(says));
    nodes.call("DEL", "a", "one", &new);
    let two = address(&nodes.call("ADD", "a", "two", &new));
    assert!(two.to_string().starts_with("10.244.7."), "{two}");
    nodes.assert_reaches("two", "192.0.2.1".parse().unwrap());
    nodes.call("DEL", "a", "two", &new);
    agent.kill();
    nodes.assert_taken_back_on("a", &before);
}

/// A node follows to another attach when the last pod of the one before is gone; until then its pods go on, and the
/// next agent says what it waits for.
#[test]
fn a_node_follows_to_another_attach_when_its_pods_are_gone() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new("host-gw");
    let before = dump(&nodes.world.open("a"));
    let mut agent = nodes.start_with("a", "log", &WIRE);
    for pod in ["one", "two"] {
        nodes.world.add(pod);
    }
    nodes.call("ADD", "a", "one", &nodes.configuration("a", &agent));
    let bridge = [WIRE[0], WIRE[1], "--attach", "bridge"];
    let says_why = |agent: &Running| {
        until("the log says what it waits for", agent, || {
            std::fs::read_to_string(&agent.log).unwrap().contains("1 attachments rest on it")
        });
    };
    // So a rollout of a DaemonSet goes no further.
    let (waiting, probe) = nodes.start_waiting("a", &bridge);
    says_why(&waiting);
    assert!(!probe("/readyz").status.success());
    drop(waiting);
    agent.kill();
    let mut agent = nodes.start_with("a", "next", &bridge);
    says_why(&agent);
    nodes.assert_reaches("one", "192.0.2.1".parse().unwrap());
    let conf = nodes.configuration("a", &agent);
    assert_eq!(conf["attach"], "ptp");
    nodes.call("DEL", "a", "one", &conf);
    until("runtimes have the other attach", &agent, || {
        nodes.configuration("a", &agent)["attach"] == "bridge"
    });
    let conf = nodes.configuration("a", &agent);
    nodes.call("ADD", "a", "two", &conf);
    nodes.assert_reaches("two", "192.0.2.1".parse().unwrap());
    nodes.call("DEL", "a", "two", &conf);
    agent.kill();
    nodes.assert_taken_back_on("a", &before);
}

/// What pods share by such an attach has an MTU: new ones join with it, so that no agent waits until the
/// last pod is gone.
#[test]
fn a_wire_that_gets_another_mtu_leaves_the_node_ready_while_a_pod_stands() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new("host-gw");
    pins::make(&nodes.pins("a")).unwrap();
    let before = dump(&nodes.world.open("a"));
    let bridge = [WIRE[0], WIRE[1], "--attach", "bridge"];
    let mut agent = nodes.start_with("a", "log", &bridge);
    for pod in ["one", "two"] {
        nodes.world.add(pod);
    }
    nodes.call("ADD", "a", "one", &nodes.configuration("a", &agent));
    let a = nodes.world.name("a");
    let mtu_of_node = |mtu: u32| {
        testkit::shell(&format!("ip -n {a} link set wire mtu {mtu}"));
        let is_so = |status: Value| status["mtu"] == mtu && status["undecided"].is_null();
        until("the network has it", &agent, || is_so(nodes.status("a")));
    };
    mtu_of_node(1600);
    assert_eq!(nodes.configuration("a", &agent)["mtu"], 1500);
    let log = std::fs::read_to_string(&agent.log).unwrap();
    assert!(log.contains("new pods get 1500 bytes, the MTU of the network's attached pods"), "{log}");
    nodes.call("ADD", "a", "two", &nodes.configuration("a", &agent));
    // The next agent begins beside the pods.
    let (waiting, probe) = nodes.start_waiting("a", &bridge);
    until("it could take over", &waiting, || probe("/readyz").status.success());
    drop(waiting);
    for pod in ["one", "two"] {
        nodes.call("DEL", "a", pod, &nodes.configuration("a", &agent));
    }
    until("pods get what the network has", &agent, || nodes.configuration("a", &agent)["mtu"] == 1600);
    nodes.call("ADD", "a", "one", &nodes.configuration("a", &agent));
    // The wire carries less than what stands: no pod joins, and the node is well all the same.
    mtu_of_node(1400);
    let conf = nodes.configuration("a", &agent);
    let failure = nodes.fails("ADD", "a", "two", &conf);
    let says = "it is made anew for an MTU of 1400 bytes when nothing rests on it any more";
    assert!(conf["mtu"] == 1400 && failure["msg"].as_str().unwrap().ends_with(says), "{failure}");
    nodes.call("DEL", "a", "one", &conf);
    nodes.call("ADD", "a", "two", &conf);
    nodes.call("DEL", "a", "two", &conf);
    mtu_of_node(1500);
    agent.kill();
    nodes.assert_taken_back_on("a", &before);
}

/// What such pods send passes every tunnel by.
#[test]
fn pods_on_the_nodes_own_link_have_no_tunnel() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new("vxlan");
    for attach in ["macvlan", "ipvlan-l3", "ipvlan-l3s"] {
        let mut agent = nodes.agent("a", "run");
        let output = agent.args([WIRE[0], WIRE[1], "--attach", attach, "--dry-run"]).output().unwrap();
        let said = text(&output.stderr);
        assert!(
            !output.status.success() && said.contains("leaves by the nodes' own link"),
            "{attach}: {said}"
        );
    }
}
