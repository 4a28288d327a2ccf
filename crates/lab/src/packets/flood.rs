//! The frames of a flood: sent at a constant rate while something else is done, and counted.

use std::convert::Infallible;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use linux::CpuSet;
use linux::cpu::{self, Scheduling};
use record::{Flood, Junk};

use super::Judge;
use crate::LabError;

/// Between two bursts. A card that moderates its interrupts hands frames on in bursts too, about ten times as often.
const INTERVAL: Duration = Duration::from_millis(1);
/// The most frames that are late and still sent. A card keeps as many as its ring has room for, and drops the rest.
const RING: u64 = 4096;
/// How long the last frames are waited for; of some thousand a few may be under way when the trial has ended.
const UNDER_WAY: Duration = Duration::from_millis(50);

impl Judge {
    /// Sends frames at the flood's rate from a CPU while something else is done. Returns what was due meanwhile, too.
    pub(crate) fn beside<T>(
        &self,
        flood: Flood,
        cpu: u16,
        scheduling: Scheduling,
        work: impl FnOnce() -> Result<T, LabError>,
    ) -> Result<(T, (Junk, u64)), LabError> {
        // What came too late to be counted for the trial before.
        self.read()?;
        let before = self.counted()?;
        let begun = Instant::now();
        let (done, sent) = thread::scope(|scope| {
            // However the work ends, this end of the channel goes with it, and then the other one stops.
            let (going_on, until) = mpsc::channel();
            let sending = scope.spawn(move || {
                cpu::pin_current_thread(&CpuSet::from_iter([cpu]))?;
                cpu::set_current_thread_scheduling(scheduling)?;
                self.send(flood, begun, &until)
            });
            let done = work();
            drop(going_on);
            (done, sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let (done, (mut junk, read, due)) = (done?, sent?);
        junk.filtered = self.account(junk.sent, before, read, UNDER_WAY)?.judged;
        Ok((done, (junk, due)))
    }

    /// Sends frames until the other end of the channel is gone. Returns what they took, without their fate, how many
    /// were read from the socket, and how many were due since `begun`.
    fn send(
        &self,
        flood: Flood,
        begun: Instant,
        until: &Receiver<Infallible>,
    ) -> Result<(Junk, u64, u64), LabError> {
        let frame = self.frame(flood.bytes);
        let per_ns = f64::from(flood.packets_per_s) / 1e9;
        let (mut junk, mut read) = (Junk::default(), 0);
        // Frames that were due when the last burst was sent, whether or not they were.
        let mut passed = 0;
        let due = || (begun.elapsed().as_nanos() as f64 * per_ns) as u64;
        let mut due_at = begun;
        self.within(|| {
            loop {
                due_at += INTERVAL;
                let wait = due_at.saturating_duration_since(Instant::now());
                if until.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected) {
                    return Ok((junk, read, due()));
                }
                let late = Instant::now().saturating_duration_since(due_at).as_nanos() as u64;
                let due = due();
                let frames = (due - passed).min(RING);
                passed = due;
                junk.late_max_ns = junk.late_max_ns.max(late);
                let (cpu_ns, read_now) = self.send_burst(&frame, frames as u32)?;
                junk.sent += frames;
                junk.cpu_ns += cpu_ns;
                read += read_now;
            }
        })
    }
}
