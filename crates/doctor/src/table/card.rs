//! Cards: what they dropped, could not send, or were not allowed to carry.

use std::collections::BTreeMap;

use linux::Device;

use super::STATISTICS;
use crate::finding::USUAL;
use crate::rate::{percent, share};
use crate::window::counter_grew;
use crate::{Check, CheckGroup, Observation, Window};

pub(super) const GROUP: CheckGroup = CheckGroup {
    title: "Cards",
    checks: &[
        Check {
            code: "HG030",
            title: "the card's receive ring overflows",
            why: "The card had packets and no free place in its ring: the CPU that empties it was too slow. These \
                  packets are lost before the kernel sees them.",
            remedy: "the ring has its greatest size: spread its interrupts over more CPUs, or move other work off that CPU",
            knobs: &["ring_rx", "irq_affinity", "coalesce_rx_usecs"],
            verify: "the card's counters of missed packets no longer grow",
            source: STATISTICS,
            follows: &["HG001", "HG010", "HG020", "HG031"],
            run: overflow,
        },
        Check {
            code: "HG031",
            title: "the driver gets no memory for received packets",
            why: "The driver allocates memory in interrupts, when the kernel cannot wait for free memory. Without \
                  it the ring runs empty and packets are lost.",
            remedy: "let the kernel keep more memory free (vm.min_free_kbytes, 1 to 3 % of it), or use smaller rings",
            verify: "the driver's counters of failed allocations no longer grow",
            source: "the drivers' own documentation (ena, mlx5, ixgbe)",
            run: no_memory,
            ..USUAL
        },
        Check {
            code: "HG032",
            title: "the card's send ring is often full",
            why: "The kernel stops a send queue when the ring has no room. Packets then wait in the qdisc, and sending costs more.",
            remedy: "let the card report sent packets sooner; a larger ring helps only against bursts",
            knobs: &["coalesce_tx_usecs", "ring_tx"],
            verify: "the driver's counters of stopped queues grow more slowly",
            source: "the drivers' own documentation (ena, mlx5, ixgbe)",
            run: stopped,
            ..USUAL
        },
        Check {
            code: "HG033",
            title: "the card stopped sending and was reset",
            why: "The kernel gave up waiting for the card and reset it. Everything in its rings was lost.",
            remedy: "check the kernel's log; update driver and firmware, and make sure that CPUs have time for its interrupts",
            verify: "tx_timeout of its queues no longer grows",
            source: "Documentation/ABI/testing/sysfs-class-net-queues",
            run: hung,
            ..USUAL
        },
        Check {
            code: "HG034",
            title: "the cloud's allowance for this machine is exceeded",
            why: "The provider limits bandwidth, packets a second and connections of each machine from outside, \
                  and delays or drops the excess. No setting inside the machine changes that.",
            remedy: "send less or more evenly, or take a larger machine: no setting raises the allowance",
            knobs: &[],
            verify: "the counters …_allowance_exceeded no longer grow",
            source: "amzn-drivers, ENA_Linux_Best_Practices.rst",
            run: allowance,
            ..USUAL
        },
        Check {
            code: "HG035",
            title: "the link damages packets",
            why: "Checksums of frames were wrong, or symbols on the wire: a cable, a connector, an optical module, a port.",
            remedy: "replace the cable or module, and check the other end's counters too",
            verify: "rx_crc_errors and similar counters no longer grow",
            source: STATISTICS,
            run: damaged,
            ..USUAL
        },
        Check {
            code: "HG036",
            title: "the other end of the link asks to pause",
            why: "Flow control stops all traffic on the link while one receiver is full, even traffic to other destinations.",
            remedy: "find the receiver that is full; switch flow control off where loss is better than waiting",
            verify: "the counters of pause frames grow more slowly",
            source: "ethtool(8), --pause",
            run: paused,
            ..USUAL
        },
        Check {
            code: "HG037",
            title: "the card's link went down and came up again",
            why: "Each time the packets in its queues are lost, and switches have to learn the path again.",
            remedy: "check the kernel's log and the other end: cable, module, negotiation, or a link that was set down by hand",
            verify: "carrier_changes no longer grows",
            source: "Documentation/ABI/testing/sysfs-class-net",
            run: flaps,
            ..USUAL
        },
        Check {
            code: "HG038",
            title: "the card cannot pass on what it receives",
            why: "The card's own memory, before any ring, is full. With flow control the card asks the other end \
                  to pause, and everything on the link waits; without it packets are dropped at the port. The \
                  cable is in order: rings, CPUs or the slot are too slow.",
            remedy: "give the card's interrupts more CPU time, or more CPUs; check the lanes of its slot and its IOMMU",
            knobs: &["irq_affinity", "channels"],
            verify: "the counters of pause frames that were sent, and of discards at the port, grow more slowly",
            source: "ethtool(8), --pause; the drivers' own documentation (mlx5, ixgbe)",
            follows: &["HG001", "HG010", "HG152"],
            run: congested,
        },
    ],
};

