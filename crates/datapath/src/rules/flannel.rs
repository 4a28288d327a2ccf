//! flannel's rules: pods' traffic may be forwarded, and what crosses the cluster's border is masqueraded.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use linux::nft::{Chain, ChainKind, Hook, Match, Statement, Table};

use super::{FILTER, SRCNAT, base, from, not_from, not_to, rule, table_family, to};
use crate::{Family, NodeSpec, links};

/// The tables of a node, IPv4 first. They follow flannel's iptables mode. Its third condition differs from that of
/// flannel's nftables mode, which also leaves a host's own packets to other nodes' pods their source.
pub(crate) fn tables(node: &NodeSpec) -> Vec<Table> {
    let chains = |family| {
        let masquerade = node.network.masquerade.then(|| masquerade(node, family));
        [forward(node, family)].into_iter().chain(masquerade).collect()
    };
    let table = |family: &Family| Table {
        family: table_family(*family),
        name: links::table("flannel", &node.network),
        maps: Vec::new(),
        chains: chains(*family),
    };
    node.families().iter().map(table).collect()
}

/// Where another table drops what is forwarded these rules do not help (in nftables a drop is final); they are here
/// because they cost every packet what they cost it under flannel.
fn forward(node: &NodeSpec, family: Family) -> Chain {
    let accept = |cluster| [from(cluster), to(cluster)].map(|condition| rule([condition], Statement::Accept));
    let rules = node.network.prefixes.of(family).flat_map(accept).collect();
    base("forward", ChainKind::Filter, Hook::Forward, FILTER, rules)
}

fn masquerade(node: &NodeSpec, family: Family) -> Chain {
    let masquerade = || Statement::Masquerade { random: true };
    let (pods, clusters) = (|| node.pods.of(family), || node.network.prefixes.of(family));
    let outside: Vec<Match> = clusters().map(not_from).collect();
    let mut rules = Vec::new();
    for pods in pods() {
        rules.extend(clusters().map(|cluster| rule([from(pods), to(cluster)], Statement::Return)));
        rules.extend(clusters().map(|cluster| rule([from(cluster), to(pods)], Statement::Return)));
        rules.push(rule([outside.clone(), vec![to(pods)]].concat(), Statement::Return));
    }
    let everyone = not_to(multicast(family));
    rules.extend(clusters().map(|cluster| rule([from(cluster), everyone.clone()], masquerade())));
    rules.extend(clusters().map(|cluster| rule([outside.clone(), vec![to(cluster)]].concat(), masquerade())));
    base("postrtg", ChainKind::Nat, Hook::Postrouting, SRCNAT, rules)
}

fn multicast(family: Family) -> IpNet {
    match family {
        Family::V4 => Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 4).into(),
        Family::V6 => Ipv6Net::new_assert(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8).into(),
    }
}
