//! A run that was never run: what the tests of the checks change one thing of.

use std::time::Duration;

use stats::Random;

use crate::{Outcome, Protocol, Sample, ScheduleCost, Series, ThreadCost};

pub(super) const RATE_PER_S: f64 = 1_000.0;
pub(super) const THREADS: usize = 2;
const REQUESTS: u64 = 20_000;
const EVERY: u64 = 4;
const SECOND_NS: u64 = 1_000_000_000;

/// A run without a fault: constant gaps with little jitter, independent answers of 20 µs and more.
pub(super) fn good() -> Outcome {
    let mut random = Random::from_seed(20);
    let mut outcome = Outcome::new(Some(RATE_PER_S), Protocol::Http);
    outcome.duration = Duration::from_secs(20);
    outcome.ended_ns = 20 * SECOND_NS;
    outcome.started_ns = 0;
    outcome.intended = REQUESTS;
    outcome.sent = REQUESTS;
    outcome.sent_in_schedule = REQUESTS;
    outcome.answered = REQUESTS;
    outcome.answered_in_schedule = REQUESTS;
    for _ in 0..REQUESTS {
        let response_ns = response_ns(&mut random);
        outcome.response.saturating_record(response_ns);
        outcome.service.saturating_record(response_ns);
        outcome.lag.saturating_record(80);
        outcome.late.saturating_record(80);
    }
    let period_ns = THREADS as u64 * SECOND_NS / RATE_PER_S as u64;
    for _ in 0..THREADS {
        let samples = REQUESTS / THREADS as u64 / EVERY;
        let sample = |index: u64| Sample {
            gap_ns: if index == 0 { 0 } else { period_ns + random.below(100) - 50 },
            response_ns: Some(response_ns(&mut random)),
        };
        outcome.series.push(Series { every: EVERY, samples: (0..samples).map(sample).collect() });
        outcome.threads.push(ThreadCost {
            cpus: None,
            cpu_ns: 2 * SECOND_NS,
            spun_ns: 0,
            spun_alone_ns: 0,
            wall_ns: 20 * SECOND_NS,
            voluntary_switches: REQUESTS,
            involuntary_switches: 30,
            run_queue_ns: SECOND_NS / 50,
            in_schedule: ScheduleCost {
                wall_ns: 20 * SECOND_NS,
                cpu_ns: 2 * SECOND_NS,
                spun_ns: 0,
                run_queue_ns: SECOND_NS / 50,
            },
        });
    }
    outcome
}

pub(super) fn response_ns(random: &mut Random) -> u64 {
    20_000 + (exponential(random) * 5_000.0) as u64
}

/// Exponential with mean 1.
pub(super) fn exponential(random: &mut Random) -> f64 {
    -(1.0 - random.unit()).ln()
}
