//! What goes wrong on purpose, and what follows from it by arithmetic.

use std::num::NonZeroU32;
use std::time::Duration;

/// The longest delay, freeze period and pause between pieces.
pub const DELAY_MAX: Duration = Duration::from_secs(3600);

/// Faults that a responder injects. The default is none.
///
/// A request counts as arrived when it is read. Answers leave a connection in the order of its requests, so a due
/// answer waits for those before it; datagrams do not wait for each other. Each request takes two numbers of its
/// thread's seeded sequence, one for its fate and one for its delay. With one thread, equal requests in equal order
/// therefore have an equal fate in every run, and changing a share does not change the delays.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Faults {
    /// Time from the arrival of a request to its answer, at least.
    pub delay: Option<Delay>,
    /// When all threads stop working; `None`: never.
    pub freeze: Option<Freeze>,
    /// The share of HTTP requests that are answered by status 503, 0 to 1.
    pub errors: f64,
    /// The share of requests, 0 to 1, at which the connection is closed after half the answer; a datagram is then not
    /// answered. Together with errors and resets at most 1.
    pub cuts: f64,
    /// The same with a reset instead of a close (on a Unix socket it is a close).
    pub resets: f64,
    /// How answers dribble; not for datagrams.
    pub trickle: Option<Trickle>,
    /// Of the random numbers; thread number *i*, from 0, has the sequence of `seed` + *i*.
    pub seed: u64,
}

/// How long an answer takes.
#[derive(Debug, Clone, PartialEq)]
pub enum Delay {
    /// The same delay for every answer.
    Fixed(Duration),
    /// Exponentially distributed, as the service times of the M/M/1 queue are.
    Exponential {
        /// The mean of the distribution.
        mean: Duration,
    },
    /// Randomly one of several delays.
    Mixture(Mixture),
}

/// Several delays, each for a share of the answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Mixture {
    /// Shares and delays, the shortest first.
    parts: Vec<(f64, Duration)>,
}

/// Times at which all threads stop working.
///
/// Freeze *k*, from 0, begins `period` · (*k* + 1) after the start of [`super::Server::run`] and lasts `length`. A
/// request from a schedule that is even in time meets a freeze with probability `length` / `period`, and then waits
/// for a time that is evenly distributed between 0 and `length`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freeze {
    /// Of each; less than the period.
    pub length: Duration,
    /// From the beginning of one to that of the next.
    pub period: Duration,
}

/// Answers in pieces: the first when the answer is due, each other `every` after the one before. A piece that is late
/// does not move those after it; the pieces of the next answer keep the pace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trickle {
    /// The size of one piece.
    pub bytes: NonZeroU32,
    /// From one piece to the next.
    pub every: Duration,
}

impl Faults {
    /// Whether there are any.
    pub fn any(&self) -> bool {
        *self != Faults { seed: self.seed, ..Faults::default() }
    }

    /// Returns the first error in them.
    pub(super) fn check(&self) -> Result<(), String> {
        let shares = [self.errors, self.cuts, self.resets];
        if shares.iter().any(|share| !(0.0..=1.0).contains(share))
            || shares.iter().sum::<f64>() > 1.0 + ROUNDING
        {
            return Err(
                "the shares of errors, cuts and resets are 0 to 100 %, and so is their sum".to_owned()
            );
        }
        let longest = |time: Duration, what: &str| match time > DELAY_MAX {
            true => Err(format!("{what} of at most {} s is possible", DELAY_MAX.as_secs())),
            false => Ok(()),
        };
        if let Some(delay) = &self.delay {
            longest(delay.scale(), "a delay")?;
        }
        if let Some(freeze) = &self.freeze {
            longest(freeze.period, "a period of freezes")?;
            if freeze.length >= freeze.period {
                return Err("a freeze must be shorter than the period from one to the next".to_owned());
            }
        }
        self.trickle.map_or(Ok(()), |trickle| longest(trickle.every, "a pause between pieces"))
    }
}

/// Shares are typed in decimals, and 0.1 + 0.2 is not 0.3 in binary.
const ROUNDING: f64 = 1e-9;

impl Delay {
    /// The delay that this share of the answers, 0 to 1, does not exceed: the inverse of the distribution function. For
    /// the exponential distribution −mean · ln(1 − share), and [`Duration::MAX`] at 1.
    pub fn quantile(&self, share: f64) -> Duration {
        match self {
            Delay::Fixed(delay) => *delay,
            Delay::Exponential { mean } => {
                let seconds = -(1.0 - share).ln() * mean.as_secs_f64();
                Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
            }
            Delay::Mixture(mixture) => mixture.quantile(share),
        }
    }

    /// The mean, or the longest.
    fn scale(&self) -> Duration {
        match self {
            Delay::Fixed(delay) | Delay::Exponential { mean: delay } => *delay,
            Delay::Mixture(mixture) => mixture.longest(),
        }
    }
}

