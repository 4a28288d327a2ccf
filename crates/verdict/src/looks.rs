//! Looks at a race that runs: what is decided and may leave.

use record::{InterimLook, Leaving, Left, RaceRecord, Statistic, Until};
use stats::{Level, PRECISE_FROM, Spread, look_due};

use crate::{Cells, Comparisons, Participation, ResamplingUnits, Shortfall};

/// The look that is due after the builds that a race has, with what leaves at it; `None` if none is due.
pub fn look(race: &RaceRecord) -> Option<InterimLook> {
    let until = race.header.experiment.until?;
    let builds = ResamplingUnits::builds(race).len() as u32;
    let number = look_due(builds)?;
    let units = ResamplingUnits::of(race);
    let cells = Cells::of(race, &units);
    let comparisons = Comparisons::of_those(&cells, race.header.seed, &statistics(&until));
    let leaves = |(entrant, load): (usize, usize)| {
        // Of queues no ratio is ever given, and of what is not ranked no verdict, so the time is for the others.
        let is_unranked = race.header.entrants[entrant].crowded;
        let why = match is_unranked || Shortfall::is_past(race, &cells, entrant, load) {
            true => Leaving::NotAsked,
            false => leaving(&comparisons, &until, (entrant, load), (number, builds))?,
        };
        Some(Left { entrant, load, why })
    };
    let left = undecided(race).into_iter().filter_map(leaves).collect();
    Some(InterimLook { number, builds, rounds: race.rounds.len() as u32, left })
}

/// The look at the end: all that is left leaves undecided.
pub fn last_look(race: &RaceRecord) -> InterimLook {
    let number = race.looks.last().map_or(0, |look| look.number) + 1;
    let builds = ResamplingUnits::builds(race).len() as u32;
    let left = |(entrant, load)| Left { entrant, load, why: Leaving::Ended };
    let left = undecided(race).into_iter().map(left).collect();
    InterimLook { number, builds, rounds: race.rounds.len() as u32, left }
}

/// The entrants that such a race measures: the contenders that can run and did not break. Where it began without any it
/// is the control; where all have broken there is none.
pub fn pursued(race: &RaceRecord) -> Vec<usize> {
    let entrants = race.header.entrants.iter().enumerate().skip(2);
    let able: Vec<usize> =
        entrants.filter(|(_, one)| one.unmet.is_empty()).map(|(entrant, _)| entrant).collect();
    if able.is_empty() {
        return vec![1];
    }
    able.into_iter().filter(|entrant| race.broke(*entrant).is_none()).collect()
}

/// Those that race on, each with its load.
pub fn undecided(race: &RaceRecord) -> Vec<(usize, usize)> {
    let pairs =
        pursued(race).into_iter().flat_map(|entrant| (0..race.loads.len()).map(move |load| (entrant, load)));
    pairs.filter(|(entrant, load)| race.left(*entrant, *load).is_none()).collect()
}

/// What a look is about: the statistic of each load.
fn statistics(until: &Until) -> Vec<Statistic> {
    [true, false].into_iter().filter_map(|closed| until.statistic_at(closed)).collect()
}

/// Whether a candidate leaves a load, and why. A difference of another statistic is no reason: it would end the race
/// before what was asked is known.
fn leaving(
    comparisons: &Comparisons,
    until: &Until,
    (entrant, load): (usize, usize),
    (number, builds): (u32, u32),
) -> Option<Leaving> {
    let Some(of) = until.statistic_at(comparisons.is_closed(load)) else { return Some(Leaving::NotAsked) };
    // Being precise is asked first: its level is the milder one. Where the statistic lies among requests without an
    // answer there is no ratio to be precise about, but who loses more of them may be known.
    let last = Participation::alpha_at(Level::Last);
    let spread = comparisons.spread(entrant, load, of);
    let is_precise = |spread: Spread| spread.interval(last).half_width_ln() <= until.half_width_ln();
    if builds >= PRECISE_FROM && spread.is_some_and(is_precise) {
        return Some(Leaving::Precise);
    }
    let judged = comparisons.judged_at(entrant, load, Level::Early { look: number });
    let found = judged.tests().iter().any(|test| test.of == of && test.differs());
    // The control is there for the noise of all the others, and stays.
    (found && entrant > 1).then_some(Leaving::Different)
}
