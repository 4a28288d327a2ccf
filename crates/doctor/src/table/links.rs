//! Links: offloads, speed, queueing disciplines, and programs that capture packets.

use std::collections::BTreeMap;

use linux::Device;
use linux::netlink::QdiscCounters;

use crate::finding::USUAL;
use crate::rate::{bytes, millis, percent, share};
use crate::window::counter_grew;
use crate::{Check, CheckGroup, Observation, Window};

const QDISC: &str = "RTM_GETQDISC";

pub(super) const GROUP: CheckGroup = CheckGroup {
    title: "Links and queueing disciplines",
    checks: &[
        Check {
            code: "HG040",
            title: "work that the card or the kernel could batch is switched off",
            why: "With segmentation and receive offload the stack handles up to 64 KB at a time instead of a packet each, which \
                is worth a factor of two to five in CPU time for bulk data.",
            remedy: "switch them on again, unless they were switched off for a bug of the driver",
            knobs: &["tso", "gso", "gro"],
            verify: "CPU time for a gigabyte falls",
            source: "Documentation/networking/segmentation-offloads.rst",
            run: offloads,
            ..USUAL
        },
        Check {
            code: "HG041",
            title: "large receive offload on a machine that forwards",
            why: "LRO merges packets in a way that cannot be undone. Forwarded packets are then wrong or dropped.",
            remedy: "switch LRO off on this link (ethtool -K LINK lro off); GRO does the same and can be undone",
            knobs: &[],
            verify: "ethtool shows large-receive-offload: off",
            source: "Documentation/networking/netdev-features.rst",
            run: lro,
            ..USUAL
        },
        Check {
            code: "HG042",
            title: "the link runs at half duplex",
            why: "One end negotiates and the other does not: both ends talk at the same time and collide.",
            remedy: "let both ends negotiate, or set both by hand",
            verify: "/sys/class/net/LINK/duplex says full",
            source: "ethtool(8)",
            run: half_duplex,
            ..USUAL
        },
        Check {
            code: "HG043",
            title: "a queueing discipline drops packets",
            why: "This host sends more than its link, or a shaper on it, can carry. The rest is dropped here, before any wire.",
            remedy: "if a shaper is intended, this is its purpose: let senders pace (fq) or mark (ECN); otherwise use a faster link",
            knobs: &["qdisc", "txqueuelen"],
            verify: "dropped in the qdisc's counters no longer grows",
            source: "tc(8)",
            follows: &["HG049", "HG150"],
            run: qdisc_drops,
        },
        Check {
            code: "HG044",
            title: "packets wait long in a queueing discipline",
            why: "Packets in this queue delay every packet behind them. A queue that is full all the time adds \
                  delay and nothing else.",
            remedy: "a queue for each flow, with a limit in time",
            knobs: &["qdisc", "txqueuelen"],
            verify: "the qdisc's backlog and the round trip time under load fall",
            source: "RFC 7567",
            run: standing,
            ..USUAL
        },
        Check {
            code: "HG045",
            title: "a model-based congestion control without fq",
            why: "BBR sends at a pace. Without fq each socket has a timer of its own for that, which works and costs CPU time.",
            remedy: "fq at the root of the links over which it sends",
            knobs: &["qdisc", "default_qdisc"],
            verify: "CPU time of the sender falls",
            source: "tcp_bbr.c and tcp_output.c (tcp_needs_internal_pacing), Linux 4.13",
            run: unpaced,
            ..USUAL
        },
        Check {
            code: "HG046",
            title: "segments are retransmitted while the first copy is still on this host",
            why: "The kernel wanted to retransmit a segment and found the first copy still in its own queue. So \
                  the delay is on this host: in the qdisc, the ring, or a card that reports too late what it sent.",
            remedy: "shorten the queues on this host",
            knobs: &["qdisc", "coalesce_tx_usecs", "tcp_limit_output_bytes"],
            verify: "TCPSpuriousRtxHostQueues grows more slowly",
            source: super::SNMP_COUNTER,
            follows: &["HG044"],
            run: host_queues,
        },
        Check {
            code: "HG047",
            title: "a program listens to every packet",
            why: "A packet socket for all protocols (tcpdump, a DHCP client, an agent) gets a copy of each packet \
                  of the link. That costs several per cent of the CPU time of receiving.",
            remedy: "end the program if it is not needed, or give it a filter",
            verify: "the line in /proc/net/packet is gone",
            source: "packet(7)",
            run: taps,
            ..USUAL
        },
        Check {
            code: "HG048",
            title: "packets are dropped on their way out of a link",
            why: "The link itself refused them: its driver had no room, or the link behind it did not accept them.",
            remedy: "check the link: its peer may be down, its lower link's MTU smaller, its ring full",
            verify: "tx_dropped and tx_errors no longer grow",
            source: super::STATISTICS,
            follows: &["HG002", "HG032", "HG043"],
            run: tx_drops,
            ..USUAL
        },
        Check {
            code: "HG049",
            title: "fq drops packets of flows with too many packets in the queue",
            why: "fq keeps a queue for each flow, of 100 packets by default. TCP waits for room in it; the excess \
                  is dropped for a program that sends bursts of datagrams, or a tunnel in which all flows are one.",
            remedy: "a larger flow_limit (tc qdisc replace dev LINK root fq flow_limit 1000), or let the program pace what it sends \
                (SO_MAX_PACING_RATE, or GSO with a rate)",
            knobs: &["qdisc"],
            verify: "flows_plimit in tc -s qdisc no longer grows",
            source: "tc-fq(8)",
            run: flow_limit,
            ..USUAL
        },
    ],
};

