//! The way back, derived from the journal alone.
//!
//! Steps are undone backwards, and one that fails does not stop the others. What another program has changed meanwhile
//! is left alone and named. A namespace that the journal made takes its content with it: what lies inside is not
//! taken apart first, since the removal of each veth costs a wait of about 20 ms for the kernel's readers (RCU).

mod way;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use linux::{IfName, NetnsName};

use crate::entry::{After, Entry, Intent, Undone};
use crate::error::StepError;
use crate::lifetime::Lifetime;
use crate::steps::{self, MovedBack, Past};
use crate::translations::{self, Changed};
use crate::{Journal, Kernel, Place, Placed, boot};
pub use way::way_back;
use way::{Way, makes};

/// Undoes every step of the journal that is not undone yet, last first, and says how each went, in that order.
///
/// It can be interrupted and run again, and it can be run twice: a step is answered for once.
pub fn undo(journal: &mut Journal, kernel: &mut Kernel) -> Vec<(Placed, Undone)> {
    undo_in_boot(journal, kernel, Path::new(boot::BOOT_ID))
}

/// As [`undo`], with another file to read the boot id from.
pub fn undo_in_boot(journal: &mut Journal, kernel: &mut Kernel, boot_id: &Path) -> Vec<(Placed, Undone)> {
    run(journal, kernel, boot_id, |_| true)
}

/// As [`undo`], for the step of this number and those after it alone.
pub(crate) fn undo_since(journal: &mut Journal, first: u64, kernel: &mut Kernel) -> Vec<(Placed, Undone)> {
    run(journal, kernel, Path::new(boot::BOOT_ID), |seq| seq >= first)
}

/// As [`undo`], for the steps of these numbers alone.
pub(crate) fn undo_these(
    journal: &mut Journal,
    seqs: &BTreeSet<u64>,
    kernel: &mut Kernel,
) -> Vec<(Placed, Undone)> {
    run(journal, kernel, Path::new(boot::BOOT_ID), |seq| seqs.contains(&seq))
}

/// The steps that [`undo`] would take back, last first. Nothing is done, and the kernel is not asked.
pub fn outstanding(journal: &Journal) -> Vec<&Placed> {
    journal.open_intents().rev().map(|intent| &intent.placed).collect()
}

/// What of other programs rests on what a journal's steps made, as a phrase. As long as anything does, [`undo`] takes
/// nothing back.
///
/// # Errors
/// No user was found, but of a step the question has no answer: the kernel does not answer, or its claims cannot be
/// read. [`undo`] leaves that step, and takes the others back.
pub fn in_use(journal: &Journal, kernel: &mut Kernel) -> Result<Option<String>, StepError> {
    let (users, unknown) = users(&pasts(journal), kernel);
    match (users, unknown.into_iter().next()) {
        (None, Some((_, why))) => Err(why),
        (users, _) => Ok(users),
    }
}

/// What rests on the steps, and the numbers of those of which that is unknown.
fn users(pasts: &[Past], kernel: &mut Kernel) -> (Option<String>, BTreeMap<u64, StepError>) {
    let mut unknown = BTreeMap::new();
    for past in pasts {
        match past.intent.placed.step.effect().in_use(kernel, past) {
            Ok(None) => {}
            Ok(users) => return (users, unknown),
            Err(why) => drop(unknown.insert(past.intent.seq, why)),
        }
    }
    (None, unknown)
}

fn run(
    journal: &mut Journal,
    kernel: &mut Kernel,
    boot_id: &Path,
    is_meant: impl Fn(u64) -> bool,
) -> Vec<(Placed, Undone)> {
    // Names may lead elsewhere than when the steps were done.
    kernel.forget_all();
    let mut pasts = pasts(journal);
    pasts.retain(|past| is_meant(past.intent.seq));
    let way = Way::of(&pasts, |place, after| is_still(place, after, kernel));
    // The descriptors opened just now would keep a namespace alive beyond its name.
    kernel.forget_all();
    let mut run = Run {
        moved: moved_back(journal),
        way,
        journal,
        kernel,
        staying: BTreeMap::new(),
        results: BTreeMap::new(),
        translations_left: 0,
        dead: false,
    };
    match boot::boot_id(boot_id) {
        Err(error) => run.fail_all(pasts, &error.to_string()),
        Ok(boot_id) if boot_id != run.journal.boot_id() => {
            run.settle(&pasts, &Undone::Rebooted);
        }
        Ok(_) => match users(&pasts, run.kernel) {
            // Half of what was made together would be of no use to them either.
            (Some(why), _) => run.fail_all(pasts, &format!("{why}; nothing is undone before they are gone")),
            (None, unknown) => {
                let known = run.leave(pasts, &unknown);
                run.backwards(known);
            }
        },
    }
    run.kernel.unpinned.clear();
    run.results.into_values().rev().collect()
}

