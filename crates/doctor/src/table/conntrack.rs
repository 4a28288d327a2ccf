//! Connection tracking, neighbours and the filters of routing.

use std::collections::BTreeMap;

use super::{IP_SYSCTL, NETSTAT, SNMP};
use crate::finding::USUAL;
use crate::rate::{percent, share};
use crate::{Check, CheckGroup, Observation, Window};

const COUNT: &str = "/proc/sys/net/netfilter/nf_conntrack_count, nf_conntrack_max";
const STAT: &str = "/proc/net/stat/nf_conntrack";
const SYSCTL: &str = "Documentation/networking/nf_conntrack-sysctl.rst";

pub(super) const GROUP: CheckGroup = CheckGroup {
    title: "Connection tracking and neighbours",
    checks: &[
        Check {
            code: "HG050",
            title: "the table of tracked connections is nearly full",
            why: "When it is full, packets of all new connections are dropped. The kernel's log says \"table \
                full, dropping packet\".",
            remedy: "a larger table (about 400 bytes an entry), shorter timeouts, or no tracking for the busiest port",
            knobs: &["nf_conntrack_max", "nf_conntrack_buckets", "notrack"],
            verify: "nf_conntrack_count stays below four fifths of nf_conntrack_max",
            source: SYSCTL,
            run: nearly_full,
            ..USUAL
        },
        Check {
            code: "HG051",
            title: "connection tracking drops packets",
            why: "The packet's connection could not be entered: the table was full, or two of its packets competed for the entry.",
            remedy: "if the table is full, make it larger; a few insert_failed with UDP are two packets competing for one entry",
            knobs: &["nf_conntrack_max", "notrack"],
            verify: "drop, early_drop and insert_failed no longer grow",
            source: SYSCTL,
            follows: &["HG050"],
            run: dropping,
        },
        Check {
            code: "HG052",
            title: "tracked connections share too few hash buckets",
            why: "Each packet looks its connection up by walking a chain; with too few buckets the chains are long.",
            remedy: "as many buckets as the table can have entries",
            knobs: &["nf_conntrack_buckets"],
            verify: "entries divided by buckets is below 2",
            source: SYSCTL,
            run: chains,
            ..USUAL
        },
        Check {
            code: "HG053",
            title: "the table of neighbours is full or nearly full",
            why: "Without an entry no packet can be sent to a neighbour; the kernel's log says \"neighbour table overflow\".",
            remedy: "room for twice as many neighbours as there are on all links",
            verify: "table_fulls in /proc/net/stat/arp_cache and ndisc_cache no longer grows",
            source: IP_SYSCTL,
            run: neighbours,
            ..USUAL
        },
        Check {
            code: "HG054",
            title: "packets are dropped because they came in on the wrong link",
            why: "With strict reverse path filtering a packet must come in on the link over which its answer would \
                  leave. Where routes are not symmetric, valid packets are dropped.",
            remedy: "give the answer's route the same link, or loosen rp_filter to 2 on that link",
            verify: "IPReversePathFilter no longer grows",
            source: IP_SYSCTL,
            run: reverse_path,
            ..USUAL
        },
        Check {
            code: "HG055",
            title: "packets have no route",
            why: "This host was to send or forward packets to destinations for which it has no route.",
            remedy: "find the sender; a missing route of a container network is the usual cause",
            verify: "OutNoRoutes, InAddrErrors and Ip6OutNoRoutes no longer grow",
            source: super::SNMP_COUNTER,
            run: no_route,
            ..USUAL
        },
        Check {
            code: "HG056",
            title: "packets wait for neighbours that do not answer",
            why: "The kernel asked for an address on a link (ARP, neighbour discovery), and no host answered. \
                  Packets to it wait for three seconds, and most are dropped. Connections to it hang instead of \
                  being refused.",
            remedy: "find the sender: an address that is gone, a wrong prefix, or filtered ARP or neighbour discovery",
            verify: "res_failed and unresolved_discards in /proc/net/stat/arp_cache and ndisc_cache grow more slowly",
            source: "arp(7), net/core/neighbour.c",
            follows: &["HG001", "HG002", "HG053"],
            run: unanswered,
            ..USUAL
        },
    ],
};

