//! Rates that a candidate cannot carry: there its latency says how long a queue grew, and nothing about its path.
//!
//! Each slice is judged by itself, since each begins with an empty queue. What a slice lacks has grown into a queue if
//! requests that were intended late waited longest. A rate is past a candidate's capacity if that is so in **at least
//! half** of its slices.
//!
//! The limit is half because it decides what a median is. While queues grew in fewer slices than that, the candidate
//! carried the rate more often than not: the median of all requests is one that met no queue, and compares the paths.
//! The slices with queues are then its tail, since users wait in them, and how many they were is said beside it
//! ([`Shortfall::queues`]). From half on the median too waited in a queue, and a queue that grows to the end of a slice
//! is as long as the slice is. No ratio is left that would be the same with another length of slices.
//!
//! All slices taken together do not tell the two apart: if the answers to a fourteenth of the requests come late, and
//! p90 is milliseconds, five slices of 24 may have lacked a third of theirs, or all of them a fourteenth.

use record::{Arrivals, Experiment, RaceRecord, TrialRecord};
use serde::Serialize;
use stats::{Columns, Percentile, Sparse};

use crate::{Cell, Cells};

/// A rate is kept if this share of it is answered within the measured time, or under way at its end.
const KEPT: f64 = 0.98;
/// Where requests wait for each other, those intended late wait longest: p90 lies above the median by 0.4 of what the
/// queue has grown to. Of lost requests there is no such sign.
const SPREAD: f64 = 0.25;
/// The longest wire's share of a slice, which is ten of its round trips at least.
const ROUND_TRIP: f64 = 0.1;

/// Less of a rate than was asked for, in all slices together or in some of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Shortfall {
    /// The share of the rate that was answered within the measured time, 0 to 1.
    pub in_time: f64,
    /// The rate is past the candidate's capacity: in at least half of the slices a queue grew until the end.
    pub queued: bool,
    /// The slices in which a queue grew until the end.
    pub queues: usize,
    /// The slices that count.
    pub slices: usize,
}

impl Shortfall {
    /// Of a candidate at a load. `None` where the rate was kept, where there is none, and without a trial that counts.
    pub fn of(race: &RaceRecord, cells: &Cells<'_>, entrant: usize, load: usize) -> Option<Shortfall> {
        let name = &race.header.entrants[entrant].name;
        let asked_per_s = race.loads[load].rate_per_s.filter(|_| !cells.closed[load])?;
        let connections = connections(&race.header.experiment, name);
        let offered = OfferedLoad { asked_per_s, arrivals: race.loads[load].arrivals, connections };
        Shortfall::of_cell(cells.cell(entrant, load), &offered)
    }

    /// Whether the rate is past the capacity of a candidate, or of the reference: then no ratio of their latencies says
    /// anything.
    pub fn is_past(race: &RaceRecord, cells: &Cells<'_>, entrant: usize, load: usize) -> bool {
        let queued = |of| Shortfall::of(race, cells, of, load).is_some_and(|short| short.queued);
        [entrant, 0].into_iter().filter(|of| *of < cells.entrants).any(queued)
    }

    fn of_cell(cell: &Cell<'_>, offered: &OfferedLoad) -> Option<Shortfall> {
        let per_s = offered.per_s(cell.trials.iter().copied());
        let in_time = cell.achieved_rps()? / per_s;
        let judged: Vec<bool> = cell.trials.iter().filter_map(|trial| offered.grew_in(trial)).collect();
        let queues = judged.iter().filter(|grew| **grew).count();
        let slice_s = cell.sum(TrialRecord::throughput_ns) as f64 / 1e9 / cell.trials.len() as f64;
        let all = offered.kept((in_time, per_s), slice_s, |percentile| {
            let all = vec![1; cell.columns.width()];
            let is_valid = percentile.is_valid(cell.columns.count(&all));
            cell.columns.percentile(percentile, &all).filter(|_| is_valid)
        });
        // Slices of a few requests say nothing each; all of them together are one.
        let queued = if judged.is_empty() { all.grew } else { 2 * queues >= judged.len() };
        let is_short = all.share < KEPT || queues > 0;
        is_short.then_some(Shortfall { in_time, queued, queues, slices: cell.trials.len() })
    }
}

