//! Rates that a candidate could not carry, in words.

use verdict::Shortfall;

use crate::figures::{self, percent};
use crate::summary::{Candidate, RateSummary};

/// "73 % of the rate was answered in time; the latencies are those of a growing queue", or "93 % of the rate was
/// answered in time; in 5 of 24 slices a queue grew, and the tail is theirs".
pub(crate) fn shortfall_text(short: &Shortfall) -> String {
    let Shortfall { in_time, queued, queues, slices } = *short;
    let some = format!("in {queues} of {slices} slices a queue grew");
    let queue = match queued {
        true if queues == 0 || queues == slices => "; the latencies are those of a growing queue".to_owned(),
        true => format!("; {some}, and the latencies are those of queues"),
        false if queues == 0 => String::new(),
        false => format!("; {some}, and the tail is theirs"),
    };
    format!("{} of the rate was answered in time{queue}", percent(in_time))
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
