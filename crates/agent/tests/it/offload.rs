//! Tunnels over cards that promise what they do not do: the agents find it out, and the kernel does it instead.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use agent::OffloadFault;
use agent::source::file::FileSource;
use agent::status::{Status, TunnelOffload};
use linux::{IfName, Netns};
use testkit::{Offload, PacketSocket, dump, require_root, shell};

use crate::keep::{A, B, VXLAN, started, take_back, transfer, with_pods};
use crate::nodes::{Agent, Nodes, PATIENCE};

/// Where UDP begins in a frame that is a tunnel's, over IPv4 and IPv6: what begins behind that is in the tunnel.
const OUTER_UDP: [u16; 2] = [34, 54];

/// The card of both nodes: it takes what their kernels leave to a link, and does it for packets in no tunnel alone.
struct BrokenCard {
    ends: Arc<AtomicBool>,
    ways: Vec<JoinHandle<()>>,
}

/// What the card does not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Breaks {
    Checksums,
    Segmentation,
}

/// Two nodes that a card joins, and what it breaks of what each of them sends.
fn nodes(breaks: [Option<Breaks>; 2]) -> (Nodes, BrokenCard) {
    let mut card = None;
    let nodes = Nodes::joined_by(|world| {
        let inside = world.add("card");
        let (a, b, inside_name) = (world.name("a"), world.name("b"), world.name("card"));
        shell(&format!(
            "ip -n {a} link add wire type veth peer name side-a netns {inside_name}
             ip -n {b} link add wire type veth peer name side-b netns {inside_name}
             ip -n {inside_name} link set side-a up; ip -n {inside_name} link set side-b up"
        ));
        card = Some(BrokenCard::insert(&inside, breaks));
    });
    with_pods(&nodes);
    nodes.write_leases(VXLAN, &[A, B]);
    (nodes, card.unwrap())
}

impl BrokenCard {
    fn insert(inside: &Netns, [of_a, of_b]: [Option<Breaks>; 2]) -> BrokenCard {
        let ends = Arc::new(AtomicBool::new(false));
        let way = |from: &str, to: &str, breaks: Option<Breaks>| {
            let name = |name| IfName::new(name).unwrap();
            let from = PacketSocket::receiver(inside, &name(from));
            let to = PacketSocket::sender(inside, &name(to));
            let ends = ends.clone();
            std::thread::spawn(move || carry(&from, &to, breaks, &ends))
        };
        let ways = vec![way("side-a", "side-b", of_a), way("side-b", "side-a", of_b)];
        BrokenCard { ends, ways }
    }
}

impl Drop for BrokenCard {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for way in self.ways.drain(..) {
            way.join().unwrap();
        }
    }
}

/// Carries frames from one side to the other, with what the kernel left to do or, if the card breaks it, without. The
/// nodes say nothing large to each other but through the tunnel.
fn carry(from: &PacketSocket, to: &PacketSocket, breaks: Option<Breaks>, ends: &AtomicBool) {
    while !ends.load(Ordering::Relaxed) {
        let Some(frame) = from.receive(Duration::from_millis(100)) else { continue };
        let protocol = u16::from_be_bytes([frame.bytes[12], frame.bytes[13]]);
        let is_large = frame.offload.kind != 0;
        let in_tunnel = is_large || !OUTER_UDP.contains(&frame.offload.checksum_start);
        let left = match breaks {
            Some(Breaks::Checksums) if in_tunnel => Offload::default(),
            Some(Breaks::Segmentation) if is_large => continue,
            Some(Breaks::Checksums | Breaks::Segmentation) | None => frame.offload,
        };
        // A frame that is too large is lost.
        let _ = to.send(&frame.bytes, left, protocol);
    }
}

fn has_fault(fault: OffloadFault) -> impl Fn(&Status) -> bool {
    let found = TunnelOffload { is_whole: false, fault: Some(fault), why_not: None };
    move |status| status.offload.len() == 2 && status.offload.values().all(|offload| *offload == found)
}

fn start(nodes: &Nodes, node: &str, tests_offload: bool) -> Agent {
    let source = FileSource { path: nodes.leases(), node: node.to_owned() };
    let settings = agent::Settings { tests_offload, ..nodes.settings(node) };
    Agent::start(nodes.world.open(node), settings, nodes.home(node), source)
}

#[test]
fn checksums_that_the_card_breaks_are_filled_in_by_the_kernel() {
    if !require_root() {
        return;
    }
    let (nodes, _card) = nodes([Some(Breaks::Checksums); 2]);
    let before = ["a", "b"].map(|node| dump(&nodes.world.open(node)));
    {
        let agents = ["a", "b"].map(|node| start(&nodes, node, false));
        // That it is broken is what everything below rests on: no connection comes about.
        let listen = || TcpListener::bind("10.244.2.9:0").unwrap();
        let listener = nodes.world.open("b").run(listen).unwrap();
        let to = listener.local_addr().unwrap();
        let connect = || TcpStream::connect_timeout(&to, Duration::from_secs(2));
        nodes.world.open("a").run(connect).unwrap().expect_err("the card breaks checksums");
        for agent in &agents {
            assert!(Status::read(&agent.status).unwrap().offload.is_empty(), "nothing is tried");
        }
    }
    {
        let (a, b) = started(&nodes, VXLAN);
        a.until("the fault of a", has_fault(OffloadFault::Checksums));
        b.until("the fault of b", has_fault(OffloadFault::Checksums));
        transfer(&nodes);
    }
    // Another agent goes on with it, without another packet that gets lost.
    let a = start(&nodes, "a", false);
    let status = a.until("the fault of before", has_fault(OffloadFault::Checksums));
    assert_eq!(status.repairs_total, 0, "{status:?}");
    transfer(&nodes);
    drop(a);
    take_back(&nodes, &before);
}

