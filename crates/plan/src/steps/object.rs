//! What is either there or not, and is made and removed as a whole.

use linux::IfName;

use super::{Effect, MovedBack, Past, UndoOutcome, absent, existing_index};
use crate::entry::{After, Before, Undone};
use crate::error::StepError;
use crate::kernel::OpenNetns;
use crate::lack::Lack;
use crate::listing::Listing;
use crate::look::StepState;
use crate::preview::Preview;
use crate::{Kernel, Place, Step};

/// Something that is made and removed as a whole.
pub(super) trait Object {
    /// The link on which it hangs, and with which it goes.
    fn dev(&self) -> Option<&IfName> {
        None
    }

    /// Whether it is there. `index` is that of its link, or 0.
    fn look(&self, opened: &OpenNetns, listing: &Listing, index: u32) -> Result<StepState, StepError>;

    fn add(&self, opened: &OpenNetns, index: u32) -> Result<(), StepError>;

    fn remove(&self, opened: &OpenNetns, index: u32) -> Result<(), StepError>;

    /// Whether what the kernel has acknowledged is looked at again: it may have made something else of it.
    fn is_read_back(&self) -> bool {
        true
    }

    /// Waits for a process that apply started, that outlived it, and that may still add it.
    fn settle(&self, _opened: &OpenNetns) -> Result<(), StepError> {
        Ok(())
    }

    /// Whether what is there is all that an add came to which was interrupted.
    fn is_begun(&self, _opened: &OpenNetns, _index: u32) -> Result<bool, StepError> {
        Ok(false)
    }

    /// Whether an inventory of the namespace shows it.
    fn is_listed(&self) -> bool {
        true
    }

    /// As [`Effect::slot`], for what has properties that it may change in its place.
    fn slot(&self) -> String {
        self.command(&Place::Host)
    }

    /// Whether it is made of what an earlier step made, with other properties or none, by adding it once more.
    fn adapts(&self, _earlier: &Step) -> bool {
        false
    }

    /// As [`Step::lack`].
    fn lack(&self) -> Option<Lack> {
        None
    }

    /// As [`Effect::distinction`].
    fn distinction(&self) -> String {
        String::new()
    }

    /// As a phrase, with the link where there may be others without.
    fn subject(&self) -> String;

    /// What a person would type to make it.
    fn command(&self, place: &Place) -> String;

    /// What a person would type to remove what is in its way.
    fn removal(&self, place: &Place) -> String;
}

/// The step that makes an object.
pub(super) struct Adds<O>(pub(super) O);

impl<O: Object> Effect for Adds<O> {
    fn before(&self, kernel: &mut Kernel, place: &Place) -> Result<Before, StepError> {
        let Adds(object) = self;
        let index = self.index(kernel, place)?;
        let opened = kernel.at(place)?;
        let what = match object.look(opened, &Listing::of_run(), index)? {
            StepState::Absent => return Ok(Before::Absent),
            StepState::So => "the same".to_owned(),
            StepState::Otherwise { found } => found,
        };
        let remedy = format!("remove it if it is not needed: {}", object.removal(place));
        Err(StepError::Exists { what, remedy })
    }

    fn act(&self, kernel: &mut Kernel, place: &Place, _: &Before) -> Result<(), StepError> {
        let index = self.index(kernel, place)?;
        self.0.add(kernel.at(place)?, index)
    }

    fn after(&self, kernel: &mut Kernel, place: &Place, _: &Before) -> Result<After, StepError> {
        if !self.0.is_read_back() {
            return Ok(After::AsPlanned);
        }
        let index = self.index(kernel, place)?;
        let opened = kernel.at(place)?;
        let found = match self.0.look(opened, &Listing::of_run(), index)? {
            StepState::So => return Ok(After::AsPlanned),
            StepState::Otherwise { found } => found,
            StepState::Absent => "nothing".to_owned(),
        };
        Err(StepError::NotTaken { wanted: self.0.command(place), found })
    }

    fn undo(&self, kernel: &mut Kernel, past: &Past, _: &MovedBack) -> Result<UndoOutcome, StepError> {
        let (Adds(object), after) = (self, past.after.as_ref());
        let opened = kernel.at(&past.intent.placed.place)?;
        let Some(index) = index_of(object, opened, &Listing::of_run())? else {
            return Ok(absent(after).into());
        };
        if after.is_none() {
            object.settle(opened)?;
        }
        Ok(match object.look(opened, &Listing::of_run(), index)? {
            StepState::So => {
                object.remove(opened, index)?;
                Undone::Restored
            }
            StepState::Otherwise { .. } if after.is_none() && object.is_begun(opened, index)? => {
                object.remove(opened, index)?;
                Undone::Restored
            }
            StepState::Otherwise { found } => Undone::ChangedByOther { found },
            StepState::Absent => absent(after),
        }
        .into())
    }

    fn look(&self, kernel: &mut Kernel, place: &Place, listing: &Listing) -> Result<StepState, StepError> {
        let opened = kernel.at(place)?;
        match index_of(&self.0, opened, listing)? {
            Some(index) => self.0.look(opened, listing, index),
            None => Ok(StepState::Absent),
        }
    }

    fn preview(&self, kernel: &mut Kernel, place: &Place) -> Result<Option<Preview>, StepError> {
        let is_so = self.look(kernel, place, &Listing::default())? == StepState::So;
        if !is_so {
            self.before(kernel, place)?;
        }
        let new = self.0.subject();
        let old = if is_so { new.clone() } else { "none".to_owned() };
        Ok(Some(Preview { old, new, index: None, is_so }))
    }

    fn is_listed(&self) -> bool {
        self.0.is_listed()
    }

    fn lack(&self) -> Option<Lack> {
        self.0.lack()
    }

    fn distinction(&self) -> String {
        self.0.distinction()
    }

    fn identity(&self) -> String {
        self.0.command(&Place::Host)
    }

    fn slot(&self) -> String {
        self.0.slot()
    }

    fn adapts(&self, _: &mut Kernel, _: &Place, earlier: &Step) -> Result<bool, StepError> {
        Ok(self.0.adapts(earlier))
    }

    fn adapt(&self, kernel: &mut Kernel, place: &Place) -> Result<(), StepError> {
        let index = self.index(kernel, place)?;
        self.0.add(kernel.at(place)?, index)
    }

    fn subject(&self) -> String {
        self.0.subject()
    }

    fn commands(&self, place: &Place) -> Vec<String> {
        vec![self.0.command(place)]
    }
}

impl<O: Object> Adds<O> {
    fn index(&self, kernel: &mut Kernel, place: &Place) -> Result<u32, StepError> {
        self.0.dev().map_or(Ok(0), |dev| existing_index(kernel, place, dev))
    }
}

/// The index of an object's link, 0 where it has none; `None` where that is not there.
fn index_of(object: &impl Object, opened: &OpenNetns, listing: &Listing) -> Result<Option<u32>, StepError> {
    match object.dev() {
        None => Ok(Some(0)),
        Some(dev) => Ok(listing.index(opened, dev)?),
    }
}
