//! Our figure for a metric that was published: of all trials of a candidate at a load, and of each resample.

use std::collections::BTreeMap;

use record::{CpuTime, Metric, Transfer, TrialRecord};
use stats::{Percentile, Resamples};

use super::quantiles;
use crate::figures::counted;
use verdict::Cell;

/// How a metric comes out of a cell.
enum Formula {
    Percentile(Percentile),
    /// A sum over the trials ÷ another sum over them, in the record's base units.
    Quotient(fn(&TrialRecord) -> (f64, f64)),
    /// The greatest response time, of which no resample knows more than the race.
    Max,
    /// The share of softirq on the CPU where it is greatest over all trials.
    Busiest,
    /// The same of trials that carried bytes; others do not hold it.
    Carried(fn(&TrialRecord, &Transfer) -> (f64, f64)),
}

/// The one place that knows which metrics can be computed.
fn formula(metric: Metric) -> Formula {
    match metric {
        Metric::P50 => Formula::Percentile(Percentile::P50),
        Metric::P90 => Formula::Percentile(Percentile::P90),
        Metric::P95 => Formula::Percentile(Percentile::P95),
        Metric::P99 => Formula::Percentile(Percentile::P99),
        Metric::P99_5 => Formula::Percentile(Percentile::P99_5),
        Metric::P99_9 => Formula::Percentile(Percentile::P99_9),
        Metric::P99_99 => Formula::Percentile(Percentile::P99_99),
        Metric::P99_999 => Formula::Percentile(Percentile::P99_999),
        Metric::Max => Formula::Max,
        Metric::Mean => Formula::Quotient(mean_time),
        Metric::Requests => {
            Formula::Quotient(|trial| (trial.answered_in_time as f64, trial.throughput_ns() as f64 / 1e9))
        }
        Metric::CpuSoftirq => Formula::Quotient(|trial| softirq(&trial.server_cpu)),
        Metric::CpuSoftirqMax => Formula::Busiest,
        Metric::Bandwidth => {
            Formula::Carried(|trial, carried| (carried.bytes as f64 * 8.0, trial.duration_ns as f64 / 1e9))
        }
        Metric::Packets => {
            Formula::Quotient(|trial| (trial.answered_in_time as f64, trial.duration_ns as f64 / 1e9))
        }
        Metric::Loss => Formula::Carried(|_, carried| {
            carried.packets.as_ref().map_or((0.0, 0.0), |packets| {
                (packets.sent.saturating_sub(packets.received) as f64, packets.sent as f64)
            })
        }),
    }
}

/// Nanoseconds in softirq, and in all modes with idle time and without stolen time.
fn softirq(cpu: &CpuTime) -> (f64, f64) {
    (cpu.softirq_ns as f64, cpu.all_ns() as f64)
}

/// The CPU of the server's node that spends most time in softirq. It is chosen once, from all trials: chosen for each
/// resample it would be whichever had bad luck.
fn busiest(cell: &Cell<'_>) -> Option<u16> {
    let mut spent = BTreeMap::<u16, u64>::new();
    for trial in &cell.trials {
        for (cpu, time) in &trial.server_by_cpu {
            *spent.entry(*cpu).or_default() += time.softirq_ns;
        }
    }
    spent.into_iter().max_by_key(|(_, softirq_ns)| *softirq_ns).map(|(cpu, _)| cpu)
}

/// The sum of the times of objects, or of response times, and how many there are.
fn mean_time(trial: &TrialRecord) -> (f64, f64) {
    // Only exact values are shown: a histogram has three digits.
    match trial.carried.as_ref().and_then(|carried| carried.objects_ns) {
        Some(sum) => (sum as f64, trial.answered as f64),
        None => response_time(trial),
    }
}

/// From the bins of the histogram.
fn response_time(trial: &TrialRecord) -> (f64, f64) {
    let bins = trial.counted().0.bins().iter();
    bins.fold((0.0, 0.0), |(sum, count), (ns, times)| (sum + (ns * times) as f64, count + *times as f64))
}

