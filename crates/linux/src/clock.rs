//! Clocks. Durations are measured with one clock alone, in whole nanoseconds.

use std::num::NonZeroU64;

use rustix::time::{ClockId, Timespec};

use crate::Result;
use crate::error::Attempt;

/// Nanoseconds of `CLOCK_MONOTONIC`. It starts at or before boot and never goes back. All CPUs, and all namespaces
/// that the project makes, share it. Reads it without entering the kernel and allocates nothing.
pub fn now_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Nanoseconds of `CLOCK_BOOTTIME`: as [`now_ns`], and it goes on while the machine sleeps. For deadlines that count
/// for the process at the other end.
pub fn boot_ns() -> u64 {
    nanoseconds(ClockId::Boottime)
}

/// Seconds since 1970, for dates in files. Never for durations: an administrator or NTP may set it.
pub fn unix_s() -> u64 {
    nanoseconds(ClockId::Realtime) / 1_000_000_000
}

/// Nanoseconds of CPU time that the calling thread has had, its own work and the kernel's on its behalf. Unlike the
/// others it enters the kernel, which takes a fraction of a microsecond.
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

/// Nanoseconds between two ticks of the kernel's scheduler: 4 000 000 with `CONFIG_HZ=250`. It is the resolution of the
/// clocks that the tick moves.
pub fn kernel_tick_ns() -> u64 {
    whole_ns(rustix::time::clock_getres(ClockId::MonotonicCoarse))
}

/// Sets the timer slack of the calling thread: how late, in nanoseconds, the kernel may wake it from a timed wait. The
/// default is 50 µs; 1 is the most exact. Threads that it starts inherit the value. Threads under `SCHED_FIFO` have no
/// slack.
pub fn set_timer_slack_ns(slack_ns: NonZeroU64) -> Result<()> {
    rustix::thread::set_current_timer_slack(Some(slack_ns))
        .attempt(|| format!("set the timer slack to {slack_ns} ns"))
}

fn nanoseconds(clock: ClockId) -> u64 {
    whole_ns(rustix::time::clock_gettime(clock))
}

fn whole_ns(time: Timespec) -> u64 {
    // No clock here is negative after 1970, and 2^64 ns are 584 years.
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_time_is_that_of_std() {
        let before = std::time::Instant::now();
        let first = now_ns();
        let second = now_ns();
        let passed = u64::try_from(before.elapsed().as_nanos()).unwrap();
        assert!(first <= second && second - first <= passed);
        assert!(unix_s() > 1_700_000_000);
    }

    #[test]
    fn the_kernel_ticks_as_often_as_kernels_are_built_to() {
        assert!([100, 250, 300, 1000].map(|hz| 1_000_000_000 / hz).contains(&kernel_tick_ns()));
    }

    #[test]
    fn timer_slack_is_the_threads_own() {
        let slack = NonZeroU64::new(12_345).unwrap();
        let seen = std::thread::spawn(move || {
            set_timer_slack_ns(slack).unwrap();
            rustix::thread::current_timer_slack().unwrap()
        });
        assert_eq!(seen.join().unwrap(), 12_345);
    }
}
