//! Nothing to do: what leaves a node carries addresses that the underlay delivers by itself. These are the nodes' own
//! (host, Docker's masquerading) or those of neighbours on the wire (macvlan, ipvlan in L2 mode).

use linux::features::Feature;
use plan::Plan;

use crate::trace::Traces;
use crate::{Family, NodeSpec, Peer, SpecError, Talk, Trace, Transport};

pub(crate) const ONLINK: OnLink = OnLink;

/// The underlay as it is.
pub(crate) struct OnLink;

impl Transport for OnLink {
    fn name(&self) -> &'static str {
        "onlink"
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

    fn node(&self, _node: &NodeSpec) -> Result<Plan, SpecError> {
        Ok(Plan::new())
    }

    fn peer(&self, _node: &NodeSpec, _peer: &Peer) -> Result<Plan, SpecError> {
        Ok(Plan::new())
    }

    fn traces(&self, node: &NodeSpec, talk: Talk) -> Vec<Trace> {
        let mut traces = Traces::default();
        traces.outward(&node.place, &node.wire, talk);
        traces.into_list()
    }
}
