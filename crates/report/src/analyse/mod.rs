//! From a record to a [`Summary`]: trials are merged, resampled, compared and put into words.

mod by_cpu;
mod card_counts;
mod carried;
mod clients;
mod describe;
mod exact;
mod late;
mod measured;
mod pairs;
mod profile;
mod published;
mod quantiles;
mod rates;
mod reason;
mod sentence;
mod stalls;
mod sweep;
mod tail;
mod timeline;
mod two_levels;
mod until;

use std::cmp::Reverse;

use record::{Entrant, Measure, RaceRecord, Statistic, TrialRecord};
use verdict::{Cells, Comparisons, ResamplingUnit, ResamplingUnits, Shortfall};

use crate::quantities::{Load, Ratio, Ratios};
use crate::summary::{Broke, Candidate, Noise, Progress, Role, SCHEMA, Summary};
pub(crate) use late::late;
pub use pairs::map;
pub(crate) use pairs::named;
pub(crate) use profile::profiles;

/// Computes the results of a race. A record gives an identical summary on every machine.
pub fn analyse(race: &RaceRecord) -> Summary {
    let units = ResamplingUnits::of(race);
    let cells = Cells::of(race, &units);
    let comparisons = Comparisons::of(&cells, race.header.seed);
    let candidates = candidates(race, &cells, &comparisons);
    let noise = noise(race, &cells, &comparisons);
    let mut experiment = race.header.experiment.clone();
    experiment.published.clear();
    let compared = published::compared(race, &cells);
    let exact = exact::exact(race);
    Summary {
        schema: SCHEMA,
        hostgap: race.header.hostgap.clone(),
        started_unix_s: race.header.started_unix_s,
        seed: race.header.seed,
        experiment,
        machine: clients::machine(race),
        server: race.header.server.clone(),
        pair: race.header.pair.clone(),
        progress: progress(race),
        capacities: race.capacities.clone(),
        loads: race.loads.iter().map(|of| load(race, of)).collect(),
        verdict: match exact.as_slice() {
            [] => sentence::verdict(race, &cells, &comparisons, &candidates),
            counted => exact::sentence(counted, race),
        },
        notes: notes(race, &cells, &units, &noise),
        sweep: sweep::swept(race, &comparisons),
        timeline: timeline::timeline(race),
        witness: race.witness.clone(),
        until: until::pursued(race, &cells, &comparisons),
        exact,
        candidates,
        noise,
        agreements: compared.agreements,
        agreement: compared.sentence,
        profiles: profiles(
            &race.profiles,
            &race.header.entrants,
            &race.loads,
            race.header.experiment.workload.kind.measure(),
        ),
        late: late(&race.late, &race.header.entrants, &race.loads),
        published: compared.figures,
    }
}

fn load(race: &RaceRecord, load: &record::Load) -> Load {
    Load {
        body_bytes: load.body_bytes,
        requested_rps: load.rate_per_s,
        of_capacity: load.of_capacity,
        measure: race.header.experiment.workload.kind.measure(),
    }
}

fn progress(race: &RaceRecord) -> Progress {
    let trials = || race.rounds.iter().flat_map(|round| &round.trials);
    let void: Vec<&TrialRecord> = trials().filter(|trial| trial.void.is_some()).collect();
    let mut void_reasons = describe::void_reasons(&void);
    void_reasons.sort_by_key(|reason| Reverse(reason.trials));
    let rounds = race.rounds.len() as u32;
    let rounds_missing = race.missing_rounds().iter().map(|range| range.end() - range.start() + 1).sum();
    Progress {
        // A race that ends for what it sees was asked for as many as it took.
        rounds_asked: match race.header.experiment.until {
            Some(_) => rounds + rounds_missing,
            None => race.header.experiment.rounds,
        },
        rounds,
        rounds_missing,
        builds: ResamplingUnits::builds(race).len() as u32,
        wall_s: race.end.as_ref().map(|end| end.wall_s),
        stopped: race.end.as_ref().and_then(|end| end.stopped.clone()),
        trials: trials().count() as u64,
        void_trials: void.len() as u64,
        void_reasons,
    }
}

fn candidates(race: &RaceRecord, cells: &Cells<'_>, comparisons: &Comparisons) -> Vec<Candidate> {
    let candidate = |(index, entrant): (usize, &Entrant)| {
        let runnable = entrant.unmet.is_empty();
        let rates = if runnable { rates::rates(race, cells, comparisons, index) } else { vec![] };
        let closed = rates.iter().find(|rate| rate.requested_rps.is_none());
        let found_before = race.capacities.first().filter(|_| index == 0).map(|capacity| capacity.rate_per_s);
        Candidate {
            name: entrant.name.clone(),
            path: entrant.path.clone(),
            stands_for: entrant.stands_for.clone(),
            role: role(index),
            runnable,
            reasons: entrant.unmet.clone(),
            broke: race.broke(index).map(|(round, why)| Broke { round: round + 1, why: why.to_owned() }),
            commands: entrant.commands.clone(),
            settings: entrant.settings.clone(),
            mtu: entrant.mtu,
            capacity_rps: closed.and_then(|rate| rate.achieved_rps).or(found_before),
            capacity_ratio: closed.and_then(|rate| rate.rps_ratio),
            rates,
        }
    };
    race.header.entrants.iter().enumerate().map(candidate).collect()
}

