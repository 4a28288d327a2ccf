//! Why answers were late, as plain values: how much of each percentile beyond p99 belongs to which cause.

use std::collections::BTreeMap;

use record::{Cause, Retransmitted};
use serde::Serialize;

use crate::figures::{self, counted};
use crate::quantities::Ratio;

/// The late answers at a load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LateLoad {
    /// Bytes of the answer's body.
    pub body_bytes: u32,
    /// Requests per second requested; `None` without a rate.
    pub requested_rps: Option<f64>,
    /// The share of capacity that the rate was asked as, 0 to 1.
    pub of_capacity: Option<f64>,
    /// The entrants that were watched, in display order.
    pub candidates: Vec<LateAnswers>,
}

/// The late answers of a candidate at a load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LateAnswers {
    /// The name of the candidate.
    pub name: String,
    /// Answers while the programs watched.
    pub answers: u64,
    /// Their median in nanoseconds. What an answer takes beyond it is its excess, which is charged to its cause.
    pub median_ns: u64,
    /// The median with the programs ÷ that without them; `None` with fewer than two visits.
    pub cost: Option<Ratio>,
    /// The percentiles of which at least ten answers lie beyond.
    pub percentiles: Vec<LatePercentile>,
    /// The answers beyond p99 in steps, each half as many as the step before it.
    pub steps: Vec<LateStep>,
    /// Late answers of 190 ms or more: [`LateAnswers::time_outs`] says how many of them are TCP's.
    pub beyond_190_ms: u64,
    /// Those of them that waited for a retransmission time-out or for the tail loss probe.
    pub time_outs: u64,
    /// Segments that were sent again.
    pub retransmitted: Retransmitted,
    /// Packets that were dropped, by the kernel's name of the reason.
    pub drops: BTreeMap<String, u64>,
    /// Events for which there was no room.
    pub lost_events: u64,
    /// Late or not, answers that could not be written down.
    pub lost_answers: u64,
    /// Tracepoints that the kernel lacks: what they show is not claimed.
    pub missing: Vec<String>,
}

/// How much of a percentile is whose.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LatePercentile {
    /// 0.99, 0.999 or 0.9999.
    pub quantile: f64,
    /// The response time in nanoseconds.
    pub ns: u64,
    /// The shares of the excess of the answers around it.
    pub shares: Vec<CauseShare>,
}

/// Late answers that are neighbours by their length.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LateStep {
    /// The lower quantile of the step, 0.99 or above.
    pub from: f64,
    /// The upper quantile of the step, up to 1.
    pub to: f64,
    /// How many there are.
    pub answers: u64,
    /// The median of their response times in nanoseconds.
    pub ns: u64,
    /// The shares of their excess.
    pub shares: Vec<CauseShare>,
}

/// How much of an excess a cause is charged with.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CauseShare {
    /// The cause that is charged.
    pub cause: Cause,
    /// Its share of the excess over the median, above 0, up to 1.
    pub share: f64,
    /// Answers that are charged to it.
    pub answers: u64,
}

/// What a reader calls a cause.
pub(crate) fn name(cause: Cause) -> &'static str {
    match cause {
        Cause::Stall => "machine stood still",
        Cause::TimeOut => "retransmission time-out",
        Cause::Probe => "tail loss probe",
        Cause::FastRetransmit => "fast retransmit",
        Cause::Drop => "dropped packet",
        Cause::Softirq => "long softirq",
        Cause::ServerWaited => "server waited for a CPU",
        Cause::Generator => "generator late",
        Cause::Server => "server took long",
        Cause::Queue => "queue at the server",
        Cause::Unknown => "unknown",
    }
}

/// A median that watching surely made so many times as long is that of another load. What the programs do themselves
/// takes a few per cent; more comes of queues.
const COST_MAX: f64 = 1.15;

/// What is to be known beside the shares, each as a clause.
pub(crate) fn notes(candidate: &LateAnswers) -> Vec<String> {
    let mut list = Vec::new();
    if candidate.beyond_190_ms > 0 {
        list.push(format!(
            "{} took 190 ms or more, {} of them because of TCP's time-out of 200·2ⁿ ms or its tail loss probe",
            counted(candidate.beyond_190_ms, "answer"),
            candidate.time_outs
        ));
    }
    let Retransmitted { time_outs, probes, fast } = candidate.retransmitted;
    if time_outs + probes + fast > 0 {
        list.push(format!(
            "segments sent again: {time_outs} by time-outs, {probes} by tail loss probes, {fast} by acknowledgements"
        ));
    }
    if !candidate.drops.is_empty() {
        let drops: Vec<String> =
            candidate.drops.iter().map(|(why, count)| format!("{why} {count}")).collect();
        list.push(format!("packets dropped: {}", drops.join(", ")));
    }
    if let Some(cost) = &candidate.cost {
        list.push(format!("watching changed the median by {}", figures::change_within(cost)));
        if cost.low > COST_MAX {
            list.push(
                "at this rate it pushed the path towards its limit: the shares are those of such a path"
                    .to_owned(),
            );
        }
    }
    if candidate.lost_events > 0 {
        list.push(format!("{} lost: shares are too small", counted(candidate.lost_events, "event")));
    }
    if candidate.lost_answers > 0 {
        list.push(format!("{} not written down, and in no share", counted(candidate.lost_answers, "answer")));
    }
    if !candidate.missing.is_empty() {
        let missing = candidate.missing.join(", ");
        list.push(format!("this kernel lacks {missing}, so causes that need them are not reported"));
    }
    list
}
