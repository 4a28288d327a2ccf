//! Compares all candidates with the reference, and the reference with itself.
//!
//! All candidates are resampled jointly: the n-th resample draws the same builds for each, so that an effect of a
//! build or a moment on all of them cancels in the ratio.

use record::Measure;
use stats::{Interval, Percentile, Random, Resamples, Spread};

use super::merged::{Cell, Cells};
use crate::summary::{Ratio, Ratios, Verdict};
use crate::{carried, figures};

/// What two candidates are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Statistic {
    P50,
    P90,
    P99,
    P99_9,
    P99_99,
    P99_999,
    /// Answers per second, or the volume carried.
    Throughput,
}

impl Statistic {
    /// In the order of their discriminants, by which they are found.
    const ALL: [Statistic; 7] = [
        Statistic::P50,
        Statistic::P90,
        Statistic::P99,
        Statistic::P99_9,
        Statistic::P99_99,
        Statistic::P99_999,
        Statistic::Throughput,
    ];

    /// What a verdict is taken from, the first that decides: p99, because tails are what users wait for, then p50,
    /// which resolves smaller differences. Where as many requests go as can, latency is the length of the queue that
    /// the client keeps, and throughput is the question.
    fn deciding(closed: bool) -> &'static [Statistic] {
        if closed { &[Statistic::Throughput] } else { &[Statistic::P99, Statistic::P50] }
    }

    fn percentile(self) -> Option<Percentile> {
        match self {
            Statistic::P50 => Some(Percentile::P50),
            Statistic::P90 => Some(Percentile::P90),
            Statistic::P99 => Some(Percentile::P99),
            Statistic::P99_9 => Some(Percentile::P99_9),
            Statistic::P99_99 => Some(Percentile::P99_99),
            Statistic::P99_999 => Some(Percentile::P99_999),
            Statistic::Throughput => None,
        }
    }

    fn label(self, measure: Measure) -> &'static str {
        self.percentile().map_or(carried::unit(measure), Percentile::label)
    }

    /// The verdict on a ratio above 1.
    fn verdict_above(self) -> (Verdict, Verdict) {
        match self {
            Statistic::Throughput => (Verdict::Better, Verdict::Worse),
            Statistic::P50
            | Statistic::P90
            | Statistic::P99
            | Statistic::P99_9
            | Statistic::P99_99
            | Statistic::P99_999 => (Verdict::Worse, Verdict::Better),
        }
    }
}

/// A verdict and the figures behind it.
#[derive(Debug, Clone, Default)]
pub(super) struct Judged {
    pub(super) verdict: Option<Verdict>,
    pub(super) reason: String,
    /// The verdicts of single statistics, as far as there are any.
    pub(super) by: Vec<(Statistic, Verdict)>,
}

impl Judged {
    /// The verdict of one statistic.
    pub(super) fn by(&self, statistic: Statistic) -> Option<Verdict> {
        self.by.iter().find(|(other, _)| *other == statistic).map(|(_, verdict)| *verdict)
    }
}

/// A statistic of a cell: of all its trials, and of each resample.
#[derive(Debug, Default)]
struct Samples {
    value: Option<f64>,
    resampled: Vec<Option<f64>>,
}

/// All comparisons of a race.
#[derive(Debug)]
pub(super) struct Comparisons {
    loads: usize,
    units: usize,
    measure: Measure,
    closed: Vec<bool>,
    /// Who broke. They raced on fewer builds than the reference, and what a build did to both cancels no more.
    broke: Vec<bool>,
    /// By candidate, load and statistic.
    samples: Vec<[Samples; 7]>,
    /// Ratios to the reference, likewise.
    spreads: Vec<[Option<Spread>; 7]>,
    /// Against the reference, by candidate and load.
    judged: Vec<Judged>,
}

impl Comparisons {
    pub(super) fn of(cells: &Cells<'_>, seed: u64) -> Comparisons {
        let resamples = Resamples::draw(cells.units, Resamples::COUNT, &mut Random::from_seed(seed));
        let pairs =
            || (0..cells.entrants).flat_map(|entrant| (0..cells.loads()).map(move |load| (entrant, load)));
        let samples = pairs()
            .map(|(entrant, load)| {
                Statistic::ALL.map(|statistic| Samples::of(cells.cell(entrant, load), statistic, &resamples))
            })
            .collect();
        let mut comparisons = Comparisons {
            loads: cells.loads(),
            units: cells.units,
            measure: cells.measure,
            closed: cells.closed.clone(),
            broke: cells.broke.clone(),
            samples,
            spreads: vec![],
            judged: vec![],
        };
        let against_reference = |(entrant, load)| {
            Statistic::ALL.map(|of| comparisons.spread_between(entrant, 0, load, of).filter(|_| entrant != 0))
        };
        comparisons.spreads = pairs().map(against_reference).collect();
        comparisons.judged = pairs().map(|(entrant, load)| comparisons.judge(entrant, load)).collect();
        comparisons
    }

