//! Packets to a pod of the node: from another pod, from the wire and out of a tunnel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};

use bpf::forward::{Counter, Endpoint, Program, add_endpoint, remove_endpoint};
use linux::Mac;

use crate::frame::{self, Ipv4, Wrapped, datagram, ethernet, udp};
use crate::node::{
    GATEWAY_MAC, HERE, HOP_MAC, MTU, Node, ONE, PORT, THERE, THERE6, TWO, VNI, WIRE_MAC, can_run, far,
    from_hop,
};
use crate::run::{Context, Verdict};

/// Bytes of a frame that stands for several segments.
const LONG: usize = 3000;

/// IPv4 packets that are not plain datagrams but still have two addresses.
pub(crate) fn odd4(from: Ipv4Addr, to: Ipv4Addr) -> Vec<(&'static str, Vec<u8>)> {
    let plain = || Ipv4::new(from, to);
    let payload = udp(4000, 4001, b"some bytes");
    vec![
        ("first fragment", Ipv4 { fragment: 0x2000, ..plain() }.packet(&payload)),
        ("later fragment", Ipv4 { fragment: 0x2003, ..plain() }.packet(b"twelve bytes")),
        ("last fragment", Ipv4 { fragment: 0x0006, ..plain() }.packet(b"x")),
        ("nothing but a header", plain().packet(b"")),
        ("not to be cut, with congestion", Ipv4 { fragment: 0x4000, tos: 3, ..plain() }.packet(&payload)),
    ]
}

/// IPv6 packets with headers between IP and UDP.
pub(crate) fn odd6(from: Ipv6Addr, to: Ipv6Addr) -> Vec<(&'static str, Vec<u8>)> {
    let options = [&[17, 0, 1, 4, 0, 0, 0, 0][..], &udp(4000, 4001, b"x")].concat();
    let fragment = [&[17, 0, 0, 1, 0, 0, 0, 9][..], &udp(4000, 4001, b"x")].concat();
    vec![
        ("destination options", frame::ipv6(from, to, 60, &options)),
        ("first fragment", frame::ipv6(from, to, 44, &fragment)),
        ("nothing behind", frame::ipv6(from, to, 59, b"")),
    ]
}

