//! A step that several units share: see [`crate::claims`].

use std::collections::BTreeSet;
use std::path::Path;

use linux::IfName;

use super::{Effect, MovedBack, Past, UndoOutcome, mistaken};
use crate::claims::{Claim, Claims};
use crate::entry::{Before, Intent, Undone};
use crate::error::StepError;
use crate::lack::Lack;
use crate::lifetime::Lifetime;
use crate::listing::Listing;
use crate::look::StepState;
use crate::owner::Owner;
use crate::preview::Preview;
use crate::{Fault, Kernel, Place, Placed, Step};

/// A step that several units may have made alike: the last of them takes it back.
pub(super) struct SharedStep<'s>(pub(super) &'s Step);

impl Effect for SharedStep<'_> {
    fn before(&self, kernel: &mut Kernel, place: &Place) -> Result<Before, StepError> {
        let SharedStep(step) = self;
        if matches!(step, Step::AddNetns | Step::MoveLink { .. } | Step::Share(_)) {
            let why = format!("{} cannot be shared", step.effect().subject());
            return Err(StepError::Refused { why });
        }
        let Some(owner) = kernel.owner.clone() else {
            let why = "only a unit with a journal can share a step".to_owned();
            return Err(StepError::Refused { why });
        };
        let directory = kernel.claims.clone();
        let claims = Claims::lock(&directory, kernel.at(place)?.cookie)?;
        match claims.on(step) {
            Some(claim) => self.check(&claim)?,
            None if self.is_so_already(kernel, place)? => {}
            // What could not be undone is refused before anything is done.
            None => drop(step.effect().before(kernel, place)?),
        }
        Ok(Before::Shared { claims: directory, owner })
    }

    fn act(&self, kernel: &mut Kernel, place: &Place, before: &Before) -> Result<(), StepError> {
        let SharedStep(step) = self;
        let Before::Shared { claims, owner } = before else { return Err(mistaken(before)) };
        let mut claims = Claims::lock(claims, kernel.at(place)?.cookie)?;
        let left = match claims.on(step) {
            Some(claim) => {
                self.check(&claim)?;
                self.without_the_gone(claim, kernel, place)?
            }
            None => None,
        };
        let mut claim = match left {
            Some(claim) => claim,
            None => {
                let is_so = self.is_so_already(kernel, place)?;
                let before = if is_so { None } else { Some(step.effect().before(kernel, place)?) };
                Claim { step: (*step).clone(), before, after: None, owners: Vec::new() }
            }
        };
        let others = names(&claim);
        // One that is there already is that of an earlier journal of the same name.
        claim.owners.retain(|other| other != owner);
        claim.owners.push(owner.clone());
        claims.put(claim.clone())?;
        if kernel.fault == Fault::InClaim {
            return Err(StepError::Refused { why: "a fault was injected".to_owned() });
        }
        let made = self.make_so(kernel, place, &mut claims, &claim, &others);
        if made.as_ref().is_err_and(StepError::is_exists) {
            // Another program was faster, and what is there must not be taken for ours.
            claim.owners.pop();
            if claim.owners.is_empty() { claims.remove(step)? } else { claims.put(claim)? }
        }
        made
    }

    fn undo(&self, kernel: &mut Kernel, past: &Past, moved: &MovedBack) -> Result<UndoOutcome, StepError> {
        let SharedStep(step) = self;
        let Intent { placed: Placed { place, .. }, netns_cookie, before, .. } = &past.intent;
        let (Before::Shared { claims, owner }, Some(cookie)) = (before, *netns_cookie) else {
            return Err(mistaken(before));
        };
        let mut claims = Claims::lock(claims, cookie)?;
        // None: the step was not begun, or an undo that died had given it up.
        let Some(mut claim) = claims.on(step).filter(|claim| claim.owners.contains(owner)) else {
            return Ok(Undone::AlreadySo.into());
        };
        // What is pinned outlives the namespace.
        if step.effect().lifetime() != Lifetime::Outside && !kernel.is_still(place, cookie)? {
            claims.remove(step)?;
            return Ok(Undone::Gone.into());
        }
        claim.owners.retain(|other| other != owner);
        if !claim.owners.is_empty() {
            let owners = names(&claim);
            claims.put(claim)?;
            return Ok(Undone::LeftToOthers { owners }.into());
        }
        let outcome = self.put_back(kernel, &past.intent, claim, moved)?;
        claims.remove(step)?;
        Ok(outcome)
    }

    /// What is left to other units stays for those that use it, too.
    fn in_use(&self, kernel: &mut Kernel, past: &Past) -> Result<Option<String>, StepError> {
        let SharedStep(step) = self;
        // Nothing else has users, and the claims of each step would be read.
        if !matches!(step, Step::EnsureLink(_)) {
            return Ok(None);
        }
        let (Before::Shared { claims, owner }, Some(cookie)) =
            (&past.intent.before, past.intent.netns_cookie)
        else {
            return Err(mistaken(&past.intent.before));
        };
        let claim = Claims::lock(claims, cookie)?.on(step).filter(|claim| claim.owners == [owner.clone()]);
        match claim.map(|claim| claimed(&past.intent, claim)) {
            Some((step, Some(past))) => step.effect().in_use(kernel, &past),
            Some((_, None)) | None => Ok(None),
        }
    }

    fn lends(&self) -> Option<IfName> {
        self.0.effect().lends()
    }

    fn look(&self, kernel: &mut Kernel, place: &Place, listing: &Listing) -> Result<StepState, StepError> {
        self.0.effect().look(kernel, place, listing)
    }

    fn look_alone(
        &self,
        kernel: &mut Kernel,
        place: &Place,
        listing: &Listing,
    ) -> Result<StepState, StepError> {
        self.0.effect().look_alone(kernel, place, listing)
    }

    fn preview(&self, kernel: &mut Kernel, place: &Place) -> Result<Option<Preview>, StepError> {
        self.0.effect().preview(kernel, place)
    }

    fn admits_before(&self, before: &Before) -> bool {
        matches!(before, Before::Shared { .. })
    }

    /// A claim is no part of a namespace: it is to be given up also where that is gone.
    fn lifetime(&self) -> Lifetime<'_> {
        Lifetime::Outside
    }

    fn is_listed(&self) -> bool {
        self.0.effect().is_listed()
    }

    fn lack(&self) -> Option<Lack> {
        self.0.effect().lack()
    }

    fn identity(&self) -> String {
        self.0.effect().identity()
    }

    fn slot(&self) -> String {
        self.0.effect().slot()
    }

    fn subject(&self) -> String {
        self.0.effect().subject()
    }

    fn gone(&self) -> String {
        self.0.effect().gone()
    }

    fn changed(&self, found: &str) -> String {
        self.0.effect().changed(found)
    }

    fn commands(&self, place: &Place) -> Vec<String> {
        self.0.effect().commands(place)
    }
}

