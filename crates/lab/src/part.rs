//! What each of several clients does of a slice of load, and what came of it.

use std::ops::AddAssign;
use std::time::Duration;

use load::Outcome;
use record::{ClientsApart, Load, TrialRecord};
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
    /// When it began.
    pub(crate) began: Began,
    /// Of the measured part of a trial: all of it, with the client's own costs and checks.
    pub(crate) trial: Option<TrialRecord>,
}

/// What came of the parts of all but the leading client, and how far apart all of them began.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    pub(crate) parts: Vec<LoadedPart>,
    pub(crate) apart: Option<ClientsApart>,
}

/// When a client began, by a clock: at some instant from `earliest_ns` to `latest_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Began {
    pub(crate) earliest_ns: i64,
    pub(crate) latest_ns: i64,
}

impl Began {
    /// Now, by this machine's clock.
    pub(crate) fn now() -> Began {
        let now_ns = monotonic_ns();
        Began { earliest_ns: now_ns, latest_ns: now_ns }
    }

    /// By another clock, which shows less than this one by some amount of this range.
    #[must_use]
    pub(crate) fn by(self, ahead: ClockAhead) -> Began {
        Began { earliest_ns: self.earliest_ns - ahead.most_ns, latest_ns: self.latest_ns - ahead.least_ns }
    }

    fn middle_ns(self) -> i64 {
        i64::midpoint(self.earliest_ns, self.latest_ns)
    }
}

/// How far another machine's clock is ahead of this one's: by some amount from `least_ns` to `most_ns`. The clocks of
/// two machines begin when these boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ClockAhead {
    least_ns: i64,
    most_ns: i64,
}

impl ClockAhead {
    /// Where it showed `theirs_ns` at some instant between two of this machine.
    pub(crate) fn of(theirs_ns: i64, (asked_ns, answered_ns): (i64, i64)) -> ClockAhead {
        ClockAhead { least_ns: theirs_ns - answered_ns, most_ns: theirs_ns - asked_ns }
    }
}

/// This machine's clock, in nanoseconds since it booted.
pub(crate) fn monotonic_ns() -> i64 {
    i64::try_from(linux::clock::now_ns()).unwrap_or(i64::MAX)
}

/// How far apart clients began; `None`: there is one.
pub(crate) fn apart(all: &[Began]) -> Option<ClientsApart> {
    let first = all.iter().min_by_key(|began| began.middle_ns())?;
    let last = all.iter().max_by_key(|began| began.middle_ns())?;
    let nanoseconds = |ns: i64| u64::try_from(ns).unwrap_or(0);
    let error = |began: &Began| nanoseconds(began.latest_ns - began.earliest_ns).div_ceil(2);
    (all.len() > 1).then(|| ClientsApart {
        ns: nanoseconds(last.middle_ns() - first.middle_ns()),
        error_ns: error(first) + error(last),
    })
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
    fn how_far_apart_clients_began_is_known_to_half_of_a_question_and_its_answer() {
        let began = |ns| Began { earliest_ns: ns, latest_ns: ns };
        assert_eq!(apart(&[began(7)]), None);
        // A clock that is 1000 ahead: it is asked at 100, looked at when it shows 1120, and heard of at 140.
        let ahead = ClockAhead::of(1120, (100, 140));
        let other = began(1250).by(ahead);
        assert_eq!(other, Began { earliest_ns: 230, latest_ns: 270 });
        assert_eq!(apart(&[began(200), other]), Some(ClientsApart { ns: 50, error_ns: 20 }));
        assert_eq!(apart(&[other, began(300), began(260)]), Some(ClientsApart { ns: 50, error_ns: 20 }));
    }

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
