//! Searches for settings that help, with hold-out and ablation; the answer may be that none does.
//!
//! It searches a [`Space`] of options by comparing [`Arm`]s, which are sets of options. The comparison happens in
//! blocks, in which the incumbent (no option set) and some arms are visited next to each other. Only differences
//! within a block count, so that the machine's drift from block to block cancels. In order:
//!
//! 1. **Calibration**: the incumbent against itself. Its scatter is the noise of every later stage. If the scatter is
//!    too large, or the incumbent differs from itself, the search stops.
//! 2. **Screening**, where there are more combinations than fit into a block: every option alone once, then factorial
//!    blocks in which half of all options are on at a time, so that every visit has information on every option.
//! 3. **Race**, where there is more than one option: sequential halving (Karnin, Koren and Somekh 2013) among the best
//!    options and their combinations.
//! 4. **Confirmation** of the one winner on fresh blocks, which played no part in choosing it. This is what keeps
//!    false winners rare: the best of a dozen arms that do nothing looks good in nine searches of ten.
//! 5. **Ablation**: the winner without each of its options. Then the remaining set is compared with incumbent and
//!    winner again, on fresh blocks. The smallest set that keeps the gain is the answer.
//!
//! The search works on logarithms of ratios; [`Trials`] makes the visits. `tests/it/search.rs` checks its guarantees
//! by simulations with known truths.

mod ablation;
mod calibration;
mod confirmation;
mod design;
mod effect;
mod halving;
mod screening;
mod space;
mod tally;

pub use calibration::{Calibration, Unfit};
pub use effect::Effect;
pub use space::{Arm, OPTIONS_MAX, Space};

use crate::Random;
use ablation::{Ablated, ablate};
use calibration::calibrate;
use confirmation::{Confirmed, confirm};
use halving::race;
use screening::screen;

/// What a visit of an arm gave, against the incumbent of the same block.
#[derive(Debug, Clone, PartialEq)]
pub enum Response {
    /// The visit counts; its figures follow.
    Measured {
        /// How much better the objective was: the logarithm of the ratio, above 0 is better.
        gain: f64,
        /// How much worse each guarded figure was, likewise: above 0 is worse; `None` where it has no value. Every
        /// response has the same number of them.
        harms: Vec<Option<f64>>,
    },
    /// The visit does not count, through no fault of the arm.
    Void,
    /// The arm cannot be: it was refused or stopped working. It is not visited again.
    Broken(String),
}

/// What visits arms for the search: a race, or a simulation in tests.
pub trait Trials {
    /// Why there are no more.
    type Error;

    /// Visits the incumbent and these arms, in an order that favours none, and compares each with that incumbent. If
    /// the incumbent is among the arms, it is visited a second time as an arm.
    fn block(&mut self, arms: &[Arm]) -> Result<Vec<Response>, Self::Error>;

    /// How many visits there can still be; a block takes one for each of its arms and one for its incumbent. Asked
    /// after the calibration, so that what a visit takes may be learned from that.
    fn visits_left(&self) -> f64;

    /// A stage is over. Called before the next begins.
    fn ended(&mut self, stage: &Stage) -> Result<(), Self::Error>;
}

/// What a search is held to.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// Seed of every random order in the search.
    pub seed: u64,
    /// The smallest gain, as a logarithm, that the search must find with a probability of 80 %. If the budget does not
    /// resolve it, the search does not start.
    pub resolve_ln: f64,
    /// By how much each guarded figure may get worse, as a logarithm: a proven but negligible difference is no
    /// reason to go without a gain.
    pub guards: Vec<f64>,
}

/// A part of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StageName {
    /// The incumbent is compared with itself.
    Calibration,
    /// The effect of each option, alone and among others.
    Screening,
    /// Sequential halving among the best options and their combinations.
    Race,
    /// The winner on fresh blocks.
    Confirmation,
    /// The winner without each of its options.
    Ablation,
    /// The set that the ablation kept, on fresh blocks.
    Recheck,
}