/// Kinds of drivers' statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatisticKind {
    Overflow,
    NoMemory,
    Stopped,
    Hung,
    Allowance,
    Damaged,
    Paused,
    Congested,
}

/// What Intel's cards count when a packet finds no place in the ring. It then waits in the card's own memory and is
/// lost only if that is full too, which rx_missed_errors counts (their datasheets, RNBC and MPC).
const LATE: &str = "rx_no_buffer_count";

/// The counter of mlx5 for packets that arrive while its port's buffer is full and no pause is requested (its
/// counters' documentation: "dropped due to lack of buffers on a physical port").
const DISCARDED: &str = "rx_discards_phy";

/// The drivers' names for it; a star matches any text. From the drivers' sources and documentation.
const NAMES: &[(StatisticKind, &[&str])] = &[
    (
        StatisticKind::Overflow,
        &[
            "rx_missed_errors",
            "rx_fifo_errors",
            "rx_over_errors",
            "rx_overruns",
            "rx_out_of_buffer",
            "rx_no_dma_resources",
            LATE,
            "port.rx_dropped",
            "rx_dropped.nic",
            "rx_queue_drop_cnt*",
            "rx_total_discard_pkts",
            "rx_comp_busy",
            "pkts rx OOB",
        ],
    ),
    (
        StatisticKind::NoMemory,
        &[
            "*page_alloc_fail",
            "*refil_partial",
            "*empty_rx_ring",
            "rx*buff_alloc_err",
            "*rx_alloc_fail",
            "*rx_pg_alloc_fail",
            "alloc_rx_page_failed",
            "alloc_rx_buff_failed",
            "rx_no_memory",
            "rx_total_oom_discards",
        ],
    ),
    (StatisticKind::Stopped, &["*tx_queue_stop", "*tx_queue_stopped", "tx_restart_queue", "tx_busy"]),
    (
        StatisticKind::Hung,
        &["tx_timeout", "tx_timeouts", "*tx_timeouts", "tx_timeout_count", "*missing_tx_cmpl"],
    ),
    (StatisticKind::Allowance, &["*allowance_exceeded"]),
    (StatisticKind::Damaged, &["rx_crc_errors*", "rx_frame_errors", "rx_symbol_err_phy", "symbol_err*"]),
    (
        StatisticKind::Paused,
        &[
            "rx_pause_ctrl_phy",
            "rx_prio*_pause",
            "rx_flow_control_x*",
            "rx_pause_frames",
            "port.link_xoff_rx",
            "link_xoff_rx.nic",
        ],
    ),
    (
        StatisticKind::Congested,
        &[
            DISCARDED,
            "tx_pause_ctrl_phy",
            "tx_prio*_pause",
            "tx_flow_control_x*",
            "tx_pause_frames",
            "port.link_xoff_tx",
            "link_xoff_tx.nic",
        ],
    ),
];

fn is_named(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, end)) => {
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
    }
}

/// The drivers that report the drops of a full ring only in `rx_dropped` of the link (`ena_get_stats64` takes them from
/// the device's keep-alive events; newer drivers of Amazon's own also have `rx_overruns`).
const ONLY_DROPPED: &[&str] = &["ena"];

/// What the device dropped, according to a counter that the kernel shares: it also has what waited in vain for a CPU
/// (softnet_stat counts that for all links), and packets of protocols that nobody here speaks, of which few come.
fn dropped(window: &Window<'_>, looks: (&Device, &Device)) -> Option<u64> {
    looks.1.driver.as_deref().filter(|driver| ONLY_DROPPED.contains(driver))?;
    let waited = window.backlogs().map(|cpu| cpu.dropped).sum();
    let dropped = counter_grew(looks, "rx_dropped").saturating_sub(waited);
    (lost(window, looks.1, dropped) > 0.0001).then_some(dropped)
}

