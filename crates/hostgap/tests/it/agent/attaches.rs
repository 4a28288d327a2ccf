//! Pods of two nodes with each attach and each way between the nodes: they, their nodes and the other nodes reach each
//! other, also when no agent is there any more.

use std::net::IpAddr;

use bpf::pins;
use linux::features::{self, Feature};
use testkit::{dump, require_root, skip};

use super::pods::address;
use super::{Nodes, Running, until};

impl Nodes {
    /// Writes into the file of leases the keys that the nodes have made.
    fn exchange_keys(&self, agents: &[Running; 2]) {
        let file = self.path("nodes.toml");
        let mut leases = std::fs::read_to_string(&file).unwrap();
        for (node, agent) in ["a", "b"].iter().zip(agents) {
            until("the node has a key", agent, || self.status(node)["public_key"].is_string());
            let key = self.status(node)["public_key"].clone();
            let name = format!("name = \"{node}\"\n");
            leases = leases.replace(&name, &format!("{name}key = {key}\n"));
        }
        std::fs::write(file, leases).unwrap();
    }
}

/// Joins two nodes and a pod on each, after which the agents end; every one reaches every other.
#[track_caller]
fn all_reach_each_other(attach: &str, backend: &str, needs: &[Feature]) {
    if !require_root() {
        return;
    }
    if let Some(unmet) = features::probe().unwrap().unmet(needs).first() {
        return skip(&unmet.to_string());
    }
    let nodes = Nodes::new(backend);
    for node in ["a", "b"] {
        pins::make(&nodes.pins(node)).unwrap();
    }
    let before = ["a", "b"].map(|node| dump(&nodes.world.open(node)));
    let args = ["--wire", "wire", "--attach", attach];
    let mut agents = ["a", "b"].map(|node| nodes.start_with(node, "log", &args));
    if backend == "wireguard" {
        nodes.exchange_keys(&agents);
    }
    nodes.until_reached("a", "b", &agents[0]);
    nodes.until_reached("b", "a", &agents[1]);
    let confs = [0, 1].map(|at| nodes.configuration(["a", "b"][at], &agents[at]));
    let is_on_wire = attach.starts_with("macvlan") || attach.starts_with("ipvlan");
    for conf in &confs {
        assert_eq!(
            (&conf["attach"], &conf["host_link"]),
            (&attach.into(), &is_on_wire.then_some(true).into()),
            "{conf}"
        );
    }
    agents.iter_mut().for_each(Running::kill);
    let pods = [("a", "pod-a", &confs[0]), ("b", "pod-b", &confs[1])];
    let [pod_a, pod_b] = pods.map(|(node, pod, conf)| {
        nodes.world.add(pod);
        address(&nodes.call("ADD", node, pod, conf))
    });
    let [node_a, node_b] = ["192.0.2.1", "192.0.2.2"].map(|node| node.parse::<IpAddr>().unwrap());
    for (from, to, far_node) in [
        ("pod-a", [pod_b, node_a], node_b),
        ("pod-b", [pod_a, node_b], node_a),
        ("a", [pod_a, pod_b], node_b),
        ("b", [pod_b, pod_a], node_a),
    ] {
        to.into_iter().for_each(|to| nodes.assert_reaches(from, to));
        // What a pod sends to another node's own address goes past the tunnel. The answer comes by it, from an address
        // that is none of the peer's, and is dropped.
        if backend != "wireguard" || !from.starts_with("pod-") {
            nodes.assert_reaches(from, far_node);
        }
    }
    for (node, pod, conf) in pods {
        nodes.call("DEL", node, pod, conf);
    }
    nodes.assert_taken_back(&before);
}

/// One test for each attach and backend, so that a skip names what it skips.
macro_rules! attaches {
    ($($test:ident $attach:literal $backend:literal [$($need:ident),*]),+ $(,)?) => {
        $(#[test]
        fn $test() {
            all_reach_each_other($attach, $backend, &[$(Feature::$need),*]);
        })+
    };
}

attaches! {
    macvlan_by_routes "macvlan" "host-gw" [Macvlan],
    ipvlan_l3_by_routes "ipvlan-l3" "host-gw" [Ipvlan],
    ipvlan_l3s_by_routes "ipvlan-l3s" "host-gw" [IpvlanL3s],
    netkit_by_routes "netkit" "host-gw" [Netkit, Nftables, BpfTc],
    netkit_by_vxlan "netkit" "vxlan" [Netkit, Nftables, BpfTc, Vxlan],
    netkit_by_wireguard "netkit" "wireguard" [Netkit, Nftables, BpfTc, WireGuard],
    ebpf_by_wireguard "ebpf" "wireguard" [Nftables, BpfTc, WireGuard],
    bridge_by_wireguard "bridge" "wireguard" [Nftables, WireGuard],
}
