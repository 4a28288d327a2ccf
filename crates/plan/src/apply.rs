//! A plan is done: for each step the old state is read and written down, then the kernel is changed, then what it
//! made of it is read back and written down. Of steps on places that are known to be free, all are written down first.

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
    };
    let seq = journal.next_seq();
    let intent = intent(seq, placed, before.clone(), kernel)?;
    write(journal, kernel.fault, intent)?;
    if kernel.fault.hits_before(number) {
        return Err(ApplyError::Injected { at: format!("before step {number}") });
    }
    let acted = match known {
        Known::Nothing | Known::Before(_) => effect.act(kernel, place, &before),
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

/// What doing steps on free places has come to.
#[derive(Debug)]
pub(crate) struct MadeOnFree {
    /// How many were done, from the first on.
    pub(crate) steps: usize,
    /// Why there is none after them, if it is not that another program has taken the place of the next one since.
    pub(crate) ended: Result<(), ApplyError>,
}

/// Does steps whose places were free a moment ago, each only if its place still is. `first` is the number of the first one
/// among those of its plan.
///
/// All of them are written down before the first is done, and once: to wait for a disk takes longer than a step.
pub(crate) fn apply_on_free(
    first: usize,
    steps: &[Placed],
    journal: &mut Journal,
    kernel: &mut Kernel,
) -> MadeOnFree {
    let mut made = MadeOnFree { steps: 0, ended: Ok(()) };
    let seqs = journal.next_seq()..;
    let intents: Result<Vec<Entry>, ApplyError> =
        seqs.clone().zip(steps).map(|(seq, placed)| intent(seq, placed, Before::Absent, kernel)).collect();
    made.ended = intents.and_then(|intents| write_all(journal, kernel.fault, intents));
    if made.ended.is_err() {
        return made;
    }
    let mut outcomes = Vec::new();
    let mut rest = seqs.zip(first..).zip(steps);
    for ((seq, number), placed) in rest.by_ref() {
        let (outcome, ended) = apply_noted_on_free(seq, number, placed, kernel);
        let is_made = matches!(outcome, Some(Entry::Done { .. })) && ended.is_ok();
        outcomes.extend(outcome);
        made.steps += usize::from(is_made);
        made.ended = ended;
        if !is_made {
            break;
        }
    }
    // What was not begun is closed: what comes into those places must not be taken for ours.
    let unbegun = rest.map(|((seq, _), _)| Entry::Undone { seq, outcome: Undone::AlreadySo, index: None });
    outcomes.extend(unbegun);
    made.ended = write_all(journal, kernel.fault, outcomes).and(made.ended);
    made
}

/// Does one of them, which is written down already. What is to be written of it is returned beside why it failed; another
/// program that was faster is no failure.
fn apply_noted_on_free(
    seq: u64,
    number: usize,
    placed: &Placed,
    kernel: &mut Kernel,
) -> (Option<Entry>, Result<(), ApplyError>) {
    let (effect, place) = (placed.step.effect(), &placed.place);
    if kernel.fault.hits_before(number) {
        return (None, Err(ApplyError::Injected { at: format!("before step {number}") }));
    }
    match effect.act_on_free(kernel, place) {
        Ok(()) => {}
        Err(why) if why.is_exists() => {
            return (Some(Entry::Undone { seq, outcome: Undone::AlreadySo, index: None }), Ok(()));
        }
        Err(why) => return (None, Err(in_step(placed, why))),
    }
    if kernel.fault.hits_after(number) {
        return (None, Err(ApplyError::Injected { at: format!("after step {number}") }));
    }
    match effect.after(kernel, place, &Before::Absent) {
        Ok(after) => {
            let verified = effect.verify(&after).map_err(|why| in_step(placed, why));
            (Some(Entry::Done { seq, after }), verified)
        }
        Err(why) => (None, Err(in_step(placed, why))),
    }
}

/// What is written before a step is done.
fn intent(seq: u64, placed: &Placed, before: Before, kernel: &mut Kernel) -> Result<Entry, ApplyError> {
    let netns_cookie = match placed.step {
        Step::AddNetns => None,
        _ => Some(kernel.at(&placed.place).map_err(|error| in_step(placed, error.into()))?.cookie),
    };
    Ok(Entry::Intent(Intent { seq, placed: placed.clone(), netns_cookie, before }))
}

pub(crate) fn write(journal: &mut Journal, fault: Fault, entry: Entry) -> Result<(), ApplyError> {
    write_all(journal, fault, vec![entry])
}

/// Writes several lines at once. A process that dies at one of them has written those before it.
fn write_all(journal: &mut Journal, fault: Fault, mut entries: Vec<Entry>) -> Result<(), ApplyError> {
    let before = journal.entries().len();
    let last = (before + 1..=before + entries.len()).find(|lines| fault.is_dead_at(*lines));
    entries.truncate(last.map_or(usize::MAX, |last| last - before));
    journal.append_all(entries)?;
    match last {
        Some(lines) => Err(ApplyError::Injected { at: format!("after line {lines} of the journal") }),
        None => Ok(()),
    }
}

pub(crate) fn in_step(placed: &Placed, why: StepError) -> ApplyError {
    ApplyError::Step { command: placed.commands().join("\n"), place: Box::new(placed.place.clone()), why }
}
