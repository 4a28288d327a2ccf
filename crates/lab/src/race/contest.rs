//! A race that is under way, wherever it is held.

use std::sync::atomic::{AtomicBool, Ordering};

use record::Experiment;

use super::arena::Arena;
use crate::trial::Method;

/// A race that is under way: its builds, rounds and trials are the same in each arena.
pub(crate) struct Contest<'a, A> {
    pub(crate) arena: A,
    pub(crate) experiment: &'a Experiment,
    pub(crate) method: Method,
    /// Of the order of trials.
    pub(crate) seed: u64,
    /// Set from outside to end the race after the running trial.
    pub(crate) stop: &'a AtomicBool,
}

impl<A: Arena> Contest<'_, A> {
    /// Whether the race is to end.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
