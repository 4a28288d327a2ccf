//! The application's part of an answer: CPU time in user space.

use std::hint::black_box;
use std::ops::RangeInclusive;
use std::time::Duration;

use linux::clock;

/// The range of CPU time for a request. Below it, reading the clock would be most of the cost; above it, a thread
/// would not notice for too long that it should end.
pub const CPU_TIME: RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_secs(1);

/// The least number of steps between two clock readings.
const STEPS_MIN: u64 = 64;

/// The most nanoseconds between two clock readings.
const PART_NS_MAX: f64 = 1e6;

/// Work that takes a fixed CPU time for each request, however much wall-clock time passes.
///
/// Reading the CPU clock enters the kernel, and the work should be user time. So it runs in steps of known speed, most
/// of the way at once, and reads the clock a few times in the last part.
#[derive(Debug)]
pub(super) struct CpuWork {
    cost_ns: u64,
    steps_per_ns: f64,
}

impl CpuWork {
    /// `None`: there is none to be done.
    pub(super) fn new(cost: Duration) -> Option<CpuWork> {
        // Slower than any CPU is, so that the first request finds the speed from below.
        (!cost.is_zero()).then_some(CpuWork { cost_ns: cost.as_nanos() as u64, steps_per_ns: 0.01 })
    }

    /// Does it once, and at most a few microseconds more. Returns how often it read the clock.
    pub(super) fn one(&mut self) -> u32 {
        let mut now_ns = clock::thread_cpu_ns();
        let mut readings = 1;
        let end_ns = now_ns + self.cost_ns;
        while now_ns < end_ns {
            // Seven eighths, and not for long, so that a CPU that has become slower does not do much more.
            let part_ns = ((end_ns - now_ns) as f64 * 0.875).min(PART_NS_MAX);
            let steps = ((part_ns * self.steps_per_ns) as u64).max(STEPS_MIN);
            turn(steps);
            let then_ns = clock::thread_cpu_ns();
            readings += 1;
            // In a short part, reading the clock takes too large a share to measure the speed.
            if steps > 16 * STEPS_MIN || self.steps_per_ns < 0.1 {
                let seen = steps as f64 / (then_ns - now_ns).max(1) as f64;
                // If the clock stood still, this measurement is invalid.
                self.steps_per_ns = seen.clamp(self.steps_per_ns / 4.0, self.steps_per_ns * 4.0);
            }
            now_ns = then_ns;
        }
        readings
    }
}

/// Arithmetic that the compiler cannot leave out, one step after the other.
fn turn(steps: u64) {
    let mut x = 1_u64;
    for _ in 0..steps {
        x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the clock of the CPU, which does not go on while other programs run. What they leave in its caches makes some
    /// requests dearer.
    #[test]
    fn a_request_costs_what_it_is_to_cost() {
        for (cost_us, times) in [(20, 2_001), (200, 501), (5_000, 41)] {
            let mut work = CpuWork::new(Duration::from_micros(cost_us)).unwrap();
            work.one();
            let mut costs_ns: Vec<u64> = std::iter::repeat_with(|| {
                let before_ns = clock::thread_cpu_ns();
                work.one();
                clock::thread_cpu_ns() - before_ns
            })
            .take(times)
            .collect();
            costs_ns.sort_unstable();
            let median_us = costs_ns[times / 2] as f64 / 1e3;
            let over_us = median_us - cost_us as f64;
            assert!((0.0..5.0 + 0.02 * cost_us as f64).contains(&over_us), "{median_us} µs for {cost_us}");
        }
    }

    /// Each reading enters the kernel.
    #[test]
    fn the_work_is_done_in_user_space() {
        for (cost_us, readings_max) in [(200, 12), (2_000, 15), (20_000, 35)] {
            let mut work = CpuWork::new(Duration::from_micros(cost_us)).unwrap();
            let mut readings: Vec<u32> = (0..101).map(|_| work.one()).collect();
            readings.sort_unstable();
            assert!(readings[50] <= readings_max, "{} readings for {cost_us} µs", readings[50]);
        }
    }

    #[test]
    fn no_cost_is_no_work() {
        assert!(CpuWork::new(Duration::ZERO).is_none());
    }
}
