//! The reference's highest sustained rate.

use std::time::Duration;

use record::{Capacity, Experiment, Load, RequestedRate};

use crate::LabError;
use crate::part::{Elsewhere, RequestCounts};
use crate::trial::{Method, Subject, rest, run_everywhere};

/// Slices of closed loop from which the search starts.
const SAMPLES: usize = 9;
/// A slice of the search, at least.
const SLICE: Duration = Duration::from_millis(150);
/// A slice in which nothing was answered was too short: the next takes twice as long. After so many of them, the
/// reference is broken: 150 ms × 2⁵ = 4.8 s without an answer.
const DOUBLINGS: u32 = 5;
/// The same where the answers came after its end: the reference is slow, or has little of its CPUs, 150 ms × 2⁹ = 77 s.
const LATE_DOUBLINGS: u32 = 9;
/// A rate is sustained if this share of it finds a free connection within the schedule's time and nothing is missed,
/// unless the wire loses packets.
const SUSTAINED: f64 = 0.99;
/// The search goes down from the closed loop's rate by this factor a step.
const STEP: f64 = 0.96;
/// At most so many steps down: 0.96¹² = 0.61.
const STEPS: i32 = 12;

/// Finds how many requests per second the reference answers at a constant rate. The closed loop's median is where
/// the search starts: no constant rate above it can be sustained. From there it goes down until a rate is. `None`
/// if asked to stop.
pub(crate) fn capacity(
    subject: &mut dyn Subject,
    method: &Method,
    body_bytes: u32,
    stop: impl Fn() -> bool,
) -> Result<Option<Capacity>, LabError> {
    let Some((samples_per_s, slice)) = closed_loop(subject, method, body_bytes, &stop)? else {
        return Ok(None);
    };
    let most = stats::median(&samples_per_s).expect("there are samples");
    for step in 0..STEPS {
        if stop() {
            return Ok(None);
        }
        let rate_per_s = most * STEP.powi(step);
        let load = Load::at_rate(body_bytes, rate_per_s);
        rest(method, slice);
        let counts = sample(subject, method, &load, slice)?;
        let in_time = counts.sent_in_schedule as f64 >= SUSTAINED * counts.intended as f64;
        // A datagram that a wire loses is missed at any rate.
        if in_time && (counts.missed == 0 || subject.patience().is_lossy()) {
            return Ok(Some(Capacity { body_bytes, rate_per_s, samples_per_s }));
        }
    }
    // Nothing was sustained: the machine is not quiet. The next step down is the best guess that is left.
    let rate_per_s = most * STEP.powi(STEPS);
    Ok(Some(Capacity { body_bytes, rate_per_s, samples_per_s }))
}

/// How many requests per second the reference answers in each slice of a closed loop, and the length that a slice needs
/// to hold answers. `None` if asked to stop.
fn closed_loop(
    subject: &mut dyn Subject,
    method: &Method,
    body_bytes: u32,
    stop: impl Fn() -> bool,
) -> Result<Option<(Vec<f64>, Duration)>, LabError> {
    let shortest = subject.patience().slice(SLICE);
    let mut slice = shortest;
    let saturate = Load::closed_loop(body_bytes);
    let mut samples_per_s = Vec::with_capacity(SAMPLES);
    while samples_per_s.len() < SAMPLES {
        if stop() {
            return Ok(None);
        }
        rest(method, slice);
        let counts = sample(subject, method, &saturate, slice)?;
        let doublings = if counts.answered > 0 { LATE_DOUBLINGS } else { DOUBLINGS };
        if counts.answered_per_s > 0.0 {
            samples_per_s.push(counts.answered_per_s);
        } else if slice < shortest * 2_u32.pow(doublings) {
            slice *= 2;
        } else {
            let what = format!("it answered nothing within {slice:?} while its capacity was sought");
            return Err(LabError::Broken { candidate: subject.name().to_owned(), what });
        }
    }
    Ok(Some((samples_per_s, slice)))
}

/// The requests of all clients in a slice, and how many a second they got answered.
fn sample(
    subject: &mut dyn Subject,
    method: &Method,
    load: &Load,
    slice: Duration,
) -> Result<RequestCounts, LabError> {
    let (outcome, Elsewhere { parts, .. }) = run_everywhere(subject, method, load, slice, (None, None))?;
    let mut counts = RequestCounts::of(&outcome);
    parts.iter().for_each(|part| counts += part.counts);
    Ok(counts)
}

/// The loads of a workload whose rates are not shares of anything: the closed loop, then the rates.
pub(crate) fn without_capacity(experiment: &Experiment) -> Vec<Load> {
    let rates = || {
        let rates = experiment.rates.iter().filter_map(|rate| match rate {
            RequestedRate::PerSecond(rate) => Some(Some(*rate)),
            RequestedRate::OfCapacity(_) => None,
        });
        std::iter::once(None).chain(rates)
    };
    let sizes = experiment.workload.body_bytes.iter().copied();
    sizes
        .flat_map(|body_bytes| {
            rates().map(move |rate_per_s| Load { rate_per_s, ..Load::closed_loop(body_bytes) })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use record::{Workload, WorkloadKind};

    use super::*;

    #[test]
    fn streams_go_as_fast_as_they_can_and_at_the_rates() {
        let workload = Workload { body_bytes: vec![64, 512], ..Workload::of(WorkloadKind::UdpStream) };
        let rates = vec![RequestedRate::PerSecond(5000.0)];
        let loads = without_capacity(&Experiment { workload, rates, ..Experiment::default() });
        let rates_of_loads: Vec<_> = loads.iter().map(|load| (load.body_bytes, load.rate_per_s)).collect();
        assert_eq!(rates_of_loads, [(64, None), (64, Some(5000.0)), (512, None), (512, Some(5000.0))]);
    }
}
