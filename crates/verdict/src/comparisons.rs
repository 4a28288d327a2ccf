//! Compares all candidates with the reference, and the reference with itself.
//!
//! All candidates are resampled jointly: the n-th resample draws the same builds for each, so that an effect of a build
//! or a moment on all of them cancels in the ratio. A candidate that left a race that ends for what it sees is compared
//! over the builds that it raced in, with the same builds of the reference and of the control, and at the level of the
//! look at which it left.

use std::collections::BTreeMap;

use record::{Measure, Statistic, Until};
use stats::{Interval, Level, Random, Resamples, Spread};

use crate::contrast::Contrast;
use crate::judged::{Judgement, Test, noise_floor};
use crate::samples::Samples;
use crate::{Cell, Cells, Participation};

/// The error that a race may make about a candidate.
const ALPHA: f64 = 0.05;

/// All comparisons of a race.
#[derive(Debug)]
pub struct Comparisons {
    loads: usize,
    units: usize,
    seed: u64,
    measure: Measure,
    until: Option<Until>,
    closed: Vec<bool>,
    /// The entrants that broke. They raced on fewer builds than the reference, and what a build did to
    /// both cancels no more.
    broke: Vec<bool>,
    /// The entrants that are not ranked ([`Judgement::Crowded`]).
    crowded: Vec<bool>,
    /// Whose server was scheduled by another policy than the reference's: what other programs do to that machine is in
    /// its tail, and left out of the reference's.
    apart: Vec<bool>,
    /// By candidate and load.
    parts: Vec<Participation>,
    /// By candidate, load and units: those of each candidate over its own, of reference and control over all that a
    /// candidate has.
    samples: BTreeMap<(usize, usize, usize), CellSamples>,
    /// A candidate and the reference in the rounds that both have, by candidate and load, where these are not all of
    /// its own: a machine drifts, and rounds that one side lacks would count for the other alone.
    paired: BTreeMap<(usize, usize), [CellSamples; 2]>,
    /// With the reference, by candidate, load and statistic.
    contrasts: Vec<[Option<Contrast>; Statistic::ALL.len()]>,
    judged: Vec<Judgement>,
}

/// What a cell is compared by.
#[derive(Debug)]
struct CellSamples {
    of: [Samples; Statistic::ALL.len()],
    /// The share of the requests that have an answer.
    answered: Samples,
}

impl CellSamples {
    fn of(cell: &Cell<'_>, wanted: &[Statistic], drawn: &Resamples) -> CellSamples {
        CellSamples {
            of: Statistic::ALL.map(|statistic| match wanted.contains(&statistic) {
                true => Samples::of(cell, statistic, drawn),
                false => Samples::default(),
            }),
            answered: Samples::answered(cell, drawn),
        }
    }

    fn against(&self, below: &CellSamples, of: Statistic, units: usize) -> Option<Contrast> {
        let answered = [&self.answered, &below.answered];
        Contrast::of([&self.of[of as usize], &below.of[of as usize]], answered, units)
    }
}

impl Comparisons {
    /// Of all statistics. A seed gives the same resamples on every machine.
    pub fn of(cells: &Cells<'_>, seed: u64) -> Comparisons {
        Comparisons::of_those(cells, seed, &Statistic::ALL)
    }

    /// Of some statistics alone; the others are as if there were too few samples.
    pub(crate) fn of_those(cells: &Cells<'_>, seed: u64, wanted: &[Statistic]) -> Comparisons {
        let mut comparisons = Comparisons {
            loads: cells.loads(),
            units: cells.units,
            seed,
            measure: cells.measure,
            until: cells.until,
            closed: cells.closed.clone(),
            broke: cells.broke.clone(),
            crowded: cells.crowded.clone(),
            apart: cells.apart.clone(),
            parts: cells.pairs().map(|(entrant, load)| *cells.part(entrant, load)).collect(),
            samples: samples(cells, seed, wanted),
            paired: paired(cells, seed, wanted),
            contrasts: vec![],
            judged: vec![],
        };
        let against_reference = |(entrant, load)| {
            let units = comparisons.part(entrant, load).units;
            Statistic::ALL.map(|of| comparisons.contrast_over(units, entrant, load, of))
        };
        comparisons.contrasts = cells.pairs().map(against_reference).collect();
        let judge = |(entrant, load): (usize, usize)| {
            comparisons.judged_at(entrant, load, comparisons.part(entrant, load).level)
        };
        comparisons.judged = cells.pairs().map(judge).collect();
        comparisons
    }

