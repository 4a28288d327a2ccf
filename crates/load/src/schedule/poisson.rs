//! One thread's part of a Poisson process.

use stats::Random;

use super::Rate;

/// Instants with independent, exponentially distributed gaps.
///
/// Each thread has its own process with its share of the rate, since the sum of independent Poisson processes is one
/// (Kingman, *Poisson Processes*, §2.2). The instants come from the seed alone, so they are as fixed in advance as
/// those of a constant rate.
#[derive(Debug, Clone)]
pub(crate) struct Poisson {
    mean_ns: f64,
    /// At the request that is sent next.
    next: Walk,
    /// At the first that was not due when that was last counted, or behind `next`.
    ahead: Walk,
}

/// A place in the process.
#[derive(Debug, Clone)]
struct Walk {
    random: Random,
    due_ns: u64,
    /// What was cut off the instants so far, less than a nanosecond: a rate is not to suffer from rounding.
    rest_ns: f64,
    /// Instants before this one.
    passed: u64,
}

impl Poisson {
    pub(crate) fn new(rate: Rate, seed: u64, thread: usize, threads: usize) -> Poisson {
        // Neighbouring seeds give unrelated sequences: the generator spreads them. The threads of one are no
        // neighbours of it, so that runs with seeds 1, 2, 3 … have no thread in common.
        let random = Random::from_seed(seed.wrapping_add((thread as u64) << 32));
        let mean_ns = rate.period_ns() * threads as f64;
        let mut next = Walk { random, due_ns: 0, rest_ns: 0.0, passed: 0 };
        next.step(mean_ns);
        Poisson { mean_ns, ahead: next.clone(), next }
    }

    /// When the next request is due, in nanoseconds from the start.
    pub(crate) fn due_ns(&self) -> u64 {
        self.next.due_ns
    }

    pub(crate) fn advance(&mut self) {
        self.next.step(self.mean_ns);
        self.next.passed += 1;
    }

    /// Has the contract of [`super::Pace::due_by`].
    pub(crate) fn due_by(&mut self, elapsed_ns: u64) -> u64 {
        if self.ahead.passed < self.next.passed {
            self.ahead = self.next.clone();
        }
        // The last instant of all time is never passed.
        while self.ahead.due_ns <= elapsed_ns && self.ahead.due_ns < u64::MAX {
            self.ahead.step(self.mean_ns);
            self.ahead.passed += 1;
        }
        self.ahead.passed
    }
}

impl Walk {
    fn step(&mut self, mean_ns: f64) {
        // The inverse of the distribution function; 1 − u is never 0.
        let gap_ns = self.rest_ns - (1.0 - self.random.unit()).ln() * mean_ns;
        let whole_ns = gap_ns as u64;
        self.rest_ns = gap_ns - whole_ns as f64;
        self.due_ns = self.due_ns.saturating_add(whole_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instants(rate_per_s: f64, seed: u64, thread: usize, threads: usize, count: usize) -> Vec<u64> {
        let mut poisson = Poisson::new(Rate::new(rate_per_s).unwrap(), seed, thread, threads);
        std::iter::repeat_with(|| {
            let due_ns = poisson.due_ns();
            poisson.advance();
            due_ns
        })
        .take(count)
        .collect()
    }

    #[test]
    fn a_seed_and_a_thread_fix_the_instants() {
        assert_eq!(instants(1e4, 1, 0, 2, 100), instants(1e4, 1, 0, 2, 100));
        assert_ne!(instants(1e4, 1, 0, 2, 100), instants(1e4, 1, 1, 2, 100));
        assert_ne!(instants(1e4, 1, 0, 2, 100), instants(1e4, 2, 0, 2, 100));
    }

    #[test]
    fn the_mean_is_the_rate_and_the_spread_is_the_mean() {
        let due = instants(1e9 / 3.0, 7, 0, 1, 1_000_001);
        let gaps: Vec<f64> = due.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        // The standard error of the mean of a million gaps is 0.1 %: five of them.
        assert!((mean / 3.0 - 1.0).abs() < 0.005, "{mean}");
        let gaps: Vec<u64> =
            instants(1e4, 7, 0, 1, 100_001).windows(2).map(|pair| pair[1] - pair[0]).collect();
        // Half of all gaps are shorter than ln 2 of the mean; one in e² is longer than twice the mean.
        let share = |test: &dyn Fn(u64) -> bool| {
            gaps.iter().filter(|gap| test(**gap)).count() as f64 / gaps.len() as f64
        };
        assert!((share(&|gap| gap < 69_315) - 0.5).abs() < 0.01);
        assert!((share(&|gap| gap > 200_000) - 0.1353).abs() < 0.01);
    }
}