fn offloads(window: &Window<'_>) -> Vec<Observation> {
    let mut found = Vec::new();
    for (_, card) in window.cards() {
        let Some(nic) = window.nic(&card.name) else { continue };
        let off = |name: &str| nic.offloads.get(name) == Some(&false);
        // Without checksums and scattered packets the kernel switches TSO off too (`netdev_fix_features`).
        let can_tso = !off("tx-checksum") && !off("scatter-gather");
        let mut missing: Vec<&'static str> = Vec::new();
        missing.extend(["gso", "gro"].into_iter().filter(|name| off(name)));
        if off("tso") && can_tso {
            missing.push("tso");
        }
        if missing.is_empty() {
            continue;
        }
        let bytes_per_s = window.link_grew(&card.name, "rx_bytes") + window.link_grew(&card.name, "tx_bytes");
        let bytes_per_s = bytes_per_s as f64 / window.seconds();
        let busiest = window.interrupted().values().copied().fold(0.0, f64::max);
        // Less than 100 MB/s costs little either way.
        let seen = Observation::with_effect(bytes_per_s > 1e8 && busiest > 0.3, busiest * 50.0)
            .on(&card.name)
            .saw(format!("off: {}", missing.join(", ")), "ETHTOOL_MSG_FEATURES_GET")
            .saw(format!("{}/s", bytes(bytes_per_s)), format!("/sys/class/net/{}/statistics", card.name));
        found.push(missing.into_iter().fold(seen, |seen, knob| seen.set(knob, 1)));
    }
    found
}

fn lro(window: &Window<'_>) -> Vec<Observation> {
    let forwards = ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"];
    let forwards = forwards.into_iter().find(|key| window.number(key) == Some(1));
    let on =
        |device: &Device| window.nic(&device.name).is_some_and(|nic| nic.offloads.get("lro") == Some(&true));
    let Some(forwards) = forwards else { return Vec::new() };
    let bad = ["IpFragFails", "IpInHdrErrors", "Ip6FragFails", "Ip6InHdrErrors"];
    let bad: u64 = bad.iter().map(|name| window.grew(name)).sum();
    let seen = |(_, card): (_, &Device)| {
        Observation::with_effect(bad > 0, 30.0)
            .on(&card.name)
            .saw("large receive offload is on", "ETHTOOL_GFLAGS")
            .saw(format!("{forwards} is 1, {bad} packets could not be forwarded"), super::SNMP)
    };
    window.cards().filter(|(_, card)| on(card)).map(seen).collect()
}

