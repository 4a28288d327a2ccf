//! Every reason to drop a packet or to leave it to the kernel, in every program that has it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use bpf::forward::{Counter, Program};

use crate::frame::{self, Ipv4, datagram, ethernet};
use crate::node::{
    GATEWAY_MAC, HERE, HOP_MAC, MTU, Node, ONE, PORT, THERE, THERE6, TWO, VNI, WIRE_MAC, can_run, far,
    from_hop,
};
use crate::run::{Context, Verdict};

/// Reasons that no packet can cause.
const OUT_OF_REACH: &[(Counter, &str)] = &[(
    Counter::DropRewrite,
    "the kernel refuses to write into a packet whose length was checked only for want of memory",
)];

const MULTICAST6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const ICMPV6: u8 = 58;
/// Messages of routers (RFC 4861, section 4).
const ROUTER_ADVERTISEMENT: u8 = 134;
const REDIRECT: u8 = 137;
/// A header of destination options without any (RFC 8200, section 4.6) before an ICMPv6 message, and before another.
const OPTIONS: u8 = 60;
const BEFORE_ICMPV6: [u8; 8] = [ICMPV6, 0, 1, 4, 0, 0, 0, 0];
const BEFORE_OPTIONS: [u8; 8] = [OPTIONS, 0, 1, 4, 0, 0, 0, 0];

