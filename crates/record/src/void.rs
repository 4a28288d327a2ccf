//! Why a trial does not count.

use serde::{Deserialize, Serialize};

/// Why a trial does not count. It is repeated, and shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Void {
    /// The generator sent late by its own fault: the p99 of that was above the limit.
    GeneratorLate {
        /// p99 of sent − max(intended, the instant at which the connection became free), in nanoseconds. Records from
        /// before this was separated from waiting for a connection have p99 of sent − intended, as `lag_p99_ns`.
        #[serde(alias = "lag_p99_ns")]
        late_p99_ns: u64,
        /// The limit for that, in nanoseconds.
        limit_ns: u64,
    },
    /// A thread of the generator was ready to run and had no CPU for too long. Answers lay unread meanwhile, which
    /// looks like a slow server.
    GeneratorStarved {
        /// Share of the slice for which the thread that waited most did so, in permille.
        run_queue_permille: u32,
        /// The limit for that share, in thousandths.
        limit_permille: u32,
    },
    /// The client's CPUs had no headroom.
    ClientBusy {
        /// Busy share of the generator's threads in permille.
        busy_permille: u32,
    },
    /// The hypervisor took time away.
    Stolen {
        /// Share of the nodes' CPU time in permille.
        steal_permille: u32,
    },
    /// A CPU quota (`cpu.max` of a control group, a pod's CPU limit) stopped the generator or the server.
    Throttled {
        /// For how long, as a share of the time of the CPUs that they were to use, in permille.
        throttled_permille: u32,
        /// The limit for that share, in permille.
        limit_permille: u32,
    },
    /// The candidate's path no longer matched its plan, or packets did not take it.
    PathChanged {
        /// The difference, in words.
        what: String,
    },
    /// The machine stood still for so much of the time that the rest says little.
    StoodStill {
        /// Share of the measured part that lies within windows around stalls, in permille.
        left_out_permille: u32,
        /// The limit for that share, in permille.
        limit_permille: u32,
    },
    /// Frames were lost, or others than ours were judged: the time of a frame is not known.
    FramesLost {
        /// Frames that were sent over the wire.
        made: u64,
        /// Those that met the candidate's filter.
        judged: u64,
        /// Those that were sent on and arrived, where the filter sends them on.
        sunk: Option<u64>,
    },
    /// Most of what was sent got no valid answer, while the machine and the generator ran: the server had no CPU for so
    /// long, or the path was interrupted. A candidate without answers in each repeat is broken.
    Unanswered {
        /// Requests that were due.
        intended: u64,
        /// Requests that were sent.
        sent: u64,
        /// Those of them without a valid answer.
        unanswered: u64,
        /// Answers that were not the expected ones.
        unexpected: u64,
        /// Connections that broke or could not be opened.
        connection_errors: u64,
    },
    /// Much of the flood beside the trial was not sent: its thread had no CPU.
    FloodShort {
        /// Frames that were sent over the wire.
        sent: u64,
        /// Those that the flood's rate asked for in that time.
        due: u64,
    },
    /// A fact of the machine changed.
    FactsChanged {
        /// Which, from what, to what.
        what: String,
    },
    /// It does not count on one of several clients' machines.
    OnClient {
        /// The machine, as the user names it.
        machine: String,
        /// Why it does not.
        why: Box<Void>,
    },
    /// One of several clients' machines did not do its part of it.
    ClientLost {
        /// The machine, as the user names it.
        machine: String,
        /// Why, in words.
        what: String,
    },
}
