//! The loop of one thread: send what is due, read what has come, wait for whichever is next.
//!
//! **Invariant: nothing in this file allocates, locks, logs, or reads another clock than [`linux::clock`].** All memory
//! is taken when the client and the outcome are made; a test with a counting allocator holds the loop to it.
//!
//! A request for which no connection is free waits in order and keeps its intended time. That queue is not made of
//! anything: requests differ by their instants alone, and the schedule can tell the next instant at any time.

use std::time::Duration;

use linux::clock;
use rustix::event::epoll::{self, EventFlags};

use crate::client::EVENTS;
use crate::connection::{Connection, Fault, Open, Phase, Received};
use crate::response::Response;
use crate::schedule::Pace;
use crate::wait::Waiting;
use crate::{Client, Live, Outcome};

/// How long a connection that broke is left alone. A server that refuses everybody is not asked in a tight loop.
const RETRY_NS: u64 = 10_000_000;

/// How often the view from outside is brought up to date and its wish to stop is looked at.
const LIVE_NS: u64 = 100_000_000;

/// What a thread does, and when.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) pace: Pace,
    pub(crate) duration: Duration,
    pub(crate) drain: Duration,
    pub(crate) waiting: Waiting,
}

pub(crate) struct Worker<'a> {
    client: &'a mut Client,
    pace: Pace,
    waiting: Waiting,
    outcome: &'a mut Outcome,
    live: &'a Live,
    events: Vec<epoll::Event>,
    /// Start and end of the schedule, and all instants below, are those of the clock.
    start_ns: u64,
    end_ns: u64,
    drain_ns: u64,
    live_ns: u64,
    /// What the view from outside knows of already.
    published: (u64, u64),
    /// Requests that wait for an answer.
    open: usize,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(
        client: &'a mut Client,
        order: Order,
        outcome: &'a mut Outcome,
        live: &'a Live,
    ) -> Worker<'a> {
        Worker {
            client,
            pace: order.pace,
            waiting: order.waiting,
            outcome,
            live,
            events: Vec::with_capacity(EVENTS),
            start_ns: 0,
            end_ns: nanoseconds(order.duration),
            drain_ns: nanoseconds(order.drain),
            live_ns: LIVE_NS,
            published: (0, 0),
            open: 0,
        }
    }

    /// Does the whole run from an instant of the clock on, and accounts for every request.
    pub(crate) fn run(mut self, start_ns: u64) {
        self.start_ns = start_ns;
        self.end_ns = start_ns.saturating_add(self.end_ns);
        self.live_ns = start_ns.saturating_add(self.live_ns);
        let mut now_ns = clock::now_ns();
        loop {
            now_ns = self.send_due(now_ns);
            if self.is_finished(now_ns) {
                break;
            }
            self.keep_up(now_ns);
            let mut timeout_ns = self.timeout_ns(now_ns);
            if timeout_ns > 0 {
                // The last reading may be from before a send, and a sleep that is measured from then is as much too
                // long as the send took.
                now_ns = clock::now_ns();
                timeout_ns = self.timeout_ns(now_ns);
            }
            // With nothing to come from the network, the last microseconds before an instant are spun on the clock
            // alone, which is five times as fine as on an empty epoll.
            if timeout_ns == 0 && self.is_quiet(now_ns) {
                now_ns = clock::now_ns();
            } else {
                now_ns = self.poll(now_ns, timeout_ns);
            }
        }
        self.account(now_ns);
    }

    fn poll(&mut self, asleep_ns: u64, timeout_ns: u64) -> u64 {
        self.client.poll(&mut self.events, timeout_ns);
        let mut now_ns = clock::now_ns();
        if timeout_ns > 0 && self.events.is_empty() {
            self.waiting.woke(asleep_ns.saturating_add(timeout_ns), now_ns);
        }
        for event in 0..self.events.len() {
            now_ns = self.on_event(self.events[event], now_ns);
            // Between two answers there is time to be late in: see whether a request is due.
            now_ns = self.send_due(now_ns);
        }
        now_ns
    }

    /// Sends what is due as long as there are free connections. Returns the clock's last reading.
    fn send_due(&mut self, mut now_ns: u64) -> u64 {
        while let Some(intended_ns) = self.due(now_ns) {
            let Some(index) = self.client.free.pop_front() else { break };
            let connection = &mut self.client.connections[index as usize];
            connection.queued = false;
            // It may have broken while it stood in the queue.
            if let Phase::Free { since_ns } = connection.phase {
                now_ns = self.send(index, intended_ns, since_ns);
            }
        }
        now_ns
    }

    /// The intended instant of the next request, if that has come and lies within the schedule.
    fn due(&self, now_ns: u64) -> Option<u64> {
        // Before the start a saturating thread is not due either.
        let elapsed_ns = now_ns.checked_sub(self.start_ns)?;
        let intended_ns = self.start_ns.saturating_add(self.pace.next_ns(elapsed_ns));
        (intended_ns <= now_ns && intended_ns < self.end_ns).then_some(intended_ns)
    }

    fn send(&mut self, index: u32, mut intended_ns: u64, free_since_ns: u64) -> u64 {
        let sent_ns = clock::now_ns();
        if matches!(self.pace, Pace::Saturate) {
            intended_ns = sent_ns;
        }
        self.pace.advance();
        let lag_ns = sent_ns - intended_ns;
        self.outcome.lag.saturating_record(lag_ns);
        self.outcome.late.saturating_record(sent_ns - intended_ns.max(free_since_ns));
        self.outcome.backlog_max = self.outcome.backlog_max.max(self.pace.periods_in(lag_ns));
        self.outcome.sent += 1;
        self.outcome.sent_in_schedule += u64::from(sent_ns < self.end_ns);
        self.open += 1;
        let connection = &mut self.client.connections[index as usize];
        connection.phase = Phase::Busy(Open { intended_ns, sent_ns });
        if let Err(errno) = connection.send(&self.client.request) {
            self.on_fault(index, errno.into(), clock::now_ns());
        }
        sent_ns
    }

    fn on_event(&mut self, event: epoll::Event, now_ns: u64) -> u64 {
        let Some(index) = Connection::of_event(&self.client.connections, event) else { return now_ns };
        let flags = event.flags;
        match self.client.connections[index as usize].phase {
            Phase::Down => now_ns,
            Phase::Connecting => self.on_connected(index, flags, now_ns),
            Phase::Free { .. } | Phase::Busy(_) => self.on_ready(index, flags, now_ns),
        }
    }

    fn on_connected(&mut self, index: u32, flags: EventFlags, now_ns: u64) -> u64 {
        if let Err(errno) = self.client.connections[index as usize].finish_connect() {
            self.on_fault(index, errno.into(), now_ns);
            return now_ns;
        }
        self.outcome.reconnects += 1;
        self.on_free(index, now_ns);
        // A server may have closed or reset it already, and an edge is told but once.
        self.on_ready(index, flags - EventFlags::OUT, now_ns)
    }

    fn on_ready(&mut self, index: u32, flags: EventFlags, now_ns: u64) -> u64 {
        if flags.contains(EventFlags::OUT)
            && let Err(errno) = self.client.connections[index as usize].send_rest(&self.client.request)
        {
            self.on_fault(index, errno.into(), now_ns);
            return now_ns;
        }
        let ended = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        if flags.intersects(EventFlags::IN | ended) {
            return self.receive(index, flags.intersects(ended));
        }
        now_ns
    }

    /// Reads until the socket is empty. A read that does not fill the buffer has emptied it, unless the end follows.
    fn receive(&mut self, index: u32, ended: bool) -> u64 {
        loop {
            let received = self.client.connections[index as usize].receive(&mut self.client.buffer);
            // One reading of the clock for each read: in a batch of answers the last is not as old as the first.
            let now_ns = clock::now_ns();
            let more = match received {
                Ok(Received::Bytes(bytes)) => {
                    self.on_bytes(index, bytes, now_ns) && (ended || bytes == self.client.buffer.len())
                }
                Ok(Received::Empty) => false,
                Ok(Received::End) => {
                    self.on_end(index, now_ns);
                    false
                }
                Err(errno) => {
                    self.on_fault(index, errno.into(), now_ns);
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
            let connection = &mut self.client.connections[index as usize];
            let Phase::Busy(open) = connection.phase else {
                self.on_fault(index, Fault::Unasked, now_ns);
                return false;
            };
            match connection.parser.feed(&self.client.buffer[used..bytes]) {
                Ok(None) => return true,
                Ok(Some((length, response))) => {
                    used += length;
                    self.on_response(index, open, response, now_ns);
                    if !response.keep_alive {
                        self.reopen(index, now_ns);
                        return false;
                    }
                    self.on_free(index, now_ns);
                }
                Err(malformed) => {
                    self.on_fault(index, malformed.into(), now_ns);
                    return false;
                }
            }
        }
        true
    }

    /// The server closed the connection.
    fn on_end(&mut self, index: u32, now_ns: u64) {
        let connection = &mut self.client.connections[index as usize];
        match (connection.phase, connection.parser.end()) {
            (Phase::Busy(open), Ok(Some(response))) => {
                self.on_response(index, open, response, now_ns);
                self.reopen(index, now_ns);
            }
            (Phase::Busy(_), Ok(None)) => self.on_fault(index, Fault::Closed, now_ns),
            (Phase::Busy(_), Err(malformed)) => self.on_fault(index, malformed.into(), now_ns),
            // To close a connection on which nothing is open is a server's right; to do so before the first answer
            // is a refusal.
            (Phase::Free { .. } | Phase::Connecting | Phase::Down, _) if connection.answers > 0 => {
                self.reopen(index, now_ns);
            }
            (Phase::Free { .. } | Phase::Connecting | Phase::Down, _) => {
                self.on_fault(index, Fault::Closed, now_ns);
            }
        }
    }

    fn on_response(&mut self, index: u32, open: Open, response: Response, now_ns: u64) {
        let connection = &mut self.client.connections[index as usize];
        connection.answers += 1;
        connection.phase = Phase::Free { since_ns: now_ns };
        self.open -= 1;
        let expect = self.client.target.expect;
        let unexpected = &mut self.outcome.unexpected;
        if response.status != expect.status {
            unexpected.status += 1;
        } else if expect.body_bytes.is_some_and(|bytes| bytes != response.body_bytes) {
            unexpected.length += 1;
        } else {
            self.outcome.answered += 1;
            self.outcome.answered_in_schedule += u64::from(now_ns < self.end_ns);
            self.outcome.response.saturating_record(now_ns - open.intended_ns);
            self.outcome.service.saturating_record(now_ns - open.sent_ns);
            return;
        }
        unexpected.first.get_or_insert((response.status, response.body_bytes));
    }

    fn on_free(&mut self, index: u32, now_ns: u64) {
        let connection = &mut self.client.connections[index as usize];
        connection.phase = Phase::Free { since_ns: now_ns };
        if !connection.queued {
            connection.queued = true;
            self.client.free.push_back(index);
        }
    }

    /// A connection broke: its request is lost, and it is tried again after a while. The request is not: a request
    /// that was sent twice would be two.
    fn on_fault(&mut self, index: u32, fault: Fault, now_ns: u64) {
        let connection = &mut self.client.connections[index as usize];
        if let Phase::Busy(open) = connection.phase {
            self.open -= 1;
            self.outcome.missed.ages.saturating_record(now_ns - open.intended_ns);
        }
        connection.close();
        self.outcome.connection_errors += 1;
        self.outcome.first_fault.get_or_insert(fault);
        self.client.retry.push_back((now_ns + RETRY_NS, index));
    }

    fn reopen(&mut self, index: u32, now_ns: u64) {
        if let Err(errno) = self.client.open(index) {
            self.on_fault(index, errno.into(), now_ns);
        }
    }

    /// The work that has nothing to do with a single answer.
    fn keep_up(&mut self, now_ns: u64) {
        while let Some((at_ns, index)) = self.client.retry.front().copied()
            && at_ns <= now_ns
        {
            self.client.retry.pop_front();
            self.reopen(index, now_ns);
        }
        if now_ns >= self.live_ns {
            self.live_ns = now_ns + LIVE_NS;
            self.publish();
            if self.live.is_stopped() {
                self.end_ns = self.end_ns.min(now_ns).max(self.start_ns);
            }
        }
    }

    fn publish(&mut self) {
        let (sent, answered) = self.published;
        self.live.add(self.outcome.sent - sent, self.outcome.answered - answered);
        self.published = (self.outcome.sent, self.outcome.answered);
    }

    fn is_finished(&self, now_ns: u64) -> bool {
        let over = now_ns >= self.end_ns;
        let settled = self.open == 0 && self.due(now_ns).is_none();
        over && (settled || now_ns >= self.end_ns.saturating_add(self.drain_ns))
    }

    /// True if no event can come that matters before the next request, and that is near.
    fn is_quiet(&self, now_ns: u64) -> bool {
        let near = self.start_ns.saturating_add(self.pace.next_ns(0)).saturating_sub(now_ns)
            <= self.waiting.spin_ns();
        near && self.open == 0 && self.client.free.len() == self.client.connections.len()
    }

    fn timeout_ns(&self, now_ns: u64) -> u64 {
        let next_ns = self.start_ns.saturating_add(match self.pace {
            Pace::Constant(_) => self.pace.next_ns(0),
            Pace::Saturate => now_ns.saturating_sub(self.start_ns),
        });
        let can_send = !self.client.free.is_empty() && next_ns < self.end_ns;
        let end_ns =
            if now_ns < self.end_ns { self.end_ns } else { self.end_ns.saturating_add(self.drain_ns) };
        let retry_ns = self.client.retry.front().map_or(u64::MAX, |(at_ns, _)| *at_ns);
        let other_ns = end_ns.min(retry_ns).min(self.live_ns);
        self.waiting.timeout_ns(now_ns, can_send.then_some(next_ns), other_ns)
    }

    /// What is still open is missed, and so is what was never sent.
    fn account(&mut self, now_ns: u64) {
        for connection in &self.client.connections {
            if let Phase::Busy(open) = connection.phase {
                self.outcome.missed.ages.saturating_record(now_ns - open.intended_ns);
            }
        }
        let mut unsent = 0;
        while let Pace::Constant(_) = self.pace
            && let Some(intended_ns) = self.due(now_ns)
        {
            self.outcome.missed.ages.saturating_record(now_ns - intended_ns);
            self.pace.advance();
            unsent += 1;
        }
        self.outcome.backlog_max = self.outcome.backlog_max.max(unsent);
        self.outcome.intended = self.outcome.sent + unsent;
        self.outcome.started_ns = self.start_ns;
        self.outcome.ended_ns = now_ns;
        self.outcome.duration = Duration::from_nanos(self.end_ns - self.start_ns);
        self.publish();
        self.client.close_leftovers();
    }
}

/// Durations of more than 584 years end there.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
