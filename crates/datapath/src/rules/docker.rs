//! Docker's rules: the chains that every forwarded packet walks through, masquerading, and a published port.
//!
//! The chains and their order are those of the default bridge. Two rules are left out: the drop of what no port
//! publishes (the project's rules never close a host) and so the accept that a published port needs before it.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};
use linux::nft::{Chain, ChainKind, Datum, Element, Hook, Map, Match, Part, Rule, Table, Verdict};

use super::{DSTNAT, FILTER, SRCNAT, base, chain, enters_by, from, jump, leaves_by, leaves_by_other_than};
use super::{not_to, rule, table_family};
use crate::{Family, NodeSpec, Pod, Protocol, PublishedPort, links};

/// What leads from a port of the node to a pod's.
const PORTS: &str = "ports";
/// What a pod sends to itself by way of a port of the node.
const OWN: &str = "own";
/// Asked by what a packet says of its destination, and by that with both addresses.
const BY_PORT: [Part; 2] = [Part::Protocol, Part::Dport];
const BY_ENDS: [Part; 4] = [Part::Saddr, Part::Daddr, Part::Protocol, Part::Dport];

/// The tables of a node, IPv4 first. Published ports are elements of their maps.
pub(crate) fn node_tables(node: &NodeSpec) -> Vec<Table> {
    let table = |family: &Family| {
        let mut chains = filter_chains(node);
        chains.extend(nat_chains(node, *family));
        let ports =
            Map { name: PORTS.to_owned(), key: BY_PORT.to_vec(), value: vec![Part::Daddr, Part::Dport] };
        let own = Map { name: OWN.to_owned(), key: BY_ENDS.to_vec(), value: Vec::new() };
        Table { family: table_family(*family), name: table_name(node), maps: vec![ports, own], chains }
    };
    node.families().iter().map(table).collect()
}

/// The elements of one published port, IPv4 first.
pub(crate) fn published(node: &NodeSpec, pod: &Pod, port: PublishedPort) -> Vec<Element> {
    let protocol = match port.protocol {
        Protocol::Tcp => Datum::Tcp,
        Protocol::Udp => Datum::Udp,
    };
    let (node_port, pod_port) = (Datum::Port(port.node), Datum::Port(port.pod));
    let of = |address| {
        let (family, address) = (table_family(Family::of(address)), Datum::Address(address));
        let element = |map: &str, key, value| Element {
            family,
            table: table_name(node),
            map: map.to_owned(),
            key,
            value,
        };
        [
            element(PORTS, vec![protocol, node_port], vec![address, pod_port]),
            element(OWN, vec![address, address, protocol, pod_port], Vec::new()),
        ]
    };
    pod.addresses.iter().flat_map(of).collect()
}

fn table_name(node: &NodeSpec) -> String {
    links::table("docker", &node.network)
}

fn filter_chains(node: &NodeSpec) -> Vec<Chain> {
    let bridge = links::bridge(&node.network);
    let isolated = [enters_by(&bridge), leaves_by_other_than(&bridge)];
    let forward = vec![
        rule([], jump("docker-user")),
        rule([], jump("docker-isolation-1")),
        rule([leaves_by(&bridge), Match::Established], Verdict::Accept),
        rule([leaves_by(&bridge)], jump("docker")),
        rule(isolated.clone(), Verdict::Accept),
        rule([enters_by(&bridge), leaves_by(&bridge)], Verdict::Accept),
    ];
    vec![
        chain("docker-user", vec![rule([], Verdict::Return)]),
        // One bridge has no other to be isolated from: the drop is reached by none, but each packet walks past it.
        chain(
            "docker-isolation-2",
            vec![rule([leaves_by(&bridge)], Verdict::Drop), rule([], Verdict::Return)],
        ),
        chain(
            "docker-isolation-1",
            vec![rule(isolated, jump("docker-isolation-2")), rule([], Verdict::Return)],
        ),
        chain("docker", vec![rule([], Verdict::Return)]),
        base("forward", ChainKind::Filter, Hook::Forward, FILTER, forward),
    ]
}

fn nat_chains(node: &NodeSpec, family: Family) -> Vec<Chain> {
    let bridge = links::bridge(&node.network);
    let to_local = |conditions: Vec<Match>| {
        let conditions = [conditions, vec![Match::DaddrIsLocal]].concat();
        vec![rule(conditions, jump("published"))]
    };
    let translate = Verdict::DnatBy { parts: BY_PORT.to_vec(), map: PORTS.to_owned() };
    let leaving =
        |pods| rule([from(pods), leaves_by_other_than(&bridge)], Verdict::Masquerade { random: false });
    let mut after: Vec<Rule> = Vec::new();
    if node.network.masquerade {
        after.extend(node.pods.of(family).map(leaving));
    }
    // A pod that calls its own port would otherwise see a packet from itself and answer past the node.
    let own = Match::In { parts: BY_ENDS.to_vec(), set: OWN.to_owned() };
    after.push(rule([own], Verdict::Masquerade { random: false }));
    vec![
        chain("published", vec![rule([], translate)]),
        base("prerouting", ChainKind::Nat, Hook::Prerouting, DSTNAT, to_local(vec![])),
        base("output", ChainKind::Nat, Hook::Output, DSTNAT, to_local(vec![not_to(loopback(family))])),
        base("postrouting", ChainKind::Nat, Hook::Postrouting, SRCNAT, after),
    ]
}

fn loopback(family: Family) -> IpNet {
    match family {
        Family::V4 => Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8).into(),
        Family::V6 => std::net::IpAddr::V6(Ipv6Addr::LOCALHOST).into(),
    }
}
