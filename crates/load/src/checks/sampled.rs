//! Checks on the sampled response times as a process: whether it stayed the same, and how much the samples reveal
//! beyond each other.

use stats::{Percentile, effective_samples, serial_correlation, two_samples};

use super::phrases::time;
use super::{CheckResult, CheckWeight};
use crate::{Sample, Series};

/// The thinning factors that are tried; the first that passes is used, as in Lancet.
const STEPS: [usize; 10] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000];
/// With fewer the normal approximation of the rank correlation does not hold, and little would be found.
const SAMPLES_MIN: usize = 30;
/// The two-sided normal quantile of 1 %, for one test and for each of two.
const Z_MAX: [f64; 2] = [2.576, 2.807];
/// The level at which the halves of a run differ.
const LEVEL: f64 = 0.01;
/// The least difference that matters.
const IMPACT_MIN: f64 = 0.05;

const TOO_FEW: &str = "too few answers were sampled";

/// The sampled response times of all threads.
pub(super) struct Sampled {
    /// In the order of sending, so far as that is known.
    merged: Vec<f64>,
    /// One sample represents this many requests.
    every: u64,
    /// So few that they are independent, or if none are, the fewest that can be judged. `None`: there are too few.
    thinned: Option<Thinned>,
}

/// A series reduced to every `step`-th sample.
struct Thinned {
    step: usize,
    samples: Vec<f64>,
    /// The rank correlation of each with the next.
    rho: f64,
    /// Whether no correlation was found.
    independent: bool,
}

impl Sampled {
    pub(super) fn new(series: &[Series]) -> Sampled {
        // As many requests to a sample in one thread as in another, so that none counts for more.
        let every = series.iter().map(|series| series.every).max().unwrap_or(1).max(1);
        let thin = |series: &Series| -> Vec<f64> {
            let step = (every / series.every.max(1)) as usize;
            series.samples.iter().step_by(step).map(response_ns).collect()
        };
        let threads: Vec<Vec<f64>> = series.iter().map(thin).collect();
        let mut merged = merge(&threads);
        // Requests that all went unanswered are no samples of answers, however many there are.
        if merged.iter().all(|ns| ns.is_infinite()) {
            merged.clear();
        }
        let mut thinned = None;
        for step in STEPS {
            let Some(next) = Thinned::of(&merged, &threads, step) else { break };
            let done = next.independent;
            thinned = Some(next);
            if done {
                break;
            }
        }
        Sampled { merged, every, thinned }
    }

    /// How many independent samples the series is worth.
    pub(super) fn independent(&self) -> Option<u64> {
        let thinned = self.thinned.as_ref().filter(|thinned| thinned.independent)?;
        Some(effective_samples(thinned.samples.len() as u64, thinned.rho))
    }

    /// Whether a request's time predicts the next one's: Spearman's rank correlation at lag 1, at 1 %, with fewer and
    /// fewer samples until it vanishes. Thinning is no fault, since a queue has a memory; a correlation that never
    /// vanishes is.
    pub(super) fn independence(&self) -> CheckResult {
        let Some(thinned) = &self.thinned else {
            return CheckResult::unjudged("independence", CheckWeight::Doubt, TOO_FEW);
        };
        let requests = self.every * thinned.step as u64;
        let times = match requests {
            1 => "response times of requests one after the other".to_owned(),
            requests => format!("response times {requests} requests apart"),
        };
        let text = match self.independent() {
            Some(count) => format!("{times} are independent, the intervals rest on {count} samples"),
            None => format!("{times} still depend on each other (rank correlation {:.2})", thinned.rho),
        };
        CheckResult::passed("independence", CheckWeight::Doubt, text)
            .unless(
                thinned.independent,
                "the run is a few long events and not many samples, so no interval is given; run much longer, or \
                 find what changes so slowly",
            )
            .figures(&[
                ("apart_requests", requests as f64),
                ("rank_correlation", thinned.rho),
                ("sampled", self.merged.len() as f64),
                ("independent_samples", self.independent().unwrap_or(0) as f64),
            ])
    }

    /// Whether the second half of the run was like the first: by the test of Kolmogorov and Smirnov on independent
    /// samples, and only if median or p90 moved by a relevant amount. A run that rises steadily, or takes one step,
    /// has no independent samples; the test then uses the thinnest series.
    pub(super) fn stationarity(&self) -> CheckResult {
        let (first, second) = halves(&self.merged);
        let moved = [Percentile::P50, Percentile::P90]
            .into_iter()
            .filter(|percentile| percentile.is_valid(first.len() as u64))
            .map(|percentile| Moved::new(percentile, first, second))
            .filter(|moved| moved.first_ns.is_finite() || moved.second_ns.is_finite())
            .max_by(|a, b| a.share.total_cmp(&b.share));
        let test = self.thinned.as_ref().and_then(|thinned| {
            let (first, second) = halves(&thinned.samples);
            two_samples(first, second)
        });
        let Some((moved, test)) = moved.zip(test) else {
            return CheckResult::unjudged("stationarity", CheckWeight::Doubt, TOO_FEW);
        };
        let text = format!(
            "from the first half of the run to the second {} went from {} to {} (Kolmogorov-Smirnov p {:.3})",
            moved.percentile.label(),
            answered_after(moved.first_ns),
            answered_after(moved.second_ns),
            test.p
        );
        CheckResult::passed("stationarity", CheckWeight::Doubt, text)
            .unless(
                test.p >= LEVEL || moved.share <= IMPACT_MIN,
                "the percentiles mix two states; warm up longer (--warmup), run longer, or find what changed",
            )
            .figures(&[
                ("distance_share", test.distance),
                ("p", test.p),
                ("moved_share", moved.share),
                ("limit_share", IMPACT_MIN),
            ])
    }
}

