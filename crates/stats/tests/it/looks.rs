//! Simulated races with looks while they run: how often are equals called different, and how often does the
//! interval at the end of a comparison contain the truth?
//!
//! A race has the reference, its control and contenders, builds that differ, rounds that drift, and latencies
//! with a heavy tail. A contender leaves when its interval is narrow or a difference was found. The race ends
//! when no contender is left or after its last build.

use stats::{
    Columns, Interval, Level, PRECISE_FROM, Percentile, Random, Resamples, Sparse, Spread, look_due,
};

use crate::machine::{Scatter, bins, latency_ns, normal};

/// A race that ends early.
#[derive(Clone, Copy)]
struct Race<'a> {
    scatter: Scatter,
    percentile: Percentile,
    /// The half-width, in the logarithm, at which a comparison is precise.
    target_ln: f64,
    builds_max: u32,
    /// The contenders' times ÷ the reference's.
    factors: &'a [f64],
}

const ROUNDS_A_BUILD: usize = 2;
const SAMPLES: usize = 80;

/// A contender that left, or the control at the end.
#[derive(Clone, Copy)]
struct Left {
    /// At the level at which it left, of 5 % in all.
    interval: Interval,
    precise: bool,
}

/// A candidate's bins, one list for each build.
type Builds = Vec<Vec<(u64, u64)>>;

fn columns(builds: &Builds) -> Columns {
    let sparse: Vec<Sparse<'_>> = builds.iter().map(|bins| Sparse { bins, beyond: 0 }).collect();
    Columns::new(&sparse)
}

impl Race<'_> {
    /// The control and the contenders in order, and how many builds there were.
    fn run(&self, random: &mut Random) -> (Vec<Left>, u32) {
        let entrants = self.factors.len() + 2;
        let mut builds: Vec<Builds> = vec![vec![]; entrants];
        let mut left: Vec<Option<Left>> = vec![None; entrants];
        let mut built = 0;
        while built < self.builds_max && left[2..].iter().any(Option::is_none) {
            let racing: Vec<bool> = left.iter().map(Option::is_none).collect();
            self.build(&mut builds, &racing, random);
            built += 1;
            let Some(look) = look_due(built) else { continue };
            let resamples = Resamples::draw(built as usize, 200, random);
            let reference = columns(&builds[0]);
            for entrant in 2..entrants {
                if left[entrant].is_none() {
                    let spread = self.spread(&columns(&builds[entrant]), &reference, &resamples);
                    left[entrant] = self.leaves(&spread, built, look);
                }
            }
        }
        let resamples = Resamples::draw(built as usize, 200, random);
        let reference = columns(&builds[0]);
        let last = |entrant: usize| {
            let spread = self.spread(&columns(&builds[entrant]), &reference, &resamples);
            Left { interval: spread.interval(0.05 * Level::Last.share()), precise: false }
        };
        let ended = (1..entrants).map(|entrant| left[entrant].unwrap_or_else(|| last(entrant)));
        (ended.collect(), built)
    }

    fn leaves(&self, spread: &Spread, built: u32, look: u32) -> Option<Left> {
        let last = spread.interval(0.05 * Level::Last.share());
        if built >= PRECISE_FROM && last.half_width_ln() <= self.target_ln {
            return Some(Left { interval: last, precise: true });
        }
        let early = spread.interval(0.05 * Level::Early { look }.share());
        (!early.holds(1.0)).then_some(Left { interval: early, precise: false })
    }

    /// Adds a build of every candidate that still races.
    fn build(&self, builds: &mut [Builds], racing: &[bool], random: &mut Random) {
        let settled: Vec<f64> = racing.iter().map(|_| self.scatter.builds * normal(random)).collect();
        let mut samples: Vec<Vec<u64>> = vec![vec![]; racing.len()];
        for _ in 0..ROUNDS_A_BUILD {
            let drift = self.scatter.drift * normal(random);
            for entrant in (0..racing.len()).filter(|entrant| racing[*entrant]) {
                let factor = entrant.checked_sub(2).map_or(1.0, |contender| self.factors[contender]);
                let shift = settled[entrant] + drift + self.scatter.trials * normal(random) + factor.ln();
                samples[entrant].extend((0..SAMPLES).map(|_| latency_ns(random, shift)));
            }
        }
        for entrant in (0..racing.len()).filter(|entrant| racing[*entrant]) {
            builds[entrant].push(bins(&samples[entrant]));
        }
    }

    fn spread(&self, candidate: &Columns, reference: &Columns, resamples: &Resamples) -> Spread {
        let ratio = |weights: &[u64]| {
            let below = reference.percentile(self.percentile, weights)?;
            Some(candidate.percentile(self.percentile, weights)? as f64 / below as f64)
        };
        let value = ratio(&resamples.all()).expect("there are samples");
        Spread::new(value, resamples.iter().map(ratio), resamples.units()).expect("there are several builds")
    }
}

