//! What a thread cost, by the kernel's own books.

use linux::procfs::{Procfs, ThreadTimes};
use linux::{CpuSet, clock};

use crate::LoadError;

/// What one thread of the generator cost during a run, draining included. It tells whether the figures are the
/// server's or the generator's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadCost {
    /// Where it was allowed to run; `None`: anywhere.
    pub cpus: Option<CpuSet>,
    /// Time on a CPU in nanoseconds.
    pub cpu_ns: u64,
    /// Time that passed in nanoseconds.
    pub wall_ns: u64,
    /// Times it gave the CPU up, to wait.
    pub voluntary_switches: u64,
    /// Times the CPU was taken from it.
    pub involuntary_switches: u64,
    /// Time it was ready to run and had no CPU, in nanoseconds.
    pub run_queue_ns: u64,
}

impl ThreadCost {
    /// The share of one CPU that the thread used, 0 to 1.
    pub fn busy(&self) -> f64 {
        self.share(self.cpu_ns)
    }

    /// The share of the time in which the thread was ready to run and had no CPU, 0 to 1. Answers lie unread then, which
    /// looks like a slow server, and requests that are due for which a connection is free are late.
    pub fn starved(&self) -> f64 {
        self.share(self.run_queue_ns)
    }

    fn share(&self, part_ns: u64) -> f64 {
        if self.wall_ns == 0 { 0.0 } else { part_ns as f64 / self.wall_ns as f64 }
    }
}

/// The calling thread's counters at one instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    at_ns: u64,
    times: ThreadTimes,
}

impl Reading {
    pub(crate) fn now() -> Result<Reading, LoadError> {
        let times = Procfs::kernel().own_thread()?;
        Ok(Reading { at_ns: clock::now_ns(), times })
    }

    /// What was spent since.
    pub(crate) fn until(self, later: Reading, cpus: Option<CpuSet>) -> ThreadCost {
        let spent = later.times.since(&self.times);
        ThreadCost {
            cpus,
            cpu_ns: spent.ran_ns,
            wall_ns: later.at_ns - self.at_ns,
            voluntary_switches: spent.voluntary_switches,
            involuntary_switches: spent.involuntary_switches,
            run_queue_ns: spent.waited_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_costs() {
        let begin_ns = clock::now_ns();
        let before = Reading::now().unwrap();
        let until_ns = clock::now_ns() + 5_000_000;
        while clock::now_ns() < until_ns {}
        let cost = before.until(Reading::now().unwrap(), None);
        assert!(cost.wall_ns >= 5_000_000);
        assert!(cost.cpu_ns > 0 && cost.busy() > 0.0);
        // A reading is of several files, between which a thread may be kept from running.
        let all_ns = clock::now_ns() - begin_ns;
        assert!(cost.cpu_ns + cost.run_queue_ns <= all_ns + all_ns / 100, "{cost:?} of {all_ns}");
    }
}
