//! The end of a run that has a number of requests and no duration.

use super::Worker;
use crate::Overdue;
use crate::outcome::Reason;

/// How many requests a saturating thread still has to send, and whether answers still come.
#[derive(Debug)]
pub(super) struct Quota {
    /// `u64::MAX`: the schedule has a length instead.
    requests: u64,
    /// Requests given up before they were sent.
    pub(super) abandoned: u64,
    /// How many answers there were, and since when there are no more.
    silence: (u64, u64),
}

impl Quota {
    pub(super) fn new(requests: Option<u64>) -> Quota {
        Quota { requests: requests.unwrap_or(u64::MAX), abandoned: 0, silence: (0, 0) }
    }

    pub(super) fn is_some(&self) -> bool {
        self.requests < u64::MAX
    }
}

impl Worker<'_> {
    /// Whether the thread has requests left.
    pub(super) fn has_more(&self) -> bool {
        self.ordinal < self.quota.requests
    }

    /// The schedule ends now, or has already ended. No more requests become due.
    pub(super) fn end(&mut self, now_ns: u64) {
        self.end_ns = self.end_ns.min(now_ns).max(self.start_ns);
        if self.quota.is_some() {
            self.quota.requests = self.ordinal;
        }
    }

    /// The schedule was as long as it took until the last answer was there.
    pub(super) fn end_with_the_last(&mut self, now_ns: u64) {
        if self.open == 0 && !self.has_more() {
            self.end(now_ns);
        }
    }

    /// Without this, a run that ends with its last answer would never end if the server is gone. After some silence
    /// the rest is given up; the missing answers have been awaited for long enough.
    pub(super) fn give_up_silence(&mut self, now_ns: u64) {
        if !self.quota.is_some() || self.is_heard(now_ns) {
            return;
        }
        // If this thread was kept from running, answers may lie unread.
        let now_ns = self.read_all(now_ns);
        if self.is_heard(now_ns) {
            return;
        }
        let silence_ns = now_ns.saturating_sub(self.quota.silence.1.max(self.start_ns));
        let left = self.quota.requests - self.ordinal;
        if left > 0 {
            let short = self.short();
            self.outcome.short = short;
            let (answers_ns, connections_ns) =
                if short.lacks_answers() { (silence_ns, 0) } else { (0, silence_ns) };
            self.outcome.overdue = Overdue { total_ns: silence_ns, answers_ns, connections_ns };
            self.outcome.missed.add_many(Reason::Unsent, 0, left);
            self.quota.abandoned = left;
        }
        self.end(now_ns);
        self.drain_ns = 0;
    }

    /// Whether an answer has come since this was asked before, or that is not long ago.
    fn is_heard(&mut self, now_ns: u64) -> bool {
        let answers = self.outcome.answered + self.outcome.unexpected.count();
        if self.quota.silence.1 == 0 || answers > self.quota.silence.0 {
            self.quota.silence = (answers, now_ns);
        }
        let patience_ns =
            if self.timeout_ns == u64::MAX { self.drain_ns } else { self.drain_ns.max(self.timeout_ns) };
        now_ns.saturating_sub(self.quota.silence.1) < patience_ns
    }
}
