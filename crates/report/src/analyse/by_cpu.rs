//! The time of each CPU, added up over the trials that count.

use std::collections::BTreeMap;

use record::{CpuTime, TrialRecord};

use crate::by_cpu::{CpuNode, CpuShares};
use verdict::Cell;

/// The server's CPUs, then the client's, each in order.
pub(super) fn by_cpu(cell: &Cell<'_>) -> Vec<CpuShares> {
    let server = of(cell, CpuNode::Server, |trial| &trial.server_by_cpu);
    let client = of(cell, CpuNode::Client, |trial| &trial.client_by_cpu);
    server.into_iter().chain(client).collect()
}

fn of(
    cell: &Cell<'_>,
    node: CpuNode,
    times: impl Fn(&TrialRecord) -> &BTreeMap<u16, CpuTime>,
) -> Vec<CpuShares> {
    let mut sums = BTreeMap::<u16, CpuTime>::new();
    for trial in &cell.trials {
        for (cpu, time) in times(trial) {
            *sums.entry(*cpu).or_default() += *time;
        }
    }
    sums.iter().filter_map(|(cpu, time)| CpuShares::of(node, *cpu, time)).collect()
}
