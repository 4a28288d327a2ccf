//! The queueing discipline at the root of a link.

use linux::netlink::QdiscInfo;
use linux::{IfName, Qdisc};

use super::{MovedBack, Past, by_index, existing};
use crate::entry::{After, Before, Intent, Undone};
use crate::error::StepError;
use crate::{Kernel, Place, Placed};

/// What somebody has put there is refused where it could not be put back.
pub(super) fn before(kernel: &mut Kernel, place: &Place, link: &IfName) -> Result<Before, StepError> {
    let index = existing(kernel, place, link)?.index;
    let qdisc = kernel.at(place)?.netlink.root_qdisc(index)?;
    if let Some(old) = &qdisc
        && let Some(why) = old.irretrievable()
    {
        let old = describe(Some(old));
        let why = format!(
            "link {link} has {old} at its root, which could not be put back: {why}; \
             remove it first (tc qdisc del dev {link} root)"
        );
        return Err(StepError::Refused { why });
    }
    Ok(Before::RootQdisc { index, qdisc })
}

pub(super) fn act(kernel: &mut Kernel, place: &Place, link: &IfName, qdisc: &Qdisc) -> Result<(), StepError> {
    let index = existing(kernel, place, link)?.index;
    Ok(kernel.at(place)?.netlink.set_root_qdisc(index, qdisc)?)
}

pub(super) fn after(kernel: &mut Kernel, place: &Place, link: &IfName) -> Result<After, StepError> {
    let index = existing(kernel, place, link)?.index;
    match kernel.at(place)?.netlink.root_qdisc(index)? {
        Some(qdisc) => Ok(After::RootQdisc { qdisc }),
        None => Err(StepError::NotTaken {
            wanted: "a queueing discipline at the root".to_owned(),
            found: describe(None),
        }),
    }
}

pub(super) fn verify(wanted: &Qdisc, found: &QdiscInfo) -> Result<(), StepError> {
    let told = found.qdisc();
    if told.as_ref().is_some_and(|told| wanted.is_met_by(told)) {
        return Ok(());
    }
    let found = told.map_or_else(|| describe(Some(found)), |told| told.to_string());
    Err(StepError::NotTaken { wanted: wanted.to_string(), found })
}

/// The kernel's own choice comes back by removing ours. Where nothing was read back, ours is one that does what the step
/// says, whatever its number.
pub(super) fn undo(
    kernel: &mut Kernel,
    past: &Past,
    wanted: &Qdisc,
    moved: &MovedBack,
) -> Result<Undone, StepError> {
    let Intent { placed: Placed { place, .. }, before, .. } = &past.intent;
    let Before::RootQdisc { index, qdisc: old } = before else { unreachable!("before made another state") };
    let index = moved.now(place, *index);
    let netlink = &kernel.at(place)?.netlink;
    if by_index(netlink, index)?.is_none() {
        return Ok(Undone::Gone);
    }
    let now = netlink.root_qdisc(index)?;
    if now == *old {
        return Ok(Undone::AlreadySo);
    }
    let is_ours = now.as_ref().is_some_and(|now| match &past.after {
        Some(After::RootQdisc { qdisc }) => qdisc == now,
        _ => now.qdisc().is_some_and(|now| wanted.is_met_by(&now)),
    });
    if !is_ours {
        return Ok(Undone::ChangedByOther { found: describe(now.as_ref()) });
    }
    match old {
        Some(old) => netlink.restore_root_qdisc(index, old)?,
        None => netlink.delete_root_qdisc(index)?,
    }
    Ok(Undone::Restored)
}

/// In words, with the number by which tc knows it.
fn describe(qdisc: Option<&QdiscInfo>) -> String {
    qdisc.map_or_else(
        || "the kernel's own queueing discipline".to_owned(),
        |QdiscInfo { kind, major, .. }| format!("queueing discipline {kind} {major:x}:"),
    )
}
