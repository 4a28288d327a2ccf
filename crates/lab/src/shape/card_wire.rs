//! The cards at the ends of a topology's wire.

use linux::IfName;

use crate::ByRole;

/// A wire between two cards of this machine.
#[derive(Debug, Clone)]
pub struct CardWire {
    /// Their links, in the namespace of this process.
    pub ends: ByRole<IfName>,
    /// The queues that each of them has.
    pub nic: tune::Nic,
    /// Interrupts wait for no more packets. Where instructions are counted, a wait would count as so many of them.
    pub interrupts_at_once: bool,
}
