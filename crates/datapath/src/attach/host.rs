//! The pod's processes run in the node's own namespace: there is nothing between them and the wire.

use linux::IfName;
use linux::features::Feature;
use plan::Plan;

use crate::trace::{PacketCounter, PacketDirection, Traces};
use crate::{Attach, NodeSpec, Pod, SocketRole, SpecError, Talk, Trace, With};

pub(crate) const HOST: Host = Host;

/// No attach at all: the reference.
pub(crate) struct Host;

impl Attach for Host {
    fn name(&self) -> &'static str {
        "host"
    }

    fn needs(&self) -> &'static [Feature] {
        &[]
    }

    fn has_own_mac(&self) -> bool {
        false
    }

    fn node(&self, _node: &NodeSpec, _mtu: u32) -> Result<Plan, SpecError> {
        Ok(Plan::new())
    }

    fn pod(&self, _node: &NodeSpec, _pod: &Pod, _mtu: u32) -> Result<Plan, SpecError> {
        Ok(Plan::new())
    }

    /// One namespace has nothing to forward. Neighbours speak over its loopback, which counts what
    /// it sends as received.
    fn traces(&self, node: &NodeSpec, _pod: &Pod, talk: Talk) -> Vec<Trace> {
        let mut traces = Traces::default();
        traces.forwarded(&node.place, PacketDirection::None);
        if talk.with == With::Neighbour {
            let loopback = IfName::new("lo").expect("lo is a valid name");
            traces.count(&node.place, PacketCounter::Sent(loopback), PacketDirection::Both);
        }
        traces.into_list()
    }

    fn refuses_nodes(&self, _part: SocketRole) -> Option<&'static str> {
        Some("its processes are in no container")
    }
}
