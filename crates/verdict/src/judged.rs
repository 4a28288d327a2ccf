//! A verdict, and the tests that it rests on.

use record::Statistic;
use serde::Serialize;
use stats::{Interval, Spread};

use crate::contrast::{Answered, Contrast};

/// The comparison with the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The reference itself, to which all others are compared.
    Reference,
    /// Faster, beyond the noise.
    Better,
    /// Slower, beyond the noise.
    Worse,
    /// The difference, if there is one, is smaller than what this race can see.
    Indistinguishable,
}

/// The test of one statistic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Test {
    /// The statistic of which the ratio is.
    pub of: Statistic,
    /// What this statistic alone says.
    pub verdict: Verdict,
    /// What is divided by the reference's.
    pub compared: Compared,
    /// The ratio to the reference with the interval at `alpha`.
    pub interval: Interval,
    /// The probability with which the interval misses the truth.
    pub alpha: f64,
    /// What the ratio must differ from 1 by, in the logarithm; 0 for the control.
    pub floor: f64,
}

/// What a test is of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Compared {
    /// The statistic.
    Figures,
    /// The shares of the requests that have an answer, since the statistic of one or both sides lies among those that
    /// have none, or may.
    Answered {
        /// Of the candidate and of the reference.
        shares: [f64; 2],
        /// The test is open: who loses requests is known too little for a verdict, which must not be
        /// another one than this.
        open: Option<Verdict>,
    },
}

impl Test {
    /// Of a comparison; the floor is 0 where there is no second rule.
    pub(crate) fn of(of: Statistic, contrast: &Contrast, alpha: f64, floor: f64) -> Test {
        let (spread, (above, below)) = match contrast {
            Contrast::Ratio(ratio) => (ratio, verdict_above(of)),
            Contrast::Answered(answered) => (&answered.ratio, (Verdict::Better, Verdict::Worse)),
        };
        let interval = spread.interval(alpha);
        let found = if interval.holds(1.0) || interval.value.ln().abs() <= floor {
            Verdict::Indistinguishable
        } else if interval.value > 1.0 {
            above
        } else {
            below
        };
        let compared = match contrast {
            Contrast::Ratio(_) => Compared::Figures,
            Contrast::Answered(answered) => {
                Compared::Answered { shares: answered.shares, open: open(answered, found) }
            }
        };
        let test = Test { of, verdict: found, compared, interval, alpha, floor };
        if test.open().is_some() { Test { verdict: Verdict::Indistinguishable, ..test } } else { test }
    }

    /// The verdict that an open test does not allow to contradict; `None` of all others.
    pub fn open(&self) -> Option<Verdict> {
        match self.compared {
            Compared::Figures => None,
            Compared::Answered { open, .. } => open,
        }
    }

    /// True if the interval alone says that there is a difference.
    pub fn excludes_one(&self) -> bool {
        !self.interval.holds(1.0)
    }

    /// True if it found a difference.
    pub fn differs(&self) -> bool {
        self.verdict != Verdict::Indistinguishable
    }
}

/// The verdict that must not be contradicted where a loss of requests decides nothing, from what the shares alone say.
/// `None`: it decides, or both sides lie among the unanswered and lose as much as far as this race can see.
///
/// A share known to be smaller is not enough: the statistic of that side might still be an answer's, and shorter.
fn open(answered: &Answered, found: Verdict) -> Option<Verdict> {
    let [is_own, is_other] = answered.is_unanswered();
    let is_decided = match found {
        Verdict::Worse => is_own,
        Verdict::Better => is_other,
        Verdict::Indistinguishable | Verdict::Reference => is_own && is_other,
    };
    let [own, other] = answered.shares;
    (!is_decided).then_some(if own > other { Verdict::Better } else { Verdict::Worse })
}

/// The verdicts on a ratio above 1 and below.
fn verdict_above(of: Statistic) -> (Verdict, Verdict) {
    match of {
        Statistic::Throughput => (Verdict::Better, Verdict::Worse),
        Statistic::P50
        | Statistic::P90
        | Statistic::P99
        | Statistic::P99_9
        | Statistic::P99_99
        | Statistic::P99_999
        | Statistic::TypicalP99 => (Verdict::Worse, Verdict::Better),
    }
}

/// The verdict on a candidate at a load, and what it rests on.
#[derive(Debug, Clone, PartialEq)]
pub enum Judgement {
    /// All others are divided by it.
    Reference,
    /// It broke, and raced in only some of the rounds.
    Broke,
    /// Threads that carry its packets poll, and share CPUs with client and server: what it shows is that, too.
    Crowded,
    /// A single round gives no interval.
    OneUnit,
    /// There are too few samples, or no control for the noise.
    Unknown,
    /// The tests in their order: the first that finds a difference decides, unless one before it is open and would have
    /// found another.
    Tested(Vec<Test>),
}

