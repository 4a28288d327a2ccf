//! Which CPUs handle a queue's packets.

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
