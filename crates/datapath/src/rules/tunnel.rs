//! The tunnel's port is for other nodes. A VXLAN device takes what any link brings, so that a pod without privileges
//! could send packets in another pod's name: it would only have to write them into datagrams to its own node.
//!
//! The programs stop such datagrams at the pod's link. This is the second line, for which only what the programs leave
//! to the device pays. Where every tunnel packet would pay, as it does without programs, the rule costs 0.7 to 1 % of a
//! request's instructions; flannel has none, and the paths that stand for flannel have none either. The nodes of an
//! agent have [`port_guard`]: there the check of senders is a promise.

use linux::nft::{ChainKind, Hook, Match, Statement, Table};

use super::{FILTER, base, enters_by_other_than, from, not_to, rule, table_family};
use crate::{Family, NodeSpec, links};

/// The table of a node whose pods write no packets of the tunnel themselves: their datagrams to the port end
/// here, whether they are for this node's device or for another node's. `None` where no pod has an address
/// of the outer family.
///
/// Tunnel packets have a node's address, and fail the rules' first condition: by which link they enter does not matter,
/// so that a node may be reached by several.
pub(crate) fn port_guard(node: &NodeSpec) -> Option<Table> {
    let prefixes: Vec<_> = node.network.prefixes.of(node.outer).collect();
    let port = Match::UdpDport(node.network.port);
    let inward = prefixes.iter().map(|net| rule([from(*net), port.clone()], Statement::Drop)).collect();
    let outside: Vec<Match> = prefixes.iter().copied().map(not_to).collect();
    let onward = |net| rule([vec![from(net)], outside.clone(), vec![port.clone()]].concat(), Statement::Drop);
    let onward = prefixes.iter().copied().map(onward).collect();
    (!prefixes.is_empty()).then(|| Table {
        family: table_family(node.outer),
        name: links::table("tunnel", &node.network),
        maps: Vec::new(),
        chains: vec![
            base("input", ChainKind::Filter, Hook::Input, FILTER, inward),
            base("forward", ChainKind::Filter, Hook::Forward, FILTER, onward),
        ],
    })
}

/// The table of one outer family: tunnel packets come in by the wire, or not at all.
///
/// What comes by the wire fails the rule's first condition, and pays for no more than that.
pub(crate) fn table(node: &NodeSpec, outer: Family) -> Table {
    let stray = [enters_by_other_than(&node.wire), Match::UdpDport(node.network.port)];
    Table {
        family: table_family(outer),
        name: links::table("tunnel", &node.network),
        maps: Vec::new(),
        chains: vec![base(
            "input",
            ChainKind::Filter,
            Hook::Input,
            FILTER,
            vec![rule(stray, Statement::Drop)],
        )],
    }
}
