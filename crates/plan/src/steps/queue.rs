//! Which CPUs handle a queue's packets, and how many flows it keeps track of.

use linux::{CpuSet, IfName};

use super::{MovedBack, Past, by_index, existing, put_back};
use crate::entry::{After, Before, Intent, Undone};
use crate::error::StepError;
use crate::{Kernel, Place, Placed, Queue};

pub(super) fn before(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    queue: Queue,
) -> Result<Before, StepError> {
    let index = existing(kernel, place, link)?.index;
    Ok(Before::QueueCpus { index, cpus: read(kernel, place, link, queue)? })
}

pub(super) fn write(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    queue: Queue,
    cpus: &CpuSet,
) -> Result<(), StepError> {
    Ok(kernel.at(place)?.sysfs()?.write_queue_cpus(link, queue, cpus)?)
}

pub(super) fn after(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    queue: Queue,
) -> Result<After, StepError> {
    Ok(After::QueueCpus { cpus: read(kernel, place, link, queue)? })
}

pub(super) fn verify(wanted: &CpuSet, found: &CpuSet) -> Result<(), StepError> {
    if wanted == found {
        return Ok(());
    }
    let text = |cpus: &CpuSet| format!("CPUs {{{cpus}}}");
    Err(StepError::NotTaken { wanted: text(wanted), found: text(found) })
}

pub(super) fn undo(
    kernel: &mut Kernel,
    past: &Past,
    queue: Queue,
    wanted: &CpuSet,
    moved: &MovedBack,
) -> Result<Undone, StepError> {
    let Intent { placed: Placed { place, .. }, before, .. } = &past.intent;
    let Before::QueueCpus { index, cpus: old } = before else { unreachable!("before made another state") };
    let ours = match &past.after {
        Some(After::QueueCpus { cpus }) => cpus,
        _ => wanted,
    };
    let link = by_index(&kernel.at(place)?.netlink, moved.now(place, *index))?;
    let Some(link) = link else { return Ok(Undone::Gone) };
    let now = read(kernel, place, &link.name, queue)?;
    put_back(&now, old, ours, || write(kernel, place, &link.name, queue, old))
}

fn read(kernel: &mut Kernel, place: &Place, link: &IfName, queue: Queue) -> Result<CpuSet, StepError> {
    Ok(kernel.at(place)?.sysfs()?.read_queue_cpus(link, queue)?)
}

pub(super) fn before_flows(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    rx: u16,
) -> Result<Before, StepError> {
    let index = existing(kernel, place, link)?.index;
    Ok(Before::QueueFlows { index, flows: kernel.at(place)?.sysfs()?.read_queue_flows(link, rx)? })
}

pub(super) fn write_flows(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    rx: u16,
    flows: u32,
) -> Result<(), StepError> {
    Ok(kernel.at(place)?.sysfs()?.write_queue_flows(link, rx, flows)?)
}

pub(super) fn after_flows(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    rx: u16,
) -> Result<After, StepError> {
    Ok(After::QueueFlows { flows: kernel.at(place)?.sysfs()?.read_queue_flows(link, rx)? })
}

pub(super) fn verify_flows(wanted: u32, found: u32) -> Result<(), StepError> {
    if wanted == found {
        return Ok(());
    }
    let text = |flows| format!("{flows} flows");
    Err(StepError::NotTaken { wanted: text(wanted), found: text(found) })
}

pub(super) fn undo_flows(
    kernel: &mut Kernel,
    past: &Past,
    rx: u16,
    wanted: u32,
    moved: &MovedBack,
) -> Result<Undone, StepError> {
    let Intent { placed: Placed { place, .. }, before, .. } = &past.intent;
    let Before::QueueFlows { index, flows: old } = before else {
        unreachable!("before_flows made another state")
    };
    let ours = match &past.after {
        Some(After::QueueFlows { flows }) => *flows,
        _ => wanted,
    };
    let link = by_index(&kernel.at(place)?.netlink, moved.now(place, *index))?;
    let Some(link) = link else { return Ok(Undone::Gone) };
    let now = kernel.at(place)?.sysfs()?.read_queue_flows(&link.name, rx)?;
    put_back(&now, old, &ours, || write_flows(kernel, place, &link.name, rx, *old))
}
