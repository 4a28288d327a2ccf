//! What a server on a stack of our own needs of its node, and what shows that its packets took that way.

use datapath::{NodeSpec, PacketCounter, PacketDirection, Trace};
use linux::sysfs::LinkAttribute;
use plan::{Plan, SetLinkAttribute};
use record::StackWait;

use crate::Shape;
use crate::server::OwnStack;

/// Nanoseconds after which the kernel receives again, where a thread that polled a link's queue has stopped.
const TAKES_OVER_NS: u64 = 200_000;
/// How often it then finds nothing before the link wakes it again.
const EMPTY_POLLS: u64 = 2;

/// Lets a thread that spins receive by itself: what comes meanwhile is left to it, and to no softirq on the sender's CPU.
pub(super) fn plan(shape: &Shape, node: &NodeSpec, plan: &mut Plan) {
    if !shape.stack.is_own() || shape.stack.wait != StackWait::Spin {
        return;
    }
    let numbers =
        [(LinkAttribute::GroFlushTimeout, TAKES_OVER_NS), (LinkAttribute::NapiDeferHardIrqs, EMPTY_POLLS)];
    for (attribute, value) in numbers {
        plan.push(&node.place, SetLinkAttribute { link: node.wire.clone(), attribute, value });
    }
}

/// The stack of a server, if it is one of our own. A thread that sleeps has its frames handed over on its own node's CPU,
/// where receive work is the receiver's; one that spins receives them itself.
pub(super) fn of(shape: &Shape, node: &NodeSpec) -> Option<OwnStack> {
    let hops = shape.steered && shape.stack.wait == StackWait::Sleep;
    let receive_cpu = hops.then(|| shape.cpus.server.iter().next()).flatten();
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
