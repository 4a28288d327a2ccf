//! The incumbent compared with itself, and what follows for the search.

use super::confirmation::{HOLD_OUT_MIN, HOLD_OUT_VISITS};
use super::effect::resolving;
use super::space::ARMS_MAX;
use super::tally::Tally;
use super::{Arm, Effect, Rules, Space, StageName, Trials};
use crate::student_t_quantile;

/// How many blocks compare the incumbent with itself.
const BLOCKS: u32 = 8;

/// The scatter of a visit above which there is no search, as a logarithm: 15 %. Finding a gain of a tenth would take
/// some hundred blocks, and noise of that size has a cause that should be found first.
const SCATTER_MAX: f64 = 0.139_762;
/// Where the gain to find is large, a visit may scatter by this share of it, both as logarithms: a dozen
/// blocks find the gain.
const SCATTER_OF_GAIN: f64 = 0.25;

/// The scatter and drift of the incumbent compared with itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    /// Its difference from itself; `None` if too few blocks counted.
    pub difference: Option<Effect>,
    /// The scatter of a difference between two visits of a block, as a logarithm.
    pub scatter_ln: f64,
}

/// Why there can be no search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unfit {
    /// Too few blocks of the calibration counted.
    Void,
    /// A visit scatters by more than what can be searched in.
    Noisy {
        /// The scatter of a visit, as a logarithm.
        visit_ln: f64,
        /// The largest scatter accepted, as a logarithm.
        limit_ln: f64,
    },
    /// The incumbent differs from itself: some cause other than the settings makes a difference.
    Unsteady {
        /// The difference of the incumbent from itself.
        difference: Effect,
    },
    /// The budget does not suffice for all stages.
    Short {
        /// Visits that there were to be.
        visits: f64,
        /// The least number of visits that it takes.
        needed: f64,
    },
    /// The budget does not resolve what was to be resolved.
    Coarse {
        /// The gain that would be found with a probability of 80 %, as a logarithm.
        resolvable_ln: f64,
        /// The number of visits that would resolve the requested gain.
        needed: f64,
    },
}

/// Runs the calibration blocks and sums them up.
pub(super) fn calibrate<T: Trials>(trials: &mut T) -> Result<Calibration, T::Error> {
    let mut tally = Tally::of(vec![Arm::default()]);
    for _ in 0..BLOCKS {
        tally.visit(&[0], trials)?;
    }
    let difference = Effect::of(&tally.gains(0)).filter(|effect| effect.blocks > BLOCKS / 2);
    trials.ended(&tally.stage(StageName::Calibration, |_| difference, |_| true))?;
    let scatter_ln =
        difference.map_or(f64::INFINITY, |found| found.ln_error * f64::from(found.blocks).sqrt());
    Ok(Calibration { difference, scatter_ln })
}

impl Calibration {
    /// The gain that a hold-out of `visits` visits finds with a probability of 80 %, as a logarithm.
    pub(super) fn resolvable_ln(&self, visits: f64) -> f64 {
        let blocks = (visits / HOLD_OUT_VISITS).floor().max(2.0);
        // Against the mean of two incumbents: three halves of a visit's variance, which is half of a difference's.
        resolving(blocks.min(1e6) as u32) * self.scatter_ln * (0.75 / blocks).sqrt()
    }

    /// Whether a search with `visits` visits, `hold_out` of them for the hold-out, is possible.
    pub(super) fn fit(&self, space: &Space, hold_out: f64, visits: f64, rules: &Rules) -> Result<(), Unfit> {
        let Some(difference) = self.difference else { return Err(Unfit::Void) };
        let visit_ln = self.scatter_ln / std::f64::consts::SQRT_2;
        let limit_ln = SCATTER_MAX.max(SCATTER_OF_GAIN * rules.resolve_ln);
        if visit_ln > limit_ln {
            return Err(Unfit::Noisy { visit_ln, limit_ln });
        }
        // One search in a hundred is refused without a real cause.
        if difference.ln.abs() > student_t_quantile(difference.blocks - 1, 0.01) * difference.ln_error {
            return Err(Unfit::Unsteady { difference });
        }
        let needed = visits_min(space) - f64::from(2 * BLOCKS);
        if visits < needed {
            return Err(Unfit::Short { visits, needed });
        }
        let resolvable_ln = self.resolvable_ln(hold_out);
        if resolvable_ln > rules.resolve_ln {
            // The error falls with the root of the visits.
            let needed = visits * (resolvable_ln / rules.resolve_ln).powi(2);
            return Err(Unfit::Coarse { resolvable_ln, needed });
        }
        Ok(())
    }
}

