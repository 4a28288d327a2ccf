//! The tunnel devices of a node that was flannel's before: the agent goes on with them, under their names and with
//! their Ethernet addresses, so that neither this node's connections nor other nodes notice.
//!
//! That they are there is known by the journal of the node's part alone, where `hostgap agent migrate flannel` has
//! noted them. A kernel has one tunnel of an identifier and port, so none can be made beside them.

use std::collections::BTreeMap;

use datapath::Family;
use linux::{Link, LinkKind};
use plan::{Plan, Step};

use super::{NODE_PART, Node, Undecided};
use crate::network::Backend;

/// The part of what else of flannel is to be minded on this node.
pub(crate) const FLANNEL_PART: &str = "flannel";

/// The device that is used for the pods of a family; `None`: the agent makes one.
pub(super) fn tunnel<'s>(
    standing: &'s BTreeMap<String, Plan>,
    family: Family,
    backend: &Backend,
) -> Option<&'s Link> {
    let is_meant = |link: &&Link| match &link.kind {
        LinkKind::Vxlan(vxlan) => {
            (Family::of(vxlan.local), vxlan.vni, vxlan.port) == (family, backend.vni, backend.port)
        }
        _ => false,
    };
    steps(standing).filter_map(|placed| placed.step.link()).find(is_meant)
}

/// # Errors
/// The device has its end at another address or on another link than the node now.
pub(super) fn check(found: Option<&Link>, node: &Node) -> Result<(), Undecided> {
    let Some(Link { name, kind: LinkKind::Vxlan(vxlan), .. }) = found else { return Ok(()) };
    if node.underlay.of(Family::of(vxlan.local)) == Some(vxlan.local) && vxlan.parent == node.wire {
        return Ok(());
    }
    Err(Undecided::Node(format!(
        "the tunnel {name}, which flannel has made, begins at {} on {}, and this node is not there any more; `hostgap agent \
         migrate flannel --back` leaves it to flannel",
        vxlan.local, vxlan.parent
    )))
}

/// Keeps in the node's plan the devices that it has no use for at present: the backend may be another one again.
pub(super) fn remember(plan: &mut Plan, standing: &BTreeMap<String, Plan>) {
    for placed in steps(standing) {
        let name = placed.step.link().map(|link| &link.name);
        if !plan.steps.iter().any(|other| other.step.link().map(|link| &link.name) == name) {
            plan.steps.push(placed.clone());
        }
    }
}

/// The steps of the node's part that use a link which was there.
fn steps(standing: &BTreeMap<String, Plan>) -> impl Iterator<Item = &plan::Placed> {
    let steps = standing.get(NODE_PART).into_iter().flat_map(|plan| &plan.steps);
    steps.filter(|placed| matches!(placed.step, Step::EnsureLink(_)))
}