    pub(super) fn judged(&self, entrant: usize, load: usize) -> &Judged {
        static NOBODY: Judged = Judged { verdict: None, reason: String::new(), by: vec![] };
        // A record without a control has no noise, and a load without candidates has none to judge.
        self.judged.get(entrant * self.loads + load).unwrap_or(&NOBODY)
    }

    /// What a statistic is called in this race.
    pub(super) fn label(&self, of: Statistic) -> &'static str {
        of.label(self.measure)
    }

    /// True where throughput is the question.
    pub(super) fn is_closed(&self, load: usize) -> bool {
        self.closed[load]
    }

    /// How many units the race has.
    pub(super) fn units(&self) -> usize {
        self.units
    }

    /// The ratio to the reference; `None` where it has no interval.
    pub(super) fn spread(&self, entrant: usize, load: usize, of: Statistic) -> Option<Spread> {
        self.spreads.get(entrant * self.loads + load).and_then(|spreads| spreads[of as usize])
    }

    /// The ratio of any two candidates.
    pub(super) fn spread_between(
        &self,
        entrant: usize,
        against: usize,
        load: usize,
        of: Statistic,
    ) -> Option<Spread> {
        let samples = |entrant: usize| {
            self.samples.get(entrant * self.loads + load).map(|samples| &samples[of as usize])
        };
        if self.broke[entrant] || self.broke[against] {
            return None;
        }
        let (above, below) = (samples(entrant)?, samples(against)?);
        let resampled =
            above.resampled.iter().zip(&below.resampled).map(|(above, below)| Some((*above)? / (*below)?));
        Spread::new(above.value? / below.value?, resampled, self.units)
    }

    /// A candidate's own figure with its 95 % interval, if it has one. A broken candidate has none, since it raced on
    /// fewer builds.
    pub(super) fn own(&self, entrant: usize, load: usize, of: Statistic) -> Option<(f64, Option<Interval>)> {
        let samples = &self.samples.get(entrant * self.loads + load)?[of as usize];
        let value = samples.value.filter(|value| value.is_finite())?;
        let spread = Spread::new(value, samples.resampled.iter().copied(), self.units);
        Some((value, spread.filter(|_| !self.broke[entrant]).map(|spread| spread.interval(0.05))))
    }

    /// The ratio to the reference with its 95 % interval.
    pub(super) fn ratio(&self, entrant: usize, load: usize, of: Statistic) -> Option<Ratio> {
        let interval = self.spread(entrant, load, of)?.interval(0.05);
        Some(Ratio { value: interval.value, low: interval.low, high: interval.high })
    }

    /// The ratios of all percentiles to the reference's; empty for the reference itself.
    pub(super) fn ratios(&self, entrant: usize, load: usize) -> Ratios {
        if entrant == 0 {
            return Ratios::default();
        }
        Ratios {
            p50: self.ratio(entrant, load, Statistic::P50),
            p90: self.ratio(entrant, load, Statistic::P90),
            p99: self.ratio(entrant, load, Statistic::P99),
            p99_9: self.ratio(entrant, load, Statistic::P99_9),
            p99_99: self.ratio(entrant, load, Statistic::P99_99),
            p99_999: self.ratio(entrant, load, Statistic::P99_999),
        }
    }

    /// The difference of a statistic, in the logarithm, that exceeds noise: half the interval of the reference against
    /// itself, or the difference between the two if that is larger.
    pub(super) fn floor(&self, load: usize, of: Statistic) -> Option<f64> {
        self.spread(1, load, of).as_ref().map(noise_floor)
    }

    /// How many tests a candidate undergoes; its intervals are adjusted for that (Bonferroni), so that of all verdicts
    /// on a candidate that does not differ, 95 % are right together.
    fn tests(&self, entrant: usize) -> usize {
        let tested = |load: usize| {
            let decisive = |of: &&Statistic| self.spread(entrant, load, **of).is_some();
            Statistic::deciding(self.closed[load]).iter().filter(decisive).count()
        };
        (0..self.loads).map(tested).sum()
    }

    fn judge(&self, entrant: usize, load: usize) -> Judged {
        if entrant == 0 {
            let reason = "the others are divided by it".to_owned();
            return Judged { verdict: Some(Verdict::Reference), reason, by: vec![] };
        }
        if self.broke[entrant] {
            let reason = "it broke, and raced in only some of the rounds".to_owned();
            return Judged { verdict: None, reason, by: vec![] };
        }
        let alpha = 0.05 / self.tests(entrant).max(1) as f64;
        let tests: Vec<Test> = Statistic::deciding(self.closed[load])
            .iter()
            .filter_map(|of| self.test(entrant, load, *of, alpha))
            .collect();
        conclude(&tests, self.units)
    }

    fn test(&self, entrant: usize, load: usize, of: Statistic, alpha: f64) -> Option<Test> {
        let interval = self.spread(entrant, load, of)?.interval(alpha);
        // The control is judged by its interval alone: against a floor computed from itself it could never differ.
        let floor = if entrant == 1 { 0.0 } else { self.floor(load, of)? };
        let (above, below) = of.verdict_above();
        let verdict = if interval.holds(1.0) || interval.value.ln().abs() <= floor {
            Verdict::Indistinguishable
        } else if interval.value > 1.0 {
            above
        } else {
            below
        };
        let ratio = Ratio { value: interval.value, low: interval.low, high: interval.high };
        let label = self.label(of);
        Some(Test { of, label, verdict, ratio, alpha, floor, excludes_one: !interval.holds(1.0) })
    }
}

