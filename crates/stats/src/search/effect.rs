//! An effect with what it may be wrong by.

use crate::{Interval, student_t_quantile};

/// The mean over several blocks of the logarithm of a ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effect {
    /// The mean, as a logarithm; 0 is no effect.
    pub ln: f64,
    /// Its standard error, from the scatter of the blocks.
    pub ln_error: f64,
    /// The number of blocks in the mean.
    pub blocks: u32,
}

/// The share of responses that are left out at either end where arms are ranked.
const TRIMMED: f64 = 0.1;

impl Effect {
    /// Of the blocks' responses; `None` of fewer than two.
    pub fn of(responses: &[f64]) -> Option<Effect> {
        let (count, blocks) = (responses.len() as f64, u32::try_from(responses.len()).ok()?);
        if blocks < 2 {
            return None;
        }
        let ln = responses.iter().sum::<f64>() / count;
        let variance = responses.iter().map(|one| (one - ln).powi(2)).sum::<f64>() / (count - 1.0);
        Some(Effect { ln, ln_error: (variance / count).sqrt(), blocks })
    }

    /// The value that the true effect is below with probability `alpha` only: the lower end of a one-sided interval.
    pub fn at_least(&self, alpha: f64) -> f64 {
        self.ln - self.quantile(2.0 * alpha) * self.ln_error
    }

    /// The ratio with its interval of 95 %.
    pub fn ratio(&self) -> Interval {
        let half = self.quantile(0.05) * self.ln_error;
        Interval { value: self.ln.exp(), low: (self.ln - half).exp(), high: (self.ln + half).exp() }
    }

    /// The effect that would be proven with a probability of 80 %.
    pub(super) fn resolvable_ln(&self) -> f64 {
        resolving(self.blocks) * self.ln_error
    }

    /// True if its interval of 95 % lies above zero. The interval that a report shows also decides on adoption.
    pub(super) fn is_proven(&self) -> bool {
        self.at_least(0.025) > 0.0
    }

    /// True if it is above zero with an error of 5 % at most: enough to keep what may be needed.
    pub(super) fn is_likely(&self) -> bool {
        self.at_least(0.05) > 0.0
    }

    fn quantile(&self, alpha: f64) -> f64 {
        student_t_quantile(self.blocks - 1, alpha)
    }
}

/// How many standard errors an effect must be to be proven with a probability of 80 %.
pub(super) fn resolving(blocks: u32) -> f64 {
    student_t_quantile(blocks - 1, 0.05) + student_t_quantile(blocks - 1, 0.4)
}

/// The mean without the tenth at either end: a block in which something else happened moves it little.
pub(super) fn trimmed_mean(responses: &[f64]) -> Option<f64> {
    let mut sorted = responses.to_vec();
    sorted.sort_by(f64::total_cmp);
    let out = (TRIMMED * sorted.len() as f64) as usize;
    let kept = &sorted[out..sorted.len() - out];
    (!kept.is_empty()).then(|| kept.iter().sum::<f64>() / kept.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_has_students_interval() {
        let effect = Effect::of(&[0.02, 0.05, 0.11, 0.01, 0.08, 0.03]).unwrap();
        assert!((effect.ln - 0.05).abs() < 1e-12 && effect.blocks == 6);
        assert!((effect.ln_error - 0.015_706).abs() < 1e-5, "{effect:?}");
        // t of 5 degrees is exceeded by 2.015 on one side in 5 %, by 2.571 on both.
        assert!((effect.at_least(0.05) - (0.05 - 2.015 * 0.015_706)).abs() < 1e-4);
        assert!((effect.ratio().low.ln() - (0.05 - 2.571 * 0.015_706)).abs() < 1e-4);
        // So an effect of 2.2 standard errors is likely, and not proven.
        let short = Effect { ln: 0.034_5, ..effect };
        assert!(short.is_likely() && !short.is_proven() && short.ratio().low < 1.0);
        assert!(effect.is_proven() && !Effect::of(&[0.1, -0.05]).unwrap().is_proven());
        assert_eq!(Effect::of(&[0.1]), None);
    }

    #[test]
    fn outliers_are_trimmed() {
        assert_eq!(trimmed_mean(&[]), None);
        assert_eq!(trimmed_mean(&[3.0, 1.0]), Some(2.0));
        let mut responses = vec![1.0; 9];
        responses.push(1e9);
        assert_eq!(trimmed_mean(&responses), Some(1.0));
    }
}
