//! Interrupts of cards: where they go.

use std::collections::{BTreeMap, BTreeSet};

use linux::Device;
use linux::interrupts::queue_of;
use linux::procfs::Interrupt;

use super::SCALING;
use crate::finding::USUAL;
use crate::rate::{percent, share};
use crate::{Check, CheckGroup, Observation, Window};

const INTERRUPTS: &str = "/proc/interrupts";
/// Fewer interrupts, or packets, a second are no load that placing could change.
const BUSY_PER_S: f64 = 1000.0;

pub(super) const GROUP: CheckGroup = CheckGroup {
    title: "Interrupts",
    checks: &[
        Check {
            code: "HG010",
            title: "all interrupts of a card go to one CPU",
            why: "A card with several queues can be served by several CPUs, if each queue interrupts a different \
                  one. Here one CPU takes nearly all interrupts.",
            remedy: "give each queue a CPU of its own, or let irqbalance do it",
            knobs: &["irq_affinity"],
            verify: "in /proc/interrupts the card's lines grow on several CPUs (an interrupt moves when it next comes; with \
                many drivers none comes before the queue was once empty)",
            source: SCALING,
            run: one_cpu,
            ..USUAL
        },
        Check {
            code: "HG011",
            title: "interrupts of a card are taken on another NUMA node",
            why: "Packets lie in the memory and cache near the card. A CPU of another node fetches each over the link between \
                the nodes.",
            remedy: "move the card's interrupts to CPUs of its own node",
            knobs: &["irq_affinity"],
            verify: "effective_affinity_list of the card's interrupts lies within its local_cpulist",
            source: "Documentation/core-api/irq/irq-affinity.rst",
            run: remote_node,
            ..USUAL
        },
        Check {
            code: "HG012",
            title: "the card's interrupts are being moved",
            why: "The CPUs of an interrupt changed during the diagnosis. If you placed it by hand, a balancer \
                  undoes that; caches start cold after each move.",
            remedy: "exclude these interrupts from irqbalance (--banirq), or leave their placement to it",
            knobs: &["irq_affinity"],
            verify: "effective_affinity_list stays the same for a minute",
            source: "irqbalance(1)",
            run: moved,
            ..USUAL
        },
        Check {
            code: "HG013",
            title: "isolated CPUs take interrupts of a card",
            why: "These CPUs are reserved for a program, and a card interrupts it there. isolcpus does not keep \
                  interrupts away; affinity does.",
            remedy: "remove the isolated CPUs from the interrupts' affinity",
            knobs: &["irq_affinity"],
            verify: "the isolated CPUs' columns of the card's lines in /proc/interrupts no longer grow",
            source: "Documentation/admin-guide/kernel-parameters.txt, isolcpus",
            run: isolated,
            ..USUAL
        },
        Check {
            code: "HG014",
            title: "a card interrupts for nearly every packet",
            why: "Each interrupt costs a microsecond or two. With few packets for each, interrupts can take a \
                  tenth of a CPU.",
            remedy: "let the card wait a little before it interrupts, unless latency is all that counts",
            knobs: &["coalesce_rx_usecs", "coalesce_adaptive_rx"],
            verify: "packets per interrupt rise and CPU time falls",
            source: "ethtool(8), --coalesce",
            run: storm,
            ..USUAL
        },
    ],
};

fn one_cpu(window: &Window<'_>) -> Vec<Observation> {
    let mut found = Vec::new();
    let several = |card: &Device| card.rx.len() >= 2 && window.after.stat.cpus.len() >= 2;
    for (_, card) in window.cards().filter(|(_, card)| several(card)) {
        let Some((cpu, saw, from)) = counted(window, card).or_else(|| polled(window, card)) else { continue };
        let busy = busy(window, cpu);
        let seen = Observation::with_effect(busy > 0.5, busy * 100.0)
            .on(&card.name)
            .saw(saw, from)
            .saw(format!("CPU {cpu} spends {} of its time in interrupts", percent(busy)), "/proc/stat")
            .set("irq_affinity", window.cpus_near(card));
        found.push(seen);
    }
    found
}

