//! Masquerading at the cluster's border, and nothing else: packets within the cluster meet no rule.

use linux::nft::{ChainKind, Hook, Table, Verdict};

use super::{SRCNAT, base, from, not_to, rule, table_family};
use crate::{Family, NodeSpec};

/// The tables of a node, IPv4 first: what its pods send out of the cluster has the node's address.
pub(crate) fn tables(node: &NodeSpec) -> [Table; 2] {
    Family::BOTH.map(|family| {
        let leaving = [from(node.pods.of(family)), not_to(node.cluster.of(family))];
        let masquerade = rule(leaving, Verdict::Masquerade { random: true });
        Table {
            family: table_family(family),
            name: "hg-border".to_owned(),
            chains: vec![base("postrtg", ChainKind::Nat, Hook::Postrouting, SRCNAT, vec![masquerade])],
        }
    })
}
