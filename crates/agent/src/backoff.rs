//! How long to wait before the next attempt.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// After so long without a failure the next one counts as the first; at least so many of the longest wait.
const FORGOTTEN: Duration = Duration::from_secs(30);
const FORGOTTEN_WAITS: u32 = 2;

/// Waits, twice as long each time.
#[derive(Debug)]
pub(crate) struct Backoff {
    shortest: Duration,
    longest: Duration,
    /// The last wait, and when it was asked for.
    last: Option<(Duration, Instant)>,
}

impl Default for Backoff {
    /// From 100 ms to 5 s.
    fn default() -> Backoff {
        Backoff::between(SHORTEST, LONGEST)
    }
}

impl Backoff {
    pub(crate) fn between(shortest: Duration, longest: Duration) -> Backoff {
        Backoff { shortest, longest, last: None }
    }

    /// The next wait: a random one between half of the step and all of it, so that a thousand nodes whose store comes
    /// back do not all ask it at once.
    pub(crate) fn next(&mut self) -> Duration {
        let now = Instant::now();
        let forgotten = FORGOTTEN.max(self.longest * FORGOTTEN_WAITS);
        let step = match self.last {
            Some((step, at)) if now - at < forgotten => self.longest.min(step * 2),
            Some(_) | None => self.shortest,
        };
        self.last = Some((step, now));
        jittered(step)
    }
}

/// A random time between half of this one and all of it.
pub(crate) fn jittered(step: Duration) -> Duration {
    // The keys of the hash are random.
    let fraction = RandomState::new().hash_one(0) as f64 / u64::MAX as f64;
    step.mul_f64(0.5 + fraction / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_limit() {
        let mut backoff = Backoff::default();
        let waits: Vec<Duration> = (0..10).map(|_| backoff.next()).collect();
        assert!(waits[0] >= SHORTEST / 2 && waits[0] <= SHORTEST);
        assert!(waits[9] >= LONGEST / 2 && waits[9] <= LONGEST);
    }

    #[test]
    fn a_failure_long_ago_is_forgotten() {
        let last = Some((LONGEST, Instant::now() - FORGOTTEN));
        let mut backoff = Backoff { last, ..Backoff::default() };
        assert!(backoff.next() <= SHORTEST);
    }
}
