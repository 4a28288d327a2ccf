//! How a thread waits for the next instant.
//!
//! Measured on a virtual machine of two CPUs, 10 000 instants a second: a timed `epoll_pwait2` is 54.9 µs late with the
//! default timer slack and 4.7 µs late with a slack of 1 ns, at 5 % of a CPU. Spinning on the clock is 0.05 µs late,
//! and takes a whole CPU. Sleeping until 15 µs before the instant and spinning through the rest is 0.07 µs late at
//! 15 % of a CPU, which is why that is the default. Millisecond timers, which most generators use, are 1000 µs late
//! and turn a constant rate into a burst each millisecond.
//!
//! A sleep's lateness depends on the machine, on its idle states and on its load: 5 µs in one hour and 18 µs in
//! another. So the time to spin is learnt from the sleeps of the run itself.

use linux::cpu::Scheduling;

use crate::LoadError;

/// How a thread waits for the next instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wait {
    /// Sleeps until shortly before the instant and spins through the rest. It only sleeps where spinning could not
    /// help: on a machine of one CPU, where it would keep the server from answering; and under `SCHED_FIFO` in a run of
    /// more than half a second at a rate at which it would hardly sleep, because the kernel stops a real-time thread
    /// that never sleeps for 50 ms in each second. Whoever makes shorter runs one after another rests between them.
    #[default]
    Hybrid,
    /// Sleeps: some microseconds late, and the least CPU.
    Sleep,
    /// Never sleeps. Only for a CPU without other work; refused under `SCHED_FIFO`.
    Spin,
}

/// The longest run in which a real-time thread may spin all the time, in nanoseconds. The kernel stops it when it has
/// run for 950 ms of a second (`kernel.sched_rt_runtime_us`), or since Linux 6.12 when others have waited for as long.
const REALTIME_SPIN_MAX_NS: u64 = 500_000_000;

/// A shorter sleep is spun through, in nanoseconds: to set a timer, go idle and come back takes as much of the CPU. On
/// a virtual machine whose timers are the hypervisor's, a thread that slept between requests of 14 µs spent 36 % of its
/// CPU on setting timers, and made the median 67 µs instead of 20.
const SLEEP_MIN_NS: u64 = 15_000;

/// A way of waiting that can be followed where the thread is, with what it has learnt of this machine.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    wait: Wait,
    margin: Margin,
    /// Greater margins are not spun through, in nanoseconds.
    spin_ns_max: u64,
}

impl Waiting {
    /// The possible way to wait under the circumstances.
    ///
    /// # Errors
    /// If spinning was explicitly requested and would do harm.
    pub(crate) fn new(wait: Wait, conditions: WaitConditions) -> Result<Waiting, LoadError> {
        let realtime = matches!(conditions.scheduling, Scheduling::Fifo(_));
        let wait = match wait {
            Wait::Spin if realtime => {
                return Err(LoadError::Spin(
                    "the kernel stops a real-time thread that never sleeps for 50 ms in each second",
                ));
            }
            Wait::Spin if conditions.cpus_allowed < 2 => {
                return Err(LoadError::Spin("it may run on one CPU alone, and the server may need that"));
            }
            Wait::Hybrid if conditions.cpus_allowed < 2 => Wait::Sleep,
            Wait::Hybrid | Wait::Sleep | Wait::Spin => wait,
        };
        // With a margin of half a period the other half is left for the work and for sleep.
        let sleeps = realtime && conditions.duration_ns > REALTIME_SPIN_MAX_NS;
        let spin_ns_max = if sleeps { conditions.period_ns / 2 } else { u64::MAX };
        Ok(Waiting { wait, margin: Margin::default(), spin_ns_max })
    }

    /// The last part of a wait, in nanoseconds, which is spun through.
    pub(crate) fn spin_ns(&self) -> u64 {
        match self.wait {
            Wait::Sleep => 0,
            Wait::Hybrid if self.margin.0 > self.spin_ns_max => 0,
            Wait::Hybrid => self.margin.0,
            Wait::Spin => Margin::MAX_NS,
        }
    }

