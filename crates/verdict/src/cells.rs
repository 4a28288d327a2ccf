//! The trials of a record, merged by candidate and load; void ones stand aside.

#[cfg(test)]
pub(crate) mod made;

use std::collections::BTreeSet;

use hdrhistogram::Histogram as Hdr;
use record::{Counters, CpuTime, Histogram, Leaving, Measure, RaceRecord, TrialRecord, Until};
use stats::{Columns, Interval, Level, MiddleHalf, Percentile, Random, Resamples, Sparse, Spread};

/// What is drawn with replacement when a race is resampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResamplingUnit {
    /// A build with all its rounds.
    Build,
    /// A round: the race had one build only.
    Round,
}

/// The units of a race.
#[derive(Debug)]
pub struct ResamplingUnits {
    /// Whether each is a build or a round.
    pub unit: ResamplingUnit,
    /// How many there are to draw from.
    pub count: usize,
    /// The unit of each round of the record.
    of_round: Vec<usize>,
}

impl ResamplingUnits {
    /// Builds where there are several, else rounds.
    pub fn of(race: &RaceRecord) -> ResamplingUnits {
        let builds = ResamplingUnits::builds(race);
        if builds.len() < 2 {
            let count = race.rounds.len();
            return ResamplingUnits { unit: ResamplingUnit::Round, count, of_round: (0..count).collect() };
        }
        let place = |build| builds.iter().position(|other| *other == build).expect("every build is listed");
        let of_round = race.rounds.iter().map(|round| place(round.build)).collect();
        ResamplingUnits { unit: ResamplingUnit::Build, count: builds.len(), of_round }
    }

    /// The builds that the record has rounds of.
    pub fn builds(race: &RaceRecord) -> Vec<u32> {
        let builds: BTreeSet<u32> = race.rounds.iter().map(|round| round.build).collect();
        builds.into_iter().collect()
    }
}

/// In how much of a race a candidate was visited at a load: in all of it, unless it left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Participation {
    /// The first so many units.
    pub units: usize,
    /// The first so many rounds.
    pub rounds: usize,
    /// The level at which it is judged.
    pub level: Level,
}

impl Participation {
    /// The probability with which an interval that is shown misses the truth.
    pub fn alpha(&self) -> f64 {
        Participation::alpha_at(self.level)
    }

    /// The same at any level.
    pub(crate) fn alpha_at(level: Level) -> f64 {
        0.05 * level.share()
    }
}

/// A trial with its round and unit.
#[derive(Debug, Clone, Copy)]
struct Tried<'a> {
    round: usize,
    unit: usize,
    trial: &'a TrialRecord,
}

/// A candidate at a load, with all its valid trials.
#[derive(Debug)]
pub struct Cell<'a> {
    /// The trials that count.
    pub trials: Vec<&'a TrialRecord>,
    /// The unit of each trial.
    pub unit_of: Vec<usize>,
    /// The round of each trial.
    pub(crate) round_of: Vec<usize>,
    /// Trials that do not.
    pub void: Vec<&'a TrialRecord>,
    /// Visits without a trial that counts, since the last repeat was void too. Two visits of a host in a row that both
    /// had none are taken for one, as a record does not say where a visit ends.
    pub missing: u64,
    /// received − intended, in nanoseconds; without the machine's stalls, where a witness watched.
    pub response: Hdr<u64>,
    /// received − sent, in nanoseconds.
    pub service: Hdr<u64>,
    /// sent − intended, in nanoseconds.
    pub lag: Hdr<u64>,
    /// Requests that are in no histogram of answers: they stand above every answer.
    pub beyond: u64,
    /// Response times that count, one column a unit, with what lies beyond.
    pub columns: Columns,
    /// p99 of the response times of each slice that has enough of them, by unit; of none in a closed loop.
    pub slice_p99: MiddleHalf,
    /// Where a witness watched, all response times with the machine's stalls; else `None`.
    pub whole: Option<Whole>,
    /// Expected answers, or what else the race is read by, and measured nanoseconds of each unit.
    pub answered: Vec<(u64, u64)>,
}

/// All response times of a cell, those beside the machine's stalls included.
#[derive(Debug)]
pub struct Whole {
    /// received − intended, in nanoseconds.
    pub response: Hdr<u64>,
    /// Requests without an expected answer.
    pub beyond: u64,
    /// Response times, one column a unit, with what lies beyond.
    pub columns: Columns,
    /// Time left out for stalls and measured time of each unit, in nanoseconds.
    pub left_out: Vec<(u64, u64)>,
}

