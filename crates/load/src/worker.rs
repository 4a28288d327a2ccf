//! The loop of one thread: send the requests that are due, read the answers that have arrived, wait for whichever
//! comes next.
//!
//! **Invariant: this module does not allocate, lock or log, and reads no clock other than [`linux::clock`].** All
//! memory is allocated when the client and the outcome are made; a test with a counting allocator checks that. Once, at
//! the schedule's end, it reads the thread's account with the scheduler, which is open then.
//! (Exceptions: TLS, gRPC, and connections that a run adds.)
//!
//! A request for which no connection is free waits in order and keeps its intended time. That queue needs no memory:
//! requests differ only by their instants, and the schedule can compute the next instant at any time.

mod account;
mod ending;
mod expiry;
mod overdue;
mod receiving;
mod sending;

use std::time::Duration;

use linux::clock;

use crate::ask::ReplyForm;
use crate::connection::OpenRequest;
use crate::exchange::{Exchange, ExchangeLog};
use crate::order::{Order, WhenBusy};
use crate::outcome::Reason;
use crate::poller::EVENTS;
use crate::schedule::Pace;
use crate::spun::Spun;
use crate::thread::{RunningCounters, ScheduleCost};
use crate::wait::Waiting;
use crate::{Client, ConnectionError, FirstConnectionError, Live, Outcome, Overdue};
use ending::Quota;

/// How long to wait before a broken connection is opened again, so that a refusing server is not asked in a tight loop.
const RETRY_NS: u64 = 10_000_000;

/// Where answers are looked for in memory, the sockets are looked at in one turn of so many.
const TURNS: u32 = 64;

/// How often the live counters are updated and the stop flag is checked.
const LIVE_NS: u64 = 100_000_000;

