//! The events, as they lie in the ring.

use super::skeleton::types::{late_event, late_kind, late_timer};
use crate::layout::lies_as;

/// Something that took long, or should not have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateEvent {
    /// When it began, in nanoseconds of `CLOCK_MONOTONIC`.
    pub from_ns: u64,
    /// When it ended; the same instant where it takes no time.
    pub until_ns: u64,
    /// The CPU that reported it.
    pub cpu: u16,
    /// The port of the socket, or from which the packet comes; 0 where there is none.
    pub local_port: u16,
    /// The port of its peer, or to which the packet goes.
    pub remote_port: u16,
    /// What it reports, with what the programs know of it.
    pub kind: LateEventKind,
}

/// What an event reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LateEventKind {
    /// A TCP segment was sent again.
    Retransmitted(Retransmission),
    /// A packet was dropped, for a reason of [`super::drop_reasons`].
    Dropped(u32),
    /// A thread was ready to run and had no CPU.
    Waited(ThreadOwner),
    /// A CPU was at softirq work; the last vector of it (3 is `NET_RX`).
    SoftirqRan(u32),
    /// An exchange was over. `None`: its stage was not seen.
    Exchanged {
        /// The server's socket had the request.
        arrived_ns: Option<u64>,
        /// The server had read it.
        read_ns: Option<u64>,
        /// The server's call that sent the answer had returned, which may be after `back_ns`.
        answered_ns: Option<u64>,
        /// The client's socket had the answer.
        back_ns: Option<u64>,
        /// Where the server had read the request.
        server_cpu: Option<u16>,
    },
}

/// Why a segment was sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Retransmission {
    /// The retransmission timer expired: 200·2ⁿ ms where round trips are short.
    TimeOut,
    /// The tail loss probe: nothing was acknowledged for two round trips, and 200 ms more where a single segment is
    /// in flight.
    Probe,
    /// Acknowledgements said that it was lost: fast retransmit and RACK.
    Fast,
}

/// Whether a thread belongs to the client or to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ThreadOwner {
    Client,
    Server,
}

lies_as!(
    late_event: from_ns 8, until_ns 8, arrived_ns 8, read_ns 8, answered_ns 8, back_ns 8, kind 4, detail 4, cpu 4,
    local_port 2, remote_port 2
);
const _: () = assert!(late_kind::LATE_KINDS.0 == 6 && late_timer::LATE_TIMERS.0 == 3, "read() knows all");

/// An event from its bytes; `None` if it is none.
pub(super) fn read(bytes: &[u8]) -> Option<LateEvent> {
    if bytes.len() < size_of::<late_event>() {
        return None;
    }
    // SAFETY: there are as many bytes, which need not be aligned, and every pattern of bits is such a structure of
    // integers.
    let raw = unsafe { bytes.as_ptr().cast::<late_event>().read_unaligned() };
    let seen = |instant: u64| (instant != 0).then_some(instant);
    let kind = match late_kind(raw.kind) {
        late_kind::LATE_RETRANSMITTED => LateEventKind::Retransmitted(match late_timer(raw.detail) {
            late_timer::LATE_RTO => Retransmission::TimeOut,
            late_timer::LATE_PROBE => Retransmission::Probe,
            late_timer::LATE_FAST => Retransmission::Fast,
            _ => return None,
        }),
        late_kind::LATE_DROPPED => LateEventKind::Dropped(raw.detail),
        late_kind::LATE_SERVER_WAITED => LateEventKind::Waited(ThreadOwner::Server),
        late_kind::LATE_CLIENT_WAITED => LateEventKind::Waited(ThreadOwner::Client),
        late_kind::LATE_SOFTIRQ_RAN => LateEventKind::SoftirqRan(raw.detail),
        late_kind::LATE_EXCHANGED => LateEventKind::Exchanged {
            arrived_ns: seen(raw.arrived_ns),
            read_ns: seen(raw.read_ns),
            answered_ns: seen(raw.answered_ns),
            back_ns: seen(raw.back_ns),
            server_cpu: raw.detail.checked_sub(1).and_then(|cpu| u16::try_from(cpu).ok()),
        },
        _ => return None,
    };
    let late_event { from_ns, until_ns, local_port, remote_port, .. } = raw;
    // No kernel has more than 8192 CPUs.
    let cpu = u16::try_from(raw.cpu).ok()?;
    Some(LateEvent { from_ns, until_ns, cpu, local_port, remote_port, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(kind: late_kind, detail: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for instant in [10_u64, 90, 20, 0, 40, 50] {
            bytes.extend(instant.to_ne_bytes());
        }
        for word in [kind.0, detail, 1] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(40_000_u16.to_ne_bytes());
        bytes.extend(80_u16.to_ne_bytes());
        bytes
    }

    #[test]
    fn fields_lie_where_the_header_has_them() {
        let event =
            |kind| LateEvent { from_ns: 10, until_ns: 90, cpu: 1, local_port: 40_000, remote_port: 80, kind };
        let exchanged = LateEventKind::Exchanged {
            arrived_ns: Some(20),
            read_ns: None,
            answered_ns: Some(40),
            back_ns: Some(50),
            server_cpu: Some(3),
        };
        assert_eq!(read(&bytes(late_kind::LATE_EXCHANGED, 4)), Some(event(exchanged)));
        let probe = LateEventKind::Retransmitted(Retransmission::Probe);
        assert_eq!(read(&bytes(late_kind::LATE_RETRANSMITTED, 1)), Some(event(probe)));
        assert_eq!(read(&bytes(late_kind::LATE_DROPPED, 7)), Some(event(LateEventKind::Dropped(7))));
    }

    #[test]
    fn what_is_no_event_is_none() {
        assert_eq!(read(&[1, 2, 3]), None);
        assert_eq!(read(&bytes(late_kind(99), 0)), None);
        assert_eq!(read(&bytes(late_kind::LATE_RETRANSMITTED, 9)), None);
    }
}
