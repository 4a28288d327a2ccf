//! Links: made, in one namespace or from another, and moved.
//!
//! A link is known again by its index, which the kernel does not give twice until 2³¹ links have come and gone. A move
//! may change it, so undo notes the index with which a link came back.

mod typed;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use linux::netlink::LinkInfo;
use linux::{IfName, Link, LinkKind, NetnsRef, sysctl};

use super::{Effect, MovedBack, Past, UndoOutcome, absent, existing, existing_index, mistaken};
use crate::entry::{After, Before, Undone};
use crate::error::StepError;
use crate::kernel::OpenNetns;
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

    /// An MTU is changed in place, but for a pair's, which has one at each end, and for a link that has no Ethernet address of
    /// the plan's by which it is known again. A WireGuard device has none, and the step that gives it its key knows that.
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
        let known = match &past.after {
            Some(After::Link { index }) => netlink.link_at(moved.now(place, *index))?,
            _ => netlink.link(&made.name)?,
        };
        let ours = known.filter(|link| link.kind.as_deref() == Some(made.kind.name()));
        if let Some(link) = ours {
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

    fn is_listed(&self) -> bool {
        true
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

/// A link is moved to another namespace.
pub(super) struct MoveLink<'s> {
    pub(super) link: &'s IfName,
    pub(super) to: &'s Place,
    pub(super) name: &'s IfName,
}

impl Effect for MoveLink<'_> {
    /// A move takes a link down and drops its addresses, routes and its place in a bridge. What would be lost that way
    /// is not the step's to lose, so only a link that is down and bare is moved.
    fn before(&self, kernel: &mut Kernel, place: &Place) -> Result<Before, StepError> {
        let MoveLink { link, to, name } = self;
        let found = existing(kernel, place, link)?;
        refuse_taken(kernel, to, name)?;
        let here = kernel.at(place)?;
        let has_address = !here.netlink.addresses_of(found.index)?.is_empty();
        let obstacle = match (&found, has_address) {
            (LinkInfo { up: true, .. }, _) => Some("it is up"),
            (LinkInfo { master: Some(_), .. }, _) => Some("it is a port of a bridge"),
            (_, true) => Some("it has addresses"),
            (_, false) => None,
        };
        if let Some(obstacle) = obstacle {
            let why = format!("link {link} cannot be moved while {obstacle}: a move would lose that state");
            return Err(StepError::Refused { why });
        }
        let parameters = here.netns.run(|| own_parameters(link))??;
        let device = match found.kind {
            Some(_) => None,
            None => here.sysfs()?.bus_address(link),
        };
        let to_cookie = Some(kernel.at(to)?.cookie);
        Ok(Before::Placed { index: found.index, kind: found.kind, parameters, to_cookie, device })
    }

    fn act(&self, kernel: &mut Kernel, place: &Place, before: &Before) -> Result<(), StepError> {
        let Before::Placed { index, .. } = before else { return Err(mistaken(before)) };
        let there = kernel.at(self.to)?.netns.try_clone()?;
        Ok(kernel.at(place)?.netlink.link_move(*index, &there, self.name)?)
    }

    fn after(&self, kernel: &mut Kernel, _: &Place, _: &Before) -> Result<After, StepError> {
        Ok(After::Link { index: existing_index(kernel, self.to, self.name)? })
    }

    fn undo(&self, kernel: &mut Kernel, past: &Past, moved: &MovedBack) -> Result<UndoOutcome, StepError> {
        let MoveLink { link, to, name } = self;
        let (place, before) = (&past.intent.placed.place, &past.intent.before);
        let Before::Placed { kind, parameters, to_cookie, device, .. } = before else {
            return Err(mistaken(before));
        };
        // The namespace may be gone, and its name or path lead to another.
        let there = kernel.find(to)?.filter(|there| to_cookie.is_none_or(|cookie| cookie == there.cookie));
        let there = match (there, &past.after) {
            (None, _) => None,
            (Some(there), Some(After::Link { index })) => there.netlink.link_at(moved.now(to, *index))?,
            (Some(there), _) => there.netlink.link(name)?,
        };
        // What is in there may have another link of that number by now.
        let there = there.filter(|found| found.kind == *kind);
        let undone = if let Some(there) = there {
            let here = kernel.at(place)?.netns.try_clone()?;
            kernel.at(to)?.netlink.link_move(there.index, &here, link)?;
            here.run(|| write_parameters(parameters))??;
            Undone::Restored
        } else {
            // It came back without us, perhaps by an undo that was interrupted after the move, with the namespace's
            // defaults.
            if let Some(device) = device {
                rename_back(kernel.at(place)?, device, link)?;
            }
            kernel.at(place)?.netns.run(|| restore_defaults(link, parameters))??;
            Undone::AlreadySo
        };
        let back = kernel.at(place)?.netlink.link(link)?.filter(|found| found.kind == *kind);
        Ok(match back {
            Some(back) => UndoOutcome { undone, index: Some(back.index) },
            None => Undone::Gone.into(),
        })
    }

    fn look(&self, kernel: &mut Kernel, _: &Place, _: &Listing) -> Result<StepState, StepError> {
        let found = kernel.at(self.to)?.netlink.link(self.name)?;
        Ok(if found.is_some() { StepState::So } else { StepState::Absent })
    }

    fn admits_before(&self, before: &Before) -> bool {
        matches!(before, Before::Placed { .. })
    }

    fn admits_after(&self, after: &After) -> bool {
        matches!(after, After::Link { .. })
    }

    fn lifetime(&self) -> Lifetime<'_> {
        match self.to {
            Place::Netns(to) => Lifetime::Both(to),
            Place::Host | Place::Path(_) => Lifetime::Machine,
        }
    }

    fn identity(&self) -> String {
        format!("{} moved to {} as {}", self.link, self.to, self.name)
    }

    fn subject(&self) -> String {
        format!("link {}", self.name)
    }

    fn commands(&self, place: &Place) -> Vec<String> {
        let (link, to, name) = (word(self.link), netns_operand(self.to), word(self.name));
        vec![Tool("ip", place).run(&format!("link set dev {link} netns {to} name {name}"))]
    }
}

