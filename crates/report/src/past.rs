//! Rates that a candidate cannot carry: there its latency tells how long a queue grew, and nothing of its path.

use crate::figures::{self, percent};
use crate::summary::{Candidate, RateSummary};

/// A rate is kept if this share of it is answered within the measured time; requests in flight at its end are not.
const KEPT: f64 = 0.98;

/// The share of the rate that was answered in time, where that is too little of it. A stream has no answers.
pub(crate) fn kept(rate: &RateSummary) -> Option<f64> {
    let answered = rate.achieved_rps.filter(|_| rate.carried.is_none())?;
    Some(answered / rate.requested_rps?).filter(|kept| *kept < KEPT)
}

/// Of the rate: "73 % of the rate was answered in time; the latencies are those of a growing queue".
pub(crate) fn told(kept: f64) -> String {
    format!("{} of the rate was answered in time; the latencies are those of a growing queue", percent(kept))
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
