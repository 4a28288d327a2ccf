//! Docker's rules: the chains that every forwarded packet walks through, masquerading, and a published port.
//!
//! The chains and their order are those of the default bridge. Two rules are left out: the drop of what no port
//! publishes (the project's rules never close a host) and so the accept that a published port needs before it.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};
use linux::nft::{Chain, ChainKind, Hook, Match, Table, Verdict};

use super::{DSTNAT, FILTER, SRCNAT, base, chain, enters_by, from, jump, leaves_by, leaves_by_other_than};
use super::{not_to, rule, table_family, to};
use crate::{Family, NodeSpec, Pod, Protocol, PublishedPort, links};

/// The tables of a node, IPv4 first.
pub(crate) fn node_tables(node: &NodeSpec) -> [Table; 2] {
    Family::BOTH.map(|family| {
        let mut chains = filter_chains();
        let leaving = [from(node.pods.of(family)), leaves_by_other_than(&links::bridge())];
        let rules = vec![rule(leaving, Verdict::Masquerade { random: false })];
        chains.push(base("postrouting", ChainKind::Nat, Hook::Postrouting, SRCNAT, rules));
        Table { family: table_family(family), name: "hg-docker".to_owned(), chains }
    })
}

/// The tables of one published port, IPv4 first. Docker has these rules in the node's tables; here a pod's rules come
/// and go with the pod. Only the first packet of a connection passes them, so their place costs nothing.
pub(crate) fn published_tables(pod: &Pod, published: PublishedPort) -> [Table; 2] {
    Family::BOTH.map(|family| Table {
        family: table_family(family),
        name: format!("hg-docker-p{}", pod.id),
        chains: published_chains(pod, published, family),
    })
}

fn filter_chains() -> Vec<Chain> {
    let bridge = links::bridge();
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

fn published_chains(pod: &Pod, published: PublishedPort, family: Family) -> Vec<Chain> {
    let address = pod.addresses.of(family);
    let dnat = Verdict::Dnat { to: address, port: published.pod };
    let arrives_at = match published.protocol {
        Protocol::Tcp => Match::TcpDport,
        Protocol::Udp => Match::UdpDport,
    };
    // A pod that calls its own port would otherwise see a packet from itself and answer past the node.
    let own = [from(address.into()), to(address.into()), arrives_at(published.pod)];
    let local = vec![rule([not_to(loopback(family)), Match::DaddrIsLocal], jump("docker"))];
    vec![
        chain("docker", vec![rule([arrives_at(published.node)], dnat)]),
        base(
            "prerouting",
            ChainKind::Nat,
            Hook::Prerouting,
            DSTNAT,
            vec![rule([Match::DaddrIsLocal], jump("docker"))],
        ),
        base("output", ChainKind::Nat, Hook::Output, DSTNAT, local),
        base(
            "postrouting",
            ChainKind::Nat,
            Hook::Postrouting,
            SRCNAT,
            vec![rule(own, Verdict::Masquerade { random: false })],
        ),
    ]
}

fn loopback(family: Family) -> IpNet {
    match family {
        Family::V4 => Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8).into(),
        Family::V6 => std::net::IpAddr::V6(Ipv6Addr::LOCALHOST).into(),
    }
}
