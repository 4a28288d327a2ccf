//! What a thread of the responder does when there is nothing to do.

use linux::clock;

/// How long a thread that spins goes on without anything to do, in nanoseconds. Then it sleeps, so that a server that
/// gets no requests leaves its CPU to others; at 100 requests a second and more it never does.
const SPIN_NS: u64 = 10_000_000;

/// What a thread does when there is nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Idle {
    /// It sleeps until something comes: an interrupt and a wake-up for each that comes alone.
    #[default]
    Sleep,
    /// It looks again and again, for 10 ms after the last that came. It takes a whole CPU meanwhile.
    Spin,
}

/// The waits of one thread.
#[derive(Debug)]
pub(super) struct Waits {
    idle: Idle,
    /// Until then it spins, if it does.
    until_ns: u64,
}

impl Waits {
    pub(super) fn new(idle: Idle) -> Waits {
        Waits { idle, until_ns: 0 }
    }

    /// Puts off sleep: something came, and more may follow.
    pub(super) fn worked(&mut self) {
        if self.idle == Idle::Spin {
            self.until_ns = clock::now_ns() + SPIN_NS;
        }
    }

    /// How long it may sleep now, in nanoseconds: not at all while it spins, else up to a limit.
    pub(super) fn sleeps_ns(&self, limit_ns: u64) -> u64 {
        match self.idle {
            Idle::Spin if clock::now_ns() < self.until_ns => 0,
            Idle::Spin | Idle::Sleep => limit_ns,
        }
    }
}
