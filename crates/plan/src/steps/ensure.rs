//! What may be there already: it is used as it is then, and undo leaves it.
//!
//! The journal keeps which of the two it was ([`Before::Present`] or [`Before::Absent`]), so what was found is never
//! taken for ours, however much later undo comes.

use ipnet::IpNet;
use linux::netlink::LinkInfo;
use linux::{IfName, Link};

use super::address::LinkAddress;
use super::link::AddLink;
use super::object::Adds;
use super::{Effect, MovedBack, Past, UndoOutcome, existing_index, mistaken};
use crate::entry::{After, Before, Intent, Undone};
use crate::error::StepError;
use crate::lack::Lack;
use crate::listing::Listing;
use crate::look::StepState;
use crate::show::{Tool, word};
use crate::{Kernel, Place};

/// A link is made, or one of its name and kind is used.
pub(super) struct EnsureLink<'s>(pub(super) &'s Link);

impl Effect for EnsureLink<'_> {
    fn before(&self, kernel: &mut Kernel, place: &Place) -> Result<Before, StepError> {
        let EnsureLink(link) = self;
        match kernel.at(place)?.netlink.link(&link.name)? {
            None => AddLink(link).before(kernel, place),
            Some(found) if self.is_of_kind(&found) => Ok(Before::Present),
            Some(found) => {
                let (name, kind) = (&link.name, link.kind.name());
                let why =
                    format!("{name} is {} and no {kind}; use another name, or remove it", kind_of(&found));
                Err(StepError::Refused { why })
            }
        }
    }

    fn act(&self, kernel: &mut Kernel, place: &Place, before: &Before) -> Result<(), StepError> {
        match before {
            Before::Present => Ok(()),
            _ => AddLink(self.0).act(kernel, place, before),
        }
    }

    fn after(&self, kernel: &mut Kernel, place: &Place, before: &Before) -> Result<After, StepError> {
        match before {
            Before::Present => Ok(After::Link { index: existing_index(kernel, place, &self.0.name)? }),
            _ => AddLink(self.0).after(kernel, place, before),
        }
    }

    fn undo(&self, kernel: &mut Kernel, past: &Past, moved: &MovedBack) -> Result<UndoOutcome, StepError> {
        match past.intent.before {
            Before::Present => Ok(Undone::AlreadySo.into()),
            Before::Absent => AddLink(self.0).undo(kernel, past, moved),
            ref other => Err(mistaken(other)),
        }
    }

    fn in_use(&self, kernel: &mut Kernel, past: &Past) -> Result<Option<String>, StepError> {
        let (EnsureLink(link), Intent { placed, netns_cookie, before, .. }) = (self, &past.intent);
        let is_still = |cookie| kernel.is_still(&placed.place, cookie);
        if *before == Before::Present || !netns_cookie.map_or(Ok(true), is_still)? {
            return Ok(None);
        }
        let netlink = &kernel.at(&placed.place)?.netlink;
        let made = AddLink(link).known_again(netlink, past.after.as_ref(), |index| index)?;
        let Some(made) = made else { return Ok(None) };
        let ports = netlink.links()?.into_iter().filter(|port| port.master == Some(made.index));
        let names: Vec<String> = ports.map(|port| port.name.to_string()).collect();
        let phrase = || format!("{} has ports of another program: {}", self.subject(), names.join(", "));
        Ok((!names.is_empty()).then(phrase))
    }

    fn lends(&self) -> Option<IfName> {
        Some(self.0.name.clone())
    }

    fn rests_on(&self, place: &Place) -> Option<(Place, IfName)> {
        AddLink(self.0).rests_on(place)
    }

    /// What was found may have any MTU and Ethernet address.
    fn look(&self, kernel: &mut Kernel, place: &Place, listing: &Listing) -> Result<StepState, StepError> {
        let found = listing.link(kernel.at(place)?, &self.0.name)?;
        Ok(found.map_or(StepState::Absent, |found| {
            StepState::of(self.is_of_kind(&found), || format!("a {} link", kind_of(&found)))
        }))
    }

    fn admits_before(&self, before: &Before) -> bool {
        matches!(before, Before::Absent | Before::Present)
    }

    fn admits_after(&self, after: &After) -> bool {
        AddLink(self.0).admits_after(after)
    }

    fn is_listed(&self) -> bool {
        true
    }

    fn identity(&self) -> String {
        format!("{:?}, or one that is there", self.0)
    }

    fn slot(&self) -> String {
        self.subject()
    }

    fn subject(&self) -> String {
        AddLink(self.0).subject()
    }

    fn commands(&self, place: &Place) -> Vec<String> {
        let show = Tool("ip", place).run(&format!("link show dev {}", word(&self.0.name)));
        let add = AddLink(self.0).commands(place).join("; ");
        vec![format!("{show} >/dev/null 2>&1 || {add}")]
    }
}

