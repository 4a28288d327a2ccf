//! What each of several clients does of a slice of load, and what came of it.

use std::ops::AddAssign;
use std::time::Duration;

use load::Outcome;
use record::{Load, TrialRecord};
use serde::{Deserialize, Serialize};

use crate::trial_key::TrialKey;

/// A client's part of a slice, or all of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LoadPart {
    pub(crate) load: Load,
    pub(crate) duration: Duration,
    /// How long the reference takes for an answer at its capacity.
    pub(crate) answer: Duration,
    /// Selects the instants of random arrivals.
    pub(crate) seed: u64,
    /// Which trial of the record this is the measured part of, if it is one's.
    pub(crate) measured: Option<TrialKey>,
}

/// What came of a client's part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LoadedPart {
    pub(crate) counts: RequestCounts,
    /// Of the measured part of a trial: all of it, with the client's own costs and checks.
    pub(crate) trial: Option<TrialRecord>,
}

/// Requests of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct RequestCounts {
    pub(crate) intended: u64,
    pub(crate) sent_in_schedule: u64,
    pub(crate) answered: u64,
    pub(crate) answered_per_s: f64,
    pub(crate) missed: u64,
}

impl RequestCounts {
    pub(crate) fn of(outcome: &Outcome) -> RequestCounts {
        RequestCounts {
            intended: outcome.intended,
            sent_in_schedule: outcome.sent_in_schedule,
            answered: outcome.answered,
            answered_per_s: outcome.answered_per_s(),
            missed: outcome.missed.count(),
        }
    }
}

impl AddAssign for RequestCounts {
    fn add_assign(&mut self, other: RequestCounts) {
        self.intended += other.intended;
        self.sent_in_schedule += other.sent_in_schedule;
        self.answered += other.answered;
        self.answered_per_s += other.answered_per_s;
        self.missed += other.missed;
    }
}

/// How many of the connections a client has: as many as each other, and the first ones one more where
/// that leaves a rest.
pub(crate) fn connections_of(client: usize, clients: usize, connections: u32) -> u32 {
    let clients = u32::try_from(clients).expect("there are few clients").max(1);
    let has_one_more = u32::try_from(client).is_ok_and(|client| client < connections % clients);
    connections / clients + u32::from(has_one_more)
}

/// A client's part of a load: of its rate as much as it has of the connections.
pub(crate) fn load_of(client: usize, clients: usize, connections: u32, load: &Load) -> Load {
    let own = f64::from(connections_of(client, clients, connections)) / f64::from(connections.max(1));
    // One client has exactly what was asked.
    let own = if clients <= 1 { 1.0 } else { own };
    Load { rate_per_s: load.rate_per_s.map(|rate| rate * own), ..load.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_rates_are_shared_out_whole() {
        let shares = |clients, connections| -> Vec<u32> {
            (0..clients).map(|client| connections_of(client, clients, connections)).collect()
        };
        assert_eq!(shares(1, 32), [32]);
        assert_eq!(shares(3, 32), [11, 11, 10]);
        assert_eq!(shares(3, 60_000), [20_000; 3]);
        let load = Load { of_capacity: Some(0.3), ..Load::at_rate(100, 3200.0) };
        let rates: Vec<f64> =
            (0..3).map(|client| load_of(client, 3, 32, &load).rate_per_s.unwrap()).collect();
        assert_eq!(rates, [1100.0, 1100.0, 1000.0]);
        assert_eq!(load_of(0, 1, 7, &load), load);
        let closed = Load { rate_per_s: None, ..load };
        assert_eq!(load_of(1, 3, 32, &closed), closed);
    }
}
