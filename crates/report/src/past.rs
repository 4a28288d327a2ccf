//! Rates that a candidate could not carry, in words.

use verdict::Shortfall;

use crate::figures::{self, percent};
use crate::summary::{Candidate, RateSummary};

/// "73 % of the rate was answered in time; the latencies are those of a growing queue".
pub(crate) fn shortfall_text(short: &Shortfall) -> String {
    let queue = if short.queued { "; the latencies are those of a growing queue" } else { "" };
    format!("{} of the rate was answered in time{queue}", percent(short.in_time))
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
