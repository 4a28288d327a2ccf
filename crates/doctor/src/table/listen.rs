//! Beginnings of connections: listeners' queues, half-open connections, ports.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use linux::sock_diag::TcpSocket;

use super::{IP_SYSCTL, NETSTAT, SNMP, SNMP_COUNTER};
use crate::finding::USUAL;
use crate::rate::{percent, share};
use crate::window::SYN_SENT;
use crate::{Check, CheckGroup, Observation, Window};

pub(super) const GROUP: CheckGroup = CheckGroup {
    title: "Listeners and new connections",
    checks: &[
        Check {
            code: "HG060",
            title: "a listener's queue overflows",
            why: "Connections wait in the listener's queue until the program accepts them. When it is full, the kernel drops the \
                last packet of the handshake or the next one's first, and the client tries again after a second or more.",
            remedy: "a longer queue in the program's listen(), no longer than somaxconn; or a program that accepts faster",
            knobs: &["somaxconn"],
            verify: "ListenOverflows no longer grows",
            source: SNMP_COUNTER,
            run: overflow,
            ..USUAL
        },
        Check {
            code: "HG061",
            title: "a listener's queue is nearly full",
            why: "More than two thirds of its queue are taken: the program accepts more slowly than connections come.",
            remedy: "a longer queue in the program's listen(), no longer than somaxconn; or a program that accepts faster",
            knobs: &["somaxconn"],
            verify: "the listener's queue in ss -lt is short",
            source: "listen(2)",
            run: nearly_full,
            ..USUAL
        },
        Check {
            code: "HG062",
            title: "a listener has too many half-open connections",
            why: "More handshakes were in progress at a listener than it can remember, which is limited by its \
                  backlog and somaxconn. The kernel answered with cookies, which lose some options of TCP, or \
                  dropped them. This is a flood, or the limit is too low. tcp_max_syn_backlog counts only without \
                  cookies.",
            remedy: "a larger backlog in the program that listens, if these are real clients",
            knobs: &["somaxconn", "tcp_max_syn_backlog", "tcp_syncookies"],
            verify: "TCPReqQFullDrop and TCPReqQFullDoCookies no longer grow",
            source: "net/ipv4/tcp_input.c, tcp_conn_request",
            follows: &["HG060"],
            run: half_open,
        },
        Check {
            code: "HG063",
            title: "the first packets of connections are retransmitted",
            why: "A packet of a handshake, sent from here or the answer to an incoming one, was lost or not \
                  answered within a second. Each such connection is delayed by a second or more.",
            remedy: "find where they are lost: at the listener (the other host's queue), at a filter, or on the path",
            knobs: &["tcp_syn_retries"],
            verify: "TCPSynRetrans against ActiveOpens falls below one in a hundred",
            source: SNMP_COUNTER,
            follows: &["HG050", "HG051", "HG060", "HG062"],
            run: syn_again,
        },
        Check {
            code: "HG064",
            title: "ports for connections to one destination run out",
            why: "Each connection to the same address and port takes a port of this host, and keeps it for a minute after its \
                end. When none is left, connecting fails.",
            remedy: "keep connections open; otherwise allow more ports that no service uses, and reuse those of ended connections",
            knobs: &["ip_local_port_range", "tcp_tw_reuse"],
            verify: "fewer than four fifths of the range are taken",
            source: IP_SYSCTL,
            run: ports,
            ..USUAL
        },
        Check {
            code: "HG065",
            title: "ended connections are forgotten too early",
            why: "More connections ended within a minute than are remembered. Late packets of those can disturb new ones.",
            remedy: "remember more of them: an entry takes a few hundred bytes",
            knobs: &["tcp_max_tw_buckets"],
            verify: "TCPTimeWaitOverflow no longer grows",
            source: IP_SYSCTL,
            run: time_wait,
            ..USUAL
        },
        Check {
            code: "HG066",
            title: "connections to here are refused",
            why: "Clients connect to a port on which no program listens: the program is down, or they use the wrong port.",
            remedy: "start the program that should listen, or find the clients",
            verify: "OutRsts and AttemptFails grow more slowly",
            source: SNMP_COUNTER,
            run: refused,
            ..USUAL
        },
    ],
};

/// Listeners with the most waiting at either end of the window, and their limit.
fn listeners(window: &Window<'_>) -> Vec<(String, u32, u32)> {
    let before = window.before.answers.sockets.iter().flatten();
    let before: BTreeMap<u64, u32> = before.map(|socket| (socket.cookie, socket.rqueue)).collect();
    let most =
        |socket: &TcpSocket| socket.rqueue.max(before.get(&socket.cookie).copied().unwrap_or_default());
    window.listeners().map(|socket| (socket.local.to_string(), most(socket), socket.wqueue)).collect()
}

