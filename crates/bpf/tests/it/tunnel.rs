//! Packets to and from pods of nodes at the other end of a tunnel, checked down to every byte around them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};

use bpf::forward::{Counter, Program, Tunnel, add_tunnel, has_tunnel, remove_tunnel};
use libbpf_rs::{MapCore as _, MapHandle};

use crate::frame::{self, ETHERNET, IP_HEADER, Ipv4, WRAPPING, Wrapped, checksum, datagram, ethernet, udp};
use crate::node::{
    GATEWAY_MAC, HERE, HOP_MAC, MTU, Node, ONE, PORT, THERE, THERE6, VNI, WIRE_MAC, can_run, far, from_hop,
    to_hop,
};
use crate::run::{Context, Verdict};

const END: SocketAddrV4 = SocketAddrV4::new(HERE, PORT);
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const OTHER_END: SocketAddrV4 = SocketAddrV4::new(THERE, PORT);

fn number(bytes: &[u8]) -> u16 {
    u16::from_be_bytes(bytes.try_into().expect("two bytes"))
}

/// Checks the headers of a frame on the wire, and returns its source port.
#[track_caller]
fn check_wrapped(wrapped: &[u8], inner: &[u8], ecn: u8) -> u16 {
    let (head, rest) = wrapped.split_at(ETHERNET);
    assert_eq!(head, to_hop(frame::IPV4), "to the next hop");
    let (ip, rest) = rest.split_at(IP_HEADER);
    let bytes = inner.len() + WRAPPING - ETHERNET;
    assert_eq!(ip[0], 0x45, "IPv4 without options");
    assert_eq!(ip[1], ecn, "only congestion is marked");
    assert_eq!(usize::from(number(&ip[2..4])), bytes, "the packet's length");
    assert_eq!(ip[4..10], [0, 0, 0x40, 0, 64, 17], "don't fragment; UDP");
    assert_eq!(checksum(ip), 0, "the header's checksum");
    assert_eq!(ip[12..], [HERE.octets(), THERE.octets()].concat(), "from end to end");
    let (udp, rest) = rest.split_at(8);
    let port = number(&udp[..2]);
    assert!(port >= 49152, "{port} is not in the range without services");
    assert_eq!(number(&udp[2..4]), PORT);
    assert_eq!(usize::from(number(&udp[4..6])), bytes - IP_HEADER, "the datagram's length");
    assert_eq!(udp[6..], [0, 0], "no checksum");
    let (vxlan, rest) = rest.split_at(8);
    assert_eq!(vxlan, [&[frame::VXLAN_FLAGS, 0, 0, 0][..], &(VNI << 8).to_be_bytes()].concat());
    assert_eq!(rest, inner, "the pod's frame, complete");
    port
}

#[test]
fn a_lone_ipv4_packet_is_wrapped() {
    if !can_run() {
        return;
    }
    let node = Node::tunnelled();
    for program in [Program::FromPod, Program::FromNetkit] {
        let mut ports = Vec::new();
        for (tos, payload) in [(0, 10), (1, 0), (2, 1), (3, 2), (0xb8 | 2, 100), (0, MTU as usize - 28)] {
            let packet = Ipv4 { tos, ..Ipv4::new(ONE.v4, far::DIRECT) };
            let sent = ONE.frame(frame::IPV4, &packet.packet(&udp(4000, 4001, &vec![7; payload])));
            // The first packet looked the route up.
            node.send(program, ONE.link, &sent);
            let found = node.send(program, ONE.link, &sent);
            assert_eq!((found.verdict, found.counted), (Verdict::Redirect, vec![]));
            ports.push(check_wrapped(&found.frame, &sent, tos & 3));
        }
        assert!(ports.windows(2).all(|pair| pair[0] == pair[1]), "one flow has one port: {ports:?}");
        for (name, packet) in crate::pods::odd4(ONE.v4, far::DIRECT) {
            let sent = ONE.frame(frame::IPV4, &packet);
            let found = node.send(program, ONE.link, &sent);
            assert_eq!((found.verdict, found.counted), (Verdict::Redirect, vec![]), "{name}");
            check_wrapped(&found.frame, &sent, packet[1] & 3);
        }
    }
}

