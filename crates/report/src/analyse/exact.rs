//! Instructions per request, where a virtual machine's clock counted them.
//!
//! On one connection in a closed loop the CPU is never idle, and a nanosecond is an instruction: the time of a trial ÷
//! its answers is what client, server and both nodes' kernels executed for one request. The mean and not a percentile:
//! the histograms have three digits, this has five.

use record::{Entrant, Experiment, RaceRecord, Round};

use crate::summary::{Exact, Instructions};
use crate::{carried, figures};
use verdict::Verdict;

/// One entry a load; empty where time was measured.
pub(super) fn exact(race: &RaceRecord) -> Vec<Exact> {
    if !race.header.experiment.exact() {
        return Vec::new();
    }
    let of_load = |(index, load): (usize, &record::Load)| Exact {
        body_bytes: load.body_bytes,
        candidates: instructions(race, index),
    };
    race.loads.iter().enumerate().map(of_load).collect()
}

fn instructions(race: &RaceRecord, load: usize) -> Vec<Instructions> {
    let entrants = race.header.entrants.iter().enumerate();
    let runs: Vec<(&Entrant, Vec<f64>)> =
        entrants.map(|(index, entrant)| (entrant, runs(race, load, index))).collect();
    let figure = |at: usize| runs.get(at).and_then(|(_, runs)| stats::median(runs));
    let reference = figure(0);
    let spread_of = |runs: &[f64]| {
        let most = runs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let least = runs.iter().copied().fold(f64::INFINITY, f64::min);
        stats::median(runs).map(|median| (most - least) / median)
    };
    // The reference's difference from itself, between repetitions or between topologies.
    let again = figure(1).zip(reference).map_or(0.0, |(again, reference)| (again / reference - 1.0).abs());
    let noise = runs.first().and_then(|(_, runs)| spread_of(runs)).unwrap_or(0.0).max(again);
    let of = |(index, (entrant, runs)): (usize, &(&Entrant, Vec<f64>))| {
        let per_request = stats::median(runs)?;
        let over = reference.map(|reference| per_request / reference - 1.0);
        let spread = spread_of(runs).unwrap_or(0.0);
        Some(Instructions {
            name: entrant.name.clone(),
            per_request,
            spread,
            repetitions: runs.len() as u64,
            more: reference.map(|reference| per_request - reference),
            over,
            verdict: match over {
                _ if index == 0 => Verdict::Reference,
                Some(over) if over > noise.max(spread) => Verdict::Worse,
                Some(over) if -over > noise.max(spread) => Verdict::Better,
                _ => Verdict::Indistinguishable,
            },
        })
    };
    runs.iter().enumerate().filter_map(of).collect()
}

/// Instructions per request of each repetition: the median of its rounds.
fn runs(race: &RaceRecord, load: usize, entrant: usize) -> Vec<f64> {
    // By their numbers: a round that is missing in the record must not shift those behind it into another repetition.
    let repetition = |round: &Round| round.round / Experiment::EXACT_ROUNDS;
    let of_rounds = |rounds: &[Round]| {
        let trials = rounds.iter().flat_map(|round| &round.trials);
        let counted: Vec<f64> = trials
            .filter(|trial| trial.entrant == entrant && trial.load == load && trial.void.is_none())
            .filter(|trial| trial.answered_in_time > 0)
            .map(|trial| trial.duration_ns as f64 / trial.answered_in_time as f64)
            .collect();
        stats::median(&counted)
    };
    race.rounds.chunk_by(|one, next| repetition(one) == repetition(next)).filter_map(of_rounds).collect()
}

/// The counts in a sentence: the cheapest contender and the dearest.
pub(super) fn sentence(exact: &[Exact], race: &RaceRecord) -> String {
    let measure = race.header.experiment.workload.kind.measure();
    let Some(counts) = exact.first().filter(|counts| !counts.candidates.is_empty()) else {
        return "nothing has been counted yet".to_owned();
    };
    // Whoever has no trial that counts is not among them.
    let is = |place: usize| {
        let name = race.header.entrants.get(place).map_or("", |entrant| entrant.name.as_str());
        move |of: &&Instructions| of.name == name
    };
    let Some(reference) = counts.candidates.iter().find(is(0)) else {
        let name = race.header.entrants.first().map_or("the reference", |entrant| entrant.name.as_str());
        return format!("no trial of {name} counts, so nothing is compared with it");
    };
    let others = counts.candidates.iter().filter(|of| !is(0)(of) && !is(1)(of));
    let mut contenders: Vec<&Instructions> = others.collect();
    contenders.sort_by(|a, b| a.per_request.total_cmp(&b.per_request));
    let phrase = |contender: &Instructions| {
        let within = if contender.verdict == Verdict::Indistinguishable { " (within the noise)" } else { "" };
        match contender.over {
            Some(over) => format!("{} {}{within}", contender.name, figures::change(1.0 + over)),
            None => contender.name.clone(),
        }
    };
    // The others are in the table.
    let load = if exact.len() > 1 { format!("{} B: ", counts.body_bytes) } else { String::new() };
    let figure = format!(
        "{load}{} takes {:.0} instructions a {}",
        reference.name,
        reference.per_request,
        carried::subject(measure)
    );
    match contenders.as_slice() {
        [] => figure,
        [only] => format!("{figure}; {}", phrase(only)),
        [least, .., most] => {
            // Filters lie on both sides of the reference, as do spliced paths and a stack without the kernel's.
            let below = measure == record::Measure::Frames || least.over.is_some_and(|over| over < 0.0);
            let which = if below { "the least" } else { "the least above it" };
            format!("{figure}; {which} is {}, the most {}", phrase(least), phrase(most))
        }
    }
}
