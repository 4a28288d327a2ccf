//! The step that makes a network namespace.

use linux::{Netns, NetnsName, netns};

use super::{Effect, MovedBack, Past, UndoOutcome, absent, mistaken};
use crate::entry::{After, Before, Undone};
use crate::error::StepError;
use crate::lifetime::Lifetime;
use crate::listing::Listing;
use crate::look::StepState;
use crate::show::{Tool, netns_operand};
use crate::{Kernel, Place};

/// The step's own place is made.
pub(super) struct AddNetns;

impl Effect for AddNetns {
    fn before(&self, _: &mut Kernel, place: &Place) -> Result<Before, StepError> {
        let name = named(place)?;
        if netns::exists(name) {
            return Err(StepError::Exists {
                what: format!("namespace {name}"),
                remedy: format!("remove it with `ip netns del {name}` if it is not needed"),
            });
        }
        Ok(Before::Absent)
    }

    fn act(&self, _: &mut Kernel, place: &Place, _: &Before) -> Result<(), StepError> {
        Netns::create(named(place)?)?;
        Ok(())
    }

    fn after(&self, kernel: &mut Kernel, place: &Place, _: &Before) -> Result<After, StepError> {
        Ok(After::Netns { cookie: kernel.at(place)?.cookie })
    }

    fn undo(&self, kernel: &mut Kernel, past: &Past, _: &MovedBack) -> Result<UndoOutcome, StepError> {
        let place = &past.intent.placed.place;
        let name = named(place)?;
        if !netns::exists(name) {
            return Ok(absent(past.after.as_ref()).into());
        }
        // A creation or a deletion that was cut short leaves a name that leads to no namespace.
        let found = kernel.find(place)?.map(|opened| opened.cookie);
        match &past.after {
            Some(After::Netns { cookie }) if found.is_some_and(|found| found != *cookie) => {
                let found = format!("another namespace with the name {name}");
                return Ok(Undone::ChangedByOther { found }.into());
            }
            None | Some(After::Netns { .. }) => {}
            Some(other) => return Err(mistaken(other)),
        }
        // Our own descriptors would keep it alive.
        kernel.forget(name);
        netns::delete(name)?;
        Ok(Undone::Restored.into())
    }

    /// The name must lead to the namespace that is held open: others would be led elsewhere.
    fn look(&self, kernel: &mut Kernel, place: &Place, _: &Listing) -> Result<StepState, StepError> {
        let name = named(place)?;
        let Some(opened) = kernel.find(place)? else { return Ok(StepState::Absent) };
        let same = Netns::open(name)?.inode()? == opened.netns.inode()?;
        Ok(StepState::of(same, || "another one of that name".to_owned()))
    }

    fn admits_after(&self, after: &After) -> bool {
        matches!(after, After::Netns { .. })
    }

    fn lifetime(&self) -> Lifetime<'_> {
        Lifetime::Own
    }

    fn identity(&self) -> String {
        self.subject()
    }

    fn subject(&self) -> String {
        "the namespace".to_owned()
    }

    fn commands(&self, place: &Place) -> Vec<String> {
        let up = Tool("ip", place).run("link set dev lo up");
        vec![format!("ip netns add {}", netns_operand(place)), up]
    }

    fn removal(&self, place: &Place) -> Option<String> {
        Some(format!("ip netns del {}", netns_operand(place)))
    }
}

fn named(place: &Place) -> Result<&NetnsName, StepError> {
    match place {
        Place::Netns(name) => Ok(name),
        Place::Host | Place::Path(_) => {
            let why = format!("{place} cannot be made: only one with a name below /run/netns can");
            Err(StepError::Refused { why })
        }
    }
}
