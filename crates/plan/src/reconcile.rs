//! What a journal has made, brought to what a plan says: at first, after the plan has changed, and after another
//! program has changed the kernel.

use std::collections::{BTreeMap, BTreeSet};

use crate::apply::{Ended, Prior, apply_on_free, apply_step, in_step, write};
use crate::entry::{Before, Entry, Intent, Undone};
use crate::error::{ApplyError, StepError};
use crate::listing::Listing;
use crate::look::{Drift, StepState};
use crate::made::listing;
use crate::repeated::{is_repeated, is_shared_setting};
use crate::undo::undo_these;
use crate::{Journal, Kernel, Place, Placed, Plan};

/// What namespaces hold at one moment, so that many plans can be compared with it.
#[derive(Debug, Default)]
pub struct Survey(BTreeMap<Place, Listing>);

/// What [`reconcile`] has done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reconciled {
    /// Steps that the journal did not have.
    pub made: Vec<Placed>,
    /// What was no longer as the journal's steps had made it, and is so again.
    pub repaired: Vec<Drift>,
    /// Steps that the plan no longer has, and how they were taken back.
    pub removed: Vec<(Placed, Undone)>,
}

impl Survey {
    /// Lists the namespaces in which the plans have steps.
    ///
    /// # Errors
    /// A namespace is not there, or the kernel does not answer.
    pub fn of<'p>(
        plans: impl IntoIterator<Item = &'p Plan>,
        kernel: &mut Kernel,
    ) -> Result<Survey, StepError> {
        let mut steps: BTreeMap<&Place, Vec<&Placed>> = BTreeMap::new();
        for placed in plans.into_iter().flat_map(|plan| &plan.steps) {
            steps.entry(&placed.place).or_default().push(placed);
        }
        let listed = |(place, steps): (&Place, Vec<&'p Placed>)| {
            Ok((place.clone(), listing(kernel, place, steps.into_iter())?))
        };
        Ok(Survey(steps.into_iter().map(listed).collect::<Result<_, StepError>>()?))
    }

    /// The steps of a plan that are not so. A namespace that was not listed is asked for each of them.
    ///
    /// # Errors
    /// A namespace is not there, or the kernel does not answer.
    pub fn drifts(&self, plan: &Plan, kernel: &mut Kernel) -> Result<Vec<Drift>, StepError> {
        let mut drifts = Vec::new();
        for placed in &plan.steps {
            drifts.extend(Drift::of(placed, self.look(placed, kernel)?));
        }
        Ok(drifts)
    }

    /// Whether what a step's namespace holds is known.
    fn lists(&self, placed: &Placed) -> bool {
        self.0.contains_key(&placed.place)
    }

    fn look(&self, placed: &Placed, kernel: &mut Kernel) -> Result<StepState, StepError> {
        let unlisted = Listing::default();
        let listing = self.0.get(&placed.place).unwrap_or(&unlisted);
        placed.step.effect().look(kernel, &placed.place, listing)
    }
}

impl Reconciled {
    /// Whether there was nothing to do.
    pub fn is_nothing(&self) -> bool {
        self.made.is_empty() && self.repaired.is_empty() && self.removed.is_empty()
    }
}

/// Makes what a plan says, of which the journal may have made all, some or none already, and takes back what else the
/// journal has made. `survey` is how the kernel was found.
///
/// A `Replace…` step takes its place from an earlier one without a moment in which nothing is there. The journal then
/// brings back what that one had found: what another program did meanwhile is not remembered. What of the plan is not
/// in the journal and yet so is another program's: only a `Replace…` step takes it over.
///
/// # Errors
/// The first step that cannot be done, or taken back where another one needs its place. What was done until then is in
/// the journal, and a later call goes on from there. A step that the plan no longer has and that cannot be taken back
/// is no error: it is among [`Reconciled::removed`], and the next call tries again.
pub fn reconcile(
    plan: &Plan,
    journal: &mut Journal,
    kernel: &mut Kernel,
    survey: &Survey,
) -> Result<Reconciled, ApplyError> {
    kernel.begin_run();
    let mut done = Reconciled::default();
    let left_over = make(plan, journal, kernel, survey, &mut done)?;
    done.removed = take_back_these(&left_over, journal, kernel);
    Ok(done)
}

/// The numbers of steps that a plan no longer has.
pub(crate) type LeftOver = BTreeSet<u64>;