/// All cells of a race.
#[derive(Debug)]
pub struct Cells<'a> {
    loads: usize,
    /// How many candidates there are, reference and control included.
    pub entrants: usize,
    /// How many units the race has.
    pub units: usize,
    /// When the race was to end for what it sees.
    pub until: Option<Until>,
    /// What the trials are compared by.
    pub measure: Measure,
    /// True where throughput is the question: as many requests go as can, or there are no requests.
    pub closed: Vec<bool>,
    /// Whether each entrant broke.
    pub broke: Vec<bool>,
    /// Which are not ranked, for want of CPUs.
    pub(crate) crowded: Vec<bool>,
    /// Whether each entrant's server was scheduled by another policy than the reference's.
    pub apart: Vec<bool>,
    parts: Vec<Participation>,
    cells: Vec<Cell<'a>>,
}

impl<'a> Cells<'a> {
    /// Of all trials of a race.
    pub fn of(race: &'a RaceRecord, units: &ResamplingUnits) -> Cells<'a> {
        let (entrants, loads) = (race.header.entrants.len(), race.loads.len());
        let place = |trial: &TrialRecord| trial.entrant * loads + trial.load;
        let mut trials: Vec<Vec<Tried<'_>>> = vec![vec![]; entrants * loads];
        let mut missing = vec![0; entrants * loads];
        for (number, (round, unit)) in race.rounds.iter().zip(&units.of_round).enumerate() {
            for visit in round.trials.chunk_by(|one, next| place(one) == place(next)) {
                let of = place(&visit[0]);
                trials[of].extend(visit.iter().map(|trial| Tried { round: number, unit: *unit, trial }));
                missing[of] += u64::from(visit.last().is_some_and(|last| last.void.is_some()));
            }
        }
        let measure = race.header.experiment.workload.kind.measure();
        let part = |(index, trials): (usize, &Vec<Tried<'_>>)| {
            let visited = trials.iter().map(|tried| tried.unit + 1).max().unwrap_or(0);
            Participation {
                units: visited,
                rounds: units.of_round.iter().filter(|unit| **unit < visited).count(),
                level: level(race, index / loads, index % loads),
            }
        };
        let parts = trials.iter().enumerate().map(part).collect();
        let closed = |load: &record::Load| load.rate_per_s.is_none() || measure != Measure::Latency;
        let cell = |(index, trials): (usize, Vec<Tried<'a>>)| Cell {
            missing: missing[index],
            ..Cell::of(&trials, units.count, closed(&race.loads[index % loads]), measure)
        };
        Cells {
            loads,
            entrants,
            units: units.count,
            until: race.header.experiment.until,
            measure,
            closed: race.loads.iter().map(closed).collect(),
            crowded: race.header.entrants.iter().map(|entrant| entrant.crowded).collect(),
            broke: (0..entrants).map(|entrant| race.broke(entrant).is_some()).collect(),
            apart: (0..entrants).map(|entrant| race.header.is_scheduled_apart(entrant)).collect(),
            parts,
            cells: trials.into_iter().enumerate().map(cell).collect(),
        }
    }

    /// A candidate's trials at a load.
    pub fn cell(&self, entrant: usize, load: usize) -> &Cell<'a> {
        &self.cells[entrant * self.loads + load]
    }

    /// How many loads there are.
    pub fn loads(&self) -> usize {
        self.loads
    }

    /// In how much of the race a candidate was visited at a load.
    pub fn part(&self, entrant: usize, load: usize) -> &Participation {
        &self.parts[entrant * self.loads + load]
    }

    /// Two candidates at a load in the rounds of the first units in which both have a trial that counts. `None`: they
    /// have the same rounds anyway.
    pub(crate) fn paired(&self, entrants: [usize; 2], load: usize, units: usize) -> Option<[Cell<'a>; 2]> {
        let both = entrants.map(|entrant| self.cell(entrant, load));
        let [own, others] = both.map(|cell| cell.rounds(units));
        if own == others {
            return None;
        }
        let common = own.intersection(&others).copied().collect();
        Some(both.map(|cell| cell.in_rounds(&common, self.closed[load], self.measure)))
    }

