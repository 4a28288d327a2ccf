//! What takes the place of another program's: routes, neighbours and forwarding entries. What was there is kept whole,
//! and put back.

use linux::{FdbEntry, Neighbour, Route};
use rustix::io::Errno;

use super::neighbour::{fdb_command, neighbour_command};
use super::object::{Adds, Object};
use super::route::route_command;
use super::{Effect, MovedBack, Past, UndoOutcome, existing_index, mistaken};
use crate::entry::{After, Before, Displaced, Undone};
use crate::error::StepError;
use crate::kernel::OpenNetns;
use crate::lack::Lack;
use crate::listing::Listing;
use crate::look::StepState;
use crate::preview::Preview;
use crate::{Kernel, Place};

/// Something that there is once in its place, and that can be exchanged in one moment.
pub(super) trait Replaceable: Object {
    /// What is in its place, to be put back later; `None` if the place is free.
    fn displaced(&self, opened: &OpenNetns, index: u32) -> Result<Option<Displaced>, StepError>;

    /// What a person would type.
    fn replacement(&self, place: &Place) -> String;

    /// Makes it, whatever is there.
    fn replace(&self, opened: &OpenNetns) -> Result<(), StepError>;

    /// Puts back what was there. `None` if that is of another kind.
    fn put_back(opened: &OpenNetns, displaced: &Displaced, now: Now) -> Option<Result<(), linux::Error>>;
}

/// What is in a place when what was there before is to be put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Now {
    /// What the step made.
    Ours,
    /// Nothing that the step knows of.
    Free,
}

/// The step that makes an object in the place of another.
pub(super) struct Replaces<O>(pub(super) O);

impl<O: Replaceable + Copy> Effect for Replaces<O> {
    fn before(&self, kernel: &mut Kernel, place: &Place) -> Result<Before, StepError> {
        let index = match self.0.dev() {
            Some(dev) => existing_index(kernel, place, dev)?,
            None => 0,
        };
        let displaced = self.0.displaced(kernel.at(place)?, index)?;
        Ok(displaced.map_or(Before::Absent, Before::Displaced))
    }

    fn act(&self, kernel: &mut Kernel, place: &Place, _: &Before) -> Result<(), StepError> {
        self.0.replace(kernel.at(place)?)
    }

    fn act_on_free(&self, kernel: &mut Kernel, place: &Place) -> Result<(), StepError> {
        self.adds().act(kernel, place, &Before::Absent)
    }

    fn after(&self, kernel: &mut Kernel, place: &Place, before: &Before) -> Result<After, StepError> {
        self.adds().after(kernel, place, before)
    }

    fn undo(&self, kernel: &mut Kernel, past: &Past, moved: &MovedBack) -> Result<UndoOutcome, StepError> {
        let displaced = match &past.intent.before {
            Before::Absent => return self.adds().undo(kernel, past, moved),
            Before::Displaced(displaced) => displaced,
            other => return Err(mistaken(other)),
        };
        let place = &past.intent.placed.place;
        let now = match self.look(kernel, place, &Listing::default())? {
            StepState::So => Now::Ours,
            // The place is free where the step's link went, and what it had taken the place of did not.
            StepState::Absent => Now::Free,
            StepState::Otherwise { .. }
                if self.before(kernel, place).is_ok_and(|now| now == past.intent.before) =>
            {
                return Ok(Undone::AlreadySo.into());
            }
            StepState::Otherwise { found } => return Ok(Undone::ChangedByOther { found }.into()),
        };
        let opened = kernel.at(place)?;
        if !displaced.has_its_links(opened)? {
            // It could not be there any more in any case.
            return self.adds().undo(kernel, past, moved);
        }
        let put_back = O::put_back(opened, displaced, now).ok_or_else(|| mistaken(displaced))?;
        match put_back {
            Err(error) if now == Now::Free && error.is(Errno::EXIST.raw_os_error()) => {
                Ok(Undone::ChangedByOther { found: format!("another: {error}") }.into())
            }
            put_back => Ok(put_back.map(|()| Undone::Restored)?.into()),
        }
    }

    fn look(&self, kernel: &mut Kernel, place: &Place, listing: &Listing) -> Result<StepState, StepError> {
        self.adds().look(kernel, place, listing)
    }

    fn preview(&self, kernel: &mut Kernel, place: &Place) -> Result<Option<Preview>, StepError> {
        let new = self.subject();
        let (old, is_so) = match self.look(kernel, place, &Listing::default())? {
            StepState::So => (new.clone(), true),
            StepState::Otherwise { found } => (found, false),
            StepState::Absent => ("none".to_owned(), false),
        };
        Ok(Some(Preview { old, new, index: None, is_so }))
    }

