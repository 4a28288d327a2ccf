//! Where a server on a stack of our own gets its frames, and what shows that its packets took that way.

use datapath::{NodeSpec, PacketCounter, PacketDirection, Pod, Trace, vhost_user_socket};
use record::StackKind;

use crate::Shape;
use crate::server::OwnStack;

/// The stack of a server in this pod, or on this node, if it is one of our own. Where receive work is the receiver's,
/// frames of a link are handed over on the server's CPU.
pub(super) fn of(shape: &Shape, node: &NodeSpec, pod: &Pod, mtu_bytes: u32) -> Option<OwnStack> {
    match shape.stack.kind {
        StackKind::Kernel | StackKind::Verbs => None,
        StackKind::Afxdp => {
            let receive_cpu = shape.steered.then(|| shape.cpus.server.iter().next()).flatten();
            Some(OwnStack::AfXdp { link: node.wire.clone(), receive_cpu })
        }
        StackKind::VhostUser => {
            let addresses = pod.addresses.iter().collect();
            Some(OwnStack::VhostUser { socket: vhost_user_socket(node, pod), addresses, mtu_bytes })
        }
    }
}

/// What the node's own stack delivers: next to nothing of what such a server is asked. A pod without a link has no
/// stack that could be asked.
pub(super) fn traces(shape: &Shape, node: &NodeSpec) -> Option<Trace> {
    shape.stack.is_own().then(|| Trace {
        place: node.place.clone(),
        counter: PacketCounter::Delivered,
        packets: PacketDirection::None,
    })
}
