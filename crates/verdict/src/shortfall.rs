//! Rates that a candidate cannot carry: there its latency says how long a queue grew, and nothing about its path.

use record::{Experiment, RaceRecord};
use serde::Serialize;
use stats::Percentile;

use crate::{Cell, Cells};

/// A rate is kept if this share of it is answered within the measured time, or under way at its end.
const KEPT: f64 = 0.98;
/// Where requests wait for each other, those intended late wait longest: p90 lies above the median by 0.4 of what the
/// queue has grown to. Of lost requests there is no such sign.
const SPREAD: f64 = 0.25;
/// The longest wire's share of a slice, which is ten of its round trips at least.
const ROUND_TRIP: f64 = 0.1;

/// Less of a rate than was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Shortfall {
    /// The share of the rate that was answered within the measured time, 0 to 1.
    pub in_time: f64,
    /// What is missing waited in a queue that grew until the end: the rate is past the candidate's capacity.
    pub queued: bool,
}

impl Shortfall {
    /// Of a candidate at a load. `None` where the rate was kept, where there is none, and without a trial that counts.
    pub fn of(race: &RaceRecord, cells: &Cells<'_>, entrant: usize, load: usize) -> Option<Shortfall> {
        let name = &race.header.entrants[entrant].name;
        let requested = race.loads[load].rate_per_s.filter(|_| !cells.closed[load])?;
        Shortfall::of_cell(cells.cell(entrant, load), requested, connections(&race.header.experiment, name))
    }

    fn of_cell(cell: &Cell<'_>, requested_per_s: f64, connections: u32) -> Option<Shortfall> {
        let in_time = cell.achieved_rps()? / requested_per_s;
        let slice_s = cell.sum(|trial| trial.duration_ns) as f64 / 1e9 / cell.trials.len() as f64;
        let all = vec![1; cell.columns.width()];
        let [median_s, p90_s] = [Percentile::P50, Percentile::P90].map(|percentile| {
            let is_valid = percentile.is_valid(cell.columns.count(&all));
            cell.columns.percentile(percentile, &all).filter(|_| is_valid).map(|ns| ns as f64 / 1e9)
        });
        // A connection has one request under way at most; on a long wire that is a tenth of a slice.
        let under_way = median_s.map_or(f64::INFINITY, |s| s / slice_s);
        let kept = in_time + under_way.min(f64::from(connections) / (requested_per_s * slice_s));
        let spread_s = match (median_s, p90_s) {
            (Some(median), Some(p90)) => p90 - median,
            // More than a tenth has no answer at all. A queue shows in the median too, beyond what a wire takes.
            (Some(median), None) => median - ROUND_TRIP * slice_s,
            (None, _) => 0.0,
        };
        (kept < KEPT).then_some(Shortfall { in_time, queued: spread_s >= SPREAD * (1.0 - kept) * slice_s })
    }
}

/// The connections of a candidate: its own, or the workload's.
fn connections(experiment: &Experiment, name: &str) -> u32 {
    let own = experiment.candidates.iter().find(|one| one.title() == name).and_then(|one| one.connections);
    own.unwrap_or(experiment.workload.connections)
}