impl Judgement {
    /// The verdict, where there is one.
    pub fn verdict(&self) -> Option<Verdict> {
        match self {
            Judgement::Reference => Some(Verdict::Reference),
            Judgement::Broke | Judgement::Crowded | Judgement::OneUnit | Judgement::Unknown => None,
            Judgement::Tested(tests) => match self.decisive() {
                Some(decisive) => Some(decisive.verdict),
                None if tests.iter().any(|test| test.open().is_some()) => None,
                None => Some(Verdict::Indistinguishable),
            },
        }
    }

    /// The test that decided; `None` if none found a difference that may decide.
    pub fn decisive(&self) -> Option<&Test> {
        let (first, decisive) = self.tests().iter().enumerate().find(|(_, test)| test.differs())?;
        let mut open = self.tests()[..first].iter().filter_map(Test::open);
        open.all(|verdict| verdict == decisive.verdict).then_some(decisive)
    }

    /// The tests in their order.
    pub fn tests(&self) -> &[Test] {
        match self {
            Judgement::Tested(tests) => tests,
            Judgement::Reference
            | Judgement::Broke
            | Judgement::Crowded
            | Judgement::OneUnit
            | Judgement::Unknown => &[],
        }
    }

    /// The verdict on one statistic; `None` if it was not tested, or its test is open.
    pub fn by(&self, statistic: Statistic) -> Option<Verdict> {
        let tested = self.tests().iter().find(|test| test.of == statistic);
        tested.filter(|test| test.open().is_none()).map(|test| test.verdict)
    }
}

/// A difference, in the logarithm, that is too small to matter even in a race without noise, as in counted time.
const NOTHING: f64 = 0.001;

/// The noise floor, in the logarithm, from the ratio of the control to the reference: half of its 95 % interval, or its
/// distance from 1 if that is more.
pub fn noise_floor(control: &Spread) -> f64 {
    let interval = control.interval(0.05);
    interval.half_width_ln().max(interval.value.ln().abs()).max(NOTHING)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ratio whose 95 % interval of six units is about ±11 %.
    fn spread(value: f64) -> Spread {
        let resampled = (0..1_000).map(|index| Some(value * (f64::from(index % 5 - 2) * 0.026).exp()));
        Spread::new(value, resampled, 6).unwrap()
    }

    fn ratio(value: f64) -> Contrast {
        Contrast::Ratio(spread(value))
    }

    #[test]
    fn a_difference_needs_an_interval_without_one_and_more_than_the_noise() {
        let verdict = |value, alpha, floor| Test::of(Statistic::P99, &ratio(value), alpha, floor).verdict;
        assert_eq!(verdict(1.2, 0.05, 0.1), Verdict::Worse);
        assert_eq!(verdict(0.8, 0.05, 0.1), Verdict::Better);
        assert_eq!(verdict(1.2, 0.05, 0.2), Verdict::Indistinguishable);
        assert_eq!(verdict(1.2, 0.000_1, 0.1), Verdict::Indistinguishable);
        assert_eq!(Test::of(Statistic::Throughput, &ratio(1.2), 0.05, 0.1).verdict, Verdict::Better);
    }

    #[test]
    fn the_first_test_that_finds_a_difference_decides() {
        let test = |of, value| Test::of(of, &ratio(value), 0.05, 0.1);
        let tests = vec![test(Statistic::P99, 1.05), test(Statistic::P50, 1.3), test(Statistic::P90, 0.7)];
        let judged = Judgement::Tested(tests);
        assert_eq!(
            (judged.verdict(), judged.decisive().map(|test| test.of)),
            (Some(Verdict::Worse), Some(Statistic::P50))
        );
        assert_eq!(judged.by(Statistic::P99), Some(Verdict::Indistinguishable));
        assert_eq!(
            Judgement::Tested(vec![test(Statistic::P99, 1.05)]).verdict(),
            Some(Verdict::Indistinguishable)
        );
        assert_eq!(
            (Judgement::Unknown.verdict(), Judgement::Reference.verdict()),
            (None, Some(Verdict::Reference))
        );
    }

    #[test]
    fn noise_is_half_the_width_or_how_far_the_control_is_off() {
        let even = noise_floor(&spread(1.0));
        assert!((0.08..0.14).contains(&even), "{even}");
        assert!((noise_floor(&spread(1.3)) - 1.3_f64.ln()).abs() < 1e-9);
    }
}
