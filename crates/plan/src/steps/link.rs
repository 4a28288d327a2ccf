//! Links: made and moved.
//!
//! A link is known again by its index, which the kernel does not give twice until 2³¹ links have come and gone. A move
//! may change it, so undo notes the index with which a link came back.

use std::collections::BTreeMap;

use linux::netlink::LinkInfo;
use linux::{IfName, Link, NetnsName, netns, sysctl};

use super::{MovedBack, Outcome, Past, absent, by_index, existing};
use crate::entry::{After, Before, Intent, Undone};
use crate::error::StepError;
use crate::{Kernel, Place, Placed};

/// A move as the step says it.
#[derive(Clone, Copy)]
pub(super) struct Move<'a> {
    pub(super) link: &'a IfName,
    pub(super) to: &'a Place,
    pub(super) name: &'a IfName,
}

pub(super) fn before_add(kernel: &mut Kernel, place: &Place, link: &Link) -> Result<Before, StepError> {
    refuse_taken(kernel, place, &link.name)?;
    if let Some(peer) = link.kind.peer() {
        let there = peer.netns.clone().map_or_else(|| place.clone(), Place::Netns);
        refuse_taken(kernel, &there, &peer.name)?;
    }
    Ok(Before::Absent)
}

pub(super) fn after_add(kernel: &mut Kernel, place: &Place, link: &Link) -> Result<After, StepError> {
    let found = existing(kernel, place, &link.name)?;
    if is_as_made(link, &found) {
        Ok(After::Link { index: found.index })
    } else {
        let mtu = link.mtu.map_or(String::new(), |mtu| format!(", MTU {mtu}"));
        let mac = link.mac.map_or(String::new(), |mac| format!(", address {mac}"));
        let wanted = format!("{} link {}{mtu}{mac}", link.kind.name(), link.name);
        Err(StepError::NotTaken { wanted, found: describe(&found) })
    }
}

/// Whether a link is what a step makes.
pub(super) fn is_as_made(wanted: &Link, found: &LinkInfo) -> bool {
    found.kind.as_deref() == Some(wanted.kind.name())
        && wanted.mtu.is_none_or(|mtu| mtu == found.mtu)
        && wanted.mac.is_none_or(|mac| Some(mac) == found.mac)
}

pub(super) fn undo_add(
    kernel: &mut Kernel,
    place: &Place,
    made: &Link,
    after: Option<&After>,
    moved: &MovedBack,
) -> Result<Undone, StepError> {
    let netlink = &kernel.at(place)?.netlink;
    let known = match after {
        Some(After::Link { index }) => by_index(netlink, moved.now(place, *index))?,
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
        });
    }
    Ok(match netlink.link(&made.name)? {
        Some(other) => Undone::ChangedByOther { found: describe(&other) },
        None => absent(after),
    })
}

/// A move takes a link down and drops its addresses, routes and its place in a bridge. What would be lost that way is
/// not the step's to lose, so only a link that is down and bare is moved.
pub(super) fn before_move(kernel: &mut Kernel, place: &Place, step: Move<'_>) -> Result<Before, StepError> {
    let Move { link, to, name } = step;
    let found = existing(kernel, place, link)?;
    refuse_taken(kernel, to, name)?;
    let here = kernel.at(place)?;
    let has_address = here.netlink.addresses()?.iter().any(|address| address.index == found.index);
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
    Ok(Before::Placed { index: found.index, kind: found.kind, parameters })
}

pub(super) fn act_move(
    kernel: &mut Kernel,
    place: &Place,
    step: Move<'_>,
    before: &Before,
) -> Result<(), StepError> {
    let Before::Placed { index, .. } = before else { unreachable!("before_move made another state") };
    let there = kernel.at(step.to)?.netns.try_clone()?;
    Ok(kernel.at(place)?.netlink.link_move(*index, &there, step.name)?)
}

pub(super) fn undo_move(
    kernel: &mut Kernel,
    past: &Past,
    step: Move<'_>,
    moved: &MovedBack,
) -> Result<Outcome, StepError> {
    let Move { link, to, name } = step;
    let Intent { placed: Placed { place, .. }, before, .. } = &past.intent;
    let Before::Placed { kind, parameters, .. } = before else {
        unreachable!("before_move made another state")
    };
    let there = match to {
        Place::Netns(name) if !netns::exists(name) => None,
        Place::Host | Place::Netns(_) => match &past.after {
            Some(After::Link { index }) => by_index(&kernel.at(to)?.netlink, moved.now(to, *index))?,
            _ => kernel.at(to)?.netlink.link(name)?.filter(|found| found.kind == *kind),
        },
    };
    let undone = if let Some(there) = there {
        let here = kernel.at(place)?.netns.try_clone()?;
        kernel.at(to)?.netlink.link_move(there.index, &here, link)?;
        here.run(|| write_parameters(parameters))??;
        Undone::Restored
    } else {
        // Whoever brought it back, perhaps an undo that was interrupted behind it, left it the namespace's defaults.
        kernel.at(place)?.netns.run(|| restore_defaults(link, parameters))??;
        Undone::AlreadySo
    };
    let back = kernel.at(place)?.netlink.link(link)?.filter(|found| found.kind == *kind);
    Ok(match back {
        Some(back) => Outcome { undone, index: Some(back.index) },
        None => Outcome { undone: Undone::Gone, index: None },
    })
}

fn refuse_taken(kernel: &mut Kernel, place: &Place, link: &IfName) -> Result<(), StepError> {
    let Some(found) = kernel.at(place)?.netlink.link(link)? else { return Ok(()) };
    let enter = match place {
        Place::Host => String::new(),
        Place::Netns(name) => format!("-n {name} "),
    };
    Err(StepError::Exists {
        what: format!("{} in {place}", describe(&found)),
        remedy: format!("remove it with `ip {enter}link del {link}` if nobody needs it"),
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

/// The namespace in which a pair's other end is born, where that is another one than its twin's.
pub(crate) fn peer_netns(link: &Link) -> Option<&NetnsName> {
    link.kind.peer()?.netns.as_ref()
}
