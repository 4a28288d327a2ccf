//! Whether requests left at the instants of the schedule, judged by the gaps between the real sending times.

use stats::{ExponentialFit, Percentile, exponential_fit};

use super::cause::{Shares, Shortage};
use super::phrases::{connections, time};
use super::{CheckResult, CheckWeight};
use crate::{Outcome, Schedule, Series};

/// The level of the test, for all threads together.
const LEVEL: f64 = 0.01;
/// From a few thousand samples a test finds what does no harm: no generator sends two requests within the microseconds
/// that one takes, so gaps shorter than that never come out as drawn. A share of gaps above this is a different load.
const DISTANCE_MAX: f64 = 0.1;
/// Constant gaps may deviate by this share of the period; a deviation of a whole period is a burst.
const DEVIATION_MAX: f64 = 0.5;
/// Or by this much: two wake-ups from sleep.
const DEVIATION_NS_MIN: f64 = 10_000.0;

/// Compares the gaps of each thread with the requested process.
///
/// Random arrivals: each thread's gaps are exponential with the mean threads/rate, by the test of Anderson and
/// Darling, as RFC 2330 (§11.1.3) demands of a Poisson sampler. A constant process has no distribution to test: there
/// the 99th percentile of |gap − period| is compared with the period.
pub(super) fn gaps(outcome: &Outcome, schedule: &Schedule) -> CheckResult {
    let mean_ns = |rate_per_s: f64| outcome.series.len() as f64 * 1e9 / rate_per_s;
    let check = match schedule {
        Schedule::Saturate => {
            return CheckResult::unjudged(
                "gaps",
                CheckWeight::Doubt,
                "there is no schedule to compare them with",
            );
        }
        Schedule::Constant { rate_per_s } => constant(outcome, mean_ns(*rate_per_s)),
        Schedule::Poisson { rate_per_s, .. } => poisson(outcome, mean_ns(*rate_per_s)),
    };
    check.unwrap_or_else(|| CheckResult::unjudged("gaps", CheckWeight::Doubt, "too few gaps were sampled"))
}

fn constant(outcome: &Outcome, period_ns: f64) -> Option<CheckResult> {
    let mut off: Vec<f64> =
        outcome.series.iter().flat_map(gaps_of).map(|gap_ns| (gap_ns - period_ns).abs()).collect();
    let count = off.len() as u64;
    // The median would not show bursts.
    let percentile = Percentile::P99.or_lower(count).filter(|percentile| *percentile > Percentile::P50)?;
    off.sort_by(f64::total_cmp);
    let off_ns = off[percentile.rank(count) as usize - 1];
    let limit_ns = (DEVIATION_MAX * period_ns).max(DEVIATION_NS_MIN);
    let text = format!(
        "gaps between the requests of a thread are off their {} by {} ({})",
        time(period_ns),
        time(off_ns),
        percentile.label()
    );
    Some(
        CheckResult::passed("gaps", CheckWeight::Doubt, text)
            .unless(off_ns <= limit_ns, &remedy(outcome))
            .figures(&[
                ("period_ns", period_ns),
                ("off_ns", off_ns),
                ("limit_ns", limit_ns),
                ("samples", count as f64),
            ]),
    )
}

fn poisson(outcome: &Outcome, mean_ns: f64) -> Option<CheckResult> {
    let fits = outcome.series.iter().filter_map(|series| fit(series, mean_ns));
    let worst = fits.min_by(|a, b| a.p.total_cmp(&b.p))?;
    let text = format!(
        "gaps between the requests of a thread differ from exponential ones by {:.1} % (Anderson-Darling A² {:.2}, \
         p {:.3})",
        worst.distance * 100.0,
        worst.a_squared,
        worst.p
    );
    // Of T threads the worst is found at level/T (Bonferroni).
    let significant = worst.p < LEVEL / outcome.series.len() as f64;
    let samples: usize = outcome.series.iter().map(|series| series.samples.len()).sum();
    Some(
        CheckResult::passed("gaps", CheckWeight::Doubt, text)
            .unless(!significant || worst.distance <= DISTANCE_MAX, &remedy(outcome))
            .figures(&[
                ("a_squared", worst.a_squared),
                ("p", worst.p),
                ("distance_share", worst.distance),
                ("limit_share", DISTANCE_MAX),
                ("samples", samples as f64),
            ]),
    )
}

fn fit(series: &Series, mean_ns: f64) -> Option<ExponentialFit> {
    // The clock's unit is a nanosecond; half of one keeps the logarithm from a gap of zero.
    let gaps: Vec<f64> = gaps_of(series).map(|gap_ns| gap_ns + 0.5).collect();
    exponential_fit(&gaps, mean_ns)
}

/// The first request of a thread has none before it.
fn gaps_of(series: &Series) -> impl Iterator<Item = f64> {
    series.samples.iter().skip(1).map(|sample| sample.gap_ns as f64)
}

fn remedy(outcome: &Outcome) -> String {
    let dropped = outcome.dropped.count();
    if dropped > 0 {
        let why = Shares::of_unsent(outcome).cause().explained(outcome);
        return format!("{dropped} requests were dropped, and are missing between the others: {why}");
    }
    let noun = connections(outcome);
    let what = "left in bursts, which the server sees as another load";
    match Shares::of_times(&outcome.overdue).cause() {
        Shortage::Answers => format!(
            "requests waited for {noun} on which others waited for answers and {what}; more {noun} (--connections), or \
             a lower rate"
        ),
        Shortage::Connections => format!("requests waited for {noun} to be made and {what}"),
        Shortage::Generator => {
            format!("requests {what}; more threads and CPUs, CPUs of their own (--cpus) or a lower rate")
        }
    }
}

