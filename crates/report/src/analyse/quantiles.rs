//! Percentiles of a histogram, as far as its samples allow.

use hdrhistogram::Histogram;
use record::TrialRecord;
use stats::Percentile;
use verdict::{Cell, Whole};

use crate::quantities::Quantiles;

/// The response times of a cell that count.
pub(super) fn counted(cell: &Cell<'_>) -> Quantiles {
    with_age(quantiles(&cell.response, cell.beyond), cell, cell.beyond, |trial| trial.counted().1)
}

/// All response times of a cell, those beside the machine's stalls included.
pub(super) fn whole(cell: &Cell<'_>, whole: &Whole) -> Quantiles {
    with_age(quantiles(&whole.response, whole.beyond), cell, whole.beyond, TrialRecord::unanswered)
}

/// The greatest is at least the age of the oldest request that was given up. A trial has the age of one: it is taken
/// where any request of the trial that counts has no answer.
fn with_age(
    times: Quantiles,
    cell: &Cell<'_>,
    beyond: u64,
    beyond_in: impl Fn(&TrialRecord) -> u64,
) -> Quantiles {
    // In a closed loop nothing lies beyond the answers, whatever a trial has.
    let trials = cell.trials.iter().filter(|trial| beyond > 0 && beyond_in(trial) > 0);
    let oldest = trials.map(|trial| trial.missed_age_max_ns).max().filter(|age_ns| *age_ns > 0);
    Quantiles { max: times.max.max(oldest), ..times }
}

/// The percentiles of a histogram above which `beyond` more samples lie.
pub(super) fn quantiles(histogram: &Histogram<u64>, beyond: u64) -> Quantiles {
    let count = histogram.len() + beyond;
    let at = |percentile: Percentile| {
        let rank = percentile.rank(count);
        let is_known = percentile.is_valid(count) && rank <= histogram.len();
        is_known.then(|| at_rank(histogram, rank))
    };
    Quantiles {
        p50: at(Percentile::P50),
        p90: at(Percentile::P90),
        p99: at(Percentile::P99),
        p99_9: at(Percentile::P99_9),
        p99_99: at(Percentile::P99_99),
        p99_999: at(Percentile::P99_999),
        max: (!histogram.is_empty()).then(|| histogram.max()),
        count,
    }
}

/// The value of a rank, from 1, as the highest that its bin stands for.
fn at_rank(histogram: &Histogram<u64>, rank: u64) -> u64 {
    let mut below = 0;
    for bin in histogram.iter_recorded() {
        below += bin.count_at_value();
        if below >= rank {
            return bin.value_iterated_to();
        }
    }
    histogram.max()
}