fn nearly_full(window: &Window<'_>) -> Vec<Observation> {
    let count = window.number("net/netfilter/nf_conntrack_count");
    let Some((count, max)) =
        count.zip(window.number("net/netfilter/nf_conntrack_max").filter(|max| *max > 0))
    else {
        return Vec::new();
    };
    let filled = share(count, max);
    if filled < 0.8 {
        return Vec::new();
    }
    let seen = Observation::warning(filled * 90.0)
        .saw(format!("{count} of {max} entries, {}", percent(filled)), COUNT)
        .raise("nf_conntrack_max", max, doubled(count));
    vec![seen]
}

/// Twice as many, rounded up to a power of two.
fn doubled(count: u64) -> u64 {
    count.saturating_mul(2).checked_next_power_of_two().unwrap_or(u64::MAX)
}

fn dropping(window: &Window<'_>) -> Vec<Observation> {
    let grew = |name: &str| {
        let value = |snapshot: &crate::Snapshot| snapshot.conntrack.get(name).copied().unwrap_or_default();
        value(window.after).saturating_sub(value(window.before))
    };
    let names = ["drop", "early_drop", "insert_failed"];
    let figures: Vec<String> =
        names.iter().filter(|name| grew(name) > 0).map(|name| format!("{name} +{}", grew(name))).collect();
    if figures.is_empty() {
        return Vec::new();
    }
    // A packet that loses a race for an entry is in drop and in insert_failed (nf_ct_resolve_clash in
    // net/netfilter/nf_conntrack_core.c); one for which there was no room is in drop alone.
    let raced = grew("insert_failed");
    let without_room = grew("early_drop") + grew("drop").saturating_sub(raced);
    let seen = Observation::with_effect(without_room > 0 || raced as f64 / window.seconds() > 1.0, 40.0);
    let seen = seen.saw(figures.join(", "), STAT);
    if without_room == 0 {
        return vec![seen.remedy(
            "two packets of one connection competed for its entry, most often a resolver's queries for A and AAAA: let it ask \
             one after the other (single-request in resolv.conf), or do not track that port",
        )];
    }
    let count = window.number("net/netfilter/nf_conntrack_count").unwrap_or_default();
    let max = window.number("net/netfilter/nf_conntrack_max").unwrap_or_default();
    let is_full = grew("early_drop") > 0 || share(count, max) > 0.8;
    vec![if is_full && max > 0 {
        seen.raise("nf_conntrack_max", max, doubled(max))
    } else {
        seen.remedy("the table has room now; if it was full for a moment, make it larger (nf_conntrack_max)")
    }]
}

fn chains(window: &Window<'_>) -> Vec<Observation> {
    let count = window.number("net/netfilter/nf_conntrack_count");
    let buckets = window.number("net/netfilter/nf_conntrack_buckets").filter(|buckets| *buckets > 0);
    let Some((count, buckets)) = count.zip(buckets) else { return Vec::new() };
    // Each entry is in the table twice, once a direction.
    let chain = 2.0 * count as f64 / buckets as f64;
    if chain < 8.0 {
        return Vec::new();
    }
    let seen = Observation::with_effect(chain > 16.0, chain.min(30.0))
        .saw(format!("{count} entries in {buckets} buckets: chains of {chain:.0}"), "/proc/sys/net/netfilter")
        .raise("nf_conntrack_buckets", buckets, count.checked_next_power_of_two().unwrap_or(u64::MAX));
    vec![seen]
}

/// The tables of neighbours: the family, its file, its limit, and what it counted before and after.
fn tables<'a>(window: &Window<'a>) -> [(&'static str, &'static str, &'static str, [&'a Counts; 2]); 2] {
    let (before, after) = (window.before, window.after);
    [
        ("ipv4", "/proc/net/stat/arp_cache", "ARP", [&before.neighbours, &after.neighbours]),
        (
            "ipv6",
            "/proc/net/stat/ndisc_cache",
            "neighbour discovery",
            [&before.neighbours6, &after.neighbours6],
        ),
    ]
}