    /// For how long to sleep, if something is to be sent at an instant and something else may have to be done at
    /// another. Zero: do not sleep.
    pub(crate) fn timeout_ns(&self, now_ns: u64, send_ns: Option<u64>, other_ns: u64) -> u64 {
        if self.wait == Wait::Spin {
            return 0;
        }
        let spin_ns = self.spin_ns();
        let send_ns = send_ns.map_or(u64::MAX, |send_ns| send_ns.saturating_sub(spin_ns));
        let timeout_ns = send_ns.min(other_ns).saturating_sub(now_ns);
        if spin_ns > 0 && send_ns <= other_ns && timeout_ns < SLEEP_MIN_NS { 0 } else { timeout_ns }
    }

    /// Learns from a sleep that only the timer ended.
    pub(crate) fn woke(&mut self, meant_ns: u64, woke_ns: u64) {
        // A signal ends a sleep early, and carries no information about timers.
        if let Some(late_ns) = woke_ns.checked_sub(meant_ns) {
            self.margin.learn(late_ns);
        }
    }
}

/// How much too late a sleep is on this machine, in nanoseconds: the 95th percentile of what was seen, so that one
/// sleep in twenty wakes after the instant and the others are spun to the nanosecond.
///
/// A step up for each sleep that was later and a step down for each that was not, 19 times as small, come to rest where
/// one in twenty is later, without a memory of samples (H. Robbins and S. Monro, *A Stochastic Approximation Method*,
/// 1951). It is no decaying maximum, because one preemption of a millisecond would hold that at its bound for long, and
/// the bound costs half a CPU at 10 000 instants a second.
#[derive(Debug, Clone)]
struct Margin(u64);

impl Margin {
    /// Waking takes 4 µs on the best machine seen; spinning for less gains no precision.
    const MIN_NS: u64 = 5_000;
    /// Above that spinning takes more of a CPU than it saves in time.
    const MAX_NS: u64 = 50_000;
    /// After a thousand sleeps it has crossed its whole range downwards, after fifty upwards.
    const DOWN_NS: u64 = 50;
    const UP_NS: u64 = 19 * Margin::DOWN_NS;

    fn learn(&mut self, late_ns: u64) {
        let next_ns = if late_ns > self.0 { self.0 + Margin::UP_NS } else { self.0 - Margin::DOWN_NS };
        self.0 = next_ns.clamp(Margin::MIN_NS, Margin::MAX_NS);
    }
}

impl Default for Margin {
    fn default() -> Margin {
        Margin(15_000)
    }
}

