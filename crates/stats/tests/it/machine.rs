//! A machine with known truth: builds that settle at values of their own, rounds that drift, latencies with a
//! tail.

use stats::Random;

/// How much the logarithm of latency scatters, as standard deviations.
#[derive(Clone, Copy)]
pub(crate) struct Scatter {
    /// From build to build, independent for each candidate.
    pub(crate) builds: f64,
    /// From round to round, the same for all candidates (the machine's drift).
    pub(crate) drift: f64,
    /// From trial to trial.
    pub(crate) trials: f64,
}

/// Normal with mean 0 and standard deviation 1 (Box and Muller).
pub(crate) fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.unit()).cos()
}

/// A latency in nanoseconds. One in fifty is much slower.
pub(crate) fn latency_ns(random: &mut Random, ln_shift: f64) -> u64 {
    let slow = if random.unit() < 0.02 { 1.5 } else { 0.0 };
    (50_000.0 * (ln_shift + slow + 0.25 * normal(random)).exp()) as u64
}

/// Bins half a per cent wide.
pub(crate) fn bins(samples: &[u64]) -> Vec<(u64, u64)> {
    let mut values: Vec<u64> =
        samples.iter().map(|ns| (((*ns as f64).ln() * 200.0).round() / 200.0).exp() as u64).collect();
    values.sort_unstable();
    values.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() as u64)).collect()
}
