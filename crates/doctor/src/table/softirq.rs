//! The CPUs that receive: saturation, backlogs, budgets.

use linux::procfs::SoftnetCpu;

use super::SCALING;
use crate::finding::USUAL;
use crate::rate::{percent, share};
use crate::{Check, CheckGroup, Observation, Window};

const SOFTNET: &str = "/proc/net/softnet_stat";
const NET_SYSCTL: &str = "Documentation/admin-guide/sysctl/net.rst";

pub(super) const GROUP: CheckGroup = CheckGroup {
    title: "Soft interrupts",
    checks: &[
        Check {
            code: "HG001",
            title: "one CPU is saturated by soft interrupts while others idle",
            why: "The CPU that takes the card's interrupt receives its packets. When that CPU is full, packets \
                  wait and are dropped, although other CPUs have time.",
            remedy: "spread the work: more queues if the card has them, interrupts on several CPUs, otherwise RPS",
            knobs: &["channels", "irq_affinity", "rps_cpus"],
            verify: "the highest softirq share in /proc/stat falls and packets per second rise",
            source: SCALING,
            follows: &["HG010", "HG020", "HG021", "HG025", "HG026"],
            run: saturated,
        },
        Check {
            code: "HG002",
            title: "a CPU's backlog overflows",
            why: "Packets that RPS, veths, tunnels and the loopback hand to a CPU wait in its backlog. When it is \
                  full the packet is dropped, and the sender is not notified.",
            remedy: "spread the work over more CPUs first; a longer backlog helps only against bursts, and makes packets wait",
            knobs: &["netdev_max_backlog", "rps_cpus"],
            verify: "the second column of /proc/net/softnet_stat no longer grows",
            source: NET_SYSCTL,
            follows: &["HG001", "HG003"],
            run: backlog,
        },
        Check {
            code: "HG003",
            title: "the flow limit drops packets of large flows",
            why: "With a flow limit a flow that fills more than half of a CPU's backlog loses packets, so that \
                  others do not. That is its purpose; but the flow is then limited by one CPU.",
            remedy: "let the flow be received elsewhere (RFS), or widen the CPU's share; switch the limit off where the flow matters most",
            knobs: &["flow_limit_cpu_bitmap", "rps_flow_cnt"],
            verify: "the eleventh column of /proc/net/softnet_stat no longer grows",
            source: SCALING,
            run: flow_limit,
            ..USUAL
        },
        Check {
            code: "HG004",
            title: "receive work is cut short by its budget",
            why: "A round of receiving ends after netdev_budget packets or netdev_budget_usecs, even if more are \
                  waiting. By itself that shares the CPU fairly; it matters if packets are lost meanwhile.",
            remedy: "spread the work first; only then a larger budget, which makes programs on that CPU wait longer",
            knobs: &["netdev_budget_usecs", "netdev_budget"],
            verify: "the third column of /proc/net/softnet_stat grows more slowly, and no packets are lost",
            source: NET_SYSCTL,
            follows: &["HG001", "HG010", "HG020"],
            run: squeezed,
        },
        Check {
            code: "HG005",
            title: "tasks wait for interrupts to end",
            why: "While interrupts are handled, nothing else runs on that CPU. The kernel measured how long \
                  runnable tasks had to wait for that; requests wait as long.",
            remedy: "move the card's interrupts off the CPUs of latency-critical programs, or let polling run in threads",
            knobs: &["irq_affinity", "threaded_napi"],
            verify: "total in /proc/pressure/irq grows more slowly",
            source: "Documentation/accounting/psi.rst",
            follows: &["HG001", "HG010", "HG020"],
            run: pressure,
        },
        Check {
            code: "HG006",
            title: "receive steering costs more interrupts than it saves",
            why: "Each packet that RPS moves may cost an interrupt of another CPU. Where the card has a queue for \
                  each CPU, its own hash has already spread the packets.",
            remedy: "switch RPS off on this link: it has as many queues as there are CPUs",
            knobs: &["rps_cpus"],
            verify: "the tenth column of /proc/net/softnet_stat no longer grows, and CPU time for a request falls",
            source: SCALING,
            run: needless_rps,
            ..USUAL
        },
    ],
};

fn saturated(window: &Window<'_>) -> Vec<Observation> {
    let Some((cpu, most)) = window.saturated() else { return Vec::new() };
    let rounds = |kind: &str| window.softirqs(kind).get(&cpu).copied().unwrap_or_default();
    let packets = window.backlogs().find(|row| row.cpu == cpu).map_or(0, |row| row.processed);
    let per_s = packets as f64 / window.seconds();
    // The kernel does not report the time by kind, and rounds are no measure of it: one may take a microsecond or
    // milliseconds. But a CPU that hardly receives, or that works more often for a disk, does not count here. If
    // packets are expensive, some tens a second can fill it.
    let others_work: u64 = ["BLOCK", "IRQ_POLL", "TASKLET"].iter().map(|kind| rounds(kind)).sum();
    if per_s < 20.0 || rounds("NET_RX") < others_work {
        return Vec::new();
    }
    let others: Vec<String> = window
        .interrupted()
        .iter()
        .filter(|(other, _)| **other != cpu)
        .map(|(other, share)| format!("CPU {other}: {}", percent(*share)))
        .take(7)
        .collect();
    let seen = Observation::warning(most * 100.0)
        .on(format!("CPU {cpu}"))
        .saw(format!("{} of its time in interrupts ({})", percent(most), others.join(", ")), "/proc/stat")
        .saw(format!("it handled {per_s:.0} packets a second"), SOFTNET);
    vec![seen]
}

