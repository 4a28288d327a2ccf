//! What a step would change, without changing it.

use std::collections::BTreeSet;

use crate::error::StepError;
use crate::{Kernel, Placed, set};

/// A step's old value and its new one, as a person would type them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// What is there now.
    pub old: String,
    /// What the step sets.
    pub new: String,
    /// The index of the link that it is about, if it is about one.
    pub index: Option<u32>,
    /// True if there is nothing to change.
    pub is_so: bool,
}

/// Looks at what a step would change. `None` for steps that change no value and make no object.
///
/// # Errors
/// What apply would say before it changes anything: the link, the queue or the parameter is not there, or the value is
/// out of a card's range.
pub fn preview(placed: &Placed, kernel: &mut Kernel) -> Result<Option<Preview>, StepError> {
    kernel.begin_run();
    placed.step.effect().preview(kernel, &placed.place)
}

/// The steps that count of those that were done: of several about the same thing, whatever each makes of it, the last.
pub fn last_of_each(steps: Vec<Placed>) -> Vec<Placed> {
    let mut seen = BTreeSet::new();
    let identity = |placed: &Placed| (placed.place.clone(), placed.step.effect().identity());
    let mut last: Vec<Placed> =
        steps.into_iter().rev().filter(|placed| seen.insert(identity(placed))).collect();
    last.reverse();
    last
}

/// Whether a kernel parameter decides which code runs, or how it is protected: no step writes it, and undo does not
/// either. By its path, with dots or slashes, or by its last part.
pub fn is_about_code(name: &str) -> bool {
    set::is_about_code(name)
}
