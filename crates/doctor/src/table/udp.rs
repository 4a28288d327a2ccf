//! Findings about datagrams: buffers of sockets that overflow, and datagrams without a receiver.

use std::collections::BTreeMap;

use linux::procfs::UdpSocket;

use super::{SNMP, SNMP_COUNTER};
use crate::finding::USUAL;
use crate::rate::{percent, share};
use crate::{Check, CheckGroup, Observation, Window};

pub(super) const GROUP: CheckGroup = CheckGroup {
    title: "UDP",
    checks: &[
        Check {
            code: "HG105",
            title: "datagrams are dropped because a socket's buffer is full",
            why: "The program did not read in time and the buffer was full. UDP does not retransmit.",
            remedy: "find whose socket it is (ss -ump); a larger SO_RCVBUF in that program, which rmem_max limits, or a program \
                that reads faster",
            knobs: &["rmem_max"],
            verify: "RcvbufErrors no longer grows",
            source: SNMP_COUNTER,
            run: receive_buffer,
            ..USUAL
        },
        Check {
            code: "HG106",
            title: "datagrams are dropped because all UDP sockets together use too much memory",
            why: "The limit on the memory of all UDP sockets was reached; this affects every container.",
            remedy: "find the program that does not read (ss -um); raise udp_mem if the machine has the memory",
            verify: "MemErrors no longer grows",
            source: super::IP_SYSCTL,
            run: memory,
            ..USUAL
        },
        Check {
            code: "HG107",
            title: "programs find their send buffer for datagrams full",
            why: "The program sends faster than the link carries, with calls that do not wait. The kernel refuses \
                  the datagram and the program may try again, so nothing need be lost; if packets are also dropped \
                  on their way out, some are.",
            remedy: "send more slowly, or a larger SO_SNDBUF in the program, which wmem_max limits",
            knobs: &["wmem_max"],
            verify: "SndbufErrors and OutDiscards no longer grow",
            source: SNMP_COUNTER,
            follows: &["HG043", "HG048", "HG053"],
            run: send_buffer,
        },
        Check {
            code: "HG108",
            title: "datagrams arrive at a port on which no program listens",
            why: "Each costs an answer (ICMP port unreachable), and the sender gets no reply.",
            remedy: "start the program that should listen, or find the sender",
            verify: "NoPorts grows more slowly",
            source: SNMP_COUNTER,
            run: no_ports,
            ..USUAL
        },
    ],
};

/// IPv4 and IPv6 together.
fn both(window: &Window<'_>, name: &str) -> u64 {
    window.grew(&format!("Udp{name}")) + window.grew(&format!("Udp6{name}"))
}

fn dropped(window: &Window<'_>, name: &str, least: f64) -> Option<Observation> {
    let lost = both(window, name);
    if lost == 0 {
        return None;
    }
    let of_all = share(lost, both(window, "InDatagrams") + lost);
    let saw = format!("{lost} datagrams, {} of all ({name})", percent(of_all));
    Some(Observation::warning(least + of_all * 80.0).saw(saw, SNMP))
}

fn receive_buffer(window: &Window<'_>) -> Vec<Observation> {
    let Some(mut seen) = dropped(window, "RcvbufErrors", 20.0) else { return Vec::new() };
    for (socket, lost) in losers(window).into_iter().take(3) {
        let file = if socket.local.is_ipv4() { "/proc/net/udp" } else { "/proc/net/udp6" };
        let name = format!("the socket at {} (inode {}) lost {lost}", socket.local, socket.inode);
        seen = seen.saw(name, file);
    }
    let most = window.number("net/core/rmem_max").unwrap_or_default();
    let seen = seen.saw(format!("a program may ask for {most} bytes"), "/proc/sys/net/core/rmem_max");
    // QUIC implementations and others request 7.5 MB and get the allowed maximum.
    vec![if most < 7_500_000 && most > 0 {
        seen.set("rmem_max", 7_500_000).remedy(
            "then a program that asks for a larger buffer gets it, started again; one that asks for none has rmem_default, \
             and needs a SO_RCVBUF of its own, or to read faster",
        )
    } else {
        seen
    }]
}

/// The sockets that lost datagrams, and how many; the greatest loss first.
fn losers<'a>(window: &Window<'a>) -> Vec<(&'a UdpSocket, u64)> {
    let earlier: BTreeMap<u64, u64> =
        window.before.datagrams.iter().map(|socket| (socket.inode, socket.drops)).collect();
    let lost = window.after.datagrams.iter().map(|socket| {
        let then = earlier.get(&socket.inode).copied().unwrap_or_default();
        (socket, socket.drops.saturating_sub(then))
    });
    let mut losers: Vec<_> = lost.filter(|(_, lost)| *lost > 0).collect();
    losers.sort_by_key(|(_, lost)| std::cmp::Reverse(*lost));
    losers
}

fn memory(window: &Window<'_>) -> Vec<Observation> {
    dropped(window, "MemErrors", 30.0).into_iter().collect()
}

fn send_buffer(window: &Window<'_>) -> Vec<Observation> {
    let refused = both(window, "SndbufErrors");
    if refused == 0 {
        return Vec::new();
    }
    let discarded = window.grew("IpOutDiscards") + window.grew("Ip6OutDiscards");
    let dropped = discarded.max(super::links::dropped(window));
    let of_all = share(refused, both(window, "OutDatagrams") + refused);
    let seen = Observation::with_effect(dropped > 0, 15.0 + of_all * 80.0)
        .saw(format!("{refused} times, for {} of all datagrams (SndbufErrors)", percent(of_all)), SNMP)
        .saw(format!("{dropped} packets dropped on their way out meanwhile (OutDiscards, qdiscs)"), SNMP);
    vec![seen]
}

fn no_ports(window: &Window<'_>) -> Vec<Observation> {
    let lost = both(window, "NoPorts");
    let per_s = lost as f64 / window.seconds();
    if per_s < 10.0 {
        return Vec::new();
    }
    vec![Observation::information().saw(format!("{lost} datagrams, {per_s:.0} a second (NoPorts)"), SNMP)]
}
