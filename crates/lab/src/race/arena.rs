//! Where a race is held, and the candidates that run in it.
//!
//! The order of trials, their repetition, the rounds and the end of a race are the same wherever it is held
//! ([`Contest`](super::contest::Contest)). An arena makes the candidates stand and says what its machines are; a runner
//! is one that stands, and is loaded.

use record::{Experiment, Load, Machine, Witness, Writer};
use stats::Random;

use super::runners::{Runner, Runners};
use crate::trial::Method;
use crate::{Event, LabError};

/// Where a race is held.
pub(crate) trait Arena {
    /// A candidate that stands there.
    type Runner: Runner;

    /// Names of all entrants in tables, able to run or not; the reference and its control come first.
    fn names(&self) -> Vec<&str>;

    /// Whether an entrant can run.
    fn can_run(&self, entrant: usize) -> bool;

    /// Whether one stands at a time, built anew for each of its turns.
    fn is_in_turn(&self) -> bool;

    /// Makes an entrant stand.
    ///
    /// # Errors
    /// It cannot be built, or its server not reached.
    fn stand(&mut self, entrant: usize) -> Result<Self::Runner, LabError>;

    /// The machines, whose steady facts must not change while the race runs.
    ///
    /// # Errors
    /// They cannot be looked at.
    fn machine(&mut self) -> Result<Machine, LabError>;

    /// Gives a new runner what it learns from its first requests, where instructions are counted.
    ///
    /// # Errors
    /// Those of a trial.
    fn settle(&mut self, runner: &mut Self::Runner, method: &Method, load: &Load) -> Result<(), LabError>;

    /// Chooses what watches for stalls, by the reference under load. Returns what watches, for the record.
    ///
    /// # Errors
    /// Those of a trial.
    fn adjust_witness(
        &mut self,
        reference: &mut Self::Runner,
        method: &Method,
        loads: &[Load],
    ) -> Result<Option<Witness>, LabError>;

    /// What was asked beside the rounds, on the last build. `false` if asked to stop.
    ///
    /// # Errors
    /// Those of a trial.
    fn after_rounds(
        &mut self,
        last: LastBuild<'_, Self::Runner>,
        experiment: &Experiment,
        writer: &mut Writer,
        emit: &mut dyn FnMut(Event),
    ) -> Result<bool, LabError>;
}

/// What stands when the rounds are over.
pub(crate) struct LastBuild<'a, R> {
    pub(crate) runners: &'a mut Runners<R>,
    pub(crate) method: &'a Method,
    pub(crate) loads: &'a [Load],
    pub(crate) rng: &'a mut Random,
}