    /// All candidates with all loads.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (entrants, loads) = (self.entrants, self.loads);
        (0..entrants).flat_map(move |entrant| (0..loads).map(move |load| (entrant, load)))
    }
}

/// The level at which a candidate is judged. It is that of a look only if what the look saw made it leave.
fn level(race: &RaceRecord, entrant: usize, load: usize) -> Level {
    match (race.header.experiment.until, race.left(entrant, load)) {
        (None, _) => Level::Whole,
        (Some(_), Some((look, Leaving::Different))) => Level::Early { look: look.number },
        (Some(_), _) => Level::Last,
    }
}

impl<'a> Cell<'a> {
    fn of(all: &[Tried<'a>], units: usize, closed: bool, measure: Measure) -> Cell<'a> {
        let (void, counted): (Vec<Tried<'a>>, Vec<Tried<'a>>) =
            all.iter().partition(|tried| tried.trial.void.is_some());
        let mut answered = vec![(0, 0); units];
        let (mut service, mut lag) = (Histogram::empty_hdr(), Histogram::empty_hdr());
        for Tried { unit, trial, .. } in &counted {
            trial.latencies.service.add_to(&mut service);
            trial.latencies.lag.add_to(&mut lag);
            answered[*unit].0 += trial.work(measure);
            answered[*unit].1 += trial.throughput_ns();
        }
        let (response, beyond, columns) = merged(&counted, units, closed, TrialRecord::counted);
        Cell {
            columns,
            beyond,
            slice_p99: slice_p99(&counted, closed),
            whole: whole(&counted, units, closed),
            unit_of: counted.iter().map(|tried| tried.unit).collect(),
            round_of: counted.iter().map(|tried| tried.round).collect(),
            trials: counted.into_iter().map(|tried| tried.trial).collect(),
            void: void.into_iter().map(|tried| tried.trial).collect(),
            missing: 0,
            response,
            service,
            lag,
            answered,
        }
    }

    /// The rounds of the first units in which it has a trial that counts.
    fn rounds(&self, units: usize) -> BTreeSet<usize> {
        let rounds = self.round_of.iter().zip(&self.unit_of);
        rounds.filter(|(_, unit)| **unit < units).map(|(round, _)| *round).collect()
    }

    /// Of the trials in some rounds alone.
    fn in_rounds(&self, rounds: &BTreeSet<usize>, closed: bool, measure: Measure) -> Cell<'a> {
        let places = self.round_of.iter().zip(&self.unit_of);
        let tried = places.zip(&self.trials).map(|((round, unit), trial)| Tried {
            round: *round,
            unit: *unit,
            trial,
        });
        let tried: Vec<Tried<'a>> = tried.filter(|tried| rounds.contains(&tried.round)).collect();
        Cell::of(&tried, self.columns.width(), closed, measure)
    }

    /// In how many of the first units it and another cell of the same race have trials that count. A unit without one
    /// says nothing of how units scatter.
    pub fn units_with(&self, other: &Cell<'_>, units: usize) -> usize {
        let [own, others] = [self, other].map(|cell| cell.unit_of.iter().collect::<BTreeSet<_>>());
        own.intersection(&others).filter(|unit| ***unit < units).count()
    }

    /// The ratio of a figure to another cell's of the same race, over the first units, with the interval that misses
    /// the truth with probability `alpha`. The figure is of units that count so and so often.
    pub fn ratio(
        &self,
        below: &Cell<'_>,
        units: usize,
        seed: u64,
        alpha: f64,
        figure: impl Fn(&Cell<'_>, &[u64]) -> Option<f64>,
    ) -> Option<Interval> {
        let width = self.columns.width();
        let resamples = Resamples::draw_first(units, width, Resamples::COUNT, &mut Random::from_seed(seed));
        let ratio = |weights: &[u64]| Some(figure(self, weights)? / figure(below, weights)?);
        let held = self.units_with(below, units);
        let spread = Spread::new(ratio(&resamples.all())?, resamples.iter().map(ratio), held)?;
        Some(spread.interval(alpha))
    }

    /// The sum of a figure over the trials that count.
    pub fn sum(&self, figure: impl Fn(&TrialRecord) -> u64) -> u64 {
        self.trials.iter().map(|trial| figure(trial)).sum()
    }

    /// Measured time of the trials that count, in seconds.
    pub fn measured_s(&self) -> f64 {
        self.sum(|trial| trial.duration_ns) as f64 / 1e9
    }

    /// Expected answers per second of measured time; of a closed loop by the times between answers.
    pub fn achieved_rps(&self) -> Option<f64> {
        let duration_ns = self.sum(TrialRecord::throughput_ns);
        (duration_ns > 0).then(|| self.sum(|trial| trial.answered_in_time) as f64 / duration_ns as f64 * 1e9)
    }

    /// The CPU time of a node over the trials that count.
    pub fn cpu(&self, node: impl Fn(&TrialRecord) -> CpuTime) -> CpuTime {
        let mut sum = CpuTime::default();
        self.trials.iter().for_each(|trial| sum += node(trial));
        sum
    }

    /// What the stacks counted over the trials that count.
    pub fn counters(&self) -> Counters {
        self.trials.iter().map(|trial| trial.counters).fold(Counters::default(), |sum, more| Counters {
            retransmits: sum.retransmits + more.retransmits,
            needless_retransmits: sum.needless_retransmits + more.needless_retransmits,
            out_of_order: sum.out_of_order + more.out_of_order,
            rto_expiries: sum.rto_expiries + more.rto_expiries,
            softnet_drops: sum.softnet_drops + more.softnet_drops,
            udp_errors: sum.udp_errors + more.udp_errors,
            wire_drops: sum.wire_drops + more.wire_drops,
            client_involuntary_switches: sum.client_involuntary_switches + more.client_involuntary_switches,
            client_switches: sum.client_switches + more.client_switches,
            client_runqueue_ns: sum.client_runqueue_ns + more.client_runqueue_ns,
            client_spun_ns: sum.client_spun_ns + more.client_spun_ns,
        })
    }
}

/// The response times of trials and what lies beyond, all together and one column a unit.
fn merged(
    trials: &[Tried<'_>],
    units: usize,
    closed: bool,
    of: impl for<'t> Fn(&'t TrialRecord) -> (&'t Histogram, u64),
) -> (Hdr<u64>, u64, Columns) {
    let mut by_unit: Vec<(Hdr<u64>, u64)> = vec![(Histogram::empty_hdr(), 0); units];
    for Tried { unit, trial, .. } in trials {
        let (response, beyond) = &mut by_unit[*unit];
        let (times, unanswered) = of(trial);
        times.add_to(response);
        *beyond += if closed { 0 } else { unanswered };
    }
    let mut response = Histogram::empty_hdr();
    by_unit.iter().for_each(|(unit, _)| response.add(unit).expect("all have the same bounds"));
    let bins: Vec<_> = by_unit.iter().map(|(unit, _)| Histogram::from(unit)).collect();
    let sparse: Vec<Sparse<'_>> = bins
        .iter()
        .zip(&by_unit)
        .map(|(bins, (_, beyond))| Sparse { bins: bins.bins(), beyond: *beyond })
        .collect();
    (response, by_unit.iter().map(|(_, beyond)| beyond).sum(), Columns::new(&sparse))
}

/// p99 of each slice at a rate. A slice of which the machine's stalls left too few requests has none.
fn slice_p99(trials: &[Tried<'_>], closed: bool) -> MiddleHalf {
    let p99 = |Tried { unit, trial, .. }: &Tried<'_>| {
        let (times, beyond) = trial.counted();
        let slice = Columns::new(&[Sparse { bins: times.bins(), beyond }]);
        Percentile::P99.is_valid(slice.count(&[1])).then(|| (slice.percentile(Percentile::P99, &[1]), *unit))
    };
    MiddleHalf::of(trials.iter().filter(|_| !closed).filter_map(p99))
}

/// With the machine's stalls; `None` where nothing watched.
fn whole(trials: &[Tried<'_>], units: usize, closed: bool) -> Option<Whole> {
    trials.iter().find(|tried| tried.trial.witnessed.is_some())?;
    let (response, beyond, columns) = merged(trials, units, closed, TrialRecord::whole);
    let mut left_out = vec![(0, 0); units];
    for Tried { unit, trial, .. } in trials {
        left_out[*unit].0 += trial.witnessed.as_ref().map_or(0, |seen| seen.left_out_ns);
        left_out[*unit].1 += trial.duration_ns;
    }
    Some(Whole { response, beyond, columns, left_out })
}