/// What decides how a thread can wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitConditions {
    pub(crate) scheduling: Scheduling,
    /// CPUs on which this process may run. Where it is one, the server may need it.
    pub(crate) cpus_allowed: usize,
    /// Between two requests of one thread; `u64::MAX` when there is no schedule.
    pub(crate) period_ns: u64,
    /// From the first instant of the schedule to its end.
    pub(crate) duration_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000_000_000;
    const NORMAL: WaitConditions = WaitConditions {
        scheduling: Scheduling::Normal,
        cpus_allowed: 2,
        period_ns: 10_000,
        duration_ns: HOUR,
    };
    const REALTIME: WaitConditions = WaitConditions {
        scheduling: Scheduling::Fifo(40),
        cpus_allowed: 2,
        period_ns: 50_000,
        duration_ns: HOUR,
    };

    fn waiting(wait: Wait, conditions: WaitConditions) -> Waiting {
        Waiting::new(wait, conditions).unwrap()
    }

    #[test]
    fn no_thread_spins_where_it_stops_the_load() {
        assert_eq!(waiting(Wait::Hybrid, NORMAL).spin_ns(), 15_000);
        assert_eq!(waiting(Wait::Hybrid, WaitConditions { cpus_allowed: 1, ..NORMAL }).spin_ns(), 0);
        assert_eq!(waiting(Wait::Hybrid, REALTIME).spin_ns(), 15_000);
        let hardly_sleeps = WaitConditions { period_ns: 29_999, ..REALTIME };
        assert_eq!(waiting(Wait::Hybrid, hardly_sleeps).spin_ns(), 0);
        assert_eq!(
            waiting(Wait::Hybrid, WaitConditions { duration_ns: 100_000_000, ..hardly_sleeps }).spin_ns(),
            15_000
        );
        assert_eq!(waiting(Wait::Sleep, NORMAL).spin_ns(), 0);
        assert!(waiting(Wait::Spin, NORMAL).spin_ns() > 0);
        assert!(Waiting::new(Wait::Spin, REALTIME).is_err());
        assert!(Waiting::new(Wait::Spin, WaitConditions { cpus_allowed: 1, ..NORMAL }).is_err());
    }

    #[test]
    fn a_wait_ends_before_what_comes_first() {
        let [sleep, hybrid, spin] = [Wait::Sleep, Wait::Hybrid, Wait::Spin].map(|wait| waiting(wait, NORMAL));
        assert_eq!(sleep.timeout_ns(1000, Some(51_000), u64::MAX), 50_000);
        assert_eq!(hybrid.timeout_ns(1000, Some(51_000), u64::MAX), 35_000);
        assert_eq!(hybrid.timeout_ns(40_000, Some(51_000), u64::MAX), 0);
        assert_eq!(hybrid.timeout_ns(1000, Some(51_000), 3000), 2000);
        // A sleep of less than 15 µs until a request, but not until something else.
        assert_eq!(hybrid.timeout_ns(21_001, Some(51_000), u64::MAX), 0);
        assert_eq!(sleep.timeout_ns(50_000, Some(51_000), u64::MAX), 1000);
        assert_eq!(hybrid.timeout_ns(1000, None, 9000), 8000);
        assert_eq!(spin.timeout_ns(1000, None, u64::MAX), 0);
    }

    /// The margin's least and greatest value after it has settled on the sleeps.
    fn settled(late_ns: impl Fn(u64) -> u64) -> (u64, u64) {
        let mut margin = Margin::default();
        let (mut least, mut greatest) = (u64::MAX, 0);
        for sleep in 0..100_000 {
            // A step that has no divisor in common with the thousand visits every per mille once in each thousand.
            margin.learn(late_ns(sleep * 617 % 1000));
            if sleep >= 10_000 {
                (least, greatest) = (least.min(margin.0), greatest.max(margin.0));
            }
        }
        (least, greatest)
    }

    #[test]
    fn the_margin_is_the_95th_percentile_of_lateness() {
        // Uniform from 0 to 40 µs: 38 µs, apart from the last few steps.
        let (least, greatest) = settled(|permille| permille * 40);
        assert!(least > 34_000 && greatest < 42_000, "{least} to {greatest}");
        // One sleep in fifty is a millisecond late: that is another thing than waking, and no reason to spin.
        let (least, greatest) = settled(|permille| if permille < 20 { 1_000_000 } else { 8000 });
        assert!(least > 7000 && greatest < 11_000, "{least} to {greatest}");
        assert_eq!(settled(|_| 0), (5000, 5000));
        assert_eq!(settled(|_| 70_000).1, 50_000);
    }

    #[test]
    fn a_real_time_thread_stops_spinning_when_it_learns_that_nothing_is_left_for_sleep() {
        let mut waiting = waiting(Wait::Hybrid, REALTIME);
        for _ in 0..20 {
            waiting.woke(0, 60_000);
        }
        assert_eq!(waiting.spin_ns(), 0);
        for _ in 0..1000 {
            waiting.woke(1000, 1500);
        }
        assert_eq!(waiting.spin_ns(), Margin::MIN_NS);
        // Woken by a signal.
        waiting.woke(1000, 900);
        assert_eq!(waiting.spin_ns(), Margin::MIN_NS);
    }
}
