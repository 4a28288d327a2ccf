//! The plans that are measured, and those of links and rules.

use std::net::Ipv4Addr;

use linux::features::Feature;
use linux::nft::{self, Datum, Element, Map, PacketField, Table};
use linux::{IfName, Link, LinkKind, Mac};
use plan::{Plan, SetLinkMtu, Step};

use super::forwarding::{endpoints, guarded, guards, programs, services, services_of, tunnels};
use super::peers::{
    Family, encapsulated, external, ipsec_peers, node, nothing, peers_of, shared, wireguard, wireguard_peers,
};
use super::{Case, Failure, Scale};

const PEERS: &[u32] = &[100, 1_000, 10_000];
/// For objects that take the kernel a millisecond, or that start a program.
const FEWER: &[u32] = &[30, 100, 300];

/// The same for most.
const USUAL: Case = Case { name: "", needs: &[], sizes: PEERS, ground: node, plan: nothing, is_single: true };

pub(super) const CASES: &[Case] = &[
    Case { name: "peers, IPv4", plan: |scale| peers_of(scale, Family::Ipv4), ..USUAL },
    Case { name: "peers, IPv6", plan: |scale| peers_of(scale, Family::Ipv6), ..USUAL },
    // Apply grows with the size, as `ip -batch` does: the kernel compares a new IPv4 route with all that have the same
    // link (`fib_find_info` in net/ipv4/fib_semantics.c).
    Case {
        name: "encapsulation",
        needs: &[Feature::VxlanExternal],
        ground: external,
        plan: encapsulated,
        ..USUAL
    },
    Case {
        name: "WireGuard peers",
        needs: &[Feature::WireGuard],
        ground: wireguard,
        plan: wireguard_peers,
        is_single: false,
        ..USUAL
    },
    Case { name: "IPsec peers", needs: &[Feature::IpSec], ground: nothing, plan: ipsec_peers, ..USUAL },
    Case { name: "bpf tunnels", needs: &[Feature::BpfTc], ground: programs, plan: tunnels, ..USUAL },
    Case { name: "Services", needs: &[Feature::BpfServices], ground: services, plan: services_of, ..USUAL },
    Case { name: "links", sizes: FEWER, plan: links, ..USUAL },
    Case { name: "MTUs", sizes: FEWER, ground: links, plan: mtus, ..USUAL },
    Case {
        name: "bpf endpoints",
        needs: &[Feature::BpfTc],
        sizes: FEWER,
        ground: programs,
        plan: endpoints,
        ..USUAL
    },
    Case { name: "guarded", needs: &[Feature::BpfTc], sizes: FEWER, ground: guards, plan: guarded, ..USUAL },
    // Apply and undo grow with the size: the claims of a namespace are one file, which is written for each step. A node
    // has a dozen of them, as they are for what the whole machine shares.
    Case { name: "shared routes", sizes: FEWER, plan: shared, ..USUAL },
    Case { name: "nft elements", sizes: FEWER, ground: map, plan: elements, ..USUAL },
];

pub(super) fn link(number: u32) -> Result<IfName, Failure> {
    Ok(IfName::new(format!("link{number}"))?)
}

pub(super) fn links(scale: &Scale<'_>) -> Result<Plan, Failure> {
    let mut plan = Plan::new();
    for number in 0..scale.size {
        let (name, mac) = (link(number)?, Some(Mac::from_id(8, number)));
        plan.push(scale.place, Step::AddLink(Link { name, kind: LinkKind::Bridge, mtu: None, mac }));
    }
    Ok(plan)
}

pub(super) fn mtus(scale: &Scale<'_>) -> Result<Plan, Failure> {
    let mut plan = Plan::new();
    for number in 0..scale.size {
        plan.push(scale.place, SetLinkMtu { link: link(number)?, mtu: 1400 });
    }
    Ok(plan)
}

const TABLE: &str = "bench";
const MAP: &str = "ports";

/// A table with the map of published ports, as on a node of `docker`.
fn map(scale: &Scale<'_>) -> Result<Plan, Failure> {
    let map = Map {
        name: MAP.to_owned(),
        key: vec![PacketField::Protocol, PacketField::Dport],
        value: vec![PacketField::Daddr, PacketField::Dport],
    };
    let table =
        Table { family: nft::Family::Ip, name: TABLE.to_owned(), maps: vec![map], chains: Vec::new() };
    let mut plan = Plan::new();
    plan.push(scale.place, Step::AddNftTable(table));
    Ok(plan)
}

fn elements(scale: &Scale<'_>) -> Result<Plan, Failure> {
    let mut plan = Plan::new();
    for number in 0..scale.size {
        let element = Element {
            family: nft::Family::Ip,
            table: TABLE.to_owned(),
            map: MAP.to_owned(),
            key: vec![Datum::Tcp, Datum::Port(u16::try_from(number + 1)?)],
            value: vec![Datum::Address(Ipv4Addr::new(10, 0, 0, 2).into()), Datum::Port(80)],
        };
        plan.push(scale.place, Step::AddNftElement(element));
    }
    Ok(plan)
}