/// The results of many races.
struct Outcome {
    /// The share of comparisons of equals whose interval excludes 1. The control's are separate.
    called: f64,
    control_called: f64,
    /// The share of comparisons whose interval contains the truth.
    covered: f64,
    /// The share that ended because they were precise.
    precise: f64,
    /// The mean number of builds in a race.
    builds: f64,
}

const RACES: u32 = 300;

fn simulate(race: Race<'_>) -> Outcome {
    let mut random = Random::from_seed(20_265);
    let (mut called, mut equals, mut control, mut covered, mut precise, mut builds) = (0, 0, 0, 0, 0, 0);
    for _ in 0..RACES {
        let (left, built) = race.run(&mut random);
        builds += built;
        control += u32::from(!left[0].interval.holds(1.0));
        for (one, factor) in left[1..].iter().zip(race.factors) {
            let differs = (factor - 1.0).abs() > 1e-9;
            equals += u32::from(!differs);
            called += u32::from(!differs && !one.interval.holds(1.0));
            covered += u32::from(one.interval.holds(*factor));
            precise += u32::from(one.precise);
        }
    }
    let compared = f64::from(RACES) * race.factors.len() as f64;
    let outcome = Outcome {
        called: f64::from(called) / f64::from(equals.max(1)),
        control_called: f64::from(control) / f64::from(RACES),
        covered: f64::from(covered) / compared,
        precise: f64::from(precise) / compared,
        builds: f64::from(builds) / f64::from(RACES),
    };
    eprintln!(
        "{:?} of {:?} to ±{}: equals called different {:.1} %, the control {:.1} %; {:.1} % held; {:.0} % precise; \
         {:.1} builds",
        race.percentile,
        race.factors,
        race.target_ln,
        outcome.called * 100.0,
        outcome.control_called * 100.0,
        outcome.covered * 100.0,
        outcome.precise * 100.0,
        outcome.builds
    );
    outcome
}

/// The allowance is two standard errors of a share of 5 % among 300 races, and among 900 comparisons.
#[track_caller]
fn check(outcome: &Outcome) {
    assert!(outcome.called <= 0.05 + 0.015, "{} of equals are called different", outcome.called);
    assert!(outcome.control_called <= 0.05 + 0.025, "{} of controls are", outcome.control_called);
    assert!(outcome.covered >= 0.94, "{} of the intervals hold the truth", outcome.covered);
}

const USUAL: Scatter = Scatter { builds: 0.03, drift: 0.10, trials: 0.02 };
const EQUALS: Race<'_> = Race {
    scatter: USUAL,
    percentile: Percentile::P50,
    target_ln: 0.03,
    builds_max: 40,
    factors: &[1.0, 1.0, 1.0],
};

#[test]
fn equals_are_seldom_called_different_however_often_a_race_is_looked_at() {
    let outcome = simulate(EQUALS);
    check(&outcome);
    assert!(outcome.precise > 0.9, "{} end because they are precise", outcome.precise);
    // This target is never reached, so there are looks at every comparison until the last build.
    let outcome = simulate(Race { target_ln: 0.001, builds_max: 33, ..EQUALS });
    check(&outcome);
    assert!(outcome.precise < 0.01, "{} end early", outcome.precise);
}

#[test]
fn a_tail_on_a_wild_machine() {
    let wild = Scatter { builds: 0.2, drift: 0.3, trials: 0.3 };
    check(&simulate(Race { scatter: wild, percentile: Percentile::P99, target_ln: 0.15, ..EQUALS }));
}

#[test]
fn what_differs_leaves_early_and_its_interval_holds_the_truth_all_the_same() {
    let outcome = simulate(Race { factors: &[1.0, 1.1, 1.4], ..EQUALS });
    check(&outcome);
    assert!(outcome.precise < 0.8, "{} ended because they were precise", outcome.precise);
}