impl EnsureLink<'_> {
    fn is_of_kind(&self, found: &LinkInfo) -> bool {
        found.kind.as_deref() == Some(self.0.kind.name())
    }
}

fn kind_of(link: &LinkInfo) -> &str {
    link.kind.as_deref().unwrap_or("hardware")
}

/// A link gets an address, or has it.
pub(super) struct EnsureAddress<'s> {
    pub(super) link: &'s IfName,
    pub(super) address: &'s IpNet,
}

impl Effect for EnsureAddress<'_> {
    /// Two addresses whose subnets overlap would both be the way to the same neighbours. One list of the link's
    /// addresses answers that and whether the step is so: a look would ask for it once more.
    fn before(&self, kernel: &mut Kernel, place: &Place) -> Result<Before, StepError> {
        let EnsureAddress { link, address } = self;
        let index = existing_index(kernel, place, link)?;
        let of_link = kernel.at(place)?.netlink.addresses_of(index)?;
        if of_link.iter().any(|found| found.address == **address) {
            return Ok(Before::Present);
        }
        match of_link.iter().map(|found| found.address).find(|found| overlap(found, address)) {
            None => Ok(Before::Absent),
            Some(other) => {
                let why = format!(
                    "{link} has the address {other}, whose subnet overlaps with that of {address}; remove it, or choose \
                     a subnet of which {link} has the first address or none"
                );
                Err(StepError::Refused { why })
            }
        }
    }

    fn act(&self, kernel: &mut Kernel, place: &Place, before: &Before) -> Result<(), StepError> {
        match before {
            Before::Present => Ok(()),
            _ => self.adds().act(kernel, place, before),
        }
    }

    fn after(&self, kernel: &mut Kernel, place: &Place, before: &Before) -> Result<After, StepError> {
        self.adds().after(kernel, place, before)
    }

    fn undo(&self, kernel: &mut Kernel, past: &Past, moved: &MovedBack) -> Result<UndoOutcome, StepError> {
        match past.intent.before {
            Before::Present => Ok(Undone::AlreadySo.into()),
            Before::Absent => self.adds().undo(kernel, past, moved),
            ref other => Err(mistaken(other)),
        }
    }

    fn look(&self, kernel: &mut Kernel, place: &Place, listing: &Listing) -> Result<StepState, StepError> {
        self.adds().look(kernel, place, listing)
    }

    fn admits_before(&self, before: &Before) -> bool {
        matches!(before, Before::Absent | Before::Present)
    }

    fn is_listed(&self) -> bool {
        true
    }

    fn lack(&self) -> Option<Lack> {
        self.adds().lack()
    }

    fn identity(&self) -> String {
        self.adds().identity()
    }

    fn subject(&self) -> String {
        self.adds().subject()
    }

    fn commands(&self, place: &Place) -> Vec<String> {
        let nodad = if self.address.addr().is_ipv6() { " nodad" } else { "" };
        vec![Tool("ip", place).run(&format!(
            "address replace {} dev {}{nodad}",
            self.address,
            word(self.link)
        ))]
    }
}

impl EnsureAddress<'_> {
    fn adds(&self) -> Adds<LinkAddress<'_>> {
        Adds(LinkAddress { link: self.link, address: self.address })
    }
}

/// Whether one of two subnets lies in the other.
fn overlap(one: &IpNet, other: &IpNet) -> bool {
    one.contains(&other.addr()) || other.contains(&one.addr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_overlap_where_one_lies_in_the_other() {
        let overlap = |one: &str, other: &str| overlap(&one.parse().unwrap(), &other.parse().unwrap());
        assert!(overlap("10.1.2.1/24", "10.1.2.254/24") && overlap("10.1.2.1/24", "10.1.0.1/16"));
        assert!(overlap("10.1.0.1/16", "10.1.2.1/24") && overlap("fd00::1/64", "fd00::1/80"));
        assert!(!overlap("10.1.2.1/24", "10.1.3.1/24") && !overlap("10.1.2.1/24", "fd00::1/64"));
    }
}