/// The statistics of a kind that grew: the kernel's own of the link, and the driver's.
fn of_kind(
    window: &Window<'_>,
    (before, card): (&Device, &Device),
    kind: StatisticKind,
) -> BTreeMap<String, u64> {
    let patterns = NAMES.iter().filter(|(of, _)| *of == kind).flat_map(|(_, patterns)| *patterns);
    let patterns: Vec<&str> = patterns.copied().collect();
    let ours = |name: &str| patterns.iter().any(|pattern| is_named(pattern, name));
    let mut grew: BTreeMap<String, u64> =
        window.driver_grew(&card.name).into_iter().map(|(name, growth)| (name.to_owned(), growth)).collect();
    for name in card.counters.keys() {
        let growth = counter_grew((before, card), name);
        grew.entry(name.clone()).or_insert(growth);
    }
    grew.retain(|name, growth| *growth > 0 && ours(name));
    if kind == StatisticKind::Overflow {
        grew.extend(dropped(window, (before, card)).map(|growth| ("rx_dropped".to_owned(), growth)));
    }
    grew
}

/// The least number of packets that a card lost because its ring was full (two names may count one packet).
pub(super) fn overflowed(window: &Window<'_>, looks: (&Device, &Device)) -> u64 {
    missed(&of_kind(window, looks, StatisticKind::Overflow))
}

/// Growth without the counters of packets that were only late.
fn missed(grew: &BTreeMap<String, u64>) -> u64 {
    grew.iter().filter(|(name, _)| *name != LATE).map(|(_, growth)| *growth).max().unwrap_or_default()
}

/// One finding for each card where statistics of a kind grew.
fn grown(
    window: &Window<'_>,
    kind: StatisticKind,
    judge: impl Fn(&Device, &BTreeMap<String, u64>) -> Option<Observation>,
) -> Vec<Observation> {
    let mut found = Vec::new();
    for (before, card) in window.cards() {
        let grew = of_kind(window, (before, card), kind);
        let Some(seen) = (!grew.is_empty()).then(|| judge(card, &grew)).flatten() else { continue };
        let figures: Vec<String> = grew.iter().map(|(name, growth)| format!("{name} +{growth}")).collect();
        let from = format!("statistics of {} (/sys/class/net/{0}/statistics, ETHTOOL_GSTATS)", card.name);
        let mut seen = seen.on(&card.name);
        seen.evidence.insert(0, crate::Evidence { saw: figures.join(", "), read_from: from });
        found.push(seen);
    }
    found
}

fn most(grew: &BTreeMap<String, u64>) -> u64 {
    grew.values().copied().max().unwrap_or_default()
}

/// Of all packets received in the window.
fn lost(window: &Window<'_>, card: &Device, lost: u64) -> f64 {
    share(lost, window.link_grew(&card.name, "rx_packets") + lost)
}

fn overflow(window: &Window<'_>) -> Vec<Observation> {
    grown(window, StatisticKind::Overflow, |card, grew| {
        let missed = missed(grew);
        let lost = lost(window, card, missed);
        let seen = Observation::with_effect(missed > 0, 20.0 + lost * 100.0);
        let seen = seen.saw(format!("{} of what it received is lost", percent(lost)), STATISTICS);
        if missed == 0 {
            return Some(seen.remedy(
                "nothing now: packets that found no place in the ring waited in the card, and were not lost",
            ));
        }
        let rings = window.nic(&card.name).and_then(|nic| nic.rings).filter(|rings| rings.rx < rings.rx_max);
        Some(match rings {
            None => seen,
            Some(rings) => seen
                .saw(
                    format!("the ring has {} places and could have {}", rings.rx, rings.rx_max),
                    "ETHTOOL_GRINGPARAM",
                )
                .set("ring_rx", (rings.rx * 2).min(rings.rx_max))
                .remedy("a ring holds bursts; if it still overflows, the CPU is too slow for the load"),
        })
    })
}

fn no_memory(window: &Window<'_>) -> Vec<Observation> {
    grown(window, StatisticKind::NoMemory, |card, grew| {
        Some(Observation::warning(25.0 + lost(window, card, most(grew)) * 100.0))
    })
}

