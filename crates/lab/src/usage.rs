//! What a trial cost: CPU time of the nodes' CPUs and the stacks' counters, as differences of two looks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use datapath::Trace;
use linux::procfs::{Procfs, Stat};
use linux::throttle::Throttled;
use linux::{CpuSet, Files};
use load::ThreadCost;
use plan::Place;
use record::{CardCounts, Counters, CpuTime, TrialRecord, Void};
use serde::{Deserialize, Serialize};

use crate::card_look::CardLook;
use crate::traffic::Traffic;
use crate::trial_key::TrialKey;
use crate::{LabError, NodeCpus, Topology};

/// One look at the counters.
#[derive(Debug, Clone)]
pub(crate) struct CounterSnapshot {
    taken: Instant,
    stat: Stat,
    /// The CPU quotas that hold for this process and what it has started.
    quotas: Vec<Throttled>,
    softnet_drops: BTreeMap<u16, u64>,
    retransmits: u64,
    needless_retransmits: u64,
    out_of_order: u64,
    rto_expiries: u64,
    udp_errors: u64,
    wire_drops: u64,
    traffic: Traffic,
    /// Of a topology whose nodes have cards, once these are up.
    cards: Option<CardLook>,
}

/// The difference of two looks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Usage {
    /// CPU time of the client's node, by CPU.
    pub client: BTreeMap<u16, CpuTime>,
    /// CPU time of the server's node, by CPU.
    pub server: BTreeMap<u16, CpuTime>,
    /// The time from look to look.
    pub wall: Duration,
    /// For how long a CPU quota stopped CPUs of this process and of what it has started, all together.
    pub throttled: Duration,
    /// What the stacks counted.
    pub counters: Counters,
    /// What links and routes counted, by namespace.
    pub traffic: Traffic,
    /// What the cards and the CPUs that received from them counted, where the wire has cards.
    pub cards: Option<CardCounts>,
}

/// What a trial cost on the server's machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Spent {
    /// CPU time by the number of the CPU, from the end of the warm-up.
    pub(crate) cpus: BTreeMap<u16, CpuTime>,
    /// What its stack counted.
    pub(crate) counters: Counters,
    /// Why packets cannot have taken the path, in words.
    pub(crate) detour: Option<String>,
    /// Why the trial does not count, if the machine kept the server from running.
    pub(crate) void: Option<Void>,
}

impl CounterSnapshot {
    /// Looks now at this machine's part of a topology. Takes well under a millisecond; nothing is measured meanwhile.
    pub(crate) fn take(topology: &Topology) -> Result<CounterSnapshot, LabError> {
        let mut snapshot = CounterSnapshot::at(&topology.places(), &topology.traces)?;
        if let Some(of) = &topology.card_interrupts {
            snapshot.cards = Some(CardLook::take(&Procfs::kernel(), of)?);
        }
        Ok(snapshot)
    }

    /// The same, for these namespaces and counters.
    pub(crate) fn at(places: &[Place], traces: &[Trace]) -> Result<CounterSnapshot, LabError> {
        let procfs = Procfs::kernel();
        let mut snapshot = CounterSnapshot::of_cpus(&procfs)?;
        for place in places {
            place.open()?.run(|| snapshot.add(place, &procfs))??;
        }
        snapshot.traffic.add_spliced(traces)?;
        Ok(snapshot)
    }

    /// The same, for the namespace of the calling thread, which needs no privilege.
    pub(crate) fn here() -> Result<CounterSnapshot, LabError> {
        let procfs = Procfs::kernel();
        let mut snapshot = CounterSnapshot::of_cpus(&procfs)?;
        snapshot.add(&Place::Host, &procfs)?;
        Ok(snapshot)
    }