/// Another node's device would accept it as a node's packet, with whatever inner sender the pod wrote.
#[test]
fn a_pod_does_not_send_to_the_tunnel_s_port_of_a_node() {
    if !can_run() {
        return;
    }
    let node = Node::tunnelled();
    let ours = udp(4000, PORT, b"x");
    let v4 = |to, fragment, options: &[u8]| {
        let packet = Ipv4 { fragment, options: options.to_vec(), ..Ipv4::new(ONE.v4, to) };
        ONE.frame(frame::IPV4, &packet.packet(&ours))
    };
    let v6 = |next, extensions: &[u8]| {
        ONE.frame(frame::IPV6, &frame::ipv6(ONE.v6, far::OUTSIDE6, next, &[extensions, &ours].concat()))
    };
    let from6 = |from, to| ONE.frame(frame::IPV6, &frame::ipv6(from, to, 17, &ours));
    let own = [10, 244, 1, 1].into();
    let padding = [1; 4];
    let destination_options = [17, 0, 1, 4, 0, 0, 0, 0];
    let first_fragment = [17, 0, 0, 1, 0, 0, 0, 9];
    let many = [[60, 0, 1, 4, 0, 0, 0, 0]; 9].concat();
    for (name, frame) in [
        ("of its own node", v4(HERE, 0, &[])),
        ("of another", v4(THERE, 0, &[])),
        ("at the node's address among the pods'", v4(own, 0, &[])),
        ("behind options", v4(HERE, 0, &padding)),
        ("in a first fragment", v4(HERE, 0x2000, &[])),
        ("over IPv6", v6(17, &[])),
        ("behind an extension header", v6(60, &destination_options)),
        ("in a first fragment of IPv6", v6(44, &first_fragment)),
        ("behind nine extension headers", v6(60, &many)),
        ("at the gateway's link-local address", from6(ONE.v6, LINK_LOCAL)),
        ("of all neighbours", from6(ONE.v6, ALL_NODES)),
        ("of all neighbours, from a link-local address", from6(LINK_LOCAL, ALL_NODES)),
        ("at the gateway's, from a link-local address", from6(LINK_LOCAL, LINK_LOCAL)),
        ("of another, from a link-local address", from6(LINK_LOCAL, THERE6)),
        ("of all neighbours, from no address", from6(Ipv6Addr::UNSPECIFIED, ALL_NODES)),
    ] {
        for program in [Program::FromPod, Program::FromNetkit] {
            let found = node.send(program, ONE.link, &frame);
            assert_eq!(
                (found.verdict, found.counted),
                (Verdict::Drop, vec![Counter::DropTunnelPort]),
                "{name}"
            );
        }
    }
    let later_fragment = [17, 0, 0, 8, 0, 0, 0, 9];
    for (name, frame) in [
        ("a later fragment", v4(HERE, 1, &[])),
        ("a later fragment of IPv6", v6(44, &later_fragment)),
        ("another port", ONE.to(HERE, b"x")),
    ] {
        let found = node.send(Program::FromPod, ONE.link, &frame);
        assert_eq!((found.verdict, found.counted), (Verdict::Pass, vec![Counter::PassOutside]), "{name}");
    }
}

#[test]
fn flows_have_ports_of_their_own() {
    if !can_run() {
        return;
    }
    let node = Node::tunnelled();
    node.send(Program::FromPod, ONE.link, &ONE.to(far::DIRECT, b"x"));
    let ports = (0..32).map(|flow| {
        let packet = Ipv4::new(ONE.v4, far::DIRECT).packet(&udp(4000 + flow, 4001, b"x"));
        let sent = ONE.frame(frame::IPV4, &packet);
        check_wrapped(&node.send(Program::FromPod, ONE.link, &sent).frame, &sent, 0)
    });
    let ports: std::collections::BTreeSet<u16> = ports.collect();
    assert!(ports.len() > 16, "32 flows have the ports {ports:?}");
}

