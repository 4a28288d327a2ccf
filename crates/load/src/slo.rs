//! Service level objectives: limits of response time, and whether a run keeps them.

use crate::Outcome;

/// A service level objective: percentiles of response time, each with its limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Slo(Vec<Limit>);

/// A percentile of response time that is to stay below a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    percentile: f64,
    below_ns: u64,
}

/// Why a run misses an objective, or cannot be judged.
#[derive(Debug, Clone, PartialEq)]
pub enum SloMiss {
    /// No request was due, so the objective cannot be judged.
    NothingDue,
    /// More requests were without an expected answer than the percentile leaves out.
    Unanswered {
        /// Requests without an answer as expected.
        unanswered: u64,
        /// Requests that were due.
        intended: u64,
    },
    /// A percentile reached its limit.
    Slow {
        /// The percentile that was named, 0 to 100.
        percentile: f64,
        /// The percentile's value in nanoseconds.
        seen_ns: u64,
    },
    /// Requests could not be sent within the schedule.
    Unsent {
        /// Requests that were due and not sent within the schedule.
        unsent: u64,
        /// Requests that were due.
        intended: u64,
        /// Why, and what to do about it ([`crate::checks::unsent_because`]).
        because: String,
    },
}

impl Limit {
    /// A limit of a percentile (0 to below 100, in percent), in nanoseconds. `None` for another percentile, or for a
    /// limit of zero, which no run meets.
    pub fn new(percentile: f64, below_ns: u64) -> Option<Limit> {
        ((0.0..100.0).contains(&percentile) && below_ns > 0).then_some(Limit { percentile, below_ns })
    }

    /// The percentile that is limited, 0 to 100.
    pub fn percentile(&self) -> f64 {
        self.percentile
    }

    /// What it has to stay below, in nanoseconds.
    pub fn below_ns(&self) -> u64 {
        self.below_ns
    }

    /// The rank of the percentile among a number of requests in ascending order of their times.
    fn rank(&self, count: u64) -> u64 {
        let rank = count as f64 * self.percentile / 100.0;
        // 99.9 % of 10 000 are 9990, and not a bit more because 99.9 has no exact binary form.
        (rank * (1.0 - 1e-12)).ceil() as u64
    }

    /// Why the outcome does not keep the limit; `None`: it does.
    fn broken_by(&self, outcome: &Outcome) -> Option<SloMiss> {
        let intended = outcome.intended;
        let unanswered = intended - outcome.answered;
        if outcome.answered < self.rank(intended) {
            return Some(SloMiss::Unanswered { unanswered, intended });
        }
        // The percentile of all intended requests, with the unanswered ones ranked last.
        let place = (intended as f64 * self.percentile / 100.0 / outcome.answered as f64).min(1.0);
        let seen_ns = outcome.response.value_at_quantile(place);
        (seen_ns >= self.below_ns).then_some(SloMiss::Slow { percentile: self.percentile, seen_ns })
    }
}

impl Slo {
    /// The objective that all of the limits hold.
    pub fn new(limits: Vec<Limit>) -> Slo {
        Slo(limits)
    }

    /// Its limits, in the order in which they were given.
    pub fn limits(&self) -> &[Limit] {
        &self.0
    }

    /// Why the first broken limit is broken; `None` if all hold. Requests without an answer count as slower than all
    /// others.
    pub fn broken_by(&self, outcome: &Outcome) -> Option<SloMiss> {
        if outcome.intended == 0 {
            return Some(SloMiss::NothingDue);
        }
        self.0.iter().find_map(|limit| limit.broken_by(outcome))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Protocol;

    fn slo(limits: &[(f64, u64)]) -> Slo {
        Slo::new(limits.iter().map(|(percentile, ns)| Limit::new(*percentile, *ns).unwrap()).collect())
    }

    #[test]
    fn requests_without_answers_break_any_limit_and_none_at_all_meet_none() {
        let hour = slo(&[(50.0, 3_600_000_000_000)]);
        let mut outcome = Outcome::new(Some(1.0), Protocol::Http);
        assert_eq!(hour.broken_by(&outcome), Some(SloMiss::NothingDue));
        (outcome.intended, outcome.sent) = (10, 10);
        assert_eq!(hour.broken_by(&outcome), Some(SloMiss::Unanswered { unanswered: 10, intended: 10 }));
        outcome.answered = 10;
        outcome.response.record_n(1_000, 10).unwrap();
        assert_eq!(hour.broken_by(&outcome), None);
    }

    #[test]
    fn percentiles_are_those_of_all_that_was_intended() {
        let mut outcome = Outcome::new(Some(1.0), Protocol::Http);
        (outcome.intended, outcome.sent, outcome.answered) = (100, 100, 90);
        outcome.response.record_n(1_000, 80).unwrap();
        outcome.response.record_n(5_000, 10).unwrap();
        let slow = |percentile| Some(SloMiss::Slow { percentile, seen_ns: 5_003 });
        let seen = |percentile, below_ns| slo(&[(percentile, below_ns)]).broken_by(&outcome);
        // Of a hundred requests 80 were quick, 10 slow, and 10 never answered.
        assert_eq!(seen(80.0, 2_000), None);
        assert_eq!(seen(85.0, 2_000), slow(85.0));
        assert_eq!(seen(85.0, 6_000), None);
        assert_eq!(seen(91.0, 6_000), Some(SloMiss::Unanswered { unanswered: 10, intended: 100 }));
        assert_eq!(slo(&[(80.0, 2_000), (86.0, 5_000)]).broken_by(&outcome), slow(86.0));
    }

    #[test]
    fn as_many_may_be_without_an_answer_as_the_percentile_leaves_out() {
        for (percentile, intended, beyond) in [
            (90.0, 100, 10),
            (99.9, 10_000, 10),
            (99.99, 100_000, 10),
            (99.999, 10_000_000, 100),
            (50.0, 3, 1),
        ] {
            let seen = |unanswered| {
                let mut outcome = Outcome::new(Some(1.0), Protocol::Http);
                (outcome.intended, outcome.sent, outcome.answered) =
                    (intended, intended, intended - unanswered);
                outcome.response.record_n(1_000, outcome.answered).unwrap();
                slo(&[(percentile, 3_600_000_000_000)]).broken_by(&outcome)
            };
            assert_eq!(seen(beyond), None, "p{percentile} of {intended}");
            let unanswered = beyond + 1;
            assert_eq!(seen(unanswered), Some(SloMiss::Unanswered { unanswered, intended }));
        }
    }

    #[test]
    fn a_limit_that_nothing_could_keep_is_none() {
        for (percentile, below_ns) in [(100.0, 1), (-1.0, 1), (f64::NAN, 1), (50.0, 0)] {
            assert_eq!(Limit::new(percentile, below_ns), None);
        }
    }
}
