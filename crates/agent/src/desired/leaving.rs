//! The tunnels that a node leaves when the network's backend changes. Nodes follow a change one after the other, and
//! those that have not yet send by the way of before.

use std::collections::{BTreeMap, BTreeSet};

use linux::IfName;
use plan::{Placed, Plan, Step};

use super::{Desired, NODE_PART, Nets, PORT_GUARD_PART};
use crate::backend::BackendKind;

impl Nets<'_> {
    /// The tunnels of the backend before stay as long as they may be used: by what stands for nodes that are refused,
    /// by routes to nodes that are not in a cloud's tables yet, and by nodes that may not have seen yet that this one
    /// has changed. Those of the present backend that have their names take their place at once.
    pub(super) fn keep_tunnels(
        &self,
        stays: &BTreeMap<String, Plan>,
        desired: &mut Desired,
        standing: &BTreeMap<String, Plan>,
    ) {
        let others_may_lag = match self.kind {
            BackendKind::AwsVpc => !self.node.cloud.is_settled,
            BackendKind::HostGw | BackendKind::Vxlan | BackendKind::WireGuard => self.node.others_may_lag,
        };
        if stays.is_empty() && !others_may_lag {
            return;
        }
        let Some(before) = standing.get(NODE_PART) else { return };
        let node_plan = desired.parts.entry(NODE_PART.to_owned()).or_default();
        let is_left = |placed: &&Placed| !node_plan.steps.contains(placed);
        let leaving = links_of(before.steps.iter().filter(is_left));
        if leaving.is_empty() || !leaving.is_disjoint(&links_of(node_plan.steps.iter())) {
            return;
        }
        extend(node_plan, before.steps.iter());
        if let Some(guard) = standing.get(PORT_GUARD_PART) {
            extend(desired.parts.entry(PORT_GUARD_PART.to_owned()).or_default(), guard.steps.iter());
        }
        // An encrypted tunnel takes packets of its peers alone.
        for (part, plan) in &mut desired.parts {
            let before = standing.get(part).into_iter().flat_map(|plan| &plan.steps);
            extend(plan, before.filter(|placed| is_peer_of(&placed.step, &leaving)));
        }
    }
}

/// Adds the steps that a plan does not have.
fn extend<'s>(plan: &mut Plan, steps: impl Iterator<Item = &'s Placed>) {
    for placed in steps {
        if !plan.steps.contains(placed) {
            plan.steps.push(placed.clone());
        }
    }
}

fn is_peer_of(step: &Step, links: &BTreeSet<&IfName>) -> bool {
    matches!(step, Step::AddWireGuardPeer(peer) if links.contains(&peer.dev))
}

fn links_of<'s>(steps: impl Iterator<Item = &'s Placed>) -> BTreeSet<&'s IfName> {
    steps.filter_map(|placed| placed.step.link()).map(|link| &link.name).collect()
}
