//! How any register is set, looked at and put back.
//!
//! Every question is a look: a value that was read once is held against what the step asks for, and the answer is a
//! [`StepState`]. Preview and verify ask about a value that they have at hand, since another look would read it again.
//! Undo looks twice, for its step and for the way back from it: three values are in question then, what was there
//! before, what the step left, and what is found.

use linux::IfName;
use linux::netlink::LinkInfo;

use super::{Effect, MovedBack, Past, UndoOutcome, mistaken};
use crate::entry::{After, Before, Undone};
use crate::error::StepError;
use crate::lack::Lack;
use crate::lifetime::Lifetime;
use crate::listing::Listing;
use crate::look::StepState;
use crate::preview::Preview;
use crate::set::{Along, At, Held, JournaledRegister, RegisterState, RegisterVisitor, Set, Times, Undoing};
use crate::{Kernel, Place};

/// The step that sets a register.
struct Sets<'s, R>(&'s R);

/// The effect of a setting.
pub(super) fn effect(set: &Set) -> Box<dyn Effect + '_> {
    struct Effects;
    impl<'s> RegisterVisitor<'s> for Effects {
        type Seen = Box<dyn Effect + 's>;

        fn see<R: JournaledRegister>(self, register: &'s R) -> Box<dyn Effect + 's> {
            Box::new(Sets(register))
        }
    }
    set.show(Effects)
}

impl<R: JournaledRegister> Effect for Sets<'_, R> {
    fn before(&self, kernel: &mut Kernel, place: &Place) -> Result<Before, StepError> {
        let Sets(register) = self;
        let listing = Listing::default();
        let at = self.find(kernel, place, &listing)?;
        let value = self.read(&at)?;
        if let Some(why) = register.refusal(&at, &value)? {
            return Err(StepError::Refused { why });
        }
        let along = R::Along::read(register, &at)?;
        Ok(Before::Was(RegisterState(R::keep(Held { index: at.index(), mac: at.mac(), value, along }))))
    }

    fn act(&self, kernel: &mut Kernel, place: &Place, before: &Before) -> Result<(), StepError> {
        let listing = Listing::default();
        let at = self.find(kernel, place, &listing)?;
        self.0.set(&at, &self.was(before)?.value)
    }

    fn after(&self, kernel: &mut Kernel, place: &Place, before: &Before) -> Result<After, StepError> {
        let listing = Listing::default();
        let at = self.find(kernel, place, &listing)?;
        let value = self.read(&at)?;
        let along = R::Along::read(self.0, &at)?.changed_since(&self.was(before)?.along);
        Ok(After::Is(RegisterState(R::keep(Held { index: None, mac: None, value, along }))))
    }

    /// The kernel may take a value and make another of it.
    fn verify(&self, after: &After) -> Result<(), StepError> {
        let Sets(register) = self;
        let value = &self.is(after)?.value;
        match self.state(value) {
            StepState::Otherwise { found } => {
                Err(StepError::NotTaken { wanted: register.words(&register.wanted(value)), found })
            }
            StepState::So | StepState::Absent => Ok(()),
        }
    }

    /// The value is as before, or is the step's and is put back, or is another program's and is left alone.
    fn undo(&self, kernel: &mut Kernel, past: &Past, moved: &MovedBack) -> Result<UndoOutcome, StepError> {
        let Sets(register) = self;
        let place = &past.intent.placed.place;
        let was = self.was(&past.intent.before)?;
        let left = past.after.as_ref().map(|after| self.is(after)).transpose()?;
        let (opened, listing) = (kernel.at(place)?, Listing::default());
        let link = match was.index {
            None => None,
            Some(index) => {
                let found = opened.netlink.link_at(moved.now(place, index))?;
                match found.filter(|found| was.is_of(found, register.link())) {
                    None => return Ok(Undone::Gone.into()),
                    link => link,
                }
            }
        };
        let at = At::new(opened, &listing, link);
        let Some(found) = self.read_if_there(&at)? else { return Ok(Undone::Gone.into()) };
        let values = Times { was: &was.value, left: left.map(|left| &left.value), found: &found };
        let is_back = self.state_of_way_back(&values) == StepState::So;
        let of_step = if is_back { StepState::So } else { self.state_as_left(&at, &values)? };
        let others = match of_step {
            StepState::Otherwise { found } => Some(Undone::ChangedByOther { found }),
            StepState::So | StepState::Absent => None,
        };
        if let Some(changed) = others.as_ref().filter(|_| !R::Along::GOES_ALONE) {
            return Ok(changed.clone().into());
        }
        let followers = R::Along::read(register, &at)?;
        if !is_back && others.is_none() {
            // Asked now: what the journal's own later steps had of it is back. Without an answer it may be used.
            if register.makes_what_is_used()
                && let Some(why) = register.used(&at)?
            {
                return Err(StepError::Refused { why });
            }
            register.write(&at, &was.value)?;
        }
        let along = Times { was: &was.along, left: left.map(|left| &left.along), found: &followers };
        let index_now = |index| moved.now(place, index);
        let undoing = Undoing { register: *register, at: &at, values, is_back, index_now: &index_now };
        let followed = R::Along::put_back(&undoing, &along)?;
        Ok(match (others, is_back && !followed) {
            (Some(changed), _) => changed,
            (None, true) => Undone::AlreadySo,
            (None, false) => Undone::Restored,
        }
        .into())
    }

    fn lends(&self) -> Option<IfName> {
        self.0.link().filter(|_| self.0.makes_what_is_used()).cloned()
    }

    fn rests_on(&self, place: &Place) -> Option<(Place, IfName)> {
        self.0.link().map(|link| (place.clone(), link.clone()))
    }

    fn look(&self, kernel: &mut Kernel, place: &Place, listing: &Listing) -> Result<StepState, StepError> {
        let Sets(register) = self;
        let opened = kernel.at(place)?;
        let link = match register.link() {
            None => None,
            Some(name) => match listing.link(opened, name)? {
                None => return Ok(StepState::Absent),
                link => link,
            },
        };
        let found = match register.read(&At::new(opened, listing, link)) {
            Err(error) if error.is_no_file() => None,
            found => found?,
        };
        Ok(found.map_or(StepState::Absent, |found| self.state(&found)))
    }

    fn preview(&self, kernel: &mut Kernel, place: &Place) -> Result<Option<Preview>, StepError> {
        let Sets(register) = self;
        let before = self.before(kernel, place)?;
        let Held { index, value, .. } = self.was(&before)?;
        let (old, new) = (register.words(value), register.words(&register.wanted(value)));
        Ok(Some(Preview { old, new, index: *index, is_so: self.state(value) == StepState::So }))
    }

    fn admits_before(&self, before: &Before) -> bool {
        self.was(before).is_ok()
    }

    fn admits_after(&self, after: &After) -> bool {
        self.is(after).is_ok()
    }

    fn lifetime(&self) -> Lifetime<'_> {
        self.0.lifetime()
    }

    fn is_listed(&self) -> bool {
        self.0.is_listed()
    }

    fn lack(&self) -> Option<Lack> {
        self.0.lack()
    }

    fn identity(&self) -> String {
        let link = self.0.link().map(ToString::to_string).unwrap_or_default();
        format!("{} {link} {}", std::any::type_name::<R>(), self.0.subject())
    }

    fn subject(&self) -> String {
        self.0.subject()
    }

    fn changed(&self, found: &str) -> String {
        self.0.changed(found)
    }

    fn commands(&self, place: &Place) -> Vec<String> {
        vec![self.0.command(place)]
    }
}

