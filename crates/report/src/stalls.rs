//! The machine's stalls in a summary.

use record::WitnessCost;
use serde::Serialize;

use crate::figures;
use crate::quantities::{Quantiles, Ratio};

/// What a witness of the machine's stalls saw beside a candidate at a load. Requests intended near a stall are in none
/// of the other figures of response time; here are the figures with them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stalls {
    /// The share of the measured time that is left out: windows around the stalls, 0 to 1.
    pub left_out_share: f64,
    /// Stalls of any of the nodes' CPUs; what several signs saw of one CPU at a time is one.
    pub stalls: u64,
    /// The longest time between the ticks around one, in nanoseconds: no stall was longer.
    pub longest_ns: u64,
    /// All of these times together, those of one CPU that overlap once, in nanoseconds.
    pub total_ns: u64,
    /// received − intended of all requests, in nanoseconds.
    pub response_ns: Quantiles,
    /// p99 of those ÷ the reference's.
    pub p99_ratio: Option<Ratio>,
    /// The share that is left out ÷ the reference's.
    pub left_out_ratio: Option<Ratio>,
}

/// What watching changes: "the host's median by +0.4 % (−0.2 … +1.0) at 50,000 requests/s".
pub fn witness_cost(cost: &WitnessCost) -> String {
    let ratio = Ratio { value: cost.ratio, low: cost.low, high: cost.high };
    format!(
        "the host's median by {} at {} requests/s",
        figures::change_within(&ratio),
        figures::rate(cost.rate_per_s)
    )
}
