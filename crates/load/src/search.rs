//! The search for the highest rate at which an objective holds.
//!
//! It decides which rate is tried next and when it is over. How a run is made, shown and judged is the caller's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::checks::{self, CheckResult};
use crate::slo::{Slo, SloMiss};
use crate::{CheckedRun, LoadError, Outcome, Run, Schedule, WhenBusy};

/// The search ends when the rate is known to this relative precision.
const PRECISION: f64 = 0.02;

/// A step takes one part in this many of the whole duration, since there are about ten steps, and at least the minimum
/// below.
const STEP_PART: u32 = 5;
const STEP_MIN: Duration = Duration::from_millis(500);

/// The most full-length runs.
const CONFIRMATIONS: u32 = 10;
/// The most by which one of them goes below the one before.
const REDUCTION_MAX: f64 = 0.5;

/// A search, and what makes its runs.
pub struct RateSearch<'a> {
    /// The full-length run; its schedule sets the kind of arrivals for the search.
    pub run: &'a Run,
    /// What has to hold.
    pub slo: &'a Slo,
    /// Ends the search before the next run.
    pub stop: &'a AtomicBool,
    /// Runs once, and judges the run.
    pub measure: &'a mut dyn FnMut(SearchStep, &Run) -> Result<CheckedRun, LoadError>,
    /// Called after each rate tried.
    pub emit: &'a mut dyn FnMut(&TriedRate),
}

/// What a run of a search is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchStep {
    /// The throughput with every connection always busy, which no rate on these connections can exceed.
    ClosedLoop,
    /// A short run at a rate between one that holds and one that does not, or above all that hold so far.
    Bisection,
    /// A full-length run at the rate that short ones have found.
    Confirmation,
}

/// One rate that was tried.
#[derive(Debug, Clone, PartialEq)]
pub struct TriedRate {
    /// The rate in requests per second.
    pub rate_per_s: f64,
    /// Why the objective did not hold; `None`: it held.
    pub broken: Option<SloMiss>,
}

/// What a search has tried, and the highest rate that met the objective.
#[derive(Debug, Default)]
pub struct RateSearchResult {
    /// Every rate that was tried, in order.
    pub tried: Vec<TriedRate>,
    /// The full-length run at the highest rate that held; `None`: no rate held.
    pub best: Option<CheckedRun>,
    /// Why the search found no rate; `None` if it found one, or was stopped.
    pub ended: Option<SearchFailure>,
}

/// Why a search found no rate.
#[derive(Debug)]
pub enum SearchFailure {
    /// The server disappeared after it had been loaded.
    Gone(LoadError),
    /// No answer was as expected; the checks that failed for that.
    Dead(Vec<CheckResult>),
    /// Not even one request a second held.
    NoRate,
    /// Short runs found a rate, and no full-length run confirmed it or one below.
    Unconfirmed,
}

impl RateSearchResult {
    /// Why the last rate that did not hold did not.
    pub fn last_broken(&self) -> Option<&SloMiss> {
        self.tried.iter().rev().find_map(|tried| tried.broken.as_ref())
    }
}

