//! Looking at a race while it runs, and ending a comparison for what was seen.
//!
//! Whoever looks often enough at a 95 % interval sees it exclude the truth sooner or later: each look is another chance
//! to be wrong. A comparison that may end at any of several looks therefore spends its error α bit by bit. There are
//! three ways in which it ends, and two levels:
//!
//! - **Early, because a difference was found.** The end depends on the ratio itself, so the looks must share an error.
//!   Look k has α/6 · 1/(k(k+1)), which is α/6 for all looks together, however many there are (Bonferroni; no
//!   correlation between looks is used). The levels are extreme on purpose, as Haybittle (1971) and Peto et al. (1976)
//!   have them: a difference that is found early is clear, and almost the whole error is left for the end.
//! - **Because the interval is narrow enough, or because time is up.** Such an end depends on the scatter or on the
//!   clock. For normal values the scatter is independent of the mean, so the end says nothing about whether the
//!   interval holds the truth, and its level is 2/3 α. That is the *last* level.
//! - The sixth of α that remains is what it costs to choose the end by a scatter that is itself an estimate: where it
//!   is small by chance, the race ends too early. Such intervals hold the truth a little less often than their level
//!   says (Chow and Robbins 1965; Starr 1966). With 1/5 α for early ends and 4/5 for the last, equals were called
//!   different in up to 7 % of simulated races. Below [`PRECISE_FROM`] units the scatter is not trusted at all.
//!
//! By the sum of the three, a comparison is wrong in at most α of all races, whatever it ended for. Why not one of the
//! others: the boundaries of Pocock (1977) or O'Brien and Fleming (1979), or the spending functions of Lan and DeMets
//! (1983), use the correlation of looks, for which the number of units at the end must be known or the whole boundary
//! be integrated anew; a confidence sequence (Howard et al. 2021) allows a look after each unit, for intervals that are
//! at least a third wider at the end, and doubles the length of a race. Here the end's interval is 9 % wider than one
//! that was never looked at. The simulation is `tests/it/looks.rs`.

use crate::student_t_quantile;

/// Units before the first look. With fewer, the level of an early look needs an interval that is hardly ever seen.
pub const FIRST_LOOK: u32 = 4;

/// Units before an interval is believed to be narrow: the scatter of fewer is too often small by chance.
pub const PRECISE_FROM: u32 = 6;

/// At which level a comparison is judged, after looks have been taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// There were no looks; the whole α is for the one test.
    Whole,
    /// At a look from which it leaves only if a difference was found; looks are numbered from 1.
    Early {
        /// The number of the look.
        look: u32,
    },
    /// It left because it is known well enough, or because the race ended.
    Last,
}

impl Level {
    /// What α is multiplied by, above 0 and at most 1.
    ///
    /// # Panics
    ///
    /// If the number of a look is 0.
    pub fn share(self) -> f64 {
        match self {
            Level::Whole => 1.0,
            Level::Early { look } => {
                assert!(look > 0, "looks are numbered from 1");
                let look = f64::from(look);
                1.0 / 6.0 / (look * (look + 1.0))
            }
            Level::Last => 2.0 / 3.0,
        }
    }
}

/// The number, from 1, of the look that is due after so many units; `None` if none is. Looks are a quarter of
/// the units apart, since a few units more than before hardly show more than before: after 4, 5, 6, 7, 8, 10,
/// 12, 15, 18, 22 units.
pub fn look_due(units: u32) -> Option<u32> {
    let looks = std::iter::successors(Some(FIRST_LOOK), |at| Some(at + (at / 4).max(1)));
    (1..).zip(looks.take_while(|at| *at <= units)).find(|(_, at)| *at == units).map(|(number, _)| number)
}

/// Half of an interval's width, in the logarithm, after `more` further units, where it was `half_width_ln` after
/// `units` at a level of `alpha`, if they scatter as those before.
///
/// # Panics
///
/// If there are fewer than two units.
pub fn half_width_after(units: u32, half_width_ln: f64, more: u32, alpha: f64) -> f64 {
    assert!(units >= 2, "{units} units have no interval");
    let width = |units: u32| student_t_quantile(units - 1, alpha) / f64::from(units).sqrt();
    half_width_ln * width(units.saturating_add(more)) / width(units)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_a_quarter_apart() {
        let due: Vec<u32> = (0..70).filter(|units| look_due(*units).is_some()).collect();
        assert_eq!(due, [4, 5, 6, 7, 8, 10, 12, 15, 18, 22, 27, 33, 41, 51, 63]);
        assert_eq!((look_due(4), look_due(8), look_due(9), look_due(63)), (Some(1), Some(5), None, Some(15)));
    }

    #[test]
    fn all_levels_together_spend_no_more_than_there_is() {
        let early: f64 = (1..100_000).map(|look| Level::Early { look }.share()).sum();
        assert!(early < 1.0 / 6.0 && early > 0.1666, "{early}");
        // The last sixth pays for ends that are chosen by an estimate.
        assert!(early + Level::Last.share() <= 5.0 / 6.0);
        assert!((Level::Whole.share() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn further_units_make_an_interval_narrower() {
        assert!((half_width_after(6, 0.06, 0, 0.05) - 0.06).abs() < 1e-12);
        // From 400 on t hardly changes, and four times the units halve the width.
        assert!((half_width_after(400, 0.06, 1200, 0.05) / 0.03 - 1.0).abs() < 0.01);
        assert!(half_width_after(4, 0.06, 1, 0.05) < 0.06 * (4.0_f64 / 5.0).sqrt());
    }
}
