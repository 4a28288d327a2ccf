//! Factorial blocks, and what each option does, by least squares.

use super::space::ARMS_MAX;
use super::{Arm, Space};
use crate::Random;

/// The cyclic generator of the design of Plackett and Burman (1946) in twelve runs: eleven columns, any two of
/// which have each of the four combinations three times. The twelfth run has everything off, and is the
/// incumbent of the block.
const GENERATOR: [bool; 11] = [true, true, false, true, true, true, false, false, false, true, false];

/// The most settings of an arm: with more, the setting that broke it could not be identified, nor could the arm be
/// ablated.
pub(super) const SET_MAX: usize = 8;

/// A block of arms in which about half of the factors are on: Plackett and Burman's runs, with the factors in random
/// columns and values in random order. More factors than columns are drawn again for every block.
pub(super) fn factorial(space: &Space, alive: &[usize], random: &mut Random) -> Vec<Arm> {
    let mut factors: Vec<usize> = alive.iter().map(|option| space.factor_of(*option)).collect();
    factors.dedup();
    random.shuffle(&mut factors);
    factors.truncate(GENERATOR.len());
    let mut columns: Vec<usize> = (0..GENERATOR.len()).collect();
    random.shuffle(&mut columns);
    let mut runs = vec![Vec::new(); GENERATOR.len()];
    for (factor, column) in factors.iter().zip(columns) {
        let values: Vec<usize> =
            alive.iter().copied().filter(|option| space.factor_of(*option) == *factor).collect();
        let mut on: Vec<usize> =
            (0..runs.len()).filter(|run| GENERATOR[(run + column) % GENERATOR.len()]).collect();
        random.shuffle(&mut on);
        for (nth, run) in on.into_iter().enumerate() {
            // Which of two that contradict each other is left out changes with the order of the factors.
            let value = values[nth % values.len()];
            if space.goes_with(value, &runs[run]) {
                runs[run].push(value);
            }
        }
    }
    let mut arms: Vec<Arm> = runs.into_iter().map(Arm::of).collect();
    // With few factors a run may appear twice, and one has every option off; one visit of each is enough.
    arms.sort();
    arms.dedup();
    arms.retain(|arm| !arm.is_incumbent());
    arms.truncate(ARMS_MAX);
    arms
}

/// A visit: the block, what was on, and the gain.
pub(super) struct Visit<'a> {
    pub(super) block: usize,
    pub(super) arm: &'a Arm,
    pub(super) gain: f64,
}