/// How long the kernel may take to end a namespace: it waits for whoever still looks at something of it.
const NAMESPACE_END_MAX: Duration = Duration::from_secs(10);

/// Waits for a card to come back from a namespace that ends, and gives it its name. It comes under the one that it had there,
/// or under one that the kernel makes of its number where another link has that. A device that is no more has no link.
fn rename_back(here: &OpenNetns, device: &str, name: &IfName) -> Result<(), StepError> {
    let deadline = Instant::now() + NAMESPACE_END_MAX;
    loop {
        let links = here.sysfs()?.links_of(device)?;
        if links.contains(name) {
            return Ok(());
        }
        if let [back] = links.as_slice() {
            let index = here.netlink.index_of(back)?;
            return Ok(here.netlink.link_move(index, &here.netns, name)?);
        }
        if links.is_empty() && !here.sysfs()?.has_device(device) {
            return Ok(());
        }
        if Instant::now() > deadline {
            let why =
                format!("the link of device {device}, once {name}, is in a namespace that has not ended");
            return Err(StepError::Refused { why });
        }
        std::thread::sleep(Duration::from_millis(5));
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

/// The link's own kernel parameters, where they are not the namespace's defaults; called inside its namespace.
fn own_parameters(link: &IfName) -> Result<BTreeMap<sysctl::Key, String>, linux::Error> {
    let mut own = BTreeMap::new();
    for directory in ["net/ipv4/conf", "net/ipv6/conf", "net/ipv4/neigh", "net/ipv6/neigh"] {
        let prefix = format!("{directory}/{link}");
        let defaults = sysctl::list(&format!("{directory}/default"))?;
        let is_default = |key: &sysctl::Key, value: &String| {
            let leaf = key.as_str().strip_prefix(&prefix).expect("listed below the prefix");
            let default = sysctl::Key::new(format!("{directory}/default{leaf}"));
            default.is_ok_and(|default| defaults.get(&default) == Some(value))
        };
        own.extend(sysctl::list(&prefix)?.into_iter().filter(|(key, value)| !is_default(key, value)));
    }
    Ok(own)
}

fn write_parameters(parameters: &BTreeMap<sysctl::Key, String>) -> Result<(), linux::Error> {
    for (key, value) in parameters {
        if sysctl::read(key)?.is_some_and(|now| now != *value) {
            sysctl::write(key, value)?;
        }
    }
    Ok(())
}

/// Writes those parameters that have the namespace's defaults now.
fn restore_defaults(link: &IfName, parameters: &BTreeMap<sysctl::Key, String>) -> Result<(), linux::Error> {
    let own = own_parameters(link)?;
    let lost = parameters.iter().filter(|(key, _)| !own.contains_key(*key));
    write_parameters(&lost.map(|(key, value)| (key.clone(), value.clone())).collect())
}
