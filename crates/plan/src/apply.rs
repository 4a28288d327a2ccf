//! A plan is done: for each step the old state is read and written down, then the kernel is changed, then what it
//! made of it is read back and written down. Of steps on places that are known to be free, all are written down first.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::entry::{Before, Entry, Intent, Undone};
use crate::error::{ApplyError, StepError};
use crate::lifetime::Lifetime;
use crate::owner::Owner;
use crate::translations::{self, Changed};
use crate::{Fault, Journal, Kernel, Place, Placed, Plan};

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
    steps.try_for_each(|(number, placed)| apply_step(number, placed, &Prior::Unknown, journal, kernel))?;
    forget_outdated(plan, kernel)?;
    Ok(Applied { seqs: first..journal.next_seq() })
}

/// Lets netfilter forget the connections that the plan's elements of maps lead otherwise.
fn forget_outdated(plan: &Plan, kernel: &mut Kernel) -> Result<(), ApplyError> {
    let mut changed: BTreeMap<Place, Vec<Changed>> = BTreeMap::new();
    let mut last = None;
    for placed in &plan.steps {
        let Some(made) = Changed::made(placed) else { continue };
        changed.entry(placed.place.clone()).or_default().push(made);
        last = Some(placed);
    }
    let forgotten = translations::forget_outdated(changed, kernel);
    last.map_or(Ok(()), |last| forgotten.map_err(|why| in_step(last, why.into())))
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
pub(crate) enum Prior {
    /// It is looked at, and undo brings back what is there.
    Unknown,
    /// What undo is to bring back.
    Before(Before),
    /// That an earlier step's work stands, which is adapted, and what undo is to bring back.
    Standing(Before),
}

/// Does one step, the one of that number among those of its plan.
pub(crate) fn apply_step(
    number: usize,
    placed: &Placed,
    prior: &Prior,
    journal: &mut Journal,
    kernel: &mut Kernel,
) -> Result<(), ApplyError> {
    // An absolute path names the journal whatever the working directory is at undo.
    let path = std::path::absolute(journal.path()).unwrap_or_else(|_| journal.path().to_owned());
    kernel.owner = Some(Owner { journal: path, seq: journal.next_seq() });
    let done = apply_owned(number, placed, prior, journal, kernel);
    kernel.owner = None;
    done
}

fn apply_owned(
    number: usize,
    placed: &Placed,
    prior: &Prior,
    journal: &mut Journal,
    kernel: &mut Kernel,
) -> Result<(), ApplyError> {
    let in_step = |why| in_step(placed, why);
    let (effect, place) = (placed.step.effect(), &placed.place);
    let before = match prior {
        Prior::Unknown => effect.before(kernel, place).map_err(in_step)?,
        Prior::Before(before) | Prior::Standing(before) => before.clone(),
    };
    let seq = journal.next_seq();
    let intent = intent(seq, placed, before.clone(), kernel)?;
    write(journal, kernel.fault, intent)?;
    if kernel.fault.hits_before(number) {
        return Err(ApplyError::Injected { at: format!("before step {number}") });
    }
    let acted = match prior {
        Prior::Unknown | Prior::Before(_) => effect.act(kernel, place, &before),
        Prior::Standing(_) => effect.adapt(kernel, place),
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

/// How doing steps on free places has ended.
#[derive(Debug)]
pub(crate) enum Ended {
    All,
    /// Another program has taken the place of the next step since.
    PlaceTaken,
    Failed(ApplyError),
}

/// What became of a step on a free place, with what is to be written of it.
enum OnFree {
    Made(Entry),
    PlaceTaken(Entry),
    /// With an outcome if the step was done, and is not as planned.
    Failed(Option<Entry>, ApplyError),
}

/// Does steps whose places were free a moment ago, each only if its place still is. `first` is the number of the first
/// one among those of its plan.
///
/// All of them are written down before the first is done, and once: to wait for a disk takes longer than a step.
/// After a death among them the journal does not say which were begun; an object like a step's in its place
/// counts as the step's.
///
/// How many were done, from the first on, and why there is none after them.
pub(crate) fn apply_on_free(
    first: usize,
    steps: &[Placed],
    journal: &mut Journal,
    kernel: &mut Kernel,
) -> (usize, Ended) {
    let seqs = journal.next_seq()..;
    let intents: Result<Vec<Entry>, ApplyError> =
        seqs.clone().zip(steps).map(|(seq, placed)| intent(seq, placed, Before::Absent, kernel)).collect();
    if let Err(error) = intents.and_then(|intents| write_all(journal, kernel.fault, intents)) {
        return (0, Ended::Failed(error));
    }
    let (mut made, mut ended, mut outcomes) = (0, Ended::All, Vec::new());
    let mut rest = seqs.zip(first..).zip(steps);
    for ((seq, number), placed) in rest.by_ref() {
        match apply_noted_on_free(seq, number, placed, kernel) {
            OnFree::Made(outcome) => {
                outcomes.push(outcome);
                made += 1;
            }
            OnFree::PlaceTaken(outcome) => {
                outcomes.push(outcome);
                ended = Ended::PlaceTaken;
                break;
            }
            OnFree::Failed(outcome, error) => {
                outcomes.extend(outcome);
                ended = Ended::Failed(error);
                break;
            }
        }
    }
    // What was not begun is closed: what comes into those places must not be taken for ours.
    outcomes.extend(rest.map(|((seq, _), _)| not_done(seq)));
    match (write_all(journal, kernel.fault, outcomes), ended) {
        // Why the step failed is the cause, and what to mend.
        (Err(_), Ended::Failed(error)) => (made, Ended::Failed(error)),
        (Err(error), _) => (made, Ended::Failed(error)),
        (Ok(()), ended) => (made, ended),
    }
}

/// Does one of them, which is written down already.
fn apply_noted_on_free(seq: u64, number: usize, placed: &Placed, kernel: &mut Kernel) -> OnFree {
    let (effect, place) = (placed.step.effect(), &placed.place);
    if kernel.fault.hits_before(number) {
        return OnFree::Failed(None, ApplyError::Injected { at: format!("before step {number}") });
    }
    match effect.act_on_free(kernel, place) {
        Ok(()) => {}
        Err(why) if why.is_exists() => return OnFree::PlaceTaken(not_done(seq)),
        Err(why) => return OnFree::Failed(None, in_step(placed, why)),
    }
    if kernel.fault.hits_after(number) {
        return OnFree::Failed(None, ApplyError::Injected { at: format!("after step {number}") });
    }
    match effect.after(kernel, place, &Before::Absent) {
        Ok(after) => {
            let verified = effect.verify(&after);
            let outcome = Entry::Done { seq, after };
            match verified {
                Ok(()) => OnFree::Made(outcome),
                Err(why) => OnFree::Failed(Some(outcome), in_step(placed, why)),
            }
        }
        Err(why) => OnFree::Failed(None, in_step(placed, why)),
    }
}

/// The outcome of a step that was written down, and has changed nothing.
fn not_done(seq: u64) -> Entry {
    Entry::Undone { seq, outcome: Undone::AlreadySo, index: None }
}

/// What is written before a step is done.
fn intent(seq: u64, placed: &Placed, before: Before, kernel: &mut Kernel) -> Result<Entry, ApplyError> {
    let netns_cookie = match placed.step.effect().lifetime() {
        // It makes its place itself.
        Lifetime::Own => None,
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
