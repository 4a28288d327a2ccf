//! Percentiles of a histogram, as far as its samples allow.

use hdrhistogram::Histogram;
use stats::Percentile;

use crate::quantities::Quantiles;

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
