//! The table by which a card spreads received flows.

use linux::IfName;
use serde::{Deserialize, Serialize};

use super::register::{At, Register};
use crate::error::StepError;
use crate::lifetime::Lifetime;
use crate::show::{inside, word};
use crate::{Place, Queue};

/// Spread received flows evenly over the first queues of a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetIndirection {
    /// The link of the card.
    pub link: IfName,
    /// How many queues, from 1.
    pub queues: u32,
}

impl Register for SetIndirection {
    /// The queue of each entry.
    type Value = Vec<u32>;
    type Along = ();

    fn read(&self, at: &At<'_>) -> Result<Option<Vec<u32>>, StepError> {
        Ok(at.opened.ethtool()?.read_indirection(at.name())?)
    }

    fn write(&self, at: &At<'_>, table: &Vec<u32>) -> Result<(), StepError> {
        write(at, table)
    }

    fn wanted(&self, was: &Vec<u32>) -> Vec<u32> {
        spread(was.len(), self.queues)
    }

    fn subject(&self) -> String {
        format!("the indirection table of link {}", self.link)
    }

    fn words(&self, table: &Vec<u32>) -> String {
        let used = table.iter().max().map_or(0, |last| last + 1);
        // A table of fewer entries than queues names no more of them.
        let queues = if self.is_met(table) { self.queues } else { used };
        match *table == spread(table.len(), queues) {
            true => format!("evenly over {queues} queue{}", if queues == 1 { "" } else { "s" }),
            false => format!("unevenly over {queues} queues"),
        }
    }

    fn command(&self, place: &Place) -> String {
        inside(place, &format!("ethtool -X {} equal {}", word(&self.link), self.queues))
    }

    /// A table that is so already is not written, or it would count as set by the user from then on. One that is not so
    /// is written entry by entry, also where the driver would make the same one: see [`write`].
    fn set(&self, at: &At<'_>, was: &Vec<u32>) -> Result<(), StepError> {
        if self.is_met(was) {
            return Ok(());
        }
        Ok(at.opened.ethtool()?.write_indirection(at.name(), &self.wanted(was))?)
    }

    /// A card survives its namespace.
    fn lifetime(&self) -> Lifetime<'_> {
        Lifetime::Machine
    }

    fn missing(&self) -> StepError {
        StepError::Refused { why: format!("{} has no table of flows", self.link) }
    }
}

/// Puts a table back. One that is as the driver makes it is left to the driver again: as long as a table counts as set
/// by a user, the kernel refuses fewer queues than it names (`ethtool_check_max_channel` in net/ethtool/common.c). A
/// driver that makes it in another way than the kernel proposes (igb: the first half of the entries for the first of
/// two queues) gets the same entries back, which then count as set.
///
/// One that names queues that are not there is left to the driver, too, since the kernel refuses it: in Linux 6.1
/// virtio_net leaves its table as it is when queues go. It comes back with the queues, see [`super::queues`].
pub(super) fn write(at: &At<'_>, table: &[u32]) -> Result<(), StepError> {
    let queues = receive_queues(at)?;
    let own = table == spread(table.len(), queues) || !names_only(table, queues);
    Ok(at.opened.ethtool()?.write_indirection(at.name(), if own { &[] } else { table })?)
}

/// Leaves a table to the driver again that would keep the kernel from taking queues away, see [`write`], if it says no
/// more than a driver's: each queue that is there has the same share. So it is after a table was put back, and where a
/// driver has made a new one for more queues, as igb does, though the old one counted as set by a user. What a user has
/// made in another way stays, and with it the kernel's refusal.
pub(super) fn give_way(at: &At<'_>, queues_left: u32) -> Result<(), StepError> {
    let ethtool = at.opened.ethtool()?;
    let Some(table) = ethtool.read_indirection(at.name())? else { return Ok(()) };
    if names_only(&table, queues_left) || !is_even(&table, receive_queues(at)?) {
        return Ok(());
    }
    Ok(ethtool.write_indirection(at.name(), &[])?)
}

/// Whether each of the first so many queues has the same share of a table, as far as it can be divided.
fn is_even(table: &[u32], queues: u32) -> bool {
    let share = |queue: u32| table.iter().filter(|named| **named == queue).count();
    let shares: Vec<usize> = (0..queues).map(share).collect();
    let (least, most) = (shares.iter().min(), shares.iter().max());
    names_only(table, queues) && least.zip(most).is_some_and(|(least, most)| most - least <= 1)
}

fn receive_queues(at: &At<'_>) -> Result<u32, StepError> {
    let queues = at.opened.sysfs()?.queues(at.name())?;
    let queues = queues.iter().filter(|queue| matches!(queue, Queue::Rx(_))).count();
    Ok(u32::try_from(queues).expect("a link has a few thousand queues at most"))
}

/// Whether a table names none but the first so many queues.
pub(super) fn names_only(table: &[u32], queues: u32) -> bool {
    table.iter().all(|queue| *queue < queues)
}

/// Entry by entry in turn, as `ethtool -X … equal` does it (`ethtool_rxfh_indir_default` in linux/ethtool.h).
pub(super) fn spread(entries: usize, queues: u32) -> Vec<u32> {
    (0..queues.max(1)).cycle().take(entries).collect()
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
    fn a_table_is_described_by_how_it_spreads() {
        let over = |queues, table: &[u32]| {
            let link = IfName::new("eth0").unwrap();
            SetIndirection { link, queues }.words(&table.to_vec())
        };
        assert_eq!(over(2, &[0, 1, 2, 0]), "evenly over 3 queues");
        assert_eq!(over(1, &[0, 0]), "evenly over 1 queue");
        assert_eq!(over(4, &[0, 1]), "evenly over 4 queues");
        assert_eq!(over(2, &[0, 0, 1, 1]), "unevenly over 2 queues");
    }

    #[test]
    fn a_table_that_a_driver_may_have_made_gives_each_queue_its_share() {
        for (table, queues) in
            [(&[0, 1, 0, 1][..], 2), (&[0, 0, 1, 1], 2), (&[0, 1, 2, 0], 3), (&[0, 1], 4), (&[0, 0], 1)]
        {
            assert!(is_even(table, queues), "{table:?} over {queues}");
        }
        for (table, queues) in [(&[0, 1, 1, 1][..], 2), (&[0, 1, 0, 1], 4), (&[0, 1, 0, 1], 1)] {
            assert!(!is_even(table, queues), "{table:?} over {queues}");
        }
    }

    #[test]
    fn a_table_that_names_a_queue_too_many_is_seen() {
        assert!(names_only(&[0, 1, 0, 1], 2));
        assert!(!names_only(&[0, 1, 0, 1], 1));
    }
}