/// IPv4 packets that a router does not simply forward.
pub(crate) fn irregular4(from: Ipv4Addr, to: Ipv4Addr) -> Vec<(&'static str, Vec<u8>)> {
    let payload = udp(4000, 4001, b"some bytes");
    let sound = Ipv4::new(from, to).packet(&payload);
    let changed = |at: usize, byte: u8| {
        let mut packet = sound.clone();
        packet[at] = byte;
        packet[10..12].fill(0);
        let sum = frame::checksum(&packet[..frame::IP_HEADER]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet
    };
    let mut bad_sum = sound.clone();
    bad_sum[11] ^= 1;
    let source_route = vec![0x83, 7, 4, 192, 0, 2, 2, 0];
    vec![
        ("options", Ipv4 { options: vec![1; 8], ..Ipv4::new(from, to) }.packet(&payload)),
        ("a loose source route", Ipv4 { options: source_route, ..Ipv4::new(from, to) }.packet(&payload)),
        ("another version", changed(0, 0x65)),
        ("a header of 16 bytes", changed(0, 0x44)),
        ("a header of 60 bytes", changed(0, 0x4f)),
        ("longer than its frame", changed(3, sound[3] + 1)),
        ("shorter than its frame", changed(3, sound[3] - 1)),
        ("shorter than its header", changed(3, 19)),
        ("a spent TTL", changed(8, 1)),
        ("no TTL", changed(8, 0)),
        ("a wrong checksum", bad_sum),
    ]
}

/// The same for IPv6.
pub(crate) fn irregular6(from: Ipv6Addr, to: Ipv6Addr) -> Vec<(&'static str, Vec<u8>)> {
    let datagram = udp(4000, 4001, b"x");
    let options = [&[17, 0, 1, 4, 0, 0, 0, 0][..], &datagram].concat();
    let sound = frame::ipv6(from, to, 17, &datagram);
    let changed = |at: usize, byte: u8| {
        let mut packet = sound.clone();
        packet[at] = byte;
        packet
    };
    vec![
        ("hop by hop", frame::ipv6(from, to, 0, &options)),
        ("another version", changed(0, 0x40)),
        ("longer than its frame", changed(5, sound[5] + 1)),
        ("shorter than its frame", changed(5, sound[5] - 1)),
        ("a spent hop limit", changed(7, 1)),
        ("no hop limit", changed(7, 0)),
    ]
}

fn goes_on(found: crate::node::Outcome, frame: &[u8], what: &str) {
    assert_eq!((found.verdict, found.counted), (Verdict::Redirect, vec![]), "{what}");
    assert_eq!(found.frame, frame, "{what}");
}

/// The frame as another pod of the node receives it. A program that redirects to the peer leaves it as it is.
/// One that sends it through the pod's link writes the pod's Ethernet address, because the link's driver
/// checks it.
fn at_pod(program: Program, mac: Mac, frame: &[u8]) -> Vec<u8> {
    match program {
        Program::FromNetkit => [&mac.0[..], &frame[6..]].concat(),
        _ => frame.to_vec(),
    }
}

#[test]
fn from_pod_to_pod() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    let plain = [ONE.to(TWO.v4, b"x"), ONE.to(TWO.v6, b"x")];
    let odd4 = odd4(ONE.v4, TWO.v4).into_iter().map(|(_, packet)| ONE.frame(frame::IPV4, &packet));
    let odd6 = odd6(ONE.v6, TWO.v6).into_iter().map(|(_, packet)| ONE.frame(frame::IPV6, &packet));
    let to_itself = (ONE.mac, ONE.to(ONE.v4, b"to itself"));
    let to_other = plain.into_iter().chain(odd4).chain(odd6).map(|frame| (TWO.mac, frame));
    let frames: Vec<_> = to_other.chain([to_itself]).collect();
    for program in [Program::FromPod, Program::FromNetkit] {
        for (mac, frame) in &frames {
            let expected = at_pod(program, *mac, frame);
            goes_on(node.send(program, ONE.link, frame), &expected, &format!("{program:?} {frame:x?}"));
            // The same frame at another pod's link belongs to no pod.
            let stray = node.send(program, TWO.link, frame);
            assert_eq!(stray.verdict, Verdict::Drop, "{program:?} {frame:x?}");
        }
        let send_in = |gso_bytes| {
            let context = Context { ifindex: node.index(ONE.link), gso_bytes };
            node.send_with(&node.program(program), context, &ONE.to(TWO.v4, &[7; LONG])).unwrap()
        };
        let long = ONE.to(TWO.v4, &[7; LONG]);
        goes_on(send_in(MTU - 28), &at_pod(program, TWO.mac, &long), "segments");
        for gso_bytes in [0, MTU - 27] {
            let found = send_in(gso_bytes);
            assert_eq!(
                (found.verdict, found.counted),
                (Verdict::Pass, vec![Counter::PassTooBig]),
                "{gso_bytes}"
            );
        }
    }
}

/// The kernel drops malformed packets and answers packets whose TTL has expired. It also handles options.
#[test]
fn what_is_irregular_is_the_kernels() {
    if !can_run() {
        return;
    }
    for node in [Node::direct(), Node::tunnelled()] {
        for to in [TWO.v4, far::DIRECT] {
            for (name, packet) in irregular4(ONE.v4, to) {
                irregular(&node, name, &ONE.frame(frame::IPV4, &packet));
            }
            // The next packet uses the cached route.
            node.send(Program::FromPod, ONE.link, &ONE.to(to, b"x"));
            for (name, packet) in irregular4(ONE.v4, to) {
                irregular(&node, name, &ONE.frame(frame::IPV4, &packet));
                let spoofed = TWO.frame(frame::IPV4, &packet);
                let found = node.send(Program::FromPod, TWO.link, &spoofed);
                let expected = (Verdict::Drop, vec![Counter::DropSpoofedAddress]);
                assert_eq!((found.verdict, found.counted), expected, "{name} from another pod");
            }
            let (kind, packet) = datagram(ONE.v4.into(), to.into(), b"x");
            for mac in [frame::BROADCAST, TWO.mac] {
                irregular(&node, "not for the gateway", &ethernet(mac, ONE.mac, kind, &packet));
            }
        }
        for to in [TWO.v6, far::DIRECT6] {
            for (name, packet) in irregular6(ONE.v6, to) {
                irregular(&node, name, &ONE.frame(frame::IPV6, &packet));
            }
        }
    }
}

#[track_caller]
fn irregular(node: &Node, name: &str, frame: &[u8]) {
    for program in [Program::FromPod, Program::FromNetkit] {
        let found = node.send(program, ONE.link, frame);
        let expected = (Verdict::Pass, vec![Counter::PassIrregular]);
        assert_eq!((found.verdict, found.counted), expected, "{program:?}: {name}");
        assert_eq!(found.frame, frame, "{program:?}: {name}");
    }
}