impl SharedStep<'_> {
    /// Refuses to want something else than the units that share it.
    fn check(&self, claim: &Claim) -> Result<(), StepError> {
        let SharedStep(step) = self;
        if claim.owners.is_empty() || claim.step == **step {
            return Ok(());
        }
        Err(StepError::Shared {
            what: step.effect().subject(),
            owners: names(claim),
            wanted: claim.step.effect().commands(&Place::Host).join("; "),
        })
    }

    /// A value that is as wanted is not written. An object that exists already belongs to another program.
    fn is_so_already(&self, kernel: &mut Kernel, place: &Place) -> Result<bool, StepError> {
        let SharedStep(step) = self;
        let is_value = matches!(step, Step::Set(_));
        Ok(is_value && step.effect().look(kernel, place, &Listing::default())? == StepState::So)
    }

    /// A claim of living units, or one on the same step, stays. What units that are gone had otherwise is put back
    /// first.
    fn without_the_gone(
        &self,
        claim: Claim,
        kernel: &mut Kernel,
        place: &Place,
    ) -> Result<Option<Claim>, StepError> {
        if !claim.owners.is_empty() || claim.step == *self.0 {
            return Ok(Some(claim));
        }
        let placed = Placed { place: place.clone(), step: claim.step.clone() };
        let intent = Intent { seq: 0, placed, netns_cookie: None, before: Before::Absent };
        if let (step, Some(past)) = claimed(&intent, claim.clone())
            && let Some(why) = step.effect().in_use(kernel, &past)?
        {
            let why = format!("{why}; it stays as units that are gone had it until these are gone too");
            return Err(StepError::Refused { why });
        }
        self.put_back(kernel, &intent, claim, &MovedBack::default())?;
        Ok(None)
    }

    /// Undoes the claimed step as if the unit of `intent` had done it.
    fn put_back(
        &self,
        kernel: &mut Kernel,
        intent: &Intent,
        claim: Claim,
        moved: &MovedBack,
    ) -> Result<UndoOutcome, StepError> {
        match claimed(intent, claim) {
            (step, Some(past)) => step.effect().undo(kernel, &past, moved),
            (_, None) => Ok(Undone::AlreadySo.into()),
        }
    }

    /// From what the step is done again, where it is not so any more; `None`: another program has made something else
    /// of it. An error says why it may not be done now, though nothing was changed.
    fn goes_on_from(
        claim: &Claim,
        now: impl FnOnce() -> Result<Before, StepError>,
    ) -> Result<Option<Before>, StepError> {
        let Some(before) = &claim.before else { return Ok(None) };
        if claim.after.is_none() {
            return Ok(Some(before.clone()));
        }
        let now = match now() {
            Err(refused @ StepError::Refused { .. }) => return Err(refused),
            Err(_) => return Ok(None),
            Ok(now) => now,
        };
        Ok(match (before, now) {
            // What was found there and is gone belongs to the claim when it is made.
            (Before::Present, Before::Absent) => Some(Before::Absent),
            (before, now) => (now == *before).then_some(now),
        })
    }

    /// Does the step unless it is done. A unit may have died before it did it, and another one after it took it back.
    fn make_so(
        &self,
        kernel: &mut Kernel,
        place: &Place,
        claims: &mut Claims,
        claim: &Claim,
        others: &[String],
    ) -> Result<(), StepError> {
        let effect = self.0.effect();
        let is_so = effect.look(kernel, place, &Listing::default())? == StepState::So;
        if is_so && (claim.before.is_none() || claim.after.is_some()) {
            return Ok(());
        }
        match Self::goes_on_from(claim, || effect.before(kernel, place))? {
            Some(before) => {
                if claim.before.as_ref() != Some(&before) {
                    // Written down first: whoever dies after it was made leaves none that nobody owns.
                    claims.put(Claim { before: Some(before.clone()), after: None, ..claim.clone() })?;
                }
                if !is_so {
                    effect.act(kernel, place, &before)?;
                }
                let after = effect.after(kernel, place, &before)?;
                let verified = effect.verify(&after);
                claims.put(Claim { before: Some(before), after: Some(after), ..claim.clone() })?;
                verified
            }
            None => {
                let what = effect.subject();
                let sharers =
                    if others.is_empty() { "units that are gone".to_owned() } else { others.join(", ") };
                let why = format!(
                    "{what} is shared by {sharers} and was changed by another program; restore it first"
                );
                Err(StepError::Refused { why })
            }
        }
    }
}

/// A claimed step, and its past as if the unit of `intent` had done it; `None`: it was so already,
/// and nothing was done.
fn claimed(intent: &Intent, claim: Claim) -> (Step, Option<Past>) {
    let Claim { step, before, after, .. } = claim;
    let placed = Placed { place: intent.placed.place.clone(), step: step.clone() };
    let past = before.map(|before| Past { intent: Intent { placed, before, ..intent.clone() }, after });
    (step, past)
}

/// The units of a claim, as people call them: `lab/3f2a`, out of `/run/hostgap/lab/3f2a/ptp.journal`.
fn names(claim: &Claim) -> Vec<String> {
    let name = |Owner { journal, .. }: &Owner| {
        let unit = journal.parent().unwrap_or(journal);
        let kind = unit.parent().and_then(Path::file_name).unwrap_or_default();
        Path::new(kind).join(unit.file_name().unwrap_or_default()).display().to_string()
    };
    let names: BTreeSet<String> = claim.owners.iter().map(name).collect();
    names.into_iter().collect()
}