pub(crate) struct Worker<'a> {
    client: &'a mut Client,
    pace: Pace,
    saturates: bool,
    /// Answers are polled for, and no thread is woken for them.
    polls: bool,
    turn: u32,
    when_busy: WhenBusy,
    waiting: Waiting,
    outcome: &'a mut Outcome,
    live: &'a Live,
    log: Option<ExchangeLog>,
    /// Start and end of the schedule, and all instants below, are those of the clock.
    start_ns: u64,
    end_ns: u64,
    drain_ns: u64,
    /// As many requests as there are to be of this thread.
    quota: Quota,
    /// When the schedule was first seen to be over: later than its end by as long as this thread was kept from running.
    over_ns: u64,
    live_ns: u64,
    timeout_ns: u64,
    /// When to check next for requests that have been open for too long.
    expiry_ns: u64,
    /// A datagram without an answer keeps its socket for so long at least.
    lost_after_ns: u64,
    /// When to check next for datagrams that most likely are lost.
    presume_ns: u64,
    /// What all answers together have taken since their requests were sent.
    served_ns: u64,
    /// When the request before the next was sent.
    sent_ns: u64,
    /// The request that is due next, counted from 0.
    ordinal: u64,
    /// What the view from outside knows of already.
    published: (u64, u64),
    /// Requests that wait for an answer, or for the connection that is made for them.
    open: usize,
    /// Those of them that most likely are lost.
    lost: usize,
    /// Requests that wait for a connection.
    promised: usize,
    /// Connections that the server has to close.
    ending: usize,
    /// When a request was sent or dropped for the last time, or a connection was started for one.
    gone_ns: u64,
    /// The end of the thread's last idle time.
    idle_until_ns: u64,
    spun: Spun,
    /// For how long requests had been overdue when none was for the last time.
    settled: Overdue,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(
        client: &'a mut Client,
        order: Order,
        outcome: &'a mut Outcome,
        live: &'a Live,
        log: Option<ExchangeLog>,
    ) -> Worker<'a> {
        client.limit = match (&order.pace, order.when_busy) {
            (Pace::Saturate, _) | (_, WhenBusy::Pipeline) => client.depth(),
            (_, WhenBusy::Wait | WhenBusy::Grow | WhenBusy::Drop) => 1,
        };
        let (polls, datagrams) = (client.polls(), client.asks.reply == ReplyForm::Datagram);
        Worker {
            client,
            saturates: matches!(order.pace, Pace::Saturate),
            polls,
            turn: 0,
            pace: order.pace,
            when_busy: order.when_busy,
            waiting: order.waiting,
            outcome,
            live,
            log,
            start_ns: 0,
            end_ns: nanoseconds(order.duration),
            drain_ns: nanoseconds(order.drain),
            quota: Quota::new(order.requests),
            over_ns: u64::MAX,
            live_ns: LIVE_NS,
            timeout_ns: order.timeout.map_or(u64::MAX, nanoseconds),
            expiry_ns: u64::MAX,
            lost_after_ns: order.presumed_lost.filter(|_| datagrams).map_or(u64::MAX, nanoseconds),
            presume_ns: u64::MAX,
            served_ns: 0,
            sent_ns: 0,
            ordinal: 0,
            published: (0, 0),
            open: 0,
            lost: 0,
            promised: 0,
            ending: 0,
            gone_ns: 0,
            idle_until_ns: 0,
            spun: Spun::default(),
            settled: Overdue::default(),
        }
    }

    /// Does the whole run from an instant of the clock on, and accounts for every request. Returns for how long it
    /// waited without sleeping, and what the thread got until the schedule's end.
    pub(crate) fn run(mut self, start_ns: u64, counters: &RunningCounters) -> (Spun, ScheduleCost) {
        self.start_ns = start_ns;
        self.end_ns = start_ns.saturating_add(self.end_ns);
        self.live_ns = start_ns.saturating_add(self.live_ns);
        self.expiry_ns = start_ns.saturating_add(self.timeout_ns);
        self.presume_ns = start_ns.saturating_add(self.lost_after_ns);
        self.idle_until_ns = start_ns;
        let mut now_ns = clock::now_ns();
        let mut done = self.done();
        let mut in_schedule = None;
        loop {
            now_ns = self.send_due(now_ns);
            self.end_with_the_last(now_ns);
            if now_ns >= self.end_ns {
                if in_schedule.is_none() {
                    in_schedule = Some(counters.since_start(start_ns, self.spun.ns));
                    self.over_ns = now_ns;
                    now_ns = clock::now_ns();
                }
                if self.is_settled(now_ns) {
                    break;
                }
                if now_ns >= self.drained_ns(now_ns) {
                    now_ns = self.read_all(now_ns);
                    break;
                }
            }
            self.keep_up(now_ns);
            let mut timeout_ns = self.sleep_ns(now_ns);
            if timeout_ns > 0 || self.done() != done {
                // The last reading is from before a send, or from before what an answer said was read. A sleep that is
                // measured from then is as much too long, and what is spun would be counted from then.
                now_ns = clock::now_ns();
                timeout_ns = self.sleep_ns(now_ns);
            }
            done = self.done();
            // If the network has no event due, the last microseconds before an instant are spun on the clock alone,
            // which is five times as fine as on an empty epoll.
            if timeout_ns == 0 && self.is_quiet(now_ns) {
                let before_ns = std::mem::replace(&mut now_ns, clock::now_ns());
                self.spun.add(now_ns - before_ns);
            } else {
                now_ns = self.poll(now_ns, timeout_ns);
            }
        }
        self.account(now_ns);
        (self.spun, in_schedule.unwrap_or_default())
    }

    /// Grows with everything that the thread does for a request.
    fn done(&self) -> u64 {
        self.ordinal + self.outcome.answered
    }

    fn poll(&mut self, asleep_ns: u64, timeout_ns: u64) -> u64 {
        self.await_events(timeout_ns);
        let mut now_ns = clock::now_ns();
        let awake_ns = asleep_ns.saturating_add(timeout_ns);
        if timeout_ns > 0 {
            if self.client.poller.is_empty() {
                self.waiting.woke(awake_ns, now_ns);
            }
            self.on_idle(asleep_ns, awake_ns, now_ns);
        } else if self.client.poller.is_empty() {
            self.spun.add(now_ns - asleep_ns);
            self.on_idle(asleep_ns, now_ns, now_ns);
        }
        // Requests that are due now must not wait behind the answers read meanwhile.
        now_ns = self.send_due(now_ns);
        for event in 0..self.client.poller.len() {
            now_ns = self.on_event(self.client.poller.ready(event), now_ns);
            // Between two answers there is time to be late in: see whether a request is due.
            now_ns = self.send_due(now_ns);
        }
        if self.polls { self.look_for_answers(now_ns) } else { now_ns }
    }

    /// Waits for events at sockets. A thread that does not sleep and looks for its answers in memory leaves out
    /// the system call mostly.
    fn await_events(&mut self, timeout_ns: u64) {
        self.turn = self.turn.wrapping_add(1);
        if self.polls && timeout_ns == 0 && !self.turn.is_multiple_of(TURNS) {
            self.client.poller.clear();
        } else {
            self.client.poller.wait(timeout_ns);
        }
    }

    /// The intended instant of the next request, if that has come and lies within the schedule.
    fn due(&self, now_ns: u64) -> Option<u64> {
        // Before the start a saturating thread is not due either.
        let elapsed_ns = now_ns.checked_sub(self.start_ns)?;
        let intended_ns = self.start_ns.saturating_add(self.pace.next_ns(elapsed_ns));
        (intended_ns <= now_ns && intended_ns < self.end_ns && self.has_more()).then_some(intended_ns)
    }

    /// A request is not answered, and that is settled.
    fn miss(&mut self, index: u32, open: OpenRequest, reason: Reason, now_ns: u64) {
        self.open -= 1;
        self.note(Exchange::of(index, open, Exchange::NEVER));
        let promised = open.sent_ns == OpenRequest::PROMISED;
        self.promised -= usize::from(promised);
        let reason = if promised { Reason::Unsent } else { reason };
        self.outcome.missed.add(reason, now_ns.saturating_sub(open.intended_ns));
    }

    /// A connection broke: its requests are lost, and it is tried again after a while. They are not: a request that
    /// was sent twice would be two.
    fn on_fault(&mut self, index: u32, fault: ConnectionError, now_ns: u64) {
        self.give_up(
            index,
            if fault == ConnectionError::Timeout { Reason::Expired } else { Reason::Lost },
            now_ns,
        );
        self.close(index);
        self.client.retry_at(now_ns + RETRY_NS, index);
        if fault.is_full() {
            return;
        }
        self.outcome.faults.add(&fault);
        let after = Duration::from_nanos(now_ns.saturating_sub(self.start_ns));
        self.outcome.first_fault.get_or_insert(FirstConnectionError { fault, after });
    }

    /// All that is open on a connection is missed.
    fn give_up(&mut self, index: u32, reason: Reason, now_ns: u64) {
        while let Some(open) = self.take_open(index, 0) {
            self.miss(index, open, reason, now_ns);
        }
    }

    fn close(&mut self, index: u32) {
        let connection = &mut self.client.connections[index as usize];
        self.ending -= usize::from(connection.ending_ns.is_some());
        connection.close();
    }

    fn reopen(&mut self, index: u32, now_ns: u64) {
        self.give_up(index, Reason::Lost, now_ns);
        self.close(index);
        if self.client.is_fresh() {
            // The next request opens it again.
            return self.on_room(index, now_ns);
        }
        if let Err(fault) = self.client.reopen(index) {
            self.on_fault(index, fault, now_ns);
        }
    }

    /// The work that does not belong to a single answer.
    fn keep_up(&mut self, now_ns: u64) {
        while let Some(index) = self.client.take_retry(now_ns) {
            match self.take_open(index, 0) {
                Some(open) => self.begin(index, open, now_ns),
                None => self.reopen(index, now_ns),
            }
        }
        if now_ns >= self.expiry_ns {
            self.read_all(now_ns);
            self.expire(now_ns);
        }
        if now_ns >= self.presume_ns {
            self.read_all(now_ns);
            self.presume_lost(now_ns);
        }
        if now_ns >= self.live_ns {
            self.live_ns = now_ns + LIVE_NS;
            self.publish();
            self.note_backlog(now_ns, self.ordinal + 1);
            if self.live.is_stopped() {
                self.end(now_ns);
            }
            self.leave_unclosed(now_ns);
            self.give_up_silence(now_ns);
        }
    }

    /// Counts the overdue requests from an ordinal on. After the schedule's end no more requests become due.
    fn note_backlog(&mut self, now_ns: u64, from: u64) {
        let last_ns = now_ns.min(self.end_ns.saturating_sub(1));
        let Some(elapsed_ns) = last_ns.checked_sub(self.start_ns) else { return };
        // Nearly always there is none, and that costs a comparison.
        if self.pace.next_ns(u64::MAX) <= elapsed_ns {
            let overdue = self.pace.due_by(elapsed_ns).saturating_sub(from);
            self.outcome.backlog_max = self.outcome.backlog_max.max(overdue);
        }
    }

    /// Logs a request that ended, where there is a log. Without a rate there is none: no request is intended.
    fn note(&mut self, exchange: Exchange) {
        if let Some(log) = &mut self.log {
            log.note(exchange);
        }
    }

    fn publish(&mut self) {
        let (sent, answered) = self.published;
        self.live.add(self.outcome.sent - sent, self.outcome.answered - answered);
        self.published = (self.outcome.sent, self.outcome.answered);
    }

    fn is_settled(&self, now_ns: u64) -> bool {
        self.open == 0 && self.due(now_ns).is_none()
    }

    /// When open requests are no longer waited for.
    fn drained_ns(&self, now_ns: u64) -> u64 {
        self.over_ns.min(now_ns).max(self.end_ns).saturating_add(self.drain_ns)
    }

    /// Reads what has come: if this thread is late, that was in time.
    fn read_all(&mut self, mut now_ns: u64) -> u64 {
        for _ in 0..=self.client.connections.len() / EVENTS {
            now_ns = self.poll(now_ns, 0);
            if self.client.poller.len() < EVENTS {
                break;
            }
        }
        now_ns
    }

    /// True if no event can come that matters before the next request, and that is near.
    fn is_quiet(&self, now_ns: u64) -> bool {
        let near = self.start_ns.saturating_add(self.pace.next_ns(0)).saturating_sub(now_ns)
            <= self.waiting.spin_ns();
        near && self.open == 0 && self.client.is_all_idle()
    }

    /// How long to sleep if no event comes.
    fn sleep_ns(&self, now_ns: u64) -> u64 {
        if self.polls && self.open > 0 {
            return 0;
        }
        let next_ns = self.start_ns.saturating_add(match self.pace {
            Pace::Constant(_) | Pace::Poisson(_) => self.pace.next_ns(0),
            Pace::Saturate => now_ns.saturating_sub(self.start_ns),
        });
        // A request that is due without a free connection waits for the next event, unless the policy requires action.
        let acts = self.client.has_room()
            || next_ns > now_ns && matches!(self.when_busy, WhenBusy::Drop | WhenBusy::Grow);
        let can_send = acts && next_ns < self.end_ns && self.has_more();
        let end_ns = if now_ns < self.end_ns { self.end_ns } else { self.drained_ns(now_ns) };
        let retry_ns = self.client.retry.front().map_or(u64::MAX, |(at_ns, _)| *at_ns);
        let other_ns = end_ns.min(retry_ns).min(self.live_ns).min(self.expiry_ns).min(self.presume_ns);
        self.waiting.timeout_ns(now_ns, can_send.then_some(next_ns), other_ns)
    }
}

/// Durations of more than 584 years end there.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
