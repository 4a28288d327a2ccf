//! How the time of each CPU was spent, by candidate: for whoever asks which CPU does the work.

use record::CpuTime;
use serde::Serialize;

use crate::figures;
use crate::{Candidate, Summary};

/// Whose CPU it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuNode {
    /// The client's node.
    Client,
    /// The server's node.
    Server,
}

/// A CPU of a node over the trials that count: shares of its time, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CpuShares {
    /// Whose it is.
    pub node: CpuNode,
    /// Its number.
    pub cpu: u16,
    /// User mode.
    pub user: f64,
    /// Kernel mode without interrupts.
    pub system: f64,
    /// Software interrupts.
    pub softirq: f64,
    /// Hardware interrupts.
    pub irq: f64,
    /// Nothing to do.
    pub idle: f64,
    /// Taken by the hypervisor.
    pub steal: f64,
}

impl CpuShares {
    /// `None` where no clock ran.
    pub(crate) fn of(node: CpuNode, cpu: u16, time: &CpuTime) -> Option<CpuShares> {
        let all = time.all_ns() + time.steal_ns;
        let share = |ns: u64| ns as f64 / all as f64;
        (all > 0).then(|| CpuShares {
            node,
            cpu,
            user: share(time.user_ns),
            system: share(time.system_ns),
            softirq: share(time.softirq_ns),
            irq: share(time.irq_ns),
            idle: share(time.idle_ns),
            steal: share(time.steal_ns),
        })
    }

    /// The shares as they are read, under [`HEAD`].
    pub(crate) fn told(&self) -> [String; 6] {
        [self.user, self.system, self.softirq, self.irq, self.idle, self.steal].map(figures::percent)
    }

    /// `server 2`.
    pub(crate) fn name(&self) -> String {
        let node = match self.node {
            CpuNode::Client => "client",
            CpuNode::Server => "server",
        };
        format!("{node} {}", self.cpu)
    }
}

/// The names of the shares.
pub(crate) const HEAD: [&str; 6] = ["user", "system", "softirq", "irq", "idle", "steal"];

/// Who raced at a load with the shares of each CPU; empty where they were not asked for.
pub(crate) fn at(summary: &Summary, load: usize) -> Vec<(usize, &Candidate, &[CpuShares])> {
    let of = |(index, candidate)| {
        let candidate: &Candidate = candidate;
        let shares = candidate.rates.get(load)?.by_cpu.as_slice();
        (!shares.is_empty()).then_some((index, candidate, shares))
    };
    summary.candidates.iter().enumerate().filter_map(of).collect()
}