/// The CPU that serves nearly all interrupts of a card, unless they belong to a single queue: if one queue has all
/// packets, moving its interrupt does not spread them.
fn counted(window: &Window<'_>, card: &Device) -> Option<(u16, String, &'static str)> {
    let interrupts = window.interrupts(card);
    // Only queues in use: an interrupt for changes of the link, for example, does not count.
    let by_queue: Vec<u64> =
        interrupts.iter().map(|(_, counts)| counts.values().sum()).filter(|count| *count > 0).collect();
    let (all, alive) = (by_queue.iter().sum::<u64>(), by_queue.len());
    let largest = by_queue.into_iter().max()?;
    let (cpu, most) = by_cpu(&interrupts).into_iter().max_by_key(|(_, count)| *count)?;
    let (of_all, per_s) = (share(most, all), all as f64 / window.seconds());
    let is_so = alive >= 2 && per_s >= BUSY_PER_S && of_all >= 0.8 && share(largest, all) <= 0.8;
    let saw = format!("{} of {per_s:.0} interrupts a second of {alive} queues on CPU {cpu}", percent(of_all));
    is_so.then_some((cpu, saw, INTERRUPTS))
}

/// The CPU that all queues would interrupt and that never catches up: it polls the card, which therefore sends no
/// interrupts (Documentation/networking/napi.rst).
fn polled(window: &Window<'_>, card: &Device) -> Option<(u16, String, &'static str)> {
    let interrupts = window.interrupts(card);
    // Queues that have been in use.
    let used = interrupts.iter().map(|(interrupt, _)| *interrupt);
    let used: Vec<&Interrupt> = used
        .filter(|interrupt| {
            queue_of(&interrupt.name).is_some() && interrupt.counts.values().any(|count| *count > 0)
        })
        .collect();
    let queues: BTreeSet<u16> = used.iter().filter_map(|interrupt| queue_of(&interrupt.name)).collect();
    let cpus: BTreeSet<u16> = used.iter().flat_map(|interrupt| interrupt.affinity.iter()).collect();
    let packets_per_s = packets_per_s(window, card);
    let (&cpu, 1) = (cpus.first()?, cpus.len()) else { return None };
    // If each packet is expensive, as on a slow CPU, a few hundred fill it.
    let is_so = queues.len() >= 2 && packets_per_s >= 100.0 && busy(window, cpu) > 0.5;
    let saw = format!(
        "{packets_per_s:.0} packets a second, and all {} queues may interrupt CPU {cpu} alone",
        queues.len()
    );
    is_so.then_some((cpu, saw, "/proc/irq/…/effective_affinity_list, smp_affinity_list"))
}

fn packets_per_s(window: &Window<'_>, card: &Device) -> f64 {
    window.link_grew(&card.name, "rx_packets") as f64 / window.seconds()
}

/// Of a CPU's time, how much it spends in interrupts of both kinds.
fn busy(window: &Window<'_>, cpu: u16) -> f64 {
    window.interrupted().get(&cpu).copied().unwrap_or_default()
}

fn remote_node(window: &Window<'_>) -> Vec<Observation> {
    let mut found = Vec::new();
    for (_, card) in
        window.cards().filter(|(_, card)| card.numa_node.is_some() && !card.local_cpus.is_empty())
    {
        // Where all CPUs of the node are isolated, the interrupts are to be elsewhere.
        let near = card.local_cpus.without(&window.after.machine.isolated);
        if near.is_empty() {
            continue;
        }
        let by_cpu = by_cpu(&window.interrupts(card));
        let all: u64 = by_cpu.values().sum();
        let is_far = |cpu: &u16| !card.local_cpus.contains(*cpu);
        let far: u64 = by_cpu.iter().filter(|(cpu, _)| is_far(cpu)).map(|(_, count)| count).sum();
        let (of_all, per_s) = (share(far, all), all as f64 / window.seconds());
        if of_all < 0.1 || per_s.max(packets_per_s(window, card)) < BUSY_PER_S {
            continue;
        }
        let node = card.numa_node.unwrap_or_default();
        let interrupted = by_cpu.iter().filter(|(cpu, count)| is_far(cpu) && **count > 0);
        let busiest = interrupted.map(|(cpu, _)| busy(window, *cpu)).fold(0.0, f64::max);
        // Kernels spread interrupts over all nodes by themselves; it costs what those CPUs have to spare, or more.
        let seen = Observation::with_effect(busiest > 0.3, of_all * 30.0)
            .on(&card.name)
            .saw(
                format!("{} of {per_s:.0} interrupts a second on CPUs of other nodes", percent(of_all)),
                INTERRUPTS,
            )
            .saw(
                format!("the card is at node {node}, CPUs {}", card.local_cpus),
                format!("/sys/class/net/{}/device/numa_node, local_cpulist", card.name),
            )
            .saw(
                format!("the busiest of those spends {} of its time in interrupts", percent(busiest)),
                "/proc/stat",
            );
        // Several queues on one CPU are no better than a queue on a CPU that is far.
        let fit = card.rx.len() <= near.len();
        found.push(if fit {
            seen.set("irq_affinity", near)
        } else {
            let (queues, cpus) = (card.rx.len(), near.len());
            seen.remedy(format!(
                "the card has {queues} queues and its node {cpus} CPUs: first fewer queues (channels), if {cpus} CPUs suffice"
            ))
        });
    }
    found
}

