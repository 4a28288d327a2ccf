//! Correlation of ranks, and how many independent samples a correlated series is worth.

/// The correlation of a series with itself, shifted by one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SerialCorrelation {
    /// Spearman's ρ between each value and the next, −1 to 1.
    pub rho: f64,
    /// ρ·√(pairs − 1): normal with mean 0 and standard deviation 1 if the values are independent and more than about
    /// thirty (M. Kendall and J. Gibbons, *Rank Correlation Methods*, 1990, §4). Beyond ±2.576 is significant at 1 %.
    pub z: f64,
}

/// Spearman's rank correlation of a series with itself one step later; equal values share the mean of their ranks.
/// `None` for fewer than four values, or if all are equal. Values may be infinite and must not be NaN.
///
/// Ranks, because the variance of latencies is dominated by extremes: one freeze would outweigh all other samples.
pub fn serial_correlation(values: &[f64]) -> Option<SerialCorrelation> {
    if values.len() < 4 {
        return None;
    }
    let before = mid_ranks(&values[..values.len() - 1]);
    let after = mid_ranks(&values[1..]);
    let rho = correlation(&before, &after)?;
    Some(SerialCorrelation { rho, z: rho * ((before.len() - 1) as f64).sqrt() })
}

/// How many independent samples locate a quantile as precisely as `count` samples of a series whose neighbours have
/// the correlation `rho`: count·(1 − ρ)/(1 + ρ), as for a process of first order (G. Bayley and J. Hammersley, *The
/// "Effective" Number of Independent Observations in an Autocorrelated Time Series*, 1946). For a negative correlation
/// the result is still at most `count`.
pub fn effective_samples(count: u64, rho: f64) -> u64 {
    let rho = rho.clamp(0.0, 1.0);
    (count as f64 * (1.0 - rho) / (1.0 + rho)) as u64
}

/// The rank of each value among all, from 1; equal values share the mean of theirs.
fn mid_ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut from = 0;
    for equal in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let to = from + equal.len();
        equal.iter().for_each(|index| ranks[*index] = (from + 1 + to) as f64 / 2.0);
        from = to;
    }
    ranks
}

/// Pearson's correlation; `None` if one side is constant.
fn correlation(x: &[f64], y: &[f64]) -> Option<f64> {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (mean_x, mean_y) = (mean(x), mean(y));
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (x, y) in x.iter().zip(y) {
        let (x, y) = (x - mean_x, y - mean_y);
        xx += x * x;
        yy += y * y;
        xy += x * y;
    }
    (xx > 0.0 && yy > 0.0).then(|| xy / (xx * yy).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use crate::distribution::testing::{exponential, normal};

    #[test]
    fn equal_values_share_their_ranks() {
        assert_eq!(mid_ranks(&[30.0, 10.0, 20.0]), [3.0, 1.0, 2.0]);
        assert_eq!(mid_ranks(&[5.0, 1.0, 5.0, 5.0]), [3.0, 1.0, 3.0, 3.0]);
        assert_eq!(mid_ranks(&[f64::INFINITY, 1.0, f64::INFINITY]), [2.5, 1.0, 2.5]);
    }

    #[test]
    fn rho_by_hand() {
        // Without ties ρ = 1 − 6·Σd²/(n(n² − 1)); here the ranks are 1 3 2 5 and 2 1 3 4 of (1 4 2 5), (4 2 5 3).
        let before = mid_ranks(&[1.0, 4.0, 2.0, 5.0]);
        let after = mid_ranks(&[4.0, 2.0, 5.0, 3.0]);
        let squares: f64 = before.iter().zip(&after).map(|(a, b)| (a - b).powi(2)).sum();
        let expected = 1.0 - 6.0 * squares / (4.0 * 15.0);
        let found = serial_correlation(&[1.0, 4.0, 2.0, 5.0, 3.0]).unwrap();
        assert!((found.rho - expected).abs() < 1e-12, "{found:?}, not {expected}");
        assert!((found.z - expected * 3.0_f64.sqrt()).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn order_is_correlation() {
        let up: Vec<f64> = (0..50).map(f64::from).collect();
        assert!((serial_correlation(&up).unwrap().rho - 1.0).abs() < 1e-12);
        let saw: Vec<f64> = (0..50).map(|k| f64::from(k % 2)).collect();
        assert!(serial_correlation(&saw).unwrap().rho < -0.99);
        assert_eq!(serial_correlation(&[7.0; 50]), None);
        assert_eq!(serial_correlation(&[1.0, 2.0, 3.0]), None);
    }

    /// The share of 2000 seeded series of 200 values that are correlated at 1 %.
    fn correlated(mut next: impl FnMut(&mut Random, f64) -> f64) -> f64 {
        let mut random = Random::from_seed(13);
        let correlated = (0..2_000).filter(|_| {
            let mut value = 0.0;
            let series: Vec<f64> = (0..200)
                .map(|_| {
                    value = next(&mut random, value);
                    value
                })
                .collect();
            serial_correlation(&series).unwrap().z.abs() > 2.576
        });
        correlated.count() as f64 / 2_000.0
    }

    #[test]
    fn false_alarms_are_as_rare_as_promised() {
        let share = correlated(|random, _| exponential(random));
        assert!((0.001..0.019).contains(&share), "{share}");
        // Values of a coarse clock, most of them tied.
        let share = correlated(|random, _| (exponential(random) * 3.0).floor());
        assert!((0.001..0.019).contains(&share), "{share}");
    }

    #[test]
    fn correlation_is_found() {
        assert!(correlated(|random, before| 0.4 * before + normal(random)) > 0.99);
    }

    #[test]
    fn the_effective_number_is_that_of_the_mean_of_a_first_order_process() {
        assert_eq!(effective_samples(1_000, 0.0), 1_000);
        assert_eq!(effective_samples(1_000, -0.5), 1_000);
        assert_eq!(effective_samples(900, 0.5), 300);
        assert_eq!(effective_samples(1_000, 1.0), 0);
        // The mean of 100 values with ρ = 0.6 has the variance of a mean of 25 independent values with equal spread,
        // 1/(1 − 0.36) each; 4000 means estimate a variance to 2 %.
        let mut random = Random::from_seed(14);
        let means: Vec<f64> = (0..4_000)
            .map(|_| {
                let mut value = normal(&mut random) / 0.8;
                let sum: f64 = (0..100)
                    .map(|_| {
                        value = 0.6 * value + normal(&mut random);
                        value
                    })
                    .sum();
                sum / 100.0
            })
            .collect();
        let variance = means.iter().map(|mean| mean * mean).sum::<f64>() / means.len() as f64;
        let effective = 1.0 / 0.64 / variance;
        assert!((effective / effective_samples(100, 0.6) as f64 - 1.0).abs() < 0.12, "{effective}");
    }
}
