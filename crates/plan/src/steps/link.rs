//! Links: made, in one namespace or from another, and moved.
//!
//! A link is known again by its index, and by its name or Ethernet address. To those that are made in a namespace the
//! kernel does not give an index twice until 2³¹ links have come and gone, but one that is moved in from another
//! namespace keeps the one that it had there, if that is free. A move may change it, so undo notes the index with which
//! a link came back.

mod moved;
mod typed;

use linux::netlink::{LinkInfo, Netlink};
use linux::{IfName, Link, LinkKind, NetnsRef};

pub(super) use self::moved::MoveLink;
use super::{Effect, MovedBack, Past, UndoOutcome, absent, existing};
use crate::entry::{After, Before, Undone};
use crate::error::StepError;
use crate::lack::{Lack, LackedPart};
use crate::lifetime::Lifetime;
use crate::listing::Listing;
use crate::look::StepState;
use crate::show::{Tool, netns_operand, word};
use crate::{Kernel, Place, Step};

/// A link is made.
pub(super) struct AddLink<'s>(pub(super) &'s Link);

impl Effect for AddLink<'_> {
    fn before(&self, kernel: &mut Kernel, place: &Place) -> Result<Before, StepError> {
        let AddLink(link) = self;
        refuse_taken(kernel, place, &link.name)?;
        if let Some(peer) = link.kind.peer() {
            let there = peer.netns.clone().map_or_else(|| place.clone(), Place::from);
            refuse_taken(kernel, &there, &peer.name)?;
        }
        Ok(Before::Absent)
    }

    fn act(&self, kernel: &mut Kernel, place: &Place, _: &Before) -> Result<(), StepError> {
        Ok(kernel.at(place)?.netlink.link_add(self.0)?)
    }

    /// An MTU is changed in place, but for a pair's, which has one at each end, and for a link that has no Ethernet
    /// address of the plan's by which it is known again. A WireGuard device has none, and the step that gives it
    /// its key knows that.
    fn adapts(&self, kernel: &mut Kernel, place: &Place, earlier: &Step) -> Result<bool, StepError> {
        let AddLink(wanted) = self;
        let (Step::AddLink(made), Some(mtu), None) = (earlier, wanted.mtu, wanted.kind.peer()) else {
            return Ok(false);
        };
        let is_known = wanted.mac.is_some() || wanted.kind == LinkKind::WireGuard;
        if !is_known || **wanted != (Link { mtu: wanted.mtu, ..made.clone() }) {
            return Ok(false);
        }
        let found = kernel.at(place)?.netlink.link(&wanted.name)?;
        Ok(found.is_some_and(|found| self.is_as_made(&LinkInfo { mtu, ..found })))
    }

    fn adapt(&self, kernel: &mut Kernel, place: &Place) -> Result<(), StepError> {
        let AddLink(wanted) = self;
        let found = existing(kernel, place, &wanted.name)?;
        let mtu = wanted.mtu.unwrap_or(found.mtu);
        Ok(kernel.at(place)?.netlink.link_set_mtu(found.index, mtu)?)
    }

    fn after(&self, kernel: &mut Kernel, place: &Place, _: &Before) -> Result<After, StepError> {
        let AddLink(link) = self;
        let found = existing(kernel, place, &link.name)?;
        if self.is_as_made(&found) {
            return Ok(After::Link { index: found.index });
        }
        let mtu = link.mtu.map_or(String::new(), |mtu| format!(", MTU {mtu}"));
        let mac = link.mac.map_or(String::new(), |mac| format!(", address {mac}"));
        let wanted = format!("{} link {}{mtu}{mac}", link.kind.name(), link.name);
        Err(StepError::NotTaken { wanted, found: describe(&found) })
    }

    fn undo(&self, kernel: &mut Kernel, past: &Past, moved: &MovedBack) -> Result<UndoOutcome, StepError> {
        let (AddLink(made), place) = (self, &past.intent.placed.place);
        let netlink = &kernel.at(place)?.netlink;
        if let Some(link) = self.known_again(netlink, past.after.as_ref(), |index| moved.now(place, index))? {
            return Ok(match netlink.link_del(link.index) {
                Err(error) if error.errno() == Some(rustix::io::Errno::NODEV.raw_os_error()) => Undone::Gone,
                deleted => {
                    deleted?;
                    Undone::Restored
                }
            }
            .into());
        }
        Ok(match netlink.link(&made.name)? {
            Some(other) => Undone::ChangedByOther { found: describe(&other) },
            None => absent(past.after.as_ref()),
        }
        .into())
    }

    fn look(&self, kernel: &mut Kernel, place: &Place, listing: &Listing) -> Result<StepState, StepError> {
        let found = listing.link(kernel.at(place)?, &self.0.name)?;
        Ok(found.map_or(StepState::Absent, |found| {
            StepState::of(self.is_as_made(&found), || {
                let kind = found.kind.as_deref().unwrap_or("hardware");
                let mac = found.mac.map_or(String::new(), |mac| format!(" and address {mac}"));
                format!("a {kind} link with MTU {}{mac}", found.mtu)
            })
        }))
    }

    fn admits_after(&self, after: &After) -> bool {
        matches!(after, After::Link { .. })
    }

    /// A namespace dies some time after its name; the other end of a pair must not outlive undo elsewhere.
    fn lifetime(&self) -> Lifetime<'_> {
        match self.0.kind.peer().and_then(|peer| peer.netns.as_ref()) {
            None => Lifetime::Netns,
            Some(NetnsRef::Name(name)) => Lifetime::Both(name),
            Some(NetnsRef::Path(_)) => Lifetime::Machine,
        }
    }

    fn rests_on(&self, place: &Place) -> Option<(Place, IfName)> {
        self.0.kind.parent().map(|parent| (place.clone(), parent.clone()))
    }

    /// A named namespace takes it along.
    fn removal(&self, place: &Place) -> Option<String> {
        let is_own = place.name().is_none();
        is_own.then(|| Tool("ip", place).run(&format!("link delete {}", word(&self.0.name))))
    }

    fn is_listed(&self) -> bool {
        true
    }

    /// A tunnel speaks the family of its own address.
    fn lack(&self) -> Option<Lack> {
        let address = match &self.0.kind {
            LinkKind::Vxlan(vxlan) => Some(vxlan.local),
            _ => None,
        };
        let words = format!("{} is not as it was made", self.0.name);
        Some(Lack { part: LackedPart::Device, address, words })
    }

    fn identity(&self) -> String {
        format!("{:?}", self.0)
    }

    fn slot(&self) -> String {
        self.subject()
    }

    fn subject(&self) -> String {
        format!("link {}", self.0.name)
    }

    fn commands(&self, place: &Place) -> Vec<String> {
        vec![Tool("ip", place).run(&format!("link add {}", typed::link(self.0, "")))]
    }
}

