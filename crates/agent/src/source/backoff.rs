//! How long to wait before the next attempt.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// After so long without a failure the next one counts as the first.
const FORGOTTEN: Duration = Duration::from_secs(30);

/// Waits from 100 ms to 5 s, twice as long each time.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// The last wait, and when it was asked for.
    last: Option<(Duration, Instant)>,
}

impl Backoff {
    /// The next wait: a random one between half of the step and all of it, so that a thousand nodes whose store comes back do
    /// not all ask it at once.
    pub(super) fn next(&mut self) -> Duration {
        let now = Instant::now();
        let step = match self.last {
            Some((step, at)) if now - at < FORGOTTEN => LONGEST.min(step * 2),
            Some(_) | None => SHORTEST,
        };
        self.last = Some((step, now));
        // The keys of the hash are random.
        let fraction = RandomState::new().hash_one(0) as f64 / u64::MAX as f64;
        step.mul_f64(0.5 + fraction / 2.0)
    }
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
        let mut backoff = Backoff { last: Some((LONGEST, Instant::now() - FORGOTTEN)) };
        assert!(backoff.next() <= SHORTEST);
    }
}