/// One run of undo.
struct Run<'a> {
    journal: &'a mut Journal,
    kernel: &'a mut Kernel,
    moved: MovedBack,
    way: Way,
    /// Links, where they are now, that bear what is still used, and why.
    staying: BTreeMap<(Place, IfName), String>,
    /// By number, since what lies in a namespace is settled after it.
    results: BTreeMap<u64, (Placed, Undone)>,
    /// How many translations of UDP are yet to be undone.
    translations_left: usize,
    /// A fault has stopped the run.
    dead: bool,
}

impl Run<'_> {
    /// Leaves the steps whose objects may be in use by something unknown, and returns the others.
    fn leave(&mut self, pasts: Vec<Past>, unknown: &BTreeMap<u64, StepError>) -> Vec<Past> {
        let (left, known) = pasts.into_iter().partition(|past| unknown.contains_key(&past.intent.seq));
        let left: Vec<Past> = left;
        for past in left {
            let why = &unknown[&past.intent.seq];
            self.note_staying(&past.intent.placed, why);
            self.fail_all(vec![past], &format!("{why}; it is not undone, because it may still be in use"));
        }
        known
    }

    fn backwards(&mut self, pasts: Vec<Past>) {
        let mut inside: BTreeMap<NetnsName, Vec<Past>> = BTreeMap::new();
        self.translations_left = pasts.iter().filter(|past| is_translation(past)).count();
        for past in pasts.into_iter().rev() {
            if self.dead {
                return;
            }
            if let Some(name) = self.way.goes_with(&past) {
                inside.entry(name.clone()).or_default().push(past);
                continue;
            }
            let outcome = self.undo_one(&past);
            if let Some(name) = makes(&past.intent.placed) {
                self.after_netns(&outcome, inside.remove(name).unwrap_or_default());
            }
        }
    }

    /// Settles what was left to the removal of a namespace.
    fn after_netns(&mut self, outcome: &Undone, inside: Vec<Past>) {
        match outcome {
            Undone::Restored | Undone::AlreadySo | Undone::Rebooted => {
                self.settle(&inside, &Undone::Restored);
            }
            Undone::Gone | Undone::LeftToOthers { .. } | Undone::ChangedByOther { .. } => {
                self.settle(&inside, &Undone::Gone);
            }
            Undone::Failed { .. } => {
                for past in inside {
                    if self.dead {
                        return;
                    }
                    self.undo_one(&past);
                }
            }
        }
    }

    fn undo_one(&mut self, past: &Past) -> Undone {
        let mut attempted = self.attempt(past);
        // What was found can vanish before it is changed: a link goes when the kernel ends the namespace of its other
        // end. Another look shows it.
        if attempted.as_ref().is_err_and(StepError::is_vanished) {
            attempted = self.attempt(past);
        }
        let (mut undone, index) = match attempted {
            Ok(steps::UndoOutcome { undone, index }) => (undone, index),
            Err(why) => {
                self.note_staying(&past.intent.placed, &why);
                (Undone::Failed { why: why.to_string() }, None)
            }
        };
        self.moved.note(&past.intent.placed.place, &past.intent.before, index);
        if undone.is_final() && is_translation(past) {
            self.translations_left -= 1;
            if self.translations_left == 0
                && let Err(why) = self.forget_outdated(past.intent.seq)
            {
                // Not final: another run finds it gone, and asks again.
                undone =
                    Undone::Failed { why: format!("it is gone, but connections may go on by it: {why}") };
            }
        }
        let entry = Entry::Undone { seq: past.intent.seq, outcome: undone.clone(), index };
        self.record(std::slice::from_ref(past), &undone, vec![entry]);
        undone
    }

    /// Lets netfilter forget the connections that the translations had led which are undone, now or in an earlier
    /// run. `last` is the last of them, which is not written down as undone before that is done: a later run does it
    /// again if this one is interrupted, or if netfilter does not answer.
    fn forget_outdated(&mut self, last: u64) -> Result<(), linux::Error> {
        let mut open: BTreeSet<u64> = self.journal.open_intents().map(|intent| intent.seq).collect();
        open.remove(&last);
        let mut changed: BTreeMap<Place, Vec<Changed>> = BTreeMap::new();
        for Intent { seq, placed, netns_cookie, .. } in
            self.journal.entries().iter().filter_map(Entry::intent)
        {
            let Some(gone) = Changed::gone(placed).filter(|_| !open.contains(seq)) else { continue };
            let is_there = |cookie| self.kernel.is_still(&placed.place, cookie).unwrap_or(false);
            if netns_cookie.is_some_and(is_there) {
                changed.entry(placed.place.clone()).or_default().push(gone);
            }
        }
        translations::forget_outdated(changed, self.kernel)
    }

    fn note_staying(&mut self, placed: &Placed, why: &StepError) {
        if let Some(link) = placed.step.effect().lends() {
            self.staying.insert((placed.place.clone(), link), why.to_string());
        }
    }

    /// Why a step is not to be undone yet: it brought a link, or its namespace, that bears what is still used.
    fn stays_for(&self, placed: &Placed) -> Option<&String> {
        let (makes, effect) = (makes(placed).is_some(), placed.step.effect());
        let brings = effect.brings();
        let (_, why) = self.staying.iter().find(|((at, link), _)| {
            (makes && *at == placed.place) || brings.is_some_and(|(to, name)| at == to && link == name)
        })?;
        Some(why)
    }

    fn attempt(&mut self, past: &Past) -> Result<steps::UndoOutcome, StepError> {
        if let Some(why) = self.stays_for(&past.intent.placed) {
            return Err(StepError::Refused { why: why.clone() });
        }
        let (effect, gone) = (past.intent.placed.step.effect(), Ok(Undone::Gone.into()));
        // What is pinned lies in a mount and not in the namespace: it is still there when that is gone.
        if effect.lifetime() == Lifetime::Outside {
            return effect.undo(self.kernel, past, &self.moved);
        }
        let Intent { placed, netns_cookie, .. } = &past.intent;
        if let Some(cookie) = netns_cookie
            && !self.kernel.is_still(&placed.place, *cookie)?
        {
            return gone;
        }
        effect.undo(self.kernel, past, &self.moved)
    }

    /// Gives several steps the same outcome, with one write.
    fn settle(&mut self, pasts: &[Past], outcome: &Undone) {
        let entries = pasts
            .iter()
            .map(|past| Entry::Undone { seq: past.intent.seq, outcome: outcome.clone(), index: None })
            .collect();
        self.record(pasts, outcome, entries);
    }

    fn record(&mut self, pasts: &[Past], outcome: &Undone, entries: Vec<Entry>) {
        if entries.is_empty() {
            return;
        }
        let outcome = match self.journal.append_outcomes(entries) {
            Ok(()) => outcome.clone(),
            Err(error) => {
                Undone::Failed { why: format!("{outcome}, but this could not be written down: {error}") }
            }
        };
        for Past { intent, .. } in pasts {
            self.results.insert(intent.seq, (intent.placed.clone(), outcome.clone()));
        }
        self.dead |= self.kernel.fault.is_dead_at(self.journal.entries().len());
    }

    fn fail_all(&mut self, pasts: Vec<Past>, why: &str) {
        for Past { intent, .. } in pasts {
            let failed = Undone::Failed { why: why.to_owned() };
            self.results.insert(intent.seq, (intent.placed, failed));
        }
    }
}

