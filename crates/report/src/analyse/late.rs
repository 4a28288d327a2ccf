//! Late answers by their causes, at percentiles.
//!
//! A percentile is a place in the order of answers, so what it is made of is shown by the answers around that place,
//! and not by all beyond it, of which the longest would hide the others. The answers beyond p99 are cut into steps,
//! each half as many as the step before it; a percentile has the shares of the step that it lies in. Within a step, a
//! cause's share is its answers' excess over the median, divided by the excess of all answers of the step.

use record::{Cause, Entrant, Histogram, Late, Load};
use stats::student_t_quantile;

use crate::late::{CauseShare, LateAnswers, LateLoad, LatePercentile, LateStep};
use crate::quantities::Ratio;

/// The quantile from which on an answer counts as late.
const FROM: f64 = 0.99;
/// Percentiles of which the shares are said.
const QUANTILES: [f64; 3] = [0.99, 0.999, 0.9999];
/// A percentile is shown if at least so many answers lie beyond it.
const BEYOND_MIN: f64 = 10.0;
/// The last step has at least so many answers, and all that are left.
const STEP_MIN: f64 = 5.0;
/// Linux's minimum retransmission time-out, less what a clock tick may round off.
const RTO_MIN_NS: u64 = 190_000_000;

/// The loads at which late answers were looked at, in the order of the record's loads.
pub(crate) fn late(late: &[Late], entrants: &[Entrant], loads: &[Load]) -> Vec<LateLoad> {
    let at = |(index, load): (usize, &Load)| {
        let mut found: Vec<&Late> = late.iter().filter(|late| late.load == index).collect();
        found.sort_by_key(|late| late.entrant);
        (!found.is_empty()).then(|| LateLoad {
            body_bytes: load.body_bytes,
            requested_rps: load.rate_per_s,
            of_capacity: load.of_capacity,
            candidates: found.iter().map(|late| answers(late, &entrants[late.entrant].name)).collect(),
        })
    };
    loads.iter().enumerate().filter_map(at).collect()
}

fn answers(late: &Late, name: &str) -> LateAnswers {
    let answers = late.watched.count();
    let median_ns = value_at(&late.watched, 0.5);
    let steps = steps(late, answers, median_ns);
    let long = |wanted: &dyn Fn(Cause) -> bool| -> u64 {
        let of = late.causes.iter().filter(|(cause, _)| wanted(**cause)).flat_map(|(_, of)| of.bins());
        of.filter(|(ns, _)| *ns >= RTO_MIN_NS).map(|(_, count)| count).sum()
    };
    LateAnswers {
        name: name.to_owned(),
        answers,
        median_ns,
        cost: cost(&late.medians_ns),
        percentiles: percentiles(late, answers, &steps),
        beyond_190_ms: long(&|_| true),
        time_outs: long(&|cause| matches!(cause, Cause::TimeOut | Cause::Probe)),
        steps,
        retransmitted: late.retransmitted,
        drops: late.drops.clone(),
        lost_events: late.lost_events,
        lost_answers: late.lost_answers,
        missing: late.missing.clone(),
    }
}

fn percentiles(late: &Late, answers: u64, steps: &[LateStep]) -> Vec<LatePercentile> {
    let enough = |quantile: &f64| answers as f64 * (1.0 - quantile) >= BEYOND_MIN - 1e-6;
    let percentile = |quantile: f64| {
        let step = steps.iter().rev().find(|step| step.from <= quantile + 1e-12)?;
        Some(LatePercentile { quantile, ns: value_at(&late.watched, quantile), shares: step.shares.clone() })
    };
    QUANTILES.into_iter().filter(enough).filter_map(percentile).collect()
}

fn steps(late: &Late, answers: u64, median_ns: u64) -> Vec<LateStep> {
    // The longest first: then a place in the order is a number of answers beyond it.
    let mut all: Vec<(u64, Cause, u64)> = late
        .causes
        .iter()
        .flat_map(|(cause, of)| of.bins().iter().map(|(ns, count)| (*ns, *cause, *count)))
        .collect();
    all.sort_by_key(|(ns, cause, _)| (std::cmp::Reverse(*ns), *cause));
    let beyond = |step: i32| answers as f64 * (1.0 - FROM) / 2_f64.powi(step);
    let count = (0..).take_while(|step| *step == 0 || beyond(*step) >= STEP_MIN).count() as i32;
    let of = |step: i32| {
        let first = if step + 1 == count { 0.0 } else { beyond(step + 1) };
        let members = between(&all, first, beyond(step));
        let answers: u64 = members.iter().map(|(_, _, count)| count).sum();
        let to = if step + 1 == count { 1.0 } else { 1.0 - (1.0 - FROM) / 2_f64.powi(step + 1) };
        (answers > 0).then(|| LateStep {
            from: 1.0 - (1.0 - FROM) / 2_f64.powi(step),
            to,
            answers,
            ns: middle(&members, answers),
            shares: shares(&members, median_ns),
        })
    };
    (0..count).filter_map(of).collect()
}

/// The answers with more than `first` and at most `last` answers beyond or beside them, of a list from the longest on.
fn between(all: &[(u64, Cause, u64)], first: f64, last: f64) -> Vec<(u64, Cause, u64)> {
    let (first, last) = (first.round() as u64, last.round() as u64);
    let mut before = 0;
    let mut members = Vec::new();
    for (ns, cause, count) in all {
        let (from, until) = (before, before + count);
        before = until;
        let inside = until.min(last).saturating_sub(from.max(first));
        if inside > 0 {
            members.push((*ns, *cause, inside));
        }
    }
    members
}

