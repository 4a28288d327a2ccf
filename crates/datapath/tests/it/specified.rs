//! Networks, peers and places as specified, checked with packets.

use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command};

use datapath::{Family, NodeSpec, Peer, Pod};
use linux::{LinkKind, Mac, Netns, NetnsPath};
use plan::{Fault, Place, Step, Undone};
use testkit::run;

use crate::networks::undo;
use crate::pair::{Pair, plan_of};
use crate::paths::runnable;
use crate::probe;
use crate::specs::{POD_PORT, peer};

/// A server on the other node sees the pod's own address as the source, or with masquerading its node's.
fn to_the_outside(name: &str, masquerade: bool) {
    let Some(path) = runnable(name) else { return };
    let mut pair = Pair::new(path, Family::V4);
    pair.nodes.iter_mut().for_each(|node| node.network.masquerade = masquerade);
    let (plan, mut journal) = (pair.path_plan(), pair.journal());
    pair.apply(&plan, &mut journal, Fault::None).unwrap_or_else(|error| panic!("{error}"));
    if path.transport.name() == "onlink" {
        // Answers need a route back, which the node's surroundings must have.
        for (pods, via) in pair.nodes[0].pods.iter().zip(pair.nodes[0].underlay.iter()) {
            let [pods, via] = [pods.to_string(), via.to_string()];
            run(&pair.node(1), "ip", &["route", "add", &pods, "via", &via]);
        }
    }
    for family in Family::BOTH {
        let there = pair.nodes[1].underlay.of(family).expect("nodes have both");
        let seen = tcp(&pair.node(1), &pair.inside(0), there);
        let source = if masquerade { &pair.nodes[0].underlay } else { &pair.pods[0].addresses };
        assert_eq!(Some(seen), source.of(family), "masquerading: {masquerade}");
    }
    undo(&mut pair, &mut journal, |_| false);
}

#[test]
fn docker_without_masquerading() {
    to_the_outside("docker", false);
}

#[test]
fn bridge_direct_without_masquerading() {
    to_the_outside("bridge+direct", false);
}

#[test]
fn ebpf_direct_without_masquerading() {
    to_the_outside("ebpf+direct", false);
}

/// The others that can are among the tests of traffic, since they usually do.
#[test]
fn ptp_direct_with_masquerading() {
    to_the_outside("ptp+direct", true);
}

/// Node 2 has a tunnel device that another program made. The peer states its address.
fn to_a_foreign_tunnel_end(name: &str) {
    let Some(path) = runnable(name) else { return };
    let mut pair = Pair::new(path, Family::V4);
    let foreign = Mac([0x0a, 0, 0, 0, 0, 0x77]);
    let [one, two] = pair.nodes.each_ref().map(peer);
    let two = Peer { tunnel_mac: Some(foreign), ..two };
    let mut plan = plan_of(path, &pair.nodes, &pair.pods, [&two, &one]);
    let device = plan.steps.iter_mut().find_map(|placed| match &mut placed.step {
        Step::AddLink(link) if placed.place == pair.nodes[1].place => {
            matches!(link.kind, LinkKind::Vxlan(_) | LinkKind::VxlanExternal { .. }).then_some(link)
        }
        _ => None,
    });
    device.expect("a tunnel has a device").mac = Some(foreign);
    let mut journal = pair.journal();
    pair.apply(&plan, &mut journal, Fault::None).unwrap_or_else(|error| panic!("{error}"));
    pods_talk(&pair);
    undo(&mut pair, &mut journal, |_| false);
}

#[test]
fn bridge_vxlan_to_a_foreign_tunnel_end() {
    to_a_foreign_tunnel_end("bridge+vxlan");
}

#[test]
fn ebpf_vxlan_to_a_foreign_tunnel_end() {
    to_a_foreign_tunnel_end("ebpf+vxlan");
}

/// A process whose path identifies a namespace without a name.
struct Inhabitant(Child);

impl Inhabitant {
    fn of(netns: &Netns) -> Inhabitant {
        let spawned = netns.run(|| Command::new("sleep").arg("infinity").spawn());
        Inhabitant(spawned.expect("the namespace can be entered").expect("there is a sleep"))
    }

    fn place(&self) -> Place {
        let path = format!("/proc/{}/ns/net", self.0.id());
        Place::Path(NetnsPath::new(path).expect("a sound path"))
    }
}

impl Drop for Inhabitant {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The namespaces of nodes and pods are those of processes, as with a container runtime.
fn in_namespaces_of_processes(name: &str) {
    let Some(path) = runnable(name) else { return };
    let mut pair = Pair::new(path, Family::V4);
    let names = pair.everywhere();
    let before = pair.dump(&names);
    let node_homes = [0, 1].map(|node| Inhabitant::of(&pair.node(node)));
    let pod_homes = [0, 1, 2].map(|pod| Inhabitant::of(&pair.inside(pod)));
    // A node without a name pins its programs under its id, which a node of another test may have too.
    let unique = u16::try_from(std::process::id() % 32_000).expect("it is small") * 2 + 1;
    let node = |at: usize, id: u16| NodeSpec { id, place: node_homes[at].place(), ..pair.nodes[at].clone() };
    let nodes = [node(0, unique), node(1, unique + 1)];
    let pods = [0, 1, 2].map(|at| Pod { place: pod_homes[at].place(), ..pair.pods[at].clone() });
    let [one, two] = nodes.each_ref().map(peer);
    let plan = plan_of(path, &nodes, &pods, [&two, &one]);
    let mut journal = pair.journal();
    pair.apply(&plan, &mut journal, Fault::None).unwrap_or_else(|error| panic!("{error}"));
    pods_talk(&pair);
    undo(&mut pair, &mut journal, |outcome| matches!(outcome, Undone::AlreadySo));
    pair.assert_as(&names, &before, "after undo");
    assert!(nodes.iter().all(|node| !bpf::pins::folder(&node.programs()).exists()));
}

#[test]
fn bridge_vxlan_in_namespaces_of_processes() {
    in_namespaces_of_processes("bridge+vxlan");
}

#[test]
fn ebpf_direct_in_namespaces_of_processes() {
    in_namespaces_of_processes("ebpf+direct");
}

/// Pods of both nodes call each other over both families.
#[track_caller]
fn pods_talk(pair: &Pair) {
    for (from, to) in [(0, 1), (1, 0)] {
        for there in pair.pods[to].addresses.iter() {
            let seen = tcp(&pair.inside(to), &pair.inside(from), there);
            assert!(pair.pods[from].addresses.iter().any(|own| own == seen), "{seen} is not the caller's");
        }
    }
}

#[track_caller]
fn tcp(server: &Netns, client: &Netns, to: IpAddr) -> IpAddr {
    let to = SocketAddr::new(to, POD_PORT);
    probe::tcp(server, POD_PORT, client, to).unwrap_or_else(|error| panic!("no TCP to {to}: {error}"))
}
