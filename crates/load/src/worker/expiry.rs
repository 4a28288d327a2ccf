//! Requests and connections that have been open for too long.

use super::Worker;
use crate::ConnectionError;
use crate::connection::{LOST_MAX, OpenRequest};
use crate::outcome::Reason;

/// A datagram most likely is lost if its answer takes so many times as long as answers have taken on average: requests
/// that queue at a server take twice as long when it is slow for a while, and seldom four times.
const MEANS: u64 = 4;

/// As long as nothing is known of how long answers take, a datagram is waited for this long at least: Linux's shortest
/// retransmission time-out, longer than almost any way through the Internet.
const UNKNOWN_NS: u64 = 200_000_000;

/// For how long it is left to a server to close a connection as it was asked to. The one that closes first keeps the
/// port for a minute.
const CLOSE_NS: u64 = 1_000_000_000;

impl Worker<'_> {
    /// Gives up requests that have been open for too long, and closes their connections: later bytes there would
    /// answer the wrong request. A datagram's number identifies its request, so its socket stays.
    pub(super) fn expire(&mut self, now_ns: u64) {
        let mut next_ns = now_ns + self.timeout_ns;
        for index in 0..self.client.connections.len() as u32 {
            let datagrams = self.has_datagrams();
            while let Some(open) = self.client.connections[index as usize].open.front().copied() {
                let expires_ns = open.sent_ns.saturating_add(self.timeout_ns);
                if expires_ns > now_ns {
                    next_ns = next_ns.min(expires_ns);
                    break;
                }
                if !datagrams {
                    self.on_fault(index, ConnectionError::Timeout, now_ns);
                    break;
                }
                self.take_open(index, 0);
                self.miss(index, open, Reason::Expired, now_ns);
                self.on_room(index, now_ns);
            }
        }
        self.expiry_ns = next_ns;
    }

    /// Lets sockets send the next datagram whose last one most likely is lost. An answer that still comes counts,
    /// unless more than [`LOST_MAX`] such datagrams of the socket came after it.
    pub(super) fn presume_lost(&mut self, now_ns: u64) {
        let mean_ns = self.mean_ns().or(self.client.mean_ns);
        let waited_ns = self.lost_after_ns.max(mean_ns.map_or(UNKNOWN_NS, |ns| ns.saturating_mul(MEANS)));
        let mut next_ns = now_ns.saturating_add(waited_ns);
        for index in 0..self.client.connections.len() as u32 {
            loop {
                let connection = &self.client.connections[index as usize];
                let Some(open) = connection.open.get(connection.lost) else { break };
                let lost_ns = open.sent_ns.saturating_add(waited_ns);
                if lost_ns > now_ns {
                    next_ns = next_ns.min(lost_ns);
                    break;
                }
                if connection.lost == LOST_MAX
                    && let Some(oldest) = self.take_open(index, 0)
                {
                    self.miss(index, oldest, Reason::Expired, now_ns);
                }
                self.client.connections[index as usize].lost += 1;
                self.lost += 1;
                self.on_room(index, now_ns);
            }
        }
        self.presume_ns = next_ns;
    }

    /// How long answers have taken on average in this run.
    pub(super) fn mean_ns(&self) -> Option<u64> {
        self.served_ns.checked_div(self.outcome.answered)
    }

    /// Closes what servers have not closed, though they said so or were asked to: some wait for the client to do it,
    /// and a server's end may be lost on the way.
    pub(super) fn leave_unclosed(&mut self, now_ns: u64) {
        for index in 0..self.client.connections.len() as u32 {
            if self.ending == 0 {
                return;
            }
            let ending_ns = self.client.connections[index as usize].ending_ns;
            if ending_ns.is_some_and(|ending_ns| now_ns.saturating_sub(ending_ns) >= CLOSE_NS) {
                self.reopen(index, now_ns);
            }
        }
    }

    /// Takes an open request off its connection.
    pub(super) fn take_open(&mut self, index: u32, place: usize) -> Option<OpenRequest> {
        let connection = &mut self.client.connections[index as usize];
        let open = connection.open.remove(place)?;
        if place < connection.lost {
            connection.lost -= 1;
            self.lost -= 1;
        }
        Some(open)
    }
}
