//! Why requests that were due were not sent.

/// Time in which requests were due and not sent, within the schedule, in nanoseconds, summed over all threads.
///
/// A thread works while it has answers to read or requests to send; otherwise it waits. A request that is overdue
/// while the thread waits lacks a free connection. A request that is overdue while the thread works lacks a faster
/// generator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Overdue {
    /// At least one request of the thread was due.
    pub total_ns: u64,
    /// The part of that in which the thread waited and no connection was free because at least half of them waited for
    /// answers.
    pub answers_ns: u64,
    /// Likewise, because most of them were broken, connecting or not closed yet.
    pub connections_ns: u64,
}

/// The connections at an instant at which none was free.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Short {
    /// They waited for answers, on each as many as may be open.
    pub waiting: u64,
    /// They had broken, or could not be made, and were not tried again yet.
    pub broken: u64,
    /// They were being made.
    pub connecting: u64,
    /// Their last answer was there, and the server had not closed them yet ([`crate::Pool::fresh`]).
    pub ending: u64,
}

/// Requests that were due and not sent, by choice ([`crate::WhenBusy::Drop`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped {
    /// No connection was free because at least half of them waited for answers.
    pub answers: u64,
    /// No connection was free because most of them were broken, connecting or not closed yet.
    pub connections: u64,
    /// The thread came to them after more than a millisecond of work for others, or without a CPU, and connections were
    /// free in that time, or may have been.
    pub late: u64,
}

impl Overdue {
    /// The part in which the thread worked, or did not run.
    pub fn own_ns(&self) -> u64 {
        self.total_ns.saturating_sub(self.answers_ns + self.connections_ns)
    }

    /// What came after an earlier reading.
    pub(crate) fn since(&self, earlier: &Overdue) -> Overdue {
        Overdue {
            total_ns: self.total_ns - earlier.total_ns,
            answers_ns: self.answers_ns - earlier.answers_ns,
            connections_ns: self.connections_ns - earlier.connections_ns,
        }
    }

    pub(crate) fn merge(&mut self, other: &Overdue) {
        self.total_ns += other.total_ns;
        self.answers_ns += other.answers_ns;
        self.connections_ns += other.connections_ns;
    }
}

impl Short {
    /// The number of connections.
    pub fn count(&self) -> u64 {
        self.waiting + self.broken + self.connecting + self.ending
    }

    /// Whether at least half of them waited for answers.
    pub(crate) fn lacks_answers(&self) -> bool {
        self.waiting >= self.broken + self.connecting + self.ending
    }

    pub(crate) fn merge(&mut self, other: &Short) {
        self.waiting += other.waiting;
        self.broken += other.broken;
        self.connecting += other.connecting;
        self.ending += other.ending;
    }
}

impl Dropped {
    /// The number of dropped requests.
    pub fn count(&self) -> u64 {
        self.answers + self.connections + self.late
    }

    pub(crate) fn merge(&mut self, other: &Dropped) {
        self.answers += other.answers;
        self.connections += other.connections;
        self.late += other.late;
    }
}
