//! Settings of a link: up, MTU, bridge, hairpin, segmentation.

use std::collections::BTreeMap;

use linux::IfName;
use linux::netlink::LinkInfo;
use linux::sysctl::{self, Key};

use super::{MovedBack, Past, by_index, existing, put_back};
use crate::entry::{After, Before, Intent, Undone};
use crate::error::StepError;
use crate::{Kernel, Place, Placed, Step};

pub(super) fn before_up(kernel: &mut Kernel, place: &Place, link: &IfName) -> Result<Before, StepError> {
    let LinkInfo { index, up, .. } = existing(kernel, place, link)?;
    Ok(Before::Up { index, up })
}

pub(super) fn act_up(kernel: &mut Kernel, place: &Place, link: &IfName) -> Result<(), StepError> {
    let index = existing(kernel, place, link)?.index;
    Ok(kernel.at(place)?.netlink.link_set_up(index, true)?)
}

pub(super) fn after_up(kernel: &mut Kernel, place: &Place, link: &IfName) -> Result<After, StepError> {
    as_planned(existing(kernel, place, link)?.up, || "an up link", || "a down one".to_owned())
}

/// A link on which IPv6 has an MTU of its own is refused: the kernel makes it that of the link whenever that changes
/// (`addrconf_notify` in net/ipv6/addrconf.c), and with it the routes that a router announced with it.
pub(super) fn before_mtu(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    wanted: u32,
) -> Result<Before, StepError> {
    let LinkInfo { index, mtu, .. } = existing(kernel, place, link)?;
    let own = Key::new(format!("net/ipv6/conf/{link}/mtu")).expect("a link's name is a word of a path");
    let own = kernel.at(place)?.netns.run(|| sysctl::read(&own))??;
    if let Some(own) = own.filter(|own| mtu != wanted && own.trim() != mtu.to_string()) {
        let own = own.trim();
        let why = format!(
            "IPv6 has an MTU of its own on {link}, {own} (net/ipv6/conf/{link}/mtu, by hand or by a router's word), which \
             would be lost"
        );
        return Err(StepError::Refused { why });
    }
    Ok(Before::Mtu { index, mtu, others: mtus_but(kernel, place, index)? })
}

pub(super) fn act_mtu(kernel: &mut Kernel, place: &Place, link: &IfName, mtu: u32) -> Result<(), StepError> {
    let index = existing(kernel, place, link)?.index;
    Ok(kernel.at(place)?.netlink.link_set_mtu(index, mtu)?)
}

pub(super) fn after_mtu(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    mtu: u32,
    before: &Before,
) -> Result<After, StepError> {
    let Before::Mtu { others: were, .. } = before else { unreachable!("before_mtu made another state") };
    let found = existing(kernel, place, link)?;
    as_planned(found.mtu == mtu, || "the MTU", || format!("an MTU of {}", found.mtu))?;
    let mut others = mtus_but(kernel, place, found.index)?;
    others.retain(|index, mtu| were.get(index).is_some_and(|old| old != mtu));
    Ok(After::Mtu { others })
}

/// A port of another bridge is refused: leaving it would lose the settings it has there.
pub(super) fn before_master(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    master: &IfName,
) -> Result<Before, StepError> {
    let bridge = existing(kernel, place, master)?.index;
    let LinkInfo { index, master: old, .. } = existing(kernel, place, link)?;
    match old {
        Some(other) if other != bridge => {
            let why =
                format!("link {link} is a port of another bridge (index {other}); take it out there first");
            Err(StepError::Refused { why })
        }
        Some(_) | None => Ok(Before::Master { index, master: old }),
    }
}

pub(super) fn act_master(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    master: &IfName,
) -> Result<(), StepError> {
    let bridge = existing(kernel, place, master)?.index;
    let LinkInfo { index, master, .. } = existing(kernel, place, link)?;
    if master != Some(bridge) {
        kernel.at(place)?.netlink.link_set_master(index, Some(bridge))?;
    }
    Ok(())
}

pub(super) fn after_master(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    master: &IfName,
) -> Result<After, StepError> {
    let bridge = existing(kernel, place, master)?.index;
    let found = existing(kernel, place, link)?.master;
    as_planned(found == Some(bridge), || "a port of the bridge", || describe_master(found))?;
    Ok(After::Link { index: bridge })
}

pub(super) fn before_hairpin(kernel: &mut Kernel, place: &Place, link: &IfName) -> Result<Before, StepError> {
    let index = existing(kernel, place, link)?.index;
    match kernel.at(place)?.netlink.hairpin(index)? {
        Some(on) => Ok(Before::Hairpin { index, on }),
        None => Err(StepError::Refused { why: format!("link {link} is not a port of a bridge") }),
    }
}

pub(super) fn act_hairpin(kernel: &mut Kernel, place: &Place, link: &IfName) -> Result<(), StepError> {
    let index = existing(kernel, place, link)?.index;
    Ok(kernel.at(place)?.netlink.link_set_hairpin(index, true)?)
}

pub(super) fn after_hairpin(kernel: &mut Kernel, place: &Place, link: &IfName) -> Result<After, StepError> {
    let found = existing(kernel, place, link)?.hairpin;
    as_planned(found == Some(true), || "hairpin mode on", || "hairpin mode off".to_owned())
}

