//! What the way to another node lacks where a step is not so.

use std::net::IpAddr;

use linux::Route;

use crate::Step;

/// What packets on their way to another node lack where a step is not so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    /// What it is.
    pub part: LackedPart,
    /// An address of the family that alone needs it; `None`: all of a node's packets do.
    pub address: Option<IpAddr>,
    /// As a phrase that begins with the link's name: "flannel.1 does not have its address 10.1.2.0/32".
    pub words: String,
}

/// A part of the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LackedPart {
    /// A route of the main table.
    Route(Route),
    /// The Ethernet address of the next hop.
    Neighbour,
    /// Where a tunnel's packets for an Ethernet address go.
    ForwardingEntry,
    /// The other end of an encrypted tunnel.
    TunnelPeer,
    /// By what others know this end of it.
    TunnelKey,
    /// The device, or what belongs to it.
    Device,
}

impl Step {
    /// What the way to another node lacks where the step is not so; `None` for one on which no such way rests.
    pub fn lack(&self) -> Option<Lack> {
        self.effect().lack()
    }
}
