//! Packets through each data path: which ends reach each other, from which address, and how large a packet
//! may be.

use std::net::{IpAddr, SocketAddr};

use datapath::{Addresses, DataPath, Family, Reach};
use linux::Netns;
use plan::{Fault, Undone};

use crate::pair::Pair;
use crate::paths::{for_each_path, runnable_guarded};
use crate::probe;
use crate::specs::{POD_PORT, Shape};

for_each_path!(over_ipv4);

mod ipv4_alone {
    crate::paths::for_each_path!(super::ipv4_alone);
}

mod ipv6_alone {
    crate::paths::for_each_path!(super::ipv6_alone);
}

#[test]
fn bridge_vxlan_over_ipv6() {
    if let Some(path) = crate::paths::runnable("bridge+vxlan") {
        passes(path, Family::V6, &Family::BOTH);
    }
}

#[test]
fn ebpf_vxlan_over_ipv6() {
    if let Some(path) = crate::paths::runnable("ebpf+vxlan") {
        passes(path, Family::V6, &Family::BOTH);
    }
}

#[test]
fn ptp_vxlan_over_ipv6() {
    if let Some(path) = crate::paths::runnable("ptp+vxlan") {
        passes(path, Family::V6, &Family::BOTH);
    }
}

#[test]
fn ptp_wireguard_over_ipv6() {
    if let Some(path) = crate::paths::runnable("ptp+wireguard") {
        passes(path, Family::V6, &Family::BOTH);
    }
}

#[test]
fn bridge_ipsec_over_ipv6() {
    if let Some(path) = crate::paths::runnable("bridge+ipsec") {
        passes(path, Family::V6, &Family::BOTH);
    }
}

#[test]
fn bridge_guarded() {
    if let Some(path) = runnable_guarded("bridge+direct") {
        passes_on(path, Pair::new(path, Family::V4).guarded(), &Family::BOTH);
    }
}

#[test]
fn ptp_guarded() {
    if let Some(path) = runnable_guarded("ptp+direct") {
        passes_on(path, Pair::new(path, Family::V4).guarded(), &Family::BOTH);
    }
}

fn over_ipv4(path: &'static DataPath) {
    passes(path, Family::V4, &Family::BOTH);
}

/// Pods and nodes without IPv6.
fn ipv4_alone(path: &'static DataPath) {
    passes(path, Family::V4, &[Family::V4]);
}

/// Pods and nodes without IPv4.
fn ipv6_alone(path: &'static DataPath) {
    if let Some(why) = path.attach.refuses_callers(Family::V6) {
        let shape = Shape { families: &[Family::V6], ..Shape::new("hg", path) };
        let node = shape.node(1);
        let refused = path.pod_plan(&node, &shape.pod(&node, 1)).expect_err("no client could call it");
        return assert!(refused.why.contains(why), "{refused}");
    }
    passes(path, Family::V6, &[Family::V6]);
}

fn passes(path: &'static DataPath, outer: Family, families: &'static [Family]) {
    passes_on(path, Pair::of(path, outer, families), families);
}

/// Applies the path, sends packets of all kinds, undoes it, and checks that everything is as before.
fn passes_on(path: &'static DataPath, mut pair: Pair, families: &'static [Family]) {
    let names = pair.everywhere();
    let before = pair.dump(&names);
    let (plan, mut journal) = (pair.path_plan(), pair.journal());
    pair.apply(&plan, &mut journal, Fault::None).unwrap_or_else(|error| panic!("{error}"));

    let world = World { path, pair: &pair };
    let is_called = |family: &Family| path.attach.refuses_callers(*family).is_none();
    for family in families.iter().copied().filter(is_called) {
        world.pods_reach_each_other(family);
        world.a_full_packet_passes_and_no_more(family);
        world.pods_of_one_node_reach_each_other(family);
        world.nodes_reach_pods(family);
    }
    for family in families.iter().copied() {
        world.pods_reach_nodes(family);
    }
    assert_eq!(world.fragments_made(), 0, "the pods' MTU is too large: outer packets were fragmented");

    for (placed, outcome) in pair.undo(&mut journal) {
        let well = matches!(outcome, Undone::Restored | Undone::AlreadySo);
        assert!(well, "{:?} of {}: {outcome:?}", placed.step, placed.place);
    }
    assert_eq!(names, pair.everywhere());
    pair.assert_as(&names, &before, "after undo");
}

