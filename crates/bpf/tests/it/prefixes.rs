//! Which addresses belong to pods of this node and of others, and that this can change.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bpf::forward::{Counter, Endpoint, Program, add_endpoint, set_prefixes};
use ipnet::IpNet;
use linux::Mac;

use crate::node::{Node, ONE, THERE, THERE6, TWO, can_run, far, from_hop};
use crate::run::Verdict;

/// Longer than a program keeps a route.
const STALE: Duration = Duration::from_millis(1100);

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().expect("a sound prefix")).collect()
}

/// The verdict on a datagram from a remote address to pod one.
#[track_caller]
fn arriving(node: &Node, from: impl Into<IpAddr>) -> (Verdict, Vec<Counter>) {
    let from = from.into();
    let to: IpAddr = if from.is_ipv4() { ONE.v4.into() } else { ONE.v6.into() };
    let found = node.send(Program::FromWire, "wire", &from_hop(from, to, b"x"));
    (found.verdict, found.counted)
}

#[test]
fn a_change_is_followed_within_a_second() {
    if !can_run() {
        return;
    }
    let node = Node::direct_in_earnest();
    let pods = nets(&["10.244.1.0/24", "fd00:1::/64"]);
    let outside = (Verdict::Pass, vec![Counter::PassOutside]);
    let inside = (Verdict::Redirect, vec![]);
    let (usual, wider) = (["10.244.0.0/16", "fd00::/16"], ["198.51.100.0/24", "2001:db8:9::/48"]);
    node.ip(&format!("route add {} via {THERE}", wider[0]));
    node.ip(&format!("route add {} via {THERE6}", wider[1]));
    for (cluster, expected) in
        [(nets(&usual), &outside), (nets(&[usual, wider].concat()), &inside), (nets(&usual), &outside)]
    {
        set_prefixes(&node.folder, &pods, &cluster).unwrap();
        std::thread::sleep(STALE);
        for stranger in [IpAddr::from(far::OUTSIDE), far::OUTSIDE6.into()] {
            assert_eq!(&arriving(&node, stranger), expected, "{stranger} with {cluster:?}");
        }
        for known in [IpAddr::from(far::DIRECT), far::DIRECT6.into()] {
            assert_eq!(arriving(&node, known), inside, "{known} with {cluster:?}");
        }
    }
}

#[test]
fn a_node_may_have_one_family_or_several_prefixes() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    set_prefixes(&node.folder, &nets(&["10.244.1.0/24", "10.244.9.0/24"]), &nets(&["10.244.0.0/16"]))
        .unwrap();
    let sent = |to: IpAddr| {
        let found = node.send(Program::FromPod, ONE.link, &ONE.to(to, b"x"));
        (found.verdict, found.counted)
    };
    assert_eq!(sent(far::DIRECT.into()).0, Verdict::Redirect);
    assert_eq!(sent(far::DIRECT6.into()), (Verdict::Pass, vec![Counter::PassOutside]));
    assert_eq!(arriving(&node, far::DIRECT6), (Verdict::Pass, vec![Counter::PassOutside]));
    assert_eq!(sent([10, 244, 9, 9].into()), (Verdict::Pass, vec![Counter::PassNode]));
    assert_eq!(arriving(&node, [10, 244, 9, 9]), (Verdict::Pass, vec![Counter::PassMartian]));
    // A pod of the node stays one, whatever the prefixes are.
    assert_eq!(sent(TWO.v6.into()).0, Verdict::Redirect);
}

/// The lowest bits of an address select the slot. A second pod with the same bits must be found all the same.
#[test]
fn a_pod_without_a_slot_is_a_pod_too() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    let wide = nets(&["10.244.0.0/18", "fd00:1::/64"]);
    set_prefixes(&node.folder, &wide, &nets(&["10.244.0.0/16", "fd00::/16"])).unwrap();
    let slots = 4096;
    let v4 = Ipv4Addr::from_bits(TWO.v4.to_bits() + slots);
    let v6 = std::net::Ipv6Addr::from_bits(TWO.v6.to_bits() + u128::from(slots));
    let late = Endpoint {
        link: node.index("tun"),
        mac: Mac([2, 0, 0, 0, 2, 3]),
        addresses: vec![v4.into(), v6.into()],
        queued: false,
    };
    add_endpoint(&node.folder, &late).unwrap();
    node.ip(&format!("route add 10.244.99.0/24 via {THERE}"));
    for to in [IpAddr::from(v4), v6.into()] {
        let from_pod = node.send(Program::FromPod, ONE.link, &ONE.to(to, b"x"));
        assert_eq!((from_pod.verdict, from_pod.counted), (Verdict::Redirect, vec![]), "{to}");
        let from: IpAddr = if to.is_ipv4() { [10, 244, 99, 1].into() } else { far::DIRECT6.into() };
        let from_wire = node.send(Program::FromWire, "wire", &from_hop(from, to, b"x"));
        assert_eq!((from_wire.verdict, from_wire.counted), (Verdict::Redirect, vec![]), "{to}");
    }
    let late = crate::node::Pod { link: "tun", mac: late.mac, v4, v6 };
    for to in [IpAddr::from(ONE.v4), ONE.v6.into()] {
        let sent = node.send(Program::FromPod, "tun", &late.to(to, b"x"));
        assert_eq!((sent.verdict, sent.counted), (Verdict::Redirect, vec![]), "{to}");
        let stray = node.send(Program::FromPod, ONE.link, &late.to(to, b"x"));
        assert_eq!(stray.verdict, Verdict::Drop, "{to}");
    }
}
