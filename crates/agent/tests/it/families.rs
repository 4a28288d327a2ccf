//! Networks of one family. Nodes have addresses of that family alone, and where it is IPv4 the kernel may have
//! been started with `ipv6.disable=1`.

use agent::status::Status;
use testkit::{Dump, dump, require_root, shell};

use crate::keep::{DIRECT_ROUTING, HOST_GW, VXLAN, is_reached, take_back, transfer_to};
use crate::nodes::{Agent, Nodes};
use crate::wireguard::{WIREGUARD, is_missing};

/// What one family has on two nodes.
struct Alone {
    /// The keys of the network, as in flannel's configuration.
    network: &'static str,
    /// Name, address and pods of each node.
    nodes: [(&'static str, &'static str, &'static str); 2],
    /// A pod of each.
    pods: [&'static str; 2],
    length: u8,
    /// What `ip` is to be told of each address.
    nodad: &'static str,
    name: &'static str,
}

const V4: Alone = Alone {
    network: "Network = \"10.244.0.0/16\"",
    nodes: [("a", "192.0.2.1", "10.244.1.0/24"), ("b", "192.0.2.2", "10.244.2.0/24")],
    pods: ["10.244.1.9", "10.244.2.9"],
    length: 24,
    nodad: "",
    name: "ipv4",
};
const V6: Alone = Alone {
    network: "EnableIPv4 = false\nEnableIPv6 = true\nIPv6Network = \"fd00:244::/56\"",
    nodes: [("a", "2001:db8::1", "fd00:244:0:1::/64"), ("b", "2001:db8::2", "fd00:244:0:2::/64")],
    pods: ["fd00:244:0:1::9", "fd00:244:0:2::9"],
    length: 64,
    nodad: "nodad",
    name: "ipv6",
};

/// The nodes with addresses, and a pod each.
fn nodes_of(alone: &Alone) -> Nodes {
    let nodes = Nodes::apart();
    let [a, b] = ["a", "b"].map(|node| nodes.name(node));
    shell(&format!("ip -n {a} link add wire type veth peer name wire netns {b}"));
    for ((node, public, _), pod) in alone.nodes.iter().zip(alone.pods) {
        let (name, Alone { length, nodad, .. }) = (nodes.name(node), alone);
        shell(&format!(
            "ip -n {name} address add {public}/{length} dev wire {nodad}
             ip -n {name} link set lo up; ip -n {name} link set wire up; ip -n {name} address add {pod} dev lo"
        ));
    }
    nodes
}

/// By each backend what one pod sends the other one arrives, a check finds all well, and the agent's own work
/// goes without a trace.
#[track_caller]
fn check(alone: &Alone) {
    if !require_root() {
        return;
    }
    let nodes = nodes_of(alone);
    let before = ["a", "b"].map(|node| dump(&nodes.world.open(node)));
    nodes.write_leases_of(alone.network, VXLAN, &alone.nodes);
    let agents = ["a", "b"].map(|node| (node, nodes.start(node)));
    for (backend, kind, by) in
        [(VXLAN, "vxlan", "vxlan"), (DIRECT_ROUTING, "vxlan", "direct"), (HOST_GW, "host-gw", "direct")]
    {
        nodes.write_leases_of(alone.network, backend, &alone.nodes);
        for (node, agent) in &agents {
            let peer = if *node == "a" { "b" } else { "a" };
            let is_so = |status: &Status| {
                is_reached(peer, by)(status)
                    && status.backend.as_deref() == Some(kind)
                    && status.peers[peer].by.keys().eq([alone.name])
            };
            agent.until(backend, is_so);
        }
        assert_well(&nodes, alone);
    }
    leave(&nodes, alone, agents.map(|(_, agent)| agent), &before);
}

/// The same by the backend whose nodes say each other their keys.
#[track_caller]
fn check_encrypted(alone: &Alone) {
    if !require_root() || is_missing() {
        return;
    }
    let nodes = nodes_of(alone);
    let before = ["a", "b"].map(|node| dump(&nodes.world.open(node)));
    nodes.write_leases_of(alone.network, WIREGUARD, &alone.nodes);
    let [(a, key_a), (b, key_b)] = nodes.say_keys();
    nodes.add_keys(key_a, key_b);
    a.until("b is reached", is_reached("b", "wireguard"));
    b.until("a is reached", is_reached("a", "wireguard"));
    assert_well(&nodes, alone);
    leave(&nodes, alone, [a, b], &before);
}

/// What one pod sends the other one arrives, and a check finds all well in this family alone.
#[track_caller]
fn assert_well(nodes: &Nodes, alone: &Alone) {
    transfer_to(nodes, alone.pods[1]);
    for node in ["a", "b"] {
        let row = nodes.check(node);
        let families: Vec<&str> =
            row.peers.values().flat_map(|peer| peer.families.keys()).map(String::as_str).collect();
        assert!(row.is_well() && families == [alone.name], "{row:#?}");
    }
}

/// The agents end, after which packets still arrive, and what they made goes.
fn leave(nodes: &Nodes, alone: &Alone, agents: [Agent; 2], before: &[Dump; 2]) {
    for mut agent in agents {
        assert_eq!(Status::read(&agent.status).unwrap().repairs_total, 0);
        agent.stop().unwrap();
    }
    transfer_to(nodes, alone.pods[1]);
    take_back(nodes, before);
}

#[test]
fn ipv4_alone() {
    check(&V4);
}

#[test]
fn ipv6_alone() {
    check(&V6);
}

#[test]
fn ipv4_alone_encrypted() {
    check_encrypted(&V4);
}

#[test]
fn ipv6_alone_encrypted() {
    check_encrypted(&V6);
}