    fn admits_before(&self, before: &Before) -> bool {
        matches!(before, Before::Absent | Before::Displaced(_))
    }

    fn is_listed(&self) -> bool {
        true
    }

    fn lack(&self) -> Option<Lack> {
        self.0.lack()
    }

    fn identity(&self) -> String {
        self.adds().identity()
    }

    /// The command that removes whatever is there names the place.
    fn slot(&self) -> String {
        self.0.removal(&Place::Host)
    }

    fn takes_over(&self) -> bool {
        true
    }

    fn subject(&self) -> String {
        self.0.subject()
    }

    fn commands(&self, place: &Place) -> Vec<String> {
        vec![self.0.replacement(place)]
    }
}

impl<O: Object + Copy> Replaces<O> {
    /// The step that finds the place free.
    fn adds(&self) -> Adds<O> {
        Adds(self.0)
    }
}

impl Replaceable for &Route {
    fn displaced(&self, opened: &OpenNetns, _: u32) -> Result<Option<Displaced>, StepError> {
        Ok(opened.netlink.displaced_route(self)?.map(Displaced::Route))
    }

    fn replacement(&self, place: &Place) -> String {
        route_command(self, "replace", place)
    }

    fn replace(&self, opened: &OpenNetns) -> Result<(), StepError> {
        Ok(opened.netlink.route_replace(self)?)
    }

    fn put_back(opened: &OpenNetns, displaced: &Displaced, now: Now) -> Option<Result<(), linux::Error>> {
        let Displaced::Route(route) = displaced else { return None };
        Some(opened.netlink.route_put_back(route, now == Now::Ours))
    }
}

impl Replaceable for &Neighbour {
    fn displaced(&self, opened: &OpenNetns, index: u32) -> Result<Option<Displaced>, StepError> {
        let found = opened.netlink.neighbour(index, self.ip, false)?.filter(|entry| entry.permanent);
        Ok(found.map(|entry| Displaced::Neighbour(Neighbour { mac: entry.mac, ..(*self).clone() })))
    }

    fn replacement(&self, place: &Place) -> String {
        neighbour_command(self, "replace", place)
    }

    fn replace(&self, opened: &OpenNetns) -> Result<(), StepError> {
        Ok(opened.netlink.neighbour_replace(self)?)
    }

    fn put_back(opened: &OpenNetns, displaced: &Displaced, now: Now) -> Option<Result<(), linux::Error>> {
        let Displaced::Neighbour(neighbour) = displaced else { return None };
        let netlink = &opened.netlink;
        Some(match now {
            Now::Ours => netlink.neighbour_replace(neighbour),
            Now::Free => netlink.neighbour_add(neighbour),
        })
    }
}

impl Replaceable for &FdbEntry {
    fn displaced(&self, opened: &OpenNetns, index: u32) -> Result<Option<Displaced>, StepError> {
        let found = opened.netlink.fdb_of(self, index)?;
        let dst = found.iter().filter(|entry| entry.permanent).find_map(|entry| entry.dst);
        Ok(dst.map(|dst| Displaced::Fdb(FdbEntry { dst, ..(*self).clone() })))
    }

    fn replacement(&self, place: &Place) -> String {
        fdb_command(self, "replace", place)
    }

    fn replace(&self, opened: &OpenNetns) -> Result<(), StepError> {
        Ok(opened.netlink.fdb_replace(self)?)
    }

    fn put_back(opened: &OpenNetns, displaced: &Displaced, now: Now) -> Option<Result<(), linux::Error>> {
        let Displaced::Fdb(entry) = displaced else { return None };
        let netlink = &opened.netlink;
        Some(match now {
            Now::Ours => netlink.fdb_replace(entry),
            Now::Free => netlink.fdb_add(entry),
        })
    }
}

impl Displaced {
    /// Whether the links on which it was are there.
    fn has_its_links(&self, opened: &OpenNetns) -> Result<bool, linux::Error> {
        let netlink = &opened.netlink;
        match self {
            Displaced::Route(route) => {
                for index in route.links() {
                    if netlink.link_at(index)?.is_none() {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Displaced::Neighbour(neighbour) => Ok(netlink.link(&neighbour.dev)?.is_some()),
            Displaced::Fdb(entry) => Ok(netlink.link(&entry.dev)?.is_some()),
            Displaced::Service(_) => Ok(true),
        }
    }
}