#[test]
fn large_packets_that_the_card_loses_are_cut_by_the_kernel() {
    if !require_root() {
        return;
    }
    let (nodes, _card) = nodes([Some(Breaks::Segmentation); 2]);
    let before = ["a", "b"].map(|node| dump(&nodes.world.open(node)));
    {
        let (a, b) = started(&nodes, VXLAN);
        a.until("the fault of a", has_fault(OffloadFault::Segmentation));
        b.until("the fault of b", has_fault(OffloadFault::Segmentation));
        transfer(&nodes);
    }
    take_back(&nodes, &before);
}

/// A kernel leaves the checksum of a reset to its card, too, but over IPv4.
#[test]
fn over_ipv6_the_card_of_the_other_node_is_no_fault_of_this_one() {
    if !require_root() {
        return;
    }
    let (nodes, _card) = nodes([None, Some(Breaks::Checksums)]);
    // A packet socket cannot pass on a large packet that is in a tunnel: its metadata has room for one header.
    nodes.at("ip -n A link set wire gso_max_segs 1");
    let before = ["a", "b"].map(|node| dump(&nodes.world.open(node)));
    let v6_alone = [(A.0, A.1, "fd00:244:0:1::/64"), (B.0, B.1, "fd00:244:0:2::/64")];
    nodes.write_leases(VXLAN, &v6_alone);
    let b = start(&nodes, "b", false);
    let tunnel = nodes.at("ip -n B -o link show type vxlan | sed 's/^[0-9]*: \\([^:]*\\):.*/\\1/'");
    let heard = PacketSocket::receiver(&nodes.world.open("b"), &IfName::new(tunnel.trim()).unwrap());
    let a = start(&nodes, "a", true);
    let (begun, mut segments) = (Instant::now(), 0);
    // With the one after five that have no answer, the second try has begun, and the first has come to something.
    while segments < 6 {
        assert!(begun.elapsed() < PATIENCE, "{segments} segments");
        let frame = heard.receive(Duration::from_millis(100));
        segments += usize::from(frame.is_some_and(|frame| is_tried(&frame.bytes)));
    }
    let unknown = TunnelOffload { is_whole: false, fault: None, why_not: None };
    a.until("nothing is known of a", |status| status.offload.values().eq([&unknown]));

    drop(b);
    let b = start(&nodes, "b", true);
    let found = |is_whole, fault| {
        let found = TunnelOffload { is_whole, fault, why_not: None };
        move |status: &Status| status.offload.values().eq([&found])
    };
    b.until("the fault of b", found(false, Some(OffloadFault::Checksums)));
    a.until("a has none", found(true, None));
    drop((a, b));
    take_back(&nodes, &before);
}

/// Whether a frame is a TCP segment over IPv6 for the port at which nodes are asked.
fn is_tried(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[0x86, 0xdd])
        && frame.get(20) == Some(&6)
        && frame.get(56..58) == Some(&[0, 9])
}

#[test]
fn what_a_whole_card_does_is_left_to_it() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new();
    with_pods(&nodes);
    let (a, b) = started(&nodes, VXLAN);
    let is_whole = |status: &Status| {
        status.offload.len() == 2 && status.offload.values().all(|offload| offload.is_whole)
    };
    for (agent, node) in [(&a, "A"), (&b, "B")] {
        let status = agent.until("both tunnels", is_whole);
        for tunnel in status.offload.keys() {
            let features = nodes.at(&format!("ip netns exec {node} ethtool -k {tunnel}"));
            for left in ["tx-checksum-ip-generic", "tx-tcp-segmentation", "tx-tcp6-segmentation"] {
                assert!(features.contains(&format!("{left}: on")), "{node}, {tunnel}: {features}");
            }
        }
    }
}

#[test]
fn why_no_node_can_be_asked_is_reported() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new();
    with_pods(&nodes);
    nodes.at("ip netns exec A nft 'add table inet own
         add chain inet own out { type filter hook output priority 0; }
         add rule inet own out tcp dport 9 drop'");
    let (a, b) = started(&nodes, VXLAN);
    let all = |status: &Status, is_so: fn(&TunnelOffload) -> bool| {
        status.offload.len() == 2 && status.offload.values().all(is_so)
    };
    a.until("why a cannot ask", |status| {
        all(status, |offload| offload.why_not.as_deref() == Some("operation not permitted"))
    });
    b.until("b is answered", |status| all(status, |offload| offload.is_whole));
    nodes.at("ip netns exec A nft 'delete table inet own'");
    a.until("a is answered", |status| all(status, |offload| offload.is_whole && offload.why_not.is_none()));
}
