//! The pod's processes run in the node's own namespace: there is nothing between them and the wire.

use linux::features::Feature;
use plan::Plan;

use crate::{Attach, NodeSpec, Pod, SpecError};

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

    fn node(&self, _node: &NodeSpec, _mtu: u32) -> Result<Plan, SpecError> {
        Ok(Plan::new())
    }

    fn pod(&self, _node: &NodeSpec, _pod: &Pod, _mtu: u32) -> Result<Plan, SpecError> {
        Ok(Plan::new())
    }
}
