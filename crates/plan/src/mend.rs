//! What a journal has made, made again where another program has taken it away: a table that went with all others, a
//! parameter that was set to something else.
//!
//! It differs from [`crate::reconcile`] in what it leaves alone. A link that is there with other properties stays as it
//! is, since others rest on it; nothing is taken back that stands. Programs that are there in part, or of another
//! version, are replaced where they are: other units have their pods in them.

use std::collections::BTreeMap;

use crate::apply::{Prior, apply_step, in_step};
use crate::entry::{Entry, Intent};
use crate::error::{ApplyError, StepError};
use crate::look::{Drift, StepState, look};
use crate::reconcile::{make_room, slot};
use crate::repeated::is_repeated;
use crate::{Journal, Kernel, Placed, Plan, Step};

/// The first of a plan's steps that [`mend`] would do again; `None`: there is none.
///
/// # Errors
/// A namespace of the plan is not there, or the kernel does not answer.
pub fn drift(plan: &Plan, kernel: &mut Kernel) -> Result<Option<Drift>, StepError> {
    for placed in &plan.steps {
        let state = look(placed, kernel)?;
        if is_to_be_mended(placed, &state, kernel)? {
            return Ok(Drift::of(placed, state));
        }
    }
    Ok(None)
}

/// Does again what a journal has made and is no longer so; says what that was. What needs no other way back than before
/// is done without a line, so that a journal does not grow with each time.
///
/// # Errors
/// The first step that cannot be done. What was done until then is in the journal, and a later call goes on from there.
pub fn mend(journal: &mut Journal, kernel: &mut Kernel) -> Result<Vec<Drift>, ApplyError> {
    kernel.begin_run();
    let mut mended = Vec::new();
    for (number, placed) in intended(journal.entries()).steps.iter().enumerate() {
        let state = look(placed, kernel).map_err(|why| in_step(placed, why))?;
        if !is_to_be_mended(placed, &state, kernel).map_err(|why| in_step(placed, why))? {
            continue;
        }
        let has_its_place = |intent: &&Intent| slot(&intent.placed) == slot(placed);
        let earlier: Vec<Intent> = journal.open_intents().filter(has_its_place).cloned().collect();
        if !is_repeated(placed, &earlier, journal, kernel)? && !is_renewed(placed, &state, kernel)? {
            make_room(placed, &earlier, journal, kernel)?;
            apply_step(number, placed, &Prior::Unknown, journal, kernel)?;
        }
        mended.extend(Drift::of(placed, state));
    }
    Ok(mended)
}

/// Renews what units of others rest on. False: nothing does, and it can be taken back and made anew.
fn is_renewed(placed: &Placed, state: &StepState, kernel: &mut Kernel) -> Result<bool, ApplyError> {
    match placed.step.effect().renew(kernel, &placed.place) {
        Err(why) if *state != StepState::Absent => Err(in_step(placed, why)),
        // There is no program, as where a process died before it had pinned one: nothing rests on that.
        renewed => Ok(renewed.unwrap_or(false)),
    }
}

/// What a journal was to make: also what a process had taken back that died before it made it again. Each step stands
/// where the first one about the same stood, so that a link comes before what rests on it.
pub(crate) fn intended(entries: &[Entry]) -> Plan {
    let mut steps: Vec<Placed> = Vec::new();
    let mut at = BTreeMap::new();
    for placed in entries.iter().filter_map(Entry::intent).map(|intent| &intent.placed) {
        let known = *at.entry(slot(placed)).or_insert(steps.len());
        match steps.get_mut(known) {
            Some(earlier) => *earlier = placed.clone(),
            None => steps.push(placed.clone()),
        }
    }
    Plan { steps }
}

/// A link of another kind is another program's, and in the way: why, says the step.
fn is_to_be_mended(placed: &Placed, state: &StepState, kernel: &mut Kernel) -> Result<bool, StepError> {
    let step = if let Step::Share(step) = &placed.step { step } else { &placed.step };
    match (state, step.link()) {
        (StepState::So, _) => Ok(false),
        (StepState::Absent, _) | (StepState::Otherwise { .. }, None) => Ok(true),
        (StepState::Otherwise { .. }, Some(link)) => {
            let found = kernel.link(&placed.place, &link.name)?;
            Ok(found.is_none_or(|found| found.kind.as_deref() != Some(link.kind.name())))
        }
    }
}

#[cfg(test)]
mod tests {
    use linux::{IfName, Link, LinkKind};

    use super::*;
    use crate::entry::Before;
    use crate::{Place, Undone};

    /// A process died after it had noted that a bridge is gone, and before it noted that it makes it again.
    #[test]
    fn what_was_taken_back_to_be_made_again_is_not_forgotten() {
        let name = IfName::new("hgbr1").unwrap();
        let link = Link { name: name.clone(), kind: LinkKind::Bridge, mtu: Some(1500), mac: None };
        let address = "10.244.1.1/24".parse().unwrap();
        let steps = [Step::AddLink(link), Step::AddAddress { link: name, address }];
        let plan = Plan { steps: steps.map(|step| Placed { place: Place::Host, step }).into() };
        let intent = |(seq, placed): (u64, &Placed)| {
            Entry::Intent(Intent { seq, placed: placed.clone(), netns_cookie: None, before: Before::Absent })
        };
        let mut entries: Vec<Entry> = (0..).zip(&plan.steps).map(intent).collect();
        assert_eq!(intended(&entries), plan);
        entries.push(Entry::Undone { seq: 0, outcome: Undone::Gone, index: None });
        assert_eq!(intended(&entries), plan);
        entries.push(intent((2, &plan.steps[0])));
        assert_eq!(intended(&entries), plan);
    }
}
