//! Finds the winner's options that have an effect: each is taken away, and the remaining set is compared with the
//! winner.

use super::confirmation::{CONTROL, Confirmed, against_both, harms, judge};
use super::tally::Tally;
use super::{Arm, Effect, Nothing, Rules, StageName, Trials};

/// Which of the winner's options have an effect.
pub(super) enum Ablated {
    /// Unknown: the budget is used up.
    NoTime,
    /// All of them, as far as the visits resolve.
    Whole,
    /// All of them, and fresh blocks proved its gain again.
    Again { effect: Effect, harms: Vec<Option<Effect>> },
    /// On fresh blocks the winner had no gain, did harm, or did not work.
    Lost(Nothing),
    /// A smaller set keeps the gain.
    Smaller { arm: Arm, effect: Effect, harms: Vec<Option<Effect>> },
}

/// The ablation's share of the visits after the confirmation; the rest is for the recheck.
const ABLATION: f64 = 0.5;

/// The fewest blocks of either.
const BLOCKS_MIN: f64 = 6.0;

/// The share of the winner's gain that a smaller set must keep. It must be proven to be better
/// than the incumbent, besides.
const KEPT_MIN: f64 = 2.0 / 3.0;

/// The share of the winner's gain that a smaller set must not be likely to lose. With blocks that scatter little, a
/// thousandth can be shown too, and is no reason to set one more thing.
const LOST_MAX: f64 = 0.1;

/// Looks for the smallest set that keeps the winner's gain.
pub(super) fn ablate<T: Trials>(winner: &Arm, rules: &Rules, trials: &mut T) -> Result<Ablated, T::Error> {
    let options = winner.options();
    let visits = trials.visits_left();
    let blocks = (ABLATION * visits / (options.len() + 2) as f64).floor();
    if blocks < BLOCKS_MIN {
        return Ok(Ablated::NoTime);
    }
    let arms = [winner.clone()].into_iter().chain(options.iter().map(|option| winner.without(*option)));
    let mut tally = Tally::of(arms.collect());
    let all: Vec<usize> = (0..=options.len()).collect();
    // The recheck's half is its own, if visits take longer than they did.
    let for_recheck = (1.0 - ABLATION) * visits;
    for block in 0..blocks as u32 {
        if f64::from(block) >= BLOCKS_MIN && trials.visits_left() < for_recheck {
            break;
        }
        tally.visit(&all, trials)?;
    }
    if let Some(why) = &tally.broken[0] {
        let lost = Nothing::Broke { arm: winner.clone(), why: why.clone() };
        trials.ended(&tally.stage(StageName::Ablation, |_| None, |_| false))?;
        return Ok(Ablated::Lost(lost));
    }
    // The loss without an option: the winner's gain less that of the rest.
    let loss = |at: usize| Effect::of(&tally.combined(&[(0, 1.0), (at, -1.0)]));
    let needed = |at: usize| tally.broken[at].is_some() || loss(at).is_none_or(|loss| loss.is_likely());
    let shown = |at: usize| if at == 0 { Effect::of(&tally.gains(0)) } else { loss(at) };
    trials.ended(&tally.stage(StageName::Ablation, shown, |at| at > 0 && needed(at)))?;
    let mut idle: Vec<(usize, f64)> = (1..=options.len())
        .filter(|at| !needed(*at))
        .map(|at| (options[at - 1], loss(at).map_or(0.0, |loss| loss.ln)))
        .collect();
    idle.sort_by(|a, b| a.1.total_cmp(&b.1));
    recheck(winner, &idle, rules, trials)
}