struct World<'a> {
    path: &'static DataPath,
    pair: &'a Pair,
}

impl World<'_> {
    /// The pod of node 1 calls pod 1 of node 2 where the path says that it serves, and the other way where
    /// addresses allow it.
    fn pods_reach_each_other(&self, family: Family) {
        let [one, two] = [self.pair.inside(0), self.pair.inside(1)];
        let there = self.address_of(1, family);
        let seen = tcp(&two, &one, there);
        // A published port hides the pod behind its node. Otherwise nothing may translate between pods.
        assert_eq!(seen, self.source(0, family), "the server sees another client");
        if !self.is_relayed() {
            for (from, to) in self.ways(family) {
                ping(&from, to, 100);
            }
        }
        udp(&two, &one, there, self.mtu());
        if self.path.reach != Reach::PublishedPort {
            let back = self.address_of(0, family);
            assert_eq!(tcp(&one, &two, back), self.source(1, family));
        }
    }

    fn a_full_packet_passes_and_no_more(&self, family: Family) {
        if self.is_relayed() {
            return;
        }
        let mtu = self.mtu();
        for (from, to) in self.ways(family) {
            ping(&from, to, mtu);
            let refused = probe::ping(&from, to, mtu + 1).expect_err("a packet above the MTU was sent");
            let too_long = rustix::io::Errno::MSGSIZE.raw_os_error();
            assert_eq!(refused.raw_os_error(), Some(too_long), "{refused}");
        }
    }

    fn pods_of_one_node_reach_each_other(&self, family: Family) {
        let [first, second] = [self.pair.inside(1), self.pair.inside(2)];
        match self.path.reach {
            Reach::Node => return,
            Reach::PublishedPort => {
                let (published, node) = (self.address_of(1, family), self.pair.node(1));
                // By the node's port: from the other pod, from the pod itself and from the node.
                for client in [&second, &first, &node] {
                    tcp(&first, client, published);
                    udp(&first, client, published, self.mtu());
                }
            }
            Reach::Pod => {}
        }
        if self.is_relayed() {
            return;
        }
        let first_address = of(&self.pair.pods[1].addresses, family);
        let direct = SocketAddr::new(first_address, POD_PORT);
        assert_eq!(tcp(&first, &second, direct), of(&self.pair.pods[2].addresses, family));
        udp(&first, &second, direct, self.mtu());
        ping(&second, first_address, self.mtu());
    }

    /// A node reaches its own pods if they are attached to it, and pods of other nodes if routes lead there.
    fn nodes_reach_pods(&self, family: Family) {
        let pod = self.pair.inside(1);
        let address = SocketAddr::new(of(&self.pair.pods[1].addresses, family), POD_PORT);
        match self.path.attach.name() {
            "bridge" | "docker" | "ptp" | "ebpf" | "ebpf-tunnel" | "ebpf-routed" | "ebpf-policies"
            | "ebpf-sockmap" | "netkit" | "ovs" | "ovs-tunnel" | "ovs-afxdp" | "ovs-dpdk" => {
                tcp(&pod, &self.pair.node(1), address);
            }
            "host" | "macvlan" | "ipvlan-l2" | "ipvlan-l3" | "ipvlan-l3s" | "pasta" | "slirp4netns" => {}
            other => panic!("add whether nodes reach their own pods by {other}"),
        }
        match self.path.transport.name() {
            "direct" | "vpc" | "vxlan" | "vxlan-metadata" | "wireguard" | "ipsec" => {
                tcp(&pod, &self.pair.node(0), address);
            }
            "onlink" | "ovs-vxlan" | "ovs-geneve" => {}
            other => panic!("add whether nodes reach other nodes' pods by {other}"),
        }
    }

    /// Where the path masquerades, addresses outside the cluster see a pod as its node.
    fn pods_reach_nodes(&self, family: Family) {
        if matches!(
            self.path.attach.name(),
            "bridge"
                | "docker"
                | "pasta"
                | "slirp4netns"
                | "ebpf"
                | "ebpf-tunnel"
                | "ebpf-routed"
                | "ebpf-policies"
                | "ebpf-sockmap"
                | "netkit"
        ) {
            let there = SocketAddr::new(of(&self.pair.nodes[1].underlay, family), POD_PORT);
            let seen = tcp(&self.pair.node(1), &self.pair.inside(0), there);
            assert_eq!(seen, of(&self.pair.nodes[0].underlay, family), "not masqueraded");
        }
    }

    /// From each side to the address with which the other side answers echo requests.
    fn ways(&self, family: Family) -> [(Netns, IpAddr); 2] {
        let [one, two] = [0, 1].map(|pod| match self.path.reach {
            Reach::Node | Reach::PublishedPort => of(&self.pair.nodes[pod].underlay, family),
            Reach::Pod => of(&self.pair.pods[pod].addresses, family),
        });
        [(self.pair.inside(0), two), (self.pair.inside(1), one)]
    }

    /// The pod's address as a server on the other node sees it.
    fn source(&self, pod: usize, family: Family) -> IpAddr {
        match self.path.reach {
            Reach::Node | Reach::PublishedPort => of(&self.pair.nodes[pod].underlay, family),
            Reach::Pod => of(&self.pair.pods[pod].addresses, family),
        }
    }

    /// The address at which a pod serves: pod 0 on node 1, pod 1 on node 2.
    fn address_of(&self, pod: usize, family: Family) -> SocketAddr {
        let (node, pod) = (&self.pair.nodes[pod], &self.pair.pods[pod]);
        self.path.address_of(node, pod, family, POD_PORT).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Whether a process sends anew what pods send. It has the privilege for echo requests only where
    /// `net.ipv4.ping_group_range` gives it, and no packet of a pod meets the wire.
    fn is_relayed(&self) -> bool {
        self.path.attach.relay_mtu().is_some()
    }

    /// The largest packet that leaves whole.
    fn mtu(&self) -> u32 {
        if self.is_relayed() {
            return self.pair.nodes[0].wire_mtu;
        }
        self.path.pod_mtu(&self.pair.nodes[0]).unwrap_or_else(|error| panic!("{error}"))
    }

    fn fragments_made(&self) -> u64 {
        [0, 1].map(|node| probe::fragments_made(&self.pair.node(node))).iter().sum()
    }
}

#[track_caller]
fn ping(from: &Netns, to: IpAddr, packet: u32) {
    let why = |error| panic!("no echo of {packet} bytes from {to} in {}: {error}", from.describe());
    probe::ping(from, to, packet).unwrap_or_else(why);
}

#[track_caller]
fn tcp(server: &Netns, client: &Netns, to: SocketAddr) -> IpAddr {
    let why = |error| panic!("no TCP from {} to {to}: {error}", client.describe());
    probe::tcp(server, POD_PORT, client, to).unwrap_or_else(why)
}

#[track_caller]
fn udp(server: &Netns, client: &Netns, to: SocketAddr, mtu: u32) {
    let why = |error| panic!("no UDP from {} to {to}: {error}", client.describe());
    probe::udp(server, POD_PORT, client, to, mtu).unwrap_or_else(why);
}

fn of(addresses: &Addresses, family: Family) -> IpAddr {
    addresses.of(family).expect("it has the families of the test")
}
