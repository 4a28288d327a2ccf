//! A percentile, and between which values the true one lies.

use hdrhistogram::Histogram;
use stats::{Percentile, quantile_ranks};

/// One in twenty intervals does not hold the true percentile.
const ALPHA: f64 = 0.05;

/// A percentile of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PercentileEstimate {
    /// The percentile in nanoseconds.
    pub value_ns: u64,
    /// Its 95 % interval in nanoseconds; `None` if there are too few independent samples for one.
    pub interval_ns: Option<(u64, u64)>,
}

/// A percentile of a run's times; `None` if fewer than [`Percentile::BEYOND_MIN`] of them lie beyond it.
///
/// The interval comes from order statistics, whatever the distribution. Its ranks are computed for `independent`
/// samples ([`independent_samples`](super::independent_samples)); the values at these ranks are taken from all times,
/// which are more.
pub fn estimate(
    times: &Histogram<u64>,
    percentile: Percentile,
    independent: Option<u64>,
) -> Option<PercentileEstimate> {
    if !percentile.is_valid(times.len()) {
        return None;
    }
    let at = |quantile: f64| times.value_at_quantile(quantile).min(times.max());
    let interval = |count: u64| {
        let ranks = quantile_ranks(count, percentile.quantile(), ALPHA)?;
        Some((at(ranks.low as f64 / count as f64), at(ranks.high as f64 / count as f64)))
    };
    Some(PercentileEstimate {
        value_ns: at(percentile.quantile()),
        interval_ns: independent.and_then(|count| interval(count.min(times.len()))),
    })
}

#[cfg(test)]
mod tests {
    use stats::Random;

    use super::super::made::exponential;
    use super::*;

    fn times(values: impl IntoIterator<Item = u64>) -> Histogram<u64> {
        let mut times = Histogram::new_with_bounds(1, 1_000_000_000, 3).unwrap();
        values.into_iter().for_each(|value| times.record(value).unwrap());
        times
    }

    #[track_caller]
    fn check(samples: u64, percentile: Percentile, shown: bool) {
        let times = times((0..samples).map(|_| 100));
        assert_eq!(estimate(&times, percentile, None).is_some(), shown, "{samples} samples, {percentile:?}");
    }

    #[test]
    fn a_percentile_needs_ten_samples_beyond_it() {
        check(0, Percentile::P50, false);
        check(19, Percentile::P50, false);
        check(20, Percentile::P50, true);
        check(999, Percentile::P99, false);
        check(1_000, Percentile::P99, true);
        check(9_999, Percentile::P99_9, false);
        check(10_000, Percentile::P99_9, true);
    }

    #[test]
    fn intervals_are_those_of_the_printed_ranks() {
        // 1 to 100, exactly: with 100 samples the median lies between the 40th and the 61st.
        let times = times(1..=100);
        let at = |independent| estimate(&times, Percentile::P50, independent).unwrap().interval_ns;
        assert_eq!(at(Some(100)), Some((40, 61)));
        // More independent samples than samples there are none.
        assert_eq!(at(Some(1_000)), Some((40, 61)));
        // Of ten, between the second and the ninth.
        assert_eq!(at(Some(10)), Some((20, 90)));
        assert_eq!(at(Some(5)), None);
        assert_eq!(at(None), None);
    }

    #[test]
    fn intervals_hold_the_truth() {
        let mut random = Random::from_seed(23);
        let truth_ns = 1e5 * 100.0_f64.ln();
        let tries = 300;
        let held = (0..tries).filter(|_| {
            let times = times((0..2_000).map(|_| (exponential(&mut random) * 1e5) as u64 + 1));
            let (low, high) = estimate(&times, Percentile::P99, Some(2_000)).unwrap().interval_ns.unwrap();
            // The histogram's values are within a thousandth.
            low as f64 <= truth_ns * 1.001 && truth_ns <= high as f64 * 1.001
        });
        let share = held.count() as f64 / f64::from(tries);
        assert!(share > 0.91, "{share}");
    }
}
