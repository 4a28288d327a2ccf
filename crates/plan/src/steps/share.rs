//! A step that several units share: see [`crate::claims`].

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Effect, MovedBack, Outcome, Past, mistaken};
use crate::claims::{Claim, Claims};
use crate::entry::{Before, Intent, Undone};
use crate::error::StepError;
use crate::lifetime::Lifetime;
use crate::listing::Listing;
use crate::look::Look;
use crate::preview::Preview;
use crate::{Kernel, Place, Placed, Step};

/// The step that is shared.
pub(super) struct Share<'s>(pub(super) &'s Step);

impl Effect for Share<'_> {
    fn before(&self, kernel: &mut Kernel, place: &Place) -> Result<Before, StepError> {
        let Share(step) = self;
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
        let Share(step) = self;
        let Before::Shared { claims, owner } = before else { return Err(mistaken(before)) };
        let mut claims = Claims::lock(claims, kernel.at(place)?.cookie)?;
        let mut claim = match claims.on(step) {
            Some(claim) => {
                self.check(&claim)?;
                self.taken_over(claim, kernel)?
            }
            None => {
                let is_so = self.is_so_already(kernel, place)?;
                let before = if is_so { None } else { Some(step.effect().before(kernel, place)?) };
                let placed = Placed { place: place.clone(), step: (*step).clone() };
                Claim { placed, before, after: None, owners: Vec::new() }
            }
        };
        claim.owners.push(owner.clone());
        claims.put(claim.clone())?;
        let made = self.make_so(kernel, &mut claims, &claim);
        if made.as_ref().is_err_and(StepError::is_exists) {
            // Somebody was faster, and what is there must not be taken for ours.
            claim.owners.pop();
            if claim.owners.is_empty() { claims.remove(step)? } else { claims.put(claim)? }
        }
        made
    }

    fn undo(&self, kernel: &mut Kernel, past: &Past, moved: &MovedBack) -> Result<Outcome, StepError> {
        let Share(step) = self;
        let Intent { placed, netns_cookie, before, .. } = &past.intent;
        let (Before::Shared { claims, owner }, Some(cookie)) = (before, *netns_cookie) else {
            return Err(mistaken(before));
        };
        let mut claims = Claims::lock(claims, cookie)?;
        // None: the step was not begun, or an undo that died had given it up.
        let Some(mut claim) = claims.on(step).filter(|claim| claim.owners.contains(owner)) else {
            return Ok(Undone::AlreadySo.into());
        };
        if !kernel.is_still(&placed.place, cookie)? {
            claims.remove(step)?;
            return Ok(Undone::Gone.into());
        }
        // A unit that shares it twice gives it up twice.
        if let Some(one) = claim.owners.iter().position(|other| other == owner) {
            claim.owners.remove(one);
        }
        if !claim.owners.is_empty() {
            let owners = names(&claim);
            claims.put(claim)?;
            return Ok(Undone::LeftToOthers { owners }.into());
        }
        let outcome = match claim.before {
            None => Undone::AlreadySo.into(),
            Some(before) => {
                let intent = Intent { placed: claim.placed, before, ..past.intent.clone() };
                step.effect().undo(kernel, &Past { intent, after: claim.after }, moved)?
            }
        };
        claims.remove(step)?;
        Ok(outcome)
    }

    fn look(&self, kernel: &mut Kernel, place: &Place, listing: &Listing) -> Result<Look, StepError> {
        self.0.effect().look(kernel, place, listing)
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

    fn identity(&self) -> String {
        self.0.effect().identity()
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

impl Share<'_> {
    /// Refuses to want something else than the units that share it.
    fn check(&self, claim: &Claim) -> Result<(), StepError> {
        let Share(step) = self;
        if claim.owners.is_empty() || claim.placed.step == **step {
            return Ok(());
        }
        Err(StepError::Shared {
            what: step.effect().subject(),
            owners: names(claim),
            wanted: claim.placed.commands().join("; "),
        })
    }

    /// A value that is as wanted is not written. An object that is there is somebody else's.
    fn is_so_already(&self, kernel: &mut Kernel, place: &Place) -> Result<bool, StepError> {
        let Share(step) = self;
        let is_value = matches!(step, Step::Set(_));
        Ok(is_value && step.effect().look(kernel, place, &Listing::default())? == Look::So)
    }

    /// A claim that has owners stays as it is. What owners that are gone have left is put back to what they found, too.
    fn taken_over(&self, claim: Claim, kernel: &mut Kernel) -> Result<Claim, StepError> {
        let Share(step) = self;
        if !claim.owners.is_empty() || claim.placed.step == **step {
            return Ok(claim);
        }
        let before = match claim.before {
            Some(before) => before,
            None => step.effect().before(kernel, &claim.placed.place)?,
        };
        let placed = Placed { step: (*step).clone(), ..claim.placed };
        Ok(Claim { placed, before: Some(before), after: None, owners: Vec::new() })
    }

    /// Does the step if nobody has: for the first unit, and for a later one if the first died over it.
    fn make_so(&self, kernel: &mut Kernel, claims: &mut Claims, claim: &Claim) -> Result<(), StepError> {
        let Share(step) = self;
        let (effect, place) = (step.effect(), &claim.placed.place);
        let is_so = effect.look(kernel, place, &Listing::default())? == Look::So;
        match &claim.before {
            Some(before) if claim.after.is_none() => {
                if !is_so {
                    effect.act(kernel, place, before)?;
                }
                let after = effect.after(kernel, place, before)?;
                let verified = effect.verify(&after);
                claims.put(Claim { after: Some(after), ..claim.clone() })?;
                verified
            }
            _ if is_so => Ok(()),
            _ => {
                let (owners, what) = (names(claim).join(", "), effect.subject());
                let why = format!(
                    "{what} is shared by {owners}, and somebody has changed it since; set it right first"
                );
                Err(StepError::Refused { why })
            }
        }
    }
}

/// The units of a claim, as people call them: `lab/3f2a`, out of `/run/hostgap/lab/3f2a/ptp.journal`.
fn names(claim: &Claim) -> Vec<String> {
    let name = |owner: &PathBuf| {
        let unit = owner.parent().unwrap_or(owner);
        let kind = unit.parent().and_then(Path::file_name).unwrap_or_default();
        Path::new(kind).join(unit.file_name().unwrap_or_default()).display().to_string()
    };
    let names: BTreeSet<String> = claim.owners.iter().map(name).collect();
    names.into_iter().collect()
}
