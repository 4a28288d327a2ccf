//! Answers, and connections that come and go.

use linux::clock;
use rustix::event::epoll::EventFlags;

use super::Worker;
use crate::ConnectionError;
use crate::ask::ReplyForm;
use crate::client_socket::Received;
use crate::connection::{ConnectionState, OpenRequest};
use crate::exchange::Exchange;
use crate::poller::Ready;
use crate::response::Response;
use crate::target::Sizes;

impl Worker<'_> {
    pub(super) fn on_event(&mut self, ready: Ready, now_ns: u64) -> u64 {
        let Some(index) = self.client.tagged(ready.tag) else { return now_ns };
        match self.client.connections[index as usize].phase {
            ConnectionState::Down => now_ns,
            ConnectionState::Connecting => self.on_progress(index, ready.flags, now_ns),
            ConnectionState::Up => self.on_ready(index, ready.flags, now_ns),
        }
    }

    fn on_progress(&mut self, index: u32, flags: EventFlags, now_ns: u64) -> u64 {
        match self.client.connections[index as usize].progress() {
            Ok(false) => return now_ns,
            Ok(true) => {}
            Err(fault) => {
                self.on_fault(index, fault, now_ns);
                return now_ns;
            }
        }
        self.outcome.reconnects += 1;
        self.outcome.handshakes.count(self.client.connections[index as usize].resumed());
        self.send_promised(index);
        if self.client.connections[index as usize].phase != ConnectionState::Up {
            // It broke as its request was sent, and has been counted.
            return now_ns;
        }
        self.on_room(index, now_ns);
        // A server may have closed or reset it already, and an edge is reported only once.
        self.on_ready(index, flags - EventFlags::OUT, now_ns)
    }

    fn on_ready(&mut self, index: u32, flags: EventFlags, now_ns: u64) -> u64 {
        let client = &mut *self.client;
        if client.asks.reply == ReplyForm::Call {
            return self.poll_call(index);
        }
        if flags.contains(EventFlags::OUT)
            && let Err(fault) =
                client.connections[index as usize].send_rest(&client.asks, &mut client.scratch)
        {
            self.on_fault(index, fault, now_ns);
            return now_ns;
        }
        let ended = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        if !flags.intersects(EventFlags::IN | ended) {
            return now_ns;
        }
        match self.client.asks.reply {
            ReplyForm::Datagram => self.receive_datagrams(index),
            ReplyForm::Call => self.poll_call(index),
            ReplyForm::Http | ReplyForm::Stream(_) => self.receive(index, flags.intersects(ended)),
        }
    }

    /// Takes the messages that are polled for.
    pub(super) fn look_for_answers(&mut self, mut now_ns: u64) -> u64 {
        for index in 0..self.client.connections.len() as u32 {
            let connection = &mut self.client.connections[index as usize];
            if !connection.open.is_empty() && connection.has_message() {
                now_ns = self.receive(index, false);
                now_ns = self.send_due(now_ns);
            }
        }
        now_ns
    }

    /// Reads until the socket is empty. A read that does not fill the buffer has emptied it, unless the end follows.
    fn receive(&mut self, index: u32, ended: bool) -> u64 {
        loop {
            let client = &mut *self.client;
            let connection = &mut client.connections[index as usize];
            let received = connection.receive(&mut client.buffer);
            let to_the_end = ended || !connection.short_read_empties();
            // One reading of the clock for each read: in a batch of answers the last is not as old as the first.
            let now_ns = clock::now_ns();
            let more = match received {
                Ok(Received::Bytes(bytes)) => {
                    self.on_bytes(index, bytes, now_ns) && (to_the_end || bytes == self.client.buffer.len())
                }
                Ok(Received::Empty) => false,
                Ok(Received::End) => {
                    self.on_end(index, now_ns);
                    false
                }
                Err(fault) => {
                    self.on_fault(index, fault, now_ns);
                    false
                }
            };
            if !more {
                return now_ns;
            }
        }
    }

    /// Returns whether the connection is still the same.
    fn on_bytes(&mut self, index: u32, bytes: usize, now_ns: u64) -> bool {
        let mut used = 0;
        while used < bytes {
            let client = &mut *self.client;
            let connection = &mut client.connections[index as usize];
            let Some(open) = connection.open.front().copied() else {
                self.on_fault(index, ConnectionError::Unasked, now_ns);
                return false;
            };
            let is_head = client.asks.kinds[usize::from(open.kind)].is_head;
            match connection.feed(&client.buffer[used..bytes], is_head, &mut client.learned) {
                Ok(None) => break,
                Ok(Some((length, response))) => {
                    used += length;
                    connection.open.pop_front();
                    connection.answers += 1;
                    // The server has no use for the rest of such a request, and the next one cannot be sent before it.
                    let is_cut_short = connection.is_cut_short(&client.asks);
                    if self.on_response(index, open, response, now_ns) {
                        self.split(index, open, now_ns);
                    }
                    if is_cut_short {
                        self.reopen(index, now_ns);
                        return false;
                    }
                    if self.client.is_fresh() {
                        // The side that closes first keeps the port for a minute (TIME_WAIT). That is left to the
                        // server, which was asked to close.
                        if response.keep_alive {
                            self.reopen(index, now_ns);
                        } else {
                            self.client.connections[index as usize].ending_ns = Some(now_ns);
                            self.ending += 1;
                        }
                        return !response.keep_alive;
                    }
                    if !response.keep_alive {
                        self.reopen(index, now_ns);
                        return false;
                    }
                }
                Err(malformed) => {
                    self.on_fault(index, malformed.into(), now_ns);
                    return false;
                }
            }
        }
        self.on_room(index, now_ns);
        true
    }

    /// The server closed the connection.
    fn on_end(&mut self, index: u32, now_ns: u64) {
        let connection = &mut self.client.connections[index as usize];
        match (connection.open.front().copied(), connection.end()) {
            (Some(open), Ok(Some(response))) => {
                connection.open.pop_front();
                self.on_response(index, open, response, now_ns);
                self.reopen(index, now_ns);
            }
            (Some(_), Ok(None)) => self.on_fault(index, ConnectionError::Closed, now_ns),
            (Some(_), Err(malformed)) => self.on_fault(index, malformed.into(), now_ns),
            // A server may close a connection without open requests; closing before the first answer is a refusal.
            (None, _) if connection.answers > 0 => self.reopen(index, now_ns),
            (None, _) => self.on_fault(index, ConnectionError::Closed, now_ns),
        }
    }

    /// Goes on with a connection of HTTP/2 and the call on it.
    pub(super) fn poll_call(&mut self, index: u32) -> u64 {
        loop {
            let polled = self.client.connections[index as usize].poll_call();
            let now_ns = clock::now_ns();
            let connection = &mut self.client.connections[index as usize];
            match polled {
                Ok(Some(response)) => {
                    connection.answers += 1;
                    if let Some(open) = connection.open.pop_front() {
                        self.on_response(index, open, response, now_ns);
                    }
                    self.on_room(index, now_ns);
                }
                Ok(None) => return now_ns,
                // A server may close a connection without open calls.
                Err(ConnectionError::Closed) if connection.open.is_empty() && connection.answers > 0 => {
                    self.reopen(index, now_ns);
                    return now_ns;
                }
                Err(fault) => {
                    self.on_fault(index, fault, now_ns);
                    return now_ns;
                }
            }
        }
    }

    fn receive_datagrams(&mut self, index: u32) -> u64 {
        loop {
            let client = &mut *self.client;
            let received = client.connections[index as usize].receive_datagram(&mut client.buffer);
            let now_ns = clock::now_ns();
            match received {
                Ok(Some(bytes)) => self.on_datagram(index, bytes, now_ns),
                Ok(None) => return now_ns,
                Err(fault) => {
                    self.on_fault(index, fault, now_ns);
                    return now_ns;
                }
            }
        }
    }

    fn on_datagram(&mut self, index: u32, bytes: usize, now_ns: u64) {
        let client = &mut *self.client;
        let number = client.buffer[..bytes].first_chunk::<{ Sizes::NUMBER_BYTES }>();
        let ordinal = number.and_then(|number| u64::from_le_bytes(*number).checked_sub(client.number));
        let connection = &client.connections[index as usize];
        let place = connection.open.iter().position(|open| Some(open.ordinal) == ordinal);
        let Some(open) = place.and_then(|place| self.take_open(index, place)) else {
            self.outcome.strays += 1;
            return;
        };
        self.client.connections[index as usize].answers += 1;
        let response = Response { status: 200, body_bytes: bytes as u64, keep_alive: true };
        if self.on_response(index, open, response, now_ns) {
            self.split(index, open, now_ns);
        }
        self.on_room(index, now_ns);
    }

    /// Separates the time on the wire and in the server from the client's own, if packets are time-stamped.
    fn split(&mut self, index: u32, open: OpenRequest, now_ns: u64) {
        let Some(split) = &mut self.outcome.split else { return };
        // The first packets may not be stamped yet; and a stamp is of another clock than ours.
        if let Some(wire_ns) = self.client.connections[index as usize].wire_ns()
            && let Some(client_ns) = (now_ns - open.sent_ns).checked_sub(wire_ns)
        {
            split.wire.saturating_record(wire_ns);
            split.client.saturating_record(client_ns);
        }
    }

    /// Counts an answer. Whether it is as expected.
    fn on_response(&mut self, index: u32, open: OpenRequest, response: Response, now_ns: u64) -> bool {
        self.open -= 1;
        let expect = self.client.asks.kinds[usize::from(open.kind)].expect;
        let unexpected = &mut self.outcome.unexpected;
        if response.status != expect.status {
            unexpected.status += 1;
            if let Some(count) = unexpected.grpc.get_mut(usize::from(response.status)) {
                *count += 1;
            }
        } else if expect.body_bytes.is_some_and(|bytes| bytes != response.body_bytes) {
            unexpected.length += 1;
        } else {
            self.outcome.answered += 1;
            self.outcome.answered_in_schedule += u64::from(now_ns < self.end_ns);
            // When saturating, response is service, which is filled in at the end.
            if self.saturates {
                self.client.connections[index as usize].times.note(now_ns);
            } else {
                self.outcome.response.saturating_record(now_ns - open.intended_ns);
            }
            self.outcome.service.saturating_record(now_ns - open.sent_ns);
            self.served_ns += now_ns - open.sent_ns;
            self.outcome.series_answered(open.number, now_ns - open.intended_ns);
            self.note(Exchange::of(index, open, now_ns));
            return true;
        }
        unexpected.first.get_or_insert((response.status, response.body_bytes));
        self.note(Exchange::of(index, open, Exchange::NEVER));
        false
    }
}
