//! Where CPU time went: samples of what the nodes' CPUs were at while a candidate carried a load.

use serde::{Deserialize, Serialize};

/// The samples of one candidate at one load, all its slices together. Sampling happens after the last round, so that
/// it does not disturb trials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The candidate, as an index into [`crate::Header::entrants`].
    pub entrant: usize,
    /// Index into the record's loads.
    pub load: usize,
    /// Requests that were answered while samples were taken.
    pub requests: u64,
    /// For how long samples were taken, in nanoseconds.
    pub duration_ns: u64,
    /// CPUs that were sampled: those of both nodes.
    pub cpus: u32,
    /// Nanoseconds of a CPU that a sample stands for.
    pub period_ns: u64,
    /// Samples that were taken and could not be kept.
    pub lost: u64,
    /// Samples that found a CPU idle.
    pub idle: u64,
    /// All other samples: a stack, and the number of samples that found it. A stack is the task and the kernel's
    /// functions, the outermost first, joined by semicolons: `server;entry_SYSCALL_64_after_hwframe;do_syscall_64;…`.
    /// The task is `client`, `server`, `swapper` (the idle task, which packets interrupt), `ksoftirqd`, or `other:`
    /// and a name. Time in a program is `server;[user]`.
    pub stacks: Vec<(String, u64)>,
}
