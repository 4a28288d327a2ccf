//! A thread of the generator or the responder: where it runs, and what it cost by the kernel's own books.

use std::num::NonZeroU64;

use linux::cpu::{self, Scheduling};
use linux::procfs::{Procfs, ThreadAccount, ThreadTimes};
use linux::{CpuSet, clock};

use crate::spun::Spun;

/// Where a thread runs, and how the kernel schedules it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadPlacement<'a> {
    /// The CPUs that it may use; `None`: any.
    pub(crate) cpus: Option<&'a CpuSet>,
    /// `None`: the class of the thread that started it.
    pub(crate) scheduling: Option<Scheduling>,
}

impl<'a> ThreadPlacement<'a> {
    /// On these CPUs, or anywhere if there are none among them.
    pub(crate) fn on(cpus: &'a CpuSet, scheduling: Scheduling) -> ThreadPlacement<'a> {
        ThreadPlacement { cpus: (!cpus.is_empty()).then_some(cpus), scheduling: Some(scheduling) }
    }

    /// Puts the calling thread there, and makes its timers exact.
    pub(crate) fn take(&self) -> linux::Result<()> {
        if let Some(cpus) = self.cpus {
            cpu::pin_current_thread(cpus)?;
        }
        // Without this every sleep is up to 50 µs late: the kernel gathers wake-ups to save power.
        clock::set_timer_slack_ns(NonZeroU64::MIN)?;
        self.scheduling.map_or(Ok(()), cpu::set_current_thread_scheduling)
    }

    /// Works there, and returns what that cost too.
    pub(crate) fn work<T, E: From<linux::Error>>(
        &self,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<(T, ThreadCost), E> {
        self.take()?;
        let before = ThreadCounters::now()?;
        let done = work()?;
        Ok((done, before.until(ThreadCounters::now()?, self.cpus.cloned())))
    }
}

/// What one thread of the generator cost during a run, the wait for the last answers included. It shows whether the
/// figures are the server's or the generator's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadCost {
    /// Where it was allowed to run; `None`: anywhere.
    pub cpus: Option<CpuSet>,
    /// Time on a CPU in nanoseconds.
    pub cpu_ns: u64,
    /// The time in which it had nothing to do and did not sleep, in nanoseconds.
    pub spun_ns: u64,
    /// That time without the interrupts within it, which did work: what the CPU would have been spared by sleep.
    pub spun_alone_ns: u64,
    /// Time that passed in nanoseconds.
    pub wall_ns: u64,
    /// Times it gave the CPU up, to wait.
    pub voluntary_switches: u64,
    /// Times the CPU was taken from it.
    pub involuntary_switches: u64,
    /// Time it was ready to run and had no CPU, in nanoseconds.
    pub run_queue_ns: u64,
    /// The part of this until the schedule's end; where there is no schedule, all of it.
    pub in_schedule: ScheduleCost,
}

/// What a thread cost until it first saw that its schedule was over. A wait for an answer that does not come may be
/// many times as long as the schedule, and says nothing of whether the thread could keep it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScheduleCost {
    /// Time that passed since the schedule's start, in nanoseconds.
    pub wall_ns: u64,
    /// Time on a CPU in nanoseconds.
    pub cpu_ns: u64,
    /// The time in which it had nothing to do and did not sleep, in nanoseconds.
    pub spun_ns: u64,
    /// Time it was ready to run and had no CPU, in nanoseconds.
    pub run_queue_ns: u64,
}

impl ThreadCost {
    /// The share of one CPU that the thread used until the schedule's end, 0 to 1, without what it spun.
    pub fn busy(&self) -> f64 {
        self.in_schedule.share(self.in_schedule.cpu_ns.saturating_sub(self.in_schedule.spun_ns))
    }

    /// The share of the time until the schedule's end in which the thread was ready to run and had no CPU, 0 to 1.
    /// Meanwhile answers lie unread, which looks like a slow server, and due requests are late although a connection is
    /// free.
    pub fn starved(&self) -> f64 {
        self.in_schedule.share(self.in_schedule.run_queue_ns)
    }

    /// With what it spun, in a run without a schedule.
    pub(crate) fn with_spun(self, spun: Spun) -> ThreadCost {
        let in_schedule = ScheduleCost { spun_ns: spun.ns, ..self.in_schedule };
        ThreadCost { spun_ns: spun.ns, spun_alone_ns: spun.alone_ns, in_schedule, ..self }
    }
}

impl ScheduleCost {
    fn share(&self, part_ns: u64) -> f64 {
        // The kernel's books are kept by another clock, which may be ahead by a little.
        if self.wall_ns == 0 { 0.0 } else { (part_ns as f64 / self.wall_ns as f64).min(1.0) }
    }
}