/// Compares smaller sets with incumbent and winner, and takes the smallest that keeps the gain. An option without a
/// proven loss may still contribute: several small losses together may be the gain. So the sets are nested: one
/// without all such options, and one without only those that showed no loss.
fn recheck<T: Trials>(
    winner: &Arm,
    idle: &[(usize, f64)],
    rules: &Rules,
    trials: &mut T,
) -> Result<Ablated, T::Error> {
    let without = |most: f64| {
        idle.iter()
            .filter(|(_, loss)| *loss <= most)
            .fold(winner.clone(), |arm, (option, _)| arm.without(*option))
    };
    let mut smaller = vec![without(f64::INFINITY), without(0.0)];
    // If no option's loss can be shown, the option with the largest loss is the best guess at one that has an effect.
    if smaller[0].is_incumbent() {
        smaller[0] = Arm::of(idle.last().map(|(option, _)| *option));
    }
    smaller.dedup();
    smaller.retain(|arm| arm != winner && !arm.is_incumbent());
    let visits = trials.visits_left();
    let arms: Vec<Arm> = [Arm::default(), winner.clone()].into_iter().chain(smaller.clone()).collect();
    let blocks = (visits / (arms.len() + 1) as f64).floor();
    if smaller.is_empty() {
        return Ok(Ablated::Whole);
    }
    if blocks < BLOCKS_MIN {
        return Ok(Ablated::NoTime);
    }
    let mut tally = Tally::of(arms);
    let all: Vec<usize> = (0..tally.arms.len()).collect();
    for block in 0..blocks as u32 {
        if f64::from(block) >= BLOCKS_MIN && trials.visits_left() < (all.len() + 1) as f64 {
            break;
        }
        tally.visit(&all, trials)?;
    }
    let kept = (WINNER + 1..tally.arms.len()).find_map(|at| {
        let Confirmed::Yes { effect, harms } = judge(&tally, at, rules) else { return None };
        keeps(&tally, at).then(|| (at, Ablated::Smaller { arm: tally.arms[at].clone(), effect, harms }))
    });
    let gain = |at: usize| {
        Effect::of(&if at == CONTROL { tally.gains(at) } else { tally.combined(&against_both(at)) })
    };
    let chosen = kept.as_ref().map(|(at, _)| *at);
    trials.ended(&tally.stage(StageName::Recheck, gain, |at| Some(at) == chosen.or(Some(WINNER))))?;
    Ok(kept.map_or_else(|| once_more(&tally, rules), |(_, smaller)| smaller))
}

/// The recheck's result for the winner, where no smaller set keeps its gain. The winner was confirmed before, with more
/// blocks. So a gain that is only unproven here is no reason to drop it, but a gain that vanished is, and so is a
/// guarded figure that is proven to be worse. The gain that is then given is the one that was proven.
fn once_more(tally: &Tally, rules: &Rules) -> Ablated {
    match judge(tally, WINNER, rules) {
        Confirmed::Yes { effect, harms } => Ablated::Again { effect, harms },
        Confirmed::No(Nothing::NotConfirmed { arm, effect }) if effect.ln > 0.0 => {
            match harms(tally, WINNER, rules) {
                Ok(_) => Ablated::Whole,
                Err((guard, harm)) => Ablated::Lost(Nothing::Harms { arm, effect, guard, harm }),
            }
        }
        Confirmed::No(Nothing::TooFewBlocks { .. }) => Ablated::Whole,
        Confirmed::No(nothing) => Ablated::Lost(nothing),
    }
}

/// The winner's column of a recheck.
const WINNER: usize = 1;

/// Whether an arm has most of the winner's gain, and is not likely to lose a part of it that matters.
fn keeps(tally: &Tally, at: usize) -> bool {
    let gain = |at: usize| Effect::of(&tally.combined(&against_both(at))).map(|effect| effect.ln);
    let most = gain(at) >= gain(WINNER).map(|whole| KEPT_MIN * whole);
    let [_, (control, half)] = against_both(at);
    let lost = [(WINNER, 1.0 - LOST_MAX), (at, -1.0), (control, -LOST_MAX * half)];
    most && Effect::of(&tally.combined(&lost)).is_some_and(|lost| !lost.is_likely())
}