    /// What is counted for the machine.
    fn of_cpus(procfs: &Procfs) -> Result<CounterSnapshot, LabError> {
        let softnet = procfs.softnet()?;
        Ok(CounterSnapshot {
            taken: Instant::now(),
            stat: procfs.stat()?,
            quotas: Files::kernel().own_quotas()?,
            softnet_drops: softnet.into_iter().map(|row| (row.cpu, row.dropped)).collect(),
            retransmits: 0,
            needless_retransmits: 0,
            out_of_order: 0,
            rto_expiries: 0,
            udp_errors: 0,
            wire_drops: 0,
            traffic: Traffic::default(),
            cards: None,
        })
    }

    /// Adds the counters of the namespace that the calling thread is in.
    fn add(&mut self, place: &Place, procfs: &Procfs) -> Result<(), LabError> {
        let counters = procfs.counters()?;
        self.retransmits += counters.get("TcpRetransSegs");
        self.needless_retransmits += counters.get("TcpExtTCPDSACKRecv");
        self.out_of_order += counters.get("TcpExtTCPOFOQueue");
        self.rto_expiries += counters.get("TcpExtTCPTimeouts");
        self.udp_errors += counters.get("UdpInErrors") + counters.get("Udp6InErrors");
        let links = procfs.link_counters()?;
        for link in links.values() {
            self.wire_drops += link.rx_dropped + link.tx_dropped + link.rx_errors + link.tx_errors;
        }
        self.traffic.add(place, links, &counters);
        Ok(())
    }

    /// What happened since an earlier look.
    pub(crate) fn since(&self, earlier: &CounterSnapshot, cpus: &NodeCpus) -> Usage {
        let all = cpus.all();
        let drops = |look: &CounterSnapshot| -> u64 {
            look.softnet_drops.iter().filter(|(cpu, _)| all.contains(**cpu)).map(|(_, drops)| drops).sum()
        };
        let stopped = |quota: &Throttled| -> Option<Duration> {
            let then = earlier.quotas.iter().find(|then| then.path == quota.path)?;
            Some(quota.stopped_since(then))
        };
        Usage {
            wall: self.taken.saturating_duration_since(earlier.taken),
            // What stops a group stops those in it too, and may be counted at both.
            throttled: self.quotas.iter().filter_map(stopped).max().unwrap_or_default(),
            client: self.cpu_times(earlier, &cpus.client),
            server: self.cpu_times(earlier, &cpus.server),
            counters: Counters {
                retransmits: self.retransmits.saturating_sub(earlier.retransmits),
                needless_retransmits: self.needless_retransmits.saturating_sub(earlier.needless_retransmits),
                out_of_order: self.out_of_order.saturating_sub(earlier.out_of_order),
                rto_expiries: self.rto_expiries.saturating_sub(earlier.rto_expiries),
                softnet_drops: drops(self).saturating_sub(drops(earlier)),
                udp_errors: self.udp_errors.saturating_sub(earlier.udp_errors),
                wire_drops: self.wire_drops.saturating_sub(earlier.wire_drops),
                ..Counters::default()
            },
            traffic: self.traffic.since(&earlier.traffic),
            cards: self.cards.as_ref().zip(earlier.cards.as_ref()).map(|(now, then)| now.since(then)),
        }
    }

    /// The share of stolen time in the nodes' CPU time until a later look at this machine's CPUs, in permille.
    pub(crate) fn steal_permille_until(&self, later: &Stat, cpus: &NodeCpus) -> u32 {
        steal_permille(&[&cpus.client, &cpus.server].map(|node| cpu_times(later, &self.stat, node)))
    }

    fn cpu_times(&self, earlier: &CounterSnapshot, cpus: &CpuSet) -> BTreeMap<u16, CpuTime> {
        cpu_times(&self.stat, &earlier.stat, cpus)
    }
}

