//! Where a server on a stack of our own gets its frames, and what shows that its packets took that way.

use datapath::{NodeSpec, PacketCounter, PacketDirection, Trace};

use crate::Shape;
use crate::server::OwnStack;

/// The stack of a server, if it is one of our own. Where receive work is the receiver's, frames are handed over on the
/// server's CPU.
pub(super) fn of(shape: &Shape, node: &NodeSpec) -> Option<OwnStack> {
    let receive_cpu = shape.steered.then(|| shape.cpus.server.iter().next()).flatten();
    shape.stack.is_own().then(|| OwnStack { link: node.wire.clone(), receive_cpu })
}

/// What the node's own stack delivers: next to nothing of what such a server is asked.
pub(super) fn traces(shape: &Shape, node: &NodeSpec) -> Option<Trace> {
    shape.stack.is_own().then(|| Trace {
        place: node.place.clone(),
        counter: PacketCounter::Delivered,
        packets: PacketDirection::None,
    })
}
