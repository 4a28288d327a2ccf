//! The load by which a race is summed up, and its contenders in order there.

use std::collections::BTreeSet;

use record::{Load, RaceRecord, Statistic};
use stats::Interval;

use crate::{Cells, Comparisons, Shortfall, Verdict};

/// The load at which candidates are compared in a summary, and for whom the usual one is too much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparedAt {
    /// The load that a race is summed up by: the last load of the first body size that has a rate. Where a service should
    /// not be loaded more, the paths differ most.
    pub main: usize,
    /// Who is past its capacity there.
    pub past: Vec<Past>,
    /// The load at which they are compared: the main one if no entrant is past its capacity there, else the highest lower
    /// rate of the same size that all carry, else the closed loop, in which none gets more than it can carry. `None` where
    /// there is no such load.
    pub load: Option<usize>,
}

/// An entrant that is past its capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Past {
    /// In which of several races.
    pub race: usize,
    /// The entrant's index there.
    pub entrant: usize,
}

/// A race with its cells.
type Raced<'a> = (&'a RaceRecord, &'a Cells<'a>);

impl ComparedAt {
    /// Of a race, or of several with the same entrants and loads. `None` before anything was raced.
    pub fn of(races: &[Raced<'_>]) -> Option<ComparedAt> {
        let loads = races.iter().map(|(race, _)| &race.loads).find(|loads| !loads.is_empty())?;
        let main = main_load(loads)?;
        let past_in = |(index, raced): (usize, &Raced<'_>)| {
            let past = compared(*raced).filter(|entrant| is_past(*raced, *entrant, main));
            past.map(|entrant| Past { race: index, entrant }).collect::<Vec<_>>()
        };
        let past: Vec<Past> = races.iter().enumerate().flat_map(past_in).collect();
        // A race that ended before it came to a load says nothing of it, but some race must.
        let entrants: BTreeSet<usize> = races.iter().flat_map(|raced| compared(*raced)).collect();
        let is_carried = |load: usize| {
            entrants.iter().all(|entrant| {
                races.iter().any(|raced| has_trials(*raced, *entrant, load))
                    && races.iter().all(|raced| !is_past(*raced, *entrant, load))
            })
        };
        let load = if past.is_empty() { Some(main) } else { lower(loads, main, is_carried) };
        Some(ComparedAt { main, past, load })
    }
}

fn main_load(loads: &[Load]) -> Option<usize> {
    let body = loads.first()?.body_bytes;
    let of_body = || loads.iter().enumerate().filter(|(_, load)| load.body_bytes == body);
    let rated = of_body().rfind(|(_, load)| load.rate_per_s.is_some());
    rated.or_else(|| of_body().next_back()).map(|(index, _)| index)
}

/// The highest rate below the main load's that is carried, else the closed loop.
fn lower(loads: &[Load], main: usize, is_carried: impl Fn(usize) -> bool) -> Option<usize> {
    let body = loads[main].body_bytes;
    let of_body = || loads.iter().enumerate().filter(|(_, load)| load.body_bytes == body);
    let carried = of_body()
        .filter_map(|(index, load)| Some((index, load.rate_per_s?)))
        .filter(|(index, rate)| Some(*rate) < loads[main].rate_per_s && is_carried(*index))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let closed = || of_body().find(|(_, load)| load.rate_per_s.is_none());
    carried.map(|(index, _)| index).or_else(|| closed().map(|(index, _)| index))
}

/// All that could run but the control, which is the reference once more, and who broke, which is compared with nothing.
fn compared<'a>((race, cells): Raced<'a>) -> impl Iterator<Item = usize> + 'a {
    let entrants = race.header.entrants.iter().enumerate();
    let able =
        entrants.filter(|(entrant, one)| *entrant != 1 && one.unmet.is_empty() && !cells.broke[*entrant]);
    able.map(|(entrant, _)| entrant)
}

fn has_trials((race, cells): Raced<'_>, entrant: usize, load: usize) -> bool {
    race.loads.len() > load && !cells.cell(entrant, load).trials.is_empty()
}

fn is_past((race, cells): Raced<'_>, entrant: usize, load: usize) -> bool {
    has_trials((race, cells), entrant, load)
        && Shortfall::of(race, cells, entrant, load).is_some_and(|short| short.queued)
}

/// A contender that was judged at a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranked {
    /// Its index among the entrants.
    pub entrant: usize,
    /// The ratio of the load's headline to the reference's ([`Comparisons::headline`]).
    pub ratio: Interval,
    /// The verdict on it against the reference.
    pub verdict: Verdict,
}

/// The contenders that were judged, the best first: those that beat the reference, those that cannot be distinguished from
/// it, those that are worse; among equals by their ratio to it.
pub fn ranking(comparisons: &Comparisons, entrants: usize, load: usize) -> Vec<Ranked> {
    let of = comparisons.headline(load);
    let ranked = |entrant: usize| {
        let ratio = comparisons.interval(entrant, load, of)?;
        Some(Ranked { entrant, ratio, verdict: comparisons.judged(entrant, load).verdict()? })
    };
    let mut field: Vec<Ranked> = (2..entrants).filter_map(ranked).collect();
    field.sort_by(|a, b| {
        let by_ratio = a.ratio.value.total_cmp(&b.ratio.value);
        let best_first = if of == Statistic::Throughput { by_ratio.reverse() } else { by_ratio };
        place(a.verdict).cmp(&place(b.verdict)).then(best_first)
    });
    field
}

fn place(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Better => 0,
        Verdict::Reference | Verdict::Indistinguishable => 1,
        Verdict::Worse => 2,
    }
}
