//! Intervals of a quantile from order statistics alone, whatever the distribution.

/// Ranks of samples in ascending order, from 1, that enclose a quantile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranks {
    /// The lower rank, counted from the smallest sample.
    pub low: u64,
    /// The upper rank, counted from the smallest sample.
    pub high: u64,
}

/// The ranks between which the true `quantile` lies with a probability of at least 1 − `alpha`; `None` if `count`
/// samples are too few for such a lower or upper rank.
///
/// The number of samples below the true quantile is binomial, so the interval is exact for independent samples
/// (Conover, *Practical Nonparametric Statistics*, §3.2). Latencies of one queue are not independent: over several
/// trials use the bootstrap over rounds instead.
///
/// # Panics
///
/// If `quantile` or `alpha` is not between 0 and 1.
pub fn quantile_ranks(count: u64, quantile: f64, alpha: f64) -> Option<Ranks> {
    assert!(quantile > 0.0 && quantile < 1.0 && alpha > 0.0 && alpha < 1.0, "{quantile} at {alpha}");
    let binomial = Binomial::around_its_mode(count, quantile);
    let below = binomial.tail(binomial.shares.iter(), alpha / 2.0);
    let above = binomial.tail(binomial.shares.iter().rev(), alpha / 2.0);
    // With `below` leading values of X in the tail, X is `first + below` or more: that many samples lie below.
    let low = binomial.first + below;
    let high = binomial.first + binomial.shares.len() as u64 - above;
    (low >= 1 && high <= count).then_some(Ranks { low, high })
}

/// The part of a binomial distribution that has all but 1e-15 of its probability.
struct Binomial {
    first: u64,
    shares: Vec<f64>,
}

impl Binomial {
    /// Walks from the mode to both sides by the ratio of neighbours, which needs no factorial, until the remaining
    /// terms vanish.
    fn around_its_mode(count: u64, p: f64) -> Binomial {
        let odds = p / (1.0 - p);
        let mode = (((count + 1) as f64 * p) as u64).min(count);
        let mut down = vec![];
        let mut share = 1.0;
        for k in (0..mode).rev() {
            share *= (k + 1) as f64 / ((count - k) as f64 * odds);
            if share < 1e-18 {
                break;
            }
            down.push(share);
        }
        let first = mode - down.len() as u64;
        let mut shares: Vec<f64> = down.into_iter().rev().chain([1.0]).collect();
        share = 1.0;
        for k in mode..count {
            share *= (count - k) as f64 * odds / (k + 1) as f64;
            if share < 1e-18 {
                break;
            }
            shares.push(share);
        }
        let total: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= total);
        Binomial { first, shares }
    }

    /// How many values from this end have together at most `alpha`.
    fn tail<'a>(&self, from_end: impl Iterator<Item = &'a f64>, alpha: f64) -> u64 {
        let mut sum = 0.0;
        from_end
            .take_while(|share| {
                sum += **share;
                sum <= alpha
            })
            .count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[track_caller]
    fn check(count: u64, quantile: f64, expected: Option<(u64, u64)>) {
        let found = quantile_ranks(count, quantile, 0.05).map(|ranks| (ranks.low, ranks.high));
        assert_eq!(found, expected, "{quantile} of {count}");
    }

    #[test]
    fn the_printed_tables_of_the_median() {
        check(5, 0.5, None);
        check(6, 0.5, Some((1, 6)));
        check(10, 0.5, Some((2, 9)));
        check(20, 0.5, Some((6, 15)));
        check(100, 0.5, Some((40, 61)));
    }

    #[test]
    fn a_tail_needs_samples_beyond_it() {
        check(300, 0.99, None);
        check(1_000, 0.999, None);
        assert!(quantile_ranks(10_000, 0.999, 0.05).is_some());
    }

    #[test]
    fn coverage_is_what_is_promised() {
        let mut random = Random::from_seed(3);
        let (count, quantile, tries) = (1_000, 0.99, 2_000);
        let ranks = quantile_ranks(count, quantile, 0.05).unwrap();
        let covered = (0..tries).filter(|_| {
            let mut samples: Vec<f64> = (0..count).map(|_| random.unit()).collect();
            samples.sort_by(f64::total_cmp);
            samples[ranks.low as usize - 1] <= quantile && quantile <= samples[ranks.high as usize - 1]
        });
        let share = covered.count() as f64 / f64::from(tries);
        assert!((0.94..0.99).contains(&share), "{share}");
    }
}
