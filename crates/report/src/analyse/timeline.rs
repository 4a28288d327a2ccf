//! What each trial reached, in the order of rounds.

use record::{Histogram, Measure, RaceRecord, TrialRecord};
use stats::Percentile;

use super::quantiles::quantiles;
use crate::quantities::Quantiles;
use crate::timeline::{Quantity, Timeline, TimelineRow};

/// More steps than this are not seen on a screen, and the page grows with them.
const STEPS_MAX: u32 = 100;

/// A figure of a single trial.
type Figure = fn(&TrialRecord) -> u64;

/// The counters of a trial; a row that is zero throughout is left out.
const COUNTS: [(Quantity, Figure); 7] = [
    (Quantity::Void, |trial| u64::from(trial.void.is_some())),
    (Quantity::Unanswered, |trial| trial.missed),
    (Quantity::Retransmits, |trial| trial.counters.retransmits),
    (Quantity::TimeOuts, |trial| trial.counters.rto_expiries),
    (Quantity::Stolen, |trial| trial.client_cpu.steal_ns + trial.server_cpu.steal_ns),
    (Quantity::Starved, |trial| trial.counters.client_runqueue_ns),
    (Quantity::Drops, |trial| {
        let counters = &trial.counters;
        counters.softnet_drops + counters.udp_errors + counters.wire_drops
    }),
];

/// The percentiles of a trial, in order of preference.
type OfTrial = fn(&Quantiles) -> Option<u64>;
const LADDER: [(Percentile, OfTrial); 3] =
    [(Percentile::P99, |of| of.p99), (Percentile::P90, |of| of.p90), (Percentile::P50, |of| of.p50)];

/// The course of a race; `None` without a round that could follow another, and where instructions were counted.
pub(super) fn timeline(race: &RaceRecord) -> Option<Timeline> {
    if race.rounds.len() < 2 || race.header.experiment.exact() {
        return None;
    }
    let rounds = race.rounds.iter().map(|round| round.round).max()?.checked_add(1)?;
    let rounds_a_step = rounds.div_ceil(STEPS_MAX);
    let pairs = race.rounds.windows(2).filter(|pair| pair[0].build != pair[1].build);
    let builds = pairs.map(|pair| pair[1].round).collect();
    let ends_s = ends(race, rounds.div_ceil(rounds_a_step) as usize, rounds_a_step);
    let mut timeline = Timeline { rounds, rounds_a_step, builds, ends_s, loads: vec![] };
    timeline.loads =
        (0..race.loads.len()).map(|load| Course::of(race, &timeline, load).rows(race, load)).collect();
    Some(timeline)
}

/// When the last round of each step ended; `None` unless every step has an end, later than the one before.
fn ends(race: &RaceRecord, steps: usize, rounds_a_step: u32) -> Option<Vec<f64>> {
    let mut ends = vec![0.0; steps];
    for round in &race.rounds {
        let step = (round.round / rounds_a_step) as usize;
        ends[step] = f64::max(ends[step], round.ended_s?);
    }
    let begins = std::iter::once(&0.0).chain(&ends);
    begins.zip(&ends).all(|(begin, end)| begin < end && end.is_finite()).then_some(ends)
}

/// The trials of a load by candidate and step.
struct Course<'a> {
    trials: Vec<Vec<Vec<&'a TrialRecord>>>,
}

impl<'a> Course<'a> {
    fn of(race: &'a RaceRecord, timeline: &Timeline, load: usize) -> Course<'a> {
        let mut trials = vec![vec![vec![]; timeline.steps()]; race.header.entrants.len()];
        for round in &race.rounds {
            let step = (round.round / timeline.rounds_a_step) as usize;
            for trial in round.trials.iter().filter(|trial| trial.load == load) {
                trials[trial.entrant][step].push(trial);
            }
        }
        Course { trials }
    }

    fn rows(&self, race: &RaceRecord, load: usize) -> Vec<TimelineRow> {
        let measure = race.header.experiment.workload.kind.measure();
        let closed = race.loads[load].rate_per_s.is_none();
        let rate = self.row(Quantity::Rate(measure.unit()), |trials| {
            trials.iter().filter_map(|trial| rate(trial, measure)).reduce(f64::min)
        });
        let counts = COUNTS.iter().map(|(quantity, figure)| {
            self.row(*quantity, |trials| Some(all(trials).map(figure).sum::<u64>() as f64))
        });
        let counted = |row: &TimelineRow| row.series.iter().flatten().flatten().any(|value| *value > 0.0);
        let rows =
            std::iter::once(rate).chain(self.percentile(closed, measure)).chain(counts.filter(counted));
        rows.collect()
    }

    /// The highest percentile that most trials have enough samples for.
    fn percentile(&self, closed: bool, measure: Measure) -> Option<TimelineRow> {
        if measure != Measure::Latency {
            return None;
        }
        let of_trial = |trial: &TrialRecord| {
            let mut response = Histogram::empty_hdr();
            let (times, beyond) = trial.counted();
            times.add_to(&mut response);
            quantiles(&response, if closed { 0 } else { beyond })
        };
        let known: Vec<Vec<Vec<Quantiles>>> = self
            .trials
            .iter()
            .map(|steps| steps.iter().map(|trials| counted(trials).map(of_trial).collect()).collect())
            .collect();
        let count = || known.iter().flatten().flatten();
        let enough =
            |of: &OfTrial| 2 * count().filter(|quantiles| of(quantiles).is_some()).count() > count().count();
        let (percentile, of) = LADDER.iter().find(|(_, of)| enough(of))?;
        let greatest = |step: &Vec<Quantiles>| step.iter().filter_map(of).max().map(|ns| ns as f64);
        let series = known.iter().map(|steps| steps.iter().map(greatest).collect()).collect();
        Some(TimelineRow { quantity: Quantity::Percentile(percentile.label()), series })
    }

    fn row(&self, quantity: Quantity, value: impl Fn(&[&TrialRecord]) -> Option<f64>) -> TimelineRow {
        let of_step = |trials: &Vec<&TrialRecord>| if trials.is_empty() { None } else { value(trials) };
        let series = self.trials.iter().map(|steps| steps.iter().map(of_step).collect()).collect();
        TimelineRow { quantity, series }
    }
}

fn all<'t>(trials: &[&'t TrialRecord]) -> impl Iterator<Item = &'t TrialRecord> {
    trials.iter().copied()
}

/// The trials that count.
fn counted<'t>(trials: &[&'t TrialRecord]) -> impl Iterator<Item = &'t TrialRecord> {
    all(trials).filter(|trial| trial.void.is_none())
}

/// What a trial that counts got done per second.
fn rate(trial: &TrialRecord, measure: Measure) -> Option<f64> {
    let unit = match measure {
        Measure::Latency | Measure::Packets | Measure::Frames => 1e9,
        Measure::Bandwidth => 8e3,
    };
    let counts = trial.void.is_none() && trial.duration_ns > 0;
    counts.then(|| trial.work(measure) as f64 / trial.throughput_ns() as f64 * unit)
}