#[test]
fn from_the_wire_to_a_pod() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    let arriving = |kind, packet: &[u8]| ethernet(WIRE_MAC, HOP_MAC, kind, packet);
    for frame in [from_hop(far::DIRECT, ONE.v4, b"x"), from_hop(far::DIRECT6, TWO.v6, b"x")] {
        goes_on(node.send(Program::FromWire, "wire", &frame), &frame, "plain");
    }
    for frame in [from_hop(far::UNRESOLVED, ONE.v4, b"x"), from_hop(far::UNRESOLVED6, TWO.v6, b"x")] {
        goes_on(node.send(Program::FromWire, "wire", &frame), &frame, "from a hop that is not known yet");
    }
    let with_options = irregular4(far::DIRECT, ONE.v4).swap_remove(0);
    for (name, packet) in odd4(far::DIRECT, ONE.v4).into_iter().chain([with_options]) {
        let frame = arriving(frame::IPV4, &packet);
        goes_on(node.send(Program::FromWire, "wire", &frame), &frame, name);
    }
    for (name, packet) in odd6(far::DIRECT6, ONE.v6) {
        let frame = arriving(frame::IPV6, &packet);
        goes_on(node.send(Program::FromWire, "wire", &frame), &frame, name);
    }
}

#[test]
fn out_of_the_device_to_a_pod() {
    if !can_run() {
        return;
    }
    let node = Node::tunnelled();
    let pairs: [(IpAddr, IpAddr); 2] =
        [(far::DIRECT.into(), ONE.v4.into()), (far::DIRECT6.into(), ONE.v6.into())];
    for (from, to) in pairs {
        let (kind, packet) = datagram(from, to, b"x");
        for end in [IpAddr::from(THERE), THERE6.into()] {
            let frame = ethernet(GATEWAY_MAC, TWO.mac, kind, &packet);
            goes_on(node.send_tunnelled(VNI, end, &frame), &frame, "out of the device");
        }
    }
}

/// Its queue is at the node's end of its link, whose other end takes what has the pod's Ethernet address.
#[test]
fn to_a_pod_with_a_queue() {
    if !can_run() {
        return;
    }
    let [direct, tunnelled] = [Node::direct(), Node::tunnelled()];
    for node in [&direct, &tunnelled] {
        let pod = node.endpoint(&TWO);
        remove_endpoint(&node.folder, &pod).unwrap();
        add_endpoint(&node.folder, &Endpoint { queued: true, ..pod }).unwrap();
    }
    let at_pod = |frame: &[u8]| [&TWO.mac.0[..], &frame[6..]].concat();
    for (to, from) in
        [(IpAddr::from(TWO.v4), IpAddr::from(far::DIRECT)), (TWO.v6.into(), far::DIRECT6.into())]
    {
        for program in [Program::FromPod, Program::FromNetkit] {
            let frame = ONE.to(to, b"x");
            goes_on(direct.send(program, ONE.link, &frame), &at_pod(&frame), "from a pod");
            assert_eq!(direct.send(program, TWO.link, &frame).verdict, Verdict::Drop, "from no pod");
        }
        let frame = from_hop(from, to, b"x");
        goes_on(direct.send(Program::FromWire, "wire", &frame), &at_pod(&frame), "from the wire");
        let (kind, packet) = datagram(from, to, b"x");
        let frame = ethernet(GATEWAY_MAC, ONE.mac, kind, &packet);
        let found = tunnelled.send_tunnelled(VNI, THERE, &frame);
        goes_on(found, &at_pod(&frame), "out of the tunnel's device");
    }
    let inner = from_hop(far::DIRECT, TWO.v4, b"x");
    let ends = [THERE, HERE].map(|end| SocketAddrV4::new(end, PORT));
    let wrapped =
        ethernet(WIRE_MAC, HOP_MAC, frame::IPV4, &Wrapped::between(ends[0], ends[1], VNI).packet(&inner));
    let found = tunnelled.send(Program::FromWire, "wire", &wrapped);
    goes_on(found, &at_pod(&inner), "unwrapped");
}

#[test]
fn a_pod_that_was_taken_away_is_unknown() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    let two = node.endpoint(&TWO);
    remove_endpoint(&node.folder, &two).unwrap();
    let to_two = node.send(Program::FromPod, ONE.link, &ONE.to(TWO.v4, b"x"));
    assert_eq!((to_two.verdict, to_two.counted), (Verdict::Pass, vec![Counter::PassNode]));
    for address in [IpAddr::from(ONE.v4), ONE.v6.into()] {
        let from_two = node.send(Program::FromPod, TWO.link, &TWO.to(address, b"x"));
        assert_eq!(from_two.verdict, Verdict::Drop);
    }
}
