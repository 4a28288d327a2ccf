//! flannel's rules: pods' traffic may be forwarded, and what crosses the cluster's border is masqueraded.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use linux::nft::{Chain, ChainKind, Hook, Table, Verdict};

use super::{FILTER, SRCNAT, base, from, not_from, not_to, rule, table_family, to};
use crate::{Family, NodeSpec};

/// The tables of a node, IPv4 first. They follow flannel's iptables mode. Its third condition differs from that of
/// flannel's nftables mode, which also leaves a host's own packets to other nodes' pods their source.
pub(crate) fn tables(node: &NodeSpec) -> [Table; 2] {
    Family::BOTH.map(|family| Table {
        family: table_family(family),
        name: "hg-flannel".to_owned(),
        chains: vec![forward(node.cluster.of(family)), masquerade(node, family)],
    })
}

/// Where another table drops what is forwarded these rules do not help (in nftables a drop is final); they are here
/// because they cost every packet what they cost it under flannel.
fn forward(cluster: IpNet) -> Chain {
    let rules = vec![rule([from(cluster)], Verdict::Accept), rule([to(cluster)], Verdict::Accept)];
    base("forward", ChainKind::Filter, Hook::Forward, FILTER, rules)
}

fn masquerade(node: &NodeSpec, family: Family) -> Chain {
    let (pods, cluster) = (node.pods.of(family), node.cluster.of(family));
    let masquerade = Verdict::Masquerade { random: true };
    let rules = vec![
        rule([from(pods), to(cluster)], Verdict::Return),
        rule([from(cluster), to(pods)], Verdict::Return),
        rule([not_from(cluster), to(pods)], Verdict::Return),
        rule([from(cluster), not_to(multicast(family))], masquerade.clone()),
        rule([not_from(cluster), to(cluster)], masquerade),
    ];
    base("postrtg", ChainKind::Nat, Hook::Postrouting, SRCNAT, rules)
}

fn multicast(family: Family) -> IpNet {
    match family {
        Family::V4 => Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 4).into(),
        Family::V6 => Ipv6Net::new_assert(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8).into(),
    }
}
