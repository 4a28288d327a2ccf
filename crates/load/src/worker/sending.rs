//! Requests on their way out.

use linux::clock;

use super::Worker;
use crate::ask::ReplyForm;
use crate::client::QUEUE_WAIT_NS;
use crate::connection::{ConnectionState, OpenRequest};
use crate::exchange::Exchange;
use crate::order::WhenBusy;

impl Worker<'_> {
    /// Sends due requests as long as connections have room. Returns the clock's last reading.
    pub(super) fn send_due(&mut self, mut now_ns: u64) -> u64 {
        while let Some(intended_ns) = self.due(now_ns) {
            match self.client.take() {
                Some(index) if self.client.is_fresh() => now_ns = self.dial(index, intended_ns),
                Some(index) if self.saturates => now_ns = self.fill(index),
                Some(index) => now_ns = self.send(index, intended_ns),
                None => match self.when_busy {
                    WhenBusy::Wait | WhenBusy::Pipeline => break,
                    WhenBusy::Drop => {
                        self.advance();
                        self.note(Exchange::unsent(intended_ns));
                        self.on_dropped(intended_ns, now_ns);
                    }
                    WhenBusy::Grow => {
                        if !self.promise(intended_ns, now_ns) {
                            break;
                        }
                    }
                },
            }
        }
        now_ns
    }

    /// Sends one request on a connection.
    fn send(&mut self, index: u32, intended_ns: u64) -> u64 {
        let sent_ns = clock::now_ns();
        let ordinal = self.advance();
        let kind = self.client.asks.kind_of(ordinal);
        self.open += 1;
        let free_ns = self.client.connections[index as usize].since_ns;
        let open = OpenRequest { intended_ns, sent_ns, free_ns, ordinal, number: self.outcome.sent, kind };
        self.on_sent(open);
        self.client.connections[index as usize].open.push_back(open);
        self.transmit(index, self.client.asks.kinds[usize::from(kind)].bytes.len());
        self.client.offer(index);
        sent_ns
    }

    /// Sends as many requests as there is room for, all at once. Each is intended when it is sent.
    fn fill(&mut self, index: u32) -> u64 {
        let sent_ns = clock::now_ns();
        let mut bytes = 0;
        while self.client.connections[index as usize].taken() < self.client.limit && self.has_more() {
            let ordinal = self.advance();
            let kind = self.client.asks.kind_of(ordinal);
            self.open += 1;
            let number = self.outcome.sent;
            bytes += self.client.asks.kinds[usize::from(kind)].bytes.len();
            let open = OpenRequest { intended_ns: sent_ns, sent_ns, free_ns: sent_ns, ordinal, number, kind };
            self.count_sent(open);
            self.client.connections[index as usize].open.push_back(open);
            // Datagrams are not joined: one is sent for each turn, and the next ones in further turns.
            if self.has_datagrams() {
                self.transmit(index, bytes);
                self.client.offer(index);
                return sent_ns;
            }
        }
        self.transmit(index, bytes);
        sent_ns
    }

    /// Starts the connection of a request, which counts as sent with that.
    fn dial(&mut self, index: u32, intended_ns: u64) -> u64 {
        let sent_ns = clock::now_ns();
        let ordinal = self.advance();
        let kind = self.client.asks.kind_of(ordinal);
        let intended_ns = if self.saturates { sent_ns } else { intended_ns };
        let free_ns = self.client.connections[index as usize].since_ns;
        let open = OpenRequest { intended_ns, sent_ns, free_ns, ordinal, number: self.outcome.sent, kind };
        self.open += 1;
        if self.saturates {
            self.count_sent(open);
        } else {
            self.on_sent(open);
        }
        self.begin(index, open, sent_ns);
        sent_ns
    }

    /// Starts the connection of a request, which waits on it. Where a Unix socket's queue is full it waits for a place,
    /// as the kernel lets it wait over TCP.
    pub(super) fn begin(&mut self, index: u32, open: OpenRequest, now_ns: u64) {
        let started = self.client.reopen(index);
        self.client.connections[index as usize].open.push_back(open);
        match started {
            Ok(()) => {}
            Err(fault) if fault.is_full() => self.client.retry_at(now_ns + QUEUE_WAIT_NS, index),
            Err(fault) => self.on_fault(index, fault, now_ns),
        }
    }

    /// Starts a connection for a request that none is free for. False: there are as many as there may be.
    fn promise(&mut self, intended_ns: u64, now_ns: u64) -> bool {
        let Some(index) = self.client.grow() else { return false };
        let ordinal = self.advance();
        let kind = self.client.asks.kind_of(ordinal);
        self.open += 1;
        self.promised += 1;
        self.on_gone(intended_ns, now_ns);
        self.outcome.grown += 1;
        let open = OpenRequest {
            intended_ns,
            sent_ns: OpenRequest::PROMISED,
            free_ns: OpenRequest::PROMISED,
            ordinal,
            number: OpenRequest::PROMISED,
            kind,
        };
        self.begin(index, open, now_ns);
        true
    }

    /// A connection came up: what was promised to it is sent now.
    pub(super) fn send_promised(&mut self, index: u32) {
        let connection = &mut self.client.connections[index as usize];
        let Some(open) = connection.open.front_mut() else { return };
        let promised = open.sent_ns == OpenRequest::PROMISED;
        if promised {
            open.sent_ns = clock::now_ns();
            // The connection was made for it, so all of the wait is the generator's choice and none its lateness.
            open.free_ns = open.sent_ns;
            open.number = self.outcome.sent;
        }
        let open = *open;
        if promised {
            self.promised -= 1;
            self.on_sent(open);
        }
        self.transmit(index, self.client.asks.kinds[usize::from(open.kind)].bytes.len());
    }

    pub(super) fn has_datagrams(&self) -> bool {
        self.client.asks.reply == ReplyForm::Datagram
    }

    /// Marks the next request as accounted for, and returns its ordinal.
    fn advance(&mut self) -> u64 {
        self.pace.advance();
        self.ordinal += 1;
        self.ordinal - 1
    }

    fn on_sent(&mut self, open: OpenRequest) {
        let lag_ns = open.sent_ns - open.intended_ns;
        self.on_gone(open.intended_ns, open.sent_ns);
        self.outcome.lag.saturating_record(lag_ns);
        self.outcome.late.saturating_record(open.sent_ns - open.intended_ns.max(open.free_ns));
        self.note_backlog(open.sent_ns, self.ordinal);
        self.count_sent(open);
    }

    /// Counts a request that goes now. Its number is how many went before it.
    fn count_sent(&mut self, open: OpenRequest) {
        let gap_ns = if self.sent_ns == 0 { 0 } else { open.sent_ns - self.sent_ns };
        self.sent_ns = open.sent_ns;
        self.outcome.series_sent(open.number, gap_ns);
        self.outcome.sent += 1;
        self.outcome.sent_in_schedule += u64::from(open.sent_ns < self.end_ns);
    }

    /// Hands the last bytes of a connection's open requests to its socket.
    fn transmit(&mut self, index: u32, bytes: usize) {
        let client = &mut *self.client;
        let connection = &mut client.connections[index as usize];
        let sent = match client.asks.reply {
            ReplyForm::Datagram => {
                let ordinal = connection.open.back().map_or(0, |open| open.ordinal);
                connection.send_datagram(client.number + ordinal, &mut client.scratch)
            }
            // Its answer may be read together with what has to be read to send it; no event would report that.
            ReplyForm::Call => match connection.call(&client.asks.message) {
                Ok(()) => {
                    self.poll_call(index);
                    Ok(())
                }
                broken => broken,
            },
            ReplyForm::Http | ReplyForm::Stream(_) => {
                connection.send(bytes, &client.asks, &mut client.scratch)
            }
        };
        if let Err(fault) = sent {
            self.on_fault(index, fault, clock::now_ns());
        }
    }

    /// There is room on a connection again, or for the first time.
    pub(super) fn on_room(&mut self, index: u32, now_ns: u64) {
        let is_fresh = self.client.is_fresh();
        let connection = &mut self.client.connections[index as usize];
        if connection.phase == ConnectionState::Up || is_fresh && connection.phase == ConnectionState::Down {
            connection.since_ns = now_ns;
            self.client.offer(index);
        }
    }
}
