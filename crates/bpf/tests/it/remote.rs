//! Packets to pods of nodes on the same wire. They follow the kernel's routes, which a program keeps for a
//! second.

use std::net::IpAddr;
use std::time::Duration;

use bpf::forward::{Counter, Program, add_uplink, has_uplink, remove_uplink};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use linux::Mac;

use crate::frame::{self, ETHERNET, ethernet};
use crate::node::{HOP_MAC, MTU, Node, ONE, THERE, WIRE_MAC, can_run, far, to_hop};
use crate::run::{Context, Verdict};

/// Longer than a program keeps a route.
const STALE: Duration = Duration::from_millis(1100);

#[track_caller]
fn check(node: &Node, frame: &[u8], expected: &[u8]) {
    let found = node.send(Program::FromPod, ONE.link, frame);
    assert_eq!((found.verdict, found.counted), (Verdict::Redirect, vec![]));
    assert_eq!(found.frame, expected);
}

/// Checks that the program writes the header of the next frame. If a stall outlasted the route, the frame
/// after it counts.
#[track_caller]
fn check_kept(node: &Node, frame: &[u8], expected: &[u8]) {
    let sent = (0..10).map(|_| node.send(Program::FromPod, ONE.link, frame).frame);
    assert_eq!(sent.into_iter().find(|sent| sent != frame).as_deref(), Some(expected));
}

/// The frame as the next hop receives it.
fn for_hop(frame: &[u8]) -> Vec<u8> {
    let kind = u16::from_be_bytes([frame[12], frame[13]]);
    [&to_hop(kind), &frame[ETHERNET..]].concat()
}

#[test]
fn the_first_goes_by_the_neighbour_table_and_the_next_by_its_own_header() {
    if !can_run() {
        return;
    }
    for program in [Program::FromPod, Program::FromNetkit] {
        let node = Node::direct();
        for to in [IpAddr::from(far::DIRECT), far::DIRECT6.into()] {
            let frame = ONE.to(to, b"some bytes");
            let first = node.send(program, ONE.link, &frame);
            assert_eq!((first.verdict, first.counted), (Verdict::Redirect, vec![]), "{to}");
            assert_eq!(first.frame, frame, "{to}: the kernel writes the header of the first");
            for _ in 0..2 {
                let next = node.send(program, ONE.link, &frame);
                assert_eq!((next.verdict, next.counted), (Verdict::Redirect, vec![]), "{to}");
                assert_eq!(next.frame, for_hop(&frame), "{to}");
            }
        }
    }
}

#[test]
fn what_is_odd_goes_all_the_same() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    let odd4 = crate::pods::odd4(ONE.v4, far::DIRECT).into_iter().map(|(_, packet)| (frame::IPV4, packet));
    let odd6 = crate::pods::odd6(ONE.v6, far::DIRECT6).into_iter().map(|(_, packet)| (frame::IPV6, packet));
    node.send(Program::FromPod, ONE.link, &ONE.to(far::DIRECT, b"x"));
    node.send(Program::FromPod, ONE.link, &ONE.to(far::DIRECT6, b"x"));
    for (kind, packet) in odd4.chain(odd6) {
        let frame = ONE.frame(kind, &packet);
        check(&node, &frame, &for_hop(&frame));
    }
}

#[test]
fn a_long_packet_of_short_segments_fits() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    let program = node.program(Program::FromPod);
    let headers = [(IpAddr::from(far::DIRECT), 28), (far::DIRECT6.into(), 48)];
    for (to, headers) in headers {
        let longest = MTU as usize - headers;
        for (payload, gso_bytes, fits) in
            [(longest, 0, true), (longest + 1, 0, false), (longest + 1, 700, true), (3000, 1400, true)]
                .into_iter()
                .chain([(3000, longest as u32, true), (3000, longest as u32 + 1, false), (3000, 2900, false)])
        {
            let context = Context { ifindex: node.index(ONE.link), gso_bytes };
            let found = node.send_with(&program, context, &ONE.to(to, &vec![0; payload])).unwrap();
            let expected = match fits {
                true => (Verdict::Redirect, vec![]),
                false => (Verdict::Pass, vec![Counter::PassTooBig]),
            };
            assert_eq!((found.verdict, found.counted), expected, "{to}: {payload} bytes in {gso_bytes}");
        }
    }
}

