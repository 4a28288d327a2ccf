//! Pods whose packets programs forward, on nodes with a tunnel between them: the agent lets the programs use it.

use std::net::IpAddr;
use std::process::Command;

use bpf::pins;
use linux::features::{self, Feature};
use testkit::{dump, require_root, skip};

use super::pods::address;
use super::{HOSTGAP, Nodes, Running, answered_all, serve, text, until};

pub(super) const EBPF: [&str; 4] = ["--wire", "wire", "--attach", "ebpf"];

impl Nodes {
    /// The program in the network of a pod.
    pub(super) fn in_pod(&self, pod: &str, args: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.world.name(pod).as_str(), HOSTGAP]).args(args);
        command
    }

    /// IPv4 packets that a node's kernel has forwarded.
    fn forwarded(&self, node: &str) -> u64 {
        let snmp = self.world.open(node).run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"));
        let snmp = snmp.unwrap().unwrap();
        let mut of_ip = snmp.lines().filter(|line| line.starts_with("Ip: ")).map(str::split_whitespace);
        let (names, values) = (of_ip.next().unwrap(), of_ip.next().unwrap());
        let (_, value) = names.zip(values).find(|(name, _)| *name == "ForwDatagrams").unwrap();
        value.parse().unwrap()
    }

    /// Sends requests from one pod to the other; the kernel forwards none of their packets.
    #[track_caller]
    fn assert_by_programs(&self, server: IpAddr) {
        let before = ["a", "b"].map(|node| self.forwarded(node));
        let url = format!("http://{server}:8080/");
        let load = ["load", &url, "--rate", "200", "--duration", "1s", "--connections", "4", "--json"];
        let answered = answered_all(&self.in_pod("pod-a", &load).output().unwrap());
        assert!(answered > 100, "{answered}");
        for (node, before) in ["a", "b"].iter().zip(before) {
            let counters = self.hostgap(node, &["bpf", "counters"]).output().unwrap();
            assert_eq!(self.forwarded(node), before, "{node}: {}", text(&counters.stdout));
        }
    }
}

#[test]
fn programs_send_and_receive_by_the_agents_tunnel() {
    if !require_root() {
        return;
    }
    if let Some(unmet) = features::probe().unwrap().unmet(&[Feature::BpfTc, Feature::Nftables]).first() {
        return skip(&unmet.to_string());
    }
    let nodes = Nodes::new("vxlan");
    for node in ["a", "b"] {
        pins::make(&nodes.pins(node)).unwrap();
    }
    let before = ["a", "b"].map(|node| dump(&nodes.world.open(node)));
    let mut agents = ["a", "b"].map(|node| nodes.start_with(node, "log", &EBPF));
    let confs = [0, 1].map(|at| nodes.configuration(["a", "b"][at], &agents[at]));
    nodes.until_reached("a", "b", &agents[0]);
    nodes.until_reached("b", "a", &agents[1]);
    let pods = [("a", "pod-a", &confs[0]), ("b", "pod-b", &confs[1])];
    let [_, pod_b] = pods.map(|(node, pod, conf)| {
        nodes.world.add(pod);
        address(&nodes.call("ADD", node, pod, conf))
    });
    let use_tunnels = |node: usize| {
        let running: &Running = &agents[node];
        until("programs use the tunnel", running, || {
            let status = nodes.status(["a", "b"][node]);
            status["programs"].is_object() && status["programs"]["why_not"].is_null()
        });
    };
    [0, 1].into_iter().for_each(use_tunnels);
    let _server = serve(nodes.in_pod("pod-b", &["serve", "--listen", &format!("{pod_b}:8080")]));
    nodes.assert_by_programs(pod_b);

    // A tunnel that is made again has them, too.
    let device = text(
        &Command::new("ip")
            .args(["-n", nodes.world.name("a").as_str(), "-o", "link"])
            .output()
            .unwrap()
            .stdout,
    );
    let device = device.split(": ").find(|word| word.starts_with("hgvx")).unwrap().to_owned();
    testkit::run(&nodes.world.open("a"), "ip", &["link", "delete", &device]);
    until("the tunnel is repaired", &agents[0], || {
        let status = nodes.status("a");
        let repairs = status["repairs"].to_string();
        repairs.contains(&format!("program from_wire is no longer at link {device}"))
            && status["programs"]["why_not"].is_null()
    });
    nodes.until_reached("a", "b", &agents[0]);
    nodes.assert_by_programs(pod_b);

    // And they do so with no agent there.
    agents.iter_mut().for_each(Running::kill);
    nodes.assert_by_programs(pod_b);
    for (node, pod, conf) in pods {
        nodes.call("DEL", node, pod, conf);
    }
    nodes.assert_taken_back(&before);
}
