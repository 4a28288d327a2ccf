//! A unit that is kept as plans say, for as long as a machine runs: by one process after another, none of which need be
//! alive for what they made to stay.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::unit::journal_of;
use super::{Book, BookError, TakenBackJournal, Unit, UnitState};
use crate::apply::in_step;
use crate::entry::Entry;
use crate::journal::{Sound, open_intents};
use crate::mend::intended;
use crate::reconcile::{LeftOver, make, slot, take_back_these};
use crate::{
    ApplyError, Journal, JournalError, Kernel, Place, Placed, Plan, Reconciled, StepError, Survey, Undone,
    outstanding,
};

/// A unit whose parts each have a journal and a plan. It stands whatever becomes of the process.
///
/// Parts are made in the order of their names, and what they no longer need is taken back in the opposite one when all
/// are made: a later part may rest on an earlier one (a route on a tunnel).
#[derive(Debug)]
pub struct Keeper {
    unit: Unit,
    /// What each part's journal has made.
    parts: BTreeMap<String, Plan>,
}

/// A place in the kernel that a step takes.
type Slot = (Place, String);

/// What [`Keeper::keep`] has done.
#[derive(Debug, Default)]
pub struct Kept {
    /// The parts of which something was made, repaired or taken back.
    pub changed: BTreeMap<String, Reconciled>,
    /// The parts that are not as their plans say, and why.
    pub failed: BTreeMap<String, ApplyError>,
}

impl Keeper {
    /// Takes the unit over from the process that kept it before, or begins it. `note` says what it is, for
    /// those that list units.
    ///
    /// # Errors
    /// Another process keeps it, or the book cannot be used.
    pub fn open(book: &Book, id: &str, note: &str) -> Result<Keeper, BookError> {
        let mut was_nothing = false;
        loop {
            let exists = match book.begin_as(id) {
                Ok(unit) => {
                    unit.leave_standing(note)?;
                    None
                }
                Err(error @ BookError::Exists { .. }) => Some(error),
                Err(error) => return Err(error),
            };
            let unit = match book.find(id)?.map(|found| found.state) {
                Some(UnitState::Dead) => {
                    // Its process died while it was begun; with a note it stands whatever becomes of this one.
                    book.take_over(id)?.leave_standing(note)?;
                    continue;
                }
                Some(UnitState::Standing | UnitState::Alive) => book.take_over(id)?,
                // It went just now, or something else has its name.
                None => match exists.filter(|_| was_nothing) {
                    Some(error) => return Err(error),
                    None => {
                        was_nothing = true;
                        continue;
                    }
                },
            };
            return Keeper::of(unit);
        }
    }

    fn of(unit: Unit) -> Result<Keeper, BookError> {
        let mut parts = BTreeMap::new();
        for path in unit.journals()? {
            let journal = Journal::open(&path)?;
            parts.insert(name_of(&path), plan_of(&journal));
        }
        Ok(Keeper { unit, parts })
    }

    /// The parts as they were made last. Brought to these, a unit is repaired and nothing else.
    pub fn parts(&self) -> &BTreeMap<String, Plan> {
        &self.parts
    }