/// The segments of a tunnel that a pod makes are longer than they seem. Only where the pod's own link takes them is it
/// known that the way does.
#[test]
fn what_a_pods_own_tunnel_sends_fits_no_narrower_way_unseen() {
    if !can_run() {
        return;
    }
    for (wire, expected) in
        [(MTU, (Verdict::Redirect, vec![])), (MTU - 50, (Verdict::Pass, vec![Counter::PassTooBig]))]
    {
        let node = Node::direct();
        node.ip(&format!("link set wire mtu {wire}"));
        // The greatest inner segment of TCP over IPv4 in VXLAN, for an outer packet of the pods' MTU.
        let gso_bytes = MTU - 50 - 40;
        let context = Context { ifindex: node.index(ONE.link), gso_bytes };
        for program in [Program::FromPod, Program::FromNetkit] {
            let frame = ONE.to(far::DIRECT, &[0; 3000]);
            let found = node.send_with(&node.program(program), context, &frame).unwrap();
            assert_eq!((&found.verdict, &found.counted), (&expected.0, &expected.1), "a wire of {wire}");
        }
    }
}

/// A TCP packet that a link splits into segments, with a TCP header of 32 bytes as is common.
#[test]
fn segments_of_tcp_fit_too() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    let mut tcp = vec![7; 3000];
    tcp[12] = 8 << 4;
    for (kind, mut packet, headers) in [
        (frame::IPV4, frame::Ipv4::new(ONE.v4, far::DIRECT).packet(&tcp), 52),
        (frame::IPV6, frame::ipv6(ONE.v6, far::DIRECT6, frame::TCP, &tcp), 72),
    ] {
        if kind == frame::IPV4 {
            packet[9] = frame::TCP;
            packet[10..12].fill(0);
            let sum = frame::checksum(&packet[..frame::IP_HEADER]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        for (gso_bytes, fits) in [(MTU - headers, true), (MTU - headers + 1, false)] {
            let context = Context { ifindex: node.index(ONE.link), gso_bytes };
            for program in [Program::FromPod, Program::FromNetkit] {
                let found =
                    node.send_with(&node.program(program), context, &ONE.frame(kind, &packet)).unwrap();
                let expected = match fits {
                    true => (Verdict::Redirect, vec![]),
                    false => (Verdict::Pass, vec![Counter::PassTooBig]),
                };
                assert_eq!((found.verdict, found.counted), expected, "{kind:x}: {gso_bytes}");
            }
        }
    }
}

/// The MTU of a destination is that of its route, or that of the wire if that is lower than the pods' MTU.
#[test]
fn a_lower_mtu_of_the_wire_or_a_route_is_found_out() {
    if !can_run() {
        return;
    }
    for (change, mtu) in
        [("link set wire mtu 1400", 1400), ("route change 10.244.2.0/24 via 192.0.2.2 mtu lock 1300", 1300)]
    {
        let node = Node::direct();
        node.ip(change);
        let sent = |payload: u32| {
            let found =
                node.send(Program::FromPod, ONE.link, &ONE.to(far::DIRECT, &vec![0; payload as usize]));
            (found.verdict, found.counted)
        };
        // The first packet looks the route up. The others find it in the cache.
        for _ in 0..2 {
            assert_eq!(sent(mtu - 27), (Verdict::Pass, vec![Counter::PassTooBig]), "{change}");
            assert_eq!(sent(mtu - 28), (Verdict::Redirect, vec![]), "{change}");
        }
    }
    // The headers of a tunnel must fit as well.
    let node = Node::tunnelled();
    node.ip("link set wire mtu 1400");
    for (to, added) in [(far::DIRECT, 50), (far::OVER_IPV6, 70)] {
        for (payload, fits) in [(1400 - added - 27, false), (1400 - added - 28, true)] {
            let found = node.send(Program::FromPod, ONE.link, &ONE.to(to, &vec![0; payload]));
            assert_eq!(found.verdict == Verdict::Redirect, fits, "{to}: {payload}, {:?}", found.counted);
        }
    }
}

#[test]
fn a_route_that_changes_is_followed_within_a_second() {
    if !can_run() {
        return;
    }
    let node = Node::direct_in_earnest();
    let frame = ONE.to(far::DIRECT, b"x");
    let frame6 = ONE.to(far::DIRECT6, b"x");
    // Looked up first, then found in the cache.
    for frame in [&frame, &frame6] {
        check(&node, frame, frame);
        check_kept(&node, frame, &for_hop(frame));
    }
    let other = Mac([2, 0, 0, 0, 1, 3]);
    node.ip(&format!("neighbour replace {THERE} lladdr {other} dev wire"));
    node.ip("route del fd00:2::/64");
    std::thread::sleep(STALE);
    check(&node, &frame, &frame);
    check_kept(&node, &frame, &ethernet(other, WIRE_MAC, frame::IPV4, &frame[ETHERNET..]));
    let left = node.send(Program::FromPod, ONE.link, &frame6);
    assert_eq!((left.verdict, left.counted), (Verdict::Pass, vec![Counter::PassRouted]));
    assert_eq!(left.frame, frame6);
}

/// Each CPU has its own copy of a route. If another CPU has looked the route up since, an expired copy is
/// renewed from its result.
#[test]
fn an_expired_copy_does_not_hide_a_fresh_route() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    for (to, map, way_bytes) in
        [(IpAddr::from(far::DIRECT), "recent4", 8), (far::DIRECT6.into(), "recent6", 32)]
    {
        let frame = ONE.to(to, b"x");
        check(&node, &frame, &frame);
        assert!(expire(&node, map, way_bytes) > 0, "{to}: the CPU that looked it up keeps a copy");
        check(&node, &frame, &for_hop(&frame));
        assert_eq!(expire(&node, map, way_bytes), 1, "{to}: the copy is fresh again");
    }
}

