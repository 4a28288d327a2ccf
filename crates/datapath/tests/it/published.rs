//! A port belongs to the node: one pod has it, whichever networks the node's pods are in.

use std::net::SocketAddr;

use datapath::Family;
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
