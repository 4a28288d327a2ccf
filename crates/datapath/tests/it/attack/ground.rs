//! The scene of an attack: a pod with a packet socket, and everything that its packets could reach.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use datapath::{DataPath, Family, Reach};
use linux::{IfName, Mac, Netlink, Netns};
use plan::{Fault, Journal, Place};
use testkit::{Captured, Offload, PacketSocket};

use crate::pair::Pair;

/// How long to wait for a packet that must arrive. No test waits this long for one that must not.
const PATIENCE: Duration = Duration::from_secs(60);
/// Reserved for local experiments (IEEE 802, section 9.2.3).
const LOCAL_EXPERIMENT: u16 = 0x88b5;
/// UDP port 9 (RFC 863), at which no test listens.
const DISCARD: u16 = 9;

/// A place where a packet can be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sight {
    /// At the far end of the node's wire.
    Wire,
    /// At another pod of the node.
    Neighbour,
    /// At the pod of the other node.
    Far,
    /// At the tunnel device of the attacker's node.
    OwnTunnel,
    /// At the tunnel device of the other node.
    FarTunnel,
}

/// The addresses of a pod or a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names {
    pub(crate) mac: Mac,
    pub(crate) v4: std::net::Ipv4Addr,
    pub(crate) v6: Ipv6Addr,
}

/// An address to attack, and the Ethernet address to which a pod sends packets for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) ip: IpAddr,
    pub(crate) mac: Mac,
}

/// Two nodes with a data path. The attacker is the first pod of node 2.
pub(crate) struct Ground {
    pub(crate) path: &'static DataPath,
    pub(crate) own: Names,
    pub(crate) targets: Vec<Target>,
    /// The Ethernet address of the tunnel device on the attacker's node.
    pub(crate) tunnel_mac: Option<Mac>,
    pub(crate) mtu: u32,
    pub(crate) attacker: PacketSocket,
    neighbour: PacketSocket,
    neighbour_mac: Mac,
    sights: Vec<(Sight, PacketSocket)>,
    pub(crate) pair: Pair,
    journal: Journal,
}

impl Drop for Ground {
    /// The control groups of `ebpf+sockmap` do not end with the namespaces.
    fn drop(&mut self) {
        self.pair.undo(&mut self.journal);
    }
}

impl Ground {
    pub(crate) fn new(path: &'static DataPath) -> Ground {
        Ground::of(path, Pair::new(path, Family::V4))
    }

    /// The same with a network that checks what pods send.
    pub(crate) fn guarded(path: &'static DataPath) -> Ground {
        Ground::of(path, Pair::new(path, Family::V4).guarded())
    }

    fn of(path: &'static DataPath, mut pair: Pair) -> Ground {
        let (plan, mut journal) = (pair.path_plan(), pair.journal());
        pair.apply(&plan, &mut journal, Fault::None).unwrap_or_else(|error| panic!("{error}"));
        let inside = place(&pair, &pair.pods[1].place);
        let link = pair.pods[1].ifname.clone();
        let mtu = path.pod_mtu(&pair.nodes[1]).expect("a sound node");
        let pod = pair.pods[1].addresses;
        let targets = targets(&pair, &inside, &link);
        let own = Names {
            mac: mac_of(&inside, &link).expect("an Ethernet link"),
            v4: pod.v4.expect("pods have both"),
            v6: pod.v6.expect("pods have both"),
        };
        let tunnel = IfName::new("hgvx1").expect("a sound name");
        let (other, other_link) = (place(&pair, &pair.pods[2].place), pair.pods[2].ifname.clone());
        Ground {
            path,
            own,
            targets,
            tunnel_mac: mac_of(&place(&pair, &pair.nodes[1].place), &tunnel),
            mtu,
            attacker: PacketSocket::sender(&inside, &link),
            neighbour: PacketSocket::sender(&other, &other_link),
            neighbour_mac: mac_of(&other, &other_link).expect("an Ethernet link"),
            sights: sights(&pair, &tunnel),
            pair,
            journal,
        }
    }

    /// Collects the packets that were seen at each place. Returns once the packets that `is_last` recognises
    /// have arrived wherever they must.
    #[track_caller]
    pub(crate) fn seen(&self, lasts: u32, is_last: impl Fn(&Captured) -> bool) -> Vec<(Sight, Captured)> {
        let mut seen = Vec::new();
        for (sight, socket) in &self.sights {
            let mut missing = if self.is_reached(*sight) { lasts } else { 0 };
            loop {
                let patience = if missing > 0 { PATIENCE } else { Duration::ZERO };
                let Some(captured) = socket.receive(patience) else { break };
                missing = missing.saturating_sub(u32::from(is_last(&captured)));
                seen.push((*sight, captured));
            }
            assert_eq!(missing, 0, "{}: the last packets did not arrive at {sight:?}", self.path.name);
        }
        seen
    }

    /// Makes the other pod of the node send a frame, so that a bridge learns its port again: an attacker may
    /// have claimed its Ethernet address.
    pub(crate) fn neighbour_speaks(&self) {
        let frame =
            [&[0xff; 6][..], &self.neighbour_mac.0, &LOCAL_EXPERIMENT.to_be_bytes(), &[0; 46]].concat();
        // A link without a bridge may refuse the frame.
        let _ = self.neighbour.send(&frame, Offload::default(), LOCAL_EXPERIMENT);
    }

