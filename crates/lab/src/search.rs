//! The search for the settings with which a candidate does best: `stats::search` on real topologies.
//!
//! A block builds the incumbent and the arms, each in namespaces of its own, and visits them in slices, in a shuffled
//! order and then in the reverse of it, so that a steady drift hits all alike; of two that is A B B A. Then everything
//! is taken down: what a build settles at differs from build to build, and is part of the noise between blocks.

mod blocks;
mod factors;
mod objective;
mod summary;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use linux::features::Facts;
use plan::Unit;
use record::{Candidate, Experiment, Load, SearchOption, SearchStage};
use stats::Random;
use stats::search::Rules;

use crate::candidate::contenders;
use crate::capacity::capacity;
use crate::exclusive::in_turn;
use crate::limits::possible;
use crate::machine::machine;
use crate::trial::connections;
use crate::{Event, Home, LabError, Race, RaceOptions, Wires};
use blocks::{Blocks, Halt};
use factors::Factors;
use objective::VisitMetric;

pub use factors::Factor;
pub use objective::Objective;

/// A search: the candidate, what may be set, the objective and the budget.
#[derive(Debug, Clone)]
pub struct Sought {
    /// The incumbent: the candidate with the settings that it has.
    pub candidate: Candidate,
    /// What may be set besides.
    pub factors: Vec<Factor>,
    /// What is to get better.
    pub objective: Objective,
    /// What it may take.
    pub budget: Duration,
    /// The smallest gain that must be found, as a share: 0.05 is 5 %. Response times and CPU time can fall
    /// by 0.9 at most.
    pub resolve: f64,
}

/// News for a person that waits.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the names say it")]
pub enum SearchEvent {
    Race(Event),
    /// A setting cannot be made here, and is left out.
    CannotSet(SearchOption),
    /// Two settings contradict each other, and are not tried together; which, and why.
    NotTogether(String),
    /// The load is known: requests per second, or a closed loop, and the incumbent's capacity if it was measured.
    Load(Option<f64>, Option<f64>),
    Block {
        /// How many came before.
        done: usize,
        /// How many arms it has besides the incumbent.
        arms: usize,
        /// What the search took so far.
        spent: Duration,
        /// What it may take.
        budget: Duration,
    },
    /// A stage is over and written down.
    Stage(SearchStage),
}

/// A search that is ready to run.
#[derive(Debug)]
pub struct Search {
    race: Race,
    factors: Factors,
    sought: Sought,
}

/// The largest share by which a response time or a CPU time may be required to fall.
const FALL_MAX: f64 = 0.9;
/// Slices of a visit, at least; an even number, since every order is followed by its reverse.
const SLICES_MIN: u32 = 4;
/// Slices of a visit, at most.
const SLICES_MAX: u32 = 40;
/// What a slice takes beside itself, to read counters and to wait for the last answers.
const ASIDE: Duration = Duration::from_millis(15);
/// What it takes to build a topology, to start its server, and to take it down. Seen here: 80 to 250 ms.
const BUILD: Duration = Duration::from_millis(150);

impl Search {
    /// Checks everything that can be checked before the first change.
    pub fn prepare(
        mut experiment: Experiment,
        sought: Sought,
        options: RaceOptions,
        facts: &Facts,
        home: Home,
    ) -> Result<Search, LabError> {
        Wires::of(&experiment.underlay).possible(facts)?;
        let refused = |what: &str, why: String| LabError::Experiment { what: what.to_owned(), why };
        let kind = experiment.workload.kind;
        if let Some(why) = sought.objective.unfit_for(kind) {
            return Err(refused(&format!("objective {}", sought.objective), why));
        }
        if sought.resolve > FALL_MAX && !sought.objective.figure.is_better_high() {
            let what = format!("a gain of {}", summary::gain_text(sought.resolve));
            return Err(refused(&what, format!("{} can fall by 90 % at most", sought.objective)));
        }
        if let [_, _, ..] = experiment.workload.body_bytes.as_slice() {
            return Err(refused(
                "several sizes of bodies",
                "a search is at one load: say which one".to_owned(),
            ));
        }
        if kind == record::WorkloadKind::Packets {
            let why = "a search compares settings under requests or streams".to_owned();
            return Err(refused("packets", why));
        }
        if kind == record::WorkloadKind::Verbs {
            let why = "messages by RDMA verbs pass no link to which a setting belongs".to_owned();
            return Err(refused("verbs", why));
        }
        if sought.factors.is_empty() {
            return Err(refused("no knobs", "a search needs settings to try".to_owned()));
        }
        experiment.candidates = vec![Candidate { required: true, ..sought.candidate.clone() }];
        experiment.profile = false;
        experiment.why_late = false;
        let mut found = contenders(&experiment.candidates, facts, &options.plugins)?;
        // The reference and its control come first; the host as it is is the reference.
        found.remove(1);
        crate::prove(&mut found, facts, crate::MachineUse::Shared)?;
        let incumbent = found[found.len() - 1].clone();
        let factors = Factors::prove(sought.candidate.clone(), incumbent, &sought.factors, facts)?;
        let standing = factors.space.standing_max();
        let race = Race::of(experiment, options, home, found, standing)?;
        if race.is_crowded(factors.incumbent()) {
            let why = race.crowded().unwrap_or_default();
            return Err(refused(&factors.incumbent().name, why));
        }
        let search = Search { race, factors, sought };
        search.affordable()?;
        Ok(search)
    }