    /// Brings the unit to these parts: a part that is not among them is taken back. A name is that of a file, so it has
    /// no `/` in it and no dot at its beginning.
    ///
    /// What fails is left as far as it came, and the next call goes on; the other parts are kept all the same.
    ///
    /// # Errors
    /// The kernel cannot be asked, or the unit's directory cannot be read.
    pub fn keep(&mut self, wanted: &BTreeMap<String, Plan>, kernel: &mut Kernel) -> Result<Kept, StepError> {
        kernel.begin_run();
        let mut kept = Kept::default();
        for (name, slots) in self.in_the_way(wanted) {
            let gone = match wanted.contains_key(&name) {
                true => self.give_way(&name, &slots, kernel, &mut kept),
                false => self.remove(&name, kernel, &mut kept),
            };
            if let Err(error) = gone {
                kept.failed.insert(name, error.into());
            }
        }
        let mut survey = Survey::of(wanted.values(), kernel)?;
        let mut left_over: Vec<(&str, LeftOver)> = Vec::new();
        let mut is_surveyed_again = false;
        for (name, plan) in wanted {
            if self.parts.get(name) == Some(plan) && survey.drifts(plan, kernel)?.is_empty() {
                continue;
            }
            let mut done = kept.changed.remove(name).unwrap_or_default();
            let made = self.make(name, plan, kernel, &survey, &mut done);
            // What later parts rest on may be another now. Peers rest on the first part that changes and on no other.
            if made.is_err() || !(done.is_nothing() || is_surveyed_again) {
                is_surveyed_again = true;
                survey = Survey::of(wanted.values(), kernel)?;
            }
            if !done.is_nothing() {
                kept.changed.insert(name.clone(), done);
            }
            match made {
                Ok(rest) if rest.is_empty() => {}
                Ok(rest) => left_over.push((name, rest)),
                Err(error) => drop(kept.failed.insert(name.clone(), error)),
            }
        }
        let gone = self.parts.keys().filter(|name| !wanted.contains_key(*name));
        let mut superfluous: BTreeMap<String, Option<LeftOver>> =
            gone.map(|name| (name.clone(), None)).collect();
        superfluous.extend(left_over.into_iter().map(|(name, rest)| (name.to_owned(), Some(rest))));
        for (name, rest) in superfluous.into_iter().rev() {
            let taken_back = match rest {
                Some(rest) => self.take_back_rest(&name, &rest, kernel, &mut kept),
                None => self.remove(&name, kernel, &mut kept),
            };
            if let Err(error) = taken_back {
                kept.failed.insert(name, error.into());
            }
        }
        Ok(kept)
    }

    /// The parts that have places which another part is to take, with these. That one would keep theirs as what it
    /// displaced, and put it back some day.
    fn in_the_way(&self, wanted: &BTreeMap<String, Plan>) -> BTreeMap<String, BTreeSet<Slot>> {
        let is_new = |(name, plan): &(&String, &Plan)| self.parts.get(*name) != Some(*plan);
        let taken: BTreeMap<Slot, &String> = wanted
            .iter()
            .filter(is_new)
            .flat_map(|(name, plan)| plan.steps.iter().map(move |placed| (slot(placed), name)))
            .collect();
        if taken.is_empty() {
            return BTreeMap::new();
        }
        let given = |(name, plan): (&String, &Plan)| {
            let slots = plan.steps.iter().map(slot);
            let given: BTreeSet<Slot> =
                slots.filter(|slot| taken.get(slot).is_some_and(|taker| *taker != name)).collect();
            (!given.is_empty()).then(|| (name.clone(), given))
        };
        self.parts.iter().filter_map(given).collect()
    }

    /// Takes back what a part has in these places, and nothing else of it: the rest is in use. Where one of them is a
    /// link, other steps may rest on it, so that the part goes as a whole.
    fn give_way(
        &mut self,
        name: &str,
        slots: &BTreeSet<Slot>,
        kernel: &mut Kernel,
        kept: &mut Kept,
    ) -> Result<(), JournalError> {
        let journal = self.unit.journal_or_new(name)?;
        let given = || journal.open_intents().filter(|intent| slots.contains(&slot(&intent.placed)));
        if given().any(|intent| intent.placed.step.link().is_some()) {
            return self.remove(name, kernel, kept);
        }
        let seqs: LeftOver = given().map(|intent| intent.seq).collect();
        drop(journal);
        self.take_back_rest(name, &seqs, kernel, kept)?;
        if let Some(plan) = self.parts.get_mut(name) {
            plan.steps.retain(|placed| !slots.contains(&slot(placed)));
        }
        Ok(())
    }

    fn make(
        &mut self,
        name: &str,
        plan: &Plan,
        kernel: &mut Kernel,
        survey: &Survey,
        done: &mut Reconciled,
    ) -> Result<LeftOver, ApplyError> {
        let mut journal = self.unit.journal_or_new(name)?;
        let made = make(plan, &mut journal, kernel, survey, done);
        let has = if made.is_ok() { plan.clone() } else { plan_of(&journal) };
        self.parts.insert(name.to_owned(), has);
        // One that cannot be made shorter is long, and no less true.
        let _ = journal.forget_undone();
        made
    }

