//! Intervals of ratios by resampling whole units of a race.
//!
//! **The unit is the build.** A race builds its topologies several times. Every build settles at its own value, which
//! all its rounds share. So the rounds of a build are not independent, and resampling them as if they were gives
//! intervals that are far too narrow. A resample draws as many builds as there are, with replacement, and takes each
//! with all its rounds, jointly for all candidates, so that the pairing stays. Rounds within a drawn build are *not*
//! drawn again: the scatter of the builds' values already contains the scatter of their rounds, and a second draw
//! would count it twice (Davison and Hinkley 1997, *Bootstrap Methods and their Application*, §3.8).
//!
//! **Few units.** With B units the resampled values scatter with (B−1)/B of the true variance, and the scatter is
//! itself known from B values only. So the interval of a ratio r, whose logarithm has the standard deviation s
//! over the resamples, is
//!
//! ```text
//! ln r ± t(B−1, 1−α/2) · √(B/(B−1)) · s
//! ```
//!
//! the bootstrap t interval with narrowness correction of Hesterberg 2015, *What Teachers Should Know About the
//! Bootstrap* (The American Statistician 69:4, §4). Plain percentiles of the resamples hold the truth in less than 90 %
//! of all races of six builds. Intervals are symmetric in the logarithm, hence wider above than below. The coverage is
//! simulated in `tests/it/coverage.rs`.

use crate::{Random, student_t_quantile};

/// Resamples of a race's units, as weights: how often each unit was drawn.
#[derive(Debug, Clone)]
pub struct Resamples {
    units: usize,
    width: usize,
    weights: Vec<u64>,
}

impl Resamples {
    /// How many are enough for an interval's ends to be known to a few per cent of its width.
    pub const COUNT: usize = 2_000;

    /// Draws `count` resamples of `units` units.
    pub fn draw(units: usize, count: usize, random: &mut Random) -> Resamples {
        Resamples::draw_first(units, units, count, random)
    }

    /// Draws `count` resamples of the first `units` of `width` units; the others have the weight 0. They are those that
    /// [`Resamples::draw`] gives for so many units.
    ///
    /// # Panics
    ///
    /// If there are more `units` than `width`.
    pub fn draw_first(units: usize, width: usize, count: usize, random: &mut Random) -> Resamples {
        assert!(units <= width, "the first {units} of {width} units");
        let mut weights = vec![0; width * count];
        if units > 0 {
            for resample in weights.chunks_exact_mut(width) {
                for _ in 0..units {
                    resample[random.below(units as u64) as usize] += 1;
                }
            }
        }
        Resamples { units, width, weights }
    }

    /// How many units are drawn from.
    pub fn units(&self) -> usize {
        self.units
    }

    /// The weights of each resample.
    pub fn iter(&self) -> impl Iterator<Item = &[u64]> {
        self.weights.chunks_exact(self.width.max(1))
    }

    /// The weights with which each of those units counts once.
    pub fn all(&self) -> Vec<u64> {
        (0..self.width).map(|unit| u64::from(unit < self.units)).collect()
    }
}

/// A value with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The point estimate, inside the interval.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Interval {
    /// True if a value lies within.
    pub fn holds(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Half the width in the logarithm: 0.05 is about ±5 %.
    pub fn half_width_ln(&self) -> f64 {
        (self.high / self.low).ln() / 2.0
    }
}

/// The scatter of a ratio over the units of a race; yields an interval at any level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    ln_value: f64,
    /// Standard error of the logarithm, corrected for few units.
    ln_error: f64,
    units: usize,
}

impl Spread {
    /// The largest share of resamples without a value (for example a percentile that lies among unanswered requests)
    /// for which an interval is given.
    pub const MISSING_MAX: f64 = 0.01;

    /// From the ratio of all units and the ratios of the resamples, `None` where a resample has none.
    ///
    /// `None` if there are fewer than two units, or no ratio, or too many resamples without one.
    pub fn new(value: f64, resampled: impl IntoIterator<Item = Option<f64>>, units: usize) -> Option<Spread> {
        let valid = |ratio: &f64| ratio.is_finite() && *ratio > 0.0;
        if units < 2 || !valid(&value) {
            return None;
        }
        let (mut all, mut logarithms) = (0_usize, vec![]);
        for ratio in resampled {
            all += 1;
            logarithms.extend(ratio.filter(valid).map(f64::ln));
        }
        let missing = all - logarithms.len();
        if logarithms.is_empty() || missing as f64 > Spread::MISSING_MAX * all as f64 {
            return None;
        }
        let count = logarithms.len() as f64;
        let mean = logarithms.iter().sum::<f64>() / count;
        let variance = logarithms.iter().map(|ln| (ln - mean).powi(2)).sum::<f64>() / count;
        let ln_error = (variance * units as f64 / (units - 1) as f64).sqrt();
        Some(Spread { ln_value: value.ln(), ln_error, units })
    }