/// The rate that a candidate was sent, and over how many connections.
struct OfferedLoad {
    asked_per_s: f64,
    arrivals: Arrivals,
    connections: u32,
}

/// How much of it was kept.
struct Kept {
    /// What was answered in time or under way at the end.
    share: f64,
    /// The rest waited in a queue that grew.
    grew: bool,
}

impl OfferedLoad {
    /// The requests that were due in these slices, a second: of random arrivals there are more or fewer than were asked
    /// for.
    fn per_s<'t>(&self, trials: impl Iterator<Item = &'t TrialRecord>) -> f64 {
        if self.arrivals == Arrivals::Constant {
            return self.asked_per_s;
        }
        let (intended, ns) = trials
            .fold((0, 0), |(intended, ns), trial| (intended + trial.intended, ns + trial.throughput_ns()));
        intended.max(1) as f64 / ns.max(1) as f64 * 1e9
    }

    /// Whether a queue grew in a slice; `None` if it has too few requests for a median.
    fn grew_in(&self, trial: &TrialRecord) -> Option<bool> {
        let slice_s = trial.throughput_ns() as f64 / 1e9;
        let per_s = self.per_s(std::iter::once(trial));
        let in_time = trial.answered_in_time as f64 / slice_s / per_s;
        let (times, beyond) = trial.counted();
        if !Percentile::P50.is_valid(times.count() + beyond) {
            return None;
        }
        // Of all slices nearly all are like this one, and need no look at their times.
        if in_time >= KEPT {
            return Some(false);
        }
        let slice = Columns::new(&[Sparse { bins: times.bins(), beyond }]);
        Some(self.kept((in_time, per_s), slice_s, |percentile| slice.percentile(percentile, &[1])).grew)
    }

    /// From the share that was answered in time of so many requests a second, and response times in nanoseconds.
    fn kept(
        &self,
        (in_time, per_s): (f64, f64),
        slice_s: f64,
        at: impl Fn(Percentile) -> Option<u64>,
    ) -> Kept {
        let [median_s, p90_s] =
            [Percentile::P50, Percentile::P90].map(|percentile| at(percentile).map(|ns| ns as f64 / 1e9));
        // A connection has one request under way at most; on a long wire that is a tenth of a slice.
        let under_way = median_s.map_or(f64::INFINITY, |s| s / slice_s);
        let share = in_time + under_way.min(f64::from(self.connections) / (per_s * slice_s));
        let spread_s = match (median_s, p90_s) {
            (Some(median), Some(p90)) => p90 - median,
            // More than a tenth has no answer at all. A queue shows in the median too, beyond what a wire takes.
            (Some(median), None) => median - ROUND_TRIP * slice_s,
            (None, _) => 0.0,
        };
        Kept { share, grew: share < KEPT && spread_s >= SPREAD * (1.0 - share) * slice_s }
    }
}

/// The connections of a candidate: its own, or the workload's.
fn connections(experiment: &Experiment, name: &str) -> u32 {
    let own = experiment.candidates.iter().find(|one| one.title() == name).and_then(|one| one.connections);
    own.unwrap_or(experiment.workload.connections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_random_arrivals_only_those_that_were_due_can_be_missing() {
        let slices = [90, 70].map(|intended| TrialRecord {
            duration_ns: 100_000_000,
            intended,
            answered_in_time: intended,
            ..TrialRecord::default()
        });
        let of = |arrivals| OfferedLoad { asked_per_s: 1000.0, arrivals, connections: 1 };
        assert!((of(Arrivals::Poisson).per_s(slices.iter()) - 800.0).abs() < 1e-9);
        assert!((of(Arrivals::Constant).per_s(slices.iter()) - 1000.0).abs() < 1e-9);
    }
}
