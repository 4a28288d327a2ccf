//! Queues of cards, and the steering that makes up for too few.

use linux::{CpuSet, Device};

use super::SCALING;
use crate::finding::USUAL;
use crate::rate::{percent, share};
use crate::window::counter_grew;
use crate::{Check, CheckGroup, Observation, Window};

const RFS_TABLE: &str = "/proc/sys/net/core/rps_sock_flow_entries";

pub(super) const GROUP: CheckGroup = CheckGroup {
    title: "Queues and steering",
    checks: &[
        Check {
            code: "HG020",
            title: "fewer receive queues than CPUs, and RPS is off",
            why: "Only as many CPUs receive as there are queues. With RPS the CPUs that take the interrupts hand \
                  packets on to the others, by flow.",
            remedy: "on all CPUs but those that take the card's interrupts",
            knobs: &["rps_cpus", "channels"],
            verify: "NET_RX in /proc/softirqs grows on several CPUs",
            source: SCALING,
            run: no_rps,
            ..USUAL
        },
        Check {
            code: "HG021",
            title: "RPS hands packets to the CPUs that take the interrupts, or to offline CPUs",
            why: "A CPU that takes a card's interrupts already does the first half of the work. At high rates it \
                  should not do the second half too.",
            remedy: "on the other CPUs of the same NUMA node",
            knobs: &["rps_cpus"],
            verify: "the softirq share of the interrupts' CPUs in /proc/stat falls",
            source: SCALING,
            run: rps_overlap,
            ..USUAL
        },
        Check {
            code: "HG022",
            title: "RFS is half configured",
            why: "RFS needs two settings: a table for the machine and a number of flows for each queue. With only \
                  one of them no packet is steered to its reader.",
            remedy: "set both, the table first; or neither",
            knobs: &["rps_sock_flow_entries", "rps_flow_cnt"],
            verify: "both are non-zero, and the table is no smaller than the queues' flows together",
            source: SCALING,
            run: half_rfs,
            ..USUAL
        },
        Check {
            code: "HG023",
            title: "the queues track more flows than the RFS table has entries",
            why: "Flows that share an entry of the table overwrite each other, and packets go to the wrong reader's CPU.",
            remedy: "a table as large as the queues' flows together",
            knobs: &["rps_sock_flow_entries"],
            verify: "rps_sock_flow_entries is no smaller than the sum of rps_flow_cnt",
            source: SCALING,
            run: small_rfs,
            ..USUAL
        },
        Check {
            code: "HG024",
            title: "a card has several send queues, but no mapping of CPUs to them (XPS)",
            why: "With XPS each CPU sends through a queue of its own. Without it CPUs compete for a queue's lock, \
                  and another CPU than the sender handles the completion of a packet.",
            remedy: "a queue for each CPU, or for CPUs that share a cache",
            knobs: &["xps_cpus"],
            verify: "each queue's xps_cpus names CPUs, and CPU time for sending falls",
            source: SCALING,
            run: no_xps,
            ..USUAL
        },
        Check {
            code: "HG025",
            title: "the card uses fewer queues than it has",
            why: "It could spread packets over more CPUs by itself, which costs less than RPS.",
            remedy: "as many queues as CPUs of the card's node, at most as many as it has",
            knobs: &["channels"],
            verify: "more lines of the card in /proc/interrupts grow, and the busiest CPU has more time",
            source: "ethtool(8), --set-channels",
            run: few_channels,
            ..USUAL
        },
        Check {
            code: "HG026",
            title: "one receive queue has nearly all the packets",
            why: "The card chooses the queue by a hash of the flow. Tunnels, fragments and few large flows look like one flow to \
                it.",
            remedy: "if there are many flows: hash ports too (UDP), or give the queues equal weights; if there are few, only RPS or more flows help",
            knobs: &["rss_indirection", "rps_cpus"],
            verify: "the queues' interrupts grow at the same rate",
            source: SCALING,
            run: skewed,
            ..USUAL
        },
    ],
};

fn queues_of(card: &Device) -> String {
    format!("/sys/class/net/{}/queues", card.name)
}

