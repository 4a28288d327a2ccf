//! When each request is meant to be sent, as integers.
//!
//! The schedule is arithmetic and known before the first packet: request k is due at k/R. It is computed from k, or
//! stepped with the remainder carried along, never by adding up a rounded period, so it is as exact after a day as at
//! the start. A whole run has a single schedule; thread i of T owns the requests k ≡ i mod T, so that the sum over
//! threads is evenly spaced. (A separate schedule for each connection would start all of them together, in bursts.)

mod poisson;

use poisson::Poisson;

/// When requests are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Schedule {
    /// At a constant rate, independent of the server.
    Constant {
        /// Requests per second over all threads, [`Rate::MIN_PER_S`] to [`Rate::MAX_PER_S`].
        rate_per_s: f64,
    },
    /// At random instants, independent of each other and of the server, as the requests of many users are: a Poisson
    /// process. The gaps are exponentially distributed, so that there are bursts and pauses.
    Poisson {
        /// Requests per second over all threads on average, [`Rate::MIN_PER_S`] to [`Rate::MAX_PER_S`].
        rate_per_s: f64,
        /// Selects the random instants: equal seeds and numbers of threads give equal instants.
        seed: u64,
    },
    /// Every connection sends again as soon as its answer has arrived. This measures capacity. It says little about
    /// latency, because a slow server gets fewer requests.
    Saturate,
}

impl Schedule {
    /// The requested rate in requests per second; `None` when saturating.
    pub fn rate_per_s(self) -> Option<f64> {
        match self {
            Schedule::Constant { rate_per_s } | Schedule::Poisson { rate_per_s, .. } => Some(rate_per_s),
            Schedule::Saturate => None,
        }
    }

    /// The part of one thread of several.
    pub(crate) fn pace(self, thread: usize, threads: usize) -> Result<Pace, RateError> {
        Ok(match self {
            Schedule::Constant { rate_per_s } => {
                Pace::Constant(Cursor::new(Rate::new(rate_per_s)?, thread, threads))
            }
            Schedule::Poisson { rate_per_s, seed } => {
                Pace::Poisson(Poisson::new(Rate::new(rate_per_s)?, seed, thread, threads))
            }
            Schedule::Saturate => Pace::Saturate,
        })
    }
}

/// A rate that cannot be scheduled.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("a rate of {rate_per_s} requests/s is not possible: 0.000001 to 1000000000 are")]
#[expect(missing_docs, reason = "the names say it")]
pub struct RateError {
    pub rate_per_s: f64,
}

/// A constant rate: a whole number of requests in 10⁶ seconds, so that decimal rates such as 0.1 are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(u64);

/// Nanoseconds in the 10⁶ seconds that a [`Rate`] counts over.
const SPAN_NS: u128 = 1_000_000_000_000_000;

impl Rate {
    /// The lowest rate, one request in eleven days.
    pub const MIN_PER_S: f64 = 1e-6;
    /// The highest rate: one request a nanosecond, the clock's unit.
    pub const MAX_PER_S: f64 = 1e9;

    /// The rate nearest to a number of requests per second.
    pub fn new(rate_per_s: f64) -> Result<Rate, RateError> {
        if !(Rate::MIN_PER_S..=Rate::MAX_PER_S).contains(&rate_per_s) {
            return Err(RateError { rate_per_s });
        }
        Ok(Rate((rate_per_s * 1e6).round() as u64))
    }

    /// Nanoseconds between two requests on average.
    pub fn period_ns(self) -> f64 {
        SPAN_NS as f64 / self.0 as f64
    }

    /// Nanoseconds from the start to the instant at which request `k` is due, rounded down. Beyond 584 years it is
    /// `u64::MAX`.
    pub fn intended_ns(self, k: u64) -> u64 {
        u64::try_from(u128::from(k) * SPAN_NS / u128::from(self.0)).unwrap_or(u64::MAX)
    }

    /// How many requests are due before the duration is over.
    pub fn due_within(self, duration_ns: u64) -> u64 {
        let requests = (u128::from(duration_ns) * u128::from(self.0)).div_ceil(SPAN_NS);
        u64::try_from(requests)
            .expect("a rate of at most one request a nanosecond gives at most duration_ns of them")
    }
}

/// The requests of one thread, one after the other.
#[derive(Debug, Clone)]
pub(crate) enum Pace {
    Constant(Cursor),
    Poisson(Poisson),
    Saturate,
}

impl Pace {
    /// When the next request is due, in nanoseconds from the start. A saturating thread is always due.
    pub(crate) fn next_ns(&self, now_ns: u64) -> u64 {
        match self {
            Pace::Constant(cursor) => cursor.due_ns,
            Pace::Poisson(poisson) => poisson.due_ns(),
            Pace::Saturate => now_ns,
        }
    }

    pub(crate) fn advance(&mut self) {
        match self {
            Pace::Constant(cursor) => cursor.advance(),
            Pace::Poisson(poisson) => poisson.advance(),
            Pace::Saturate => {}
        }
    }

    /// How many requests of this thread, including sent ones, are due by an instant in nanoseconds from the start;
    /// none when saturating. The instant must not be before the last request sent, nor before that of an earlier call:
    /// random instants have to be drawn to be counted, each once, so that frequent calls are cheap.
    pub(crate) fn due_by(&mut self, elapsed_ns: u64) -> u64 {
        match self {
            Pace::Constant(cursor) => cursor.due_by(elapsed_ns),
            Pace::Poisson(poisson) => poisson.due_by(elapsed_ns),
            Pace::Saturate => 0,
        }
    }
}

