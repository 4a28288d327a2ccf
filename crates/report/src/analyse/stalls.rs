//! What the witness of the machine's stalls saw beside a candidate, and the percentiles with the stalls.

use std::collections::BTreeMap;

use record::{RaceRecord, Stall};
use stats::{Interval, Percentile, union};
use verdict::{Cell, Cells, Shortfall};

use super::quantiles;
use crate::figures;
use crate::quantities::Ratio;
use crate::stalls::Stalls;

/// Of a candidate at a load; `None` where nothing watched.
pub(super) fn stalls(race: &RaceRecord, cells: &Cells<'_>, entrant: usize, load: usize) -> Option<Stalls> {
    let cell = cells.cell(entrant, load);
    let whole = cell.whole.as_ref()?;
    let seen = || cell.trials.iter().filter_map(|trial| trial.witnessed.as_ref());
    let longest_ns = seen().flat_map(|seen| &seen.stalls).map(length_ns).max();
    let lengths_ns: Vec<u64> = seen().flat_map(|seen| distinct_ns(&seen.stalls)).collect();
    let part = cells.part(entrant, load);
    let ratio = |figure: fn(&Cell<'_>, &[u64]) -> Option<f64>| {
        let comparable = entrant > 0 && !cells.broke[entrant] && !cells.broke[0];
        let reference = cells.cell(0, load);
        let interval = comparable
            .then(|| cell.ratio(reference, part.units, race.header.seed, part.alpha(), figure))
            .flatten();
        interval.map(|Interval { value, low, high }| Ratio { value, low, high })
    };
    Some(Stalls {
        left_out_share: left_out(cell, &vec![1; cell.columns.width()]).unwrap_or(0.0),
        stalls: lengths_ns.len() as u64,
        longest_ns: longest_ns.unwrap_or(0),
        total_ns: lengths_ns.iter().sum(),
        response_ns: quantiles::whole(cell, whole),
        p99_ratio: ratio(p99).filter(|_| !Shortfall::is_past(race, cells, entrant, load)),
        left_out_ratio: ratio(left_out),
    })
}

/// The time between the instants around a stall, in nanoseconds.
fn length_ns(stall: &Stall) -> u64 {
    stall.to_ns.abs_diff(stall.from_ns)
}

/// The same of a trial's stalls: of those of a CPU that overlap together, since each sign reports a stall that it sees.
fn distinct_ns(stalls: &[Stall]) -> impl Iterator<Item = u64> {
    let mut by_cpu: BTreeMap<u16, Vec<(i64, i64)>> = BTreeMap::new();
    for stall in stalls {
        by_cpu.entry(stall.cpu).or_default().push((stall.from_ns, stall.to_ns));
    }
    by_cpu.into_values().flat_map(union).map(|(from_ns, to_ns)| to_ns.abs_diff(from_ns))
}

/// p99 of all response times, in nanoseconds.
fn p99(cell: &Cell<'_>, weights: &[u64]) -> Option<f64> {
    let columns = &cell.whole.as_ref()?.columns;
    let enough = Percentile::P99.is_valid(columns.count(weights));
    columns.percentile(Percentile::P99, weights).filter(|_| enough).map(|ns| ns as f64)
}

/// The share of the measured time that is left out.
fn left_out(cell: &Cell<'_>, weights: &[u64]) -> Option<f64> {
    let whole = cell.whole.as_ref()?;
    let sum = |part: fn(&(u64, u64)) -> u64| -> u64 {
        whole.left_out.iter().zip(weights).map(|(unit, weight)| part(unit) * weight).sum()
    };
    let measured_ns = sum(|unit| unit.1);
    (measured_ns > 0).then(|| sum(|unit| unit.0) as f64 / measured_ns as f64)
}

/// What a reader must know of stalls: how much was left out, what the witness changed, and beside whom the machine
/// stood still more often than beside the reference.
pub(super) fn notes(race: &RaceRecord, cells: &Cells<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(why) = race.header.machine.facts.get("witness of stalls") {
        let unwanted = !race.header.experiment.witness;
        notes.extend((!unwanted).then(|| format!("the machine was not watched for stalls ({why})")));
    }
    let cost = race.witness.as_ref().and_then(|witness| witness.cost);
    let left_off = race.witness.as_ref().is_some_and(|witness| witness.left_off);
    let then = if left_off { ": too much, so the race went without" } else { "" };
    notes.extend(
        cost.map(|cost| {
            format!("watching the machine for stalls changes {}{then}", crate::witness_cost(&cost))
        }),
    );
    notes.extend(scheduled_apart(race, cells));
    let pairs =
        || (2..cells.entrants).flat_map(|entrant| (0..cells.loads()).map(move |load| (entrant, load)));
    let tests = pairs().filter(|(entrant, load)| cells.cell(*entrant, *load).whole.is_some()).count();
    for (entrant, load) in pairs() {
        let (cell, reference) = (cells.cell(entrant, load), cells.cell(0, load));
        let units = cells.part(entrant, load).units;
        // As many tests as there are candidates and loads, at five per cent together (Bonferroni).
        let more = cell
            .ratio(reference, units, race.header.seed, 0.05 / tests.max(1) as f64, left_out)
            .filter(|more| units >= UNITS_MIN && more.low > 1.0);
        notes.extend(more.map(|more| {
            format!(
                "beside {} at {} the machine stood still more often than beside {}: {:.1} times as much of its time is left \
                 out ({:.1} to {:.1}). The path may be the cause; its p99 with stalls is on the page",
                race.header.entrants[entrant].name,
                figures::load(&super::load(race, &race.loads[load])),
                race.header.entrants[0].name,
                more.value,
                more.low,
                more.high
            )
        }));
    }
    notes
}

/// Which servers, or switches before them, run under another scheduling policy than the reference's server, so that
/// their tails are not compared.
fn scheduled_apart(race: &RaceRecord, cells: &Cells<'_>) -> Option<String> {
    let apart = race.header.entrants.iter().zip(&cells.apart).filter(|(_, apart)| **apart);
    let names: Vec<&str> = apart.map(|(entrant, _)| entrant.name.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "a server that spins and a switch in user space run under the normal scheduling policy, the server of {} under \
             SCHED_FIFO. Other programs of the machine take their CPU for milliseconds, and nothing of that is left out, so no \
             verdict is by its p99: {}",
            race.header.entrants[0].name,
            names.join(", ")
        )
    })
}

/// Of fewer builds a share of the time says nothing: a single stall is most of it.
const UNITS_MIN: usize = 5;
