//! Simulated races whose slices are now and then several times as slow: does the interval of the middle half's ratio
//! hold the truth, and is it narrower than that of the mean?

use stats::{Interval, MiddleHalf, Random, Resamples, Spread};

use crate::machine::{Scatter, normal};

/// The relative scatter of slices that are not slow.
const SCATTER: Scatter = Scatter { builds: 0.05, drift: 0.05, trials: 0.12 };

/// Now and then a slice is this many times as slow.
#[derive(Clone, Copy)]
struct Slow {
    one_in: f64,
    factor: f64,
}

const BUILDS: usize = 12;
/// Slices of a build: the host's, which is visited more often, and a candidate's.
const SLICES: [usize; 2] = [6, 2];

/// The slices' p99 of a reference and of a candidate that is `factor` times as slow, each with its build.
fn race(factor: f64, rare: Slow, random: &mut Random) -> [Vec<(Option<u64>, usize)>; 2] {
    let mut slices = [vec![], vec![]];
    for build in 0..BUILDS {
        let drift = SCATTER.drift * normal(random);
        for (candidate, ln_factor) in [0.0, factor.ln()].into_iter().enumerate() {
            let settled = SCATTER.builds * normal(random) + drift + ln_factor;
            for _ in 0..SLICES[candidate] {
                let slow = if random.unit() < 1.0 / rare.one_in { rare.factor.ln() } else { 0.0 };
                let ln = settled + slow + SCATTER.trials * normal(random);
                slices[candidate].push((Some((60_000.0 * ln.exp()) as u64), build));
            }
        }
    }
    slices
}

fn mean(slices: &[(Option<u64>, usize)], weights: &[u64]) -> Option<f64> {
    let sum = |of: fn(u64) -> f64| -> f64 {
        slices
            .iter()
            .map(|(value, build)| of(value.expect("every slice has one")) * weights[*build] as f64)
            .sum()
    };
    Some(sum(|value| value as f64) / sum(|_| 1.0))
}

fn interval(ratio: impl Fn(&[u64]) -> Option<f64>, random: &mut Random, alpha: f64) -> Interval {
    let resamples = Resamples::draw(BUILDS, 400, random);
    let value = ratio(&resamples.all()).expect("there are slices");
    Spread::new(value, resamples.iter().map(ratio), BUILDS).expect("there are several builds").interval(alpha)
}

#[track_caller]
fn check(rare: Slow) {
    const RACES: u32 = 600;
    const FACTOR: f64 = 1.1;
    let mut random = Random::from_seed(2026);
    let (mut held, mut width, mut mean_width) = (0, 0.0, 0.0);
    for _ in 0..RACES {
        let [host, candidate] = race(FACTOR, rare, &mut random);
        let [below, above] = [&host, &candidate].map(|slices| MiddleHalf::of(slices.iter().copied()));
        let typical = |weights: &[u64]| Some(above.mean(weights)? / below.mean(weights)?);
        let plain = |weights: &[u64]| Some(mean(&candidate, weights)? / mean(&host, weights)?);
        let known = interval(typical, &mut random, 0.05);
        held += u32::from(known.holds(FACTOR));
        width += known.half_width_ln() / f64::from(RACES);
        mean_width += interval(plain, &mut random, 0.05).half_width_ln() / f64::from(RACES);
    }
    let share = f64::from(held) / f64::from(RACES);
    let [percent, mean_percent] = [width, mean_width].map(|ln| ln.exp_m1() * 100.0);
    eprintln!("{:.1} % held, ±{percent:.1} %, the mean ±{mean_percent:.1} %", share * 100.0);
    assert!((0.94..1.0).contains(&share), "the interval contains the truth in {share} of all races");
    assert!(width < 0.6 * mean_width, "±{width} against ±{mean_width}");
}

#[test]
fn a_few_slices_are_far_slower() {
    check(Slow { one_in: 25.0, factor: 4.0 });
}

/// As races found it on two virtual CPUs: of 100 slices, up to 13 have more than twice the median.
#[test]
fn many_slices_are_slower() {
    check(Slow { one_in: 10.0, factor: 3.0 });
}