/// The device wraps what is not a single IPv4 packet over IPv4 with a known next hop. It gets the pod's frame
/// unchanged.
#[test]
fn the_rest_goes_through_the_device() {
    if !can_run() {
        return;
    }
    let node = Node::tunnelled();
    let program = node.program(Program::FromPod);
    for (name, to, gso_bytes) in [
        ("segments", IpAddr::from(far::DIRECT), 1000),
        ("IPv6", far::DIRECT6.into(), 0),
        ("over IPv6", far::OVER_IPV6.into(), 0),
        ("no neighbour", far::TUNNEL_UNRESOLVED.into(), 0),
    ] {
        let sent = ONE.to(to, &vec![7; 1200 + gso_bytes as usize]);
        let context = Context { ifindex: node.index(ONE.link), gso_bytes };
        for time in ["first", "second"] {
            let found = node.send_with(&program, context, &sent).unwrap();
            assert_eq!((found.verdict, found.counted), (Verdict::Redirect, vec![]), "{name}, {time}");
            assert_eq!(found.frame, sent, "{name}, {time}");
        }
    }
    // Where no tunnel leads, the kernel's routes apply.
    let routed = node.send(Program::FromPod, ONE.link, &ONE.to(far::ROUTED, b"x"));
    assert_eq!((routed.verdict, routed.counted), (Verdict::Pass, vec![Counter::PassRouted]));
}

/// A node with two cards, of which the one that is no wire leads to the tunnel's other end.
#[test]
fn what_the_kernel_routes_by_another_link_goes_through_the_device() {
    if !can_run() {
        return;
    }
    let node = Node::tunnelled();
    node.ip(&format!("route add default via {THERE} dev wire"));
    let [by_default, by_other] = [Ipv4Addr::new(203, 0, 113, 9), Ipv4Addr::new(10, 9, 0, 9)];
    node.ip("route add 10.9.0.0/16 dev pod2");
    node.ip(&format!("neighbour add {by_other} lladdr {HOP_MAC} dev pod2"));
    let device = node.index("tun");
    for (prefix, remote) in [("10.244.7.0/24", by_default), ("10.244.8.0/24", by_other)] {
        let tunnel = Tunnel { prefix: prefix.parse().unwrap(), device, remote: remote.into() };
        add_tunnel(&node.folder, &tunnel).unwrap();
    }
    for (to, is_wrapped) in [(Ipv4Addr::new(10, 244, 7, 7), true), (Ipv4Addr::new(10, 244, 8, 7), false)] {
        let sent = ONE.to(to, b"some bytes");
        // The first looks the route up.
        let mut found = ["first", "second"].map(|_| node.send(Program::FromPod, ONE.link, &sent));
        for found in &mut found {
            assert_eq!((&found.verdict, &*found.counted), (&Verdict::Redirect, &[][..]), "{to}");
        }
        assert_eq!(found[0].frame, sent, "{to}");
        assert_eq!(found[1].frame != sent, is_wrapped, "{to}");
    }
}

#[test]
fn a_packet_for_a_pod_is_unwrapped() {
    if !can_run() {
        return;
    }
    let node = Node::tunnelled();
    let plain = datagram(far::DIRECT.into(), ONE.v4.into(), &[7; 333]).1;
    let packets = crate::pods::odd4(far::DIRECT, ONE.v4).into_iter().chain([("plain", plain)]);
    for (name, packet) in packets {
        let inner = ethernet(GATEWAY_MAC, HOP_MAC, frame::IPV4, &packet);
        for (tos, fragment) in [(0, 0), (0, 0x4000), (2, 0x4000)] {
            let mut wrapped = Wrapped::between(OTHER_END, END, VNI);
            wrapped.outer = Ipv4 { tos, fragment, ..wrapped.outer };
            let arriving = ethernet(WIRE_MAC, HOP_MAC, frame::IPV4, &wrapped.packet(&inner));
            let found = node.send(Program::FromWire, "wire", &arriving);
            assert_eq!((found.verdict, found.counted), (Verdict::Redirect, vec![]), "{name}");
            assert_eq!(found.frame, ethernet(WIRE_MAC, HOP_MAC, frame::IPV4, &packet), "{name}");
        }
    }
}