    /// The interval that misses the true ratio with probability `alpha`.
    pub fn interval(&self, alpha: f64) -> Interval {
        let half = student_t_quantile((self.units - 1) as u32, alpha) * self.ln_error;
        Interval {
            value: self.ln_value.exp(),
            low: (self.ln_value - half).exp(),
            high: (self.ln_value + half).exp(),
        }
    }
}

/// How many units a race needs for its 95 % interval to be no wider than ± `target_ln` (in the logarithm), when
/// `units` gave ± `half_width_ln`; `None` if it is more than `limit`.
pub fn units_needed(units: u32, half_width_ln: f64, target_ln: f64, limit: u32) -> Option<u32> {
    assert!(units >= 2 && target_ln > 0.0, "{units} units for ±{target_ln}");
    let width = |units: u32| student_t_quantile(units - 1, 0.05) / f64::from(units).sqrt();
    let allowed = width(units) * target_ln / half_width_ln;
    // The width falls with every unit, so the smallest count that does is found by halving.
    if width(limit.max(2)) > allowed {
        return None;
    }
    let (mut low, mut high) = (2, limit.max(2));
    while low < high {
        let middle = u32::midpoint(low, high);
        if width(middle) > allowed { low = middle + 1 } else { high = middle }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resample_draws_as_many_units_as_there_are() {
        let resamples = Resamples::draw(6, 500, &mut Random::from_seed(1));
        assert_eq!((resamples.units(), resamples.iter().count()), (6, 500));
        assert!(resamples.iter().all(|weights| weights.iter().sum::<u64>() == 6));
        let same = Resamples::draw(6, 500, &mut Random::from_seed(1));
        assert!(resamples.iter().eq(same.iter()));
        let other = Resamples::draw(6, 500, &mut Random::from_seed(2));
        assert!(!resamples.iter().eq(other.iter()));
        assert_eq!(Resamples::draw(0, 500, &mut Random::from_seed(1)).iter().count(), 0);
    }

    #[test]
    fn the_first_of_more_units_are_drawn_as_if_there_were_no_others() {
        let first = Resamples::draw_first(6, 9, 50, &mut Random::from_seed(1));
        let alone = Resamples::draw(6, 50, &mut Random::from_seed(1));
        assert!(first.iter().map(|weights| &weights[..6]).eq(alone.iter()));
        assert!(first.iter().all(|weights| weights[6..] == [0, 0, 0]));
        assert_eq!((first.units(), first.all()), (6, vec![1, 1, 1, 1, 1, 1, 0, 0, 0]));
        assert_eq!(Resamples::draw_first(0, 3, 5, &mut Random::from_seed(1)).all(), [0, 0, 0]);
    }

    #[test]
    fn the_interval_is_students_where_the_statistic_is_a_mean() {
        let units = [0.02, 0.05, 0.11, 0.01, 0.08, 0.03_f64];
        let mean = units.iter().sum::<f64>() / 6.0;
        let variance = units.iter().map(|unit| (unit - mean).powi(2)).sum::<f64>() / 5.0;
        let half = 2.5706 * (variance / 6.0).sqrt();
        let resamples = Resamples::draw(6, 50_000, &mut Random::from_seed(3));
        let ratios = resamples.iter().map(|weights| {
            Some(
                (weights.iter().zip(units).map(|(weight, unit)| *weight as f64 * unit).sum::<f64>() / 6.0)
                    .exp(),
            )
        });
        let interval = Spread::new(mean.exp(), ratios, 6).unwrap().interval(0.05);
        assert!((interval.half_width_ln() / half - 1.0).abs() < 0.01, "{interval:?}, not ±{half}");
        assert!(interval.holds(mean.exp()) && !interval.holds((mean + 1.02 * half).exp()));
        assert!((interval.value.ln() - (interval.low * interval.high).ln() / 2.0).abs() < 1e-12);
    }

    #[test]
    fn without_a_scatter_there_is_no_interval() {
        let some =
            |share: usize| (0..1_000).map(move |index| (index >= share).then_some(1.0 + index as f64 / 1e5));
        assert!(Spread::new(1.0, some(0), 1).is_none());
        assert!(Spread::new(f64::NAN, some(0), 6).is_none());
        assert!(Spread::new(0.0, some(0), 6).is_none());
        assert!(Spread::new(1.0, [], 6).is_none());
        assert!(Spread::new(1.0, some(11), 6).is_none());
        assert!(Spread::new(1.0, some(10), 6).is_some());
    }

    #[test]
    fn more_units_for_a_narrower_interval() {
        assert_eq!(units_needed(6, 0.03, 0.03, 1_000), Some(6));
        assert_eq!(units_needed(6, 0.06, 0.06, 1_000), Some(6));
        // Four times the units for half the width where t hardly changes any more.
        assert_eq!(units_needed(400, 0.06, 0.03, 10_000), Some(1_595));
        let needed = units_needed(6, 0.06, 0.03, 1_000).unwrap();
        assert!((15..22).contains(&needed), "{needed}");
        assert_eq!(units_needed(6, 3.0, 0.03, 1_000), None);
    }
}