impl Thinned {
    /// `None` if too few samples are left.
    fn of(merged: &[f64], threads: &[Vec<f64>], step: usize) -> Option<Thinned> {
        let samples: Vec<f64> = merged.iter().step_by(step).copied().collect();
        if samples.len() <= SAMPLES_MIN {
            return None;
        }
        // Samples that are all equal have no order that could be a pattern.
        let correlation = serial_correlation(&samples);
        let rho = correlation.map_or(0.0, |correlation| correlation.rho);
        let z = correlation.map_or(0.0, |correlation| correlation.z);
        // Not with the next sample, nor with the next of the same thread, which may be farther off: one thread without
        // a CPU is slow on its own.
        let independent = match threads.len() {
            1 => z.abs() <= Z_MAX[0],
            count => z.abs() <= Z_MAX[1] && z_of_threads(threads, step.div_ceil(count)).abs() <= Z_MAX[1],
        };
        Some(Thinned { step, samples, rho, independent })
    }
}

/// The correlation within each thread's own samples, all threads together: the sum of n independent normal numbers over
/// √n is normal again (Stouffer).
fn z_of_threads(threads: &[Vec<f64>], step: usize) -> f64 {
    let thinned = threads.iter().map(|samples| samples.iter().step_by(step).copied().collect::<Vec<f64>>());
    let z: Vec<f64> = thinned.filter_map(|samples| Some(serial_correlation(&samples)?.z)).collect();
    z.iter().sum::<f64>() / (z.len().max(1) as f64).sqrt()
}

/// How far a percentile moved from one half to the other.
struct Moved {
    percentile: Percentile,
    first_ns: f64,
    second_ns: f64,
    /// Of the lesser one.
    share: f64,
}

impl Moved {
    fn new(percentile: Percentile, first: &[f64], second: &[f64]) -> Moved {
        let value = |samples: &[f64]| {
            let mut sorted = samples.to_vec();
            sorted.sort_by(f64::total_cmp);
            sorted[percentile.rank(sorted.len() as u64) as usize - 1]
        };
        let (first_ns, second_ns) = (value(first), value(second));
        let (less, more) = (first_ns.min(second_ns), first_ns.max(second_ns));
        // If both halves are unanswered there, neither is known.
        let share = if less == more { 0.0 } else { more / less - 1.0 };
        Moved { percentile, first_ns, second_ns, share }
    }
}

/// One after the other by how far each thread had come; threads run side by side, but with random arrivals not in step.
fn merge(threads: &[Vec<f64>]) -> Vec<f64> {
    let mut placed: Vec<(f64, f64)> = Vec::with_capacity(threads.iter().map(Vec::len).sum());
    for samples in threads {
        let place = |index: usize| (index as f64 + 0.5) / samples.len() as f64;
        placed.extend(samples.iter().enumerate().map(|(index, sample)| (place(index), *sample)));
    }
    // Stable: at the same place the first thread stays the first.
    placed.sort_by(|a, b| a.0.total_cmp(&b.0));
    placed.into_iter().map(|(_, sample)| sample).collect()
}

fn halves(samples: &[f64]) -> (&[f64], &[f64]) {
    samples.split_at(samples.len() / 2)
}

fn answered_after(ns: f64) -> String {
    if ns.is_infinite() { "no answer".to_owned() } else { time(ns) }
}

/// What was not answered as expected stands above every answer.
fn response_ns(sample: &Sample) -> f64 {
    sample.response_ns.map_or(f64::INFINITY, |ns| ns as f64)
}

#[cfg(test)]
mod tests {
    use stats::Random;

    use super::super::made::{good, response_ns as some_ns};
    use super::*;

    /// The good run's series, with each response changed by a function of its thread, its index and its value.
    fn with_responses(mut change: impl FnMut(usize, usize, u64) -> Option<u64>) -> Sampled {
        let mut series = good().series;
        for (thread, series) in series.iter_mut().enumerate() {
            for (index, sample) in series.samples.iter_mut().enumerate() {
                sample.response_ns = sample.response_ns.and_then(|ns| change(thread, index, ns));
            }
        }
        Sampled::new(&series)
    }