fn half_duplex(window: &Window<'_>) -> Vec<Observation> {
    let half = window.cards().filter(|(_, card)| card.duplex.as_deref() == Some("half"));
    let seen = |(_, card): (_, &Device)| {
        let errors = window.link_grew(&card.name, "collisions") + window.link_grew(&card.name, "rx_errors");
        let speed = card.speed_mbit.unwrap_or_default();
        Observation::with_effect(errors > 0, 40.0)
            .on(&card.name)
            .saw(format!("{speed} Mbit/s, half duplex"), format!("/sys/class/net/{}/duplex", card.name))
            .saw(
                format!("{errors} collisions and errors"),
                format!("/sys/class/net/{}/statistics", card.name),
            )
    };
    half.map(seen).collect()
}

/// Queueing disciplines at both ends of the window, with their link.
fn qdiscs<'a>(window: &Window<'a>) -> Vec<(&'a Device, &'a QdiscCounters, &'a QdiscCounters)> {
    let place = |qdisc: &'a QdiscCounters| (qdisc.index, qdisc.root, qdisc.major, qdisc.minor, &qdisc.kind);
    let before = window.before.answers.qdiscs.iter().flatten();
    let before: BTreeMap<_, _> = before.map(|qdisc| (place(qdisc), qdisc)).collect();
    let devices: BTreeMap<u32, &Device> =
        window.after.devices.iter().map(|device| (device.index, device)).collect();
    let pair =
        |after: &'a QdiscCounters| Some((*devices.get(&after.index)?, *before.get(&place(after))?, after));
    window.after.answers.qdiscs.iter().flatten().filter_map(pair).collect()
}

/// Whether a discipline is a link's root and drops because its queue is full. mq and classful ones only sum up their
/// children; netem drops because it was configured to.
fn drops_for_room(qdisc: &QdiscCounters) -> bool {
    qdisc.root && !matches!(qdisc.kind.as_str(), "netem" | "ingress" | "clsact")
}

/// Packets that the links' queueing disciplines dropped because a queue was full.
pub(super) fn dropped(window: &Window<'_>) -> u64 {
    let roots = qdiscs(window).into_iter().filter(|(_, _, qdisc)| drops_for_room(qdisc));
    roots.map(|(_, before, after)| after.drops_since(before)).sum()
}

/// Packets that came back to a link's queueing discipline because its driver had stopped the queue
/// (`dev_requeue_skb`).
pub(super) fn came_back(window: &Window<'_>, link: &Device) -> u64 {
    let roots =
        qdiscs(window).into_iter().filter(|(device, _, qdisc)| qdisc.root && device.index == link.index);
    roots.map(|(_, before, after)| after.requeues_since(before)).sum()
}

fn qdisc_drops(window: &Window<'_>) -> Vec<Observation> {
    let mut found = Vec::new();
    for (device, before, after) in qdiscs(window).into_iter().filter(|(_, _, qdisc)| drops_for_room(qdisc)) {
        let drops = after.drops_since(before);
        let sent = after.packets.saturating_sub(before.packets);
        let lost = share(drops, drops + sent);
        if drops == 0 || lost < 0.0001 {
            continue;
        }
        let seen = Observation::warning(20.0 + lost * 100.0)
            .on(&device.name)
            .saw(format!("{} dropped {drops} packets, {} of all", after.kind, percent(lost)), QDISC);
        found.push(seen);
    }
    found
}

fn flow_limit(window: &Window<'_>) -> Vec<Observation> {
    let mut found = Vec::new();
    // Each queue of a card may have an fq of its own, below mq.
    for (device, before, after) in qdiscs(window) {
        let dropped = after.flow_limited.saturating_sub(before.flow_limited);
        let lost = share(dropped, dropped + after.packets.saturating_sub(before.packets));
        if dropped == 0 {
            continue;
        }
        let saw = format!("{dropped} packets (flows_plimit), {} of all", percent(lost));
        found.push(
            Observation::with_effect(lost > 0.0001, 25.0 + lost * 100.0).on(&device.name).saw(saw, QDISC),
        );
    }
    found
}