/// The first half of [`reconcile`]: what the plan says is made. The rest of the journal is returned, to be taken back
/// when nothing rests on it any more. What was done is noted in `done`, also before a step that fails.
pub(crate) fn make(
    plan: &Plan,
    journal: &mut Journal,
    kernel: &mut Kernel,
    survey: &Survey,
    done: &mut Reconciled,
) -> Result<LeftOver, ApplyError> {
    let mut open = Open::of(journal);
    // As soon as something is taken back first, what was listed may have gone with it.
    let afresh = Survey::default();
    let mut survey = survey;
    let mut number = 0;
    while number < plan.steps.len() {
        let free = open.free_steps(&plan.steps[number..], kernel, survey);
        let (made, ended) = apply_on_free(number, free, journal, kernel);
        done.made.extend_from_slice(&free[..made]);
        number += made;
        match ended {
            Ended::All if made > 0 => continue,
            Ended::Failed(error) => return Err(error),
            // The place of the next one was not free, or another program has taken it since.
            Ended::All | Ended::PlaceTaken => {}
        }
        let placed = &plan.steps[number];
        let state = survey.look(placed, kernel).map_err(|why| in_step(placed, why))?;
        let earlier = open.take(placed);
        let is_theirs = matches!(state, StepState::Otherwise { .. }) && !open.may_have_made(&earlier, kernel);
        let had = earlier.iter().any(|intent| intent.placed == *placed);
        let this = number;
        number += 1;
        if had && state == StepState::So {
            continue;
        }
        if let Some(prior) = in_its_place(placed, &earlier, is_theirs, kernel)? {
            if open.is_recorded(placed, &earlier, &prior, kernel)? {
                repeat(placed, &prior, kernel)?;
                done.repaired.extend(Drift::of(placed, state));
                continue;
            }
            if matches!(prior, Prior::Standing(_)) {
                // With a small MTU IPv6 goes from a link, and all that was listed of it.
                survey = &afresh;
            }
            let seq = journal.next_seq();
            let applied = apply_step(this, placed, &prior, journal, kernel);
            if applied.is_err() && !earlier.is_empty() {
                forget_failed(placed, seq, journal, kernel)?;
            }
            applied?;
            for Intent { seq, .. } in earlier {
                write(journal, kernel.fault, Entry::Undone { seq, outcome: Undone::Gone, index: None })?;
            }
        } else if is_shared_setting(placed) && is_repeated(placed, &earlier, journal, kernel)? {
            done.repaired.extend(Drift::of(placed, state));
            continue;
        } else {
            if !earlier.is_empty() {
                make_room(placed, &earlier, journal, kernel)?;
                survey = &afresh;
            }
            apply_step(this, placed, &Prior::Unknown, journal, kernel)?;
        }
        if had {
            done.repaired.extend(Drift::of(placed, state));
        } else {
            done.made.push(placed.clone());
        }
    }
    Ok(open.rest().collect())
}

/// What is known of a step that needs nothing taken back before it: it takes its place from what is there, or adapts
/// what earlier steps have made. `is_theirs`: what is there is of none of these.
fn in_its_place(
    placed: &Placed,
    earlier: &[Intent],
    is_theirs: bool,
    kernel: &mut Kernel,
) -> Result<Option<Prior>, ApplyError> {
    let (effect, place) = (placed.step.effect(), &placed.place);
    let first = earlier.first().map(|first| first.before.clone());
    if effect.takes_over() {
        // What may not be displaced is refused also where an earlier step says what was there first.
        let now = effect.before(kernel, place).map_err(|why| in_step(placed, why))?;
        return Ok(Some(Prior::Before(first.filter(|_| !is_theirs).unwrap_or(now))));
    }
    let (Some(first), Some(last)) = (first, earlier.last()) else { return Ok(None) };
    let adapts = effect.adapts(kernel, place, &last.placed.step).map_err(|why| in_step(placed, why))?;
    Ok(adapts.then_some(Prior::Standing(first)))
}

/// Does a step again of which the journal says all that undo must know.
fn repeat(placed: &Placed, prior: &Prior, kernel: &mut Kernel) -> Result<(), ApplyError> {
    let Prior::Before(before) = prior else { return Ok(()) };
    let (effect, place) = (placed.step.effect(), &placed.place);
    let acted = effect.act(kernel, place, before).and_then(|()| effect.after(kernel, place, before));
    acted.and_then(|after| effect.verify(&after)).map_err(|why| in_step(placed, why))
}

/// Undoes what the plan no longer has: the second half of a reconciliation.
pub(crate) fn take_back_these(
    left_over: &LeftOver,
    journal: &mut Journal,
    kernel: &mut Kernel,
) -> Vec<(Placed, Undone)> {
    if left_over.is_empty() { Vec::new() } else { undo_these(journal, left_over, kernel) }
}

/// Closes a step that could not be done, where an earlier one still says what was there before: a journal would
/// grow with each attempt.
fn forget_failed(
    placed: &Placed,
    seq: u64,
    journal: &mut Journal,
    kernel: &mut Kernel,
) -> Result<(), ApplyError> {
    let is_noted = journal.next_seq() > seq;
    let is_so = Survey::default().look(placed, kernel).map_or(true, |state| state == StepState::So);
    if is_noted && !is_so {
        write(journal, kernel.fault, Entry::Undone { seq, outcome: Undone::AlreadySo, index: None })?;
    }
    Ok(())
}

