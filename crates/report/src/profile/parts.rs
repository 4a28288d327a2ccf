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
pub enum Part {
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

impl Part {
    /// All, from the program to the wire, in the order in which they are shown.
    pub const ALL: [Part; 17] = [
        Part::User,
        Part::Syscall,
        Part::Socket,
        Part::Copy,
        Part::Ip,
        Part::Routing,
        Part::Netfilter,
        Part::Bridge,
        Part::Tunnel,
        Part::Bpf,
        Part::Device,
        Part::Softirq,
        Part::Buffers,
        Part::Scheduler,
        Part::Interrupt,
        Part::Other,
        Part::Foreign,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Part::User => "user space",
            Part::Syscall => "system calls, epoll",
            Part::Socket => "TCP, UDP, sockets",
            Part::Copy => "copy to and from user",
            Part::Ip => "IP",
            Part::Routing => "routing, neighbours",
            Part::Netfilter => "netfilter, conntrack",
            Part::Bridge => "bridge",
            Part::Tunnel => "tunnel",
            Part::Bpf => "eBPF programs",
            Part::Device => "veth and other devices",
            Part::Softirq => "softirq hand-off",
            Part::Buffers => "packet memory",
            Part::Scheduler => "scheduler, wake-up",
            Part::Interrupt => "interrupts, timers",
            Part::Other => "other",
            Part::Foreign => "other programs",
        }
    }

    /// The part of a stack as a record has it: who ran, then functions from the outermost.
    pub fn of(stack: &str) -> Part {
        let mut frames = stack.split(';');
        let who = frames.next().unwrap_or_default();
        // Received packets are processed in whichever task is interrupted.
        let foreign = who.starts_with("other:") && !frames.clone().any(|frame| SOFTIRQ.contains(&frame));
        match foreign {
            true => Part::Foreign,
            false => frames.rev().find_map(known).unwrap_or(Part::Other),
        }
    }
}

/// Where the kernel turns from what it interrupted to softirqs.
const SOFTIRQ: [&str; 4] = ["handle_softirqs", "__do_softirq", "do_softirq", "run_ksoftirqd"];

/// Names of functions under the parts that they belong to.
const NAMES: &str = include_str!("parts/names.txt");

/// The part of a function, if the table has it: the longest matching name decides.
fn known(function: &str) -> Option<Part> {
    static BY_NAME: LazyLock<HashMap<&str, Part>> = LazyLock::new(|| names().collect());
    let begins = (0..=function.len()).rev().filter_map(|length| function.get(..length));
    let starred = || begins.map(|begin| format!("{begin}*")).find_map(|name| BY_NAME.get(&*name));
    BY_NAME.get(function).or_else(starred).copied()
}

/// The table, as names with their parts.
fn names() -> impl Iterator<Item = (&'static str, Part)> {
    let words = NAMES.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_ascii_whitespace);
    let of = |heading: &str| Part::ALL.into_iter().find(|part| format!("{part:?}") == heading);
    words
        .scan(Part::Other, move |part, word| match word.strip_suffix(':') {
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
