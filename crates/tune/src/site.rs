//! Where one side of a connection is.

use ipnet::IpNet;
use linux::{CpuSet, IfName};
use plan::Place;

/// One side: where its process runs, how it reaches the other, and the node that carries its packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The namespace of the process, which is where its sockets are.
    pub process: Place,
    /// The routes of that namespace that lead to the other side: where each goes, and by which link.
    pub routes: Vec<(IpNet, IfName)>,
    /// The node's namespace.
    pub node: Place,
    /// The node's link to the other nodes.
    pub wire: IfName,
    /// The node's CPUs.
    pub cpus: CpuSet,
}
