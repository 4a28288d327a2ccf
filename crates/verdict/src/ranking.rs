//! The contenders in the order in which a race is summed up.

use record::{RaceRecord, Statistic};
use stats::Interval;

use crate::{Comparisons, Verdict};

/// A contender that was judged at a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranked {
    /// Its index among the entrants.
    pub entrant: usize,
    /// The ratio of the load's headline to the reference's ([`Comparisons::headline`]).
    pub ratio: Interval,
    /// Against the reference.
    pub verdict: Verdict,
}

/// The load that a race is summed up by: the last load of the first body size that has a rate. Where a service should not
/// be loaded more, the paths differ most. `None` before anything was raced.
pub fn main_load(race: &RaceRecord) -> Option<usize> {
    let body = race.loads.first()?.body_bytes;
    let of_body = || race.loads.iter().enumerate().filter(|(_, load)| load.body_bytes == body);
    let rated = of_body().rfind(|(_, load)| load.rate_per_s.is_some());
    rated.or_else(|| of_body().next_back()).map(|(index, _)| index)
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
