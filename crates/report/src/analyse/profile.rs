//! Turns sampled stacks into time per request, by parts.
//!
//! A part's samples are a Poisson count: their variance equals their number. (They are taken on a grid, which only
//! makes it smaller.) Intervals are normal, at a level adjusted for the number of parts (Bonferroni), so that one
//! candidate in twenty has a wrong one. They do not include other differences between slices. So a difference counts
//! only if it is greater than the reference's difference from itself.

use std::sync::LazyLock;

use record::{Entrant, Load, Measure, Profile};
use stats::student_t_quantile;

use crate::profile::{Cost, Difference, PartCost, PathPart, Profiled, ProfiledLoad};

/// With this many degrees of freedom Student's t is the normal distribution.
const DEGREES: u32 = 1_000;

/// The loads that were sampled, in the order of the record's loads.
pub(crate) fn profiles(
    profiles: &[Profile],
    entrants: &[Entrant],
    loads: &[Load],
    measure: Measure,
) -> Vec<ProfiledLoad> {
    let profiled = |(index, load): (usize, &Load)| {
        let mut found: Vec<&Profile> = profiles.iter().filter(|profile| profile.load == index).collect();
        found.sort_by_key(|profile| profile.entrant);
        let first = found.first()?;
        Some(ProfiledLoad {
            body_bytes: load.body_bytes,
            requested_rps: load.rate_per_s,
            of_capacity: load.of_capacity,
            measure,
            period_ns: first.period_ns,
            candidates: candidates(entrants, &found),
        })
    };
    loads.iter().enumerate().filter_map(profiled).collect()
}

fn candidates(entrants: &[Entrant], found: &[&Profile]) -> Vec<Profiled> {
    let counts: Vec<Counts> = found.iter().map(|profile| Counts::of(profile)).collect();
    let of = |entrant: usize| found.iter().zip(&counts).find(|(p, _)| p.entrant == entrant).map(|(_, c)| c);
    let (reference, control) = (of(0), of(1));
    let cost = |own: &Counts, is_reference: bool, samples: &dyn Fn(&Counts) -> u64| {
        let difference = reference.filter(|_| !is_reference).map(|reference| {
            let floor = control.map_or(0.0, |control| {
                (control.us(samples(control)) - reference.us(samples(reference))).abs()
            });
            difference((own, samples(own)), (reference, samples(reference)), floor)
        });
        Cost {
            us_per_request: own.us(samples(own)),
            half_width_us: own.half_width_us(samples(own)),
            difference,
        }
    };
    let candidate = |(profile, own): (&&Profile, &Counts)| {
        let is_reference = profile.entrant == 0;
        let part = |(index, part): (usize, &PathPart)| {
            let mut cost = cost(own, is_reference, &|counts| counts.parts[index]);
            // What other programs did meanwhile is no candidate's doing.
            cost.difference = cost.difference.filter(|_| *part != PathPart::Foreign);
            PartCost { part: *part, cost }
        };
        Profiled {
            name: entrants[profile.entrant].name.clone(),
            requests: profile.requests,
            samples: own.parts.iter().sum(),
            idle: profile.idle,
            lost: lost(profile, own),
            total: cost(own, is_reference, &Counts::total),
            parts: PathPart::ALL.iter().enumerate().map(part).collect(),
            stacks: profile.stacks.clone(),
        }
    };
    found.iter().zip(&counts).map(candidate).collect()
}

/// A candidate's samples by parts.
struct Counts {
    parts: [u64; PathPart::ALL.len()],
    /// What a sample stands for.
    us_per_sample: f64,
}

impl Counts {
    fn of(profile: &Profile) -> Counts {
        let mut parts = [0; PathPart::ALL.len()];
        for (stack, samples) in &profile.stacks {
            let part = PathPart::of(stack);
            let index =
                PathPart::ALL.iter().position(|other| *other == part).expect("all parts are in the list");
            parts[index] += samples;
        }
        // A candidate without answers has no time per request; assuming one answer keeps the figures finite.
        Counts { parts, us_per_sample: profile.period_ns as f64 / 1e3 / profile.requests.max(1) as f64 }
    }

    /// All but other programs.
    fn total(&self) -> u64 {
        let parts = PathPart::ALL.iter().zip(self.parts);
        parts.filter(|(part, _)| **part != PathPart::Foreign).map(|(_, samples)| samples).sum()
    }

    fn us(&self, samples: u64) -> f64 {
        samples as f64 * self.us_per_sample
    }

    fn half_width_us(&self, samples: u64) -> f64 {
        deviates() * self.variance(samples).sqrt()
    }

    /// The variance of the time that the samples represent. Zero samples count as one.
    fn variance(&self, samples: u64) -> f64 {
        samples.max(1) as f64 * self.us_per_sample.powi(2)
    }
}

fn difference(own: (&Counts, u64), reference: (&Counts, u64), floor: f64) -> Difference {
    let us = own.0.us(own.1) - reference.0.us(reference.1);
    let half_width_us = deviates() * (own.0.variance(own.1) + reference.0.variance(reference.1)).sqrt();
    Difference { us, half_width_us, distinguishable: us.abs() > half_width_us.max(floor) }
}

/// How many standard deviations an interval reaches, where all parts and their sum are tested together.
fn deviates() -> f64 {
    static DEVIATES: LazyLock<f64> =
        LazyLock::new(|| student_t_quantile(DEGREES, 0.05 / (PathPart::ALL.len() + 1) as f64));
    *DEVIATES
}

/// Samples that found no room, or that are missing from as many as the time should have given. The kernel skips
/// some to stay within `kernel.perf_cpu_time_max_percent`.
fn lost(profile: &Profile, own: &Counts) -> u64 {
    let due = profile.duration_ns.saturating_mul(profile.cpus.into()) / profile.period_ns.max(1);
    let there = own.parts.iter().sum::<u64>() + profile.idle;
    profile.lost.max(due.saturating_sub(there))
}
