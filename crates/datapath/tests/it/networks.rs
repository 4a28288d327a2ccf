//! A realistic node: several networks at once, pods in more than one of them, and many prefixes.

use std::net::{IpAddr, SocketAddr};

use datapath::{DataPath, Family, Network, NodeSpec, Pod, Prefixes};
use ipnet::IpNet;
use linux::{IfName, sysctl};
use plan::{Fault, Journal, Plan, Undone};
use rustix::io::Errno;

use crate::pair::Pair;
use crate::paths::runnable;
use crate::specs::{POD_PORT, nth, peer};
use crate::{accepted, probe};

fn prefixes(texts: &[&str]) -> Prefixes {
    texts.iter().map(|text| text.parse::<IpNet>().expect("a sound prefix")).collect()
}

/// A second network, with two prefixes for each node in one family.
pub(crate) fn second(nodes: &[NodeSpec; 2]) -> [NodeSpec; 2] {
    let network = Network {
        id: 2,
        prefixes: prefixes(&["10.20.0.0/16", "10.30.0.0/16", "fd00:20::/48"]),
        vni: 77,
        port: 8473,
        mtu: Some(1300),
        masquerade: false,
        anti_spoofing: None,
        bridge: None,
        tunnel: None,
        isolates_pods: false,
        services: false,
        refuses_routers: false,
        host_link: false,
    };
    let of = |node: &NodeSpec| {
        let id = node.id;
        let pods = [format!("10.20.{id}.0/24"), format!("10.30.{id}.0/24"), format!("fd00:20:0:{id}::/64")];
        let pods = prefixes(&pods.each_ref().map(String::as_str));
        NodeSpec { pods, network: network.clone(), ..node.clone() }
    };
    nodes.each_ref().map(of)
}

/// The second interface of a pod, in the second network. `prefix` selects its IPv4 prefix.
pub(crate) fn interface(node: &NodeSpec, pod: &Pod, prefix: usize) -> Pod {
    let v4 = node.pods.of(Family::V4).nth(prefix).expect("two prefixes");
    let v6 = node.pods.of(Family::V6).next().expect("a prefix");
    let id = pod.id + 100;
    let number = u8::try_from(id).expect("few pods");
    Pod {
        id,
        ifname: IfName::new("net1").expect("a sound name"),
        addresses: [nth(v4, number), nth(v6, number)].into_iter().collect(),
        default_route: false,
        published: Vec::new(),
        ..pod.clone()
    }
}

/// The plan of the second network on both nodes, with the interfaces of all three pods.
fn second_plan(path: &DataPath, pair: &Pair) -> (Plan, Vec<Pod>) {
    let nodes = second(&pair.nodes);
    let homes = [&nodes[0], &nodes[1], &nodes[1]];
    let pods: Vec<Pod> = pair
        .pods
        .iter()
        .zip(homes)
        .enumerate()
        .map(|(at, (pod, node))| interface(node, pod, at % 2))
        .collect();
    let mut plan = Plan::new();
    for (here, there) in [(0, 1), (1, 0)] {
        plan.extend(path.node_plan(&nodes[here]).expect("a sound node"));
        plan.extend(path.peer_plan(&nodes[here], &peer(&nodes[there])).expect("a sound peer"));
    }
    for (pod, node) in pods.iter().zip(homes) {
        plan.extend(path.pod_plan(node, pod).expect("a sound pod"));
    }
    (plan, pods)
}

/// Pods of two networks exchange packets, each within its own. The networks are removed in either order.
fn side_by_side(first: &str, other: &str) {
    let (Some(first), Some(other)) = (runnable(first), runnable(other)) else { return };
    for order in [[0, 1], [1, 0]] {
        let mut pair = Pair::new(first, Family::V4);
        let (two_plan, interfaces) = second_plan(other, &pair);
        let addresses = |pod: &Pod| pod.addresses.iter().collect::<Vec<_>>();
        let addresses: [Vec<_>; 2] =
            [&pair.pods[..], &interfaces].map(|pods| pods.iter().map(addresses).collect());
        let plans = [pair.path_plan(), two_plan];
        let mtu = |path: &DataPath, node| path.pod_mtu(node).expect("a sound node");
        let mtus = [mtu(first, &pair.nodes[0]), mtu(other, &second(&pair.nodes)[0])];
        assert_eq!(mtus[1], 1300, "as the network has it");
        come_and_go(&mut pair, &plans, order, |pair, network| {
            reach_each_other(pair, &addresses[network], mtus[network]);
        });
    }
}

