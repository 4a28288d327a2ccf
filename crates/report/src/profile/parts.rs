//! Which part of the kernel a stack belongs to, by a table of names of functions (`parts/names.txt`).
//!
//! The innermost function that the table knows decides. What serves all parts (locks, copying within the kernel, RCU)
//! is not in the table, so that its time belongs to the caller.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::Serialize;

/// A part of a request's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PathPart {
    /// Client and server themselves.
    User,
    /// System calls up to where a protocol begins: entry and exit, files, epoll, security modules.
    Syscall,
    /// TCP, UDP and sockets.
    Socket,
    /// Data between programs and kernel.
    Copy,
    /// IP, IPv4 and IPv6.
    Ip,
    /// Routing decisions and neighbour lookups.
    Routing,
    /// Netfilter: hooks, conntrack, NAT, nftables.
    Netfilter,
    /// Forwarding by Linux bridges.
    Bridge,
    /// Tunnels: vxlan and what decapsulates.
    Tunnel,
    /// BPF programs and their helpers.
    Bpf,
    /// Devices: veth, macvlan, ipvlan, netkit, queueing disciplines.
    Device,
    /// From one CPU or context to the next: softirq, backlog, RPS, NAPI, and the receive core that hands packets on.
    Softirq,
    /// Allocation and release of packets' memory.
    Buffers,
    /// The scheduler: waking, switching, going idle and coming back.
    Scheduler,
    /// Entry and exit of interrupts, and timers.
    Interrupt,
    /// Functions of no other part.
    Other,
    /// Other programs on the same CPUs: in no sum.
    Foreign,
}

impl PathPart {
    /// All, from the program to the wire, in the order in which they are shown.
    pub const ALL: [PathPart; 17] = [
        PathPart::User,
        PathPart::Syscall,
        PathPart::Socket,
        PathPart::Copy,
        PathPart::Ip,
        PathPart::Routing,
        PathPart::Netfilter,
        PathPart::Bridge,
        PathPart::Tunnel,
        PathPart::Bpf,
        PathPart::Device,
        PathPart::Softirq,
        PathPart::Buffers,
        PathPart::Scheduler,
        PathPart::Interrupt,
        PathPart::Other,
        PathPart::Foreign,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            PathPart::User => "user space",
            PathPart::Syscall => "system calls, epoll",
            PathPart::Socket => "TCP, UDP, sockets",
            PathPart::Copy => "copy to and from user",
            PathPart::Ip => "IP",
            PathPart::Routing => "routing, neighbours",
            PathPart::Netfilter => "netfilter, conntrack",
            PathPart::Bridge => "bridge",
            PathPart::Tunnel => "tunnel",
            PathPart::Bpf => "eBPF programs",
            PathPart::Device => "veth and other devices",
            PathPart::Softirq => "softirq hand-off",
            PathPart::Buffers => "packet memory",
            PathPart::Scheduler => "scheduler, wake-up",
            PathPart::Interrupt => "interrupts, timers",
            PathPart::Other => "other",
            PathPart::Foreign => "other programs",
        }
    }

    /// The part of a stack as a record has it: the task, then functions from the outermost.
    pub fn of(stack: &str) -> PathPart {
        let mut frames = stack.split(';');
        let who = frames.next().unwrap_or_default();
        // Received packets are processed in whichever task is interrupted.
        let foreign = who.starts_with("other:") && !frames.clone().any(|frame| SOFTIRQ.contains(&frame));
        match foreign {
            true => PathPart::Foreign,
            false => frames.rev().find_map(known).unwrap_or(PathPart::Other),
        }
    }
}

/// Where the kernel turns from what it interrupted to softirqs.
const SOFTIRQ: [&str; 4] = ["handle_softirqs", "__do_softirq", "do_softirq", "run_ksoftirqd"];

/// Names of functions under the parts that they belong to.
const NAMES: &str = include_str!("parts/names.txt");

/// The part of a function, if the table has it: the longest matching name decides.
fn known(function: &str) -> Option<PathPart> {
    static BY_NAME: LazyLock<HashMap<&str, PathPart>> = LazyLock::new(|| names().collect());
    let begins = (0..=function.len()).rev().filter_map(|length| function.get(..length));
    let starred = || begins.map(|begin| format!("{begin}*")).find_map(|name| BY_NAME.get(&*name));
    BY_NAME.get(function).or_else(starred).copied()
}

/// The table, as names with their parts.
fn names() -> impl Iterator<Item = (&'static str, PathPart)> {
    let words = NAMES.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_ascii_whitespace);
    let of = |heading: &str| PathPart::ALL.into_iter().find(|part| format!("{part:?}") == heading);
    words
        .scan(PathPart::Other, move |part, word| match word.strip_suffix(':') {
            Some(heading) => {
                *part = of(heading).expect("the table has parts that there are");
                Some(None)
            }
            None => Some(Some((word, *part))),
        })
        .flatten()
}

#[cfg(test)]
mod tests;
