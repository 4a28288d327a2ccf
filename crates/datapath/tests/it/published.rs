//! A port belongs to the node: one pod has it, whichever networks the node's pods are in.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};

use datapath::{Family, PublishedPort};
use linux::Netns;
use plan::{Fault, Journal, Undone};

use crate::networks::{interface, second, undo};
use crate::pair::Pair;
use crate::paths::runnable;
use crate::probe;
use crate::specs::{POD_PORT, published};

/// Pods of two networks on node 2 publish a port each, by TCP and UDP. A port that the other network has is
/// refused, and stays with its owner.
#[test]
fn networks_of_a_node_share_its_ports() {
    let Some(path) = runnable("docker") else { return };
    let mut pair = Pair::new(path, Family::V4);
    let names = pair.everywhere();
    let before = pair.dump(&names);
    let node = second(&pair.nodes)[1].clone();
    let mut pod = interface(&node, &pair.pods[2], 0);
    // The answer leaves by the interface whose address was called.
    pod.default_route = true;
    pair.pods[2].default_route = false;
    let plans = [pair.path_plan(), path.node_plan(&node).expect("a sound node")];
    let directory = tempfile::tempdir().expect("a directory");
    let journal = |name: &str| Journal::create(&directory.path().join(name)).expect("a journal");
    let [mut first, mut other] = [journal("first"), journal("second")];
    pair.apply(&plans[0], &mut first, Fault::None).unwrap_or_else(|error| panic!("{error}"));
    pair.apply(&plans[1], &mut other, Fault::None).unwrap_or_else(|error| panic!("{error}"));

    // The pod of the first network has published this port.
    pod.published = published(8080);
    let plan = path.pod_plan(&node, &pod).expect("a sound pod");
    let mut refused = journal("refused");
    let error = pair.apply(&plan, &mut refused, Fault::None).expect_err("two pods have one port").to_string();
    assert!(error.contains("element { tcp . 8080 : 10.244.2.2 . 80 } is there already"), "{error}");
    undo(&mut pair, &mut refused, |_| false);
    serves(&pair, 1, 8080);

    pod.published = published(8081);
    let plan = path.pod_plan(&node, &pod).expect("a sound pod");
    let mut second = journal("pod");
    pair.apply(&plan, &mut second, Fault::None).unwrap_or_else(|error| panic!("{error}"));
    serves(&pair, 1, 8080);
    serves(&pair, 2, 8081);

    // The first network, which came first and made the table, is gone.
    let is_left = |outcome: &Undone| matches!(outcome, Undone::LeftToOthers { .. });
    undo(&mut pair, &mut first, is_left);
    let caller = pair.node(1);
    answers(
        &pair.inside(2),
        &caller,
        SocketAddr::new(pair.nodes[1].underlay.iter().next().expect("IPv4"), 8081),
    );
    undo(&mut pair, &mut second, |_| false);
    undo(&mut pair, &mut other, |_| false);
    pair.assert_as(&names, &before, "after both are undone");
}

/// Paths whose races publish nothing do it for a container that asks: towards other nodes, the node itself, a neighbour
/// and the pod itself, on all addresses of the node or on one. The tables go with the last port.
#[track_caller]
fn publishes(name: &str) {
    let Some(path) = runnable(name) else { return };
    let mut pair = Pair::new(path, Family::V4);
    let names = pair.everywhere();
    let before = pair.dump(&names);
    let addresses: Vec<IpAddr> = pair.nodes[1].underlay.iter().collect();
    let on_one =
        published(8082).into_iter().map(|port| PublishedPort { address: Some(addresses[0]), ..port });
    pair.pods[1].published = published(8080).into_iter().chain(on_one).collect();
    pair.pods[2].published = published(8081);
    let plan = pair.path_plan();
    let mut journal = pair.journal();
    pair.apply(&plan, &mut journal, Fault::None).unwrap_or_else(|error| panic!("{error}"));

    let everybody = [pair.inside(0), pair.node(0), pair.node(1), pair.inside(1), pair.inside(2)];
    for client in &everybody {
        for address in &addresses {
            answers(&pair.inside(1), client, SocketAddr::new(*address, 8080));
            answers(&pair.inside(2), client, SocketAddr::new(*address, 8081));
        }
        answers(&pair.inside(1), client, SocketAddr::new(addresses[0], 8082));
    }
    // The other family's address does not lead there: the node itself answers that nothing listens.
    let other = SocketAddr::new(addresses[1], 8082);
    let refused =
        probe::tcp(&pair.inside(1), POD_PORT, &pair.inside(0), other).expect_err("it is not published");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");

    // Both pods want the tables.
    undo(&mut pair, &mut journal, |outcome| matches!(outcome, Undone::LeftToOthers { .. }));
    pair.assert_as(&names, &before, "after it is undone");
}

#[test]
fn a_bridge_publishes_ports() {
    publishes("bridge+direct");
}

#[test]
fn routed_links_publish_ports() {
    publishes("ptp+direct");
}

/// A pod of node 2 serves at a port of the node, for its own node and for the pod of node 1, over both
/// families.
#[track_caller]
fn serves(pair: &Pair, pod: usize, port: u16) {
    for address in pair.nodes[1].underlay.iter() {
        for client in [pair.inside(0), pair.node(1)] {
            answers(&pair.inside(pod), &client, SocketAddr::new(address, port));
        }
    }
}

#[track_caller]
fn answers(server: &Netns, client: &Netns, to: SocketAddr) {
    probe::tcp(server, POD_PORT, client, to).unwrap_or_else(|error| panic!("no TCP to {to}: {error}"));
    probe::udp(server, POD_PORT, client, to, 1300).unwrap_or_else(|error| panic!("no UDP to {to}: {error}"));
}
