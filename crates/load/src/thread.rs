//! What a thread cost, by the kernel's own books.

use std::fs;
use std::io;

use linux::CpuSet;
use linux::clock;

use crate::LoadError;
use crate::error::system;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reading {
    at_ns: u64,
    cpu_ns: u64,
    run_queue_ns: u64,
    voluntary: u64,
    involuntary: u64,
}

impl Reading {
    pub(crate) fn now() -> Result<Reading, LoadError> {
        let schedstat = fs::read_to_string("/proc/thread-self/schedstat")
            .map_err(system("read the thread's schedstat"))?;
        let status =
            fs::read_to_string("/proc/thread-self/status").map_err(system("read the thread's status"))?;
        parse(&schedstat, &status, clock::now_ns()).ok_or_else(|| {
            let source = io::Error::new(io::ErrorKind::InvalidData, "a number is missing");
            LoadError::System { attempted: "read the thread's schedstat and status", source }
        })
    }

    /// What was spent since.
    pub(crate) fn until(self, later: Reading, cpus: Option<CpuSet>) -> ThreadCost {
        ThreadCost {
            cpus,
            cpu_ns: later.cpu_ns - self.cpu_ns,
            wall_ns: later.at_ns - self.at_ns,
            voluntary_switches: later.voluntary - self.voluntary,
            involuntary_switches: later.involuntary - self.involuntary,
            run_queue_ns: later.run_queue_ns - self.run_queue_ns,
        }
    }
}

fn parse(schedstat: &str, status: &str, at_ns: u64) -> Option<Reading> {
    let mut sched = schedstat.split_ascii_whitespace().map(str::parse);
    let field = |name| {
        let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        value.trim().parse().ok()
    };
    Some(Reading {
        at_ns,
        cpu_ns: sched.next()?.ok()?,
        run_queue_ns: sched.next()?.ok()?,
        voluntary: field("voluntary_ctxt_switches")?,
        involuntary: field("nonvoluntary_ctxt_switches")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_books_are_read() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t9\n";
        let reading = parse("100 20 3\n", status, 5).unwrap();
        assert_eq!(
            reading,
            Reading { at_ns: 5, cpu_ns: 100, run_queue_ns: 20, voluntary: 7, involuntary: 9 }
        );
        assert_eq!(parse("100\n", status, 5), None);
        assert_eq!(parse("100 20 3\n", "Name:\tx\n", 5), None);
    }

    #[test]
    fn work_costs() {
        let before = Reading::now().unwrap();
        let until_ns = clock::now_ns() + 5_000_000;
        while clock::now_ns() < until_ns {}
        let cost = before.until(Reading::now().unwrap(), None);
        assert!(cost.wall_ns >= 5_000_000);
        assert!(cost.cpu_ns > 0);
        assert!(cost.busy() > 0.0 && cost.busy() + cost.starved() <= 1.01, "{cost:?}");
    }
}
