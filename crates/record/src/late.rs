//! Why answers were late: those beyond p99 of a candidate at a load, by what they coincided with.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Histogram;

/// What a late answer is charged to. In the order of precedence, that of display too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A CPU stood still because the machine below did not run it.
    Stall,
    /// TCP's retransmission timer expired: 200·2ⁿ ms.
    TimeOut,
    /// TCP's tail loss probe sent a segment again.
    Probe,
    /// TCP sent a segment again because acknowledgements said that it was lost.
    FastRetransmit,
    /// A packet of its connection was dropped, and no segment was seen to be sent again.
    Drop,
    /// A CPU was at softirq work for long.
    Softirq,
    /// A thread of the server was ready to run and had no CPU.
    ServerWaited,
    /// The generator sent late, or let the answer lie unread.
    Generator,
    /// The server had read the request and had not answered yet.
    Server,
    /// The request lay in the server's socket, unread.
    Queue,
    /// None of the above was seen while the answer was late.
    Unknown,
}

impl Cause {
    /// Every cause, in the order of precedence.
    pub const ALL: &[Cause] = &[
        Cause::Stall,
        Cause::TimeOut,
        Cause::Probe,
        Cause::FastRetransmit,
        Cause::Drop,
        Cause::Softirq,
        Cause::ServerWaited,
        Cause::Generator,
        Cause::Server,
        Cause::Queue,
        Cause::Unknown,
    ];
}

/// The late answers of one candidate at one load. They come from slices of their own after the last round, half of
/// them with programs in the kernel that watch, half of them without, so that the cost of watching is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Late {
    /// The candidate, as an index into [`crate::Header::entrants`].
    pub entrant: usize,
    /// Index into the record's loads.
    pub load: usize,
    /// Response times of the slices that were not watched.
    pub unwatched: Histogram,
    /// Response times of the slices that were.
    pub watched: Histogram,
    /// The median of each visit's slice that was not watched and of the one that was, in nanoseconds: both lie beside
    /// each other in time.
    pub medians_ns: Vec<(u64, u64)>,
    /// Response times of the watched answers that are late, by cause. A cause without any is left out.
    pub causes: BTreeMap<Cause, Histogram>,
    /// Segments that were sent again meanwhile.
    #[serde(default)]
    pub retransmitted: Retransmitted,
    /// Packets that were dropped meanwhile in the namespaces of the topology, by the kernel's name of the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub drops: BTreeMap<String, u64>,
    /// Events for which there was no room.
    pub lost_events: u64,
    /// Answers that the generator had no room to write down, and so have no cause.
    pub lost_answers: u64,
    /// Tracepoints that this kernel lacks: what they show is not claimed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// Segments that TCP sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retransmitted {
    /// When the retransmission timer expired.
    pub time_outs: u64,
    /// By the tail loss probe.
    pub probes: u64,
    /// Because acknowledgements said so.
    pub fast: u64,
}