/// The index among the entrants determines the role: see [`record::Header::entrants`].
fn role(index: usize) -> Role {
    match index {
        0 => Role::Reference,
        1 => Role::Control,
        _ => Role::Contender,
    }
}

/// Of queues there is none: how much they differ depends on the length of a slice.
fn noise(race: &RaceRecord, cells: &Cells<'_>, comparisons: &Comparisons) -> Vec<Noise> {
    let entry = |(index, load): (usize, &record::Load)| {
        let compared = !Shortfall::is_past(race, cells, 1, index);
        let floor = |of: Statistic| comparisons.floor(index, of).filter(|_| compared).map(f64::exp_m1);
        Noise {
            body_bytes: load.body_bytes,
            requested_rps: load.rate_per_s,
            ratio: if compared { ratios(comparisons, 1, index) } else { Ratios::default() },
            p50_floor: floor(Statistic::P50),
            p99_floor: floor(Statistic::P99),
            typical_p99_floor: floor(Statistic::TypicalP99),
            rps_floor: floor(Statistic::Throughput).filter(|_| comparisons.is_closed(index)),
            named_floor: until::named_floor(race, comparisons, index).filter(|_| compared),
            verdict: comparisons.judged(1, index).verdict().filter(|_| compared),
        }
    };
    race.loads.iter().enumerate().map(entry).collect()
}

/// The ratio to the reference with its interval.
fn ratio(comparisons: &Comparisons, entrant: usize, load: usize, of: Statistic) -> Option<Ratio> {
    comparisons.interval(entrant, load, of).map(Ratio::from)
}

/// The ratios of all percentiles to the reference's; empty for the reference itself.
fn ratios(comparisons: &Comparisons, entrant: usize, load: usize) -> Ratios {
    let ratio = |of: Statistic| ratio(comparisons, entrant, load, of);
    Ratios {
        p50: ratio(Statistic::P50),
        p90: ratio(Statistic::P90),
        p99: ratio(Statistic::P99),
        p99_9: ratio(Statistic::P99_9),
        p99_99: ratio(Statistic::P99_99),
        p99_999: ratio(Statistic::P99_999),
        typical_p99: ratio(Statistic::TypicalP99),
    }
}

/// The unit in which a statistic is shown, and what its value in a comparison is multiplied by for that: throughput is
/// compared per nanosecond.
fn unit(of: Statistic, measure: Measure) -> (&'static str, f64) {
    let factor = match (of, measure) {
        (Statistic::Throughput, Measure::Latency | Measure::Packets | Measure::Frames) => 1e9,
        (Statistic::Throughput, Measure::Bandwidth) => 8e9 / 1e6,
        _ => return ("ns", 1.0),
    };
    (measure.unit(), factor)
}

/// What a reader must know to believe the figures.
fn notes(race: &RaceRecord, cells: &Cells<'_>, units: &ResamplingUnits, noise: &[Noise]) -> Vec<String> {
    let mut notes = race.notes.clone();
    notes.extend(race.header.machine.facts.get("connections").map(|fewer| format!("connections: {fewer}")));
    if race.end.is_none() {
        notes.push("the record has no end: the race was interrupted, or is still running".to_owned());
    }
    notes.extend(race.header.entrants.iter().enumerate().filter_map(|(index, entrant)| {
        let (round, why) = race.broke(index)?;
        Some(format!("{} broke in round {} and left the race: {why}", entrant.name, round + 1))
    }));
    if race.header.experiment.exact() {
        return notes;
    }
    if let Some(machine) = race.header.machine.facts.get("virtual machine") {
        notes.push(format!("this race ran in a virtual machine, {machine}"));
    }
    if let Some(card) = race.header.experiment.underlay.card {
        notes.push(format!(
            "times over emulated {card} cards mean nothing, nor do ratios and verdicts of them: read how often the cards interrupted, \
             and which CPU received what"
        ));
    }
    match (units.unit, units.count) {
        (_, 0 | 1) => notes.push("one round gives no interval, so nothing is compared".to_owned()),
        (ResamplingUnit::Round, _) => notes.push(
            "all rounds ran on one build of the topologies: the intervals do not include differences between builds"
                .to_owned(),
        ),
        (ResamplingUnit::Build, count) if count < 4 => {
            notes.push(format!("only {count} builds: the intervals are wide; more builds make them narrower"));
        }
        (ResamplingUnit::Build, _) => {}
    }
    let differs =
        |noise: &&Noise| noise.verdict.is_some_and(|verdict| verdict != verdict::Verdict::Indistinguishable);
    let loads = noise.iter().filter(differs).count();
    if loads > 0 {
        notes.push(format!(
            "the reference differs from itself at {loads} of {} loads: something other than the data path was not \
             the same for all, so differences of that size mean nothing",
            noise.len()
        ));
    }
    notes.extend(describe::silence(race, cells));
    notes.extend(two_levels::notes(race, cells));
    notes.extend(stalls::notes(race, cells));
    notes
}
