//! Docker's rules: the chains that every forwarded packet walks through, and masquerading.
//!
//! The chains and their order are those of the default bridge. Two rules are left out: the drop of what no port
//! publishes (the project's rules never close a host) and so the accept that a published port needs before it.
//! Published ports themselves are in [`super::ports`].

use linux::nft::{Chain, ChainKind, Hook, Match, Statement, Table};

use super::{FILTER, SRCNAT, base, chain, enters_by, from, jump, leaves_by, leaves_by_other_than};
use super::{rule, table_family};
use crate::{Family, NodeSpec, links};

/// The tables of a network on a node, IPv4 first.
pub(crate) fn tables(node: &NodeSpec) -> Vec<Table> {
    let table = |family: &Family| {
        let mut chains = filter_chains(node);
        chains.extend(node.network.masquerade.then(|| masquerade(node, *family)));
        let (family, name) = (table_family(*family), links::table("docker", &node.network));
        Table { family, name, maps: Vec::new(), chains }
    };
    node.families().iter().map(table).collect()
}

fn filter_chains(node: &NodeSpec) -> Vec<Chain> {
    let bridge = links::bridge(&node.network);
    let isolated = [enters_by(&bridge), leaves_by_other_than(&bridge)];
    let forward = vec![
        rule([], jump("docker-user")),
        rule([], jump("docker-isolation-1")),
        rule([leaves_by(&bridge), Match::Established], Statement::Accept),
        rule([leaves_by(&bridge)], jump("docker")),
        rule(isolated.clone(), Statement::Accept),
        rule([enters_by(&bridge), leaves_by(&bridge)], Statement::Accept),
    ];
    vec![
        chain("docker-user", vec![rule([], Statement::Return)]),
        // One bridge has no other to be isolated from: the drop is reached by none, but each packet walks past it.
        chain(
            "docker-isolation-2",
            vec![rule([leaves_by(&bridge)], Statement::Drop), rule([], Statement::Return)],
        ),
        chain(
            "docker-isolation-1",
            vec![rule(isolated, jump("docker-isolation-2")), rule([], Statement::Return)],
        ),
        chain("docker", vec![rule([], Statement::Return)]),
        base("forward", ChainKind::Filter, Hook::Forward, FILTER, forward),
    ]
}

fn masquerade(node: &NodeSpec, family: Family) -> Chain {
    let bridge = links::bridge(&node.network);
    let leaving =
        |pods| rule([from(pods), leaves_by_other_than(&bridge)], Statement::Masquerade { random: false });
    let rules = node.pods.of(family).map(leaving).collect();
    base("postrouting", ChainKind::Nat, Hook::Postrouting, SRCNAT, rules)
}