/// What a stage found.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// The stage's place in the search.
    pub name: StageName,
    /// The number of blocks that it used.
    pub blocks: u32,
    /// The arms that it visited, with their results.
    pub arms: Vec<Scored>,
}

/// An arm in a stage.
#[derive(Debug, Clone, PartialEq)]
pub struct Scored {
    /// The options that were in force.
    pub arm: Arm,
    /// Its gain over the incumbent; in an ablation the loss of the winner without it. Of stages that choose, this is
    /// what they chose by, and flatters the chosen.
    pub effect: Option<Effect>,
    /// Why it was not visited any more.
    pub broken: Option<String>,
    /// Whether it went on to the next round or stage.
    pub kept: bool,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq)]
pub enum SearchConclusion {
    /// There was no search: the machine is not fit for it, or the budget is too small.
    Unfit(Unfit),
    /// No arm helps by as much as this budget resolves.
    Nothing(Nothing),
    /// A set of options that helps.
    Better {
        /// The smallest set that keeps the gain.
        arm: Arm,
        /// Its gain, from blocks that played no part in choosing it.
        effect: Effect,
        /// What each guarded figure got worse by, likewise; `None` with too few blocks.
        harms: Vec<Option<Effect>>,
        /// Options of the winner that had no effect.
        dropped: Vec<usize>,
        /// Whether there was time to find out which of the winner's options have an effect.
        ablated: bool,
    },
}

/// An answer, and how fine it is.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchResult {
    /// The result, or why there is none.
    pub answer: SearchConclusion,
    /// The gain, as a logarithm, that the hold-out finds with a probability of 80 %; a smaller gain may have been
    /// missed. `None` if the noise is unknown.
    pub resolvable_ln: Option<f64>,
}

/// Why the search found no arm that helps.
#[derive(Debug, Clone, PartialEq)]
pub enum Nothing {
    /// No arm was better than the incumbent even where the best one was chosen.
    NoneBetter,
    /// The best arm worked in the race, if there was one, and not afterwards.
    Broke {
        /// The best arm of the race, or the only one.
        arm: Arm,
        /// What went wrong afterwards.
        why: String,
    },
    /// Too few of the new blocks counted to judge the best arm's gain.
    TooFewBlocks {
        /// The best arm of the race, or the only one.
        arm: Arm,
    },
    /// The best arm's gain did not reappear on fresh blocks, or did not exceed the incumbent's difference from itself.
    NotConfirmed {
        /// The best arm of the race, or the only one.
        arm: Arm,
        /// Its gain on the fresh blocks.
        effect: Effect,
    },
    /// The best arm makes something else worse.
    Harms {
        /// The best arm of the race, or the only one.
        arm: Arm,
        /// Its gain on the fresh blocks.
        effect: Effect,
        /// The index of the guarded figure.
        guard: usize,
        /// By how much that got worse.
        harm: Effect,
    },
}

/// The shares of the visits after calibration. What the race does not need is the hold-out's.
struct Shares {
    screening: f64,
    race: f64,
    confirmation: f64,
}

/// A fifth to find out which options matter, a quarter to find the best arm, three tenths to confirm it and the rest
/// to ablate it. In simulations other shares found no more, as long as race and confirmation had roughly equal shares.
const SHARES: Shares = Shares { screening: 0.2, race: 0.25, confirmation: 0.3 };

impl Shares {
    /// The screening's share of all visits: zero where all combinations can race.
    fn of_screening(&self, space: &Space) -> f64 {
        if space.fits_a_block() { 0.0 } else { self.screening }
    }

    /// The race's share of the visits after the screening: zero where there is only one arm.
    fn of_race(&self, space: &Space) -> f64 {
        if space.options() == 1 { 0.0 } else { self.race / (1.0 - self.screening) }
    }

