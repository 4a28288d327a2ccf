//! What is set for each queue of a card: a new number of queues takes it along.
//!
//! A queue that goes takes its CPUs and flows with it, a driver fills the table of flows again and spreads its
//! interrupts again (`netif_set_real_num_rx_queues`, `netif_reset_xps_queues` and the drivers' `set_channels`).

use linux::CpuSet;
use linux::interrupts::Interrupts;
use serde::{Deserialize, Serialize};

use super::register::At;
use super::{indirection, interrupt};
use crate::Queue;
use crate::error::StepError;

/// What is set for each queue of a card, and for its interrupts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QueueState {
    /// The CPUs of each queue whose CPUs can be set.
    pub cpus: Vec<(Queue, CpuSet)>,
    /// The flows that each receive queue keeps track of.
    pub flows: Vec<(u16, u32)>,
    /// The table by which flows are spread, where the card has one.
    pub table: Option<Vec<u32>>,
    /// Number, name and CPUs of each interrupt.
    pub interrupts: Vec<(u32, String, CpuSet)>,
}

/// What is set for them now.
pub(super) fn read(at: &At<'_>) -> Result<QueueState, StepError> {
    let (sysfs, link) = (at.opened.sysfs()?, at.name());
    let table = at.opened.ethtool()?.read_indirection(link)?;
    let mut state = QueueState { table, ..QueueState::default() };
    for queue in sysfs.queues(link)? {
        // The only send queue of a link has none.
        if let Ok(cpus) = sysfs.read_queue_cpus(link, queue) {
            state.cpus.push((queue, cpus));
        }
        if let Queue::Rx(rx) = queue
            && let Ok(flows) = sysfs.read_queue_flows(link, rx)
        {
            state.flows.push((rx, flows));
        }
    }
    let numbers = sysfs.interrupts(link)?;
    let all = if numbers.is_empty() { Vec::new() } else { Interrupts::kernel().list()? };
    for one in all.into_iter().filter(|one| numbers.contains(&one.number)) {
        if let Some(cpus) = Interrupts::kernel().read_cpus(one.number)? {
            state.interrupts.push((one.number, one.name, cpus));
        }
    }
    Ok(state)
}

/// What is set for each queue, at three times.
pub(super) struct OfEach<'a> {
    /// As they were before the step.
    pub(super) were: &'a QueueState,
    /// As the step left it; `None`: nothing was read back.
    pub(super) left: Option<&'a QueueState>,
    /// As undo finds them.
    pub(super) found: &'a QueueState,
}

impl OfEach<'_> {
    /// Puts it back when the number of queues is back. What held something else than the step had left was changed by
    /// another program, and gets that again. True if anything had to be written.
    pub(super) fn put_back(&self, at: &At<'_>) -> Result<bool, StepError> {
        let (now, link) = (read(at)?, at.name());
        let mut written = false;
        if let (Some(were), Some(is)) = (&self.were.table, &now.table) {
            let left = self.left.and_then(|left| left.table.as_deref());
            let found =
                self.found.table.as_deref().filter(|found| !is_forced(left, found, self.found.receive()));
            // A table that another program has made since may name queues that are not there any more.
            let target = others(were.as_slice(), left, found).filter(|table| table.len() == were.len());
            let target = target.unwrap_or(were);
            if target != is {
                indirection::write(at, target)?;
                written = true;
            }
        }
        let sysfs = at.opened.sysfs()?;
        for (queue, cpus) in self.targets(|state| &state.cpus) {
            if find(&now.cpus, &queue).is_some_and(|is| *is != cpus) {
                sysfs.write_queue_cpus(link, queue, &cpus)?;
                written = true;
            }
        }
        for (rx, flows) in self.targets(|state| &state.flows) {
            if find(&now.flows, &rx).is_some_and(|is| *is != flows) {
                sysfs.write_queue_flows(link, rx, flows)?;
                written = true;
            }
        }
        Ok(self.put_interrupts_back()? || written)
    }

    fn put_interrupts_back(&self) -> Result<bool, StepError> {
        let of = |state: &QueueState, irq: u32, name: &str| -> Option<CpuSet> {
            let mut all = state.interrupts.iter();
            all.find(|one| one.0 == irq && one.1 == name).map(|one| one.2.clone())
        };
        let mut written = false;
        for (irq, name, were) in &self.were.interrupts {
            let left = self.left.and_then(|left| of(left, *irq, name));
            let found = of(self.found, *irq, name);
            let target = others(were, left.as_ref(), found.as_ref()).unwrap_or(were);
            if interrupt::read(*irq, name)?.is_some_and(|is| is != *target) {
                Interrupts::kernel().write_cpus(*irq, target)?;
                written = true;
            }
        }
        Ok(written)
    }

    /// What each is to hold.
    fn targets<K: Copy + PartialEq, V: Clone + PartialEq>(
        &self,
        part: impl Fn(&QueueState) -> &Vec<(K, V)>,
    ) -> Vec<(K, V)> {
        let target = |(key, were): &(K, V)| {
            let left = self.left.and_then(|left| find(part(left), key));
            let found = find(part(self.found), key);
            (*key, others(were, left, found).unwrap_or(were).clone())
        };
        part(self.were).iter().map(target).collect()
    }
}

/// What another program has written; `None` where it is as before, as the step left it, or not known.
pub(super) fn others<'a, T: PartialEq + ?Sized>(
    were: &T,
    left: Option<&T>,
    found: Option<&'a T>,
) -> Option<&'a T> {
    let left = left?;
    found.filter(|found| *found != left && *found != were)
}

/// Whether no program has chosen a table: the step left one that names queues that were not there any more, which the
/// kernel accepts from no program, and this one spreads flows evenly over those that were.
fn is_forced(left: Option<&[u32]>, found: &[u32], queues: u32) -> bool {
    left.is_some_and(|left| !indirection::names_only(left, queues))
        && found == indirection::spread(found.len(), queues)
}

impl QueueState {
    /// How many queues receive: each has its CPUs, or none of them has.
    fn receive(&self) -> u32 {
        self.cpus.iter().filter(|(queue, _)| matches!(queue, Queue::Rx(_))).map(|_| 1).sum()
    }
}

fn find<'a, K: PartialEq, V>(list: &'a [(K, V)], key: &K) -> Option<&'a V> {
    list.iter().find(|(found, _)| found == key).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_else_wrote_is_distinguished_from_what_the_step_left() {
        assert_eq!(others(&1, Some(&0), Some(&0)), None);
        assert_eq!(others(&1, Some(&0), Some(&1)), None);
        assert_eq!(others(&1, Some(&0), Some(&7)), Some(&7));
        assert_eq!(others(&1, None, Some(&7)), None);
    }

    #[test]
    fn a_table_for_the_queues_that_were_left_was_not_chosen() {
        let left = Some([0, 1, 0, 1].as_slice());
        assert!(is_forced(left, &[0, 0, 0, 0], 1));
        assert!(!is_forced(left, &[0, 0, 0, 0], 2), "two queues are there, and a program chose one");
        assert!(!is_forced(Some(&[0, 0, 0, 0]), &[0, 0, 0, 0], 1), "a driver that replaced the table");
        assert!(!is_forced(None, &[0, 0, 0, 0], 1));
    }
}