/// A frame that a program would not have wrapped this way goes unchanged to the device, which knows all
/// cases.
#[test]
fn what_is_odd_is_left_to_the_device() {
    if !can_run() {
        return;
    }
    let node = Node::tunnelled();
    let packet = |from, to| datagram(from, to, b"some bytes").1;
    let good = packet(far::DIRECT.into(), ONE.v4.into());
    let inner = |kind, packet: &[u8]| ethernet(GATEWAY_MAC, HOP_MAC, kind, packet);
    let good = inner(frame::IPV4, &good);
    let usual = || Wrapped::between(OTHER_END, END, VNI);
    let outer = |change: fn(&mut Wrapped)| {
        let mut wrapped = usual();
        change(&mut wrapped);
        wrapped.packet(&good)
    };
    let cases = [
        ("congestion", outer(|wrapped| wrapped.outer.tos = 3)),
        ("first fragment", outer(|wrapped| wrapped.outer.fragment = 0x2000)),
        ("later fragment", outer(|wrapped| wrapped.outer.fragment = 0x0010)),
        ("options", outer(|wrapped| wrapped.outer.options = vec![1; 4])),
        ("another port", outer(|wrapped| wrapped.port = PORT + 1)),
        ("another network", outer(|wrapped| wrapped.vni ^= 1)),
        ("no identifier", outer(|wrapped| wrapped.flags = 0)),
        ("an unknown flag", outer(|wrapped| wrapped.flags |= 0x80)),
        ("not VXLAN", Ipv4::new(THERE, HERE).packet(&udp(50000, PORT, b"x"))),
        ("IPv6 inside", usual().packet(&inner(frame::IPV6, &packet(far::DIRECT6.into(), ONE.v6.into())))),
        ("ARP inside", usual().packet(&crate::arp::question())),
        ("cut off inside", usual().packet(&good[..ETHERNET + IP_HEADER - 1])),
        (
            "to no pod",
            usual().packet(&inner(frame::IPV4, &packet(far::DIRECT.into(), [10, 244, 1, 99].into()))),
        ),
        ("to the node", usual().packet(&inner(frame::IPV4, &packet(far::DIRECT.into(), HERE.into())))),
        ("from outside", usual().packet(&inner(frame::IPV4, &packet(far::OUTSIDE.into(), ONE.v4.into())))),
        ("with a pod's address", usual().packet(&inner(frame::IPV4, &packet(ONE.v4.into(), ONE.v4.into())))),
    ];
    for (name, packet) in cases {
        let arriving = ethernet(WIRE_MAC, HOP_MAC, frame::IPV4, &packet);
        let found = node.send(Program::FromWire, "wire", &arriving);
        assert_eq!((found.verdict, found.counted), (Verdict::Pass, vec![]), "{name}");
        assert_eq!(found.frame, arriving, "{name}");
    }
    let arriving = ethernet(WIRE_MAC, HOP_MAC, frame::IPV4, &usual().packet(&good));
    let context = Context { ifindex: node.index("wire"), gso_bytes: 60 };
    let segments = node.send_with(&node.program(Program::FromWire), context, &arriving).unwrap();
    assert_eq!((segments.verdict, segments.frame), (Verdict::Pass, arriving.clone()), "segments");
    // On a node without tunnels, nothing is unwrapped.
    let found = Node::direct().send(Program::FromWire, "wire", &arriving);
    assert_eq!((found.verdict, found.counted), (Verdict::Pass, vec![]), "no tunnel");
}

