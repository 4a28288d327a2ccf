//! How much links carry and how fast: full links, slow links, slots, and waits before interrupts.

use linux::Device;

use super::SOCK_DIAG;
use crate::finding::USUAL;
use crate::rate::{bits_per_s, millis, percent, share};
use crate::{Check, CheckGroup, Observation, Window};

pub(super) const GROUP: CheckGroup = CheckGroup {
    title: "Speeds of links",
    checks: &[
        Check {
            code: "HG150",
            title: "a link is full",
            why: "The link carries all it can. Whatever is sent beyond that waits and is then dropped, here or at the switch, \
                and no setting of this host makes it carry more.",
            remedy: "a faster link, less traffic, or a fair queue (fq_codel), so that short answers can pass large ones",
            knobs: &["qdisc"],
            verify: "bytes a second of the link are below nine tenths of its speed",
            source: super::STATISTICS,
            follows: &["HG151", "HG152"],
            run: full,
        },
        Check {
            code: "HG151",
            title: "the link runs at 100 Mbit/s or less",
            why: "Cards and switches have supported 1000 for twenty years. If two of them agree on less, a pair of \
                  the cable is broken, or one end does not negotiate.",
            remedy: "another cable; let both ends negotiate",
            verify: "/sys/class/net/LINK/speed says what card and switch can",
            source: "ethtool(8)",
            run: slow,
            ..USUAL
        },
        Check {
            code: "HG152",
            title: "a card's slot carries less than its link",
            why: "Card and slot agreed on fewer or slower lanes than the card has: the slot has fewer lanes, there \
                  is a riser, or the card is not seated well. The card drops what it cannot pass on, which looks \
                  like an overflowing ring.",
            remedy: "use another slot, or reseat the card; the machine's manual says how many lanes each slot has",
            verify: "current_link_width and current_link_speed of the device are its max_link_width and max_link_speed",
            source: "lspci(8), LnkSta and LnkCap; PCI Express Base Specification",
            run: narrow_slot,
            ..USUAL
        },
        Check {
            code: "HG153",
            title: "the card delays interrupts for a large part of the round trip",
            why: "To interrupt less often, the card waits for more packets. A single packet waits for nothing, and \
                  its connection takes that much longer for each answer.",
            remedy: "a shorter wait, or let the driver choose it by load",
            knobs: &["coalesce_rx_usecs", "coalesce_adaptive_rx"],
            verify: "rtt in ss -ti falls",
            source: "ethtool(8), --coalesce",
            run: waits,
            ..USUAL
        },
    ],
};

/// Counters of links have no gaps between frames and no checksums, which take a tenth of a wire with small packets.
const FULL: f64 = 0.9;

/// Bits a second in the busier direction.
fn carried(window: &Window<'_>, card: &Device) -> f64 {
    let bytes = |name: &str| window.link_grew(&card.name, name) as f64;
    bytes("rx_bytes").max(bytes("tx_bytes")) * 8.0 / window.seconds()
}

fn from_speed(card: &Device) -> String {
    format!("/sys/class/net/{}/speed, statistics", card.name)
}

fn full(window: &Window<'_>) -> Vec<Observation> {
    let lost = share(super::loss::sent_again(window), window.grew("TcpOutSegs"));
    let mut found = Vec::new();
    for (_, card) in window.cards() {
        let Some(speed) = card.speed_mbit else { continue };
        let (carries, takes) = (carried(window, card), f64::from(speed) * 1e6);
        if carries < takes * FULL {
            continue;
        }
        let queues = window.after.answers.qdiscs.iter().flatten();
        let waiting: u32 =
            queues.filter(|qdisc| qdisc.index == card.index && qdisc.root).map(|qdisc| qdisc.queued).sum();
        // Without either, a sender found exactly the rate that the link takes.
        let felt = lost > 0.001 || waiting > 0;
        let seen = Observation::with_effect(felt, 65.0)
            .on(&card.name)
            .saw(
                format!("{} of the {speed} Mbit/s that it takes", bits_per_s(carries / 8.0)),
                from_speed(card),
            )
            .saw(
                format!("{waiting} packets wait, {} of segments were retransmitted", percent(lost)),
                "RTM_GETQDISC, /proc/net/snmp",
            );
        found.push(seen);
    }
    found
}

