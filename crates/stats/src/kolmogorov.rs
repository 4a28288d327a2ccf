//! Whether two sets of samples come from the same distribution.

use std::f64::consts::PI;

/// Two sets of samples compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TwoSamples {
    /// The greatest distance of the two distribution functions, 0 to 1: the statistic D of Kolmogorov and Smirnov.
    pub distance: f64,
    /// The probability of this distance or a greater one, if both sets come from one continuous distribution and all
    /// samples are independent. With ties the true probability is lower.
    pub p: f64,
}

/// Compares two sets of samples by the test of Kolmogorov and Smirnov; `None` if one is empty. Samples may be infinite
/// and must not be NaN.
///
/// The probability is the asymptotic one with Stephens' correction for few samples (M. Stephens, *Use of the
/// Kolmogorov-Smirnov, Cramér-von Mises and Related Statistics Without Extensive Tables*, Journal of the Royal
/// Statistical Society B 32, 1970): good from n·m/(n + m) of four on.
pub fn two_samples(first: &[f64], second: &[f64]) -> Option<TwoSamples> {
    if first.is_empty() || second.is_empty() {
        return None;
    }
    let (first, second) = (sorted(first), sorted(second));
    let (n, m) = (first.len() as f64, second.len() as f64);
    let (mut i, mut j, mut distance) = (0, 0, 0.0_f64);
    while i < first.len() && j < second.len() {
        // Both functions step over all samples of one value before they are compared.
        let value = first[i].min(second[j]);
        i += first[i..].iter().take_while(|sample| **sample <= value).count();
        j += second[j..].iter().take_while(|sample| **sample <= value).count();
        distance = distance.max((i as f64 / n - j as f64 / m).abs());
    }
    let root = (n * m / (n + m)).sqrt();
    Some(TwoSamples { distance, p: exceedance((root + 0.12 + 0.11 / root) * distance) })
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The probability that Kolmogorov's distribution exceeds a value. It has two series: one converges fast for small
/// values, one for great ones (A. Kolmogorov 1933; N. Smirnov, *Table for Estimating the Goodness of Fit of Empirical
/// Distributions*, 1948). Four terms of either are exact to 1e-14 on their side of 1.
fn exceedance(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    if value < 1.0 {
        let term = |k: f64| (-((2.0 * k - 1.0) * PI / value).powi(2) / 8.0).exp();
        return 1.0 - (2.0 * PI).sqrt() / value * [1.0, 2.0, 3.0, 4.0].map(term).iter().sum::<f64>();
    }
    let term = |k: f64| (-2.0 * (k * value).powi(2)).exp();
    (2.0 * (term(1.0) - term(2.0) + term(3.0) - term(4.0))).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use crate::distribution::testing::exponential;

    #[track_caller]
    fn check(value: f64, expected: f64) {
        let found = exceedance(value);
        assert!((found - expected).abs() < 5e-5, "{value}: {found}, not {expected}");
    }

    #[test]
    fn the_printed_table_of_kolmogorov() {
        check(0.0, 1.0);
        check(0.1, 1.0);
        check(0.8276, 0.5);
        check(1.2238, 0.1);
        check(1.3581, 0.05);
        check(1.6276, 0.01);
        check(1.9495, 0.001);
        check(40.0, 0.0);
    }

    #[test]
    fn both_series_meet() {
        assert!((exceedance(1.0 - 1e-13) - exceedance(1.0)).abs() < 1e-12);
    }

    #[test]
    fn distances_by_hand() {
        let distance = |first: &[f64], second: &[f64]| two_samples(first, second).unwrap().distance;
        assert_eq!(distance(&[1.0, 2.0, 3.0], &[1.0, 2.0, 3.0]), 0.0);
        assert_eq!(distance(&[1.0, 2.0], &[3.0, 4.0]), 1.0);
        assert_eq!(distance(&[3.0, 1.0, 2.0, 4.0], &[2.0, 4.0]), 0.25);
        // Ties are stepped over together, and what was never answered is greater than all.
        assert_eq!(distance(&[1.0, 1.0, 1.0, 2.0], &[1.0, 2.0, 2.0, 2.0]), 0.5);
        assert_eq!(distance(&[1.0, f64::INFINITY], &[1.0, 2.0]), 0.5);
        assert_eq!(two_samples(&[], &[1.0]), None);
    }

    /// The share of 2000 seeded pairs of 150 and 100 samples that differ at 1 %.
    fn differ(second: impl Fn(&mut Random) -> f64) -> f64 {
        let mut random = Random::from_seed(12);
        let differ = (0..2_000).filter(|_| {
            let a: Vec<f64> = (0..150).map(|_| exponential(&mut random)).collect();
            let b: Vec<f64> = (0..100).map(|_| second(&mut random)).collect();
            two_samples(&a, &b).unwrap().p < 0.01
        });
        differ.count() as f64 / 2_000.0
    }

    #[test]
    fn false_alarms_are_as_rare_as_promised() {
        let share = differ(exponential);
        assert!((0.001..0.019).contains(&share), "{share}");
    }

    #[test]
    fn a_shift_is_found() {
        assert!(differ(|random| 0.3 + exponential(random)) > 0.8);
        assert!(differ(|random| 2.0 * exponential(random)) > 0.8);
    }
}
