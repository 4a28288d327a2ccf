//! What a thread got of the CPUs.

use super::Procfs;
use crate::Result;

/// What one thread got since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadTimes {
    /// Nanoseconds on a CPU; exact, not sampled.
    pub ran_ns: u64,
    /// Nanoseconds runnable without a CPU.
    pub waited_ns: u64,
    /// Context switches because the thread waited.
    pub voluntary_switches: u64,
    /// Context switches that others forced on it.
    pub involuntary_switches: u64,
}

impl Procfs {
    /// What the calling thread got since its start.
    pub fn own_thread(&self) -> Result<ThreadTimes> {
        let file = "thread-self/schedstat";
        let schedstat = self.required(file)?;
        let mut numbers = schedstat.split_ascii_whitespace().map_while(|word| word.parse().ok());
        let (Some(ran_ns), Some(waited_ns)) = (numbers.next(), numbers.next()) else {
            return Err(self.misread(file, schedstat.trim_end()));
        };
        let file = "thread-self/status";
        let status = self.required(file)?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|value| value.trim().parse().ok()).ok_or_else(|| self.misread(file, name))
        };
        let voluntary_switches = field("voluntary_ctxt_switches")?;
        let involuntary_switches = field("nonvoluntary_ctxt_switches")?;
        Ok(ThreadTimes { ran_ns, waited_ns, voluntary_switches, involuntary_switches })
    }
}

impl ThreadTimes {
    /// What was got since an earlier reading of the same thread.
    pub fn since(&self, before: &ThreadTimes) -> ThreadTimes {
        ThreadTimes {
            ran_ns: self.ran_ns.saturating_sub(before.ran_ns),
            waited_ns: self.waited_ns.saturating_sub(before.waited_ns),
            voluntary_switches: self.voluntary_switches.saturating_sub(before.voluntary_switches),
            involuntary_switches: self.involuntary_switches.saturating_sub(before.involuntary_switches),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::proc_with;
    use super::*;

    const STATUS: &str = "Name:\tx\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";

    #[test]
    fn a_thread_has_times_and_switches() {
        let files = [("thread-self/schedstat", "100 20 3\n"), ("thread-self/status", STATUS)];
        let (_directory, procfs) = proc_with(&files);
        let times =
            ThreadTimes { ran_ns: 100, waited_ns: 20, voluntary_switches: 150, involuntary_switches: 545 };
        assert_eq!(procfs.own_thread().unwrap(), times);
        let (_directory, procfs) = proc_with(&[("thread-self/schedstat", "100\n")]);
        assert!(procfs.own_thread().is_err());
    }

    #[test]
    fn own_time_passes() {
        let procfs = Procfs::kernel();
        let before = procfs.own_thread().unwrap();
        // The kernel adds a thread's time at its next tick, or when it leaves the CPU.
        while procfs.own_thread().unwrap().since(&before).ran_ns == 0 {}
    }
}
