//! Sizes of buffers, against what the kernel would have chosen and what paths need.

use tune::{ByDefault, Lives};

use super::{IP_SYSCTL, SOCK_DIAG};
use crate::finding::USUAL;
use crate::rate::{bits_per_s, bytes, millis};
use crate::{Check, CheckGroup, Observation, Window};

pub(super) const GROUP: CheckGroup = CheckGroup {
    title: "Buffers",
    checks: &[
        Check {
            code: "HG110",
            title: "a limit is lower than this kernel's own default",
            why: "Guides recommend values that were larger than the defaults of their time. Kernels have raised theirs since, and \
                the advice now lowers them.",
            remedy: "remove the line from the file that sets it, or use the kernel's default",
            knobs: &["tcp_rmem", "tcp_wmem", "rmem_max", "wmem_max", "somaxconn", "tcp_limit_output_bytes"],
            verify: "the value is the kernel's default, or larger",
            source: "tcp_init in net/ipv4/tcp.c, net/core/sysctl_net_core.c, and values read from running kernels",
            run: below_default,
            ..USUAL
        },
        Check {
            code: "HG111",
            title: "a receive buffer has grown to its limit",
            why: "The kernel sizes receive buffers by what a path carries in a round trip, up to the last number \
                  of tcp_rmem. This connection has reached it, so its window may be the limit.",
            remedy: "twice the bandwidth-delay product; memory is only used while data waits",
            knobs: &["tcp_rmem"],
            verify: "rb in skmem of ss -tm is below the limit, or the rate rises",
            source: IP_SYSCTL,
            follows: &["HG110", "HG092"],
            run: at_limit,
        },
    ],
};

const MIB: u64 = 1 << 20;
/// Limits that guides lower: the knobs, whose rows have the defaults of every kernel, and the position of the number
/// that limits.
const LIMITS: &[(&str, usize)] = &[
    ("tcp_rmem", 2),
    ("tcp_wmem", 2),
    ("tcp_limit_output_bytes", 0),
    ("rmem_max", 0),
    ("wmem_max", 0),
    ("somaxconn", 0),
];

fn below_default(window: &Window<'_>) -> Vec<Observation> {
    let mut found = Vec::new();
    for (id, at) in LIMITS {
        let Some(knob) = tune::find(id) else { continue };
        let (Lives::Sysctl(key) | Lives::Machine(key)) = knob.lives else { continue };
        let mut numbers = window.numbers(key);
        let words = knob.default.on(window.kernel()).unwrap_or_default();
        let default = words.split_ascii_whitespace().nth(*at).and_then(|word| word.parse::<u64>().ok());
        let Some((now, default)) = numbers.get(*at).copied().zip(default) else { continue };
        // The kernel takes a 128th of the memory that is free at its start (`tcp_init`), where that is less.
        let of_memory = window.after.machine.memory_bytes / 128;
        let is_capped = matches!(knob.default, ByDefault::Capped(..)) && of_memory < default;
        let default = if is_capped { of_memory } else { default };
        // Half of the memory may have been taken when it looked.
        if now >= if is_capped { default / 2 } else { default } {
            continue;
        }
        let here = if is_capped { " with this much memory" } else { "" };
        let limited = limited_by(window, key, now);
        let file = window.configured().rev().find(|line| line.key == key);
        let mut seen = Observation::with_effect(limited.is_some(), 60.0).on(key.replace('/', ".")).saw(
            format!("{now}; the default of Linux {} is {default}{here}", window.kernel()),
            format!("/proc/sys/{key}"),
        );
        seen.evidence.extend(limited);
        if let Some(line) = file {
            seen = seen.saw(format!("set to {:?}", line.value), line.file.clone());
        }
        numbers[*at] = default;
        let value = numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
        found.push(seen.set(knob.id, value));
    }
    found
}

/// A connection that feels the limit.
fn limited_by(window: &Window<'_>, key: &str, limit: u64) -> Option<crate::Evidence> {
    let limit = limit as f64 * 0.9;
    let saw = window.connections().iter().find_map(|connection| {
        let memory = connection.socket.memory?;
        match key {
            "net/ipv4/tcp_rmem" => {
                let full = f64::from(memory.receive_buffer) >= limit && connection.received() > MIB;
                full.then(|| format!("{} has a receive buffer at the limit", connection.name()))
            }
            "net/ipv4/tcp_wmem" => {
                let full = f64::from(memory.send_buffer) >= limit && connection.sndbuf_share() > 0.1;
                full.then(|| {
                    format!("{} is limited by its send buffer, which is at the limit", connection.name())
                })
            }
            _ => None,
        }
    });
    let listens = || window.listeners().any(|socket| f64::from(socket.wqueue) >= limit);
    let overflows = window.grew("TcpExtListenOverflows");
    let overflow = key == "net/core/somaxconn" && overflows > 0 && listens();
    let saw = saw.or(overflow.then(|| format!("listeners with this limit overflowed {overflows} times")))?;
    Some(crate::Evidence { saw, read_from: SOCK_DIAG.to_owned() })
}

fn at_limit(window: &Window<'_>) -> Vec<Observation> {
    let numbers = window.numbers("net/ipv4/tcp_rmem");
    let Ok(sizes @ [_, _, most]) = <[u64; 3]>::try_from(numbers) else { return Vec::new() };
    let mut found = Vec::new();
    for connection in window.connections() {
        let Some(memory) = connection.socket.memory else { continue };
        let at_most = f64::from(memory.receive_buffer) >= most as f64 * 0.95;
        let rtt_us = f64::from(connection.now.rcv_rtt.max(connection.now.rtt));
        // On a short path a buffer of that size is not what limits.
        if !at_most || connection.received() < MIB || rtt_us < 5000.0 {
            continue;
        }
        let rate = connection.received() as f64 / window.seconds();
        let product = rate * rtt_us / 1e6;
        // Half of a buffer is window, the rest the kernel's own share of each packet.
        let effect = product > most as f64 * 0.35;
        let seen = Observation::with_effect(effect, 50.0)
            .on(connection.name())
            .saw(
                format!(
                    "its buffer is {}, tcp_rmem allows {}",
                    bytes(memory.receive_buffer.into()),
                    bytes(most as f64)
                ),
                SOCK_DIAG,
            )
            .saw(
                format!("{} over {}: {} a round trip", bits_per_s(rate), millis(rtt_us), bytes(product)),
                SOCK_DIAG,
            );
        found.push(seen.raise_last("tcp_rmem", sizes, most.saturating_mul(4)));
    }
    found.truncate(5);
    found
}