/// Makes every CPU's copy of a route expire. Returns how many copies were fresh.
fn expire(node: &Node, map: &str, way_bytes: usize) -> usize {
    let map = MapHandle::from_pinned_path(node.folder.join(map)).expect("it was pinned");
    let mut fresh = 0;
    for key in map.keys() {
        let cpus = map.lookup_percpu(&key, MapFlags::ANY).expect("the map is readable");
        let mut cpus = cpus.expect("an array has every place");
        for copy in &mut cpus {
            let expires = &mut copy[way_bytes..][..8];
            fresh += usize::from(expires != [0; 8]);
            expires.fill(0);
        }
        map.update_percpu(&key, &cpus, MapFlags::ANY).expect("the map is writable");
    }
    fresh
}

#[test]
fn a_neighbour_is_found_as_soon_as_the_kernel_knows_it() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    for (to, hop) in [(IpAddr::from(far::UNRESOLVED), "192.0.2.9"), (far::UNRESOLVED6.into(), "2001:db8::9")]
    {
        let frame = ONE.to(to, b"x");
        for _ in 0..2 {
            let found = node.send(Program::FromPod, ONE.link, &frame);
            assert_eq!(
                (found.verdict, found.counted),
                (Verdict::Pass, vec![Counter::PassUnresolved]),
                "{to}"
            );
        }
        // The failed lookup was not kept, so this works at once.
        node.ip(&format!("neighbour add {hop} lladdr {HOP_MAC} dev wire"));
        check(&node, &frame, &frame);
        check(&node, &frame, &for_hop(&frame));
    }
}

/// Routes to other nodes' pods by a link that is not the wire, as a tunnel's device is.
#[test]
fn by_another_link_only_where_it_is_an_uplink() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    let link = node.index("tun");
    let beside: [IpAddr; 4] =
        ["10.244.7.1", "fd00:7::1", "10.244.7.2", "fd00:7::2"].map(|to| to.parse().unwrap());
    for to in beside {
        node.ip(&format!("route add {to} dev tun"));
        node.ip(&format!("neighbour add {to} lladdr {HOP_MAC} dev tun"));
    }
    let routed = |to: IpAddr| {
        let found = node.send(Program::FromPod, ONE.link, &ONE.to(to, b"x"));
        assert_eq!((found.verdict, found.counted), (Verdict::Pass, vec![Counter::PassRouted]), "{to}");
    };
    let [v4, v6, other4, other6] = beside;
    routed(v4);
    routed(v6);
    add_uplink(&node.folder, link).unwrap();
    assert!(has_uplink(&node.folder, link).unwrap());
    assert!(add_uplink(&node.folder, link).unwrap_err().to_string().contains("exists"));
    // What is known of the first two is good for as long as these nodes keep routes.
    let own = ethernet(HOP_MAC, "02:00:00:00:03:01".parse().unwrap(), 0, &[]);
    for to in [other4, other6] {
        let frame = ONE.to(to, b"x");
        check(&node, &frame, &frame);
        check(&node, &frame, &[&own[..12], &frame[12..]].concat());
    }
    remove_uplink(&node.folder, link).unwrap();
    assert!(!has_uplink(&node.folder, link).unwrap());
    assert!(remove_uplink(&node.folder, link).is_err());
    for to in ["10.244.7.3", "fd00:7::3"] {
        node.ip(&format!("route add {to} dev tun"));
        node.ip(&format!("neighbour add {to} lladdr {HOP_MAC} dev tun"));
        routed(to.parse().unwrap());
    }
}

/// Nothing is lost when a link is deleted after it is no uplink any more: the routes by it are forgotten by then.
#[test]
fn who_takes_an_uplink_away_waits_until_its_routes_are_forgotten() {
    if !can_run() {
        return;
    }
    let node = Node::direct_in_earnest();
    let link = node.index("tun");
    node.ip("route add 10.244.7.1 dev tun");
    node.ip(&format!("neighbour add 10.244.7.1 lladdr {HOP_MAC} dev tun"));
    add_uplink(&node.folder, link).unwrap();
    let frame = ONE.to("10.244.7.1".parse::<IpAddr>().unwrap(), b"x");
    check(&node, &frame, &frame);
    node.ip(&format!("route replace 10.244.7.1 via {THERE}"));
    remove_uplink(&node.folder, link).unwrap();
    check(&node, &frame, &frame);
    check_kept(&node, &frame, &for_hop(&frame));
}
