//! Published ports: one table a family for a whole node, whose networks share it.
//!
//! A port is the node's, whichever network its pod is in. With a table for each network two could publish the same port,
//! and the one whose table comes first would get all packets; here the second is an element that is there already.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};
use linux::nft::{ChainKind, Datum, Element, Hook, Map, Match, PacketField, Statement, Table};

use super::{DSTNAT, SRCNAT, base, chain, jump, not_to, rule, table_family};
use crate::{Family, Pod, Protocol, PublishedPort, links};

/// What leads from a port of the node to a pod's.
const PORTS: &str = "ports";
/// What a pod sends to itself by way of a port of the node.
const OWN: &str = "own";
/// Asked by what a packet says of its destination, and by that with both addresses.
const BY_PORT: [PacketField; 2] = [PacketField::Protocol, PacketField::Dport];
const BY_ENDS: [PacketField; 4] =
    [PacketField::Saddr, PacketField::Daddr, PacketField::Protocol, PacketField::Dport];

/// The tables, IPv4 first: the same for each network of a node. Published ports are elements of their maps.
pub(crate) fn tables(families: &[Family]) -> Vec<Table> {
    families.iter().map(|family| table(*family)).collect()
}

/// The elements of one published port, IPv4 first.
pub(crate) fn published(pod: &Pod, port: PublishedPort) -> Vec<Element> {
    let protocol = match port.protocol {
        Protocol::Tcp => Datum::Tcp,
        Protocol::Udp => Datum::Udp,
    };
    let (node_port, pod_port) = (Datum::Port(port.node), Datum::Port(port.pod));
    let of = |address| {
        let (family, address) = (table_family(Family::of(address)), Datum::Address(address));
        let element = |map: &str, key, value| Element {
            family,
            table: links::PORTS_TABLE.to_owned(),
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

fn table(family: Family) -> Table {
    let to_local = |conditions: Vec<Match>| {
        let conditions = [conditions, vec![Match::DaddrIsLocal]].concat();
        vec![rule(conditions, jump("published"))]
    };
    let translate = Statement::DnatBy { parts: BY_PORT.to_vec(), map: PORTS.to_owned() };
    // A pod that calls its own port would otherwise see a packet from itself and answer past the node.
    let own = Match::In { parts: BY_ENDS.to_vec(), set: OWN.to_owned() };
    let masquerade = vec![rule([own], Statement::Masquerade { random: false })];
    let chains = vec![
        chain("published", vec![rule([], translate)]),
        base("prerouting", ChainKind::Nat, Hook::Prerouting, DSTNAT, to_local(vec![])),
        base("output", ChainKind::Nat, Hook::Output, DSTNAT, to_local(vec![not_to(loopback(family))])),
        base("postrouting", ChainKind::Nat, Hook::Postrouting, SRCNAT, masquerade),
    ];
    let ports = Map {
        name: PORTS.to_owned(),
        key: BY_PORT.to_vec(),
        value: vec![PacketField::Daddr, PacketField::Dport],
    };
    let own = Map { name: OWN.to_owned(), key: BY_ENDS.to_vec(), value: Vec::new() };
    Table {
        family: table_family(family),
        name: links::PORTS_TABLE.to_owned(),
        maps: vec![ports, own],
        chains,
    }
}

fn loopback(family: Family) -> IpNet {
    match family {
        Family::V4 => Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8).into(),
        Family::V6 => IpAddr::V6(Ipv6Addr::LOCALHOST).into(),
    }
}