/// The fewest visits of a whole search, calibration included: enough for the fewest blocks of its dearest stage.
fn visits_min(space: &Space) -> f64 {
    let shares = super::SHARES;
    let hold_out = HOLD_OUT_MIN * HOLD_OUT_VISITS / shares.of_all_for_hold_out(space);
    let search = if space.options() == 1 {
        0.0
    } else if space.fits_a_block() {
        // A race that needs more than its part may have the screening's as well: the hold-out then has
        // what it has elsewhere.
        super::halving::visits_min(space.all_arms().len()) / (shares.screening + shares.race)
    } else {
        let race = super::halving::visits_min(super::screening::RACING_MAX) / shares.race;
        race.max(super::screening::visits_min(space) / shares.screening)
    };
    f64::from(2 * BLOCKS) + hold_out.max(search)
}

impl Space {
    /// The fewest visits that a search of this space takes, calibration included.
    pub fn visits_min(&self) -> f64 {
        visits_min(self)
    }

    /// The most arms that stand at the same time, the incumbent included.
    pub fn standing_max(&self) -> usize {
        ARMS_MAX + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calibration(ln: f64, scatter_ln: f64) -> Calibration {
        let difference = Effect { ln, ln_error: scatter_ln / 8_f64.sqrt(), blocks: 8 };
        Calibration { difference: Some(difference), scatter_ln }
    }

    fn fit(calibration: Calibration, visits: f64, resolve_ln: f64) -> Result<(), Unfit> {
        let rules = Rules { seed: 1, resolve_ln, guards: vec![] };
        calibration.fit(&Space::new(&[1, 1]), 0.3 * visits, visits, &rules)
    }

    #[test]
    fn a_machine_that_is_not_fit_is_refused_with_figures() {
        assert_eq!(fit(calibration(0.01, 0.05), 600.0, 0.05), Ok(()));
        assert!(
            matches!(fit(calibration(0.0, 0.3), 600.0, 0.5), Err(Unfit::Noisy { visit_ln, .. }) if visit_ln > 0.2)
        );
        assert!(matches!(fit(calibration(0.1, 0.05), 600.0, 0.5), Err(Unfit::Unsteady { .. })));
        assert!(
            matches!(fit(calibration(0.0, 0.05), 40.0, 0.5), Err(Unfit::Short { needed, .. }) if needed > 40.0)
        );
        // A gain that large is found all the same.
        assert_eq!(fit(calibration(0.0, 0.3), 600.0, 0.9), Ok(()));
        let void = Calibration { difference: None, scatter_ln: f64::INFINITY };
        assert_eq!(fit(void, 600.0, 0.5), Err(Unfit::Void));
    }

    #[test]
    fn a_coarse_budget_says_what_it_resolves_and_what_would_suffice() {
        let Err(Unfit::Coarse { resolvable_ln, needed }) = fit(calibration(0.0, 0.1), 200.0, 0.02) else {
            panic!("200 visits do not resolve 2 %")
        };
        // 20 blocks: (2.093 + 0.861) · 0.1 · √(0.75/20).
        assert!((resolvable_ln - 0.0572).abs() < 2e-4, "{resolvable_ln}");
        assert!((needed / 200.0 - (resolvable_ln / 0.02).powi(2)).abs() < 1e-9);
        assert_eq!(fit(calibration(0.0, 0.1), needed * 1.05, 0.02), Ok(()));
    }
}