/// Takes back the earlier steps that had a step's place.
pub(crate) fn make_room(
    placed: &Placed,
    earlier: &[Intent],
    journal: &mut Journal,
    kernel: &mut Kernel,
) -> Result<(), ApplyError> {
    let seqs = earlier.iter().map(|intent| intent.seq).collect();
    for (_, undone) in undo_these(journal, &seqs, kernel) {
        if let Undone::Failed { why } = undone {
            return Err(in_step(placed, StepError::Refused { why }));
        }
    }
    Ok(())
}

/// The steps of a journal that are not undone.
struct Open {
    /// By the place that each takes.
    by_slot: BTreeMap<(Place, String), Vec<Intent>>,
    /// The numbers of those that were done. Of the others a process that died may have done some.
    done: BTreeSet<u64>,
}

impl Open {
    fn of(journal: &Journal) -> Open {
        let mut by_slot: BTreeMap<_, Vec<Intent>> = BTreeMap::new();
        for intent in journal.open_intents() {
            by_slot.entry(slot(&intent.placed)).or_default().push(intent.clone());
        }
        let done = journal.entries().iter().filter_map(|entry| match entry {
            Entry::Done { seq, .. } => Some(*seq),
            _ => None,
        });
        Open { by_slot, done: done.collect() }
    }

    /// Those that have the place of a step. The first one is that which found what was there before all of them.
    fn take(&mut self, placed: &Placed) -> Vec<Intent> {
        self.by_slot.remove(&slot(placed)).unwrap_or_default()
    }

    /// Whether one of these was done, or what is there is as one of them would have made it.
    fn may_have_made(&self, earlier: &[Intent], kernel: &mut Kernel) -> bool {
        earlier.iter().any(|Intent { seq, placed, .. }| {
            self.done.contains(seq)
                || Survey::default().look(placed, kernel).map_or(true, |state| state == StepState::So)
        })
    }

    /// Whether the journal has this very step, done in this very namespace, with the same way back: then it is
    /// done again without a line, so that a stranger's work is mended on a disk that is full, and a journal does
    /// not grow with it.
    fn is_recorded(
        &self,
        placed: &Placed,
        earlier: &[Intent],
        prior: &Prior,
        kernel: &mut Kernel,
    ) -> Result<bool, ApplyError> {
        let [only] = earlier else { return Ok(false) };
        let (Prior::Before(before), Some(cookie)) = (prior, only.netns_cookie) else { return Ok(false) };
        if only.placed != *placed || only.before != *before || !self.done.contains(&only.seq) {
            return Ok(false);
        }
        Ok(kernel.at(&placed.place).map_err(|error| in_step(placed, error.into()))?.cookie == cookie)
    }

    /// The first of these steps, as many as have free places by what is listed: of each it is known that
    /// nothing would be displaced.
    fn free_steps<'p>(&self, steps: &'p [Placed], kernel: &mut Kernel, survey: &Survey) -> &'p [Placed] {
        let is_free = |placed: &&Placed| {
            placed.step.effect().takes_over()
                && survey.lists(placed)
                && !self.by_slot.contains_key(&slot(placed))
                // Why it cannot be looked at is said when it is its turn.
                && survey.look(placed, kernel).is_ok_and(|state| state == StepState::Absent)
        };
        &steps[..steps.iter().take_while(is_free).count()]
    }

    /// The numbers of those that no step has asked for.
    fn rest(self) -> impl Iterator<Item = u64> {
        self.by_slot.into_values().flatten().map(|intent| intent.seq)
    }
}

/// The place in the kernel that a step takes.
pub(crate) fn slot(placed: &Placed) -> (Place, String) {
    (placed.place.clone(), placed.step.effect().slot())
}

impl Journal {
    /// Forgets the steps that are undone, if they are most of the file: a journal that is reconciled for
    /// months does not grow. One of steps that are shared stays as it is, since the units that share them know
    /// them by their numbers.
    ///
    /// # Errors
    /// The file cannot be replaced; it is then as before.
    pub fn forget_undone(self) -> Result<Journal, crate::JournalError> {
        /// Lines beyond which a journal is long.
        const LONG: usize = 100;
        let open: Vec<&Intent> = self.open_intents().collect();
        let is_shared = |intent: &&Intent| matches!(intent.before, Before::Shared { .. });
        if self.entries().len() < LONG.max(6 * open.len()) || open.iter().any(is_shared) {
            return Ok(self);
        }
        let done = |seq| {
            self.entries().iter().find_map(move |entry| match entry {
                Entry::Done { seq: of, after } if *of == seq => Some(after.clone()),
                _ => None,
            })
        };
        let mut entries = Vec::new();
        for (seq, intent) in (0..).zip(&open) {
            entries.push(Entry::Intent(Intent { seq, ..(*intent).clone() }));
            entries.extend(done(intent.seq).map(|after| Entry::Done { seq, after }));
        }
        self.replaced_by(entries)
    }
}
