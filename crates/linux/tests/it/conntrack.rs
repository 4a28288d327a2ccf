//! Tracked connections of UDP: listed by port and family, and forgotten one by one.

use std::net::UdpSocket;

use linux::netlink::{Conntrack, TrackedUdp};
use linux::nft::{self, Base, Chain, ChainKind, Family, Hook, Match, Rule, Statement, Table};

use crate::world::TestNetns;

/// Rules that ask for a connection's state, for which the kernel begins to track; and one that translates a port.
fn tracking(family: Family) -> Table {
    let target = if family == Family::Ip { "127.0.0.1" } else { "::1" }.parse().expect("an address");
    let chain = |name: &str, kind, hook, priority, matched, then| Chain {
        name: name.to_owned(),
        base: Some(Base { kind, hook, priority }),
        rules: vec![Rule { matches: vec![matched], then }],
    };
    let asks = (nft::priority::FILTER, Match::Established, Statement::Accept);
    let leads = (nft::priority::DSTNAT, Match::UdpDport(5454), Statement::Dnat { to: target, port: 5353 });
    Table {
        family,
        name: "tracked".to_owned(),
        maps: Vec::new(),
        chains: vec![
            chain("input", ChainKind::Filter, Hook::Input, asks.0, asks.1, asks.2),
            chain("output", ChainKind::Nat, Hook::Output, leads.0, leads.1, leads.2),
        ],
    }
}

/// Ends of the connections, as texts in order.
fn ends(found: &[TrackedUdp]) -> Vec<String> {
    let mut ends: Vec<String> = found.iter().map(|one| format!("{} {}", one.to, one.answered_from)).collect();
    ends.sort();
    ends
}

#[test]
fn connections_are_listed_by_port_and_forgotten_one_by_one() {
    if !testkit::require_root() {
        return;
    }
    let place = TestNetns::new("ct");
    place.up("lo", &[]);
    for family in [Family::Ip, Family::Ip6] {
        nft::add(&place.netns, &tracking(family)).expect("the kernel tracks connections");
    }
    let conntrack = Conntrack::open_in(&place.netns).expect("root may ask");
    assert_eq!(conntrack.udp(false, None).expect("an empty list"), []);
    let send = |from: &str, to: &str| {
        let sent = place.netns.run(|| UdpSocket::bind(from)?.send_to(b"x", to)).expect("a namespace");
        assert_eq!(sent.expect("nobody has to listen"), 1);
    };
    let destinations = ["127.0.0.1:5353", "127.0.0.2:5353", "127.0.0.1:5454", "127.0.0.1:53"];
    for (number, to) in destinations.into_iter().enumerate() {
        send(&format!("127.0.0.1:{}", 6001 + number), to);
    }
    send("[::1]:6001", "[::1]:5353");
    send("[::1]:6002", "[::1]:5454");

    let udp = |ipv6, port| conntrack.udp(ipv6, port).expect("a list");
    assert_eq!(
        ends(&udp(false, Some(5353))),
        ["127.0.0.1:5353 127.0.0.1:5353", "127.0.0.2:5353 127.0.0.2:5353"]
    );
    assert_eq!(ends(&udp(false, Some(5454))), ["127.0.0.1:5454 127.0.0.1:5353"]);
    assert_eq!(udp(false, None).len(), destinations.len());
    assert_eq!(ends(&udp(true, None)), ["[::1]:5353 [::1]:5353", "[::1]:5454 [::1]:5353"]);
    assert_eq!(udp(true, Some(53)), []);

    let one = udp(false, Some(5454)).remove(0);
    assert!(conntrack.untrack(&one).expect("it is there"));
    assert!(!conntrack.untrack(&one).expect("it is gone"));
    assert_eq!(udp(false, None).len(), destinations.len() - 1);
    let other = udp(true, Some(5353)).remove(0);
    assert!(conntrack.untrack(&other).expect("it is there"));
    assert_eq!(ends(&udp(true, None)), ["[::1]:5454 [::1]:5353"]);
}

#[test]
fn own_prefixes_are_what_the_namespace_takes_for_its_own() {
    if !testkit::require_root() {
        return;
    }
    let place = TestNetns::new("own");
    place.up("lo", &["192.0.2.7/24", "2001:db8::7/64"]);
    let _ = place.judge("ip", &["route", "add", "local", "198.51.100.0/28", "dev", "lo"]);
    let _ = place.judge("ip", &["route", "add", "203.0.113.0/24", "dev", "lo"]);
    let texts = |ipv6| {
        let mut own: Vec<String> =
            place.netlink.own_prefixes(ipv6).expect("a list").iter().map(ToString::to_string).collect();
        own.sort();
        own
    };
    // Of the loopback the whole subnet is the namespace's own.
    let own = ["127.0.0.0/8", "127.0.0.1/32", "192.0.2.0/24", "192.0.2.7/32", "198.51.100.0/28"];
    assert_eq!(texts(false), own);
    assert_eq!(texts(true), ["2001:db8::7/128", "::1/128"]);
}
