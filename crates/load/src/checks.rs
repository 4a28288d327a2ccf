//! The generator's checks of itself: whether a run met its request, and whether its figures are valid.
//!
//! After every run it checks what the literature demands of a latency measurement (M. Kogias, S. Mallon, E. Bugnion,
//! *Lancet: A self-correcting Latency Measuring Tool*, USENIX ATC 2019; Y. Zhang, D. Meisner, J. Mars, L. Tang,
//! *Treadmill*, ISCA 2016; RFC 2330, §11). A check that fails reports the finding, its consequence and a remedy.
//!
//! **Two kinds.** A [`CheckWeight::Truth`] accounts for requests: it has no noise, and a run that fails it did not do
//! what was requested. A [`CheckWeight::Doubt`] judges circumstances, some by tests of significance that accuse one
//! good run in a hundred. On a noisy machine several may fail at once, and a user decides whether they make a run fail.
//!
//! Checks are not a filter: no sample is left out because of a result.

mod account;
mod arrivals;
mod cause;
mod generator;
mod percentile;
mod phrases;
mod sampled;

#[cfg(test)]
mod made;

use crate::{Outcome, Schedule};

pub use generator::steal;
pub use percentile::{PercentileEstimate, estimate};
pub use stats::Percentile;

/// What one check found.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckResult {
    /// Its name, for programs.
    pub id: &'static str,
    /// How much it weighs.
    pub kind: CheckWeight,
    /// `None`: the check could not be made; the text gives the reason.
    pub passed: Option<bool>,
    /// One line: what was found, and if it failed, what that means and what to do.
    pub text: String,
    /// The figures behind the result, with the unit at the end of each name. Shares are 0 to 1.
    pub figures: Vec<(&'static str, f64)>,
}

/// How much a check weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckWeight {
    /// A failure means that the run did not do what was requested.
    Truth,
    /// A failure means that the figures are less certain than they look.
    Doubt,
}

/// Makes every check of a run, always in one order. If the schedule or the number of samples does not permit a check,
/// its result says so.
pub fn checks(outcome: &Outcome, schedule: &Schedule) -> Vec<CheckResult> {
    let sampled = sampled::Sampled::new(&outcome.series);
    let mut checks = vec![
        account::rate(outcome, schedule),
        account::answered(outcome),
        account::errors(outcome),
        generator::late(outcome, schedule),
        arrivals::gaps(outcome, schedule),
        sampled.stationarity(),
        sampled.independence(),
    ];
    checks.extend(generator::books(outcome));
    checks
}

/// How many of the sampled response times are independent of each other, which intervals are computed from. `None` if
/// unknown. There are at most 4096 samples a thread, so it may be far less than the number of answers.
pub fn independent_samples(outcome: &Outcome) -> Option<u64> {
    sampled::Sampled::new(&outcome.series).independent()
}

/// Why requests were not sent within the schedule, and a remedy. Meaningless for a run that sent all of them.
pub fn unsent_because(outcome: &Outcome) -> String {
    cause::Shares::of_unsent(outcome).cause().explained(outcome)
}

impl CheckResult {
    fn passed(id: &'static str, kind: CheckWeight, text: String) -> CheckResult {
        CheckResult { id, kind, passed: Some(true), text, figures: vec![] }
    }

    fn unjudged(id: &'static str, kind: CheckWeight, why: &str) -> CheckResult {
        CheckResult { id, kind, passed: None, text: format!("cannot be judged: {why}"), figures: vec![] }
    }

    /// Fails it, with what that means and what to do, unless it holds.
    fn unless(mut self, holds: bool, remedy: &str) -> CheckResult {
        if !holds {
            self.passed = Some(false);
            self.text = format!("{}: {remedy}", self.text);
        }
        self
    }

    fn figures(mut self, figures: &[(&'static str, f64)]) -> CheckResult {
        self.figures.extend_from_slice(figures);
        self
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Protocol;

    #[test]
    fn every_check_is_always_there_under_a_name_of_its_own() {
        let constant = Schedule::Constant { rate_per_s: made::RATE_PER_S };
        let poisson = Schedule::Poisson { rate_per_s: made::RATE_PER_S, seed: 1 };
        let names = |schedule| -> Vec<&str> {
            checks(&made::good(), schedule).iter().map(|check| check.id).collect()
        };
        let expected = names(&constant);
        assert_eq!(expected.iter().collect::<BTreeSet<_>>().len(), expected.len());
        assert_eq!(names(&poisson), expected);
        assert_eq!(names(&Schedule::Saturate), expected);
        assert!(!expected.contains(&steal(Some(0.0)).id));
    }

    #[test]
    fn a_good_run_passes_all() {
        for check in checks(&made::good(), &Schedule::Constant { rate_per_s: made::RATE_PER_S }) {
            assert_eq!(check.passed, Some(true), "{check:?}");
        }
    }

    #[test]
    fn an_empty_run_passes_nothing_that_needs_samples() {
        let empty = Outcome::new(Some(made::RATE_PER_S), Protocol::Http);
        for check in checks(&empty, &Schedule::Constant { rate_per_s: made::RATE_PER_S }) {
            assert!(check.passed != Some(true) || check.id == "errors", "{check:?}");
        }
        assert_eq!(independent_samples(&empty), None);
    }
}