    /// Lowers the MTU at both ends of the wire between the nodes.
    pub(crate) fn narrow_wire(&self, mtu: u32) {
        for node in &self.pair.nodes {
            let link = format!("link set {} mtu {mtu}", node.wire);
            testkit::run(&place(&self.pair, &node.place), "ip", &link.split(' ').collect::<Vec<_>>());
        }
    }

    /// Where the programs of the attacker's node are pinned.
    pub(crate) fn programs(&self) -> std::path::PathBuf {
        bpf::pins::folder(&self.pair.nodes[1].programs())
    }

    /// Whether packets of an honest pod arrive there.
    fn is_reached(&self, sight: Sight) -> bool {
        match sight {
            Sight::Wire => true,
            // In this mode packets reach a pod above the link layer, where a packet socket does not see them.
            Sight::Neighbour | Sight::Far if self.path.attach.name() == "ipvlan-l3s" => false,
            Sight::Neighbour | Sight::Far => self.path.reach == Reach::Pod,
            Sight::OwnTunnel | Sight::FarTunnel => false,
        }
    }

    /// The pods to which honest packets go, or the other node if pods are reached by its ports.
    pub(crate) fn honest_targets(&self) -> Vec<Target> {
        let wanted: Vec<IpAddr> = match self.path.reach {
            Reach::Pod => [0, 2].into_iter().flat_map(|pod| self.pair.pods[pod].addresses.iter()).collect(),
            Reach::Node | Reach::PublishedPort => self.pair.nodes[0].underlay.iter().collect(),
        };
        self.targets.iter().copied().filter(|target| wanted.contains(&target.ip)).collect()
    }
}

pub(super) fn place(pair: &Pair, place: &Place) -> Netns {
    pair.netns(place.name().expect("tests name their nodes"))
}

fn mac_of(netns: &Netns, link: &IfName) -> Option<Mac> {
    let links = Netlink::open_in(netns).and_then(|netlink| netlink.links()).expect("links can be listed");
    links.into_iter().find(|found| found.name == *link)?.mac
}

fn sights(pair: &Pair, tunnel: &IfName) -> Vec<(Sight, PacketSocket)> {
    let node = |at: usize| place(pair, &pair.nodes[at].place);
    let (far_end, wire) = match &pair.nodes[1].router {
        Some(router) => (place(pair, &router.place), &router.wire),
        None => (node(0), &pair.nodes[0].wire),
    };
    let mut sights = vec![(Sight::Wire, PacketSocket::receiver(&far_end, wire))];
    for (sight, pod) in [(Sight::Neighbour, 2), (Sight::Far, 0)] {
        let pod = &pair.pods[pod];
        sights.push((sight, PacketSocket::receiver(&place(pair, &pod.place), &pod.ifname)));
    }
    for (sight, at) in [(Sight::OwnTunnel, 1), (Sight::FarTunnel, 0)] {
        if mac_of(&node(at), tunnel).is_some() {
            sights.push((sight, PacketSocket::receiver(&node(at), tunnel)));
        }
    }
    sights
}

/// All addresses worth attacking. A pod gets the Ethernet address of the next hop towards it, taken from an
/// honest datagram. The other unicast addresses get that of the next hop towards the far pod, and groups
/// their own.
fn targets(pair: &Pair, inside: &Netns, link: &IfName) -> Vec<Target> {
    let [one, two] = &pair.nodes;
    let towards = |ip| Target { ip, mac: next_hop(inside, link, ip) };
    let mut targets: Vec<Target> =
        [0, 2].iter().flat_map(|pod| pair.pods[*pod].addresses.iter()).map(towards).collect();
    let gateway = targets[0].mac;
    let nodes =
        [one, two].into_iter().flat_map(|node| node.underlay.iter().chain(node.pods.networks().iter()));
    let others = ["10.244.2.99", "fd00:244:0:2::99", "fe80::1", "169.254.1.1"].map(sound);
    targets.extend(nodes.chain(others).map(|ip| Target { ip, mac: gateway }));
    targets.push(Target { ip: sound("255.255.255.255"), mac: Mac([0xff; 6]) });
    targets.push(Target { ip: sound("224.0.0.1"), mac: Mac([1, 0, 0x5e, 0, 0, 1]) });
    targets.push(Target { ip: sound("ff02::1"), mac: Mac([0x33, 0x33, 0, 0, 0, 1]) });
    targets
}

fn sound(address: &str) -> IpAddr {
    address.parse().expect("a sound address")
}

fn next_hop(inside: &Netns, link: &IfName, to: IpAddr) -> Mac {
    let witness = PacketSocket::witness(inside, link);
    let socket = inside.run(|| UdpSocket::bind(SocketAddr::new(any(to), 0))).expect("the namespace is there");
    let socket = socket.expect("a free port");
    let mark = format!("hostgap to {to}");
    socket
        .send_to(mark.as_bytes(), SocketAddr::new(to, DISCARD))
        .unwrap_or_else(|error| panic!("{to}: {error}"));
    loop {
        let frame = witness.receive(PATIENCE).unwrap_or_else(|| panic!("nothing is sent to {to}")).bytes;
        if frame.windows(mark.len()).any(|part| part == mark.as_bytes()) {
            return Mac(frame[..6].try_into().expect("six bytes"));
        }
    }
}

fn any(like: IpAddr) -> IpAddr {
    if like.is_ipv4() { std::net::Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}