impl RateSearch<'_> {
    /// Searches. If the server disappears meanwhile, that is the result.
    ///
    /// # Errors
    /// That of a run that could not take place.
    pub fn find(mut self) -> Result<RateSearchResult, LoadError> {
        let mut found = RateSearchResult::default();
        match self.bisect(&mut found) {
            Err(error) if is_gone(&error) && !found.tried.is_empty() => {
                found.ended = Some(SearchFailure::Gone(error));
            }
            ended => ended?,
        }
        Ok(found)
    }

    /// Bisects between a rate that holds and one that does not. It starts from the throughput with every connection
    /// always busy, which no rate can exceed; where a run may open more ([`WhenBusy::Grow`]), rates double from there
    /// until one does not hold. Then a full-length run has to confirm the rate: a short step has too few requests
    /// beyond a high percentile.
    fn bisect(&mut self, found: &mut RateSearchResult) -> Result<(), LoadError> {
        let step = (self.run.duration / STEP_PART).max(STEP_MIN);
        let saturate = Run {
            duration: step,
            schedule: Schedule::Saturate,
            when_busy: WhenBusy::Wait,
            ..self.run.clone()
        };
        let most = (self.measure)(SearchStep::ClosedLoop, &saturate)?;
        if found.end_if_dead(&most) {
            return Ok(());
        }
        // Requests that were sent within the step, whenever they were answered: an answer may take longer than the
        // step.
        let most_per_s =
            most.outcome.answered as f64 / most.outcome.duration.as_secs_f64().max(f64::MIN_POSITIVE);
        let (mut holds, mut fails) = (0.0, most_per_s.max(1.0) * (1.0 + PRECISION));
        let mut is_bound = self.run.when_busy != WhenBusy::Grow;
        while (!is_bound || fails - holds > fails * PRECISION) && !self.is_stopped() {
            let rate_per_s = if is_bound { (holds + fails) / 2.0 } else { fails };
            // Below this rate a search makes no sense.
            if rate_per_s < 1.0 {
                found.ended = Some(SearchFailure::NoRate);
                return Ok(());
            }
            let ran = (self.measure)(SearchStep::Bisection, &at(self.run, rate_per_s, step))?;
            let does_hold = self.note(found, &ran);
            match (does_hold, is_bound) {
                (true, true) => holds = rate_per_s,
                (true, false) => (holds, fails) = (rate_per_s, rate_per_s * 2.0),
                (false, _) => (fails, is_bound) = (rate_per_s, true),
            }
            if found.end_if_dead(&ran) {
                return Ok(());
            }
        }
        self.confirm(found, holds)
    }

    /// Looks with full-length runs for the highest rate that holds, from the one that short runs have found downwards:
    /// first in steps that double, since a server or a machine may be far slower than a moment ago, then between what
    /// held and what did not.
    fn confirm(&mut self, found: &mut RateSearchResult, mut rate_per_s: f64) -> Result<(), LoadError> {
        let (mut holds, mut fails) = (0.0, f64::INFINITY);
        let mut reduction = PRECISION;
        for _ in 0..CONFIRMATIONS {
            if self.is_stopped() || rate_per_s == 0.0 {
                return Ok(());
            }
            let run = at(self.run, rate_per_s, self.run.duration);
            let ran = (self.measure)(SearchStep::Confirmation, &run)?;
            if self.note(found, &ran) {
                holds = rate_per_s;
                found.best = Some(ran);
            } else {
                fails = rate_per_s;
                if found.end_if_dead(&ran) {
                    return Ok(());
                }
            }
            // What held at first is the rate to which short runs have narrowed it down.
            if holds > 0.0 && (fails.is_infinite() || fails - holds <= fails * PRECISION * 1.01) {
                return Ok(());
            }
            if holds > 0.0 {
                rate_per_s = f64::midpoint(holds, fails);
            } else {
                rate_per_s *= 1.0 - reduction;
                reduction = (reduction * 2.0).min(REDUCTION_MAX);
            }
        }
        if found.best.is_none() {
            found.ended = Some(SearchFailure::Unconfirmed);
        }
        Ok(())
    }

    /// Records the tried rate, and returns whether it held.
    fn note(&mut self, found: &mut RateSearchResult, ran: &CheckedRun) -> bool {
        let broken = unsent(&ran.outcome).or_else(|| self.slo.broken_by(&ran.outcome));
        let holds = broken.is_none();
        let tried = TriedRate { rate_per_s: ran.schedule.rate_per_s().unwrap_or_default(), broken };
        (self.emit)(&tried);
        found.tried.push(tried);
        holds
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl RateSearchResult {
    /// A server without a single expected answer has no highest rate, and each further step would only end in another
    /// time-out.
    fn end_if_dead(&mut self, ran: &CheckedRun) -> bool {
        let dead = ran.outcome.answered == 0 && ran.outcome.sent > 0;
        if dead {
            // The rate does not matter here.
            let others = ran.verdict.complaints().filter(|check| check.id != "rate");
            self.ended = Some(SearchFailure::Dead(others.cloned().collect()));
        }
        dead
    }
}

fn is_gone(error: &LoadError) -> bool {
    matches!(error, LoadError::Connect { .. } | LoadError::ConnectTimeout { .. })
}

/// The same kind of arrivals at another rate.
fn at(run: &Run, rate_per_s: f64, duration: Duration) -> Run {
    // Four digits are finer than the search's precision.
    let finer = 10_f64.powf(3.0 - rate_per_s.log10().floor());
    let rate_per_s = (rate_per_s * finer).round() / finer;
    let schedule = match run.schedule {
        Schedule::Poisson { seed, .. } => Schedule::Poisson { rate_per_s, seed },
        Schedule::Constant { .. } | Schedule::Saturate => Schedule::Constant { rate_per_s },
    };
    Run { schedule, duration, ..run.clone() }
}

/// Why a step's requests could not be sent in time, so that it does not judge its rate.
fn unsent(outcome: &Outcome) -> Option<SloMiss> {
    let intended = outcome.intended;
    let unsent = intended - outcome.sent_in_schedule;
    (unsent * 1000 > intended).then(|| SloMiss::Unsent {
        unsent,
        intended,
        because: checks::unsent_because(outcome),
    })
}

#[cfg(test)]
mod tests;