/// Walks over the k of one thread without a division: the instant of the next k, and the remainder of its rounding.
#[derive(Debug, Clone)]
pub(crate) struct Cursor {
    rate: u64,
    thread: u64,
    threads: u64,
    due_ns: u64,
    remainder: u64,
    step_ns: u64,
    step_remainder: u64,
}

impl Cursor {
    /// The requests k ≡ `thread` mod `threads`.
    pub(crate) fn new(rate: Rate, thread: usize, threads: usize) -> Cursor {
        let rate_wide = u128::from(rate.0);
        let split = |k: usize| {
            let scaled = k as u128 * SPAN_NS;
            let remainder = u64::try_from(scaled % rate_wide).expect("a remainder is less than its divisor");
            (u64::try_from(scaled / rate_wide).unwrap_or(u64::MAX), remainder)
        };
        let (due_ns, remainder) = split(thread);
        let (step_ns, step_remainder) = split(threads);
        let (thread, threads) = (thread as u64, threads as u64);
        Cursor { rate: rate.0, thread, threads, due_ns, remainder, step_ns, step_remainder }
    }

    fn due_by(&self, elapsed_ns: u64) -> u64 {
        let of_all = Rate(self.rate).due_within(elapsed_ns.saturating_add(1));
        of_all.saturating_sub(self.thread).div_ceil(self.threads)
    }

    fn advance(&mut self) {
        self.due_ns = self.due_ns.saturating_add(self.step_ns);
        self.remainder += self.step_remainder;
        if self.remainder >= self.rate {
            self.remainder -= self.rate;
            self.due_ns = self.due_ns.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_rate_is_exact_after_a_billion_requests() {
        assert_eq!(Rate::new(3.0).unwrap().intended_ns(3_000_000_000), 1_000_000_000_000_000_000);
        assert_eq!(Rate::new(0.1).unwrap().intended_ns(1_000_000_000), 10_000_000_000_000_000_000);
        assert_eq!(Rate::new(7e5).unwrap().intended_ns(1_000_000_000), 1_428_571_428_571);
        assert_eq!(Rate::new(1.0).unwrap().intended_ns(u64::MAX), u64::MAX);
    }

    #[test]
    fn what_is_due_within_a_time_is_what_is_intended_before_its_end() {
        for (rate_per_s, duration_ns) in [(20e3, 1_000_000_000), (3.0, 1_000_000_000), (7.3, 999_999_999)] {
            let rate = Rate::new(rate_per_s).unwrap();
            let due = rate.due_within(duration_ns);
            assert!(rate.intended_ns(due - 1) < duration_ns);
            assert!(rate.intended_ns(due) >= duration_ns);
        }
        assert_eq!(Rate::new(20e3).unwrap().due_within(1_000_000_000), 20_000);
        assert_eq!(Rate::new(1e9).unwrap().due_within(u64::MAX), u64::MAX);
    }

    #[test]
    fn impossible_rates_are_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 2e9, 1e-7] {
            assert!(Rate::new(rate).is_err(), "{rate}");
        }
    }

    proptest! {
        #[test]
        fn instants_never_go_back_and_have_no_drift(rate in 1e-6_f64..1e9, k in 0_u64..1_000_000_000) {
            let rate = Rate::new(rate).unwrap();
            let (here, next) = (rate.intended_ns(k), rate.intended_ns(k + 1));
            prop_assert!(next >= here);
            // k/R to within the one nanosecond of rounding down, at any k: multiply back and compare exactly.
            let product = u128::from(here) * u128::from(rate.0);
            let exact = u128::from(k) * SPAN_NS;
            prop_assert!(here == u64::MAX || (product <= exact && exact < product + u128::from(rate.0)));
        }

        #[test]
        fn threads_together_walk_the_one_schedule(rate in 1e-3_f64..1e8, threads in 1_usize..9) {
            let rate = Rate::new(rate).unwrap();
            let mut cursors: Vec<Cursor> = (0..threads).map(|i| Cursor::new(rate, i, threads)).collect();
            for k in 0..2000 {
                let cursor = &mut cursors[k as usize % threads];
                prop_assert_eq!(cursor.due_ns, rate.intended_ns(k));
                cursor.advance();
            }
        }

        #[test]
        fn what_is_due_is_counted_as_it_is_stepped(
            rate_per_s in 1e-3_f64..1e9,
            threads in 1_usize..5,
            random: bool,
            sent in 0_usize..50,
        ) {
            let schedule = if random {
                Schedule::Poisson { rate_per_s, seed: 3 }
            } else {
                Schedule::Constant { rate_per_s }
            };
            for thread in 0..threads {
                let mut pace = schedule.pace(thread, threads).unwrap();
                let mut walk = pace.clone();
                (0..sent).for_each(|_| pace.advance());
                let mut due_ns: Vec<u64> = Vec::new();
                for _ in 0..200 {
                    due_ns.push(walk.next_ns(0));
                    walk.advance();
                }
                let since_ns = if sent == 0 { 0 } else { due_ns[sent - 1] };
                // After the last of these there are more.
                let mut instants: Vec<u64> =
                    due_ns.iter().flat_map(|due_ns| [due_ns.saturating_sub(1), *due_ns]).collect();
                instants.sort_unstable();
                for at_ns in instants {
                    if (since_ns..due_ns[199]).contains(&at_ns) {
                        let due = due_ns.iter().filter(|due_ns| **due_ns <= at_ns).count();
                        prop_assert_eq!(pace.due_by(at_ns), due as u64);
                    }
                }
            }
        }
    }
}