fn standing(window: &Window<'_>) -> Vec<Observation> {
    let mut found = Vec::new();
    for (device, before, after) in qdiscs(window).into_iter().filter(|(_, _, qdisc)| qdisc.root) {
        let sent = after.bytes.saturating_sub(before.bytes) as f64 / window.seconds();
        // In both snapshots, so that it is not a single burst.
        let waiting = before.backlog_bytes.min(after.backlog_bytes);
        let wait_us = f64::from(waiting) / sent.max(1.0) * 1e6;
        if sent < 1e5 || wait_us < 5000.0 || keeps_time(window, after) {
            continue;
        }
        let seen =
            Observation::with_effect(wait_us > 20_000.0, (wait_us / 2000.0).min(60.0)).on(&device.name).saw(
                format!(
                    "{} holds {}, {} of what it sends",
                    after.kind,
                    bytes(waiting.into()),
                    millis(wait_us)
                ),
                QDISC,
            );
        // A discipline that was chosen by hand has a reason, so its options are not changed.
        found.push(if after.kind.contains("fifo") { seen.set("qdisc", "fq_codel") } else { seen });
    }
    found
}

/// Whether what waits in a discipline may wait for its time and not for the link: fq paces, netem delays, etf sends at
/// the moment that a program named. Of mq, if that is so of one of its queues.
fn keeps_time(window: &Window<'_>, root: &QdiscCounters) -> bool {
    let mut below = window.after.answers.qdiscs.iter().flatten().filter(|qdisc| qdisc.index == root.index);
    let is_one = |qdisc: &QdiscCounters| matches!(qdisc.kind.as_str(), "fq" | "netem" | "etf");
    is_one(root) || (root.kind == "mq" && below.any(is_one))
}

fn unpaced(window: &Window<'_>) -> Vec<Observation> {
    if window.sysctl("net/ipv4/tcp_congestion_control") != Some("bbr") {
        return Vec::new();
    }
    let fq =
        |index: u32| window.after.answers.qdiscs.iter().flatten().any(|q| q.index == index && q.kind == "fq");
    let known = window.after.answers.qdiscs.is_some();
    let without = window.cards().filter(|(_, card)| known && !fq(card.index));
    let seen = |(_, card): (_, &Device)| {
        Observation::information()
            .on(&card.name)
            .saw("tcp_congestion_control is bbr", "/proc/sys/net/ipv4/tcp_congestion_control")
            .saw("no fq on this link", QDISC)
            .set("qdisc", "fq")
    };
    without.map(seen).collect()
}

fn host_queues(window: &Window<'_>) -> Vec<Observation> {
    let again = window.grew("TcpExtTCPSpuriousRtxHostQueues");
    let per_s = again as f64 / window.seconds();
    if per_s < 0.1 {
        return Vec::new();
    }
    let saw = format!("{again} times (TCPSpuriousRtxHostQueues)");
    vec![Observation::with_effect(per_s > 1.0, 15.0).saw(saw, super::NETSTAT)]
}

fn taps(window: &Window<'_>) -> Vec<Observation> {
    const ALL_PROTOCOLS: u16 = 3;
    let before = |tap: &&linux::procfs::PacketTap| window.before.taps.contains(tap);
    let all: Vec<_> =
        window.after.taps.iter().filter(|tap| tap.protocol == ALL_PROTOCOLS).filter(before).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let names = all.iter().map(|tap| {
        let device = window.after.devices.iter().find(|device| device.index == tap.index);
        device.map_or("all links".to_owned(), |device| device.name.to_string())
    });
    let names = names.collect::<Vec<_>>().join(", ");
    vec![
        Observation::information()
            .saw(format!("{} packet sockets for all protocols: {names}", all.len()), "/proc/net/packet"),
    ]
}

fn tx_drops(window: &Window<'_>) -> Vec<Observation> {
    let mut found = Vec::new();
    for pair in window.devices() {
        let name = &pair.1.name;
        let dropped = counter_grew(pair, "tx_dropped") + counter_grew(pair, "tx_errors");
        let lost = share(dropped, dropped + counter_grew(pair, "tx_packets"));
        // A packet now and then to a link that is just coming up is no finding.
        if dropped < 10 || lost < 0.0001 {
            continue;
        }
        let saw = format!("{dropped} packets, {} of those sent", percent(lost));
        let from = format!("/sys/class/net/{name}/statistics/tx_dropped, tx_errors");
        found.push(Observation::warning(15.0 + lost * 100.0).on(name).saw(saw, from));
    }
    found
}