/// The CPUs on which a card's interrupts came in the window. A CPU that never catches up polls the card, which then
/// sends none (Documentation/networking/napi.rst): if none came at all, those that may take the interrupts that
/// were ever in use.
fn interrupted_by(window: &Window<'_>, card: &Device) -> CpuSet {
    let interrupts = window.interrupts(card);
    let counts = interrupts.iter().flat_map(|(_, counts)| counts);
    let came: CpuSet = counts.filter(|(_, count)| **count > 0).map(|(cpu, _)| *cpu).collect();
    if !came.is_empty() {
        return came;
    }
    let used = interrupts.iter().filter(|(interrupt, _)| interrupt.counts.values().any(|count| *count > 0));
    used.flat_map(|(interrupt, _)| interrupt.affinity.iter()).collect()
}

/// The CPU that a card's packets fill, if one is full. Some buses have no interrupt that could be told to be a card's
/// (VMBus, Xen): then it is the card that receives most.
fn filled_by(window: &Window<'_>, card: &Device) -> Option<(u16, f64)> {
    let taking = interrupted_by(window, card);
    let full = window.saturated()?;
    let is_its = if taking.is_empty() { receives_most(window, card) } else { taking.contains(full.0) };
    is_its.then_some(full)
}

/// Whether a card receives packets, and no other card more of them.
fn receives_most(window: &Window<'_>, card: &Device) -> bool {
    let received = |card: &Device| window.link_grew(&card.name, "rx_packets");
    let its = received(card);
    its as f64 / window.seconds() >= 100.0 && window.cards().all(|(_, other)| received(other) <= its)
}

fn no_rps(window: &Window<'_>) -> Vec<Observation> {
    let cpus: Vec<u16> = window.after.stat.cpus.keys().copied().collect();
    let without = window.cards().filter(|(_, card)| {
        card.rx.len() < cpus.len() && !card.rx.is_empty() && card.rx.iter().all(|rx| rx.rps.is_empty())
    });
    let seen = |(_, card): (_, &Device)| {
        let taking = interrupted_by(window, card);
        let full = filled_by(window, card);
        let seen = Observation::with_effect(full.is_some(), full.map_or(0.0, |(_, share)| share * 100.0))
            .on(&card.name)
            .saw(
                format!(
                    "{} for {} CPUs, rps_cpus is empty",
                    counted(card.rx.len(), "receive queue"),
                    cpus.len()
                ),
                queues_of(card),
            );
        let near = window.cpus_near(card);
        let others: CpuSet = near.iter().filter(|cpu| !taking.contains(*cpu)).collect();
        // Where all take interrupts, all may receive.
        let others = if others.is_empty() { near } else { others };
        match full {
            Some((cpu, share)) => {
                let saw = if taking.is_empty() {
                    let share = percent(share);
                    format!("CPU {cpu} is {share} busy with interrupts; which are this card's is not known")
                } else {
                    format!("CPU {cpu}, which takes its interrupts, is {} busy with them", percent(share))
                };
                let others = others.iter().filter(|other| *other != cpu).collect::<CpuSet>();
                seen.saw(saw, "/proc/stat").set("rps_cpus", others)
            }
            None => seen.remedy("nothing now: no CPU is short of time; with more packets, set rps_cpus"),
        }
    };
    let found: Vec<Observation> = without.map(seen).collect();
    let of_card = found.iter().any(|seen| seen.severity == crate::Severity::Warning);
    if of_card { found } else { found.into_iter().chain(no_rps_of_virtual(window)).collect() }
}

/// Kinds of links that take over packets of a link below them. RPS has chosen the CPU by the settings of that link
/// (`netif_receive_skb_internal`), and these only send the packet once more through `__netif_receive_skb_core`
/// (`another_round`), which does not ask for their own.
const STACKED: [&str; 7] = ["bond", "team", "vlan", "macvlan", "macvtap", "ipvlan", "ipvtap"];

/// Whether RPS looks at the settings of a virtual link.
fn heeds_rps(window: &Window<'_>, device: &Device) -> bool {
    let kind = window.after.answers.kinds.get(&device.name);
    device.below.is_empty() && !kind.is_some_and(|kind| STACKED.contains(&kind.as_str()))
}