    fn take_back_rest(
        &mut self,
        name: &str,
        rest: &LeftOver,
        kernel: &mut Kernel,
        kept: &mut Kept,
    ) -> Result<(), JournalError> {
        let mut journal = self.unit.journal_or_new(name)?;
        let removed = take_back_these(rest, &mut journal, kernel);
        if note_failures(name, &removed, kept) {
            // Other than planned, so that it is tried again.
            self.parts.insert(name.to_owned(), plan_of(&journal));
        }
        kept.changed.entry(name.to_owned()).or_default().removed.extend(removed);
        let _ = journal.forget_undone();
        Ok(())
    }

    /// Takes a whole part back. It needs no room on the disk, and makes some.
    fn remove(&mut self, name: &str, kernel: &mut Kernel, kept: &mut Kept) -> Result<(), JournalError> {
        let mut journal = self.unit.journal_or_new(name)?;
        journal.end_with_undo();
        let removed = crate::undo(&mut journal, kernel);
        note_failures(name, &removed, kept);
        if journal.is_undone() {
            journal.remove()?;
            self.parts.remove(name);
        }
        kept.changed.entry(name.to_owned()).or_default().removed.extend(removed);
        Ok(())
    }

    /// What a part of a unit has made, as its journal says at the moment: for readers that change nothing, so that no
    /// process that keeps the unit is in the way. `None`: the unit has no such part.
    ///
    /// # Errors
    /// The journal cannot be read, or is damaged.
    pub fn part(book: &Book, id: &str, name: &str) -> Result<Option<Plan>, JournalError> {
        let path = journal_of(&book.path().join(id), name);
        let sound = Sound::read(&path)?;
        let plan = |entries: &[Entry]| Plan {
            steps: open_intents(entries).map(|intent| intent.placed.clone()).collect(),
        };
        Ok(sound.map(|(sound, _)| plan(&sound.entries)))
    }

    /// What a part of a unit was to make, as its journal says at the moment, whatever of it was taken back meanwhile to
    /// be made again. For readers as of [`Keeper::part`].
    ///
    /// # Errors
    /// As of [`Keeper::part`].
    pub fn intended(book: &Book, id: &str, name: &str) -> Result<Option<Plan>, JournalError> {
        let sound = Sound::read(&journal_of(&book.path().join(id), name))?;
        Ok(sound.map(|(sound, _)| intended(&sound.entries)))
    }

    /// Takes back all that a unit has made that no process keeps, and ends it if nothing is left. A journal that cannot
    /// be read does not keep the others.
    ///
    /// # Errors
    /// There is no such unit, a process keeps it, or its directory cannot be read.
    pub fn take_back(book: &Book, id: &str, kernel: &mut Kernel) -> Result<Vec<TakenBackJournal>, BookError> {
        let unit = book.take_over(id)?;
        let outcomes = unit.take_back(kernel)?;
        if unit.journals()?.is_empty() {
            unit.end()?;
        }
        Ok(outcomes)
    }
}

/// Notes the first step that could not be taken back. True if there is one.
fn note_failures(name: &str, removed: &[(Placed, Undone)], kept: &mut Kept) -> bool {
    let failed = removed.iter().find_map(|(placed, undone)| match undone {
        Undone::Failed { why } => Some(in_step(placed, StepError::Refused { why: why.clone() })),
        _ => None,
    });
    let has_failed = failed.is_some();
    kept.failed.extend(failed.map(|error| (name.to_owned(), error)));
    has_failed
}

fn name_of(journal: &Path) -> String {
    journal.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// What a journal's steps have made and nothing has taken back. Where one has adapted or replaced what an earlier one
/// made, it alone counts, though the earlier one is not closed yet; and a link comes before what rests on it, though
/// the step that adapted it came after that.
fn plan_of(journal: &Journal) -> Plan {
    let mut taken = BTreeSet::new();
    let latest = outstanding(journal).into_iter().filter(|placed| taken.insert(slot(placed)));
    let mut steps: Vec<Placed> = latest.cloned().collect();
    steps.reverse();
    steps.sort_by_key(|placed| placed.step.link().is_none());
    Plan { steps }
}
