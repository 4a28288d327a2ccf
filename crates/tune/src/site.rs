//! Where one side of a connection is.

use ipnet::IpNet;
use linux::interrupts::Interrupt;
use linux::{CpuSet, IfName};
use plan::Place;

/// One side: where its process runs, how it reaches the other, and the node that carries its packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The namespace of the process, which is where its sockets are.
    pub process: Place,
    /// The routes of that namespace that lead to the other side: where each goes, and by which link.
    pub routes: Vec<(IpNet, IfName)>,
    /// The namespace of the node.
    pub node: Place,
    /// The node's link to the other nodes.
    pub wire: IfName,
    /// The node's CPUs. In a race: those assigned to it. On a host: those near the card that are not isolated, or all
    /// that are online if there are none or the card's place is unknown.
    pub cpus: CpuSet,
    /// The card behind that link.
    pub nic: Nic,
}

/// The queues of a link, and its interrupts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    /// The number of receive queues.
    pub rx: u16,
    /// The number of send queues.
    pub tx: u16,
    /// The interrupts of its device.
    pub interrupts: Vec<Interrupt>,
}

impl Default for Nic {
    /// A link as a race makes it: one queue in each direction, and no device behind it.
    fn default() -> Nic {
        Nic { rx: 1, tx: 1, interrupts: Vec::new() }
    }
}