/// The end of a veth has one receive queue, which the sending CPU works on. If a CPU is full and no card fills it, the
/// veth that receives most does.
fn no_rps_of_virtual(window: &Window<'_>) -> Option<Observation> {
    let (cpu, full) = window.saturated()?;
    let links = window.devices().filter(|(_, device)| {
        let receives = device.up && !device.rx.is_empty();
        receives && !device.hardware && device.name.as_str() != "lo" && heeds_rps(window, device)
    });
    let rates = links.map(|pair| (counter_grew(pair, "rx_packets") as f64 / window.seconds(), pair.1));
    let (rate, busiest) = rates.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let steered = busiest.rx.iter().any(|rx| !rx.rps.is_empty());
    if steered || rate < 100.0 {
        return None;
    }
    let others: CpuSet = window.cpus_near(busiest).iter().filter(|other| *other != cpu).collect();
    let seen = Observation::warning(full * 100.0)
        .on(&busiest.name)
        .saw(format!("{}, rps_cpus is empty", counted(busiest.rx.len(), "receive queue")), queues_of(busiest))
        .saw(
            format!("it received {rate:.0} packets a second"),
            format!("/sys/class/net/{}/statistics", busiest.name),
        )
        .saw(format!("CPU {cpu} is {} busy with interrupts", percent(full)), "/proc/stat");
    Some(seen.set("rps_cpus", others))
}

fn rps_overlap(window: &Window<'_>) -> Vec<Observation> {
    let online: CpuSet = window.after.stat.cpus.keys().copied().collect();
    let mut found = Vec::new();
    for (_, card) in window.cards() {
        let taking = interrupted_by(window, card);
        let targets: CpuSet = card.rx.iter().flat_map(|rx| rx.rps.iter()).collect();
        let both: CpuSet = targets.iter().filter(|cpu| taking.contains(*cpu)).collect();
        let off: CpuSet = targets.iter().filter(|cpu| !online.contains(*cpu)).collect();
        // With all CPUs taking interrupts there is no other choice.
        let overlap = !both.is_empty() && taking.len() < online.len();
        if !overlap && off.is_empty() {
            continue;
        }
        let busy = both.iter().map(|cpu| window.interrupted().get(&cpu).copied().unwrap_or_default());
        let busy = busy.fold(0.0, f64::max);
        let near = window.cpus_near(card).without(&taking);
        // If all near ones take interrupts: others, or else those that are named and on line.
        let choices =
            [near, online.without(&taking), targets.iter().filter(|cpu| online.contains(*cpu)).collect()];
        let rest = choices.into_iter().find(|cpus| !cpus.is_empty()).unwrap_or_default();
        let mut seen = Observation::with_effect(overlap && busy > 0.8, busy * 60.0)
            .on(&card.name)
            .saw(format!("rps_cpus names CPUs {targets}"), queues_of(card));
        if overlap {
            seen = seen.saw(
                format!("CPUs {both} take its interrupts and are up to {} busy with them", percent(busy)),
                "/proc/interrupts",
            );
        }
        if !off.is_empty() {
            seen = seen.saw(format!("CPUs {off} are offline"), "/proc/stat");
        }
        found.push(seen.set("rps_cpus", rest));
    }
    found
}

/// All flows that queues follow, and the places of the table.
fn rfs(window: &Window<'_>) -> (u64, u64) {
    let queues = window.after.devices.iter().flat_map(|device| &device.rx);
    let flows = queues.map(|rx| u64::from(rx.flows)).sum();
    (flows, window.number("net/core/rps_sock_flow_entries").unwrap_or_default())
}

