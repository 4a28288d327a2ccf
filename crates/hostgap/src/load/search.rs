//! The highest rate at which the limits hold.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::load::checks;
use ::load::{Client, LoadError, Outcome, Run, Schedule, WhenBusy};

use super::job::Job;
use super::slo::Slo;
use super::{Ran, judged};
use crate::speak;

/// The search ends when it is known to this part of the rate.
const PRECISION: f64 = 0.02;

/// A step takes this part of the whole duration, since there are about ten of them, and at least as long as below.
const STEP_PART: u32 = 5;
const STEP_MIN: Duration = Duration::from_millis(500);

/// How often the rate that was found is taken back by [`PRECISION`] when a whole run does not confirm it.
const CONFIRMATIONS: u32 = 10;

/// One rate that was tried.
pub(super) struct Tried {
    pub(super) rate_per_s: f64,
    /// Why the limits did not hold; `None`: they did.
    pub(super) broken: Option<String>,
}

/// What was found.
pub(super) struct Found {
    pub(super) tried: Vec<Tried>,
    /// The run at the highest rate that held, as long as asked for; `None`: no rate held.
    pub(super) best: Option<Ran>,
    /// Why the search ended without one; `None` if it did not, or if it was interrupted.
    pub(super) ended: Option<String>,
}

/// Searches, and if the server goes away meanwhile, ends with that.
pub(super) fn search(
    clients: &mut [Client],
    job: &Job,
    slo: &Slo,
    stop: &AtomicBool,
) -> anyhow::Result<Found> {
    let mut found = Found { tried: Vec::new(), best: None, ended: None };
    match found.search(clients, job, slo, stop) {
        Err(error) if is_gone(&error) && !found.tried.is_empty() => {
            found.ended = Some(format!("the server was gone: {error:#}"));
        }
        ended => ended?,
    }
    Ok(found)
}

fn is_gone(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(LoadError::Connect { .. } | LoadError::ConnectTimeout { .. }))
}

impl Found {
    /// Halves the span between a rate that holds and one that does not, starting from what the server answers when every
    /// connection is always busy, which no rate can be above. Then a whole run has to confirm it: a short step has too few
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
        // Those that were sent within the step, whenever they were answered: an answer may take longer than the step.
        let most_per_s =
            most.outcome.answered as f64 / most.outcome.duration.as_secs_f64().max(f64::MIN_POSITIVE);
        let (mut holds, mut fails) = (0.0, most_per_s.max(1.0) * (1.0 + PRECISION));
        while fails - holds > fails * PRECISION && !stop.load(Ordering::Relaxed) {
            let rate_per_s = (holds + fails) / 2.0;
            // Far below any rate that a limit of time can be about, there is nothing to be found.
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
        self.end("no run of the whole duration confirmed what short ones had found");
        Ok(())
    }

    /// Notes what was tried, and says whether it held.
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

    /// Notes why there is nothing to be found, with what the last rate that was tried broke.
    fn end(&mut self, why: &str) {
        let last = self.tried.iter().rev().find_map(|tried| tried.broken.as_deref());
        self.ended =
            Some(last.map_or(why.to_owned(), |last| format!("{why}; the last that did not: {last}")));
    }

    /// A server that answers nothing at all as expected has no highest rate, and each further step would only wait for
    /// it once more.
    fn end_if_dead(&mut self, ran: &Ran) -> bool {
        let dead = ran.outcome.answered == 0 && ran.outcome.sent > 0;
        if dead {
            // At which rate it answers nothing does not matter.
            let others = ran.verdict.complaints().filter(|check| check.id != "rate");
            let text = others.map(|check| check.text.as_str()).collect::<Vec<_>>().join("; ");
            self.ended = Some(format!("the server answered nothing as expected: {text}"));
        }
        dead
    }
}

/// The same kind of arrivals at another rate.
fn at(job: &Job, rate_per_s: f64, duration: Duration) -> Run {
    // Four digits are finer than the search and can be read.
    let finer = 10_f64.powf(3.0 - rate_per_s.log10().floor());
    let rate_per_s = (rate_per_s * finer).round() / finer;
    let schedule = match job.run.schedule {
        Schedule::Poisson { seed, .. } => Schedule::Poisson { rate_per_s, seed },
        Schedule::Constant { .. } | Schedule::Saturate => Schedule::Constant { rate_per_s },
    };
    Run { schedule, duration, ..job.run.clone() }
}

/// A rate that was not sent was not tried.
fn late(outcome: &Outcome) -> Option<String> {
    let unsent = outcome.intended - outcome.sent_in_schedule;
    (unsent * 1000 > outcome.intended).then(|| {
        let why = checks::unsent_because(outcome);
        format!("{unsent} of {} requests could not be sent in time: {why}", outcome.intended)
    })
}
