//! Phrases of the checks that differ with the protocol, and how they write times.

use crate::{ConnectionError, Outcome, Protocol};

/// The noun for what carries one request: "socket" for datagrams, otherwise "connection".
pub(super) fn connection(outcome: &Outcome) -> &'static str {
    match outcome.protocol {
        Protocol::Http | Protocol::Grpc | Protocol::Stream => "connection",
        Protocol::Datagrams => "socket",
    }
}

/// The plural of [`connection`].
pub(super) fn connections(outcome: &Outcome) -> &'static str {
    match outcome.protocol {
        Protocol::Http | Protocol::Grpc | Protocol::Stream => "connections",
        Protocol::Datagrams => "sockets",
    }
}

/// How many answers had another status or size than expected, and the first of them; `None` if there was none.
pub(super) fn unexpected(outcome: &Outcome) -> Option<String> {
    let count = outcome.unexpected.count();
    let (status, body_bytes) = outcome.unexpected.first?;
    Some(match outcome.protocol {
        Protocol::Http | Protocol::Grpc => {
            let codes = outcome.unexpected.grpc.iter().enumerate().filter(|(_, count)| **count > 0);
            let codes: Vec<String> = codes.map(|(code, count)| format!("{count} with code {code}")).collect();
            let codes = if codes.is_empty() { String::new() } else { format!(" ({})", codes.join(", ")) };
            format!(
                "{count} were answered otherwise{codes}, the first with status {status} and {body_bytes} bytes"
            )
        }
        Protocol::Stream | Protocol::Datagrams => {
            format!("{count} had an answer of another size, the first of {body_bytes} bytes")
        }
    })
}

/// The sentence for a fault. The kernel calls an unreachable port a refused connection, which datagrams do not have.
pub(super) fn fault(outcome: &Outcome, fault: &ConnectionError) -> String {
    match (outcome.protocol, fault) {
        (Protocol::Datagrams, ConnectionError::System(_)) if fault.is_refused() => {
            "the port is unreachable".to_owned()
        }
        (Protocol::Http | Protocol::Grpc | Protocol::Stream | Protocol::Datagrams, fault) => {
            fault.to_string()
        }
    }
}

/// A time in ns, written in the unit in which it is at least 1, with at most two decimals.
pub(super) fn time(ns: f64) -> String {
    match ns {
        _ if ns < 1e3 => format!("{ns:.0} ns"),
        _ if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        _ if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}
