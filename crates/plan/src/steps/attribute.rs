//! Numbers that are files of a link.

use linux::IfName;
use linux::sysfs::LinkAttribute;

use super::{MovedBack, Past, by_index, existing, put_back};
use crate::entry::{After, Before, Intent, Undone};
use crate::error::StepError;
use crate::{Kernel, Place, Placed};

pub(super) fn before(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    attribute: LinkAttribute,
) -> Result<Before, StepError> {
    let index = existing(kernel, place, link)?.index;
    Ok(Before::LinkAttribute { index, value: read(kernel, place, link, attribute)? })
}

pub(super) fn write(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    attribute: LinkAttribute,
    value: u64,
) -> Result<(), StepError> {
    Ok(kernel.at(place)?.sysfs()?.write_attribute(link, attribute, value)?)
}

pub(super) fn after(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    attribute: LinkAttribute,
) -> Result<After, StepError> {
    Ok(After::LinkAttribute { value: read(kernel, place, link, attribute)? })
}

pub(super) fn undo(
    kernel: &mut Kernel,
    past: &Past,
    attribute: LinkAttribute,
    wanted: u64,
    moved: &MovedBack,
) -> Result<Undone, StepError> {
    let Intent { placed: Placed { place, .. }, before, .. } = &past.intent;
    let Before::LinkAttribute { index, value: old } = before else {
        unreachable!("before made another state")
    };
    let ours = match &past.after {
        Some(After::LinkAttribute { value }) => *value,
        _ => wanted,
    };
    let link = by_index(&kernel.at(place)?.netlink, moved.now(place, *index))?;
    let Some(link) = link else { return Ok(Undone::Gone) };
    let now = read(kernel, place, &link.name, attribute)?;
    put_back(&now, old, &ours, || write(kernel, place, &link.name, attribute, *old))
}

fn read(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    attribute: LinkAttribute,
) -> Result<u64, StepError> {
    Ok(kernel.at(place)?.sysfs()?.read_attribute(link, attribute)?)
}
