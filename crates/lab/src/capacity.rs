//! The reference's highest sustained rate.

use std::time::Duration;

use record::{Capacity, Experiment, Load, RequestedRate};

use crate::trial::{Method, run};
use crate::{BuiltTopology, LabError};

/// Slices of closed loop from which the search starts.
const SAMPLES: usize = 9;
/// A slice of the search, at least.
const SLICE: Duration = Duration::from_millis(150);
/// A rate is sustained if this share of it finds a free connection within the schedule's time and nothing is missed.
const SUSTAINED: f64 = 0.99;
/// The search goes down from the closed loop's rate by this factor a step.
const STEP: f64 = 0.96;
/// At most so many steps down: 0.96¹² = 0.61.
const STEPS: i32 = 12;

/// Finds how many requests per second the reference answers at a constant rate. The closed loop's median is where the
/// search starts: no constant rate above it can be sustained. From there it goes down until a rate is. `None` if asked to
/// stop.
pub(crate) fn capacity(
    built: &mut BuiltTopology,
    method: &Method,
    body_bytes: u32,
    stop: impl Fn() -> bool,
) -> Result<Option<Capacity>, LabError> {
    let slice = built.topology.shape.wires.patience().slice(SLICE);
    let saturate = Load { body_bytes, rate_per_s: None, of_capacity: None };
    let mut samples_per_s = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        if stop() {
            return Ok(None);
        }
        let outcome = run(built, method, &saturate, slice, None)?;
        samples_per_s.push(outcome.answered_per_s());
    }
    let most = stats::median(&samples_per_s).expect("there are samples");
    if most < 1.0 {
        let what = "it answered nothing while its capacity was sought".to_owned();
        return Err(LabError::Broken { candidate: built.name.clone(), what });
    }
    for step in 0..STEPS {
        if stop() {
            return Ok(None);
        }
        let rate_per_s = most * STEP.powi(step);
        let load = Load { body_bytes, rate_per_s: Some(rate_per_s), of_capacity: None };
        let outcome = run(built, method, &load, slice, None)?;
        let in_time = outcome.sent_in_schedule as f64 >= SUSTAINED * outcome.intended as f64;
        if in_time && outcome.missed.count() == 0 {
            return Ok(Some(Capacity { body_bytes, rate_per_s, samples_per_s }));
        }
    }
    // Nothing was sustained: the machine is not quiet. The next step down is the best guess that is left.
    let rate_per_s = most * STEP.powi(STEPS);
    Ok(Some(Capacity { body_bytes, rate_per_s, samples_per_s }))
}

/// The loads of a workload whose rates are not shares of anything: the closed loop, then the rates.
pub(crate) fn without_capacity(experiment: &Experiment) -> Vec<Load> {
    let rates = || {
        let asked = experiment.rates.iter().filter_map(|rate| match rate {
            RequestedRate::PerSecond(rate) => Some(Some(*rate)),
            RequestedRate::OfCapacity(_) => None,
        });
        std::iter::once(None).chain(asked)
    };
    let sizes = experiment.workload.body_bytes.iter().copied();
    sizes
        .flat_map(|body_bytes| {
            rates().map(move |rate_per_s| Load { body_bytes, rate_per_s, of_capacity: None })
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
        let told: Vec<_> = loads.iter().map(|load| (load.body_bytes, load.rate_per_s)).collect();
        assert_eq!(told, [(64, None), (64, Some(5000.0)), (512, None), (512, Some(5000.0))]);
    }
}
