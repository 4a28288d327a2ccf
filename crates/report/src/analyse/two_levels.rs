//! Medians of slices that lie at two levels: at equal intervals, requests and the wake-ups of the CPUs can fall into
//! step, and stay so for a whole slice.
//!
//! With 25 µs between two requests and as much from a request to its answer, each request of a slice finds the CPUs
//! awake from the one before, or each finds them asleep. Which of the two a slice becomes is chance, so the median of
//! all requests tells how many slices became the one and how many the other.

use record::{Arrivals, RaceRecord, TrialRecord};
use stats::{Columns, Percentile, Sparse};
use verdict::Cells;

use crate::figures;

/// The upper level begins so much above the end of the lower one. Where it begins at twice that, requests waited in a
/// queue, and no step of the schedule is behind it.
const APART: std::ops::Range<f64> = 1.1..2.0;
/// Each level has this share of the slices at least; fewer are odd ones.
const SHARE: f64 = 0.1;

/// The loads at which slices are at two levels, each with what to do.
pub(super) fn notes(race: &RaceRecord, cells: &Cells<'_>) -> Vec<String> {
    let at_equal_intervals =
        |load: &usize| race.loads[*load].arrivals == Arrivals::Constant && !cells.closed[*load];
    let note = |load: usize| {
        // The slices of both hosts are of one path.
        let entrants = std::iter::once(0).chain(2..cells.entrants);
        let found: Vec<String> =
            entrants.filter_map(|entrant| of_entrant(race, cells, entrant, load)).collect();
        (!found.is_empty()).then(|| {
            format!(
                "p50 has two levels at {}: {}. At equal intervals requests and the wake-ups of CPUs can fall into step \
                 for a whole slice, and a ratio can be that of the levels; with --arrivals poisson they do not \
                 (docs/method.md#arrivals)",
                figures::load(&super::load(race, &race.loads[load])),
                found.join("; ")
            )
        })
    };
    (0..cells.loads()).filter(at_equal_intervals).filter_map(note).collect()
}

/// "host 24.4 µs to 25.6 µs in 17 slices, 31.2 µs to 32.8 µs in 7".
fn of_entrant(race: &RaceRecord, cells: &Cells<'_>, entrant: usize, load: usize) -> Option<String> {
    let also = (entrant == 0 && cells.entrants > 1).then_some(1);
    let trials = std::iter::once(entrant).chain(also).flat_map(|of| &cells.cell(of, load).trials);
    let [lower, upper] = levels(trials.filter_map(|trial| median_ns(trial)).collect())?;
    let [(low, few), (high, many)] = [lower, upper].map(|level| (level.range(), level.slices));
    Some(format!("{} {low} in {few} slices, {high} in {many}", race.header.entrants[entrant].name))
}

fn median_ns(trial: &TrialRecord) -> Option<u64> {
    let (times, beyond) = trial.counted();
    let slice = Columns::new(&[Sparse { bins: times.bins(), beyond }]);
    Percentile::P50.is_valid(times.count() + beyond).then(|| slice.percentile(Percentile::P50, &[1]))?
}

/// Slices whose medians lie close together.
#[derive(Debug, PartialEq, Eq)]
struct Level {
    slices: usize,
    least_ns: u64,
    most_ns: u64,
}

impl Level {
    fn of(sorted_ns: &[u64]) -> Level {
        Level { slices: sorted_ns.len(), least_ns: sorted_ns[0], most_ns: sorted_ns[sorted_ns.len() - 1] }
    }

    fn range(&self) -> String {
        let [least, most] = [self.least_ns, self.most_ns].map(figures::duration_ns);
        format!("{least} to {most}")
    }
}

/// The two levels of medians, if the widest gap between them is wider than either level.
fn levels(mut medians_ns: Vec<u64>) -> Option<[Level; 2]> {
    medians_ns.sort_unstable();
    let times = |pair: &[u64]| pair[1] as f64 / pair[0].max(1) as f64;
    let (at, gap) =
        medians_ns.windows(2).map(times).enumerate().max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    let (lower, upper) = medians_ns.split_at(at + 1);
    let fewest = (medians_ns.len() as f64 * SHARE).ceil().max(2.0) as usize;
    let within = |part: &[u64]| part[part.len() - 1] as f64 / part[0].max(1) as f64;
    let are_apart = APART.contains(&gap) && gap > within(lower).max(within(upper));
    (are_apart && lower.len().min(upper.len()) >= fewest).then(|| [lower, upper].map(Level::of))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(medians: &[f64]) -> Option<[Level; 2]> {
        levels(medians.iter().map(|us| (us * 1e3) as u64).collect())
    }

    #[test]
    fn two_levels_are_found_and_a_wide_range_is_none() {
        let level = |slices, least, most| Level { slices, least_ns: least, most_ns: most };
        // 40,000 requests/s on two CPUs: 25 µs between two of them.
        let found = us(&[24.4, 32.3, 24.0, 25.1, 32.4, 31.2, 24.9, 25.6, 24.2]);
        assert_eq!(found, Some([level(6, 24_000, 25_600), level(3, 31_200, 32_400)]));
        let wide = [25.8, 33.5, 40.7, 32.8, 60.9, 77.1, 34.5, 28.4];
        assert_eq!(us(&wide), None);
        assert_eq!(us(&[24.0, 24.2, 24.3, 24.9, 25.1, 25.3]), None, "less than a tenth apart");
        let queues = [40.5, 55.3, 61.0, 48.2, 171.0, 3090.0, 4980.0, 4100.0];
        assert_eq!(us(&queues), None, "slices in which a queue grew");
        let one_late = [24.0, 24.2, 24.3, 24.9, 25.1, 25.3, 76.0];
        assert_eq!(us(&one_late), None, "one is no level");
        assert_eq!(us(&[]), None);
        assert_eq!(us(&[24.0]), None);
    }
}
