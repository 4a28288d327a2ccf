//! What delays requests that are due: the thread, or a lack of connections.

use super::Worker;
use crate::Short;

/// A thread that worked or did not run for longer than that, before it drops a request, may have missed a connection
/// that was free when the request was due.
const LATE_NS: u64 = 1_000_000;

impl Worker<'_> {
    /// The thread was idle from one instant until its planned wake-up, and woke later. A request that became due while
    /// it was idle lacked a connection.
    pub(super) fn on_idle(&mut self, from_ns: u64, meant_ns: u64, now_ns: u64) {
        self.idle_until_ns = meant_ns.min(now_ns);
        // To wake up sooner would have helped only if something had come.
        let until_ns = if self.client.poller.is_empty() { now_ns } else { self.idle_until_ns };
        if self.saturates || self.client.has_room() && self.promised == 0 {
            return;
        }
        let due_ns = self.start_ns.saturating_add(self.pace.next_ns(u64::MAX));
        let since_ns = if self.promised > 0 { from_ns } else { from_ns.max(due_ns) };
        let ns = until_ns.min(self.end_ns).saturating_sub(since_ns);
        if ns == 0 {
            return;
        }
        let short = self.short();
        self.outcome.short = short;
        let overdue = &mut self.outcome.overdue;
        *if short.lacks_answers() { &mut overdue.answers_ns } else { &mut overdue.connections_ns } += ns;
    }

    /// A request waits no longer: it was overdue since its instant, or since the one before it went.
    pub(super) fn on_gone(&mut self, intended_ns: u64, now_ns: u64) {
        self.outcome.overdue.total_ns += self.within(intended_ns.max(self.gone_ns), now_ns);
        self.gone_ns = now_ns;
        let next_ns = self.start_ns.saturating_add(self.pace.next_ns(u64::MAX));
        // No request is overdue any more. The cause of these delays is not the cause of those at the schedule's end.
        if self.promised == 0 && next_ns > now_ns && now_ns < self.end_ns {
            self.settled = self.outcome.overdue;
        }
    }

    /// A request is dropped: no connection is free for it.
    pub(super) fn on_dropped(&mut self, intended_ns: u64, now_ns: u64) {
        self.on_gone(intended_ns, now_ns);
        let is_late = intended_ns > self.idle_until_ns && now_ns.saturating_sub(self.idle_until_ns) > LATE_NS;
        // A connection was free since, or may be: answers have come that are not read yet.
        let was_free = self.sent_ns > self.idle_until_ns || !self.client.poller.is_empty();
        if is_late && was_free {
            self.outcome.dropped.late += 1;
            return;
        }
        let short = self.short();
        self.outcome.short = short;
        let dropped = &mut self.outcome.dropped;
        *if short.lacks_answers() { &mut dropped.answers } else { &mut dropped.connections } += 1;
    }

    /// The run is over, and the oldest request that was never sent is this one, if there is one.
    pub(super) fn on_unsent(&mut self, oldest_ns: Option<u64>) {
        if let Some(oldest_ns) = oldest_ns {
            self.outcome.overdue.total_ns += self.within(oldest_ns.max(self.gone_ns), self.end_ns);
        }
        self.outcome.backlog = self.outcome.overdue.since(&self.settled);
    }

    /// The connections, none of which is free. Each one that waits for answers has its maximum of open requests.
    pub(super) fn short(&self) -> Short {
        let promised = self.promised;
        let broken = self.client.retry.len();
        // A broken one may have a request that waits until it is tried again.
        let up = self.client.connections.len() - broken;
        let waiting = (self.open - self.lost - promised).div_ceil(self.client.limit).min(up);
        let ending = self.ending;
        let others = self.client.connections.len().saturating_sub(waiting + broken + ending);
        // If one is free nevertheless, it is promised requests that wait for theirs.
        let connecting = if self.client.has_room() { promised } else { others };
        Short {
            waiting: waiting as u64,
            broken: broken as u64,
            connecting: connecting as u64,
            ending: ending as u64,
        }
    }

    /// The time from one instant to another, as far as it lies within the schedule.
    fn within(&self, from_ns: u64, to_ns: u64) -> u64 {
        to_ns.min(self.end_ns).saturating_sub(from_ns.min(self.end_ns))
    }
}
