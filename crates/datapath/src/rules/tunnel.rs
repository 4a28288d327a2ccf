//! The tunnel's port is for other nodes. A VXLAN device takes what any link brings, so that a pod without privileges could
//! send packets in another pod's name: it would only have to write them into datagrams to its own node.
//!
//! The programs stop such datagrams at the pod's link. This is the second line, for which only what the programs leave to the
//! device pays. Where every tunnel packet would pay, as it does without programs, the rule costs 0.7 to 1 % of a request's
//! instructions; flannel has none, and the paths that stand for flannel have none either.

use linux::nft::{ChainKind, Hook, Match, Statement, Table};

use super::{FILTER, base, enters_by_other_than, rule, table_family};
use crate::{Family, NodeSpec, links};

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
