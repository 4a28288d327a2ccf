//! Which options are worth a race: alone first, then all at once.

use super::design::{SET_MAX, Visit, factorial, main_effects};
use super::space::ARMS_MAX;
use super::tally::Tally;
use super::{Arm, Effect, Response, Scored, Space, Stage, StageName, Trials};
use crate::Random;

/// The most arms that go into the race.
pub(super) const RACING_MAX: usize = 8;

/// Of these, the most that are one option alone.
const ALONE_MAX: usize = 4;

/// An option that alone is worse by this many times the scatter of a difference is not tried among others: half of all
/// arms would carry the damage, and the smaller effects would drown in it.
const HARMFUL: f64 = 4.0;

/// An option stands out of the noise if its effect is more than this many standard errors.
const STANDS_OUT: f64 = 1.3;

/// Factorial visits for each option, at least: fewer do not separate them.
const VISITS_PER_OPTION: f64 = 1.5;

/// The fewest visits of a screening.
pub(super) fn visits_min(space: &Space) -> f64 {
    let options = space.options() as f64;
    let blocks = (VISITS_PER_OPTION * options / (ARMS_MAX - 1) as f64).ceil().max(2.0);
    alone(space.options()) + blocks * ARMS_MAX as f64
}

fn alone(options: usize) -> f64 {
    (options + options.div_ceil(ARMS_MAX)) as f64
}

/// Screens the options within `visits` visits, and selects the arms for the race. `scatter_ln` is
/// that of the calibration.
pub(super) fn screen<T: Trials>(
    space: &Space,
    scatter_ln: f64,
    visits: f64,
    random: &mut Random,
    trials: &mut T,
) -> Result<Vec<Arm>, T::Error> {
    let options: Vec<usize> = (0..space.options()).collect();
    let mut seen = Visits { visits: Vec::new(), blocks: 0 };
    let mut tally = Tally::of(options.iter().map(|option| Arm::of([*option])).collect());
    for some in options.chunks(ARMS_MAX) {
        tally.visit(some, trials)?;
        seen.add(Arm::default(), 0.0);
        some.iter().for_each(|at| tally.gains(*at).iter().for_each(|gain| seen.add(Arm::of([*at]), *gain)));
        seen.blocks += 1;
    }
    let harmful = |at: usize| tally.gains(at).iter().any(|gain| *gain < -HARMFUL * scatter_ln);
    let alive: Vec<usize> =
        options.iter().copied().filter(|at| tally.broken[*at].is_none() && !harmful(*at)).collect();
    let mut left = visits - alone(space.options());
    while !alive.is_empty() && (left > 0.0 || seen.blocks < 2) {
        let arms = factorial(space, &alive, random);
        left -= arms.len() as f64 + 1.0;
        seen.add(Arm::default(), 0.0);
        for (arm, response) in arms.iter().zip(trials.block(&arms)?) {
            if let Response::Measured { gain, .. } = response {
                seen.add(arm.clone(), gain);
            }
        }
        seen.blocks += 1;
    }
    let effects = seen.effects(space.options());
    let racing = racing(space, &alive, &effects);
    let scored = |at: usize| Scored {
        arm: Arm::of([at]),
        effect: effects[at],
        broken: tally.broken[at].clone(),
        kept: racing.iter().any(|arm| arm.holds(at)),
    };
    let blocks = u32::try_from(seen.blocks).unwrap_or(u32::MAX);
    trials.ended(&Stage {
        name: StageName::Screening,
        blocks,
        arms: options.iter().map(|at| scored(*at)).collect(),
    })?;
    Ok(racing)
}

/// All visits of a screening.
struct Visits {
    visits: Vec<(usize, Arm, f64)>,
    blocks: usize,
}

impl Visits {
    fn add(&mut self, arm: Arm, gain: f64) {
        self.visits.push((self.blocks, arm, gain));
    }

    fn effects(&self, options: usize) -> Vec<Option<Effect>> {
        let visits: Vec<Visit<'_>> =
            self.visits.iter().map(|(block, arm, gain)| Visit { block: *block, arm, gain: *gain }).collect();
        let degrees = visits.len().saturating_sub(options + self.blocks).max(1);
        // The number of blocks is set so that the degrees of freedom match those of the fit.
        let blocks = u32::try_from(degrees + 1).unwrap_or(u32::MAX);
        main_effects(&visits, options)
            .into_iter()
            .map(|found| found.map(|(ln, ln_error)| Effect { ln, ln_error, blocks }))
            .collect()
    }
}

/// Selects the arms for the race: the best options alone, the best two together, and the best three, four, and so on
/// of those that stand out of the noise. If two options work only together, each shows half of the effect here, and so
/// both end up in one of the sets.
fn racing(space: &Space, alive: &[usize], effects: &[Option<Effect>]) -> Vec<Arm> {
    let mut ranked: Vec<(usize, Effect)> =
        alive.iter().filter_map(|option| Some((*option, effects[*option].filter(|e| e.ln > 0.0)?))).collect();
    ranked.sort_by(|a, b| b.1.ln.total_cmp(&a.1.ln));
    let alone = ranked.iter().take(ALONE_MAX).map(|(option, _)| Arm::of([*option]));
    // Of each factor the best value that goes with the better ones.
    let mut best: Vec<(usize, Effect)> = Vec::new();
    for (option, effect) in &ranked {
        let others: Vec<usize> = best.iter().map(|(other, _)| *other).collect();
        let is_new = others.iter().all(|other| space.factor_of(*other) != space.factor_of(*option));
        if is_new && space.goes_with(*option, &others) {
            best.push((*option, *effect));
        }
    }
    best.truncate(SET_MAX);
    let first = |count: usize| Arm::of(best.iter().take(count).map(|(option, _)| *option));
    let out = best.iter().filter(|(_, effect)| effect.ln > STANDS_OUT * effect.ln_error).count();
    let mut arms: Vec<Arm> = alone.collect();
    arms.extend([2, 3, 4, SET_MAX].map(|count| first(count.min(out.max(2)))));
    let mut racing: Vec<Arm> = Vec::with_capacity(RACING_MAX);
    for arm in arms {
        if !arm.is_incumbent() && !racing.contains(&arm) {
            racing.push(arm);
        }
    }
    racing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_race_alone_and_together() {
        let space = Space::new(&[2, 1, 1, 1, 1]);
        let effect = |ln: f64| Some(Effect { ln, ln_error: 0.01, blocks: 20 });
        let effects = [effect(0.05), effect(0.04), effect(-0.1), effect(0.03), None, effect(0.002)];
        let arms = racing(&space, &[0, 1, 2, 3, 4, 5], &effects);
        // Options 0 and 1 are values of one factor, and never together.
        let expected = [vec![0], vec![1], vec![3], vec![5], vec![0, 3]];
        assert_eq!(arms.iter().map(|arm| arm.options().to_vec()).collect::<Vec<_>>(), expected);
        assert_eq!(racing(&space, &[2], &effects), []);
        let apart = space.apart(vec![(0, 3)]);
        assert!(!racing(&apart, &[0, 1, 2, 3, 4, 5], &effects).contains(&Arm::of([0, 3])));
    }
}
