//! Receiving sockets: slow readers, windows that close, memory.

use std::collections::BTreeMap;

use super::{IP_SYSCTL, NETSTAT, SNMP_COUNTER, SOCK_DIAG};
use crate::finding::USUAL;
use crate::rate::{bytes, percent, share};
use crate::{Check, CheckGroup, Observation, Window};

const SOCKSTAT: &str = "/proc/net/sockstat";

pub(super) const GROUP: CheckGroup = CheckGroup {
    title: "Receiving sockets",
    checks: &[
        Check {
            code: "HG090",
            title: "received packets are merged or dropped for lack of buffer space",
            why: "A socket's buffer was full of packets that were mostly empty. The kernel merged them by copying, \
                  which can take milliseconds, or dropped packets that it had already received.",
            remedy: "a larger receive buffer for bulk, a smaller one where latency counts more; or a program that reads faster",
            knobs: &["tcp_rmem", "tcp_mem"],
            verify: "TCPRcvCollapsed, PruneCalled and RcvPruned no longer grow",
            source: SNMP_COUNTER,
            follows: &["HG092", "HG093", "HG110"],
            run: collapsed,
        },
        Check {
            code: "HG091",
            title: "receive windows close",
            why: "A socket had to make its peer stop sending: the program reads more slowly than data arrives.",
            remedy: "the program that reads is the limit, not the network; a buffer holds only bursts",
            knobs: &["tcp_rmem"],
            verify: "TCPToZeroWindowAdv no longer grows",
            source: SNMP_COUNTER,
            follows: &["HG092", "HG093", "HG110"],
            run: closed,
        },
        Check {
            code: "HG092",
            title: "a program on this host reads too slowly",
            why: "Data was waiting in the socket at both readings, while the peer had more to send. The sender sees it as a small receive \
                window; the network is not the cause.",
            remedy: "give the program CPU time, or let it read more at a time: no setting of the network helps",
            verify: "Recv-Q of the connection in ss is near 0",
            source: "tcp(7)",
            run: slow_reader,
            ..USUAL
        },
        Check {
            code: "HG093",
            title: "TCP runs out of memory",
            why: "All sockets of the machine together have a limit. Near it the kernel shrinks every window; at \
                  the limit it drops packets and connections, of every container.",
            remedy: "find the sockets that hold it (ss -tm); raise the limit if the machine has the memory",
            knobs: &["tcp_mem"],
            verify: "mem in /proc/net/sockstat stays below the second number of tcp_mem",
            source: IP_SYSCTL,
            run: memory,
            ..USUAL
        },
        Check {
            code: "HG094",
            title: "packets are dropped while a program holds its socket",
            why: "Packets that arrive while the program is in a call on the socket wait in a queue of the socket, which was full.",
            remedy: "shorter calls on this socket, or larger buffers",
            knobs: &["tcp_rmem"],
            verify: "TCPBacklogDrop no longer grows",
            source: SNMP_COUNTER,
            run: backlog,
            ..USUAL
        },
        Check {
            code: "HG095",
            title: "the kernel ends connections for lack of memory or because there are too many orphans",
            why: "Orphans are connections that their program has closed while data was unsent; beyond a limit, or \
                  without memory, they are reset.",
            remedy: "find why peers do not accept the rest of their data; raise tcp_mem if memory is the reason",
            knobs: &["tcp_mem", "tcp_orphan_retries"],
            verify: "TCPAbortOnMemory no longer grows",
            source: SNMP_COUNTER,
            follows: &["HG093"],
            run: aborted,
        },
        Check {
            code: "HG096",
            title: "a container's memory is full, and sockets use a large part of it",
            why: "Buffers of sockets count as memory of their control group. When the group is at its limit, the \
                  kernel keeps the windows of its connections small and drops the excess, whatever tcp_rmem says. \
                  The network and the rest of the machine have room.",
            remedy: "a higher memory limit for the container, or a program that reads its data sooner",
            verify: "max in the group's memory.events no longer grows",
            source: "Documentation/admin-guide/cgroup-v2.rst",
            run: group_memory,
            ..USUAL
        },
    ],
};

fn collapsed(window: &Window<'_>) -> Vec<Observation> {
    let names = ["TCPRcvCollapsed", "PruneCalled", "RcvPruned", "OfoPruned"];
    let figures = grown(window, &names);
    if figures.is_empty() {
        return Vec::new();
    }
    let lost = window.grew("TcpExtRcvPruned") + window.grew("TcpExtOfoPruned");
    // Without PruneCalled the others are zero. One socket that is squeezed once is no problem.
    let squeezed = share(window.grew("TcpExtTCPRcvCollapsed"), window.grew("TcpInSegs"));
    let effect = lost > 0 || squeezed > 0.001;
    vec![Observation::with_effect(effect, 25.0).saw(figures, NETSTAT)]
}

