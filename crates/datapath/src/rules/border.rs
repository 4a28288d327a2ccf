//! Masquerading at the cluster's border, and nothing else: packets within the cluster meet no rule.

use linux::nft::{ChainKind, Hook, Match, Statement, Table};

use super::{SRCNAT, base, from, not_to, rule, table_family};
use crate::{Family, NodeSpec, links};

/// The tables of a node, IPv4 first: what its pods send out of the network has the node's address. None where the
/// network does not masquerade.
pub(crate) fn tables(node: &NodeSpec) -> Vec<Table> {
    let families = if node.network.masquerade { node.families() } else { &[] };
    families.iter().map(|family| table(node, *family)).collect()
}

fn table(node: &NodeSpec, family: Family) -> Table {
    let outside: Vec<Match> = node.network.prefixes.of(family).map(not_to).collect();
    let masquerade = |pods| {
        let leaving = [vec![from(pods)], outside.clone()].concat();
        rule(leaving, Statement::Masquerade { random: true })
    };
    let rules = node.pods.of(family).map(masquerade).collect();
    Table {
        family: table_family(family),
        name: links::table("border", &node.network),
        maps: Vec::new(),
        chains: vec![base("postrtg", ChainKind::Nat, Hook::Postrouting, SRCNAT, rules)],
    }
}