    /// The verdict on a candidate at a load.
    pub fn judged(&self, entrant: usize, load: usize) -> &Judgement {
        // A record without a control has no noise, and a load without candidates has none to judge.
        self.judged.get(entrant * self.loads + load).unwrap_or(&Judgement::Unknown)
    }

    /// What a statistic is called in this race.
    pub fn label(&self, of: Statistic) -> &'static str {
        of.label(self.measure)
    }

    /// True where throughput is the question.
    pub fn is_closed(&self, load: usize) -> bool {
        self.closed[load]
    }

    /// In how much of the race a candidate was visited at a load.
    pub fn part(&self, entrant: usize, load: usize) -> &Participation {
        &self.parts[entrant * self.loads + load]
    }

    /// The ratio to the reference; `None` where it has no interval, and for the reference itself.
    pub fn spread(&self, entrant: usize, load: usize, of: Statistic) -> Option<Spread> {
        self.contrast(entrant, load, of).and_then(Contrast::ratio)
    }

    /// The statistics that have no ratio to the reference because that of one or both lies among requests without
    /// an answer, or may.
    pub fn among_unanswered(&self, entrant: usize, load: usize) -> impl Iterator<Item = Statistic> {
        let is_among = move |of: &Statistic| {
            self.contrast(entrant, load, *of).is_some_and(|contrast| contrast.ratio().is_none())
        };
        Statistic::ALL.into_iter().filter(is_among)
    }

    /// A candidate's own figure with its interval, if it has one. A broken candidate has none, since it raced on fewer
    /// builds.
    pub fn own(&self, entrant: usize, load: usize, of: Statistic) -> Option<(f64, Option<Interval>)> {
        let part = self.parts.get(entrant * self.loads + load)?;
        let samples = &self.samples.get(&(entrant, load, part.units))?.of[of as usize];
        let value = samples.value.filter(|value| value.is_finite())?;
        let spread = samples.spread(part.units).filter(|_| !self.broke[entrant]);
        Some((value, spread.map(|spread| spread.interval(part.alpha()))))
    }

    /// The ratio to the reference with the interval that holds the truth in 95 % of all races, looks or not.
    pub fn interval(&self, entrant: usize, load: usize, of: Statistic) -> Option<Interval> {
        Some(self.spread(entrant, load, of)?.interval(self.part(entrant, load).alpha()))
    }

    /// The difference of a statistic, in the logarithm, that exceeds noise: half the interval of the reference against
    /// itself, or the difference between the two if that is larger.
    pub fn floor(&self, load: usize, of: Statistic) -> Option<f64> {
        self.spread(1, load, of).as_ref().map(noise_floor)
    }

    /// The same for a comparison of either kind.
    pub(crate) fn floor_of(&self, load: usize, of: Statistic, contrast: &Contrast) -> Option<f64> {
        self.floor_over(self.part(1, load).units, load, of, contrast)
    }

    /// What verdicts at a load are taken from, the first that decides: what the race was to know, if a statistic was
    /// named; then p99, because tails are what users wait for; then p99 of a typical slice and p50, which resolve
    /// smaller differences. Where as many requests go as can, latency is the length of the queue that the client keeps,
    /// and throughput is the question.
    pub fn deciding(&self, load: usize) -> Vec<Statistic> {
        let closed = self.closed[load];
        let usual: &[Statistic] = if closed {
            &[Statistic::Throughput]
        } else {
            &[Statistic::P99, Statistic::TypicalP99, Statistic::P50]
        };
        let named = self.until.and_then(|until| until.statistic_at(closed));
        let others = usual.iter().copied().filter(|of| Some(*of) != named);
        named.into_iter().chain(others).collect()
    }

    /// What a race is summed up by at a load: the statistic that resolves the smallest differences there.
    pub fn headline(&self, load: usize) -> Statistic {
        if self.closed[load] { Statistic::Throughput } else { Statistic::P50 }
    }

    /// The verdict on a candidate with another one in the reference's place: the same tests at the same level and
    /// beyond the same noise, over the builds that both raced in.
    pub fn judged_against(&self, cells: &Cells<'_>, [entrant, other]: [usize; 2], load: usize) -> Judgement {
        if self.broke[entrant] || self.broke[other] {
            return Judgement::Broke;
        }
        if self.crowded[entrant] || self.crowded[other] {
            return Judgement::Crowded;
        }
        let [own, others] = [entrant, other].map(|one| self.part(one, load));
        let units = own.units.min(others.units);
        let alpha = ALPHA * own.level.share().min(others.level.share()) / self.tests(entrant).max(1) as f64;
        let drawn =
            Resamples::draw_first(units, self.units, Resamples::COUNT, &mut Random::from_seed(self.seed));
        let is_apart = self.apart[entrant] != self.apart[other];
        let tested: Vec<Statistic> =
            self.deciding(load).into_iter().filter(|of| !is_apart || !is_tail(*of)).collect();
        let [above, below] = match cells.paired([entrant, other], load, units) {
            Some(paired) => paired.map(|cell| CellSamples::of(&cell, &tested, &drawn)),
            None => [entrant, other].map(|one| CellSamples::of(cells.cell(one, load), &tested, &drawn)),
        };
        let test = |of: Statistic| {
            let contrast = above.against(&below, of, units)?;
            Some(Test::of(of, &contrast, alpha, self.floor_over(units, load, of, &contrast)?))
        };
        self.of_tests(tested.into_iter().filter_map(test).collect())
    }

    /// The verdict at a level.
    pub(crate) fn judged_at(&self, entrant: usize, load: usize, level: Level) -> Judgement {
        if entrant == 0 {
            return Judgement::Reference;
        }
        if self.broke[entrant] {
            return Judgement::Broke;
        }
        if self.crowded[entrant] {
            return Judgement::Crowded;
        }
        let units = self.part(entrant, load).units;
        let alpha = ALPHA * level.share() / self.tests(entrant).max(1) as f64;
        let test = |of: Statistic| {
            let contrast = self.contrast(entrant, load, of)?;
            // The control is judged by its interval alone: against a floor computed from itself it could never differ.
            let floor = match entrant {
                1 => 0.0,
                _ => self.floor_over(units, load, of, contrast)?,
            };
            Some(Test::of(of, contrast, alpha, floor))
        };
        self.of_tests(self.tested(entrant, load).filter_map(test).collect())
    }

    /// The statistics by which a candidate is judged at a load.
    fn tested(&self, entrant: usize, load: usize) -> impl Iterator<Item = Statistic> {
        let is_apart = self.apart[entrant];
        self.deciding(load).into_iter().filter(move |of| !is_apart || !is_tail(*of))
    }

    fn of_tests(&self, tests: Vec<Test>) -> Judgement {
        match tests.as_slice() {
            [] if self.units < 2 => Judgement::OneUnit,
            [] => Judgement::Unknown,
            [..] => Judgement::Tested(tests),
        }
    }

    /// The comparison with the reference over the first units of the race.
    fn contrast_over(&self, units: usize, entrant: usize, load: usize, of: Statistic) -> Option<Contrast> {
        let [own, reference] = self.sides(units, entrant, load)?;
        own.against(reference, of, units)
    }

    /// What a comparison of the same kind must exceed over the first units of the race.
    fn floor_over(&self, units: usize, load: usize, of: Statistic, contrast: &Contrast) -> Option<f64> {
        let [control, reference] = self.sides(units, 1, load)?;
        let (above, below) = match contrast {
            Contrast::Ratio(_) => (&control.of[of as usize], &reference.of[of as usize]),
            Contrast::Answered(_) => (&control.answered, &reference.answered),
        };
        above.over(below, units).as_ref().map(noise_floor)
    }

    /// A candidate and the reference over the first units of the race, in the rounds that both have where these are the
    /// candidate's own; `None` of the reference, and where one broke.
    fn sides(&self, units: usize, entrant: usize, load: usize) -> Option<[&CellSamples; 2]> {
        if entrant == 0 || self.broke[entrant] || self.broke[0] {
            return None;
        }
        let paired = self.paired.get(&(entrant, load)).filter(|_| units == self.part(entrant, load).units);
        if let Some([own, reference]) = paired {
            return Some([own, reference]);
        }
        let samples = |entrant: usize| self.samples.get(&(entrant, load, units));
        Some([samples(entrant)?, samples(0)?])
    }

    fn contrast(&self, entrant: usize, load: usize, of: Statistic) -> Option<&Contrast> {
        self.contrasts.get(entrant * self.loads + load).and_then(|contrasts| contrasts[of as usize].as_ref())
    }

    /// How many tests a candidate undergoes; its intervals are adjusted for that (Bonferroni), so that of all verdicts
    /// on a candidate that does not differ, 95 % are right together.
    fn tests(&self, entrant: usize) -> usize {
        let tested = |load: usize| {
            // While a race is looked at the number must not depend on what it has so far: a verdict would change when a
            // later load has enough samples.
            let counts = |of: &Statistic| self.until.is_some() || self.contrast(entrant, load, *of).is_some();
            self.tested(entrant, load).filter(counts).count()
        };
        (0..self.loads).map(tested).sum()
    }
}