/// Our figure in the record's base unit, with its resamples.
pub(super) struct OurFigure {
    pub(super) value: f64,
    pub(super) resampled: Vec<Option<f64>>,
}

impl OurFigure {
    /// Of a cell; otherwise why there is none. Without resamples its precision is not known.
    pub(super) fn of(cell: &Cell<'_>, metric: Metric, resamples: &Resamples) -> Result<OurFigure, String> {
        if cell.trials.is_empty() {
            return Err("no trial counts".to_owned());
        }
        match formula(metric) {
            Formula::Percentile(percentile) => of_percentile(cell, percentile, resamples),
            Formula::Max => {
                let max = quantiles::counted(cell).max.ok_or("nothing was answered")?;
                Ok(OurFigure { value: max as f64, resampled: vec![] })
            }
            Formula::Quotient(_) if metric == Metric::Mean && cell.beyond > 0 => {
                Err(format!("{} without an answer have no mean", counted(cell.beyond, "request")))
            }
            Formula::Quotient(of) => of_quotient(cell, of, resamples),
            Formula::Busiest => {
                let cpu = busiest(cell).ok_or("this race did not record the time of each CPU")?;
                let none = CpuTime::default();
                of_quotient(cell, |trial| softirq(trial.server_by_cpu.get(&cpu).unwrap_or(&none)), resamples)
            }
            Formula::Carried(_) if cell.trials.iter().all(|trial| trial.carried.is_none()) => {
                Err(format!("this race measured no {}", metric.name()))
            }
            Formula::Carried(of) => {
                let of = |trial: &TrialRecord| {
                    trial.carried.as_ref().map_or((0.0, 0.0), |carried| of(trial, carried))
                };
                of_quotient(cell, of, resamples)
            }
        }
    }

    /// Why there is no interval, where there is none.
    pub(super) fn without_interval(metric: Metric, units: usize) -> String {
        match (metric, units) {
            (Metric::Max, _) => "a maximum depends on a single request, and has no interval".to_owned(),
            (_, 0 | 1) => "one round gives no interval".to_owned(),
            _ => "resamples without a value leave no interval".to_owned(),
        }
    }
}

fn of_percentile(
    cell: &Cell<'_>,
    percentile: Percentile,
    resamples: &Resamples,
) -> Result<OurFigure, String> {
    let at = |weights: &[u64]| cell.columns.percentile(percentile, weights).map(|ns| ns as f64);
    let all = resamples.all();
    let count = cell.columns.count(&all);
    if !percentile.is_valid(count) {
        let needed = percentile.samples_needed();
        return Err(format!("too few samples for {} ({count} of {needed})", percentile.label()));
    }
    let value =
        at(&all).ok_or_else(|| format!("{} falls among requests without an answer", percentile.label()))?;
    Ok(OurFigure { value, resampled: resamples.iter().map(at).collect() })
}

pub(super) fn of_quotient(
    cell: &Cell<'_>,
    of: impl Fn(&TrialRecord) -> (f64, f64),
    resamples: &Resamples,
) -> Result<OurFigure, String> {
    let mut by_unit = vec![(0.0, 0.0); resamples.all().len()];
    for (trial, unit) in cell.trials.iter().zip(&cell.unit_of) {
        let (above, below) = of(trial);
        by_unit[*unit].0 += above;
        by_unit[*unit].1 += below;
    }
    let at = |weights: &[u64]| {
        let weighed = by_unit.iter().zip(weights).map(|(unit, weight)| (unit, *weight as f64));
        let (above, below) = weighed
            .fold((0.0, 0.0), |sum, (unit, weight)| (sum.0 + unit.0 * weight, sum.1 + unit.1 * weight));
        (below > 0.0).then(|| above / below)
    };
    let value = at(&resamples.all()).ok_or("nothing was counted")?;
    Ok(OurFigure { value, resampled: resamples.iter().map(at).collect() })
}
