//! The number of rounds that fit into a duration.

use std::time::Duration;

use ::lab::Contender;
use ::record::{Experiment, RequestedRate, WorkloadKind};

use super::Args;
use crate::exit::BadInput;
use crate::units;

/// Turns `--duration` into rounds: a round visits each contender once at each load, and the hosts more often at rates.
pub(super) fn with_duration(
    mut experiment: Experiment,
    args: &Args,
    facts: &linux::features::Facts,
) -> anyhow::Result<Experiment> {
    let Some(text) = &args.duration else { return Ok(experiment) };
    let duration = units::duration(text).map_err(BadInput)?;
    if duration.is_zero() {
        return Err(BadInput("--duration must be more than zero".to_owned()).into());
    }
    if experiment.workload.kind == WorkloadKind::Download {
        let why = "a trial takes as long as its objects take; set the number of trials with --rounds";
        return Err(BadInput(format!("--duration does not apply to downloads: {why}")).into());
    }
    let contenders = ::lab::field(&experiment, facts, &args.plugins.dirs())?;
    let bodies = experiment.workload.body_bytes.len();
    let [slice, warmup] =
        [experiment.slice_ms, experiment.warmup_ms].map(|ms| Duration::from_millis(ms.into()));
    let racing: Vec<&Contender> = contenders.iter().filter(|one| one.races()).collect();
    let (hosts, others) = racing.split_at(racing.len().min(2));
    // The trials of a round at a load with so long between two requests. In addition to its two slices a
    // trial takes a few milliseconds to read counters and to wait for the last answers, and a twelfth in
    // which real-time threads rest.
    let once = |some: &[&Contender], period: Duration| -> Duration {
        let trial = |contender: &&Contender| {
            let patience = contender.wires(&experiment.underlay).patience();
            let slices = patience.slice(slice).max(period) + patience.warmup(warmup).max(period);
            slices + slices / 12 + patience.answer() + Duration::from_millis(5)
        };
        some.iter().map(trial).sum()
    };
    let at_rate = |period: Duration| {
        once(hosts, period) * ::lab::host_visits(true, others.len()) as u32 + once(others, period)
    };
    let closed = once(&racing, Duration::ZERO);
    let rates: Duration = periods(&experiment).into_iter().map(at_rate).sum();
    let rounds = duration.as_secs_f64() / ((closed + rates) * bodies as u32).as_secs_f64();
    experiment.rounds = (rounds.round() as u32).max(1);
    experiment.builds = experiment.builds.min(experiment.rounds);
    Ok(experiment)
}

/// How long it is between two requests at each of the rates; nothing for a share of a capacity, which is thousands.
fn periods(experiment: &Experiment) -> Vec<Duration> {
    if experiment.rates.is_empty() && !experiment.workload.kind.is_stream() {
        // Those of a race that names none.
        return vec![Duration::ZERO; 2];
    }
    let period = |rate: &RequestedRate| match rate {
        RequestedRate::PerSecond(per_s) => Duration::try_from_secs_f64(per_s.recip()).unwrap_or_default(),
        RequestedRate::OfCapacity(_) => Duration::ZERO,
    };
    experiment.rates.iter().map(period).collect()
}
