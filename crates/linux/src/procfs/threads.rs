//! What a thread got of the CPUs.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::Procfs;
use crate::Result;
use crate::error::Attempt;

/// What one thread got since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadTimes {
    /// Nanoseconds on a CPU; not sampled, but of a thread that runs only until the kernel's last tick.
    pub ran_ns: u64,
    /// Nanoseconds runnable without a CPU.
    pub waited_ns: u64,
    /// Context switches because the thread waited.
    pub voluntary_switches: u64,
    /// Context switches that others forced on it.
    pub involuntary_switches: u64,
}

/// A thread's account with the scheduler, kept open. A look neither allocates nor searches for the file, and takes
/// about a microsecond.
#[derive(Debug)]
pub struct ThreadAccount(File);

impl ThreadAccount {
    /// That of the calling thread.
    pub fn own() -> Result<ThreadAccount> {
        File::open(OWN_ACCOUNT).map(ThreadAccount).attempt(|| format!("open {OWN_ACCOUNT}"))
    }

    /// Nanoseconds runnable without a CPU, since the thread's start; `None` if the kernel does not say.
    pub fn waited_ns(&self) -> Option<u64> {
        let mut text = [0; 64];
        let length = self.0.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..length]).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
    }
}

const OWN_ACCOUNT: &str = "/proc/thread-self/schedstat";

impl Procfs {
    /// What the calling thread got since its start.
    pub fn own_thread(&self) -> Result<ThreadTimes> {
        let file = "thread-self/schedstat";
        let (ran_ns, waited_ns) = self.schedstat(file, &self.required(file)?)?;
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

    /// For how many nanoseconds the threads of a process ran or were runnable since their starts; 0 if there is no such
    /// process. Threads that have ended do not count.
    pub fn cpu_demand_ns(&self, process: u32) -> Result<u64> {
        let threads = self.files.list(&format!("proc/{process}/task"))?;
        let demands = threads.iter().map(|thread| {
            let file = format!("{process}/task/{thread}/schedstat");
            let Some(text) = self.read(&file)? else { return Ok(0) };
            self.schedstat(&file, &text).map(|(ran_ns, waited_ns)| ran_ns + waited_ns)
        });
        demands.sum()
    }

    /// Nanoseconds on a CPU, and runnable without one.
    fn schedstat(&self, file: &str, text: &str) -> Result<(u64, u64)> {
        let mut numbers = text.split_ascii_whitespace().map_while(|word| word.parse().ok());
        numbers.next().zip(numbers.next()).ok_or_else(|| self.misread(file, text.trim_end()))
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
    fn the_threads_of_a_process_add_up() {
        let files = [("7/task/7/schedstat", "100 20 3\n"), ("7/task/8/schedstat", "1000 200 3\n")];
        let (_directory, procfs) = proc_with(&files);
        assert_eq!(procfs.cpu_demand_ns(7).unwrap(), 1_320);
        assert_eq!(procfs.cpu_demand_ns(8).unwrap(), 0);
        let (_directory, procfs) = proc_with(&[("7/task/7/schedstat", "100\n")]);
        assert!(procfs.cpu_demand_ns(7).is_err());
    }

    #[test]
    fn an_account_that_is_kept_open_says_what_a_new_one_does() {
        let (account, procfs) = (ThreadAccount::own().unwrap(), Procfs::kernel());
        for _ in 0..3 {
            let before = procfs.own_thread().unwrap().waited_ns;
            let between = account.waited_ns().unwrap();
            let after = procfs.own_thread().unwrap().waited_ns;
            assert!((before..=after).contains(&between), "{before} {between} {after}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn own_time_passes() {
        let procfs = Procfs::kernel();
        let before = procfs.own_thread().unwrap();
        // The kernel adds a thread's time at its next tick, or when it leaves the CPU.
        while procfs.own_thread().unwrap().since(&before).ran_ns == 0 {}
    }
}
