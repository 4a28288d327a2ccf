//! The results of a stage's blocks for each of its arms.

use super::effect::trimmed_mean;
use super::{Arm, Effect, Response, Scored, Stage, StageName, Trials};

/// The responses of a stage: one row a block, one column an arm.
pub(super) struct Tally {
    pub(super) arms: Vec<Arm>,
    rows: Vec<Vec<Option<Measured>>>,
    pub(super) broken: Vec<Option<String>>,
}

/// A response that counts.
#[derive(Clone)]
struct Measured {
    gain: f64,
    harms: Vec<Option<f64>>,
}

impl Tally {
    pub(super) fn of(arms: Vec<Arm>) -> Tally {
        let broken = vec![None; arms.len()];
        Tally { arms, rows: Vec::new(), broken }
    }

    /// Visits those arms once that are in `among` and have not broken. Returns how many visits that took.
    pub(super) fn visit<T: Trials>(&mut self, among: &[usize], trials: &mut T) -> Result<f64, T::Error> {
        let visited: Vec<usize> = among.iter().copied().filter(|at| self.broken[*at].is_none()).collect();
        let arms: Vec<Arm> = visited.iter().map(|at| self.arms[*at].clone()).collect();
        let mut row = vec![None; self.arms.len()];
        for (at, response) in visited.iter().zip(trials.block(&arms)?) {
            match response {
                Response::Measured { gain, harms } => row[*at] = Some(Measured { gain, harms }),
                Response::Void => {}
                Response::Broken(why) => self.broken[*at] = Some(why),
            }
        }
        self.rows.push(row);
        Ok(arms.len() as f64 + 1.0)
    }

    pub(super) fn blocks(&self) -> usize {
        self.rows.len()
    }

    /// The gains of an arm in all blocks in which it counted.
    pub(super) fn gains(&self, at: usize) -> Vec<f64> {
        self.combined(&[(at, 1.0)])
    }

    /// A weighted sum of several arms' gains, for each block in which all of them counted.
    pub(super) fn combined(&self, weights: &[(usize, f64)]) -> Vec<f64> {
        self.figures(weights, |measured| Some(measured.gain))
    }

    /// The same of a guarded figure.
    pub(super) fn harms(&self, weights: &[(usize, f64)], guard: usize) -> Vec<f64> {
        self.figures(weights, |measured| measured.harms.get(guard).copied().flatten())
    }

    fn figures(&self, weights: &[(usize, f64)], of: impl Fn(&Measured) -> Option<f64>) -> Vec<f64> {
        let sum = |row: &Vec<Option<Measured>>| -> Option<f64> {
            weights.iter().map(|(at, weight)| Some(weight * of(row[*at].as_ref()?)?)).sum()
        };
        self.rows.iter().filter_map(sum).collect()
    }

    /// The figure by which arms are ranked.
    pub(super) fn score(&self, at: usize) -> Option<f64> {
        trimmed_mean(&self.gains(at)).filter(|_| self.broken[at].is_none())
    }

    /// For tests, with a given effect of each arm.
    pub(super) fn stage(
        &self,
        name: StageName,
        effect: impl Fn(usize) -> Option<Effect>,
        kept: impl Fn(usize) -> bool,
    ) -> Stage {
        let scored = |at: usize| Scored {
            arm: self.arms[at].clone(),
            effect: effect(at),
            broken: self.broken[at].clone(),
            kept: kept(at),
        };
        let blocks = u32::try_from(self.blocks()).unwrap_or(u32::MAX);
        Stage { name, blocks, arms: (0..self.arms.len()).map(scored).collect() }
    }
}