impl<R: JournaledRegister> Sets<'_, R> {
    fn find<'a>(
        &self,
        kernel: &'a mut Kernel,
        place: &Place,
        listing: &'a Listing,
    ) -> Result<At<'a>, StepError> {
        let opened = kernel.at(place)?;
        let existing = |name: &IfName| -> Result<LinkInfo, StepError> {
            let found = opened.netlink.link(name)?;
            found.ok_or_else(|| StepError::NoLink { link: name.to_string() })
        };
        let link = self.0.link().map(existing).transpose()?;
        Ok(At::new(opened, listing, link))
    }

    fn read(&self, at: &At<'_>) -> Result<R::Value, StepError> {
        self.0.read(at)?.ok_or_else(|| self.0.missing())
    }

    /// How the step stands where its register holds this value.
    fn state(&self, value: &R::Value) -> StepState {
        StepState::of(self.0.is_met(value), || self.0.words(value))
    }

    /// How the way back from the step stands, which asks for the value that was there before.
    fn state_of_way_back(&self, values: &Times<'_, R::Value>) -> StepState {
        StepState::of(self.0.is_same(values.found, values.was), || self.0.phrase(values.found))
    }

    /// How the step stands that undo is to take back, which asks for what it left there: the kernel may have made
    /// another value of the one that was asked for. A value that is the step's is yet another's where that one has
    /// the register by now.
    fn state_as_left(&self, at: &At<'_>, values: &Times<'_, R::Value>) -> Result<StepState, StepError> {
        if !self.0.is_ours(values) {
            return Ok(StepState::otherwise(self.0.phrase(values.found)));
        }
        Ok(self.0.taken(at)?.map_or(StepState::So, StepState::otherwise))
    }

    /// What is a file of a link goes with a queue or with the link's driver.
    fn read_if_there(&self, at: &At<'_>) -> Result<Option<R::Value>, StepError> {
        match self.0.read(at) {
            Err(error) if error.is_no_file() && at.index().is_some() => Ok(None),
            found => found,
        }
    }

    fn was<'b>(&self, before: &'b Before) -> Result<&'b Held<R>, StepError> {
        let held = if let Before::Was(RegisterState(state)) = before { R::kept(state) } else { None };
        let of_link = self.0.link().is_some();
        held.filter(|held| self.0.admits(&held.value) && held.index.is_some() == of_link)
            .ok_or_else(|| mistaken(before))
    }

    fn is<'b>(&self, after: &'b After) -> Result<&'b Held<R>, StepError> {
        let held = if let After::Is(RegisterState(state)) = after { R::kept(state) } else { None };
        held.filter(|held| self.0.admits(&held.value)).ok_or_else(|| mistaken(after))
    }
}
