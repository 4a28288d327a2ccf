//! What the threads of a process got of the CPUs.

use std::collections::BTreeMap;
use std::fs;

use super::Procfs;
use crate::Result;
use crate::error::Attempt;

/// What one thread got since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadTimes {
    /// Nanoseconds on a CPU; exact, not sampled.
    pub ran_ns: u64,
    /// Nanoseconds runnable without a CPU.
    pub waited_ns: u64,
    /// Context switches that it asked for, by waiting.
    pub voluntary_switches: u64,
    /// Context switches that others forced on it.
    pub involuntary_switches: u64,
}

impl Procfs {
    /// The threads of a process by their number; empty if there is no such process.
    pub fn threads_of(&self, pid: u32) -> Result<BTreeMap<u32, ThreadTimes>> {
        self.threads(&format!("{pid}/task"))
    }

    /// The threads of this process by their number.
    pub fn own_threads(&self) -> Result<BTreeMap<u32, ThreadTimes>> {
        self.threads("self/task")
    }

    /// The calling thread alone.
    pub fn own_thread(&self) -> Result<ThreadTimes> {
        Ok(self.thread("thread-self")?.unwrap_or_default())
    }

    fn threads(&self, directory: &str) -> Result<BTreeMap<u32, ThreadTimes>> {
        let entries = match fs::read_dir(self.root.join(directory)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            entries => entries.attempt(|| self.attempted(directory))?,
        };
        let mut threads = BTreeMap::new();
        for tid in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            // A thread may end between the listing and the reading.
            if let Some(times) = self.thread(&format!("{directory}/{tid}"))? {
                threads.insert(tid, times);
            }
        }
        Ok(threads)
    }

    fn thread(&self, directory: &str) -> Result<Option<ThreadTimes>> {
        let file = format!("{directory}/schedstat");
        let Some(schedstat) = self.read(&file)? else { return Ok(None) };
        let mut numbers = schedstat.split_ascii_whitespace().map_while(|word| word.parse().ok());
        let (Some(ran_ns), Some(waited_ns)) = (numbers.next(), numbers.next()) else {
            return Err(self.misread(&file, schedstat.trim_end()));
        };
        let file = format!("{directory}/status");
        let Some(status) = self.read(&file)? else { return Ok(None) };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|value| value.trim().parse().ok()).ok_or_else(|| self.misread(&file, name))
        };
        let voluntary_switches = field("voluntary_ctxt_switches")?;
        let involuntary_switches = field("nonvoluntary_ctxt_switches")?;
        Ok(Some(ThreadTimes { ran_ns, waited_ns, voluntary_switches, involuntary_switches }))
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
    fn threads_have_times_and_switches() {
        let files =
            [("9/task/9/schedstat", "100 20 3\n"), ("9/task/9/status", STATUS), ("9/task/10/comm", "gone\n")];
        let (_directory, procfs) = proc_with(&files);
        let times =
            ThreadTimes { ran_ns: 100, waited_ns: 20, voluntary_switches: 150, involuntary_switches: 545 };
        assert_eq!(procfs.threads_of(9).unwrap(), BTreeMap::from([(9, times)]));
        assert!(procfs.threads_of(8).unwrap().is_empty());
    }

    #[test]
    fn own_time_passes() {
        let procfs = Procfs::kernel();
        let before = procfs.own_thread().unwrap();
        let busy: u64 = (0..3_000_000_u64).fold(0, |sum, n| std::hint::black_box(sum ^ n));
        std::hint::black_box(busy);
        assert!(procfs.own_thread().unwrap().since(&before).ran_ns > 0);
        assert!(!procfs.own_threads().unwrap().is_empty());
    }
}
