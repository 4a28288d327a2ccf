//! The time for which a thread had nothing to do and did not sleep.

/// Idle time without sleep.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spun {
    /// All of it, in nanoseconds.
    pub(crate) ns: u64,
    /// Without what interrupts took of it, in nanoseconds.
    pub(crate) alone_ns: u64,
}

impl Spun {
    /// A look at the clock takes some 30 ns, and one at an empty epoll less than a microsecond. In the rest of a longer
    /// step something else ran on the CPU.
    const STEP_NS_MAX: u64 = 2_000;

    pub(crate) fn add(&mut self, step_ns: u64) {
        self.ns += step_ns;
        self.alone_ns += step_ns.min(Spun::STEP_NS_MAX);
    }
}