pub(super) fn before_gso(kernel: &mut Kernel, place: &Place, link: &IfName) -> Result<Before, StepError> {
    let LinkInfo { index, gso_max_segs, .. } = existing(kernel, place, link)?;
    Ok(Before::GsoMaxSegs { index, segments: gso_max_segs })
}

pub(super) fn act_gso(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    segments: u32,
) -> Result<(), StepError> {
    let index = existing(kernel, place, link)?.index;
    Ok(kernel.at(place)?.netlink.link_set_gso_max_segs(index, segments)?)
}

pub(super) fn after_gso(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    segments: u32,
) -> Result<After, StepError> {
    let found = existing(kernel, place, link)?.gso_max_segs;
    as_planned(found == segments, || "packets of that many segments", || format!("up to {found}"))
}

pub(super) fn undo(kernel: &mut Kernel, past: &Past, moved: &MovedBack) -> Result<Undone, StepError> {
    let Intent { placed: Placed { place, step }, before, .. } = &past.intent;
    let (Before::Up { index, .. }
    | Before::Mtu { index, .. }
    | Before::Master { index, .. }
    | Before::Hairpin { index, .. }
    | Before::GsoMaxSegs { index, .. }) = before
    else {
        unreachable!("a setting's intent holds another state")
    };
    let index = moved.now(place, *index);
    let netlink = &kernel.at(place)?.netlink;
    let Some(now) = by_index(netlink, index)? else { return Ok(Undone::Gone) };
    match (before, step) {
        (Before::Up { up, .. }, _) => {
            let word = |up| if up { "up" } else { "down" };
            let write = || Ok(netlink.link_set_up(index, *up)?);
            put_back(&word(now.up), &word(*up), &word(true), write)
        }
        (Before::Mtu { mtu, others, .. }, Step::SetLinkMtu { mtu: ours, .. }) => {
            let undone = put_back(&now.mtu, mtu, ours, || Ok(netlink.link_set_mtu(index, *mtu)?))?;
            // A write of the value that is there reaches nobody.
            if mtu != ours {
                undo_others(kernel, past, (others, *ours), moved)?;
            }
            Ok(undone)
        }
        (Before::Master { master: old, .. }, Step::SetLinkMaster { master, .. }) => {
            let ours = match &past.after {
                Some(After::Link { index }) => Some(moved.now(place, *index)),
                _ => netlink.link(master)?.map(|bridge| bridge.index),
            };
            let write = || Ok(netlink.link_set_master(index, *old)?);
            put_back(&describe_master(now.master), &describe_master(*old), &describe_master(ours), write)
        }
        (Before::Hairpin { on, .. }, _) => {
            let Some(found) = now.hairpin else { return Ok(Undone::Gone) };
            let word = |on| if on { "on" } else { "off" };
            let write = || Ok(netlink.link_set_hairpin(index, *on)?);
            put_back(&word(found), &word(*on), &word(true), write)
        }
        (Before::GsoMaxSegs { segments, .. }, Step::SetGsoMaxSegs { segments: ours, .. }) => {
            let write = || Ok(netlink.link_set_gso_max_segs(index, *segments)?);
            put_back(&now.gso_max_segs, segments, ours, write)
        }
        _ => unreachable!("the intent's step and state belong together"),
    }
}

/// Links whose MTU followed the step's link go back too, unless somebody has changed them since. Where nothing was read
/// back it is not known who followed: those that have the step's MTU now and had another before.
fn undo_others(
    kernel: &mut Kernel,
    past: &Past,
    (were, ours): (&BTreeMap<u32, u32>, u32),
    moved: &MovedBack,
) -> Result<(), StepError> {
    let followed: BTreeMap<u32, u32> = match &past.after {
        Some(After::Mtu { others }) => others.clone(),
        _ => were.iter().filter(|(_, old)| **old != ours).map(|(index, _)| (*index, ours)).collect(),
    };
    let place = &past.intent.placed.place;
    let netlink = &kernel.at(place)?.netlink;
    for (index, followed) in followed {
        let now = by_index(netlink, moved.now(place, index))?;
        if let (Some(now), Some(old)) = (now, were.get(&index))
            && now.mtu == followed
        {
            netlink.link_set_mtu(now.index, *old)?;
        }
    }
    Ok(())
}

fn mtus_but(kernel: &mut Kernel, place: &Place, index: u32) -> Result<BTreeMap<u32, u32>, StepError> {
    let links = kernel.at(place)?.netlink.links()?;
    Ok(links.into_iter().filter(|link| link.index != index).map(|link| (link.index, link.mtu)).collect())
}

fn as_planned(
    is: bool,
    wanted: impl FnOnce() -> &'static str,
    found: impl FnOnce() -> String,
) -> Result<After, StepError> {
    if is {
        Ok(After::AsPlanned)
    } else {
        Err(StepError::NotTaken { wanted: wanted().to_owned(), found: found() })
    }
}

fn describe_master(master: Option<u32>) -> String {
    master.map_or_else(|| "a port of no bridge".to_owned(), |index| format!("a port of link {index}"))
}