    fn figure(check: &CheckResult, name: &str) -> f64 {
        check.figures.iter().find(|(found, _)| *found == name).unwrap_or_else(|| panic!("{check:?}")).1
    }

    #[test]
    fn independent_samples_are_all_worth_something() {
        let sampled = Sampled::new(&good().series);
        let independent = sampled.independent().unwrap();
        assert!((4_500..=5_000).contains(&independent), "{independent}");
        assert_eq!(figure(&sampled.independence(), "apart_requests"), 4.0);
        assert_eq!(sampled.stationarity().passed, Some(true));
    }

    #[test]
    fn a_queue_with_a_memory_is_thinned() {
        // A value for every ten samples of both threads.
        let mut random = Random::from_seed(31);
        let steps: Vec<u64> = (0..500).map(|_| some_ns(&mut random)).collect();
        let sampled = with_responses(|_, index, ns| Some(steps[index / 10] + ns / 1_000));
        let check = sampled.independence();
        assert_eq!(check.passed, Some(true), "{check:?}");
        assert!(figure(&check, "apart_requests") >= 80.0, "{check:?}");
        let independent = sampled.independent().unwrap();
        assert!((100..=260).contains(&independent), "{independent}");
    }

    #[test]
    fn one_thread_that_is_slow_for_a_while_is_seen_beside_another() {
        // Neighbours belong to different threads, so only the next sample of the same thread counts.
        let mut random = Random::from_seed(32);
        let steps: Vec<u64> = (0..500).map(|_| some_ns(&mut random)).collect();
        let sampled =
            with_responses(
                |thread, index, ns| {
                    if thread == 0 { Some(steps[index / 10] + ns / 1_000) } else { Some(ns) }
                },
            );
        assert!(figure(&sampled.independence(), "apart_requests") >= 20.0);
    }

    #[test]
    fn a_run_that_only_grows_has_no_independent_samples() {
        let sampled = with_responses(|_, index, _| Some(20_000 + index as u64 * 100));
        assert_eq!(sampled.independent(), None);
        assert_eq!(sampled.independence().passed, Some(false));
        assert_eq!(sampled.stationarity().passed, Some(false));
    }

    #[test]
    fn a_slower_second_half_is_reported() {
        let slower = |percent: u64| {
            with_responses(move |_, index, ns| {
                Some(if index >= 1_250 { ns * (100 + percent) / 100 } else { ns })
            })
        };
        // Significant, but of no consequence.
        let little = slower(2).stationarity();
        assert!(little.passed == Some(true) && figure(&little, "p") < 0.01, "{little:?}");
        let much = slower(40).stationarity();
        assert!(much.passed == Some(false) && much.text.contains("from the first half"), "{much:?}");
    }

    #[test]
    fn what_is_lost_late_in_the_run_counts_as_slow() {
        let sampled = with_responses(|_, index, ns| (index < 1_250 || index % 3 > 0).then_some(ns));
        let check = sampled.stationarity();
        assert!(check.passed == Some(false) && check.text.contains("to no answer"), "{check:?}");
    }

    #[test]
    fn without_answers_nothing_is_said_of_them() {
        let sampled = with_responses(|_, _, _| None);
        assert_eq!((sampled.independent(), sampled.independence().passed), (None, None));
        assert_eq!(sampled.stationarity().passed, None);
        // Where one in five is answered all the time, p90 is no answer in both halves, and so is p50.
        let few = with_responses(|_, index, ns| index.is_multiple_of(5).then_some(ns)).stationarity();
        assert!(few.passed.is_none() && !few.text.contains("from no answer to no answer"), "{few:?}");
    }

    #[test]
    fn false_alarms_are_rare() {
        let mut random = Random::from_seed(33);
        let tries = 400;
        let alarms = (0..tries).filter(|_| {
            let sample = |_| Sample { gap_ns: 0, response_ns: Some(some_ns(&mut random)) };
            let samples: Vec<Sample> = (0..300).map(sample).collect();
            let sampled = Sampled::new(&[Series { every: 1, samples }]);
            sampled.stationarity().passed == Some(false) || sampled.independence().passed == Some(false)
        });
        let share = alarms.count() as f64 / f64::from(tries);
        assert!(share < 0.03, "{share}");
    }

    #[test]
    fn threads_are_merged_by_how_far_they_came() {
        let threads = [vec![1.0, 3.0, 5.0, 7.0], vec![2.0, 6.0]];
        assert_eq!(merge(&threads), [1.0, 2.0, 3.0, 5.0, 6.0, 7.0]);
        // A thread with half as many requests to a sample is thinned first.
        let series = |every: u64, values: &[u64]| Series {
            every,
            samples: values.iter().map(|ns| Sample { gap_ns: 0, response_ns: Some(*ns) }).collect(),
        };
        let sampled = Sampled::new(&[series(1, &[1, 9, 3, 9]), series(2, &[2, 4])]);
        assert_eq!((sampled.merged, sampled.every), (vec![1.0, 2.0, 3.0, 4.0], 2));
    }
}