/// The calling thread's counters as it can read them while it works.
#[derive(Debug)]
pub(crate) struct RunningCounters {
    account: ThreadAccount,
    before_ns: (u64, u64),
}

impl RunningCounters {
    pub(crate) fn begin() -> linux::Result<RunningCounters> {
        let account = ThreadAccount::own()?;
        let before_ns = (clock::thread_cpu_ns(), account.waited_ns().unwrap_or(0));
        Ok(RunningCounters { account, before_ns })
    }

    /// What was got since they began, by a schedule that started at an instant. It does not allocate, and takes a few
    /// microseconds.
    pub(crate) fn since_start(&self, start_ns: u64, spun_ns: u64) -> ScheduleCost {
        let cpu_ns = clock::thread_cpu_ns().saturating_sub(self.before_ns.0);
        let run_queue_ns = self.account.waited_ns().unwrap_or(0).saturating_sub(self.before_ns.1);
        ScheduleCost { wall_ns: clock::now_ns().saturating_sub(start_ns), cpu_ns, spun_ns, run_queue_ns }
    }
}

/// The calling thread's counters, taken somewhere between two instants: a thread may lose its CPU while it reads them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadCounters {
    from_ns: u64,
    until_ns: u64,
    times: ThreadTimes,
}

impl ThreadCounters {
    pub(crate) fn now() -> linux::Result<ThreadCounters> {
        let from_ns = clock::now_ns();
        // The file says what a thread that runs got until the kernel's last tick; the clock, until now.
        let times = ThreadTimes { ran_ns: clock::thread_cpu_ns(), ..Procfs::kernel().own_thread()? };
        Ok(ThreadCounters { from_ns, until_ns: clock::now_ns(), times })
    }

    /// The cost since the first reading. All of it lies within the elapsed time, so no share exceeds the whole.
    pub(crate) fn until(self, later: ThreadCounters, cpus: Option<CpuSet>) -> ThreadCost {
        let spent = later.times.since(&self.times);
        let wall_ns = later.until_ns - self.from_ns;
        let (cpu_ns, run_queue_ns) = (spent.ran_ns, spent.waited_ns);
        ThreadCost {
            cpus,
            cpu_ns,
            spun_ns: 0,
            spun_alone_ns: 0,
            wall_ns,
            voluntary_switches: spent.voluntary_switches,
            involuntary_switches: spent.involuntary_switches,
            run_queue_ns,
            in_schedule: ScheduleCost { wall_ns, cpu_ns, spun_ns: 0, run_queue_ns },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_takes_longer_than_the_time_that_passed() {
        let reading = |from_ns, until_ns, waited_ns| {
            let times = ThreadTimes { waited_ns, ran_ns: 0, voluntary_switches: 0, involuntary_switches: 0 };
            ThreadCounters { from_ns, until_ns, times }
        };
        // It waited for a CPU between reading the scheduler's counters and reading the clock.
        let cost = reading(1_000, 9_000, 500).until(reading(10_000, 10_100, 8_500), None);
        assert!(cost.wall_ns == 9_100 && cost.starved() < 1.0, "{cost:?}");
    }

    #[test]
    fn work_is_done_where_the_thread_was_placed() {
        let cpus = cpu::allowed().unwrap();
        let one = CpuSet::from_iter(cpus.iter().take(1));
        std::thread::scope(|scope| {
            // The class stays the caller's, and then it is set; neither needs a privilege.
            for placement in [
                ThreadPlacement { cpus: Some(&one), scheduling: None },
                ThreadPlacement::on(&one, Scheduling::Normal),
            ] {
                let one = &one;
                scope.spawn(move || {
                    let (found, cost) = placement.work(cpu::allowed).unwrap();
                    assert_eq!((&found, cost.cpus.as_ref()), (one, Some(one)));
                });
            }
        });
        assert_eq!(ThreadPlacement::on(&CpuSet::default(), Scheduling::Normal).cpus, None);
    }

    #[test]
    fn work_costs() {
        let before = ThreadCounters::now().unwrap();
        let until_ns = clock::now_ns() + 5_000_000;
        while clock::now_ns() < until_ns {}
        let cost = before.until(ThreadCounters::now().unwrap(), None);
        assert!(cost.wall_ns >= 5_000_000);
        assert!(cost.cpu_ns > 0 && cost.busy() > 0.0);
        // The kernel's books are kept by another clock: on a busy machine 70 µs ahead after 6 ms.
        let all_ns = cost.wall_ns + cost.wall_ns / 100 + 1_000_000;
        assert!(cost.cpu_ns + cost.run_queue_ns <= all_ns, "{cost:?}");
    }
}