fn is_translation(past: &Past) -> bool {
    Changed::gone(&past.intent.placed).is_some()
}

/// The steps that are not undone yet, in the order of their doing.
fn pasts(journal: &Journal) -> Vec<Past> {
    let done: BTreeMap<u64, &After> = journal
        .entries()
        .iter()
        .filter_map(|entry| match entry {
            Entry::Done { seq, after } => Some((*seq, after)),
            Entry::Header(_) | Entry::Intent(_) | Entry::Undone { .. } => None,
        })
        .collect();
    journal
        .open_intents()
        .map(|intent| Past { intent: intent.clone(), after: done.get(&intent.seq).copied().cloned() })
        .collect()
}

/// What earlier, interrupted runs of undo have moved back.
fn moved_back(journal: &Journal) -> MovedBack {
    let mut moved = MovedBack::default();
    let mut intents = BTreeMap::new();
    for entry in journal.entries() {
        match entry {
            Entry::Intent(intent) => {
                intents.insert(intent.seq, intent);
            }
            Entry::Undone { seq, index, .. } => {
                if let Some(intent) = intents.get(seq) {
                    moved.note(&intent.placed.place, &intent.before, *index);
                }
            }
            Entry::Header(_) | Entry::Done { .. } => {}
        }
    }
    moved
}

/// Whether a place leads to the namespace that a step made there. One that was not read back is taken for that.
fn is_still(place: &Place, after: Option<&After>, kernel: &mut Kernel) -> bool {
    match after {
        Some(After::Netns { cookie }) => kernel.at(place).is_ok_and(|opened| opened.cookie == *cookie),
        _ => true,
    }
}
