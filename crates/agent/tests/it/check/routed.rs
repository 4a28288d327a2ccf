//! Nodes with a router between them, which says what it thinks of their packets.

use agent::check::ReasonKind;
use testkit::{World, require_root, shell};

use super::assert_found;
use crate::keep::{VXLAN, is_reached};
use crate::nodes::Nodes;

const A: (&str, &str, &str) = ("a", "192.0.2.1", "10.244.1.0/24");
const B: (&str, &str, &str) = ("b", "198.51.100.2", "10.244.2.0/24");

/// Nodes that agents have left standing, on two links with a router between them.
fn routed() -> Nodes {
    let world = World::new();
    for short in ["a", "b", "router"] {
        world.add(short);
    }
    let [a, b, router] = ["a", "b", "router"].map(|short| world.name(short));
    shell(&format!(
        "ip -n {a} link add wire type veth peer name left netns {router}
         ip -n {b} link add wire type veth peer name right netns {router}
         for node in {a} {b} {router}; do ip -n $node link set lo up; done
         ip netns exec {router} sysctl -qw net.ipv4.ip_forward=1
         ip -n {a} address add 192.0.2.1/24 dev wire; ip -n {b} address add 198.51.100.2/24 dev wire
         ip -n {router} address add 192.0.2.254/24 dev left; ip -n {router} address add 198.51.100.254/24 dev right
         ip -n {a} link set wire up; ip -n {b} link set wire up
         ip -n {router} link set left up; ip -n {router} link set right up
         ip -n {a} route add default via 192.0.2.254; ip -n {b} route add default via 198.51.100.254"
    ));
    let nodes = Nodes { world, directory: tempfile::tempdir().unwrap() };
    nodes.write_leases(VXLAN, &[A, B]);
    let (a, b) = (nodes.start("a"), nodes.start("b"));
    a.until("b is reached", is_reached("b", "vxlan"));
    b.until("a is reached", is_reached("a", "vxlan"));
    drop((a, b));
    nodes
}

#[test]
fn what_a_router_says_is_shown_with_its_address() {
    if !require_root() {
        return;
    }
    let nodes = routed();
    let router = nodes.name("router");
    let row = nodes.check("a");
    assert!(row.is_well(), "{row:#?}");
    shell(&format!("ip -n {router} link set right mtu 1400"));
    let row = nodes.check("a");
    let seen = "1400 bytes pass (192.0.2.254 says: fragmentation needed, MTU 1400)";
    assert_found(&row, ReasonKind::Narrow, &["ipv4"], seen, "smaller MTU");
    shell(&format!(
        "ip netns exec {router} nft 'add table inet harm'
         ip netns exec {router} nft 'add chain inet harm through {{ type filter hook forward priority 0; }}'
         ip netns exec {router} nft 'add rule inet harm through reject with icmpx admin-prohibited'"
    ));
    let row = nodes.check("a");
    let seen = "for 198.51.100.2 192.0.2.254 says: administratively prohibited";
    assert_found(&row, ReasonKind::IcmpError, &["ipv4"], seen, "a firewall at 192.0.2.254");
    shell(&format!(
        "ip netns exec {router} nft 'flush chain inet harm through'
         ip netns exec {router} nft 'add rule inet harm through ip daddr 198.51.100.2 reject with icmp host-unreachable'"
    ));
    let row = nodes.check("a");
    let seen = "for 198.51.100.2 192.0.2.254 says: host unreachable";
    assert_found(
        &row,
        ReasonKind::IcmpError,
        &["ipv4"],
        seen,
        "192.0.2.254 finds no neighbour with that address",
    );
    shell(&format!(
        "ip netns exec {router} nft 'delete table inet harm'; ip -n {router} route del 198.51.100.0/24"
    ));
    let row = nodes.check("a");
    let seen = "for 198.51.100.2 192.0.2.254 says: no route";
    assert_found(&row, ReasonKind::IcmpError, &["ipv4"], seen, "192.0.2.254 has no route to 198.51.100.2");
    shell(&format!("ip -n {router} link set left down"));
    let row = nodes.check("a");
    assert_found(&row, ReasonKind::WireDown, &["ipv4"], "has no carrier", "switch");
}

/// Requests leave by another link than that of the default route, and answers may come by the same.
#[test]
fn a_silent_node_behind_a_router_is_not_put_to_the_reverse_path() {
    if !require_root() {
        return;
    }
    let nodes = routed();
    let [a, b, router] = ["a", "b", "router"].map(|short| nodes.name(short));
    shell(&format!(
        "ip -n {a} link add second type veth peer name third netns {router}
         ip -n {a} address add 203.0.113.1/24 dev second; ip -n {router} address add 203.0.113.254/24 dev third
         ip -n {a} link set second up; ip -n {router} link set third up
         ip -n {a} route add 198.51.100.0/24 via 203.0.113.254 dev second src 192.0.2.1
         ip netns exec {a} sysctl -qw net.ipv4.conf.wire.rp_filter=1
         ip netns exec {b} sysctl -qw net.ipv4.icmp_echo_ignore_all=1"
    ));
    let row = nodes.check("a");
    let seen = "198.51.100.2 does not answer echo requests";
    assert_found(&row, ReasonKind::NodeSilent, &["ipv4"], seen, "a firewall");
}
