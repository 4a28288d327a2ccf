//! The trials of a record, merged by candidate and load; void ones stand aside.

use std::collections::BTreeSet;

use hdrhistogram::Histogram as Hdr;
use record::{Counters, CpuTime, Histogram, Measure, Race, TrialRecord};
use stats::{Columns, Sparse};

/// The unit of resampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// A build with all its rounds.
    Build,
    /// A round: the race had one build only.
    Round,
}

/// The units of a race.
#[derive(Debug)]
pub(super) struct Units {
    pub(super) unit: Unit,
    pub(super) count: usize,
    /// The unit of each round of the record.
    of_round: Vec<usize>,
}

impl Units {
    pub(super) fn of(race: &Race) -> Units {
        let builds = Units::builds(race);
        if builds.len() < 2 {
            let count = race.rounds.len();
            return Units { unit: Unit::Round, count, of_round: (0..count).collect() };
        }
        let place = |build| builds.iter().position(|other| *other == build).expect("every build is listed");
        let of_round = race.rounds.iter().map(|round| place(round.build)).collect();
        Units { unit: Unit::Build, count: builds.len(), of_round }
    }

    /// The builds that the record has rounds of.
    pub(super) fn builds(race: &Race) -> Vec<u32> {
        let builds: BTreeSet<u32> = race.rounds.iter().map(|round| round.build).collect();
        builds.into_iter().collect()
    }
}

/// A trial and the number of its unit.
type Tried<'a> = (usize, &'a TrialRecord);

/// A candidate at a load, with all its valid trials.
#[derive(Debug)]
pub(super) struct Cell<'a> {
    /// The trials that count.
    pub(super) trials: Vec<&'a TrialRecord>,
    /// The unit of each trial.
    pub(super) unit_of: Vec<usize>,
    /// Trials that do not.
    pub(super) void: Vec<&'a TrialRecord>,
    pub(super) response: Hdr<u64>,
    pub(super) service: Hdr<u64>,
    pub(super) lag: Hdr<u64>,
    /// Requests that are in no histogram of answers: they stand above every answer.
    pub(super) beyond: u64,
    /// Response times, one column a unit, with what lies beyond.
    pub(super) columns: Columns,
    /// Expected answers, or what else the race is read by, and measured nanoseconds of each unit.
    pub(super) answered: Vec<(u64, u64)>,
}

/// All cells of a race.
#[derive(Debug)]
pub(super) struct Cells<'a> {
    loads: usize,
    pub(super) entrants: usize,
    pub(super) units: usize,
    /// What the trials are compared by.
    pub(super) measure: Measure,
    /// True where throughput is the question: as many requests go as can, or there are no requests.
    pub(super) closed: Vec<bool>,
    /// Who broke, by entrant.
    pub(super) broke: Vec<bool>,
    cells: Vec<Cell<'a>>,
}

impl<'a> Cells<'a> {
    pub(super) fn of(race: &'a Race, units: &Units) -> Cells<'a> {
        let (entrants, loads) = (race.header.entrants.len(), race.loads.len());
        let mut trials: Vec<Vec<Tried<'_>>> = vec![vec![]; entrants * loads];
        for (round, unit) in race.rounds.iter().zip(&units.of_round) {
            for trial in &round.trials {
                trials[trial.entrant * loads + trial.load].push((*unit, trial));
            }
        }
        let measure = race.header.experiment.workload.kind.measure();
        let closed = |load: &record::Load| load.rate_per_s.is_none() || measure != Measure::Latency;
        let cell = |(index, trials): (usize, Vec<Tried<'a>>)| {
            Cell::of(&trials, units.count, closed(&race.loads[index % loads]), measure)
        };
        Cells {
            loads,
            entrants,
            units: units.count,
            measure,
            closed: race.loads.iter().map(closed).collect(),
            broke: (0..entrants).map(|entrant| race.broke(entrant).is_some()).collect(),
            cells: trials.into_iter().enumerate().map(cell).collect(),
        }
    }

    pub(super) fn cell(&self, entrant: usize, load: usize) -> &Cell<'a> {
        &self.cells[entrant * self.loads + load]
    }

    pub(super) fn loads(&self) -> usize {
        self.loads
    }
}

impl<'a> Cell<'a> {
    fn of(all: &[Tried<'a>], units: usize, closed: bool, measure: Measure) -> Cell<'a> {
        let (void, counted): (Vec<Tried<'a>>, Vec<Tried<'a>>) =
            all.iter().partition(|(_, trial)| trial.void.is_some());
        let mut by_unit: Vec<(Hdr<u64>, u64)> = vec![(Histogram::empty_hdr(), 0); units];
        let mut answered = vec![(0, 0); units];
        let (mut service, mut lag) = (Histogram::empty_hdr(), Histogram::empty_hdr());
        for (unit, trial) in &counted {
            let (response, beyond) = &mut by_unit[*unit];
            trial.latencies.response.add_to(response);
            *beyond += if closed { 0 } else { trial.unanswered() };
            trial.latencies.service.add_to(&mut service);
            trial.latencies.lag.add_to(&mut lag);
            answered[*unit].0 += trial.work(measure);
            answered[*unit].1 += trial.duration_ns;
        }
        let mut response = Histogram::empty_hdr();
        by_unit.iter().for_each(|(unit, _)| response.add(unit).expect("all have the same bounds"));
        let bins: Vec<_> = by_unit.iter().map(|(unit, _)| Histogram::from(unit)).collect();
        let sparse: Vec<Sparse<'_>> = bins
            .iter()
            .zip(&by_unit)
            .map(|(bins, (_, beyond))| Sparse { bins: bins.bins(), beyond: *beyond })
            .collect();
        Cell {
            columns: Columns::new(&sparse),
            beyond: by_unit.iter().map(|(_, beyond)| beyond).sum(),
            unit_of: counted.iter().map(|(unit, _)| *unit).collect(),
            trials: counted.into_iter().map(|(_, trial)| trial).collect(),
            void: void.into_iter().map(|(_, trial)| trial).collect(),
            response,
            service,
            lag,
            answered,
        }
    }

    /// The sum of a figure over the trials that count.
    pub(super) fn sum(&self, figure: impl Fn(&TrialRecord) -> u64) -> u64 {
        self.trials.iter().map(|trial| figure(trial)).sum()
    }

    /// Expected answers per second of measured time.
    pub(super) fn achieved_rps(&self) -> Option<f64> {
        let duration_ns = self.sum(|trial| trial.duration_ns);
        (duration_ns > 0).then(|| self.sum(|trial| trial.answered_in_time) as f64 / duration_ns as f64 * 1e9)
    }

    /// The CPU time of a node over the trials that count.
    pub(super) fn cpu(&self, node: impl Fn(&TrialRecord) -> CpuTime) -> CpuTime {
        let mut sum = CpuTime::default();
        self.trials.iter().for_each(|trial| sum += node(trial));
        sum
    }

    /// What the stacks counted over the trials that count.
    pub(super) fn counters(&self) -> Counters {
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
        })
    }
}
