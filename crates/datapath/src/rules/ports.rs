//! Published ports: one table a family for a whole node, whose networks share it.
//!
//! A port is the node's, whichever network its pod is in. With a table for each network two could publish
//! the same port, and the one whose table comes first would get all packets; here the second is an element
//! that is there already.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};
use linux::IfName;
use linux::nft::{ChainKind, Datum, Element, Hook, Map, Match, PacketField, Statement, Table};

use super::{
    DSTNAT, RAW, SRCNAT, base, chain, enters_by, enters_by_other_than, from, jump, leaves_by, not_to, rule,
    table_family, to,
};
use crate::{Family, NodeSpec, Pod, Protocol, PublishedPort, links};

/// What leads from a port on any address of the node to a pod's.
const PORTS: &str = "ports";
/// What leads from a port on one address of the node to a pod's. It comes first, as a bound socket does.
const PORTS_AT: &str = "ports-at";
/// What a pod sends to itself by way of a port of the node.
const OWN: &str = "own";
/// The addresses that mean the node itself, on the node.
const LOOPBACK: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8);
/// What a map leads to.
const TARGET: [PacketField; 2] = [PacketField::Daddr, PacketField::Dport];
/// Asked by what a packet says of its destination, without and with the address, and by that with both addresses.
const BY_PORT: [PacketField; 2] = [PacketField::Protocol, PacketField::Dport];
const BY_PLACE: [PacketField; 3] = [PacketField::Daddr, PacketField::Protocol, PacketField::Dport];
const BY_ENDS: [PacketField; 4] =
    [PacketField::Saddr, PacketField::Daddr, PacketField::Protocol, PacketField::Dport];

/// The tables, IPv4 first: the same for each network of a node. Published ports are elements of their maps.
pub(crate) fn tables(families: &[Family]) -> Vec<Table> {
    families.iter().map(|family| table(*family)).collect()
}

/// The elements of a pod's published ports, for each port IPv4 first.
pub(crate) fn elements(pod: &Pod) -> Vec<Element> {
    // Two ports of the node may lead to one of the pod, which calls itself by either.
    each_once(pod.published.iter().flat_map(|port| published(pod, *port)))
}

fn each_once(all: impl IntoIterator<Item = Element>) -> Vec<Element> {
    let mut once = Vec::new();
    for element in all {
        if !once.contains(&element) {
            once.push(element);
        }
    }
    once
}

fn published(pod: &Pod, port: PublishedPort) -> Vec<Element> {
    let protocol = protocol(port.protocol);
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
        let target = vec![address, pod_port];
        let entry = match port.address.filter(|at| !at.is_unspecified()) {
            None => element(PORTS, vec![protocol, node_port], target),
            Some(at) => element(PORTS_AT, vec![Datum::Address(at), protocol, node_port], target),
        };
        [entry, element(OWN, vec![address, address, protocol, pod_port], Vec::new())]
    };
    let is_meant = |address: &IpAddr| port.address.is_none_or(|at| Family::of(at) == Family::of(*address));
    pod.addresses.iter().filter(is_meant).flat_map(of).collect()
}

fn table(family: Family) -> Table {
    let to_local = |conditions: Vec<Match>| {
        let conditions = [conditions, vec![Match::DaddrIsLocal]].concat();
        vec![rule(conditions, jump("published"))]
    };
    let translate =
        |parts: &[PacketField], map: &str| Statement::DnatBy { parts: parts.to_vec(), map: map.to_owned() };
    let translations = [translate(&BY_PLACE, PORTS_AT), translate(&BY_PORT, PORTS)];
    // A pod that calls its own port would otherwise see a packet from itself and answer past the node.
    let own = Match::In { parts: BY_ENDS.to_vec(), set: OWN.to_owned() };
    let masquerade = vec![rule([own], Statement::Masquerade { random: false })];
    let chains = vec![
        chain("published", translations.map(|translate| rule([], translate)).into()),
        base("prerouting", ChainKind::Nat, Hook::Prerouting, DSTNAT, to_local(vec![])),
        base("output", ChainKind::Nat, Hook::Output, DSTNAT, to_local(vec![not_to(own_addresses(family))])),
        base("postrouting", ChainKind::Nat, Hook::Postrouting, SRCNAT, masquerade),
    ];
    Table {
        family: table_family(family),
        name: links::PORTS_TABLE.to_owned(),
        maps: vec![map(PORTS, &BY_PORT, &TARGET), map(PORTS_AT, &BY_PLACE, &TARGET), map(OWN, &BY_ENDS, &[])],
        chains,
    }
}