fn overflow(window: &Window<'_>) -> Vec<Observation> {
    let (overflows, drops) = (window.grew("TcpExtListenOverflows"), window.grew("TcpExtListenDrops"));
    if overflows == 0 {
        return Vec::new();
    }
    let opened = window.grew("TcpPassiveOpens");
    let lost = share(overflows, overflows + opened);
    let mut seen = Observation::warning(30.0 + lost * 70.0).saw(
        format!("ListenOverflows +{overflows}, ListenDrops +{drops}; {opened} connections came in"),
        NETSTAT,
    );
    let fullest = listeners(window)
        .into_iter()
        .max_by(|a, b| share(a.1.into(), a.2.into()).total_cmp(&share(b.1.into(), b.2.into())));
    if let Some((name, waiting, limit)) = fullest.filter(|(_, waiting, _)| *waiting > 0) {
        seen = seen.on(format!("listener {name}")).saw(format!("{waiting} wait, {limit} may"), "sock_diag");
        let somaxconn = window.number("net/core/somaxconn").unwrap_or(4096);
        if u64::from(limit) >= somaxconn {
            seen = seen.raise("somaxconn", somaxconn, somaxconn.saturating_mul(4).max(1024));
            if !seen.proposals.is_empty() {
                seen = seen.remedy("then restart the program: a queue keeps its initial length");
            }
        }
    }
    vec![seen]
}

fn nearly_full(window: &Window<'_>) -> Vec<Observation> {
    let overflowing = window.grew("TcpExtListenOverflows") > 0;
    let full = listeners(window).into_iter().filter(|(_, waiting, limit)| {
        // A single waiting connection may be about to be accepted.
        *waiting > 1 && share((*waiting).into(), (*limit).into()) > 0.7
    });
    let seen = |(name, waiting, limit): (String, u32, u32)| {
        Observation::information()
            .on(format!("listener {name}"))
            .saw(format!("{waiting} wait, {limit} may"), "sock_diag")
    };
    if overflowing { Vec::new() } else { full.map(seen).collect() }
}

fn half_open(window: &Window<'_>) -> Vec<Observation> {
    let dropped = window.grew("TcpExtTCPReqQFullDrop");
    // With 2 every handshake has a cookie, and is counted as if the listener were full.
    let always = window.number("net/ipv4/tcp_syncookies") == Some(2);
    let cookies = window.grew("TcpExtTCPReqQFullDoCookies").max(window.grew("TcpExtSyncookiesSent"));
    let cookies = if always { 0 } else { cookies };
    if dropped + cookies == 0 {
        return Vec::new();
    }
    let back = window.grew("TcpExtSyncookiesRecv");
    let lost = share(dropped + cookies, window.grew("TcpPassiveOpens") + dropped + cookies);
    // Port scans happen now and then.
    let often = (dropped + cookies) as f64 / window.seconds() >= 1.0;
    let seen = Observation::with_effect(often && lost > 0.001, 20.0 + lost * 60.0)
        .saw(format!("{dropped} dropped, {cookies} answered by cookies, of which {back} came back"), NETSTAT);
    if back * 2 < cookies {
        return vec![
            seen.remedy("few cookies come back: this looks like a flood; keep cookies on and filter it"),
        ];
    }
    if let (Some(0), Some(limit)) =
        (window.number("net/ipv4/tcp_syncookies"), window.number("net/ipv4/tcp_max_syn_backlog"))
    {
        return vec![seen.raise("tcp_max_syn_backlog", limit, limit.saturating_mul(4))];
    }
    // A listener's limit is the smaller of its program's backlog and somaxconn.
    let most = window.number("net/core/somaxconn").unwrap_or_default();
    let is_capped = most > 0 && window.listeners().any(|socket| u64::from(socket.wqueue) >= most);
    vec![if is_capped { seen.raise("somaxconn", most, most.saturating_mul(4)) } else { seen }]
}

fn syn_again(window: &Window<'_>) -> Vec<Observation> {
    let again = window.grew("TcpExtTCPSynRetrans");
    let begun = window.grew("TcpActiveOpens") + window.grew("TcpPassiveOpens");
    let of_all = share(again, begun.max(again));
    if again < 3 || of_all < 0.01 {
        return Vec::new();
    }
    let failed = window.grew("TcpAttemptFails");
    // A connection sends up to ten of them: one program that retries one dead address is not a problem of the host.
    let effect = again >= 10 && begun >= 20;
    let saw =
        format!("{again} handshake packets retransmitted; {begun} connections started, {failed} failed");
    let seen = Observation::with_effect(effect, 10.0 + of_all * 60.0).saw(saw, format!("{NETSTAT}, {SNMP}"));
    vec![match unanswered(window) {
        Some((peer, waiting, all)) => seen.saw(
            format!("{all} from here wait for an answer now, {waiting} of them for {peer}"),
            "sock_diag",
        ),
        None => seen,
    }]
}

/// The destination of most connections whose first packet was retransmitted, the number of these, and the number of
/// such connections to any destination.
fn unanswered(window: &Window<'_>) -> Option<(SocketAddr, usize, usize)> {
    let again =
        |socket: &&TcpSocket| socket.state == SYN_SENT && socket.tcp.is_some_and(|tcp| tcp.retransmits > 0);
    let mut waiting: BTreeMap<SocketAddr, usize> = BTreeMap::new();
    for socket in window.after.answers.sockets.iter().flatten().filter(again) {
        *waiting.entry(socket.peer).or_default() += 1;
    }
    let all = waiting.values().sum();
    let (peer, most) = waiting.into_iter().max_by_key(|(_, waiting)| *waiting)?;
    Some((peer, most, all))
}

