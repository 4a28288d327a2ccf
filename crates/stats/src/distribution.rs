//! Student's t: how much wider an interval must be when its width is estimated from a few values only.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

/// Above this many degrees of freedom the quantile of this many is used. At 0.05 it is at most 0.1 % too large, which
/// only makes an interval that much too wide. The sum below has half as many terms.
const DEGREES_MAX: u32 = 1_000;

/// The value that |t| with `degrees` degrees of freedom exceeds with probability `alpha`: 2.571 for 5 and 0.05.
///
/// # Panics
///
/// If `degrees` is 0 or `alpha` is not between 0 and 1.
pub fn student_t_quantile(degrees: u32, alpha: f64) -> f64 {
    assert!(degrees > 0 && alpha > 0.0 && alpha < 1.0, "t of {degrees} degrees at {alpha}");
    let degrees = degrees.min(DEGREES_MAX);
    // Bisection over the angle θ = atan(t/√ν), in which the distribution is smooth and bounded.
    let (mut low, mut high) = (0.0, FRAC_PI_2);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if two_sided(degrees, middle) < 1.0 - alpha { low = middle } else { high = middle }
    }
    high.tan() * f64::from(degrees).sqrt()
}

/// P(|t| ≤ √ν·tan θ), by the finite sums of Abramowitz and Stegun 26.7.3 and 26.7.4.
fn two_sided(degrees: u32, theta: f64) -> f64 {
    let cos = theta.cos();
    let odd = degrees % 2 == 1;
    let mut term = if odd { cos } else { 1.0 };
    let mut sum = if degrees == 1 { 0.0 } else { term };
    let mut power = if odd { 1 } else { 0 };
    while power + 2 <= degrees.saturating_sub(2) {
        power += 2;
        term *= cos * cos * f64::from(power - 1) / f64::from(power);
        sum += term;
    }
    if odd { FRAC_2_PI * (theta + theta.sin() * sum) } else { theta.sin() * sum }
}

/// Random numbers of known distributions, for the tests of this crate.
#[cfg(test)]
pub(crate) mod testing {
    use crate::Random;

    /// Normal with mean 0 and standard deviation 1 (Box and Muller).
    pub(crate) fn normal(random: &mut Random) -> f64 {
        let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * random.unit()).cos()
    }

    /// Exponential with mean 1.
    pub(crate) fn exponential(random: &mut Random) -> f64 {
        -(1.0 - random.unit()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(degrees: u32, alpha: f64, expected: f64) {
        let found = student_t_quantile(degrees, alpha);
        assert!(
            (found - expected).abs() < 6e-4 * expected,
            "t of {degrees} at {alpha}: {found}, not {expected}"
        );
    }

    #[test]
    fn the_printed_tables() {
        check(1, 0.05, 12.706);
        check(2, 0.05, 4.303);
        check(3, 0.05, 3.182);
        check(4, 0.01, 4.604);
        check(5, 0.05, 2.571);
        check(5, 0.0125, 3.810);
        check(6, 0.10, 1.943);
        check(10, 0.001, 4.587);
        check(29, 0.05, 2.045);
        check(30, 0.05, 2.042);
        check(1_000, 0.05, 1.962);
        check(1_000_000, 0.05, 1.962);
    }
}
