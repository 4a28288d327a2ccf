//! How the time of each CPU was spent, by candidate: to see which CPU does the work.

use record::CpuTime;
use serde::Serialize;

use crate::figures;

/// The node to which a CPU belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum CpuNode {
    Client,
    Server,
}

/// A CPU of a node over the trials that count: shares of its time, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CpuShares {
    /// The node to which it belongs.
    pub node: CpuNode,
    /// The CPU's number on the machine.
    pub cpu: u16,
    /// Share of time in user mode, 0 to 1.
    pub user: f64,
    /// Kernel mode without interrupts.
    pub system: f64,
    /// Share of time in software interrupts, 0 to 1.
    pub softirq: f64,
    /// Share of time in hardware interrupts, 0 to 1.
    pub irq: f64,
    /// Share of idle time, 0 to 1.
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

    /// In the order of [`HEAD`].
    fn parts(&self) -> [f64; 6] {
        [self.user, self.system, self.softirq, self.irq, self.idle, self.steal]
    }
}

/// A line of table and drawing: a CPU, or all of a node's.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CpuRow {
    /// The node to which the CPUs belong.
    pub(crate) node: CpuNode,
    /// Its number; `None`: the mean of the node's CPUs.
    pub(crate) cpu: Option<u16>,
    /// The shares, 0 to 1, in the order of [`HEAD`].
    pub(crate) shares: [f64; 6],
}

impl CpuRow {
    /// The shares, in percent.
    pub(crate) fn percentages(&self) -> [String; 6] {
        self.shares.map(figures::percent)
    }

    /// `server 2`, `server all`.
    pub(crate) fn name(&self) -> String {
        let node = match self.node {
            CpuNode::Client => "client",
            CpuNode::Server => "server",
        };
        match self.cpu {
            Some(cpu) => format!("{node} {cpu}"),
            None => format!("{node} all"),
        }
    }
}

/// The lines of a candidate: for each node all its CPUs together, like `mpstat`, then one by one; a single CPU gets no
/// total. All were observed for an equal time, so the mean of their shares is the share of their total time.
pub(crate) fn rows(shares: &[CpuShares]) -> Vec<CpuRow> {
    shares
        .chunk_by(|one, next| one.node == next.node)
        .flat_map(|cpus| {
            let mean =
                |part: usize| cpus.iter().map(|cpu| cpu.parts()[part]).sum::<f64>() / cpus.len() as f64;
            let all = CpuRow { node: cpus[0].node, cpu: None, shares: std::array::from_fn(mean) };
            let each = |one: &CpuShares| CpuRow { node: one.node, cpu: Some(one.cpu), shares: one.parts() };
            let all = (cpus.len() > 1).then_some(all);
            all.into_iter().chain(cpus.iter().map(each)).collect::<Vec<_>>()
        })
        .collect()
}

/// The names of the shares.
pub(crate) const HEAD: [&str; 6] = ["user", "system", "softirq", "irq", "idle", "steal"];