/// Whether a statistic measures the slowest requests, among which are those that met other programs.
fn is_tail(of: Statistic) -> bool {
    match of {
        Statistic::Throughput | Statistic::P50 => false,
        Statistic::P90
        | Statistic::P99
        | Statistic::P99_9
        | Statistic::P99_99
        | Statistic::P99_999
        | Statistic::TypicalP99 => true,
    }
}

/// The samples that comparisons need.
fn samples(
    cells: &Cells<'_>,
    seed: u64,
    wanted: &[Statistic],
) -> BTreeMap<(usize, usize, usize), CellSamples> {
    let mut resamples: BTreeMap<usize, Resamples> = BTreeMap::new();
    let mut samples = BTreeMap::new();
    for (entrant, load) in cells.pairs() {
        let units = cells.part(entrant, load).units;
        let drawn = resamples.entry(units).or_insert_with(|| {
            Resamples::draw_first(units, cells.units, Resamples::COUNT, &mut Random::from_seed(seed))
        });
        for of in [entrant, 0, 1].into_iter().filter(|of| *of < cells.entrants) {
            let of_cell = || CellSamples::of(cells.cell(of, load), wanted, drawn);
            samples.entry((of, load, units)).or_insert_with(of_cell);
        }
    }
    samples
}

/// The same of those that do not have the reference's rounds.
fn paired(cells: &Cells<'_>, seed: u64, wanted: &[Statistic]) -> BTreeMap<(usize, usize), [CellSamples; 2]> {
    let of = |(entrant, load): (usize, usize)| {
        let units = cells.part(entrant, load).units;
        let both = cells.paired([entrant, 0], load, units)?;
        let drawn = Resamples::draw_first(units, cells.units, Resamples::COUNT, &mut Random::from_seed(seed));
        Some(((entrant, load), both.map(|cell| CellSamples::of(&cell, wanted, &drawn))))
    };
    cells.pairs().filter(|(entrant, _)| *entrant > 0).filter_map(of).collect()
}
