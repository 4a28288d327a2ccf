//! A statistic of a cell: of all its trials, and of each resample.

use record::Statistic;
use stats::{Percentile, Resamples, Spread};

use crate::Cell;

/// The fewest slices of which one is called typical: two are then left out at either end.
const SLICES_MIN: u64 = 8;

/// Without a value where there are too few samples.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    pub(crate) value: Option<f64>,
    resampled: Vec<Option<f64>>,
}

impl Samples {
    pub(crate) fn of(cell: &Cell<'_>, statistic: Statistic, resamples: &Resamples) -> Samples {
        let all = resamples.all();
        let at = |weights: &[u64]| match percentile(statistic) {
            Some(percentile) => cell.columns.percentile(percentile, weights).map(|ns| ns as f64),
            None if statistic == Statistic::TypicalP99 => cell.slice_p99.mean(weights),
            None => throughput(cell, weights),
        };
        let enough = match percentile(statistic) {
            Some(percentile) => percentile.is_valid(cell.columns.count(&all)),
            None => statistic != Statistic::TypicalP99 || cell.slice_p99.count(&all) >= SLICES_MIN,
        };
        match at(&all).filter(|_| enough) {
            Some(value) => Samples { value: Some(value), resampled: resamples.iter().map(at).collect() },
            None => Samples::default(),
        }
    }

    /// The ratio to other samples of the same resamples, of so many units.
    pub(crate) fn over(&self, below: &Samples, units: usize) -> Option<Spread> {
        let resampled =
            self.resampled.iter().zip(&below.resampled).map(|(above, below)| Some((*above)? / (*below)?));
        Spread::new(self.value? / below.value?, resampled, units)
    }

    /// The value of one resample.
    pub(crate) fn resampled(&self, draw: usize) -> Option<f64> {
        *self.resampled.get(draw)?
    }

    /// How much it scatters over the resampled values.
    pub(crate) fn spread(&self, units: usize) -> Option<Spread> {
        Spread::new(self.value?, self.resampled.iter().copied(), units)
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
