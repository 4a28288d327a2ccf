//! How a race that ends for what it sees went, and what another minute would bring.

use record::{Leaving, RaceRecord, Statistic};
use stats::{Level, PRECISE_FROM};
use verdict::{Cells, Comparisons, Shortfall};

use super::rates::UNITS_MAX;
use crate::until::{ComparisonExit, LookTaken, NamedFloor, Pursued, StopReason};

/// How much more racing the forecast is about, in seconds.
const MINUTE_S: f64 = 60.0;

/// `None` of a race with a number of rounds.
pub(super) fn pursued(race: &RaceRecord, cells: &Cells<'_>, comparisons: &Comparisons) -> Option<Pursued> {
    let until = race.header.experiment.until?;
    let measure = race.header.experiment.workload.kind.measure();
    let exit = |(entrant, load)| {
        let compared = !Shortfall::is_past(race, cells, entrant, load);
        pursuit(race, comparisons, (entrant, load), compared)
    };
    let of: Vec<ComparisonExit> = compared(race).into_iter().map(exit).collect();
    let is_whole = race.end.as_ref().is_some_and(|end| end.stopped.is_none());
    let is_settled = !of.is_empty() && of.iter().all(|one| one.why != Leaving::Ended);
    let ended = match is_settled {
        true => StopReason::Settled,
        false if is_whole => StopReason::Budget,
        false => StopReason::Unfinished,
    };
    Some(Pursued {
        statistic: until.statistic.map(|of| of.label(measure)),
        half_width: until.half_width,
        budget_s: race.header.experiment.budget_s(),
        ended,
        looks: looks(race),
        comparisons: of,
    })
}

/// Whom the race was about, with each load.
fn compared(race: &RaceRecord) -> Vec<(usize, usize)> {
    let those = verdict::pursued(race).into_iter().filter(|entrant| *entrant < race.header.entrants.len());
    those.flat_map(|entrant| (0..race.loads.len()).map(move |load| (entrant, load))).collect()
}

/// The looks at which something could leave for what was seen; at the end only the undecided do.
fn looks(race: &RaceRecord) -> Vec<LookTaken> {
    let taken = race.looks.iter().filter(|look| stats::look_due(look.builds) == Some(look.number));
    taken
        .map(|look| LookTaken {
            builds: look.builds,
            rounds: look.rounds,
            level: 1.0 - 0.05 * Level::Early { look: look.number }.share(),
            left: look.left.iter().filter(|left| left.why != Leaving::Ended).count(),
        })
        .collect()
}

/// Where a rate is past a capacity there is nothing to know, and no forecast.
fn pursuit(
    race: &RaceRecord,
    comparisons: &Comparisons,
    (entrant, load): (usize, usize),
    compared: bool,
) -> ComparisonExit {
    let part = comparisons.part(entrant, load);
    let measure = race.header.experiment.workload.kind.measure();
    let until = race.header.experiment.until;
    let of = until.and_then(|until| until.statistic_at(comparisons.is_closed(load))).filter(|_| compared);
    let why = race.left(entrant, load).map_or(Leaving::Ended, |(_, why)| why);
    let interval = of.and_then(|of| comparisons.interval(entrant, load, of));
    let half_width_ln = interval.map(|interval| interval.half_width_ln());
    let units = part.units as u32;
    let open = half_width_ln.filter(|_| why == Leaving::Ended && units >= 2).zip(seconds_a_build(race));
    let in_a_minute = open.map(|(half_width_ln, seconds)| {
        let more = (MINUTE_S / seconds).round() as u32;
        stats::half_width_after(units, half_width_ln, more, part.alpha()).exp_m1()
    });
    let needed_s = open.zip(until).and_then(|((half_width_ln, seconds), until)| {
        let needed = stats::units_needed(units, half_width_ln, until.half_width_ln(), UNITS_MAX)?;
        // Narrow enough is believed only after some builds.
        Some(f64::from(needed.max(PRECISE_FROM).saturating_sub(units)) * seconds)
    });
    ComparisonExit {
        candidate: race.header.entrants[entrant].name.clone(),
        load,
        why,
        builds: units,
        level: 1.0 - part.alpha(),
        statistic: of.map(|of| of.label(measure)),
        half_width: half_width_ln.map(f64::exp_m1),
        half_width_in_a_minute: in_a_minute,
        needed_s,
    }
}

/// How long a build of those that are left takes, with its rounds: the last one, since candidates leave.
fn seconds_a_build(race: &RaceRecord) -> Option<f64> {
    let last = race.rounds.last()?;
    let before = race.rounds.iter().rev().find(|round| round.build != last.build);
    let began_s = before.map_or(Some(0.0), |round| round.ended_s)?;
    Some(last.ended_s? - began_s).filter(|seconds| *seconds > 0.0)
}

/// The noise floor of the statistic that was named, unless it is one that is always shown.
pub(super) fn named_floor(race: &RaceRecord, comparisons: &Comparisons, load: usize) -> Option<NamedFloor> {
    let of = race.header.experiment.until?.statistic_at(comparisons.is_closed(load))?;
    let always = [Statistic::P50, Statistic::P99, Statistic::TypicalP99, Statistic::Throughput];
    let floor = comparisons.floor(load, of).filter(|_| !always.contains(&of))?;
    Some(NamedFloor { statistic: comparisons.label(of), floor: floor.exp_m1() })
}