impl AddLink<'_> {
    /// The link that the step made, as it is now. `index_now` says which index a link has by now.
    ///
    /// Where nothing was read back, whoever was to make it may have died before. Another program can have made one of
    /// that name meanwhile, which differs by its Ethernet address, or else by its MTU.
    pub(super) fn known_again(
        &self,
        netlink: &Netlink,
        after: Option<&After>,
        index_now: impl Fn(u32) -> u32,
    ) -> Result<Option<LinkInfo>, linux::Error> {
        let AddLink(made) = self;
        let has_address = |found: &LinkInfo| made.mac.is_none_or(|mac| Some(mac) == found.mac);
        let known = match after {
            Some(After::Link { index }) => netlink
                .link_at(index_now(*index))?
                .filter(|found| found.name == made.name || has_address(found)),
            _ => netlink.link(&made.name)?.filter(|found| match made.mac {
                Some(_) => has_address(found),
                None => made.mtu.is_none_or(|mtu| mtu == found.mtu),
            }),
        };
        Ok(known.filter(|found| found.kind.as_deref() == Some(made.kind.name())))
    }

    /// Whether a link is what the step makes.
    fn is_as_made(&self, found: &LinkInfo) -> bool {
        let AddLink(wanted) = self;
        found.kind.as_deref() == Some(wanted.kind.name())
            && wanted.mtu.is_none_or(|mtu| mtu == found.mtu)
            && wanted.mac.is_none_or(|mac| Some(mac) == found.mac)
    }
}

/// A link is made on a parent of another namespace. Once it is there, it is a link like any other.
pub(super) struct AddLinkOn<'s> {
    pub(super) link: &'s Link,
    pub(super) parent_in: &'s Place,
}

impl Effect for AddLinkOn<'_> {
    fn before(&self, kernel: &mut Kernel, place: &Place) -> Result<Before, StepError> {
        AddLink(self.link).before(kernel, place)
    }

    fn act(&self, kernel: &mut Kernel, place: &Place, _: &Before) -> Result<(), StepError> {
        let there = kernel.at(place)?.netns.try_clone()?;
        Ok(kernel.at(self.parent_in)?.netlink.link_add_in(&there, self.link)?)
    }

    fn after(&self, kernel: &mut Kernel, place: &Place, before: &Before) -> Result<After, StepError> {
        AddLink(self.link).after(kernel, place, before)
    }

    fn undo(&self, kernel: &mut Kernel, past: &Past, moved: &MovedBack) -> Result<UndoOutcome, StepError> {
        AddLink(self.link).undo(kernel, past, moved)
    }

    fn look(&self, kernel: &mut Kernel, place: &Place, listing: &Listing) -> Result<StepState, StepError> {
        AddLink(self.link).look(kernel, place, listing)
    }

    fn admits_after(&self, after: &After) -> bool {
        AddLink(self.link).admits_after(after)
    }

    /// A namespace dies some time after its name; until then the link would go on holding its parent.
    fn lifetime(&self) -> Lifetime<'_> {
        match self.parent_in {
            Place::Netns(name) => Lifetime::Both(name),
            Place::Host | Place::Path(_) => Lifetime::Machine,
        }
    }

    fn rests_on(&self, _: &Place) -> Option<(Place, IfName)> {
        self.link.kind.parent().map(|parent| (self.parent_in.clone(), parent.clone()))
    }

    fn is_listed(&self) -> bool {
        true
    }

    fn identity(&self) -> String {
        format!("{:?} on a link in {}", self.link, self.parent_in)
    }

    fn slot(&self) -> String {
        self.subject()
    }

    fn subject(&self) -> String {
        AddLink(self.link).subject()
    }

    fn commands(&self, place: &Place) -> Vec<String> {
        let there = format!(" netns {}", netns_operand(place));
        vec![Tool("ip", self.parent_in).run(&format!("link add {}", typed::link(self.link, &there)))]
    }
}

fn refuse_taken(kernel: &mut Kernel, place: &Place, link: &IfName) -> Result<(), StepError> {
    let Some(found) = kernel.at(place)?.netlink.link(link)? else { return Ok(()) };
    let remove = Tool("ip", place).run(&format!("link del {}", word(link)));
    Err(StepError::Exists {
        what: format!("{} in {place}", describe(&found)),
        remedy: format!("remove it with `{remove}` if it is not needed"),
    })
}

fn describe(link: &LinkInfo) -> String {
    let kind = link.kind.as_deref().unwrap_or("hardware");
    format!("{kind} link {} with index {} and MTU {}", link.name, link.index, link.mtu)
}