/// The number of the state `TCP_TIME_WAIT` (include/net/tcp_states.h).
const TIME_WAIT: u8 = 6;

fn ports(window: &Window<'_>) -> Vec<Observation> {
    let range = window.numbers("net/ipv4/ip_local_port_range");
    let [first, last] = range[..] else { return Vec::new() };
    let mut taken: BTreeMap<(IpAddr, SocketAddr), u64> = BTreeMap::new();
    // Ends of which a connection has ended, so that its port could be used again.
    let mut ended = BTreeSet::new();
    for socket in window.after.answers.sockets.iter().flatten() {
        let port = u64::from(socket.local.port());
        if (first..=last).contains(&port) && socket.peer.port() != 0 {
            let ends = (socket.local.ip(), socket.peer);
            *taken.entry(ends).or_default() += 1;
            if socket.state == TIME_WAIT {
                ended.insert(ends);
            }
        }
    }
    for counted in window.after.answers.ports.iter().flatten() {
        taken.insert((counted.local, counted.peer), counted.ports);
        // In which state they are was not counted.
        ended.insert((counted.local, counted.peer));
    }
    let there = last.saturating_sub(first) + 1;
    let mut found = Vec::new();
    for ((local, peer), taken) in taken {
        let filled = share(taken, there);
        if filled < 0.5 {
            continue;
        }
        let seen = Observation::with_effect(filled > 0.8, filled * 80.0)
            .on(format!("to {peer}"))
            .saw(format!("{taken} of {there} ports taken, {}", percent(filled)), "sock_diag");
        let seen = more_ports(window, seen, (first, last), taken);
        let reuse = window.number("net/ipv4/tcp_tw_reuse") != Some(1) && ended.contains(&(local, peer));
        found.push(if reuse { seen.set("tcp_tw_reuse", 1) } else { seen });
    }
    found
}

/// Proposes a range that is less than four fifths full. Its upper end is free to move; ports below its beginning are
/// those of services, which a connection would take from them while they are not up.
fn more_ports(window: &Window<'_>, seen: Observation, (first, last): (u64, u64), taken: u64) -> Observation {
    const LOWEST: u64 = 10_240;
    const HIGHEST: u64 = 65_535;
    let suffices = last < HIGHEST && taken * 5 < (HIGHEST + 1).saturating_sub(first) * 4;
    if !suffices && first <= LOWEST {
        return seen;
    }
    let begins = if suffices { first } else { LOWEST };
    let is_new = |port: &u64| (begins..first).contains(port) || *port > last;
    let listened: BTreeSet<u64> =
        window.listeners().map(|socket| u64::from(socket.local.port())).filter(is_new).collect();
    let listened: Vec<String> = listened.iter().map(u64::to_string).collect();
    let seen = seen.set("ip_local_port_range", format!("{begins} {HIGHEST}"));
    let reserve =
        "but first list the ports of services in net.ipv4.ip_local_reserved_ports, or connections take them";
    match (suffices, &listened[..]) {
        (true, []) => seen,
        (true, ports) => seen.remedy(format!("{reserve}: here listen {}", ports.join(", "))),
        (false, ports) => {
            let here =
                if ports.is_empty() { String::new() } else { format!("; here listen {}", ports.join(", ")) };
            seen.remedy(format!(
                "{reserve} (Kubernetes has 10250 to 10260, and 30000 to 32767 for node ports){here}; better keep \
                 connections open"
            ))
        }
    }
}

fn time_wait(window: &Window<'_>) -> Vec<Observation> {
    let forgotten = window.grew("TcpExtTCPTimeWaitOverflow");
    if forgotten == 0 {
        return Vec::new();
    }
    let limit = window.number("net/ipv4/tcp_max_tw_buckets").unwrap_or_default();
    let seen = Observation::warning(25.0)
        .saw(format!("{forgotten} forgotten at once (TCPTimeWaitOverflow)"), NETSTAT)
        .saw(format!("{limit} are remembered"), "/proc/sys/net/ipv4/tcp_max_tw_buckets");
    vec![seen.raise("tcp_max_tw_buckets", limit, limit.saturating_mul(2).clamp(131_072, 2_097_152))]
}

fn refused(window: &Window<'_>) -> Vec<Observation> {
    let (resets, failed) = (window.grew("TcpOutRsts"), window.grew("TcpAttemptFails"));
    let per_s = resets as f64 / window.seconds();
    // A reset for data in a closed socket is counted too; but so many resets with so few connections are refusals.
    if per_s < 10.0 || resets < 2 * window.grew("TcpPassiveOpens") {
        return Vec::new();
    }
    vec![Observation::information().saw(format!("{resets} resets sent, {failed} attempts failed"), SNMP)]
}
