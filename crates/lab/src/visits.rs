//! Slices of their own after a race's rounds, while the last build still stands.

use stats::Random;

use crate::{BuiltTopology, LabError};

/// One candidate at one load.
pub(crate) struct Visit<'r> {
    pub(crate) entrant: usize,
    /// The index of the load.
    pub(crate) load: usize,
    pub(crate) built: &'r mut BuiltTopology,
    /// How many visits there were before this one.
    pub(crate) done: usize,
    /// How many there are in all.
    pub(crate) total: usize,
}

/// Visits every candidate `times` times at each of these loads, in shuffled order. False if asked to stop.
pub(crate) fn visit_all(
    runners: &mut [(usize, BuiltTopology)],
    loads: &[usize],
    times: usize,
    rng: &mut Random,
    stop: impl Fn() -> bool,
    mut visit: impl FnMut(Visit<'_>, &mut Random) -> Result<(), LabError>,
) -> Result<bool, LabError> {
    let total = times * loads.len() * runners.len();
    let mut done = 0;
    for _ in 0..times {
        for load in loads {
            let mut order: Vec<usize> = (0..runners.len()).collect();
            rng.shuffle(&mut order);
            for at in order {
                if stop() {
                    return Ok(false);
                }
                let (entrant, built) = &mut runners[at];
                visit(Visit { entrant: *entrant, load: *load, built, done, total }, rng)?;
                done += 1;
            }
        }
    }
    Ok(true)
}