    /// Runs it. Whatever happens, what was built is taken down and what was found is in the record file. The record is
    /// without an answer if the search was asked to stop, and there is none if that was before it began.
    pub fn run(self, emit: &mut dyn FnMut(SearchEvent)) -> Result<Option<record::SearchRecord>, LabError> {
        let (home, stop) = (self.race.home.clone(), Arc::clone(&self.race.options.stop));
        in_turn(&home, &stop, emit, |claim, emit| self.recorded(claim, emit))
    }

    /// Searches, and writes down what is found.
    fn recorded(
        mut self,
        claim: &Unit,
        emit: &mut dyn FnMut(SearchEvent),
    ) -> Result<record::SearchRecord, LabError> {
        let started = Instant::now();
        for (option, _) in self.factors.options.iter().filter(|(option, _)| !option.unmet.is_empty()) {
            emit(SearchEvent::CannotSet(option.clone()));
        }
        let apart = self.factors.apart_text();
        apart.iter().cloned().for_each(|what| emit(SearchEvent::NotTogether(what)));
        let chosen = self.race.steer(claim)?;
        let mut record = self.header()?;
        record.machine.facts.insert("receive steering".to_owned(), chosen.describe());
        if !apart.is_empty() {
            record.machine.facts.insert("not tried together".to_owned(), apart.join("; "));
        }
        if let Some(why) = self.race.crowded() {
            record.machine.facts.insert("switches".to_owned(), why.clone());
            emit(Event::Crowded { why }.into());
        }
        emit(Event::Steering { chosen }.into());
        let path = self.race.options.record.clone();
        record.save(&path)?;
        emit(Event::Recording { path: path.clone() }.into());
        let Some(load) = self.load(claim, emit)? else { return Ok(record) };
        record.rate_per_s = load.rate_per_s;
        let slices = self.slices(&load)?;
        let rules = self.rules();
        let space = self.factors.space.clone();
        let mut blocks = Blocks {
            race: &self.race,
            factors: self.factors,
            sought: &self.sought,
            claim,
            load,
            slices,
            started,
            record,
            emit,
            random: Random::from_seed(self.race.seed),
            seed: self.race.seed,
            spent: (0.0, 0.0),
        };
        let found = blocks.search(&space, &rules);
        let mut record = match &found {
            Ok(found) => blocks.answered(found),
            Err(_) => blocks.record,
        };
        record.wall_s = started.elapsed().as_secs_f64();
        record.save(&path)?;
        match found {
            Ok(_) | Err(Halt::Stopped) => Ok(record),
            Err(Halt::Failed(error)) => Err(*error),
        }
    }

    /// What the search is held to.
    fn rules(&self) -> Rules {
        let high = self.sought.objective.figure.is_better_high();
        let share = self.sought.resolve;
        Rules {
            seed: self.race.seed,
            resolve_ln: if high { share.ln_1p() } else { -(-share).ln_1p() },
            guards: self.guards().into_iter().map(VisitMetric::bearable_ln).collect(),
        }
    }

    /// What is known before the first packet.
    fn header(&self) -> Result<record::SearchRecord, LabError> {
        let Race { experiment, options, method, seed, .. } = &self.race;
        Ok(record::SearchRecord {
            schema: record::SCHEMA,
            hostgap: options.own.version.to_owned(),
            started_unix_s: linux::clock::unix_s(),
            seed: *seed,
            experiment: experiment.clone(),
            machine: machine(&method.cpus, options.scheduling)?,
            incumbent: self.factors.incumbent().name.clone(),
            objective: self.objective().to_string(),
            guards: self.guards().iter().map(ToString::to_string).collect(),
            rate_per_s: None,
            budget_s: self.sought.budget.as_secs_f64(),
            options: self.factors.options.iter().map(|(option, _)| option.clone()).collect(),
            blocks: Vec::new(),
            stages: Vec::new(),
            answer: None,
            wall_s: 0.0,
        })
    }