/// The median of a list from the longest on.
fn middle(members: &[(u64, Cause, u64)], answers: u64) -> u64 {
    let mut before = 0;
    let found = members.iter().find(|(_, _, count)| {
        before += count;
        before * 2 >= answers
    });
    found.map_or(0, |(ns, _, _)| *ns)
}

fn shares(members: &[(u64, Cause, u64)], median_ns: u64) -> Vec<CauseShare> {
    let excess = |ns: u64, count: u64| ns.saturating_sub(median_ns) as f64 * count as f64;
    let all: f64 = members.iter().map(|(ns, _, count)| excess(*ns, *count)).sum();
    let of = |cause: &Cause| {
        let own = || members.iter().filter(|(_, other, _)| other == cause);
        let answers: u64 = own().map(|(_, _, count)| count).sum();
        let part: f64 = own().map(|(ns, _, count)| excess(*ns, *count)).sum();
        (answers > 0 && all > 0.0).then(|| CauseShare { cause: *cause, share: part / all, answers })
    };
    Cause::ALL.iter().filter_map(of).collect()
}

/// The ratio of medians with and without the programs, from pairs that lie beside each other, with its 95 % interval by
/// Student's t over the pairs.
fn cost(medians_ns: &[(u64, u64)]) -> Option<Ratio> {
    let pairs = medians_ns.iter().filter(|(without, with)| *without > 0 && *with > 0);
    let logs: Vec<f64> = pairs.map(|(without, with)| (*with as f64 / *without as f64).ln()).collect();
    let n = logs.len();
    if n < 2 {
        return None;
    }
    let mean = logs.iter().sum::<f64>() / n as f64;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
    let half = student_t_quantile(n as u32 - 1, 0.05) * (variance / n as f64).sqrt();
    Some(Ratio { value: mean.exp(), low: (mean - half).exp(), high: (mean + half).exp() })
}

/// The smallest recorded value with at least the quantile's share of values at or below it; 0 of none.
fn value_at(histogram: &Histogram, quantile: f64) -> u64 {
    let wanted = (histogram.count() as f64 * quantile).ceil().max(1.0) as u64;
    let mut before = 0;
    let found = histogram.bins().iter().find(|(_, count)| {
        before += count;
        before >= wanted
    });
    found.map_or(0, |(ns, _)| *ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: &[(u64, u64)]) -> Histogram {
        let mut hdr = Histogram::empty_hdr();
        values.iter().for_each(|(ns, count)| hdr.record_n(*ns, *count).unwrap());
        Histogram::from(&hdr)
    }

    /// 10,000 answers: p99 and beyond softirqs of 1 ms, of which the longest 20 are time-outs of 200 ms.
    fn made() -> Late {
        let watched = histogram(&[(100_000, 9_900), (1_000_000, 80), (200_000_000, 20)]);
        let causes = [
            (Cause::Softirq, histogram(&[(1_000_000, 80)])),
            (Cause::TimeOut, histogram(&[(200_000_000, 20)])),
        ];
        Late {
            entrant: 0,
            load: 0,
            unwatched: histogram(&[(100_000, 10_000)]),
            watched,
            medians_ns: vec![(100, 102), (100, 104), (100, 103)],
            causes: causes.into_iter().collect(),
            retransmitted: record::Retransmitted::default(),
            drops: std::collections::BTreeMap::new(),
            lost_events: 0,
            lost_answers: 0,
            missing: vec![],
        }
    }

    #[test]
    fn a_percentile_is_made_of_the_answers_around_it_and_not_of_the_longest() {
        let found = answers(&made(), "host");
        let causes = |at: usize| -> Vec<(Cause, u64)> {
            found.percentiles[at].shares.iter().map(|share| (share.cause, share.answers)).collect()
        };
        assert_eq!(found.percentiles.len(), 2, "one answer lies beyond p99.99");
        assert_eq!(causes(0), [(Cause::Softirq, 50)]);
        assert_eq!(causes(1), [(Cause::TimeOut, 7)], "from p99.875 to p99.9375");
        assert_eq!((found.beyond_190_ms, found.time_outs), (20, 20));
    }

    #[test]
    fn steps_hold_every_late_answer_once() {
        let found = answers(&made(), "host");
        assert_eq!(found.steps.iter().map(|step| step.answers).sum::<u64>(), 100);
        assert!(found.steps.windows(2).all(|pair| (pair[0].to - pair[1].from).abs() < 1e-12));
        assert!((found.steps.last().unwrap().to - 1.0).abs() < 1e-12);
        for step in &found.steps {
            let sum: f64 = step.shares.iter().map(|share| share.share).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{step:?}");
        }
    }

    #[test]
    fn the_cost_has_an_interval() {
        let cost = answers(&made(), "host").cost.unwrap();
        assert!(
            cost.low < cost.value && cost.value < cost.high && (cost.value - 1.03).abs() < 0.001,
            "{cost:?}"
        );
        assert_eq!(super::cost(&[(100, 101)]), None);
    }

    #[test]
    fn without_answers_there_is_nothing_to_say() {
        let none = Late { watched: histogram(&[]), causes: Default::default(), medians_ns: vec![], ..made() };
        let found = answers(&none, "host");
        assert!(found.percentiles.is_empty() && found.steps.is_empty() && found.cost.is_none());
    }
}