fn half_rfs(window: &Window<'_>) -> Vec<Observation> {
    let (flows, entries) = rfs(window);
    if (flows == 0) == (entries == 0) || window.sysctl("net/core/rps_sock_flow_entries").is_none() {
        return Vec::new();
    }
    let queues = window
        .after
        .devices
        .iter()
        .filter(|device| device.hardware)
        .map(|device| device.rx.len())
        .sum::<usize>();
    // It was requested and has no effect, but does no harm either.
    let seen = Observation::with_effect(false, 5.0)
        .saw(format!("rps_sock_flow_entries is {entries}"), RFS_TABLE)
        .saw(format!("the queues track {flows} flows"), "/sys/class/net/*/queues/rx-*/rps_flow_cnt");
    vec![if entries == 0 {
        seen.set("rps_sock_flow_entries", flows.next_power_of_two())
    } else {
        seen.set("rps_flow_cnt", (entries / queues.max(1).next_power_of_two() as u64).max(1))
    }]
}

fn small_rfs(window: &Window<'_>) -> Vec<Observation> {
    let (flows, entries) = rfs(window);
    if entries == 0 || flows <= entries {
        return Vec::new();
    }
    let seen = Observation::information()
        .saw(format!("{entries} places"), RFS_TABLE)
        .saw(format!("the queues track {flows} flows"), "/sys/class/net/*/queues/rx-*/rps_flow_cnt")
        .set("rps_sock_flow_entries", flows.next_power_of_two());
    vec![seen]
}

fn no_xps(window: &Window<'_>) -> Vec<Observation> {
    let without = |card: &Device| {
        card.tx.len() > 1 && card.tx.iter().all(|tx| tx.xps.as_ref().is_some_and(CpuSet::is_empty))
    };
    let seen = |(_, card): (_, &Device)| {
        // No counter shows how long CPUs waited for each other's locks.
        Observation::information()
            .on(&card.name)
            .saw(format!("{} send queues, xps_cpus of all is empty", card.tx.len()), queues_of(card))
            .set("xps_cpus", "node")
    };
    window.cards().filter(|(_, card)| without(card)).map(seen).collect()
}

fn few_channels(window: &Window<'_>) -> Vec<Observation> {
    let mut found = Vec::new();
    for (_, card) in window.cards() {
        let cpus = u32::try_from(window.cpus_near(card).len()).unwrap_or(u32::MAX);
        let Some(channels) = window.nic(&card.name).and_then(|nic| nic.channels) else { continue };
        let (now, most) = (channels.combined + channels.rx, channels.combined_max.max(channels.rx_max));
        let useful = most.min(cpus);
        if now >= useful || now == 0 {
            continue;
        }
        let full = filled_by(window, card);
        // Sorted above RPS, since the card does it without CPU time.
        let seen =
            Observation::with_effect(full.is_some(), full.map_or(0.0, |(_, share)| share * 100.0 + 1.0))
                .on(&card.name)
                .saw(
                    format!("{now} queues in use, {most} there, {cpus} CPUs near the card"),
                    "ETHTOOL_GCHANNELS",
                )
                .set("channels", useful);
        found.push(match full {
            Some((cpu, share)) => {
                seen.saw(format!("CPU {cpu} is {} busy with them", percent(share)), "/proc/stat")
            }
            None => seen,
        });
    }
    found
}

fn skewed(window: &Window<'_>) -> Vec<Observation> {
    let mut found = Vec::new();
    for (_, card) in window.cards().filter(|(_, card)| card.rx.len() > 1) {
        let counts: Vec<(&str, u64)> = window
            .interrupts(card)
            .iter()
            .map(|(interrupt, counts)| (interrupt.name.as_str(), counts.values().sum()))
            .collect();
        let all: u64 = counts.iter().map(|(_, count)| count).sum();
        let Some((name, most)) = counts.iter().max_by_key(|(_, count)| *count) else { continue };
        let (of_all, per_s) = (share(*most, all), all as f64 / window.seconds());
        if counts.len() < 2 || per_s < 1000.0 || of_all < 0.8 {
            continue;
        }
        let full = window.saturated().filter(|(cpu, _)| interrupted_by(window, card).contains(*cpu));
        let seen = Observation::with_effect(full.is_some(), full.map_or(0.0, |(_, share)| share * 90.0))
            .on(&card.name)
            .saw(
                format!("{} of {per_s:.0} interrupts a second are {name}'s", percent(of_all)),
                "/proc/interrupts",
            );
        found.push(seen);
    }
    found
}

/// `1 receive queue`, `4 receive queues`.
fn counted(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}
