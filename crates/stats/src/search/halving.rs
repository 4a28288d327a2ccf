//! Sequential halving: every round has as many visits, and half of its arms come into the next.

use super::tally::Tally;
use super::{Arm, Effect, StageName, Trials};

/// The fewest blocks of a round.
const BLOCKS_MIN: f64 = 2.0;

/// Races the arms within `visits` visits. `None` if none was better than the incumbent.
pub(super) fn race<T: Trials>(arms: Vec<Arm>, visits: f64, trials: &mut T) -> Result<Option<Arm>, T::Error> {
    let mut tally = Tally::of(arms);
    let mut racing: Vec<usize> = (0..tally.arms.len()).collect();
    let mut left = visits;
    while !racing.is_empty() {
        let rounds = rounds(racing.len());
        let blocks = (left / f64::from(rounds) / (racing.len() + 1) as f64).floor().max(BLOCKS_MIN);
        for _ in 0..blocks as u32 {
            left -= tally.visit(&racing, trials)?;
        }
        let score = |at: &usize| tally.score(*at).unwrap_or(f64::NEG_INFINITY);
        racing.sort_by(|a, b| score(b).total_cmp(&score(a)));
        // Broken arms leave, however few remain.
        racing.retain(|at| tally.score(*at).is_some());
        if racing.len() <= 1 || rounds == 1 {
            break;
        }
        racing.truncate(racing.len().div_ceil(2));
    }
    let winner = racing.first().copied().filter(|at| tally.score(*at).is_some_and(|score| score > 0.0));
    let effect = |at: usize| Effect::of(&tally.gains(at));
    trials.ended(&tally.stage(StageName::Race, effect, |at| Some(at) == winner))?;
    Ok(winner.map(|at| tally.arms[at].clone()))
}

/// The number of rounds until two arms are left and separated.
fn rounds(arms: usize) -> u32 {
    arms.max(2).next_power_of_two().ilog2()
}

/// The fewest visits of a race of `arms` arms.
pub(super) fn visits_min(arms: usize) -> f64 {
    let halves = std::iter::successors(Some(arms), |arms| (*arms > 2).then(|| arms.div_ceil(2)));
    // Every round has as many visits as the first, whose blocks are the largest.
    let first = BLOCKS_MIN * (arms + 1) as f64;
    first * halves.count().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_halve_until_two_are_left() {
        assert_eq!([1, 2, 3, 4, 5, 8, 12].map(rounds), [1, 1, 2, 2, 3, 3, 4]);
        assert_eq!(visits_min(2), 6.0);
        assert_eq!(visits_min(12), 4.0 * 26.0);
    }
}