/// A difference, in the logarithm, that is too small to matter even in a race without noise, as in counted time.
const NOTHING: f64 = 0.001;

/// The noise floor from the ratio of the control to the reference.
pub(super) fn noise_floor(control: &Spread) -> f64 {
    let interval = control.interval(0.05);
    interval.half_width_ln().max(interval.value.ln().abs()).max(NOTHING)
}

/// The test of one statistic.
struct Test {
    of: Statistic,
    label: &'static str,
    verdict: Verdict,
    ratio: Ratio,
    alpha: f64,
    floor: f64,
    excludes_one: bool,
}

impl Test {
    /// "p99 1.23 (1.10 to 1.37 at 98.8 %)".
    fn told(&self) -> String {
        let Ratio { value, low, high } = self.ratio;
        let level = figures::trimmed(100.0 * (1.0 - self.alpha), 1);
        format!("{} × {value:.3} ({low:.3} to {high:.3} at {level} %)", self.label)
    }
}

/// The first test that finds a difference decides; without one the candidate is indistinguishable.
fn conclude(tests: &[Test], units: usize) -> Judged {
    let by = tests.iter().map(|test| (test.of, test.verdict)).collect();
    let resolved = |test: &&Test| test.verdict != Verdict::Indistinguishable;
    let (verdict, reason) = match (tests, tests.iter().find(resolved)) {
        ([], _) if units < 2 => (None, "a single round gives no interval".to_owned()),
        ([], _) => (None, "too few samples, or no control for the noise".to_owned()),
        (_, Some(decisive)) => (Some(decisive.verdict), decided(decisive, tests)),
        (_, None) => (Some(Verdict::Indistinguishable), undecided(tests)),
    };
    Judged { verdict, reason, by }
}

fn decided(decisive: &Test, tests: &[Test]) -> String {
    let mut reason = format!("{} decides: {}", decisive.label, decisive.told());
    if decisive.floor > 0.0 {
        reason.push_str(&format!(", beyond the noise of ±{}", figures::percent(decisive.floor.exp_m1())));
    }
    for other in tests.iter().filter(|other| other.of != decisive.of) {
        let label = other.label;
        reason.push_str(&match other.verdict {
            Verdict::Indistinguishable => format!("; {label} is indistinguishable"),
            verdict if verdict == decisive.verdict => format!("; {label} agrees"),
            Verdict::Better => format!("; {label}, however, is better"),
            Verdict::Worse | Verdict::Reference => format!("; {label}, however, is worse"),
        });
    }
    reason
}

fn undecided(tests: &[Test]) -> String {
    let told = |test: &Test| match test.excludes_one {
        true => format!(
            "{} differs by less than the noise of ±{}",
            test.told(),
            figures::percent(test.floor.exp_m1())
        ),
        false => format!("{} may be 1", test.told()),
    };
    tests.iter().map(told).collect::<Vec<_>>().join("; ")
}

impl Samples {
    /// Of a cell; without a value where there are too few samples.
    fn of(cell: &Cell<'_>, statistic: Statistic, resamples: &Resamples) -> Samples {
        let all = vec![1; resamples.units()];
        let at = |weights: &[u64]| match statistic.percentile() {
            Some(percentile) => cell.columns.percentile(percentile, weights).map(|ns| ns as f64),
            None => throughput(cell, weights),
        };
        let enough =
            statistic.percentile().is_none_or(|percentile| percentile.is_valid(cell.columns.count(&all)));
        match at(&all).filter(|_| enough) {
            Some(value) => Samples { value: Some(value), resampled: resamples.iter().map(at).collect() },
            None => Samples::default(),
        }
    }
}

/// Answers per nanosecond of a resample.
fn throughput(cell: &Cell<'_>, weights: &[u64]) -> Option<f64> {
    let sum = |part: fn(&(u64, u64)) -> u64| -> u64 {
        cell.answered.iter().zip(weights).map(|(unit, weight)| part(unit) * weight).sum()
    };
    let duration_ns = sum(|unit| unit.1);
    (duration_ns > 0).then(|| sum(|unit| unit.0) as f64 / duration_ns as f64)
}
