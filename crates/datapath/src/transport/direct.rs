//! A route to each peer's pods by way of the peer's underlay address: flannel's host-gw. Nodes must be neighbours on
//! one Ethernet; the kernel refuses the route where they are not.

use linux::features::Feature;
use plan::Plan;

use crate::draft::Draft;
use crate::trace::Traces;
use crate::{Family, NodeSpec, Peer, SpecError, Talk, Trace, Transport};

pub(crate) const DIRECT: Direct = Direct;

/// Routes to the other nodes' own addresses, without a tunnel; all nodes are neighbours.
pub(crate) struct Direct;

impl Transport for Direct {
    fn name(&self) -> &'static str {
        "direct"
    }

    fn needs(&self) -> &'static [Feature] {
        &[]
    }

    fn overhead_bytes(&self, _outer: Family, _underlay_mtu: u32) -> u32 {
        0
    }

    fn is_open_tunnel(&self) -> bool {
        false
    }

    fn node(&self, node: &NodeSpec) -> Result<Plan, SpecError> {
        node.check_underlay_apart()?;
        node.check_underlay_has_families()?;
        Ok(Plan::new())
    }

    fn peer(&self, node: &NodeSpec, peer: &Peer) -> Result<Plan, SpecError> {
        node.check_underlay_apart()?;
        peer.check_underlay_has_families_of(node)?;
        let mut draft = Draft::at(&node.place, node.families());
        draft.routes_via(&node.wire, &node.reachable(peer), &peer.underlay);
        Ok(draft.into_plan())
    }

    fn traces(&self, node: &NodeSpec, talk: Talk) -> Vec<Trace> {
        let mut traces = Traces::default();
        traces.outward(&node.place, &node.wire, talk);
        traces.into_list()
    }
}