type Counts = BTreeMap<String, u64>;

fn grew([before, after]: [&Counts; 2], name: &str) -> u64 {
    let value = |counts: &Counts| counts.get(name).copied().unwrap_or_default();
    value(after).saturating_sub(value(before))
}

fn neighbours(window: &Window<'_>) -> Vec<Observation> {
    let mut found = Vec::new();
    for (family, file, _, counts) in tables(window) {
        let full = grew(counts, "table_fulls");
        let entries = counts[1].get("entries").copied().unwrap_or_default();
        // Only the machine's first namespace has the limit, and it counts for all.
        let limit = window.number(&format!("net/{family}/neigh/default/gc_thresh3"));
        let filled = limit.map_or(0.0, |limit| share(entries, limit));
        if full == 0 && filled < 0.7 {
            continue;
        }
        let of = limit.map_or(String::new(), |limit| format!(" of {limit}"));
        let seen = Observation::with_effect(full > 0, 50.0)
            .saw(format!("{entries}{of} entries, {full} could not be made"), file)
            .remedy(format!(
                "in the machine's first namespace: net.{family}.neigh.default.gc_thresh3 = {}, and gc_thresh2 half of it",
                (entries * 2).next_power_of_two()
            ));
        found.push(seen);
    }
    found
}

fn unanswered(window: &Window<'_>) -> Vec<Observation> {
    let mut found = Vec::new();
    for (_, file, question, counts) in tables(window) {
        let (failed, dropped) = (grew(counts, "res_failed"), grew(counts, "unresolved_discards"));
        // Now and then a program asks for a machine that is switched off.
        if dropped < 10 && (failed as f64) < window.seconds() {
            continue;
        }
        let saw =
            format!("{question}: {failed} requests without an answer, {dropped} packets dropped meanwhile");
        found.push(
            Observation::with_effect(dropped >= 10, 15.0 + (dropped as f64 / 100.0).min(20.0)).saw(saw, file),
        );
    }
    found
}

fn reverse_path(window: &Window<'_>) -> Vec<Observation> {
    let dropped = window.grew("TcpExtIPReversePathFilter");
    if dropped == 0 {
        return Vec::new();
    }
    let lost = share(dropped, window.grew("IpInReceives"));
    let saw = format!("{dropped} packets, {} of those received (IPReversePathFilter)", percent(lost));
    // Strangers with a forged address come by now and then, and are rightly dropped.
    let effect = dropped as f64 / window.seconds() >= 1.0 && lost > 0.001;
    vec![Observation::with_effect(effect, 20.0 + lost * 80.0).saw(saw, NETSTAT)]
}

fn no_route(window: &Window<'_>) -> Vec<Observation> {
    let sum = |names: &[&str]| names.iter().map(|name| window.grew(name)).sum::<u64>();
    let lost = sum(&["IpOutNoRoutes", "IpInAddrErrors", "IpExtInNoRoutes"]);
    let lost6 = sum(&["Ip6OutNoRoutes", "Ip6InAddrErrors", "Ip6InNoRoutes"]);
    let passed = sum(&["IpInReceives", "IpOutRequests"]);
    let passed6 = sum(&["Ip6InReceives", "Ip6OutRequests"]);
    // Programs try IPv6 first where there is none, which is no problem.
    let in_use6 = passed6 > lost6;
    let families = [("", SNMP, lost, passed, true), ("IPv6: ", super::SNMP6, lost6, passed6, in_use6)];
    let mut found = Vec::new();
    for (family, read_from, lost, passed, in_use) in families {
        let of_all = share(lost, passed + lost);
        if (lost as f64) < window.seconds() {
            continue;
        }
        let saw = format!(
            "{family}{lost} packets, {} of all (OutNoRoutes, InNoRoutes, InAddrErrors)",
            percent(of_all)
        );
        // In a short or quiet window a few are many of all, and yet chance.
        let effect = lost >= 10 && of_all > 0.01 && in_use;
        found.push(Observation::with_effect(effect, of_all * 100.0).saw(saw, read_from));
    }
    found
}