/// A tunnel packet is accepted only from another node's tunnel address, even if its inner source is a known
/// pod.
#[test]
fn strangers_get_nothing_through_the_tunnel() {
    if !can_run() {
        return;
    }
    let node = Node::tunnelled();
    let inner =
        ethernet(GATEWAY_MAC, HOP_MAC, frame::IPV4, &datagram(far::DIRECT.into(), ONE.v4.into(), b"x").1);
    let arriving = |from: Ipv4Addr| {
        let wrapped = Wrapped::between(SocketAddrV4::new(from, PORT), END, VNI).packet(&inner);
        let found = node.send(Program::FromWire, "wire", &ethernet(WIRE_MAC, HOP_MAC, frame::IPV4, &wrapped));
        (found.verdict, found.counted)
    };
    let (taken, refused) = ((Verdict::Redirect, vec![]), (Verdict::Drop, vec![Counter::DropTunnelPeer]));
    for answered in [false, true] {
        if answered {
            // From now on the node is known by the route of its answers.
            node.send(Program::FromPod, ONE.link, &ONE.to(far::DIRECT, b"x"));
        }
        assert_eq!(arriving(THERE), taken);
        for stranger in [HERE, ONE.v4, far::OUTSIDE, Ipv4Addr::new(192, 0, 2, 77)] {
            assert_eq!(arriving(stranger), refused, "{stranger}");
        }
    }
    // A node stays a peer as long as one of its prefixes is reached through its tunnel address.
    let tunnel = |prefix: &str| Tunnel {
        prefix: prefix.parse().expect("a sound prefix"),
        device: node.index("tun"),
        remote: Ipv4Addr::new(192, 0, 2, 77).into(),
    };
    let (one, two) = (tunnel("10.244.77.0/24"), tunnel("fd00:77::/64"));
    for (change, added) in [(&one, true), (&two, true), (&one, false)] {
        let changed =
            if added { add_tunnel(&node.folder, change) } else { remove_tunnel(&node.folder, change) };
        changed.unwrap();
        assert_eq!(arriving(Ipv4Addr::new(192, 0, 2, 77)), taken);
    }
    remove_tunnel(&node.folder, &two).unwrap();
    assert_eq!(arriving(Ipv4Addr::new(192, 0, 2, 77)), refused);
    // A process that died when it removed a tunnel had not counted that yet.
    add_tunnel(&node.folder, &one).unwrap();
    add_tunnel(&node.folder, &two).unwrap();
    let tunnels = MapHandle::from_pinned_path(node.folder.join("tunnels")).unwrap();
    let mapped = Ipv4Addr::new(10, 244, 77, 0).to_ipv6_mapped().octets();
    tunnels.delete(&[&(96_u32 + 24).to_ne_bytes()[..], &mapped].concat()).unwrap();
    remove_tunnel(&node.folder, &one).unwrap();
    assert_eq!(arriving(Ipv4Addr::new(192, 0, 2, 77)), taken);
    remove_tunnel(&node.folder, &two).unwrap();
    assert_eq!(arriving(Ipv4Addr::new(192, 0, 2, 77)), refused);
}

/// Whatever the kernel makes of the flags, and of prefixes in each other.
#[test]
fn a_prefix_has_one_tunnel() {
    if !can_run() {
        return;
    }
    let node = Node::tunnelled();
    let tunnel = |prefix: &str, last| Tunnel {
        prefix: prefix.parse().expect("a sound prefix"),
        device: node.index("tun"),
        remote: Ipv4Addr::new(192, 0, 2, last).into(),
    };
    let (one, other) = (tunnel("10.245.0.0/16", 77), tunnel("10.245.0.0/16", 78));
    let within = tunnel("10.245.7.0/24", 77);
    add_tunnel(&node.folder, &one).unwrap();
    assert!(add_tunnel(&node.folder, &other).unwrap_err().to_string().contains("exists"));
    let has = |tunnel: &Tunnel| has_tunnel(&node.folder, tunnel).unwrap();
    assert_eq!([&one, &other, &within].map(has), [true, false, false]);
    add_tunnel(&node.folder, &within).unwrap();
    remove_tunnel(&node.folder, &one).unwrap();
    assert_eq!([&one, &within].map(has), [false, true]);
}

/// Who is no peer must not come past the tunnel. Other nodes may be neighbours, to which the node's own routes lead.
#[test]
fn a_bare_packet_is_delivered_where_its_sender_is_reached_without_a_tunnel() {
    if !can_run() {
        return;
    }
    let node = Node::tunnelled();
    let arriving = |from: IpAddr| {
        let to: IpAddr = if from.is_ipv4() { ONE.v4.into() } else { ONE.v6.into() };
        let frame = from_hop(from, to, b"x");
        let found = node.send(Program::FromWire, "wire", &frame);
        assert_eq!(found.frame, frame, "{from}");
        (found.verdict, found.counted)
    };
    node.ip(&format!("route add 10.244.8.0/24 via {THERE}"));
    node.ip(&format!("route add fd00:8::/64 via {THERE6}"));
    // Looked up first, then found in the cache.
    for _ in 0..2 {
        for behind in [IpAddr::from(far::DIRECT), far::DIRECT6.into(), far::TUNNEL_UNRESOLVED.into()] {
            assert_eq!(arriving(behind), (Verdict::Pass, vec![Counter::PassRouted]), "{behind}");
        }
        for beside in ["10.244.8.7", "fd00:8::7"] {
            assert_eq!(arriving(beside.parse().unwrap()), (Verdict::Redirect, vec![]), "{beside}");
        }
    }
}
