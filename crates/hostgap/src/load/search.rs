//! Search for the highest rate at which the limits hold.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::load::checks;
use ::load::{Client, LoadError, Outcome, Run, Schedule, WhenBusy};

use super::job::Job;
use super::slo::Slo;
use super::{Ran, judged};
use crate::speak;

/// The search ends when the rate is known to this relative precision.
const PRECISION: f64 = 0.02;

/// A step takes this part of the whole duration, since there are about ten of them, and at least the minimum below.
const STEP_PART: u32 = 5;
const STEP_MIN: Duration = Duration::from_millis(500);

/// How often the found rate is reduced by [`PRECISION`] when a full-length run does not confirm it.
const CONFIRMATIONS: u32 = 10;

/// One rate that was tried.
pub(super) struct Tried {
    pub(super) rate_per_s: f64,
    /// Why the limits did not hold; `None`: they held.
    pub(super) broken: Option<String>,
}

/// The result of the search.
pub(super) struct Found {
    pub(super) tried: Vec<Tried>,
    /// The full-length run at the highest rate that held; `None`: no rate held.
    pub(super) best: Option<Ran>,
    /// Why the search found no rate; `None` if it found one, or was interrupted.
    pub(super) ended: Option<String>,
}

/// Searches. If the server disappears meanwhile, that is the result.
pub(super) fn search(
    clients: &mut [Client],
    job: &Job,
    slo: &Slo,
    stop: &AtomicBool,
) -> anyhow::Result<Found> {
    let mut found = Found { tried: Vec::new(), best: None, ended: None };
    match found.search(clients, job, slo, stop) {
        Err(error) if is_gone(&error) && !found.tried.is_empty() => {
            found.ended = Some(format!("the server disappeared: {error:#}"));
        }
        ended => ended?,
    }
    Ok(found)
}

fn is_gone(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(LoadError::Connect { .. } | LoadError::ConnectTimeout { .. }))
}

impl Found {
    /// Bisects between a rate that holds and one that does not. It starts from the throughput with every connection
    /// always busy, which no rate can exceed. Then a full-length run has to confirm the rate: a short step has too few
    /// requests beyond a high percentile.
    fn search(
        &mut self,
        clients: &mut [Client],
        job: &Job,
        slo: &Slo,
        stop: &AtomicBool,
    ) -> anyhow::Result<()> {
        let step = (job.run.duration / STEP_PART).max(STEP_MIN);
        let saturate = Run {
            duration: step,
            schedule: Schedule::Saturate,
            when_busy: WhenBusy::Wait,
            ..job.run.clone()
        };
        let most = judged(clients, job, &saturate, stop, "closed loop")?;
        if self.end_if_dead(&most) {
            return Ok(());
        }
        // Requests that were sent within the step, whenever they were answered: an answer may take longer than the
        // step.
        let most_per_s =
            most.outcome.answered as f64 / most.outcome.duration.as_secs_f64().max(f64::MIN_POSITIVE);
        let (mut holds, mut fails) = (0.0, most_per_s.max(1.0) * (1.0 + PRECISION));
        while fails - holds > fails * PRECISION && !stop.load(Ordering::Relaxed) {
            let rate_per_s = (holds + fails) / 2.0;
            // Below this rate a search makes no sense.
            if rate_per_s < 1.0 {
                self.end("no rate of at least one request a second held");
                return Ok(());
            }
            let ran = judged(clients, job, &at(job, rate_per_s, step), stop, "searching:")?;
            if self.note(&ran, slo) {
                holds = rate_per_s;
            } else {
                fails = rate_per_s;
            }
            if self.end_if_dead(&ran) {
                return Ok(());
            }
        }
        for _ in 0..CONFIRMATIONS {
            if stop.load(Ordering::Relaxed) || holds == 0.0 {
                return Ok(());
            }
            let ran = judged(clients, job, &at(job, holds, job.run.duration), stop, "confirming:")?;
            if self.note(&ran, slo) {
                self.best = Some(ran);
                return Ok(());
            }
            if self.end_if_dead(&ran) {
                return Ok(());
            }
            holds *= 1.0 - PRECISION;
        }
        self.end("no full-length run confirmed the rate that short ones had found");
        Ok(())
    }

    /// Records the tried rate, and returns whether it held.
    fn note(&mut self, ran: &Ran, slo: &Slo) -> bool {
        let rate_per_s = ran.schedule.rate_per_s().unwrap_or_default();
        let broken = late(&ran.outcome).or_else(|| slo.broken(&ran.outcome));
        match &broken {
            Some(why) => speak::aside(format_args!("{rate_per_s}/s: no, {why}")),
            None => speak::aside(format_args!("{rate_per_s}/s: yes")),
        }
        let holds = broken.is_none();
        self.tried.push(Tried { rate_per_s, broken });
        holds
    }

    /// Records why no rate was found, with the reason why the last one failed.
    fn end(&mut self, why: &str) {
        let last = self.tried.iter().rev().find_map(|tried| tried.broken.as_deref());
        self.ended = Some(last.map_or(why.to_owned(), |last| format!("{why}; the last one failed: {last}")));
    }

    /// A server without a single expected answer has no highest rate, and each further step would only wait for another
    /// time-out.
    fn end_if_dead(&mut self, ran: &Ran) -> bool {
        let dead = ran.outcome.answered == 0 && ran.outcome.sent > 0;
        if dead {
            // The rate does not matter here.
            let others = ran.verdict.complaints().filter(|check| check.id != "rate");
            let text = others.map(|check| check.text.as_str()).collect::<Vec<_>>().join("; ");
            self.ended = Some(format!("no answer of the server was as expected: {text}"));
        }
        dead
    }
}

/// The same kind of arrivals at another rate.
fn at(job: &Job, rate_per_s: f64, duration: Duration) -> Run {
    // Four digits are finer than the search's precision.
    let finer = 10_f64.powf(3.0 - rate_per_s.log10().floor());
    let rate_per_s = (rate_per_s * finer).round() / finer;
    let schedule = match job.run.schedule {
        Schedule::Poisson { seed, .. } => Schedule::Poisson { rate_per_s, seed },
        Schedule::Constant { .. } | Schedule::Saturate => Schedule::Constant { rate_per_s },
    };
    Run { schedule, duration, ..job.run.clone() }
}

/// Why a step's requests could not be sent in time, so that it says nothing about its rate.
fn late(outcome: &Outcome) -> Option<String> {
    let unsent = outcome.intended - outcome.sent_in_schedule;
    (unsent * 1000 > outcome.intended).then(|| {
        let why = checks::unsent_because(outcome);
        format!("{unsent} of {} requests could not be sent in time: {why}", outcome.intended)
    })
}