/// Makes two networks and removes them in the given order. `works` fails if the numbered network does not
/// work.
fn come_and_go(pair: &mut Pair, plans: &[Plan; 2], order: [usize; 2], works: impl Fn(&Pair, usize)) {
    let names = pair.everywhere();
    let before = pair.dump(&names);
    let directory = tempfile::tempdir().expect("a directory");
    let mut journals =
        ["first", "second"].map(|name| Journal::create(&directory.path().join(name)).expect("a journal"));
    pair.apply(&plans[0], &mut journals[0], Fault::None).unwrap_or_else(|error| panic!("{error}"));
    if !pair.has_room(&plans[1]) {
        testkit::skip("two networks of programs need tcx, and this kernel has filters");
        return;
    }
    pair.apply(&plans[1], &mut journals[1], Fault::None).unwrap_or_else(|error| panic!("{error}"));
    [0, 1].iter().for_each(|network| works(pair, *network));
    let [leaving, staying] = order;
    // Both networks need forwarding, so it stays with the remaining one.
    undo(pair, &mut journals[leaving], |outcome| matches!(outcome, Undone::LeftToOthers { .. }));
    works(pair, staying);
    undo(pair, &mut journals[staying], |_| false);
    pair.assert_as(&names, &before, "after both are undone");
}

pub(crate) fn undo(pair: &mut Pair, journal: &mut Journal, or: fn(&Undone) -> bool) {
    for (placed, outcome) in pair.undo(journal) {
        let well = matches!(outcome, Undone::Restored | Undone::AlreadySo) || or(&outcome);
        assert!(well, "{:?} of {}: {outcome:?}", placed.step, placed.place);
    }
}

/// From each pod to every other one, by TCP and with a packet of the largest size. A larger one must not
/// pass.
#[track_caller]
fn reach_each_other(pair: &Pair, addresses: &[Vec<IpAddr>], mtu: u32) {
    for (from, own) in addresses.iter().enumerate() {
        for (to, theirs) in addresses.iter().enumerate().filter(|(to, _)| *to != from) {
            for (own, there) in own.iter().zip(theirs) {
                let (server, client) = (pair.inside(to), pair.inside(from));
                let seen = probe::tcp(&server, POD_PORT, &client, SocketAddr::new(*there, POD_PORT));
                let seen = seen.unwrap_or_else(|error| panic!("no TCP from {own} to {there}: {error}"));
                assert_eq!(seen, *own, "pods of one network are not translated");
                let ping = |packet| probe::ping(&client, *there, packet);
                ping(mtu).unwrap_or_else(|error| panic!("no echo of {mtu} bytes from {there}: {error}"));
                let refused = ping(mtu + 1).expect_err("a packet above the MTU was sent");
                assert_eq!(refused.raw_os_error(), Some(Errno::MSGSIZE.raw_os_error()), "{refused}");
            }
        }
    }
}

#[test]
fn two_bridges() {
    side_by_side("bridge+direct", "bridge+vxlan");
}

#[test]
fn two_tunnels() {
    side_by_side("bridge+vxlan", "ptp+vxlan");
}

#[test]
fn programs_beside_programs() {
    side_by_side("ebpf+direct", "ebpf+direct");
}

#[test]
fn programs_beside_a_tunnel_of_programs() {
    side_by_side("ebpf+direct", "ebpf+vxlan");
}

#[test]
fn programs_beside_routed_pairs() {
    side_by_side("ebpf+direct", "ptp+direct");
}

#[test]
fn a_bridge_beside_macvlan() {
    side_by_side("bridge+direct", "macvlan");
}

#[test]
fn two_ipvlans() {
    side_by_side("ipvlan-l3", "ipvlan-l3");
}

/// New links start with the values of the whole place, which must stay as long as one network needs them.
#[test]
fn networks_of_plugins_leave_each_other_what_they_share() {
    if !testkit::require_root() {
        return;
    }
    for order in [[0, 1], [1, 0]] {
        let mut pair = Pair::new(&datapath::CNI, Family::V4);
        let plans = [pair.path_plan(), second_plan(&datapath::CNI, &pair).0];
        let key = sysctl::Key::new("net/ipv6/conf/default/accept_dad").expect("a sound key");
        come_and_go(&mut pair, &plans, order, |pair, network| {
            for place in [pair.node(0), pair.node(1), pair.inside(0), pair.inside(1)] {
                let value = place.run(|| sysctl::read(&key)).expect("the namespace can be entered");
                let value = value.expect("the parameter can be read");
                assert_eq!(value.as_deref(), Some("0"), "{} for network {network}", place.describe());
            }
        });
    }
}

/// The plan of a second network on a node that has one: other names, two prefixes, no masquerading, a peer's
/// own MAC.
#[test]
fn a_second_network_is_planned_as_reviewed() {
    let path = datapath::find("bridge+vxlan").expect("a known path");
    let shape = crate::specs::Shape::new("hg", path);
    let [other, node] = second(&[shape.node(1), shape.node(2)]);
    let pod = interface(&node, &shape.pod(&shape.node(2), 1), 1);
    let peer = datapath::Peer { tunnel_mac: "0a:00:00:00:00:01".parse().ok(), ..peer(&other) };
    let plans = [path.node_plan(&node), path.pod_plan(&node, &pod), path.peer_plan(&node, &peer)];
    let commands = plans.into_iter().flat_map(|plan| plan.expect("a sound specification").commands());
    let text: String = commands.map(|command| format!("{}\n", command.trim_end())).collect();
    accepted::check("tests/networks/bridge+vxlan.txt", &text);
}
