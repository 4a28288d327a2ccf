//! Where each candidate's CPU time goes: samples of the nodes' CPUs, taken after the rounds, so that no trial is
//! sampled, while the last build still stands.

use std::collections::BTreeMap;
use std::time::Duration;

use linux::perf::{Profiler, Samples, Symbols};
use linux::{CpuSet, clock};
use record::{Load, Measure, Profile, Void};
use stats::Random;

use crate::repeats::until_answered;
use crate::trial::{Method, connections, rest, run, warmup};
use crate::trial_key::TrialKey;
use crate::visits::{Visit, visit_all};
use crate::void::unanswered_slice;
use crate::{BuiltTopology, Event, LabError, NodeCpus, workload};

mod fold;

use fold::Folder;

/// Nanoseconds between samples of a CPU: about 4700 a second, each of which takes a few microseconds away from whatever
/// runs. It is no multiple of the round intervals between requests (10, 20, 50 µs), and to each of those its remainder
/// is near the golden section, so that the samples fall on all parts of a request alike.
const PERIOD_NS: u64 = 212_361;

/// A slice: long against the generator's start, short against what a CPU's buffer holds.
const SLICE: Duration = Duration::from_millis(250);

/// How often each candidate is visited: two seconds of each in all. A part that takes a microsecond of a request of
/// 20 µs of CPU time on two busy CPUs is then found by about a thousand samples, that is to 3 %.
const VISITS: usize = 8;

/// An error if this machine cannot be sampled, before anything was changed.
pub(crate) fn possible(cpus: &NodeCpus) -> Result<(), LabError> {
    Profiler::new(&cpus.all(), PERIOD_NS)?;
    Symbols::kernel()?;
    Ok(())
}

/// Samples all candidates, in shuffled order, several times; at the highest rate of each body size, where all do the
/// same work, and in a closed loop where there is no rate. `None` if asked to stop.
pub(crate) fn profile(
    runners: &mut [(usize, BuiltTopology)],
    loads: &[Load],
    method: &Method,
    rng: &mut Random,
    stop: impl Fn() -> bool,
    emit: &mut dyn FnMut(Event),
) -> Result<Option<Vec<Profile>>, LabError> {
    let cpus = method.cpus.all();
    let mut profiler = Profiler::new(&cpus, PERIOD_NS)?;
    // Modules and programs of the candidates are loaded by now.
    let mut folder = Folder::new(Symbols::kernel()?);
    let mut found: BTreeMap<(usize, usize), (Profile, BTreeMap<String, u64>)> = BTreeMap::new();
    let visited = visit_all(runners, &highest(loads), VISITS, rng, stop, |visited, _| {
        let Visit { entrant, load, built, done, total } = visited;
        emit(Event::Profiling { name: built.name.clone(), done, total });
        let (profile, stacks) =
            found.entry((load, entrant)).or_insert_with(|| (empty(entrant, load, &cpus), BTreeMap::new()));
        let name = built.name.clone();
        let sampled = || built.awake(|built| visit(built, method, &loads[load], &mut profiler));
        let (slice, samples) = until_answered(&name, emit, sampled)?;
        profile.requests += slice.answered;
        profile.duration_ns += slice.duration_ns;
        profile.lost += samples.lost;
        profile.idle += folder.add(&samples.samples, stacks);
        Ok(())
    })?;
    if !visited {
        return Ok(None);
    }
    let profiles = found
        .into_values()
        .map(|(profile, stacks)| Profile { stacks: stacks.into_iter().collect(), ..profile });
    Ok(Some(profiles.collect()))
}

/// What a slice was.
struct Slice {
    answered: u64,
    duration_ns: u64,
}

/// One slice of one candidate, sampled, and why it does not count.
fn visit(
    built: &mut BuiltTopology,
    method: &Method,
    load: &Load,
    profiler: &mut Profiler,
) -> Result<((Slice, Samples), Option<Void>), LabError> {
    let measure = built.workload.kind.measure();
    if measure == Measure::Latency {
        let warmup = warmup(method.warmup, load, connections(built, load.body_bytes));
        rest(method, warmup + SLICE);
        run(built, method, load, warmup, None)?;
    }
    profiler.start()?;
    let begin_ns = clock::now_ns();
    let answered = match measure {
        Measure::Latency => requests(built, method, load),
        Measure::Bandwidth | Measure::Packets | Measure::Frames => {
            carried(built, method, load, measure).map(|answered| (answered, None))
        }
    };
    let duration_ns = clock::now_ns() - begin_ns;
    // Whatever came of the load: a profiler that goes on would sample the next trial.
    let samples = profiler.stop()?;
    let (answered, void) = answered?;
    built.check_server()?;
    if let Some(what) = built.changed()? {
        return Err(built.path_broken(&what));
    }
    Ok(((Slice { answered, duration_ns }, samples), void))
}

fn requests(
    built: &mut BuiltTopology,
    method: &Method,
    load: &Load,
) -> Result<(u64, Option<Void>), LabError> {
    let outcome = run(built, method, load, SLICE, None)?;
    Ok((outcome.answered, unanswered_slice(load, &outcome)))
}

/// The unit of CPU time for workloads without answers: packets that arrived, or megabytes.
fn carried(
    built: &mut BuiltTopology,
    method: &Method,
    load: &Load,
    measure: Measure,
) -> Result<u64, LabError> {
    // All that is sampled is to count, so there is nothing before the slice.
    let method = Method { slice: SLICE, warmup: Duration::ZERO, ..method.clone() };
    let trial = workload::of(built.workload.kind).trial(built, &method, load, TrialKey::NONE)?;
    let bytes = trial.carried.as_ref().map_or(0, |carried| carried.bytes);
    Ok(if measure == Measure::Packets { trial.answered } else { bytes / 1_000_000 })
}

fn empty(entrant: usize, load: usize, cpus: &CpuSet) -> Profile {
    Profile {
        entrant,
        load,
        requests: 0,
        duration_ns: 0,
        cpus: cpus.len() as u32,
        period_ns: PERIOD_NS,
        lost: 0,
        idle: 0,
        stacks: Vec::new(),
    }
}

/// The load with the highest rate of each body size, as indexes, in order; the one without a rate, where there is no
/// other.
fn highest(loads: &[Load]) -> Vec<usize> {
    let mut best: BTreeMap<u32, (f64, usize)> = BTreeMap::new();
    for (index, load) in loads.iter().enumerate() {
        let rate = load.rate_per_s.unwrap_or(0.0);
        let entry = best.entry(load.body_bytes).or_insert((rate, index));
        if rate > entry.0 {
            *entry = (rate, index);
        }
    }
    best.into_values().map(|(_, index)| index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_rate_of_each_size_is_sampled() {
        let load = |body_bytes, rate_per_s| Load { rate_per_s, ..Load::closed_loop(body_bytes) };
        let loads = [
            load(4096, None),
            load(4096, Some(20.0)),
            load(100, None),
            load(100, Some(50.0)),
            load(100, Some(30.0)),
        ];
        assert_eq!(highest(&loads), [3, 1]);
        assert_eq!(highest(&loads[..1]), [0], "a closed loop, where there is nothing else");
    }

    #[test]
    fn samples_keep_no_step_with_requests() {
        for interval_ns in [10_000.0, 20_000.0, 50_000.0] {
            let beyond = (PERIOD_NS as f64 / interval_ns).fract();
            assert!((0.2..0.8).contains(&beyond) && (beyond - 0.5).abs() > 0.05, "{interval_ns}: {beyond}");
        }
    }
}