impl Mixture {
    /// Delays with their shares, 0 to 1, in any order.
    ///
    /// # Errors
    /// If a share is out of range or they do not add up to 1; the text contains their sum.
    pub fn new(mut parts: Vec<(f64, Duration)>) -> Result<Mixture, String> {
        if parts.iter().any(|(share, _)| !(0.0..=1.0).contains(share)) {
            return Err("a share is 0 to 100 %".to_owned());
        }
        let sum = parts.iter().fold(0.0, |sum, (share, _)| sum + share);
        if (sum - 1.0_f64).abs() > ROUNDING {
            // To nine digits, which is where a sum of decimals is decimal again.
            let percent = (sum * 1e11).round() / 1e9;
            return Err(format!("the shares add up to {percent} %, not to 100 %"));
        }
        parts.sort_by_key(|(_, delay)| *delay);
        Ok(Mixture { parts })
    }

    fn quantile(&self, share: f64) -> Duration {
        let mut below = 0.0;
        for (part, delay) in &self.parts {
            below += part;
            if share < below {
                return *delay;
            }
        }
        self.longest()
    }

    fn longest(&self) -> Duration {
        self.parts.last().map_or(Duration::ZERO, |(_, delay)| *delay)
    }
}

impl Freeze {
    /// When the freeze ends that holds at an instant, both in nanoseconds since the start; `None` between freezes.
    ///
    /// # Panics
    /// If the period is 0, which no responder takes.
    pub fn end_ns(&self, since_start_ns: u64) -> Option<u64> {
        let (length_ns, period_ns) = (self.length.as_nanos() as u64, self.period.as_nanos() as u64);
        let begun_ns = since_start_ns - since_start_ns % period_ns;
        (begun_ns > 0 && since_start_ns < begun_ns + length_ns).then_some(begun_ns + length_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn freezes_follow_from_the_start_alone() {
        let freeze = Freeze { length: 100 * MS, period: 2000 * MS };
        let end_ms = |at_ns| freeze.end_ns(at_ns).map(|end_ns| end_ns / 1_000_000);
        let ms = 1_000_000;
        for (at_ns, expected) in [
            (0, None),
            (50 * ms, None),
            (2000 * ms - 1, None),
            (2000 * ms, Some(2100)),
            (2100 * ms - 1, Some(2100)),
            (2100 * ms, None),
            (7_200_050 * ms, Some(7_200_100)),
        ] {
            assert_eq!(end_ms(at_ns), expected, "at {at_ns} ns");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_distribution() {
        let mixture = Mixture::new(vec![(0.02, 20 * MS), (0.98, MS)]).unwrap();
        let mixture = Delay::Mixture(mixture);
        assert_eq!(
            [0.0, 0.5, 0.979, 0.981, 1.0].map(|q| mixture.quantile(q)),
            [1, 1, 1, 20, 20].map(|ms| ms * MS)
        );
        let exponential = Delay::Exponential { mean: MS };
        let median_ns = exponential.quantile(0.5).as_nanos();
        assert!((693_146..=693_148).contains(&median_ns), "{median_ns}");
        assert_eq!(exponential.quantile(0.0), Duration::ZERO);
        assert_eq!(exponential.quantile(1.0), Duration::MAX);
        assert_eq!(Delay::Fixed(MS).quantile(0.999), MS);
    }

    #[test]
    fn shares_that_do_not_add_up_to_100_percent_are_refused() {
        assert_eq!(Mixture::new(vec![(0.98, MS)]).unwrap_err(), "the shares add up to 98 %, not to 100 %");
        assert!(Mixture::new(vec![]).unwrap_err().contains("add up to 0 %"));
        assert!(Mixture::new(vec![(1.5, MS), (-0.5, MS)]).is_err());
        assert!(Mixture::new(vec![(0.1, MS), (0.2, MS), (0.7, MS)]).is_ok());
    }

    #[test]
    fn faults_have_limits() {
        let check = |faults: Faults| faults.check().is_ok();
        assert!(check(Faults { errors: 0.5, cuts: 0.3, resets: 0.2, ..Faults::default() }));
        assert!(!check(Faults { errors: 0.5, cuts: 0.4, resets: 0.2, ..Faults::default() }));
        assert!(!check(Faults { cuts: -0.1, ..Faults::default() }));
        assert!(!check(Faults { resets: f64::NAN, ..Faults::default() }));
        let delay = |delay| check(Faults { delay: Some(Delay::Fixed(delay)), ..Faults::default() });
        assert!(delay(DELAY_MAX) && !delay(DELAY_MAX + MS));
        let freeze =
            |length, period| check(Faults { freeze: Some(Freeze { length, period }), ..Faults::default() });
        assert!(freeze(MS, 2 * MS) && !freeze(MS, MS) && !freeze(MS, Duration::ZERO));
        let trickle = |every| {
            let trickle = Trickle { bytes: NonZeroU32::MIN, every };
            check(Faults { trickle: Some(trickle), ..Faults::default() })
        };
        assert!(trickle(MS) && !trickle(2 * DELAY_MAX));
    }
}
