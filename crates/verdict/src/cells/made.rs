//! Cells for tests.

use record::{Measure, TrialRecord};

use super::{Cell, Tried};

/// With a trial in each of these units, one a little faster than the other.
pub(crate) fn cell(in_units: &[usize], units: usize) -> Cell<'static> {
    let trial = |unit: usize| TrialRecord {
        duration_ns: 100_000_000,
        answered_in_time: 1_000 + 7 * unit as u64 % 5,
        ..TrialRecord::default()
    };
    let trials: Vec<Tried<'static>> = in_units
        .iter()
        .map(|unit| Tried { round: *unit, unit: *unit, trial: Box::leak(Box::new(trial(*unit))) })
        .collect();
    Cell::of(&trials, units, true, Measure::Latency)
}