/// Whether a port is on the node's 127.0.0.1 too, and where: on the address that it names, or on that one if it names
/// none. Never on `::1`: no packet leaves a node from there.
fn on_loopback(port: PublishedPort) -> Option<IpAddr> {
    match port.address.filter(|at| *at != IpAddr::V4(Ipv4Addr::UNSPECIFIED)) {
        None => Some(Ipv4Addr::LOCALHOST.into()),
        Some(at) => Some(at).filter(|at| at.is_ipv4() && at.is_loopback()),
    }
}

/// The elements of a pod's ports on the node's 127.0.0.1.
pub(crate) fn loopback_elements(pod: &Pod) -> Vec<Element> {
    let Some(address) = pod.addresses.of(Family::V4) else { return Vec::new() };
    let element = |port: &PublishedPort| {
        on_loopback(*port).map(|at| Element {
            family: table_family(Family::V4),
            table: links::LOOPBACK_TABLE.to_owned(),
            map: PORTS_AT.to_owned(),
            key: vec![Datum::Address(at), protocol(port.protocol), Datum::Port(port.node)],
            value: vec![Datum::Address(address), Datum::Port(port.pod)],
        })
    };
    // A port that is published everywhere may be published there once more.
    each_once(pod.published.iter().filter_map(element))
}

/// The table for the node's own calls of its 127.0.0.1. With `route_localnet` at the link toward the pod the kernel
/// routes packets from there, and they get an address of the node to which the pod can answer. That setting also admits
/// what others send to and from 127.0.0.0/8, which only the node itself may.
pub(crate) fn loopback() -> Table {
    let own = LOOPBACK.into();
    let lo = IfName::new("lo").expect("a constant that is a name");
    let foreign = [to(own), from(own)].map(|end| rule([enters_by_other_than(&lo), end], Statement::Drop));
    let translate = Statement::DnatBy { parts: BY_PLACE.to_vec(), map: PORTS_AT.to_owned() };
    let translated = rule([from(own), Match::DestinationTranslated], Statement::Masquerade { random: false });
    Table {
        family: table_family(Family::V4),
        name: links::LOOPBACK_TABLE.to_owned(),
        maps: vec![map(PORTS_AT, &BY_PLACE, &TARGET)],
        chains: vec![
            base("prerouting", ChainKind::Filter, Hook::Prerouting, RAW, foreign.into()),
            base("output", ChainKind::Nat, Hook::Output, DSTNAT, vec![rule([to(own)], translate)]),
            base("postrouting", ChainKind::Nat, Hook::Postrouting, SRCNAT, vec![translated]),
        ],
    }
}

/// The tables for pods of one bridge that call each other by ports of the node, IPv4 first. The called pod would answer
/// through the bridge alone, past the translation; with the node's address as source it answers the node.
pub(crate) fn neighbours(node: &NodeSpec, families: &[Family]) -> Vec<Table> {
    let bridge = links::bridge(&node.network);
    let between = [enters_by(&bridge), leaves_by(&bridge), Match::DestinationTranslated];
    let masquerade = rule(between, Statement::Masquerade { random: false });
    let table = |family: &Family| Table {
        family: table_family(*family),
        name: links::neighbours_table(&node.network),
        maps: Vec::new(),
        chains: vec![base(
            "postrouting",
            ChainKind::Nat,
            Hook::Postrouting,
            SRCNAT,
            vec![masquerade.clone()],
        )],
    };
    families.iter().map(table).collect()
}

fn own_addresses(family: Family) -> IpNet {
    match family {
        Family::V4 => LOOPBACK.into(),
        Family::V6 => IpAddr::V6(Ipv6Addr::LOCALHOST).into(),
    }
}

fn protocol(protocol: Protocol) -> Datum {
    match protocol {
        Protocol::Tcp => Datum::Tcp,
        Protocol::Udp => Datum::Udp,
    }
}

fn map(name: &str, key: &[PacketField], value: &[PacketField]) -> Map {
    Map { name: name.to_owned(), key: key.to_vec(), value: value.to_vec() }
}
