//! Which CPUs handle a queue's packets, and how many flows it keeps track of.

use linux::{CpuSet, IfName};
use serde::{Deserialize, Serialize};

use super::register::{At, Register};
use crate::error::StepError;
use crate::show::echo_at;
use crate::{Place, Queue};

/// Let these CPUs handle a queue's packets (RPS for a receive queue, XPS for a send queue).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetQueueCpus {
    /// The link that has the queue.
    pub link: IfName,
    /// A receive queue (RPS) or a send queue (XPS).
    pub queue: Queue,
    /// The CPUs; the empty set turns steering off.
    pub cpus: CpuSet,
}

impl Register for SetQueueCpus {
    type Value = CpuSet;
    type Along = ();

    fn read(&self, at: &At<'_>) -> Result<Option<CpuSet>, StepError> {
        Ok(Some(at.opened.sysfs()?.read_queue_cpus(at.name(), self.queue)?))
    }

    fn write(&self, at: &At<'_>, cpus: &CpuSet) -> Result<(), StepError> {
        Ok(at.opened.sysfs()?.write_queue_cpus(at.name(), self.queue, cpus)?)
    }

    fn wanted(&self, _: &CpuSet) -> CpuSet {
        self.cpus.clone()
    }

    fn subject(&self) -> String {
        format!("the set of CPUs of {} of link {}", self.queue, self.link)
    }

    fn words(&self, cpus: &CpuSet) -> String {
        words_of(cpus)
    }

    fn command(&self, place: &Place) -> String {
        let file = match self.queue {
            Queue::Rx(n) => format!("rx-{n}/rps_cpus"),
            Queue::Tx(n) => format!("tx-{n}/xps_cpus"),
        };
        let path = format!("/sys/class/net/{}/queues/{file}", self.link);
        echo_at(place, &self.cpus.to_mask(), &path)
    }
}

/// A set of CPUs in words.
pub(super) fn words_of(cpus: &CpuSet) -> String {
    if cpus.is_empty() { "none".to_owned() } else { cpus.to_string() }
}

/// Let a receive queue keep track of so many flows, a power of two (RFS).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetQueueFlows {
    /// The link that has the queue.
    pub link: IfName,
    /// The number of the receive queue, from 0.
    pub rx: u16,
    /// How many; 0 turns it off.
    pub flows: u32,
}

impl Register for SetQueueFlows {
    type Value = u32;
    type Along = ();

    fn read(&self, at: &At<'_>) -> Result<Option<u32>, StepError> {
        Ok(Some(at.opened.sysfs()?.read_queue_flows(at.name(), self.rx)?))
    }

    fn write(&self, at: &At<'_>, flows: &u32) -> Result<(), StepError> {
        Ok(at.opened.sysfs()?.write_queue_flows(at.name(), self.rx, *flows)?)
    }

    fn wanted(&self, _: &u32) -> u32 {
        self.flows
    }

    fn subject(&self) -> String {
        format!("the number of flows of rx-{} of link {}", self.rx, self.link)
    }

    fn words(&self, flows: &u32) -> String {
        flows.to_string()
    }

    fn command(&self, place: &Place) -> String {
        let path = format!("/sys/class/net/{}/queues/{}/rps_flow_cnt", self.link, Queue::Rx(self.rx));
        echo_at(place, &self.flows.to_string(), &path)
    }
}