fn slow(window: &Window<'_>) -> Vec<Observation> {
    let slow = |card: &Device| card.speed_mbit.filter(|speed| *speed <= 100);
    let cards = window.cards().filter_map(|(_, card)| Some((card, slow(card)?)));
    let seen = |(card, speed): (&Device, u32)| {
        let used = carried(window, card) / (f64::from(speed) * 1e6);
        Observation::with_effect(used > 0.5, 50.0 + used * 20.0)
            .on(&card.name)
            .saw(format!("{speed} Mbit/s, {} of it in use", percent(used)), from_speed(card))
    };
    cards.map(seen).collect()
}

fn narrow_slot(window: &Window<'_>) -> Vec<Observation> {
    let mut found = Vec::new();
    for (_, card) in window.cards() {
        let Some((slot, speed)) = card.slot.zip(card.speed_mbit) else { continue };
        let less = slot.transfers < slot.transfers_max || slot.lanes < slot.lanes_max;
        // A slot of fewer lanes that carries the link all the same is as it should be.
        if !less || slot.mbit() >= speed.into() {
            continue;
        }
        let used = carried(window, card) / (slot.mbit() as f64 * 1e6);
        let seen = Observation::with_effect(used > 0.7, 60.0 + used * 20.0)
            .on(&card.name)
            .saw(
                format!(
                    "{} lanes of {} MT/s, of {} of {}: {} Mbit/s at most, {} of it in use",
                    slot.lanes,
                    slot.transfers,
                    slot.lanes_max,
                    slot.transfers_max,
                    slot.mbit(),
                    percent(used)
                ),
                format!("/sys/class/net/{}/device/current_link_width, current_link_speed", card.name),
            )
            .saw(format!("the link takes {speed} Mbit/s"), from_speed(card));
        found.push(seen);
    }
    found
}

fn waits(window: &Window<'_>) -> Vec<Observation> {
    let near = window.connections().into_iter().filter(|connection| {
        // Only connections that transfer data, otherwise an idle one would represent all.
        (1..2000).contains(&connection.now.min_rtt) && connection.acked() + connection.received() >= 10_000
    });
    // One to a container of this host has a shorter way than any card's.
    let nearest = window.nearest(near);
    let mut found = Vec::new();
    for (_, card) in window.cards() {
        let Some(nearest) = nearest.get(&card.index) else { continue };
        let rtt_us = nearest.now.min_rtt;
        // Full segments come in bursts, for which the wait is made.
        let small = nearest.sends_small();
        let Some(coalescing) = window.nic(&card.name).and_then(|nic| nic.coalescing) else { continue };
        // A few microseconds are less than an interrupt costs.
        let long = coalescing.rx_usecs >= 20 && coalescing.rx_usecs * 3 >= rtt_us;
        if !long || coalescing.adaptive_rx {
            continue;
        }
        let of_rtt = f64::from(coalescing.rx_usecs) / f64::from(rtt_us);
        let seen = Observation::with_effect(small, 10.0 + of_rtt.min(1.0) * 20.0)
            .on(&card.name)
            .saw(format!("rx-usecs is {}, adaptive-rx off", coalescing.rx_usecs), "ETHTOOL_GCOALESCE")
            .saw(
                format!("a round trip takes {} at its best: {}", millis(rtt_us.into()), nearest.name()),
                SOCK_DIAG,
            );
        found.push(seen.set("coalesce_rx_usecs", shorter_wait(card, rtt_us)));
    }
    found
}

/// Intel's drivers of gigabit cards take no shorter wait than this but those with a meaning of their own
/// (`igb_set_coalesce`, `igc_ethtool_set_coalesce` and `e1000_set_coalesce` refuse 2 and 5 to 9; 1, 3 and 4 are modes).
const LEAST_OF_GIGABIT_US: u32 = 10;

/// Microseconds to wait before an interrupt, a small part of the round trip.
fn shorter_wait(card: &Device, rtt_us: u32) -> u32 {
    let wait_us = (rtt_us / 20).min(8);
    match card.driver.as_deref() {
        Some("igb" | "igc" | "e1000" | "e1000e") => wait_us.max(LEAST_OF_GIGABIT_US),
        _ => wait_us,
    }
}
