//! A trial's response times without the machine's stalls, and those.

use serde::{Deserialize, Serialize};

use crate::Histogram;

/// A trial without the times at which the machine did not run one of the nodes' CPUs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Witnessed {
    /// Requests whose intended instant lay in the measured part and outside the windows of all stalls.
    pub intended: u64,
    /// received − intended of those that were answered as expected, in nanoseconds.
    pub response: Histogram,
    /// The part of the measured part that lies within windows, in nanoseconds.
    pub left_out_ns: u64,
    /// The stalls that the windows are of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stalls: Vec<Stall>,
}

/// A time at which a CPU did not run, somewhere between two ticks, or ran another program while a thread of the race
/// waited for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stall {
    /// The number of the CPU.
    pub cpu: u16,
    /// The tick before it, or when the thread was woken, in nanoseconds from the first intended
    /// instant; negative in front of that.
    pub from_ns: i64,
    /// The tick after it, or when the thread ran, likewise.
    pub to_ns: i64,
    /// How late that tick was, in nanoseconds: the stall was at least as long; 0 for a wait.
    pub late_ns: u64,
    /// What the hypervisor says it took in between, in nanoseconds; 0 where it does not say.
    pub stolen_ns: u64,
    /// For how long the thread waited for the other program, in nanoseconds; 0: it is none of these.
    #[serde(default, skip_serializing_if = "crate::costs::is_zero")]
    pub blocked_ns: u64,
}
