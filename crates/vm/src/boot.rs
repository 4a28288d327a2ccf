//! A boot under way: whether the guest's command has begun, and whether it ever will.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use linux::procfs::Procfs;

use crate::process::Process;
use crate::qemu::names;

/// How long a boot may want next to no CPU time. Nothing that a boot waits for takes so long.
const IDLE_MAX: Duration = Duration::from_secs(15);
/// Less than this share of one CPU is next to none. A guest that hangs was seen to take 4 % of a CPU, for its timer
/// interrupts; one that boots wants a whole CPU, also on a busy machine, where it waits for it.
const IDLE_SHARE: f64 = 0.2;

/// Whether the guest has come as far as its command: then it writes a word to the port of its status.
pub(crate) fn has_begun(folder: &Path) -> bool {
    fs::metadata(folder.join(names::STATUS)).is_ok_and(|status| status.len() > 0)
}

/// Watches a boot for a guest that is silent and idle. QEMU 10.0 was seen to lose a timer on a busy machine: a CPU
/// sleeps, and its local APIC never wakes it up again. If that CPU keeps the kernel's time, nothing happens any more.
/// Else the kernel notices after 21 s ([`BootWatch::says_timer_is_lost`]).
pub(crate) struct BootWatch {
    since: Instant,
    demand_ns: u64,
    /// Bytes of the console in which it was looked for.
    console_read: u64,
}

impl BootWatch {
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), demand_ns: 0, console_read: 0 }
    }

    /// Whether the kernel has said since the last call that the emulator has lost a timer.
    pub(crate) fn says_timer_is_lost(&mut self, folder: &Path) -> bool {
        const WORDS: &[u8] = b"rcu_preempt kthread timer wakeup didn't happen";
        let Ok(mut console) = File::open(folder.join(names::CONSOLE)) else { return false };
        // A part of the words may have come before.
        let from = self.console_read.saturating_sub(WORDS.len() as u64);
        let mut new = Vec::new();
        if console.seek(SeekFrom::Start(from)).and_then(|_| console.read_to_end(&mut new)).is_err() {
            return false;
        }
        self.console_read = from + new.len() as u64;
        memchr::memmem::find(&new, WORDS).is_some()
    }

    /// Whether the boot has come to a halt. It is asked again and again.
    pub(crate) fn is_idle(&mut self, processes: [&Process; 2]) -> bool {
        let elapsed = self.since.elapsed();
        if elapsed < IDLE_MAX {
            return false;
        }
        let procfs = Procfs::kernel();
        // What cannot be read, or is not counted by this kernel, is not taken for idle.
        let demands = processes.iter().map(|process| procfs.cpu_demand_ns(process.id()));
        let Ok(demand_ns @ 1..) = demands.sum::<linux::Result<u64>>() else { return false };
        let wanted = Duration::from_nanos(demand_ns.saturating_sub(self.demand_ns));
        (self.since, self.demand_ns) = (Instant::now(), demand_ns);
        wanted < elapsed.mul_f64(IDLE_SHARE)
    }
}