#[cfg(test)]
mod tests {
    use stats::Random;

    use super::super::made::{RATE_PER_S, THREADS, exponential, good};
    use super::*;
    use crate::{Dropped, Overdue};

    const CONSTANT: Schedule = Schedule::Constant { rate_per_s: RATE_PER_S };
    const POISSON: Schedule = Schedule::Poisson { rate_per_s: RATE_PER_S, seed: 1 };
    const PERIOD_NS: u64 = THREADS as u64 * 1_000_000_000 / RATE_PER_S as u64;

    /// A good run with other gaps; those of one thread, if `all` is false.
    fn with_gaps(all: bool, mut gap_ns: impl FnMut(usize) -> u64) -> Outcome {
        let mut outcome = good();
        let threads = if all { THREADS } else { 1 };
        for series in &mut outcome.series[..threads] {
            let later = series.samples.iter_mut().enumerate().skip(1);
            later.for_each(|(index, sample)| sample.gap_ns = gap_ns(index));
        }
        outcome
    }

    fn random_gaps(all: bool, mut change: impl FnMut(f64) -> f64) -> Outcome {
        let mut random = Random::from_seed(21);
        with_gaps(all, |_| change(exponential(&mut random) * PERIOD_NS as f64) as u64)
    }

    #[test]
    fn constant_gaps_keep_to_their_period() {
        let late_by = |share: u64, off_ns: u64| {
            let odd = move |index: usize| (index as u64).is_multiple_of(share);
            with_gaps(true, |index| if odd(index) { PERIOD_NS + off_ns } else { PERIOD_NS })
        };
        assert_eq!(gaps(&late_by(50, 9 * PERIOD_NS / 20), &CONSTANT).passed, Some(true));
        assert_eq!(gaps(&late_by(50, 11 * PERIOD_NS / 20), &CONSTANT).passed, Some(false));
        assert_eq!(gaps(&late_by(150, 9 * PERIOD_NS), &CONSTANT).passed, Some(true));
    }

    #[test]
    fn a_millisecond_timer_is_found_out() {
        // What a generator does that wakes up once in ten periods and sends all that is due.
        let bursts = with_gaps(true, |index| if index % 10 == 0 { 10 * PERIOD_NS } else { 3_000 });
        let check = gaps(&bursts, &CONSTANT);
        assert!(check.passed == Some(false) && check.text.contains("in bursts"), "{check:?}");
        assert!(check.text.contains("more threads and CPUs"), "{check:?}");
        let overdue = Overdue { total_ns: 1_000, answers_ns: 900, connections_ns: 0 };
        let check = gaps(&Outcome { overdue, ..bursts.clone() }, &CONSTANT);
        assert!(check.text.contains("waited for answers") && !check.text.contains("CPU"), "{check:?}");
        let overdue = Overdue { total_ns: 1_000, answers_ns: 0, connections_ns: 900 };
        let check = gaps(&Outcome { overdue, ..bursts.clone() }, &CONSTANT);
        assert!(check.text.contains("connections to be made") && !check.text.contains("CPU"), "{check:?}");
        let dropped = Dropped { answers: 500, ..Dropped::default() };
        let check = gaps(&Outcome { dropped, sent_in_schedule: bursts.intended - 500, ..bursts }, &CONSTANT);
        assert!(
            check.text.contains("500 requests were dropped") && !check.text.contains("burst"),
            "{check:?}"
        );
        assert!(!check.text.contains("CPU"), "{check:?}");
    }

    #[test]
    fn random_gaps_are_exponential() {
        assert_eq!(gaps(&random_gaps(true, |gap_ns| gap_ns), &POISSON).passed, Some(true));
        // A send takes 3 µs, which changes one gap in a thousand here.
        assert_eq!(gaps(&random_gaps(true, |gap_ns| gap_ns.max(3_000.0)), &POISSON).passed, Some(true));
        let constant = with_gaps(true, |_| PERIOD_NS);
        assert_eq!(gaps(&constant, &POISSON).passed, Some(false));
        assert_eq!(gaps(&random_gaps(true, |gap_ns| gap_ns), &CONSTANT).passed, Some(false));
    }

    #[test]
    fn one_bad_thread_is_enough() {
        // Half of the gaps of one thread are closed up, and the others are twice as long.
        let mut turn = false;
        let bad = random_gaps(false, |gap_ns| {
            turn = !turn;
            if turn { 3_000.0 } else { 2.0 * gap_ns }
        });
        let mut both = random_gaps(true, |gap_ns| gap_ns);
        both.series[0] = bad.series[0].clone();
        let check = gaps(&both, &POISSON);
        assert_eq!(check.passed, Some(false), "{check:?}");
        let p = check.figures.iter().find(|(name, _)| *name == "p").unwrap().1;
        assert!(p < 1e-4, "{p}");
    }

    #[test]
    fn what_cannot_be_judged() {
        assert_eq!(gaps(&good(), &Schedule::Saturate).passed, None);
        let mut few = good();
        few.series.iter_mut().for_each(|series| series.samples.truncate(4));
        assert_eq!(gaps(&few, &CONSTANT).passed, None);
        assert_eq!(gaps(&few, &POISSON).passed, None);
    }
}
