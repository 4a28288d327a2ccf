//! A statistic of a cell: of all its trials, and of each resample.

use record::Statistic;
use stats::{Percentile, Resamples, Spread};

use crate::Cell;

/// The fewest slices of which one is called typical: two are then left out at either end.
pub const TYPICAL_SLICES_MIN: u64 = 8;

/// Without a value where there are too few samples; infinite where it lies among the requests without an answer, which
/// stand above every answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    pub(crate) value: Option<f64>,
    resampled: Vec<Option<f64>>,
    /// Whether each unit of the race has a part in it. A unit whose trials are all void says nothing of how units
    /// scatter, though it can be drawn.
    held: Vec<bool>,
}

/// Whether a statistic is the time of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Among {
    /// It is, but for so few resamples that an interval can be given.
    Answers,
    /// It lies among the requests without an answer, but for as few resamples.
    Unanswered,
    /// It is in some resamples and is not in others.
    Either,
}

impl Samples {
    pub(crate) fn of(cell: &Cell<'_>, statistic: Statistic, resamples: &Resamples) -> Samples {
        let all = resamples.all();
        let at = |weights: &[u64]| match percentile(statistic) {
            Some(percentile) => {
                let ns = cell.columns.percentile(percentile, weights).map(|ns| ns as f64);
                ns.or_else(|| (cell.columns.count(weights) > 0).then_some(f64::INFINITY))
            }
            None if statistic == Statistic::TypicalP99 => {
                let ns = cell.slice_p99.mean(weights);
                ns.or_else(|| (cell.slice_p99.count(weights) > 0).then_some(f64::INFINITY))
            }
            None => throughput(cell, weights),
        };
        let enough = match percentile(statistic) {
            Some(percentile) => percentile.is_valid(cell.columns.count(&all)),
            None => statistic != Statistic::TypicalP99 || cell.slice_p99.count(&all) >= TYPICAL_SLICES_MIN,
        };
        match at(&all).filter(|_| enough) {
            Some(value) => Samples::drawn(value, at, resamples),
            None => Samples::default(),
        }
    }

    /// The share of the requests that have an answer.
    pub(crate) fn answered(cell: &Cell<'_>, resamples: &Resamples) -> Samples {
        let at = |weights: &[u64]| {
            let count = cell.columns.count(weights);
            (count > 0).then(|| cell.columns.count_within(weights) as f64 / count as f64)
        };
        at(&resamples.all()).map_or_else(Samples::default, |value| Samples::drawn(value, at, resamples))
    }

    /// A value with those of the resamples.
    fn drawn(value: f64, at: impl Fn(&[u64]) -> Option<f64>, resamples: &Resamples) -> Samples {
        let width = resamples.all().len();
        let alone = |unit: usize| (0..width).map(|other| u64::from(other == unit)).collect::<Vec<u64>>();
        Samples {
            value: Some(value),
            resampled: resamples.iter().map(&at).collect(),
            held: (0..width).map(|unit| at(&alone(unit)).is_some()).collect(),
        }
    }

    /// Whether it is the time of an answer; `None` without a value.
    pub(crate) fn among(&self) -> Option<Among> {
        let is_infinite = self.value?.is_infinite();
        let infinite = self.resampled.iter().flatten().filter(|value| value.is_infinite()).count();
        let few = Spread::MISSING_MAX * self.resampled.len() as f64;
        Some(match (is_infinite, infinite as f64, (self.resampled.len() - infinite) as f64) {
            (false, infinite, _) if infinite <= few => Among::Answers,
            (true, _, finite) if finite <= few => Among::Unanswered,
            _ => Among::Either,
        })
    }

    /// The ratio to other samples of the same resamples, of the first so many units.
    pub(crate) fn over(&self, below: &Samples, units: usize) -> Option<Spread> {
        let both = self.held.iter().zip(&below.held).take(units).filter(|(above, below)| **above && **below);
        let resampled =
            self.resampled.iter().zip(&below.resampled).map(|(above, below)| Some((*above)? / (*below)?));
        Spread::new(self.value? / below.value?, resampled, both.count())
    }

    /// A middle of several of the same resamples, by their logarithms; without a value if there is none.
    pub(crate) fn middle(group: &[&Samples], middle: fn(&mut [f64]) -> f64) -> Samples {
        let mut logarithms = Vec::new();
        let mut of = |at: &dyn Fn(&Samples) -> Option<f64>| {
            logarithms.clear();
            for samples in group {
                logarithms.push(at(samples)?.ln());
            }
            (!logarithms.is_empty()).then(|| middle(&mut logarithms).exp())
        };
        let value = of(&|samples| samples.value);
        let draws = group.iter().map(|samples| samples.resampled.len()).min().unwrap_or(0);
        let resampled = (0..draws).map(|draw| of(&|samples| samples.resampled[draw])).collect();
        let width = group.iter().map(|samples| samples.held.len()).min().unwrap_or(0);
        let held = (0..width).map(|unit| group.iter().all(|samples| samples.held[unit])).collect();
        Samples { value, resampled, held }
    }

    /// How much it scatters over the resampled values.
    pub(crate) fn spread(&self, units: usize) -> Option<Spread> {
        let held = self.held.iter().take(units).filter(|held| **held).count();
        Spread::new(self.value?, self.resampled.iter().copied(), held)
    }
}

fn percentile(statistic: Statistic) -> Option<Percentile> {
    match statistic {
        Statistic::P50 => Some(Percentile::P50),
        Statistic::P90 => Some(Percentile::P90),
        Statistic::P99 => Some(Percentile::P99),
        Statistic::P99_9 => Some(Percentile::P99_9),
        Statistic::P99_99 => Some(Percentile::P99_99),
        Statistic::P99_999 => Some(Percentile::P99_999),
        Statistic::TypicalP99 | Statistic::Throughput => None,
    }
}

/// Answers per nanosecond of a resample.
fn throughput(cell: &Cell<'_>, weights: &[u64]) -> Option<f64> {
    let sum = |part: fn(&(u64, u64)) -> u64| -> u64 {
        cell.answered.iter().zip(weights).map(|(unit, weight)| part(unit) * weight).sum()
    };
    let duration_ns = sum(|unit| unit.1);
    (duration_ns > 0).then(|| sum(|unit| unit.0) as f64 / duration_ns as f64)
}

#[cfg(test)]
mod tests {
    use stats::Random;

    use super::*;
    use crate::cells::made::cell;

    #[test]
    fn a_unit_without_a_trial_that_counts_is_no_unit_of_an_interval() {
        let drawn = Resamples::draw(12, Resamples::COUNT, &mut Random::from_seed(1));
        let of = |units: &[usize]| Samples::of(&cell(units, 12), Statistic::Throughput, &drawn);
        let (whole, some) = (of(&(0..12).collect::<Vec<_>>()), of(&[0, 2, 3, 7, 9]));
        let ratios =
            some.resampled.iter().zip(&whole.resampled).map(|(above, below)| Some((*above)? / (*below)?));
        let ratio = some.value.unwrap() / whole.value.unwrap();
        assert_eq!(some.over(&whole, 12), Spread::new(ratio, ratios, 5));
        assert_eq!(some.spread(12), Spread::new(some.value.unwrap(), some.resampled.iter().copied(), 5));
        // Over the first units alone there are fewer, and none of one.
        assert_eq!(some.over(&whole, 1), None);
        let middle = Samples::middle(&[&whole, &some], |logarithms| logarithms.iter().sum::<f64>());
        assert_eq!(middle.held, some.held);
    }
}