fn backlog(window: &Window<'_>) -> Vec<Observation> {
    let (all, processed) = growth(window, |cpu| (cpu.dropped, cpu.processed));
    // Summed over all CPUs, since the CPU that limits a flow is not the one that owns the backlog.
    let dropped = all.saturating_sub(growth(window, |cpu| (cpu.flow_limited, 0)).0);
    if dropped == 0 {
        return Vec::new();
    }
    let lost = share(dropped, processed + dropped);
    let seen = Observation::warning(20.0 + lost * 100.0)
        .saw(format!("{dropped} packets dropped, {} of those handled", percent(lost)), SOFTNET);
    // Only the machine's first namespace has the parameter.
    let Some(limit) = window.number("net/core/netdev_max_backlog") else { return vec![seen] };
    let seen = seen.saw(format!("a backlog holds {limit} packets"), "/proc/sys/net/core/netdev_max_backlog");
    vec![if limit < 4000 { seen.set("netdev_max_backlog", limit * 2) } else { seen }]
}

fn flow_limit(window: &Window<'_>) -> Vec<Observation> {
    let (limited, processed) = growth(window, |cpu| (cpu.flow_limited, cpu.processed));
    if limited == 0 {
        return Vec::new();
    }
    let lost = share(limited, processed + limited);
    let seen = Observation::warning(20.0 + lost * 100.0).saw(
        format!("{limited} packets of large flows dropped, {} of those handled", percent(lost)),
        SOFTNET,
    );
    vec![seen]
}

fn squeezed(window: &Window<'_>) -> Vec<Observation> {
    let (squeezed, _) = growth(window, |cpu| (cpu.squeezed, cpu.processed));
    let rounds: u64 = window.softirqs("NET_RX").values().sum();
    let cut = share(squeezed, rounds);
    if squeezed < 10 || cut < 0.01 {
        return Vec::new();
    }
    let (dropped, _) = growth(window, |cpu| (cpu.dropped, 0));
    let missed: u64 = window.cards().map(|looks| super::card::overflowed(window, looks)).sum();
    let seen = Observation::with_effect(dropped + missed > 0, cut * 100.0)
        .saw(format!("{squeezed} of {rounds} rounds of receiving were cut short, {}", percent(cut)), SOFTNET);
    vec![if dropped + missed > 0 {
        seen.saw(format!("{dropped} packets dropped at backlogs, {missed} at cards meanwhile"), SOFTNET)
    } else {
        seen.remedy("nothing: it lost no packets")
    }]
}

fn pressure(window: &Window<'_>) -> Vec<Observation> {
    let pressures = window.before.irq_pressure.zip(window.after.irq_pressure);
    let waited = pressures.map_or(0, |(before, after)| after.full_us.saturating_sub(before.full_us));
    let waited = waited as f64 / (window.seconds() * 1e6);
    // Below one hundredth of the time it cannot be felt above other noise.
    if waited < 0.01 {
        return Vec::new();
    }
    let saw = format!("tasks waited for {} of the time", percent(waited));
    vec![Observation::with_effect(waited > 0.1, waited * 100.0).saw(saw, "/proc/pressure/irq")]
}

fn needless_rps(window: &Window<'_>) -> Vec<Observation> {
    let cpus = window.after.stat.cpus.len();
    let (requested, processed) = growth(window, |cpu| (cpu.received_rps, cpu.processed));
    let per_s = requested as f64 / window.seconds();
    let spread = |rx: &linux::RxQueue| !rx.rps.is_empty();
    let cards = window.cards().filter(|(_, card)| card.rx.len() >= cpus && card.rx.len() > 1);
    let with_rps = cards.filter(|(_, card)| card.rx.iter().any(spread));
    let seen = |(_, card): (_, &linux::Device)| {
        // Fifty thousand a second are one or two hundredths of a CPU's time each.
        Observation::with_effect(per_s > 50_000.0, share(requested, processed) * 20.0)
            .on(&card.name)
            .saw(
                format!("{} receive queues for {cpus} CPUs, and RPS on", card.rx.len()),
                format!("/sys/class/net/{}/queues", card.name),
            )
            .saw(format!("{per_s:.0} interrupts of other CPUs a second for it"), SOFTNET)
            .set("rps_cpus", "none")
    };
    with_rps.map(seen).collect()
}

/// How much two columns grew, all CPUs together.
fn growth(window: &Window<'_>, columns: impl Fn(&SoftnetCpu) -> (u64, u64)) -> (u64, u64) {
    window.backlogs().fold((0, 0), |sum, row| {
        let pair = columns(&row);
        (sum.0 + pair.0, sum.1 + pair.1)
    })
}