fn stopped(window: &Window<'_>) -> Vec<Observation> {
    grown(window, StatisticKind::Stopped, |card, grew| {
        let per_s = most(grew) as f64 / window.seconds();
        let sent = window.link_grew(&card.name, "tx_packets");
        let seen = Observation::with_effect(per_s > 10.0, share(most(grew), sent) * 100.0 + 1.0);
        let back = super::links::came_back(window, card);
        let seen =
            seen.saw(format!("{back} packets came back to the qdisc for it (requeues)"), "RTM_GETQDISC");
        let rings = window.nic(&card.name).and_then(|nic| nic.rings).filter(|rings| rings.tx < rings.tx_max);
        Some(rings.map_or(seen.clone(), |rings| seen.set("ring_tx", (rings.tx * 2).min(rings.tx_max))))
    })
}

fn hung(window: &Window<'_>) -> Vec<Observation> {
    grown(window, StatisticKind::Hung, |_, _| Some(Observation::warning(80.0)))
}

fn allowance(window: &Window<'_>) -> Vec<Observation> {
    grown(window, StatisticKind::Allowance, |card, grew| {
        let packets = window.link_grew(&card.name, "rx_packets") + window.link_grew(&card.name, "tx_packets");
        // Above losses of TCP, which this explains.
        Some(Observation::warning(60.0 + share(most(grew), packets) * 40.0))
    })
}

fn damaged(window: &Window<'_>) -> Vec<Observation> {
    grown(window, StatisticKind::Damaged, |card, grew| {
        let (count, lost) = (most(grew), lost(window, card, most(grew)));
        // A cable of copper may have a bit wrong in a day.
        Some(Observation::with_effect(count >= 10 || lost > 1e-6, 30.0 + lost * 100.0))
    })
}

fn paused(window: &Window<'_>) -> Vec<Observation> {
    grown(window, StatisticKind::Paused, |_, grew| {
        let per_s = most(grew) as f64 / window.seconds();
        Some(Observation::with_effect(per_s > 100.0, (per_s / 100.0).min(40.0)))
    })
}

fn congested(window: &Window<'_>) -> Vec<Observation> {
    grown(window, StatisticKind::Congested, |card, grew| {
        let dropped = grew.get(DISCARDED).copied().unwrap_or_default();
        let pauses = grew.iter().filter(|(name, _)| *name != DISCARDED).map(|(_, growth)| *growth).max();
        let pauses_per_s = pauses.unwrap_or_default() as f64 / window.seconds();
        let lost = lost(window, card, dropped);
        let seen = Observation::with_effect(
            dropped > 0 || pauses_per_s > 100.0,
            if dropped > 0 { 20.0 + lost * 100.0 } else { (pauses_per_s / 100.0).min(40.0) },
        );
        Some(if dropped > 0 {
            seen.saw(format!("{} of what arrived is dropped at the port", percent(lost)), STATISTICS)
        } else {
            seen
        })
    })
}

fn flaps(window: &Window<'_>) -> Vec<Observation> {
    let pairs = window
        .devices()
        .filter(|(before, after)| after.hardware && after.carrier_changes > before.carrier_changes);
    let seen = |(before, after): (&Device, &Device)| {
        let saw = format!("{} changes of its carrier", after.carrier_changes - before.carrier_changes);
        Observation::warning(50.0)
            .on(&after.name)
            .saw(saw, format!("/sys/class/net/{}/carrier_changes", after.name))
    };
    pairs.map(seen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, kind: Option<StatisticKind>) {
        let found = NAMES.iter().find(|(_, patterns)| patterns.iter().any(|pattern| is_named(pattern, name)));
        assert_eq!(found.map(|(kind, _)| *kind), kind, "{name}");
    }

    #[test]
    fn drivers_names_are_known() {
        check("rx_out_of_buffer", Some(StatisticKind::Overflow));
        check("rx_queue_drop_cnt[3]", Some(StatisticKind::Overflow));
        check("queue_4_rx_page_alloc_fail", Some(StatisticKind::NoMemory));
        check("rx7_buff_alloc_err", Some(StatisticKind::NoMemory));
        check("queue_0_tx_queue_stop", Some(StatisticKind::Stopped));
        check("bw_in_allowance_exceeded", Some(StatisticKind::Allowance));
        check("conntrack_allowance_available", None);
        check("rx_prio3_pause", Some(StatisticKind::Paused));
        check("rx_pause_ctrl_phy", Some(StatisticKind::Paused));
        check("tx_pause_ctrl_phy", Some(StatisticKind::Congested));
        check("tx_flow_control_xoff", Some(StatisticKind::Congested));
        check("tx_prio3_pause_duration", None);
        check("rx_discards_phy", Some(StatisticKind::Congested));
        check("rx_packets", None);
    }
}