/// The effect of each option, by least squares over visits less the mean of their block; `None` for options that
/// cannot be separated from others. The second figure is the standard error.
pub(super) fn main_effects(visits: &[Visit<'_>], options: usize) -> Vec<Option<(f64, f64)>> {
    let rows = centred(visits, options);
    let mut used: Vec<usize> =
        (0..options).filter(|option| rows.iter().any(|(x, _)| x[*option] != 0.0)).collect();
    let product = |a: usize, b: usize| rows.iter().map(|(x, _)| x[a] * x[b]).sum::<f64>();
    let inverse = loop {
        let matrix: Vec<Vec<f64>> =
            used.iter().map(|a| used.iter().map(|b| product(*a, *b)).collect()).collect();
        match inverse(matrix) {
            Ok(inverse) => break inverse,
            Err(at) => drop(used.remove(at)),
        }
    };
    let right: Vec<f64> = used.iter().map(|a| rows.iter().map(|(x, y)| x[*a] * y).sum()).collect();
    let dot = |row: &[f64]| row.iter().zip(&right).map(|(a, b)| a * b).sum::<f64>();
    let effects: Vec<f64> = inverse.iter().map(|row| dot(row)).collect();
    let fitted =
        |x: &[f64]| used.iter().zip(&effects).map(|(option, effect)| x[*option] * effect).sum::<f64>();
    let squares: f64 = rows.iter().map(|(x, y)| (y - fitted(x)).powi(2)).sum();
    let blocks = visits.iter().map(|visit| visit.block).max().map_or(0, |last| last + 1);
    let degrees = rows.len().saturating_sub(used.len() + blocks).max(1) as f64;
    let mut found = vec![None; options];
    for (at, option) in used.iter().enumerate() {
        found[*option] = Some((effects[at], (inverse[at][at] * squares / degrees).sqrt()));
    }
    found
}

/// The visits as rows of a linear model, less the means of their blocks.
fn centred(visits: &[Visit<'_>], options: usize) -> Vec<(Vec<f64>, f64)> {
    let mut rows: Vec<(Vec<f64>, f64)> = Vec::with_capacity(visits.len());
    for block in visits.chunk_by(|a, b| a.block == b.block) {
        let count = block.len() as f64;
        let on = |visit: &Visit<'_>, option: usize| f64::from(u8::from(visit.arm.holds(option)));
        let means: Vec<f64> = (0..options)
            .map(|option| block.iter().map(|visit| on(visit, option)).sum::<f64>() / count)
            .collect();
        let mean = block.iter().map(|visit| visit.gain).sum::<f64>() / count;
        rows.extend(block.iter().map(|visit| {
            ((0..options).map(|option| on(visit, option) - means[option]).collect(), visit.gain - mean)
        }));
    }
    rows
}

/// The inverse of a symmetric matrix, by Gauss and Jordan; or the column that depends on those before it.
fn inverse(mut matrix: Vec<Vec<f64>>) -> Result<Vec<Vec<f64>>, usize> {
    let size = matrix.len();
    let scale: Vec<f64> = (0..size).map(|at| matrix[at][at]).collect();
    let mut result: Vec<Vec<f64>> =
        (0..size).map(|row| (0..size).map(|column| f64::from(u8::from(row == column))).collect()).collect();
    for pivot in 0..size {
        // A matrix of sums of products is positive, so that no rows need to be exchanged.
        if matrix[pivot][pivot] <= 1e-9 * scale[pivot].max(1e-9) {
            return Err(pivot);
        }
        let by = matrix[pivot][pivot];
        for column in 0..size {
            matrix[pivot][column] /= by;
            result[pivot][column] /= by;
        }
        for row in (0..size).filter(|row| *row != pivot) {
            let by = matrix[row][pivot];
            for column in 0..size {
                matrix[row][column] -= by * matrix[pivot][column];
                result[row][column] -= by * result[pivot][column];
            }
        }
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_factor_is_on_in_half_of_the_runs_and_no_two_go_together() {
        let space = Space::new(&[1; 11]);
        let alive: Vec<usize> = (0..11).collect();
        let arms = factorial(&space, &alive, &mut Random::from_seed(1));
        assert_eq!(arms.len(), 11);
        for a in 0..11 {
            assert_eq!(arms.iter().filter(|arm| arm.holds(a)).count(), 6);
            for b in 0..a {
                assert_eq!(arms.iter().filter(|arm| arm.holds(a) && arm.holds(b)).count(), 3);
            }
        }
    }

    #[test]
    fn values_of_a_factor_share_its_runs_and_dead_options_are_left_out() {
        let space = Space::new(&[3, 1, 1, 1, 1]);
        let arms = factorial(&space, &[0, 1, 3, 4, 5, 6], &mut Random::from_seed(2));
        let on = |option: usize| arms.iter().filter(|arm| arm.holds(option)).count();
        assert_eq!((on(0), on(1), on(2)), (3, 3, 0));
        assert!(arms.iter().all(|arm| !(arm.holds(0) && arm.holds(1))));
    }

    #[test]
    fn of_options_that_contradict_each_other_a_run_has_one() {
        let space = Space::new(&[1; 11]).apart(vec![(0, 1), (4, 2)]);
        let alive: Vec<usize> = (0..11).collect();
        let mut random = Random::from_seed(4);
        let arms: Vec<Arm> = (0..20).flat_map(|_| factorial(&space, &alive, &mut random)).collect();
        let on = |option: usize| arms.iter().filter(|arm| arm.holds(option)).count();
        assert!(arms.iter().all(|arm| !(arm.holds(0) && arm.holds(1) || arm.holds(2) && arm.holds(4))));
        // The two share the runs that they would have had together.
        assert!([0, 1, 2, 4].iter().all(|option| on(*option) > 60), "{:?}", [0, 1, 2, 4].map(on));
        let visits: Vec<Visit<'_>> = arms
            .iter()
            .map(|arm| Visit { block: 0, arm, gain: 0.1 * f64::from(u8::from(arm.holds(1))) })
            .collect();
        let found = main_effects(&visits, 11);
        assert!((found[1].unwrap().0 - 0.1).abs() < 1e-9 && found[0].unwrap().0.abs() < 1e-9);
    }

    #[test]
    fn least_squares_find_what_was_put_in() {
        let space = Space::new(&[2, 1, 1, 1]);
        let truth = [0.03, -0.02, 0.0, 0.05, 0.01];
        let mut random = Random::from_seed(3);
        let mut arms = Vec::new();
        for block in 0..4 {
            arms.push((block, Arm::default()));
            arms.extend(factorial(&space, &[0, 1, 2, 3, 4], &mut random).into_iter().map(|arm| (block, arm)));
        }
        // Every block has its own offset, which is not an effect of any option.
        let visits: Vec<Visit<'_>> = arms
            .iter()
            .map(|(block, arm)| Visit {
                block: *block,
                arm,
                gain: arm.options().iter().map(|option| truth[*option]).sum::<f64>() + *block as f64,
            })
            .collect();
        for (found, truth) in main_effects(&visits, 6).iter().zip(truth) {
            let (effect, error) = found.unwrap();
            assert!((effect - truth).abs() < 1e-9 && error < 1e-6, "{effect} ± {error}, not {truth}");
        }
        assert_eq!(main_effects(&visits, 6)[5], None);
    }

    #[test]
    fn options_that_always_come_together_are_one() {
        let arms = [Arm::of([0, 1]), Arm::default(), Arm::of([0, 1, 2]), Arm::of([2])];
        let visits: Vec<Visit<'_>> = arms.iter().map(|arm| Visit { block: 0, arm, gain: 0.1 }).collect();
        let found = main_effects(&visits, 3);
        assert!(found[0].is_some() && found[1].is_none() && found[2].is_some());
    }
}