    /// The hold-out's share of the visits after the race. It includes the ablation's share if there are no options to
    /// take away.
    fn of_hold_out(&self, options: usize) -> f64 {
        if options == 1 { 1.0 } else { self.confirmation / (1.0 - self.screening - self.race) }
    }

    /// The hold-out's, of all visits, at least.
    fn of_all_for_hold_out(&self, space: &Space) -> f64 {
        (1.0 - self.of_screening(space)) * (1.0 - self.of_race(space)) * self.of_hold_out(space.factors())
    }
}

/// Runs all stages on a space of options.
///
/// # Errors
/// Passes on the errors of `trials`.
pub fn search<T: Trials>(space: &Space, rules: &Rules, trials: &mut T) -> Result<SearchResult, T::Error> {
    let calibration = calibrate(trials)?;
    let visits = trials.visits_left();
    let hold_out = SHARES.of_all_for_hold_out(space) * visits;
    let resolvable_ln = calibration.difference.map(|_| calibration.resolvable_ln(hold_out));
    let answer = match calibration.fit(space, hold_out, visits, rules) {
        Err(unfit) => SearchConclusion::Unfit(unfit),
        Ok(()) => find(space, &calibration, visits, rules, trials)?,
    };
    // The resolution that the hold-out reached is known better than the planned one.
    let resolvable_ln = match &answer {
        SearchConclusion::Nothing(Nothing::NotConfirmed { effect, .. }) => Some(effect.resolvable_ln()),
        SearchConclusion::Unfit(_) | SearchConclusion::Nothing(_) | SearchConclusion::Better { .. } => {
            resolvable_ln
        }
    };
    Ok(SearchResult { answer, resolvable_ln })
}

/// All stages after the calibration.
fn find<T: Trials>(
    space: &Space,
    calibration: &Calibration,
    visits: f64,
    rules: &Rules,
    trials: &mut T,
) -> Result<SearchConclusion, T::Error> {
    let arms = if space.fits_a_block() {
        space.all_arms()
    } else {
        let mut random = Random::from_seed(rules.seed);
        screen(space, calibration.scatter_ln, SHARES.of_screening(space) * visits, &mut random, trials)?
    };
    // Visits may take longer than before, so every stage gets its share of the remaining ones.
    let for_race = SHARES.of_race(space) * trials.visits_left();
    let winner = if space.options() == 1 { arms.into_iter().next() } else { race(arms, for_race, trials)? };
    let Some(winner) = winner else { return Ok(SearchConclusion::Nothing(Nothing::NoneBetter)) };
    let alone = winner.options().len() == 1;
    let (effect, harms) = match confirm(&winner, SHARES.of_hold_out(winner.options().len()), rules, trials)? {
        Confirmed::No(nothing) => return Ok(SearchConclusion::Nothing(nothing)),
        Confirmed::Yes { effect, harms } => (effect, harms),
    };
    if alone {
        return Ok(SearchConclusion::Better {
            arm: winner,
            effect,
            harms,
            dropped: Vec::new(),
            ablated: true,
        });
    }
    Ok(match ablate(&winner, rules, trials)? {
        Ablated::NoTime => {
            SearchConclusion::Better { arm: winner, effect, harms, dropped: Vec::new(), ablated: false }
        }
        Ablated::Whole => {
            SearchConclusion::Better { arm: winner, effect, harms, dropped: Vec::new(), ablated: true }
        }
        Ablated::Again { effect, harms } => {
            SearchConclusion::Better { arm: winner, effect, harms, dropped: Vec::new(), ablated: true }
        }
        Ablated::Lost(nothing) => SearchConclusion::Nothing(nothing),
        Ablated::Smaller { arm, effect, harms } => {
            let dropped = winner.options().iter().copied().filter(|option| !arm.holds(*option)).collect();
            SearchConclusion::Better { arm, effect, harms, dropped, ablated: true }
        }
    })
}
