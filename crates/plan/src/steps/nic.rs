//! What a network card is told: its numbers, and the table by which it spreads flows.

use linux::IfName;
use linux::ethtool::{NicParameter, Value};

use super::queues::{self, OfEach};
use super::{MovedBack, Past, by_index, existing};
use crate::entry::{After, Before, Intent, Undone};
use crate::error::StepError;
use crate::{Kernel, Place, Placed, Queue};

/// Refuses what the card says that it does not take, so that nothing is changed in vain.
pub(super) fn before(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    parameter: NicParameter,
    wanted: u32,
) -> Result<Before, StepError> {
    let index = existing(kernel, place, link)?.index;
    let found = read(kernel, place, link, parameter)?;
    if let Some(max) = found.max.filter(|max| wanted > *max) {
        let why = match parameter {
            NicParameter::Feature(_) => format!("{parameter} of {link} cannot be switched on"),
            _ => format!("{parameter} of {link} can be {max} at most"),
        };
        return Err(StepError::Refused { why });
    }
    // It is asked for already, and the kernel keeps it off: to ask again changes nothing.
    if matches!(parameter, NicParameter::Feature(_)) && found.wanted == wanted && found.now != wanted {
        let why = format!("{parameter} of {link} rests as long as another offload that it needs is off");
        return Err(StepError::Refused { why });
    }
    let queues = queues::of(kernel, place, link, parameter)?;
    Ok(Before::Nic { index, wanted: found.wanted, value: found.now, queues })
}

pub(super) fn act(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    parameter: NicParameter,
    value: u32,
) -> Result<(), StepError> {
    // Some drivers stop and start the link even if nothing changes.
    if read(kernel, place, link, parameter)?.wanted == value {
        return Ok(());
    }
    Ok(kernel.at(place)?.ethtool()?.write(link, parameter, value)?)
}

pub(super) fn after(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    parameter: NicParameter,
    before: &Before,
) -> Result<After, StepError> {
    let Before::Nic { queues: were, .. } = before else { unreachable!("before made another state") };
    let value = read(kernel, place, link, parameter)?.now;
    let queues = if were.is_some() { queues::of(kernel, place, link, parameter)? } else { None };
    Ok(After::Nic { value, queues })
}

pub(super) fn undo(
    kernel: &mut Kernel,
    past: &Past,
    parameter: NicParameter,
    wanted: u32,
    moved: &MovedBack,
) -> Result<Undone, StepError> {
    let Intent { placed: Placed { place, .. }, before, .. } = &past.intent;
    let Before::Nic { index, wanted: asked, value: old, queues: were } = before else {
        unreachable!("before made another state")
    };
    let (ours, left) = match &past.after {
        Some(After::Nic { value, queues }) => (*value, queues.as_ref()),
        _ => (wanted, None),
    };
    let link = by_index(&kernel.at(place)?.netlink, moved.now(place, *index))?;
    let Some(link) = link.map(|link| link.name) else { return Ok(Undone::Gone) };
    let now = read(kernel, place, &link, parameter)?;
    let back = now.now == *old && now.wanted == *asked;
    if !back && now.now != ours && now.now != *old {
        return Ok(Undone::ChangedByOther { found: now.now.to_string() });
    }
    let found = queues::of(kernel, place, &link, parameter)?;
    if !back {
        kernel.at(place)?.ethtool()?.write(&link, parameter, *asked)?;
    }
    let mut written = !back;
    if let (Some(were), Some(found)) = (were, found) {
        written |= OfEach { were, left, found: &found }.put_back(kernel, place, &link)?;
    }
    Ok(if written { Undone::Restored } else { Undone::AlreadySo })
}

/// What a number is now.
pub(super) fn now(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    parameter: NicParameter,
) -> Result<u32, StepError> {
    Ok(read(kernel, place, link, parameter)?.now)
}

pub(super) fn before_table(kernel: &mut Kernel, place: &Place, link: &IfName) -> Result<Before, StepError> {
    let index = existing(kernel, place, link)?.index;
    Ok(Before::Indirection { index, table: read_table(kernel, place, link)? })
}

