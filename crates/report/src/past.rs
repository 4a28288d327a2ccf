//! Rates that a candidate cannot carry: there its latency says how long a queue grew, and nothing about its path.

use std::fmt;

use record::Experiment;

use crate::figures::{self, percent};
use crate::summary::{Candidate, RateSummary};

/// A rate is kept if this share of it is answered within the measured time, or under way at its end.
const KEPT: f64 = 0.98;
/// Where requests wait for each other, those intended late wait longest: p90 lies above the median by 0.4 of what the
/// queue has grown to. Of lost requests there is no such sign.
const SPREAD: f64 = 0.25;
/// The longest wire's share of a slice, which is ten of its round trips at least.
const ROUND_TRIP: f64 = 0.1;

/// Less of a rate than was asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Shortfall {
    /// The share of the rate that was answered within the measured time.
    in_time: f64,
    /// What is missing waited in a queue that grew until the end.
    queued: bool,
}

impl Shortfall {
    /// `None` where the rate was kept. A stream has no answers.
    pub(crate) fn of(rate: &RateSummary, connections: u32) -> Option<Shortfall> {
        let answered = rate.achieved_rps.filter(|_| rate.carried.is_none() && rate.trials > 0)?;
        let requested = rate.requested_rps?;
        let in_time = answered / requested;
        let slice_s = rate.measured_s / rate.trials as f64;
        let [median_s, p90_s] =
            [rate.response_ns.p50, rate.response_ns.p90].map(|ns| ns.map(|ns| ns as f64 / 1e9));
        // A connection has one request under way at most; on a long wire that is a tenth of a slice.
        let under_way = median_s.map_or(f64::INFINITY, |s| s / slice_s);
        let kept = in_time + under_way.min(f64::from(connections) / (requested * slice_s));
        let spread_s = match (median_s, p90_s) {
            (Some(median), Some(p90)) => p90 - median,
            // More than a tenth has no answer at all. A queue shows in the median too, beyond what a wire takes.
            (Some(median), None) => median - ROUND_TRIP * slice_s,
            (None, _) => 0.0,
        };
        (kept < KEPT).then_some(Shortfall { in_time, queued: spread_s >= SPREAD * (1.0 - kept) * slice_s })
    }

    /// The same where the candidate is past its capacity.
    pub(crate) fn queued(rate: &RateSummary, connections: u32) -> Option<Shortfall> {
        Shortfall::of(rate, connections).filter(|short| short.queued)
    }
}

/// "73 % of the rate was answered in time; the latencies are those of a growing queue".
impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of the rate was answered in time", percent(self.in_time))?;
        if self.queued { f.write_str("; the latencies are those of a growing queue") } else { Ok(()) }
    }
}

/// Whether all of a rate was answered, in trials that count.
pub(crate) fn is_carried(rate: &RateSummary, connections: u32) -> bool {
    rate.trials > 0 && Shortfall::of(rate, connections).is_none()
}

/// The connections of a candidate: its own, or the workload's.
pub(crate) fn connections(experiment: &Experiment, name: &str) -> u32 {
    let own = experiment.candidates.iter().find(|one| one.title() == name).and_then(|one| one.connections);
    own.unwrap_or(experiment.workload.connections)
}

/// What a candidate carries instead: "docker (answered 40.1k/s in time, 41.0k/s in the closed loop)".
pub(crate) fn carries(candidate: &Candidate, rate: &RateSummary) -> String {
    let closed = candidate
        .rates
        .iter()
        .find(|other| other.requested_rps.is_none() && other.body_bytes == rate.body_bytes)
        .and_then(|closed| closed.achieved_rps)
        .map(|rps| format!(", {}/s in the closed loop", figures::rate(rps)));
    let answered = figures::rate(rate.achieved_rps.unwrap_or(0.0));
    format!("{} (answered {answered}/s in time{})", candidate.name, closed.unwrap_or_default())
}
