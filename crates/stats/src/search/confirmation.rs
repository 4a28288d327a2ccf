//! The hold-out: is the winner better on blocks that played no part in choosing it?

use super::tally::Tally;
use super::{Arm, Effect, Nothing, Rules, StageName, Trials};

/// The fewest blocks of a hold-out: with fewer the t distribution asks for half as much again.
pub(super) const HOLD_OUT_MIN: f64 = 8.0;

/// Visits of a block of the hold-out: the incumbent twice, and the arm.
pub(super) const HOLD_OUT_VISITS: f64 = 3.0;

/// The verdict of the hold-out.
pub(super) enum Confirmed {
    /// The arm is better, and no guarded figure is worse.
    Yes {
        effect: Effect,
        harms: Vec<Option<Effect>>,
    },
    No(Nothing),
}

/// The columns of a hold-out: the incumbent as a control, and the arm under test.
pub(super) const CONTROL: usize = 0;

/// Compares the winner with the mean of two incumbents, within the given share of the remaining visits.
pub(super) fn confirm<T: Trials>(
    winner: &Arm,
    share: f64,
    rules: &Rules,
    trials: &mut T,
) -> Result<Confirmed, T::Error> {
    let mut tally = Tally::of(vec![Arm::default(), winner.clone()]);
    let left = trials.visits_left();
    let blocks = (share * left / HOLD_OUT_VISITS).floor().max(HOLD_OUT_MIN);
    let for_others = (1.0 - share) * left;
    for block in 0..blocks as u32 {
        // Visits may take longer than they did. That is no reason in the data to end, and so does no harm.
        let late = f64::from(block) >= HOLD_OUT_MIN && trials.visits_left() < for_others.max(HOLD_OUT_VISITS);
        if late || tally.broken[1].is_some() {
            break;
        }
        tally.visit(&[CONTROL, 1], trials)?;
    }
    let confirmed = judge(&tally, 1, rules);
    let passed = matches!(confirmed, Confirmed::Yes { .. });
    trials.ended(&tally.stage(StageName::Confirmation, |at| effect(&tally, at), |at| at == 1 && passed))?;
    Ok(confirmed)
}

/// Whether an arm of a stage with a control is better. It must meet two conditions: its interval of 95 % lies above
/// zero, and its gain exceeds the incumbent's difference from itself in those blocks.
pub(super) fn judge(tally: &Tally, at: usize, rules: &Rules) -> Confirmed {
    let arm = tally.arms[at].clone();
    if let Some(why) = &tally.broken[at] {
        return Confirmed::No(Nothing::Broke { arm, why: why.clone() });
    }
    let Some(found) = effect(tally, at) else { return Confirmed::No(Nothing::TooFewBlocks { arm }) };
    let floor = Effect::of(&tally.gains(CONTROL)).map_or(0.0, |control| control.ln.abs());
    if !found.is_proven() || found.ln <= floor {
        return Confirmed::No(Nothing::NotConfirmed { arm, effect: found });
    }
    match harms(tally, at, rules) {
        Ok(harms) => Confirmed::Yes { effect: found, harms },
        Err((guard, harm)) => Confirmed::No(Nothing::Harms { arm, effect: found, guard, harm }),
    }
}

/// What each guarded figure got worse by; the first that is proven to be worse by more than it may.
pub(super) fn harms(tally: &Tally, at: usize, rules: &Rules) -> Result<Vec<Option<Effect>>, (usize, Effect)> {
    // Of all guards together one in twenty may be wrong (Bonferroni).
    let alpha = 0.05 / rules.guards.len().max(1) as f64;
    let mut harms = Vec::with_capacity(rules.guards.len());
    for (guard, most) in rules.guards.iter().enumerate() {
        let harm = Effect::of(&tally.harms(&against_both(at), guard));
        let worse = |harm: &Effect| harm.at_least(alpha) > 0.0 && harm.ln > *most;
        if let Some(harm) = harm.filter(worse) {
            return Err((guard, harm));
        }
        harms.push(harm);
    }
    Ok(harms)
}

/// The gain over the mean of both incumbents; of the control over the first.
fn effect(tally: &Tally, at: usize) -> Option<Effect> {
    if at == CONTROL { Effect::of(&tally.gains(at)) } else { Effect::of(&tally.combined(&against_both(at))) }
}

/// Responses are differences from the first incumbent; half the control's own brings that to the middle of both.
pub(super) fn against_both(at: usize) -> [(usize, f64); 2] {
    [(at, 1.0), (CONTROL, -0.5)]
}