fn closed(window: &Window<'_>) -> Vec<Observation> {
    let names = ["TCPToZeroWindowAdv", "TCPWantZeroWindowAdv", "TCPZeroWindowDrop", "TCPRcvQDrop"];
    let closed = window.grew("TcpExtTCPToZeroWindowAdv") + window.grew("TcpExtTCPWantZeroWindowAdv");
    let dropped = window.grew("TcpExtTCPZeroWindowDrop") + window.grew("TcpExtTCPRcvQDrop");
    let per_s = (closed + dropped) as f64 / window.seconds();
    if per_s < 0.1 {
        return Vec::new();
    }
    vec![
        Observation::with_effect(per_s > 1.0 || dropped > 0, (10.0 + per_s).min(40.0))
            .saw(grown(window, &names), NETSTAT),
    ]
}

/// Counters of `TcpExt` that grew, for people.
fn grown(window: &Window<'_>, names: &[&str]) -> String {
    let growth = names.iter().map(|name| (name, window.grew(&format!("TcpExt{name}"))));
    let figures = growth.filter(|(_, growth)| *growth > 0).map(|(name, growth)| format!("{name} +{growth}"));
    figures.collect::<Vec<_>>().join(", ")
}

fn slow_reader(window: &Window<'_>) -> Vec<Observation> {
    let before = window.before.answers.sockets.iter().flatten().filter(|socket| socket.rqueue > 0);
    let waited: BTreeMap<u64, u32> = before.map(|socket| (socket.cookie, socket.rqueue)).collect();
    let mut found = Vec::new();
    for connection in window.connections() {
        let socket = connection.socket;
        let waiting = socket.rqueue.min(waited.get(&socket.cookie).copied().unwrap_or_default());
        let buffer = socket.memory.map_or(0, |memory| memory.receive_buffer);
        // A third of a buffer is all that data can take when packets are small.
        let filled = share(waiting.into(), buffer.into());
        if waiting < 16_384 || filled < 0.3 {
            continue;
        }
        let seen = Observation::warning(30.0 + filled * 20.0).on(connection.name()).saw(
            format!(
                "{} unread at both readings, of a buffer of {}",
                bytes(waiting.into()),
                bytes(buffer.into())
            ),
            SOCK_DIAG,
        );
        found.push(seen);
    }
    found.sort_by(|a: &Observation, b| b.impact.total_cmp(&a.impact));
    found.truncate(5);
    found
}

fn memory(window: &Window<'_>) -> Vec<Observation> {
    let limits = window.numbers("net/ipv4/tcp_mem");
    let pages = window.after.sockstat.get("TCP mem").copied().unwrap_or_default();
    let pressures = window.grew("TcpExtTCPMemoryPressures");
    let [_, pressure, most] = limits[..] else { return Vec::new() };
    let filled = share(pages, most);
    if pressures == 0 && filled < 0.7 {
        return Vec::new();
    }
    let seen = Observation::with_effect(pressures > 0 || pages > pressure, 40.0 + filled * 40.0)
        .saw(format!("{pages} of {most} pages, {}", percent(filled)), SOCKSTAT)
        .saw(format!("{pressures} times under pressure (TCPMemoryPressures)"), NETSTAT);
    vec![seen]
}

fn backlog(window: &Window<'_>) -> Vec<Observation> {
    let dropped = window.grew("TcpExtTCPBacklogDrop");
    if dropped == 0 {
        return Vec::new();
    }
    let lost = share(dropped, window.grew("TcpInSegs"));
    vec![
        Observation::warning(15.0 + lost * 100.0).saw(format!("{dropped} packets (TCPBacklogDrop)"), NETSTAT),
    ]
}

fn aborted(window: &Window<'_>) -> Vec<Observation> {
    let ended = window.grew("TcpExtTCPAbortOnMemory");
    if ended == 0 {
        return Vec::new();
    }
    let orphans = window.after.sockstat.get("TCP orphan").copied().unwrap_or_default();
    let seen = Observation::warning(35.0)
        .saw(format!("{ended} connections (TCPAbortOnMemory)"), NETSTAT)
        .saw(format!("{orphans} orphans now"), SOCKSTAT);
    vec![seen]
}

fn group_memory(window: &Window<'_>) -> Vec<Observation> {
    let mut found = Vec::new();
    for group in &window.after.groups.tight {
        let (of_sockets, filled) = (share(group.sockets, group.most), share(group.taken, group.most));
        // File caches fill all free memory, and are released on demand.
        if of_sockets < 0.1 || filled < 0.9 {
            continue;
        }
        let before = window.before.groups.tight.iter().find(|other| other.path == group.path);
        let reached = before.map_or(0, |before| group.reached.saturating_sub(before.reached));
        let seen = Observation::with_effect(reached > 0, 40.0 + of_sockets * 40.0)
            .on(&group.path)
            .saw(
                format!(
                    "{} in buffers of sockets, of {} taken and {} allowed",
                    bytes(group.sockets as f64),
                    bytes(group.taken as f64),
                    bytes(group.most as f64)
                ),
                format!("/sys/fs/cgroup/{}/memory.stat", group.path),
            )
            .saw(
                format!("it reached its limit {reached} times"),
                format!("/sys/fs/cgroup/{}/memory.events", group.path),
            );
        found.push(seen);
    }
    found
}