    fn guards(&self) -> Vec<VisitMetric> {
        self.sought.objective.guards(self.race.experiment.workload.kind)
    }

    /// The objective with the rate at which it is measured.
    fn objective(&self) -> Objective {
        let Experiment { workload, rates, .. } = &self.race.experiment;
        Objective { rate: self.sought.objective.rate_of(workload.kind, rates), ..self.sought.objective }
    }

    /// The load of every visit. A rate is a share of the incumbent's capacity, or must be within it. `None` if asked to
    /// stop.
    fn load(&mut self, claim: &Unit, emit: &mut dyn FnMut(SearchEvent)) -> Result<Option<Load>, LabError> {
        let body_bytes = self.race.experiment.workload.body_bytes.first().copied().unwrap_or(100);
        let Some(rate) = self.objective().rate else {
            emit(SearchEvent::Load(None, None));
            return Ok(Some(Load::closed_loop(body_bytes)));
        };
        let mut standing = self.race.stand(self.factors.incumbent(), claim)?;
        let stop = || self.race.options.stop.load(Ordering::Relaxed);
        let found = standing.awake(|standing| capacity(standing, &self.race.method, body_bytes, stop));
        let connections = connections(&mut standing, body_bytes);
        standing.take_down()?;
        let Some(found) = found? else { return Ok(None) };
        possible(&[rate], &found)?;
        self.race.method.learn(&found, connections);
        let load = found.load(&rate, self.race.experiment.workload.arrivals);
        emit(SearchEvent::Load(load.rate_per_s, Some(found.rate_per_s)));
        Ok(Some(load))
    }

    /// How many slices a visit has: enough for the objective's percentile.
    fn slices(&self, load: &Load) -> Result<u32, LabError> {
        let (VisitMetric::Percentile(percentile), Some(rate)) =
            (self.sought.objective.figure, load.rate_per_s)
        else {
            return Ok(SLICES_MIN);
        };
        let slice = self.race.experiment_slice();
        let needed = percentile.samples_needed() as f64;
        // A slice or two may not count.
        let slices = (1.25 * needed / (rate * slice.as_secs_f64())).ceil();
        let slices = (slices / 2.0).ceil() * 2.0;
        if slices > f64::from(SLICES_MAX) {
            let what = format!("{} of {rate:.0} requests/s", percentile.label());
            let why = format!(
                "it takes {needed:.0} answers a visit, which are {slices:.0} slices of {} ms, and {SLICES_MAX} are the most: \
                 choose a lower percentile, a higher rate or longer slices",
                slice.as_millis()
            );
            return Err(LabError::Experiment { what, why });
        }
        Ok((slices as u32).max(SLICES_MIN))
    }

    /// That the budget is not beyond all hope. What it resolves is known after the calibration.
    fn affordable(&self) -> Result<(), LabError> {
        let Experiment { warmup_ms, underlay, workload, .. } = &self.race.experiment;
        if workload.kind == record::WorkloadKind::Download {
            // A slice is as long as its objects take.
            return Ok(());
        }
        let warmup = Wires::of(underlay).patience().warmup(Duration::from_millis((*warmup_ms).into()));
        let visit = BUILD + (self.race.experiment_slice() + warmup + ASIDE) * SLICES_MIN;
        let visits = self.factors.space.visits_min();
        let needed = visit.mul_f64(visits);
        if needed <= self.sought.budget {
            return Ok(());
        }
        Err(LabError::Experiment {
            what: format!("a budget of {}", summary::span(self.sought.budget.as_secs_f64())),
            why: format!(
                "a search among {} settings takes {visits:.0} visits of about {:.1} s at least, which is {}",
                self.factors.space.options(),
                visit.as_secs_f64(),
                summary::span(needed.as_secs_f64())
            ),
        })
    }
}

impl Race {
    /// The measured part of a trial, as long as the wire makes it.
    fn experiment_slice(&self) -> Duration {
        Wires::of(&self.experiment.underlay).patience().slice(self.method.slice)
    }
}

impl From<Event> for SearchEvent {
    fn from(event: Event) -> SearchEvent {
        SearchEvent::Race(event)
    }
}