/// What some CPUs did from a look to a later one.
fn cpu_times(later: &Stat, earlier: &Stat, cpus: &CpuSet) -> BTreeMap<u16, CpuTime> {
    let tick_ns = Stat::tick_ns();
    let of = |cpu: u16| {
        let spent = later.cpus.get(&cpu)?.since(earlier.cpus.get(&cpu)?);
        let time = CpuTime {
            user_ns: (spent.user + spent.nice) * tick_ns,
            system_ns: spent.system * tick_ns,
            softirq_ns: spent.softirq * tick_ns,
            irq_ns: spent.irq * tick_ns,
            idle_ns: (spent.idle + spent.iowait) * tick_ns,
            steal_ns: spent.steal * tick_ns,
        };
        Some((cpu, time))
    };
    cpus.iter().filter_map(of).collect()
}

impl Usage {
    /// Adds what the server's machine counted, whose CPUs have not been looked at from here.
    pub(crate) fn add_server(&mut self, spent: &Spent) {
        self.server.clone_from(&spent.cpus);
        self.counters += spent.counters;
    }

    /// A trial that cost this, with the costs of the generator's threads. What the trial gave is for the caller to add.
    pub(crate) fn of_trial(
        &self,
        TrialKey { entrant, load }: TrialKey,
        threads: &[ThreadCost],
    ) -> TrialRecord {
        TrialRecord {
            entrant,
            load,
            client_cpu: sum(&self.client),
            server_cpu: sum(&self.server),
            client_by_cpu: self.client.clone(),
            server_by_cpu: self.server.clone(),
            counters: self.with_threads(threads),
            cards: self.cards.clone(),
            ..TrialRecord::default()
        }
    }

    /// The stacks' counters with those of the generator's threads.
    fn with_threads(&self, threads: &[ThreadCost]) -> Counters {
        let mut counters = self.counters;
        for thread in threads {
            counters.client_switches += thread.voluntary_switches + thread.involuntary_switches;
            counters.client_involuntary_switches += thread.involuntary_switches;
            counters.client_runqueue_ns += thread.run_queue_ns;
            counters.client_spun_ns += thread.spun_alone_ns;
        }
        counters
    }

    /// The share of stolen time in the nodes' CPU time, in permille.
    pub(crate) fn steal_permille(&self) -> u32 {
        steal_permille([&self.client, &self.server])
    }
}

/// The share of stolen time in the time of these nodes' CPUs, in permille.
pub(crate) fn steal_permille<'a>(nodes: impl IntoIterator<Item = &'a BTreeMap<u16, CpuTime>>) -> u32 {
    let mut all = CpuTime::default();
    nodes.into_iter().for_each(|cpus| all += sum(cpus));
    let (steal, all) = (all.steal_ns, all.steal_ns + all.all_ns());
    (steal * 1000).checked_div(all).map_or(0, |share| u32::try_from(share).unwrap_or(u32::MAX))
}

/// What all of a node's CPUs spent.
fn sum(cpus: &BTreeMap<u16, CpuTime>) -> CpuTime {
    let mut all = CpuTime::default();
    cpus.values().for_each(|time| all += *time);
    all
}

#[cfg(test)]
mod tests {
    use linux::procfs::CpuTicks;

    use super::*;

    #[test]
    fn what_was_stolen_of_a_slice_is_a_share_of_the_slice() {
        let stat = |idle: u64, steal: u64| Stat {
            cpus: [0, 1, 2].map(|cpu| (cpu, CpuTicks { idle, steal, ..CpuTicks::default() })).into(),
            context_switches: 0,
        };
        let cpus = |client: &[u16], server: &[u16]| NodeCpus {
            client: client.iter().copied().collect(),
            server: server.iter().copied().collect(),
        };
        let before = CounterSnapshot { stat: stat(100, 5), ..CounterSnapshot::here().unwrap() };
        // 9 ticks of a slice, of which one was stolen, and then 150 of waiting.
        let share = |later: &Stat| before.steal_permille_until(later, &cpus(&[0], &[1]));
        assert_eq!([stat(109, 6), stat(259, 6)].map(|later| share(&later)), [100, 6]);
        assert_eq!(before.steal_permille_until(&stat(109, 6), &cpus(&[7], &[])), 0);
    }
}