type Case = (&'static str, Vec<u8>, Counter);

fn verdict_of(counter: Counter) -> Verdict {
    if counter.is_drop() { Verdict::Drop } else { Verdict::Pass }
}

#[track_caller]
fn check(node: &Node, program: Program, link: &str, cases: Vec<Case>) {
    for (name, frame, counter) in cases {
        let found = node.send(program, link, &frame);
        assert_eq!(
            (found.verdict, found.counted),
            (verdict_of(counter), vec![counter]),
            "{program:?}: {name}"
        );
        assert_eq!(found.frame, frame, "{program:?}: {name}: the frame is unchanged");
    }
}

/// Packets that a pod may not send.
fn forbidden() -> Vec<Case> {
    let alien = |kind, packet: &[u8]| ethernet(GATEWAY_MAC, TWO.mac, kind, packet);
    let (v4, packet) = datagram(ONE.v4.into(), TWO.v4.into(), b"x");
    let (v6, packet6) = datagram(ONE.v6.into(), TWO.v6.into(), b"x");
    let solicitation = |from| frame::ipv6(from, MULTICAST6, ICMPV6, &[133, 0, 0, 0]);
    let dhcp = Ipv4::new([0; 4].into(), [255; 4].into()).packet(&frame::udp(68, 67, b"x"));
    vec![
        ("its address from another's MAC", alien(v4, &packet), Counter::DropSpoofedMac),
        ("its IPv6 address from another's MAC", alien(v6, &packet6), Counter::DropSpoofedMac),
        ("its protocol from another's MAC", alien(frame::UNKNOWN, b"x"), Counter::DropSpoofedMac),
        ("a VLAN's tag", ONE.frame(frame::VLAN, &[0, 7, 8, 0, 0x45, 0]), Counter::DropVlan),
        ("another protocol", ONE.frame(frame::UNKNOWN, b"x"), Counter::DropProtocol),
        ("nothing but a header", ONE.frame(frame::UNKNOWN, b""), Counter::DropProtocol),
        ("link-local from another's MAC", alien(v6, &solicitation(LINK_LOCAL)), Counter::DropSpoofedMac),
        (
            "another's address",
            {
                let p = datagram(TWO.v4.into(), far::DIRECT.into(), b"x").1;
                ONE.frame(v4, &p)
            },
            Counter::DropSpoofedAddress,
        ),
        (
            "another's IPv6 address",
            {
                let p = datagram(TWO.v6.into(), far::DIRECT6.into(), b"x").1;
                ONE.frame(v6, &p)
            },
            Counter::DropSpoofedAddress,
        ),
        (
            "an address outside",
            {
                let p = datagram(far::OUTSIDE.into(), TWO.v4.into(), b"x").1;
                ONE.frame(v4, &p)
            },
            Counter::DropSpoofedAddress,
        ),
        ("no address yet", ethernet(frame::BROADCAST, ONE.mac, v4, &dhcp), Counter::DropSpoofedAddress),
        (
            "no IPv6 address, to one other",
            ONE.frame(v6, &frame::ipv6(Ipv6Addr::UNSPECIFIED, TWO.v6, 17, b"x")),
            Counter::DropSpoofedAddress,
        ),
        (
            "a group's address as its own",
            ONE.frame(v6, &solicitation(MULTICAST6)),
            Counter::DropSpoofedAddress,
        ),
    ]
}

/// Messages of routers, from a pod to its node. A node that does not forward believes them (`ipv6_accept_ra`).
fn as_a_router() -> Vec<Case> {
    let from =
        |from, next, payload: &[u8]| ONE.frame(frame::IPV6, &frame::ipv6(from, MULTICAST6, next, payload));
    let message = [ROUTER_ADVERTISEMENT, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    let hidden = |headers: usize| {
        let before = BEFORE_OPTIONS.repeat(headers - 1);
        from(LINK_LOCAL, OPTIONS, &[&before[..], &BEFORE_ICMPV6, &message].concat())
    };
    let redirect = [&[REDIRECT][..], &message[1..]].concat();
    [
        ("a router advertisement", from(LINK_LOCAL, ICMPV6, &message)),
        ("a router advertisement from its address", from(ONE.v6, ICMPV6, &message)),
        ("a router advertisement behind a header", hidden(1)),
        ("a router advertisement behind nine headers", hidden(9)),
        ("a redirect", from(LINK_LOCAL, ICMPV6, &redirect)),
    ]
    .map(|(name, frame)| (name, frame, Counter::DropSpoofedAddress))
    .into()
}

/// Packets that a pod may send and the kernel must handle.
fn left_to_the_kernel() -> Vec<Case> {
    let long = vec![0; MTU as usize];
    let spent = crate::pods::irregular4(ONE.v4, far::DIRECT).swap_remove(8).1;
    let solicitation = |from| ONE.frame(frame::IPV6, &frame::ipv6(from, MULTICAST6, ICMPV6, &[135, 0, 0, 0]));
    let to =
        |address: &str, payload: &[u8]| ONE.to(address.parse::<IpAddr>().expect("a sound address"), payload);
    vec![
        ("outside", ONE.to(far::OUTSIDE, b"x"), Counter::PassOutside),
        ("outside, IPv6", ONE.to(far::OUTSIDE6, b"x"), Counter::PassOutside),
        ("outside, too long", ONE.to(far::OUTSIDE, &long), Counter::PassOutside),
        ("to all", to("255.255.255.255", b"x"), Counter::PassOutside),
        ("to a group", to("224.0.0.251", b"x"), Counter::PassOutside),
        ("no pod's address", to("10.244.1.99", b"x"), Counter::PassNode),
        ("no pod's IPv6 address", to("fd00:1::99", b"x"), Counter::PassNode),
        ("the prefix's own address", to("10.244.1.0", b"x"), Counter::PassNode),
        ("a spent TTL", ONE.frame(frame::IPV4, &spent), Counter::PassIrregular),
        ("too long", ONE.to(far::DIRECT, &long), Counter::PassTooBig),
        ("too long, IPv6", ONE.to(far::DIRECT6, &long), Counter::PassTooBig),
        ("a route elsewhere", ONE.to(far::ROUTED, b"x"), Counter::PassRouted),
        ("a route elsewhere, again", ONE.to(far::ROUTED, b"x"), Counter::PassRouted),
        ("a route elsewhere, IPv6", ONE.to(far::ROUTED6, b"x"), Counter::PassRouted),
        ("a route elsewhere, IPv6, again", ONE.to(far::ROUTED6, b"x"), Counter::PassRouted),
        ("no neighbour", ONE.to(far::UNRESOLVED, b"x"), Counter::PassUnresolved),
        ("no neighbour, IPv6", ONE.to(far::UNRESOLVED6, b"x"), Counter::PassUnresolved),
        ("looks for a duplicate", solicitation(Ipv6Addr::UNSPECIFIED), Counter::PassLinkScope),
        ("link-local to a group", solicitation(LINK_LOCAL), Counter::PassLinkScope),
        ("its address to a group", solicitation(ONE.v6), Counter::PassLinkScope),
        ("its address to link-local", ONE.to(LINK_LOCAL, b"x"), Counter::PassLinkScope),
    ]
}

#[test]
fn every_reason_is_reached() {
    if !can_run() {
        return;
    }
    let (direct, tunnelled) = (Node::direct(), Node::tunnelled());
    for program in [Program::FromPod, Program::FromNetkit] {
        check(&direct, program, ONE.link, forbidden());
        check(&direct, program, ONE.link, as_a_router());
        check(&tunnelled, program, ONE.link, as_a_router());
        check(&direct, program, ONE.link, left_to_the_kernel());
        check(&direct, program, ONE.link, crate::arp::cases());
    }
    cut_off(&direct);
    check(&direct, Program::FromWire, "wire", arriving(|from, to| from_hop(from, to, b"x")));
    nothing_counted_at_the_wire(&direct);
    from_tunnel(&tunnelled);

    let reached: BTreeSet<&str> = &direct.reached() | &tunnelled.reached();
    let exceptions = OUT_OF_REACH.iter().map(|(counter, _)| counter.name());
    let all: BTreeSet<&str> = Counter::ALL.iter().map(|counter| counter.name()).collect();
    assert_eq!(&reached | &exceptions.collect(), all);
    for (counter, why) in OUT_OF_REACH {
        assert!(!reached.contains(counter.name()), "{counter} is within reach, unlike {why:?}");
    }
}

/// Packets for pods of the node, from the wire or out of a tunnel.
fn arriving(frame: impl Fn(IpAddr, IpAddr) -> Vec<u8>) -> Vec<Case> {
    let free = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 0x99);
    vec![
        ("from outside", frame(far::OUTSIDE.into(), ONE.v4.into()), Counter::PassOutside),
        ("from outside, IPv6", frame(far::OUTSIDE6.into(), ONE.v6.into()), Counter::PassOutside),
        ("with a pod's address", frame(TWO.v4.into(), ONE.v4.into()), Counter::PassMartian),
        ("with a pod's IPv6 address", frame(TWO.v6.into(), ONE.v6.into()), Counter::PassMartian),
        ("by another link than back", frame(far::ROUTED.into(), ONE.v4.into()), Counter::PassRouted),
        ("by another link than back, IPv6", frame(far::ROUTED6.into(), ONE.v6.into()), Counter::PassRouted),
        ("to no pod", frame(far::DIRECT.into(), [10, 244, 1, 99].into()), Counter::PassNode),
        ("to no pod, IPv6", frame(far::DIRECT6.into(), free.into()), Counter::PassNode),
    ]
}

/// Truncated headers, on kernels that accept them for a test run.
fn cut_off(node: &Node) {
    let mut reached = 0;
    for (program, link, frame) in [
        (Program::FromPod, ONE.link, ONE.to(TWO.v4, b"")),
        (Program::FromNetkit, ONE.link, ONE.to(TWO.v4, b"")),
        (Program::FromPod, ONE.link, ONE.to(TWO.v6, b"")),
        (Program::FromPod, ONE.link, crate::arp::question()),
        (Program::FromWire, "wire", from_hop(far::DIRECT, ONE.v4, b"")),
        (Program::FromWire, "wire", from_hop(far::DIRECT6, ONE.v6, b"")),
    ] {
        let whole = match u16::from_be_bytes([frame[12], frame[13]]) {
            frame::IPV4 => 34,
            frame::IPV6 => 54,
            _ => 42,
        };
        let context = Context { ifindex: node.index(link), ..Context::default() };
        for bytes in frame::ETHERNET..whole {
            match node.send_with(&node.program(program), context, &frame[..bytes]) {
                Ok(found) => {
                    reached += 1;
                    assert_eq!(found.verdict, Verdict::Drop, "{program:?}: {bytes} bytes of {frame:x?}");
                    assert_eq!(found.counted, [Counter::DropShort]);
                }
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{bytes}: {error}"),
            }
        }
    }
    assert!(reached > 0, "the kernel accepted no truncated packet");
}

/// Packets that the wire's program passes without counting them: they are not for pods.
fn nothing_counted_at_the_wire(node: &Node) {
    let (v4, packet) = datagram(far::DIRECT.into(), ONE.v4.into(), b"x");
    let to = |mac| ethernet(mac, HOP_MAC, v4, &packet);
    for (name, frame) in [
        ("for the node", from_hop(THERE, HERE, b"x")),
        ("for another host", to(TWO.mac)),
        ("for all", to(frame::BROADCAST)),
        ("not for pods, IPv6", from_hop(far::OUTSIDE6, far::DIRECT6, b"x")),
        ("from wire to wire", from_hop(far::OUTSIDE, far::DIRECT, b"x")),
        ("another protocol", ethernet(WIRE_MAC, HOP_MAC, frame::UNKNOWN, b"x")),
        ("a VLAN's tag within the frame", ethernet(WIRE_MAC, HOP_MAC, frame::VLAN, &[0, 7, 8, 0, 0x45, 0])),
    ] {
        let found = node.send(Program::FromWire, "wire", &frame);
        assert_eq!((found.verdict, found.counted), (Verdict::Pass, vec![]), "{name}");
        assert_eq!(found.frame, frame, "{name}");
    }
}

fn from_tunnel(node: &Node) {
    let packet = Ipv4::new(far::DIRECT, [10, 244, 1, 1].into()).packet(&frame::udp(4000, PORT, b"x"));
    let found = node.send_tunnelled(VNI, THERE, &ethernet(GATEWAY_MAC, TWO.mac, frame::IPV4, &packet));
    assert_eq!((found.verdict, found.counted), (Verdict::Drop, vec![Counter::DropTunnelPort]));
    let inner = |from, to| {
        let (kind, packet) = datagram(from, to, b"x");
        ethernet(GATEWAY_MAC, TWO.mac, kind, &packet)
    };
    let mut cases = arriving(inner);
    let other = |kind| ethernet(GATEWAY_MAC, TWO.mac, kind, b"x");
    cases.push(("another protocol", other(frame::UNKNOWN), Counter::DropProtocol));
    cases.push(("ARP", other(frame::ARP), Counter::PassArp));
    for (name, frame, counter) in cases {
        let found = node.send_tunnelled(VNI, THERE, &frame);
        assert_eq!((found.verdict, found.counted), (verdict_of(counter), vec![counter]), "{name}");
    }
    let good = inner(far::DIRECT.into(), ONE.v4.into());
    for end in [IpAddr::from(THERE), THERE6.into()] {
        let found = node.send_tunnelled(VNI ^ 1, end, &good);
        assert_eq!((found.verdict, found.counted), (Verdict::Drop, vec![Counter::DropForeignVni]));
    }
    for end in [IpAddr::from(ONE.v4), HERE.into(), ONE.v6.into(), Ipv6Addr::UNSPECIFIED.into()] {
        let found = node.send_tunnelled(VNI, end, &good);
        assert_eq!((found.verdict, found.counted), (Verdict::Drop, vec![Counter::DropTunnelPeer]), "{end}");
    }
    for (name, frame) in [
        ("for the node", inner(far::DIRECT.into(), HERE.into())),
        ("for the node, IPv6", inner(far::DIRECT6.into(), far::OUTSIDE6.into())),
    ] {
        let found = node.send_tunnelled(VNI, THERE, &frame);
        assert_eq!((found.verdict, found.counted), (Verdict::Pass, vec![]), "{name}");
    }
    // The packet is for the node itself: it was not in a tunnel.
    let found = node.send(Program::FromTunnel, "tun", &good);
    assert_eq!((found.verdict, found.counted), (Verdict::Pass, vec![]));
}