fn moved(window: &Window<'_>) -> Vec<Observation> {
    let mut found = Vec::new();
    for (_, card) in window.cards() {
        for (now, _) in window.interrupts(card) {
            let then = window.before.interrupts.iter().find(|other| other.number == now.number);
            let Some(then) = then.filter(|then| !then.affinity.is_empty() && then.affinity != now.affinity)
            else {
                continue;
            };
            let saw = format!(
                "interrupt {} ({}) moved from CPU {} to {}",
                now.number, now.name, then.affinity, now.affinity
            );
            let from = format!("/proc/irq/{}/effective_affinity_list, smp_affinity_list", now.number);
            found.push(Observation::information().on(&card.name).saw(saw, from));
        }
    }
    found
}

fn isolated(window: &Window<'_>) -> Vec<Observation> {
    let isolated = &window.after.machine.isolated;
    let mut found = Vec::new();
    for (_, card) in window.cards().filter(|_| !isolated.is_empty()) {
        let by_cpu = by_cpu(&window.interrupts(card));
        let there: u64 =
            by_cpu.iter().filter(|(cpu, _)| isolated.contains(**cpu)).map(|(_, count)| count).sum();
        let per_s = there as f64 / window.seconds();
        if per_s >= 1.0 {
            let seen = Observation::with_effect(per_s >= 100.0, 20.0 * share(there, by_cpu.values().sum()))
                .on(&card.name)
                .saw(format!("{per_s:.0} interrupts a second on isolated CPUs"), INTERRUPTS)
                .saw(format!("isolated: {isolated}"), "/sys/devices/system/cpu/isolated, nohz_full")
                .set("irq_affinity", window.cpus_near(card));
            found.push(seen);
        }
    }
    found
}

fn storm(window: &Window<'_>) -> Vec<Observation> {
    let mut found = Vec::new();
    for (_, card) in window.cards() {
        let by_cpu = by_cpu(&window.interrupts(card));
        let all: u64 = by_cpu.values().sum();
        let packets = window.link_grew(&card.name, "rx_packets") + window.link_grew(&card.name, "tx_packets");
        let each = packets as f64 / all.max(1) as f64;
        let per_s = all as f64 / window.seconds();
        // A card with this many interrupts a second spends a tenth of a CPU on them.
        if per_s < 50_000.0 || each > 4.0 {
            continue;
        }
        let cost = window.cpus().values().map(|ticks| ticks.irq).sum::<u64>();
        let whole = window.cpus().values().map(linux::procfs::CpuTicks::total).sum();
        let seen = Observation::with_effect(share(cost, whole) > 0.05, share(cost, whole) * 100.0)
            .on(&card.name)
            .saw(format!("{per_s:.0} interrupts a second, {each:.1} packets for each"), INTERRUPTS);
        let adaptive =
            window.nic(&card.name).and_then(|nic| nic.coalescing).is_some_and(|now| now.adaptive_rx);
        found.push(if adaptive { seen } else { seen.set("coalesce_adaptive_rx", 1) });
    }
    found
}

/// All of a card's interrupts together, by CPU.
fn by_cpu(interrupts: &[(&Interrupt, linux::procfs::PerCpu)]) -> BTreeMap<u16, u64> {
    let mut sums = BTreeMap::new();
    for (cpu, count) in interrupts.iter().flat_map(|(_, counts)| counts) {
        *sums.entry(*cpu).or_default() += count;
    }
    sums
}
