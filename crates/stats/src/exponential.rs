//! Tests whether samples come from an exponential distribution with a known mean: the gaps of Poisson arrivals.

/// How samples fit a fully specified exponential distribution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExponentialFit {
    /// The statistic A² of Anderson and Darling: the squared distance of the two distribution functions, weighted so
    /// that both tails count. About 1 where the samples are what they should be.
    pub a_squared: f64,
    /// The probability of this A² or a greater one, if the samples are independent and exponential with that mean.
    pub p: f64,
    /// The greatest distance of the two distribution functions, 0 to 1: the share of samples that lie elsewhere.
    pub distance: f64,
}

/// Compares samples, all above 0, with the exponential distribution of a given mean. `None` for fewer than five
/// samples, for which the limit distribution of A² does not hold.
///
/// The distribution is fully specified, and no parameter is estimated from the samples ("case 0" of M. Stephens, *EDF
/// Statistics for Goodness of Fit and Some Comparisons*, Journal of the American Statistical Association 69, 1974). So
/// the critical values are 2.492 at 5 % and 3.857 at 1 %, whatever the distribution.
///
/// # Panics
///
/// If the mean is not positive.
pub fn exponential_fit(samples: &[f64], mean: f64) -> Option<ExponentialFit> {
    assert!(mean > 0.0, "a mean of {mean}");
    if samples.len() < 5 {
        return None;
    }
    let mut sorted: Vec<f64> = samples.iter().map(|sample| sample / mean).collect();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let count = n as f64;
    // With F(x) = 1 − e^−x, ln(1 − F) is −x exactly, and ln F keeps its digits near 0 by `exp_m1`.
    let sum: f64 =
        (0..n).map(|i| (2 * i + 1) as f64 * ((-(-sorted[i]).exp_m1()).ln() - sorted[n - 1 - i])).sum();
    let a_squared = -count - sum / count;
    let distance = sorted.iter().enumerate().fold(0.0_f64, |distance, (i, x)| {
        let expected = -(-x).exp_m1();
        distance.max(expected - i as f64 / count).max((i + 1) as f64 / count - expected)
    });
    Some(ExponentialFit { a_squared, p: 1.0 - limit_distribution(a_squared), distance })
}

/// The distribution function of A² for many samples, to six digits; already close for five (G. and J. Marsaglia,
/// *Evaluating the Anderson-Darling Distribution*, Journal of Statistical Software 9:2, 2004, `adinf`).
fn limit_distribution(a_squared: f64) -> f64 {
    let polynomial = |coefficients: &[f64]| coefficients.iter().rev().fold(0.0, |sum, c| sum * a_squared + c);
    match a_squared {
        z if z <= 0.0 => 0.0,
        z if z < 2.0 => {
            let sum =
                polynomial(&[2.000_12, 0.247_105, -0.064_982_1, 0.034_796_2, -0.011_672_0, 0.001_686_91]);
            z.powf(-0.5) * (-1.233_714_1 / z).exp() * sum
        }
        _ => {
            let sum = polynomial(&[1.0776, -2.306_95, 0.434_24, -0.082_433, 0.008_056, -0.000_314_6]);
            (-sum.exp()).exp()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use crate::distribution::testing::exponential;

    #[track_caller]
    fn check(a_squared: f64, expected: f64) {
        let found = limit_distribution(a_squared);
        assert!((found - expected).abs() < 3e-4, "{a_squared}: {found}, not {expected}");
    }

    #[test]
    fn the_printed_critical_values() {
        check(0.0, 0.0);
        check(1.248, 0.75);
        check(1.933, 0.90);
        check(2.492, 0.95);
        check(3.070, 0.975);
        check(3.857, 0.99);
        check(6.000, 0.999);
    }

    #[test]
    fn the_formula_by_hand() {
        // Five samples at the distribution's median: F = 1/2 for all, and the sum of 2i − 1 is n².
        let fit = exponential_fit(&[2.0_f64.ln() * 3.0; 5], 3.0).unwrap();
        let expected = -5.0 + 5.0 * 2.0 * 2.0_f64.ln();
        assert!((fit.a_squared - expected).abs() < 1e-12, "{fit:?}");
        assert!((fit.distance - 0.5).abs() < 1e-12, "{fit:?}");
        assert_eq!(exponential_fit(&[1.0; 4], 1.0), None);
    }

    #[test]
    fn sorted_quantiles_fit_perfectly() {
        let n = 100;
        let samples: Vec<f64> = (0..n).map(|i| -(1.0 - (f64::from(i) + 0.5) / f64::from(n)).ln()).collect();
        let fit = exponential_fit(&samples, 1.0).unwrap();
        assert!(fit.a_squared < 0.1 && fit.p > 0.99, "{fit:?}");
        assert!((fit.distance - 0.005).abs() < 1e-9, "{fit:?}");
    }

    /// The share of 2000 seeded sets of 200 samples that are refused at 1 %.
    fn refused(sample: impl Fn(&mut Random) -> f64) -> f64 {
        let mut random = Random::from_seed(11);
        let refused = (0..2_000).filter(|_| {
            let samples: Vec<f64> = (0..200).map(|_| sample(&mut random)).collect();
            exponential_fit(&samples, 1.0).unwrap().p < 0.01
        });
        refused.count() as f64 / 2_000.0
    }

    #[test]
    fn false_alarms_are_as_rare_as_promised() {
        // ±4 standard errors of a share of 2000.
        let share = refused(exponential);
        assert!((0.001..0.019).contains(&share), "{share}");
    }

    #[test]
    fn other_arrivals_are_found() {
        // A mean that is 40 % off; constant gaps with jitter; one gap in five lost in a burst.
        assert!(refused(|random| 1.4 * exponential(random)) > 0.8);
        assert!(refused(|random| 0.8 + 0.4 * random.unit()) > 0.999);
        let burst =
            |random: &mut Random| if random.below(5) == 0 { 0.01 } else { 1.25 * exponential(random) };
        assert!(refused(burst) > 0.99);
    }
}
