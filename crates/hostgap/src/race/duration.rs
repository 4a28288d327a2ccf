//! The number of rounds that fit into a duration.

use std::time::Duration;

use ::lab::Contender;
use ::record::{Experiment, WorkloadKind};

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
    let streams = experiment.workload.kind.is_stream();
    let rates = if experiment.rates.is_empty() && !streams { 2 } else { experiment.rates.len() };
    let bodies = experiment.workload.body_bytes.len();
    let [slice, warmup] =
        [experiment.slice_ms, experiment.warmup_ms].map(|ms| Duration::from_millis(ms.into()));
    // In addition to its two slices a trial takes a few milliseconds to read counters and to wait for the last answers.
    let trial = |contender: &Contender| {
        let patience = contender.wires(&experiment.underlay).patience();
        patience.slice(slice) + patience.warmup(warmup) + patience.answer() + Duration::from_millis(5)
    };
    let racing: Vec<&Contender> = contenders.iter().filter(|one| one.unmet.is_empty()).collect();
    let (hosts, others) = racing.split_at(racing.len().min(2));
    let [hosts_once, others_once] =
        [hosts, others].map(|some| some.iter().map(|one| trial(one)).sum::<Duration>());
    let at_rate = hosts_once * ::lab::host_visits(true, others.len()) as u32 + others_once;
    let round = (hosts_once + others_once + at_rate * rates as u32) * bodies as u32;
    let rounds = duration.as_secs_f64() / round.as_secs_f64();
    experiment.rounds = (rounds.round() as u32).max(1);
    experiment.builds = experiment.builds.min(experiment.rounds);
    Ok(experiment)
}
