//! The attachments that stand on a node, for people.

use cni::Failure;
use plan::UnitState;
use serde::Serialize;

use crate::Home;
use crate::failures::of_book;
use crate::unit::recorded;

/// An interface of a container that this node keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StandingAttachment {
    /// The container, as its runtime calls it; empty if a process died before it could say so.
    pub container_id: String,
    /// The name of the interface in the container.
    pub ifname: String,
    /// The network that it is attached to.
    pub network: String,
    /// Whether it stands, is being worked on, or was left by a process that died.
    pub state: UnitState,
}

impl Home {
    /// The attachments that stand on this node, in the order of their containers. Needs no privilege.
    ///
    /// # Errors
    /// The book of attachments cannot be read.
    pub fn standing_attachments(&self) -> Result<Vec<StandingAttachment>, Failure> {
        let units = self.attachments().units().map_err(|error| of_book(&error))?;
        let of = |unit: plan::FoundUnit| {
            let (container_id, ifname, network) = recorded(self, &unit.id)
                .map(|record| (record.container_id, record.ifname, record.network))
                .unwrap_or_default();
            StandingAttachment { container_id, ifname, network, state: unit.state }
        };
        Ok(units.into_iter().map(of).collect())
    }
}
