//! A plan is done: for each step the old state is read and written down, then the kernel is changed, then what it
//! made of it is read back and written down.

use std::ops::Range;

use crate::entry::{Before, Entry, Intent, Owner, Undone};
use crate::error::{ApplyError, StepError};
use crate::{Fault, Journal, Kernel, Placed, Plan, Step};

/// What [`apply`] has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The numbers of its steps in the journal.
    pub seqs: Range<u64>,
}

/// Does a plan step by step and stops at the first error. What was done until then stays, is in the journal, and is
/// for the caller to [`crate::undo`].
///
/// # Errors
/// [`ApplyError::Step`] if a step cannot be done, [`ApplyError::Journal`] if it could not be written down first.
pub fn apply(plan: &Plan, journal: &mut Journal, kernel: &mut Kernel) -> Result<Applied, ApplyError> {
    kernel.begin_run();
    let first = journal.next_seq();
    let mut steps = plan.steps.iter().enumerate();
    steps.try_for_each(|(number, placed)| apply_step(number, placed, &Known::Nothing, journal, kernel))?;
    Ok(Applied { seqs: first..journal.next_seq() })
}

/// Does one step as a person with a tool would: nothing is written down, and nothing undoes it.
///
/// # Errors
/// [`ApplyError::Step`] if it cannot be done.
pub fn by_hand(placed: &Placed, kernel: &mut Kernel) -> Result<(), ApplyError> {
    kernel.begin_run();
    let (effect, place) = (placed.step.effect(), &placed.place);
    let done = effect.before(kernel, place).and_then(|before| effect.act(kernel, place, &before));
    done.map_err(|why| in_step(placed, why))
}

/// What is known of a step's place before it is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing: it is looked at, and undo brings back what is there.
    Nothing,
    /// What undo is to bring back.
    Before(Before),
    /// That it was free a moment ago. The step is done only if it still is.
    Free,
    /// That an earlier step's work stands, which is adapted, and what undo is to bring back.
    Standing(Before),
}

/// Does one step, the one of that number among those of its plan.
pub(crate) fn apply_step(
    number: usize,
    placed: &Placed,
    known: &Known,
    journal: &mut Journal,
    kernel: &mut Kernel,
) -> Result<(), ApplyError> {
    // An absolute path names the journal whatever the working directory is at undo.
    let path = std::path::absolute(journal.path()).unwrap_or_else(|_| journal.path().to_owned());
    kernel.owner = Some(Owner { journal: path, seq: journal.next_seq() });
    let done = apply_owned(number, placed, known, journal, kernel);
    kernel.owner = None;
    done
}

fn apply_owned(
    number: usize,
    placed: &Placed,
    known: &Known,
    journal: &mut Journal,
    kernel: &mut Kernel,
) -> Result<(), ApplyError> {
    let in_step = |why| in_step(placed, why);
    let (effect, place) = (placed.step.effect(), &placed.place);
    let before = match known {
        Known::Nothing => effect.before(kernel, place).map_err(in_step)?,
        Known::Before(before) | Known::Standing(before) => before.clone(),
        Known::Free => Before::Absent,
    };
    let netns_cookie = match placed.step {
        Step::AddNetns => None,
        _ => Some(kernel.at(&placed.place).map_err(|error| in_step(error.into()))?.cookie),
    };
    let seq = journal.next_seq();
    let intent = Intent { seq, placed: placed.clone(), netns_cookie, before: before.clone() };
    write(journal, kernel.fault, Entry::Intent(intent))?;
    if kernel.fault.hits_before(number) {
        return Err(ApplyError::Injected { at: format!("before step {number}") });
    }
    let acted = match known {
        Known::Nothing | Known::Before(_) => effect.act(kernel, place, &before),
        Known::Free => effect.act_on_free(kernel, place),
        Known::Standing(_) => effect.adapt(kernel, place),
    };
    if let Err(why) = acted {
        if why.is_exists() {
            // Another program was faster: what is there now must not be taken for ours.
            write(journal, kernel.fault, Entry::Undone { seq, outcome: Undone::AlreadySo, index: None })?;
        }
        return Err(in_step(why));
    }
    if kernel.fault.hits_after(number) {
        return Err(ApplyError::Injected { at: format!("after step {number}") });
    }
    let after = effect.after(kernel, place, &before).map_err(in_step)?;
    let verified = effect.verify(&after);
    write(journal, kernel.fault, Entry::Done { seq, after })?;
    verified.map_err(in_step)
}

pub(crate) fn write(journal: &mut Journal, fault: Fault, entry: Entry) -> Result<(), ApplyError> {
    journal.append(entry)?;
    let lines = journal.entries().len();
    if fault.is_dead_at(lines) {
        return Err(ApplyError::Injected { at: format!("after line {lines} of the journal") });
    }
    Ok(())
}

pub(crate) fn in_step(placed: &Placed, why: StepError) -> ApplyError {
    ApplyError::Step { command: placed.commands().join("\n"), place: Box::new(placed.place.clone()), why }
}
