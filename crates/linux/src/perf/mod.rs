//! Samples of CPU activity: the kernel stack and the task that a clock tick finds on each of some CPUs.
//!
//! One event per CPU counts time (`cpu-clock`, perf_event_open(2)), whichever task runs, and leaves a sample in a
//! buffer at the end of each period. That clock works in virtual machines without hardware counters, and its unit is
//! time, which is the quantity of interest. Buffers are not read while samples are taken: a buffer holds a whole
//! slice.
//!
//! The clock's tick is an interrupt. Code that runs with interrupts off is sampled when they go on again, at the
//! function that turns them on.

mod event;
mod records;
mod symbols;

pub use event::Ticker;
pub use records::Sample;
pub use symbols::Symbols;

use crate::{CpuSet, Result};
use event::PerfEvent;

/// Bytes of a CPU's buffer, a power of two: the deepest stacks that there are (127 frames, 1040 bytes), 2000 times.
/// At the usual 40 frames it is five times that.
const BUFFER_BYTES: usize = 2 << 20;

/// Takes samples on some CPUs.
#[derive(Debug)]
pub struct Profiler {
    events: Vec<PerfEvent>,
}

/// What a slice gave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Samples {
    /// In the order of their CPUs, and on each in the order in which they were taken.
    pub samples: Vec<Sample>,
    /// Samples that were taken and found no room.
    pub lost: u64,
}

impl Profiler {
    /// Prepares to sample all tasks on these CPUs every `period_ns` nanoseconds (at least 10 000: the kernel raises
    /// lower values to that). Takes no samples yet.
    ///
    /// # Errors
    ///
    /// The caller lacks `CAP_PERFMON` (or `CAP_SYS_ADMIN`), or the kernel was built or locked down without perf
    /// events.
    pub fn new(cpus: &CpuSet, period_ns: u64) -> Result<Profiler> {
        let events =
            cpus.iter().map(|cpu| PerfEvent::open(cpu, period_ns, BUFFER_BYTES)).collect::<Result<_>>()?;
        Ok(Profiler { events })
    }

    /// Begins. The first sample on each CPU is a period away.
    ///
    /// # Errors
    ///
    /// A CPU went off line.
    pub fn start(&mut self) -> Result<()> {
        self.events.iter_mut().try_for_each(PerfEvent::enable)
    }

    /// Stops, and returns the samples since [`Profiler::start`]. It can be started again.
    ///
    /// # Errors
    ///
    /// A CPU went off line, or the kernel wrote records that cannot be parsed.
    pub fn stop(&mut self) -> Result<Samples> {
        // Disable every event, also after an error: none may keep running.
        let stopped: Vec<Result<()>> = self.events.iter_mut().map(PerfEvent::disable).collect();
        stopped.into_iter().collect::<Result<()>>()?;
        let mut taken = Samples::default();
        for event in &mut self.events {
            event.take(&mut taken)?;
        }
        Ok(taken)
    }
}
