//! The self-test: whether this generator's figures are true on this machine.
//!
//! Our own responder does something whose effect on latency follows by arithmetic, and the generator must measure
//! exactly that. An error common to both would not show in a comparison of measurements, so the truths are arithmetic.

mod bench;
mod truth;

use std::time::Duration;

use crate::serve::{Delay, Faults, Freeze, Mixture, ServeError};
use crate::{LoadError, Outcome, Run, Schedule};

use bench::Bench;

/// One figure that was put to the proof.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Proof {
    /// What was done, the same for figures of one run.
    pub scene: &'static str,
    /// The name of the figure.
    pub figure: String,
    /// What it has to be.
    pub truth: f64,
    pub seen: f64,
    /// How far both may be apart.
    pub tolerance: f64,
    /// The unit of all three.
    pub unit: &'static str,
    /// Which attempt this was: on a machine that others use too, one attempt may meet them.
    pub attempt: u32,
}

impl Proof {
    /// True if what was seen is the truth.
    pub fn holds(&self) -> bool {
        (self.seen - self.truth).abs() <= self.tolerance
    }
}

/// Why a proof could not be tried.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// The generator cannot open its connections or run.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The responder cannot listen or run.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// A scene is tried this often before it counts as failed.
const ATTEMPTS: u32 = 3;

/// One thing that the responder does, and what follows.
struct Scene {
    name: &'static str,
    faults: fn() -> Faults,
    rate_per_s: f64,
    duration: Duration,
    figures: fn(&bench::SceneResult) -> Vec<Figure>,
}

/// A figure of a scene: name, truth, seen, tolerance, unit.
struct Figure(String, f64, f64, f64, &'static str);

/// Tries all scenes, one after the other, and hands over each one's figures when they are there. Takes about half a
/// minute, a CPU for the generator and one for the responder.
///
/// # Errors
/// If a scene cannot be tried; not if it fails.
pub fn prove(mut emit: impl FnMut(&[Proof])) -> Result<Vec<Proof>, ProofError> {
    let bench = Bench::new()?;
    let path_ns = bench.path_ns()?;
    let capacity_per_s = bench.capacity_per_s()?;
    let mut proofs = Vec::new();
    for scene in &SCENES {
        let figures = try_scene(&bench, scene, path_ns, capacity_per_s)?;
        emit(&figures);
        proofs.extend(figures);
    }
    Ok(proofs)
}

fn try_scene(
    bench: &Bench,
    scene: &Scene,
    path_ns: f64,
    capacity_per_s: f64,
) -> Result<Vec<Proof>, ProofError> {
    let mut attempt = 1;
    loop {
        let schedule = Schedule::Constant { rate_per_s: scene.rate_per_s };
        let (outcome, served) = bench.run((scene.faults)(), &Run::new(schedule, scene.duration))?;
        let seen =
            bench::SceneResult { outcome, served, rate_per_s: scene.rate_per_s, path_ns, capacity_per_s };
        let proof = |Figure(figure, truth, seen, tolerance, unit)| Proof {
            scene: scene.name,
            figure,
            truth,
            seen,
            tolerance,
            unit,
            attempt,
        };
        let proofs: Vec<Proof> = (scene.figures)(&seen).into_iter().map(proof).collect();
        if proofs.iter().all(Proof::holds) || attempt == ATTEMPTS {
            return Ok(proofs);
        }
        attempt += 1;
    }
}

const SCENES: [Scene; 5] = [
    Scene {
        name: "a server that answers at once, 10 000/s",
        faults: Faults::default,
        rate_per_s: 10_000.0,
        duration: Duration::from_secs(2),
        figures: |seen| {
            let due = 10_000.0 * 2.0;
            vec![
                count("requests sent in time", due, seen.outcome.sent_in_schedule),
                count("requests answered", due, seen.outcome.answered),
            ]
        },
    },
    Scene {
        name: "a server that takes 1 ms, 2000/s",
        faults: || Faults { delay: Some(Delay::Fixed(Duration::from_millis(1))), ..Faults::default() },
        rate_per_s: 2000.0,
        duration: Duration::from_secs(2),
        figures: |seen| {
            // A histogram's bucket at 1 ms is half a microsecond wide.
            let early = seen.outcome.response.count_between(0, 999_000);
            vec![count("answers before that", 0.0, early), near("p50", 0.5, 1e6, seen)]
        },
    },
    Scene {
        name: "98 % of answers after 1 ms, 2 % after 20 ms, 2000/s",
        faults: two_delays,
        rate_per_s: 2000.0,
        duration: Duration::from_secs(5),
        figures: |seen| vec![near("p50", 0.5, 1e6, seen), near("p99", 0.99, 20e6, seen)],
    },
    Scene {
        name: "a freeze of 100 ms every 2 s, 10 000/s",
        faults: || Faults { freeze: Some(FREEZE), ..Faults::default() },
        rate_per_s: 10_000.0,
        duration: Duration::from_secs(6),
        figures: |seen| {
            let calm = near("p90", 0.9, 0.0, seen);
            // Nearer to the 95 % that meet no freeze, one request in a thousand that something else delays moves a
            // percentile by 2 ms.
            let frozen = [0.98, 0.99, 0.995, 0.999].map(|quantile| frozen(quantile, seen));
            [calm].into_iter().chain(frozen).collect()
        },
    },
    Scene {
        name: "5 % errors and 1 % of connections cut, 2000/s",
        faults: || Faults { errors: 0.05, cuts: 0.01, seed: 1, ..Faults::default() },
        rate_per_s: 2000.0,
        duration: Duration::from_secs(2),
        figures: |seen| {
            let injected = seen.served.injected;
            vec![
                count("unexpected answers", injected.errors as f64, seen.outcome.unexpected.count()),
                count("connections broken", injected.cuts as f64, seen.outcome.faults.count()),
                count("requests missed", injected.cuts as f64, seen.outcome.missed.count()),
            ]
        },
    },
];

const FREEZE: Freeze = Freeze { length: Duration::from_millis(100), period: Duration::from_secs(2) };

fn two_delays() -> Faults {
    let parts = vec![(0.98, Duration::from_millis(1)), (0.02, Duration::from_millis(20))];
    let mixture = Mixture::new(parts).expect("the shares sum to 1");
    Faults { delay: Some(Delay::Mixture(mixture)), seed: 1, ..Faults::default() }
}

/// A figure that must match exactly.
fn count(figure: &str, truth: f64, seen: u64) -> Figure {
    Figure(figure.to_owned(), truth, seen as f64, 0.0, "")
}

/// A delay that the server makes, and the way to it, which was measured without one.
fn near(figure: &str, quantile: f64, delay_ns: f64, seen: &bench::SceneResult) -> Figure {
    let truth_ms = (delay_ns + seen.path_ns) / 1e6;
    Figure(figure.to_owned(), truth_ms, seen.response_ms(quantile), 0.25, "ms")
}

fn frozen(quantile: f64, seen: &bench::SceneResult) -> Figure {
    let load = seen.rate_per_s / seen.capacity_per_s;
    let truth_ms = truth::frozen_ns(FREEZE, load, quantile) / 1e6;
    let name = format!("p{}", (quantile * 1000.0).round() / 10.0);
    Figure(name, truth_ms, seen.response_ms(quantile), truth_ms * 0.03, "ms")
}

impl bench::SceneResult {
    fn response_ms(&self, quantile: f64) -> f64 {
        let outcome: &Outcome = &self.outcome;
        outcome.response.value_at_quantile(quantile) as f64 / 1e6
    }
}