pub(super) fn act_table(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    queues: u32,
    before: &Before,
) -> Result<(), StepError> {
    let Before::Indirection { table, .. } = before else { unreachable!("before made another state") };
    let wanted = spread(table.len(), queues);
    // One that is so already would from now on count as set by somebody: see `write_table`.
    if *table == wanted {
        return Ok(());
    }
    Ok(kernel.at(place)?.ethtool()?.write_indirection(link, &wanted)?)
}

pub(super) fn after_table(kernel: &mut Kernel, place: &Place, link: &IfName) -> Result<After, StepError> {
    Ok(After::Indirection { table: read_table(kernel, place, link)? })
}

pub(super) fn undo_table(
    kernel: &mut Kernel,
    past: &Past,
    queues: u32,
    moved: &MovedBack,
) -> Result<Undone, StepError> {
    let Intent { placed: Placed { place, .. }, before, .. } = &past.intent;
    let Before::Indirection { index, table: old } = before else { unreachable!("before made another state") };
    let link = by_index(&kernel.at(place)?.netlink, moved.now(place, *index))?;
    let Some(link) = link.map(|link| link.name) else { return Ok(Undone::Gone) };
    let now = read_table(kernel, place, &link)?;
    let is_ours = match &past.after {
        Some(After::Indirection { table }) => now == *table,
        _ => now == spread(old.len(), queues),
    };
    if now == *old {
        Ok(Undone::AlreadySo)
    } else if is_ours {
        write_table(kernel, place, &link, old)?;
        Ok(Undone::Restored)
    } else {
        Ok(Undone::ChangedByOther { found: format!("{now:?}") })
    }
}

/// Puts a table back. One that is as the driver makes it is left to the driver again: as long as a table counts as set by
/// somebody, the kernel refuses fewer queues than it names (`ethtool_check_max_channel` in net/ethtool/common.c). A driver
/// that makes it in another way than the kernel proposes (igb: the first half of the entries for the first of two queues)
/// gets the same entries back, which then count as set.
///
/// One that names queues that are not there is left to the driver, too, since the kernel refuses it: in Linux 6.1
/// virtio_net leaves its table as it is when queues go. It comes back with the queues, see [`super::queues`].
pub(super) fn write_table(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    table: &[u32],
) -> Result<(), StepError> {
    let opened = kernel.at(place)?;
    let queues = opened.sysfs()?.queues(link)?;
    let queues = queues.iter().filter(|queue| matches!(queue, Queue::Rx(_))).count();
    let queues = u32::try_from(queues).expect("a link has a few thousand queues at most");
    let own = table == spread(table.len(), queues) || !names_only(table, queues);
    Ok(opened.ethtool()?.write_indirection(link, if own { &[] } else { table })?)
}

/// Whether a table names none but the first so many queues.
pub(super) fn names_only(table: &[u32], queues: u32) -> bool {
    table.iter().all(|queue| *queue < queues)
}

/// Entry by entry in turn, as `ethtool -X … equal` does it (`ethtool_rxfh_indir_default` in linux/ethtool.h).
pub(crate) fn spread(entries: usize, queues: u32) -> Vec<u32> {
    (0..queues.max(1)).cycle().take(entries).collect()
}

fn read(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    parameter: NicParameter,
) -> Result<Value, StepError> {
    let found = kernel.at(place)?.ethtool()?.read(link, parameter)?;
    found.ok_or_else(|| {
        let why = match parameter {
            NicParameter::Channels => {
                format!("{link} has no number of queues to set, or not the same number in both directions")
            }
            _ => format!("{link} does not have {parameter}"),
        };
        StepError::Refused { why }
    })
}

fn read_table(kernel: &mut Kernel, place: &Place, link: &IfName) -> Result<Vec<u32>, StepError> {
    let table = kernel.at(place)?.ethtool()?.read_indirection(link)?;
    table.ok_or_else(|| StepError::Refused { why: format!("{link} has no table of flows") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_spread_in_turn() {
        assert_eq!(spread(5, 2), [0, 1, 0, 1, 0]);
        assert_eq!(spread(2, 4), [0, 1]);
    }

    #[test]
    fn a_table_that_names_a_queue_too_many_is_seen() {
        assert!(names_only(&[0, 1, 0, 1], 2));
        assert!(!names_only(&[0, 1, 0, 1], 1));
    }
}
