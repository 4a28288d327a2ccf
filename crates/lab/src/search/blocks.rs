//! Blocks on real topologies: all arms stand, are visited in mirrored order, and are taken down.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use plan::Unit;
use record::{Load, SearchBlock, SearchVisit, TrialRecord};
use stats::Random;
use stats::search::{Arm, Response, Rules, SearchConclusion, SearchResult, Space, Stage, Trials, Unfit};

use super::factors::Factors;
use super::objective::{Reading, VisitMetric};
use super::{SLICES_MAX, SearchEvent, Sought, summary};
use crate::machine::{drifted, machine};
use crate::race::valid_trial;
use crate::trial::Method;
use crate::trial_key::TrialKey;
use crate::{BuiltTopology, Contender, Event, LabError, Race};

/// Why there are no more blocks.
#[derive(Debug)]
pub(super) enum Halt {
    /// It was asked to stop.
    Stopped,
    /// The incumbent does not work, or the machine does not.
    Failed(Box<LabError>),
}

/// What a search visits, and with what.
pub(super) struct Blocks<'a> {
    pub(super) race: &'a Race,
    pub(super) factors: Factors,
    pub(super) sought: &'a Sought,
    pub(super) claim: &'a Unit,
    /// What every slice is loaded with.
    pub(super) load: Load,
    /// Slices of a visit, an even number.
    pub(super) slices: u32,
    /// When the search began.
    pub(super) started: Instant,
    /// Everything seen so far.
    pub(super) record: record::SearchRecord,
    pub(super) emit: &'a mut dyn FnMut(SearchEvent),
    /// Of the order of building and visiting.
    pub(super) random: Random,
    /// Selects the instants of random arrivals.
    pub(super) seed: u64,
    /// What blocks took so far, in seconds, and how many visits they were.
    pub(super) spent: (f64, f64),
}

/// An arm in a block.
struct Runner {
    arm: Arm,
    state: State,
    trials: Vec<TrialRecord>,
}

enum State {
    Standing(Box<BuiltTopology>),
    Broken(String),
    /// Taken down after its last slice.
    Gone,
}

impl Trials for Blocks<'_> {
    type Error = Halt;

    fn block(&mut self, arms: &[Arm]) -> Result<Vec<Response>, Halt> {
        let began = Instant::now();
        (self.emit)(SearchEvent::Block {
            done: self.record.blocks.len(),
            arms: arms.len(),
            spent: self.started.elapsed(),
            budget: self.sought.budget,
        });
        let before = self.facts()?;
        let mut runners = self.stand_up(arms)?;
        let visited = self.visit_all(&mut runners);
        let taken_down = take_down(&mut runners);
        visited?;
        taken_down?;
        if let Some(what) = drifted(&before, &self.facts()?) {
            let void = record::Void::FactsChanged { what };
            let trials = runners.iter_mut().flat_map(|runner| &mut runner.trials);
            trials.for_each(|trial| trial.void = Some(void.clone()));
        }
        let visits: Vec<SearchVisit> = runners.iter().map(|runner| self.seen(runner)).collect();
        let responses = self.responses(&visits);
        self.record.blocks.push(SearchBlock { visits });
        self.spent.0 += began.elapsed().as_secs_f64();
        self.spent.1 += runners.len() as f64;
        Ok(responses)
    }

    fn visits_left(&self) -> f64 {
        let left = self.sought.budget.saturating_sub(self.started.elapsed()).as_secs_f64();
        left / self.visit_s()
    }

    fn ended(&mut self, stage: &Stage) -> Result<(), Halt> {
        let stage = summary::stage(stage, self.sought.objective.figure, &self.factors);
        self.record.stages.push(stage.clone());
        self.record.wall_s = self.started.elapsed().as_secs_f64();
        self.record.save(&self.race.options.record).map_err(LabError::from)?;
        (self.emit)(SearchEvent::Stage(stage));
        Ok(())
    }
}

/// A noisy visit becomes so many times as long.
const LONGER: u32 = 3;

impl Blocks<'_> {
    /// Searches. Where visits scatter by too much for that, it is tried again with longer ones, as long as calibrations
    /// take no more than a third of the budget.
    pub(super) fn search(&mut self, space: &Space, rules: &Rules) -> Result<SearchResult, Halt> {
        loop {
            let found = stats::search::search(space, rules, self)?;
            let longer = self.slices * LONGER;
            let affordable = 3 * (self.started.elapsed() + self.spent_on(longer)) < self.sought.budget;
            let noisy = matches!(found.answer, SearchConclusion::Unfit(Unfit::Noisy { .. }));
            if !noisy || longer > SLICES_MAX || !affordable {
                return Ok(found);
            }
            (self.slices, self.spent) = (longer, (0.0, 0.0));
        }
    }

    /// What as many visits as there were would take with so many slices, at most.
    fn spent_on(&self, slices: u32) -> Duration {
        Duration::from_secs_f64(self.spent.0 * f64::from(slices) / f64::from(self.slices))
    }

    /// Ends the search: its record, with the answer written into it.
    pub(super) fn answered(mut self, found: &SearchResult) -> record::SearchRecord {
        let visit_s = self.visit_s();
        self.record.answer = Some(summary::answer(found, self.sought, &self.factors, &self.record, visit_s));
        self.record
    }

    /// What a visit takes, in seconds.
    fn visit_s(&self) -> f64 {
        let (seconds, visits) = self.spent;
        (seconds / visits.max(1.0)).max(1e-3)
    }

    fn facts(&self) -> Result<record::Machine, Halt> {
        Ok(machine(&self.race.method.cpus, self.race.options.scheduling)?)
    }

    /// Builds the incumbent and the arms, in shuffled order, so that none is always the first.
    fn stand_up(&mut self, arms: &[Arm]) -> Result<Vec<Runner>, Halt> {
        let all: Vec<Arm> = [Arm::default()].iter().chain(arms).cloned().collect();
        let mut order: Vec<usize> = (0..all.len()).collect();
        self.random.shuffle(&mut order);
        let mut runners: Vec<(usize, Runner)> = Vec::with_capacity(all.len());
        for at in order {
            match self.stand(at, &all[at]) {
                Ok(runner) => runners.push((at, runner)),
                Err(halt) => {
                    let mut built: Vec<Runner> = runners.into_iter().map(|(_, runner)| runner).collect();
                    take_down(&mut built)?;
                    return Err(halt);
                }
            }
        }
        runners.sort_by_key(|(at, _)| *at);
        Ok(runners.into_iter().map(|(_, runner)| runner).collect())
    }

    /// Builds one of them. That an arm cannot be built is a result; that the incumbent cannot is an error.
    fn stand(&mut self, at: usize, arm: &Arm) -> Result<Runner, Halt> {
        if self.race.options.stop.load(Ordering::Relaxed) {
            return Err(Halt::Stopped);
        }
        let proven = self.factors.contender(arm)?;
        let name = if at == 0 { "incumbent".to_owned() } else { format!("arm {at}") };
        let state = match proven.unmet.as_slice() {
            [] => match self.race.stand(&Contender { name, ..proven }, self.claim) {
                Ok(built) => State::Standing(Box::new(built)),
                Err(error) if arm.is_incumbent() => return Err(error.into()),
                Err(error) => State::Broken(format!("could not {error}")),
            },
            reasons => State::Broken(reasons.join("; ")),
        };
        Ok(Runner { arm: arm.clone(), state, trials: Vec::new() })
    }

    /// Visits all in a shuffled order and then in its reverse, as often as it takes.
    fn visit_all(&mut self, runners: &mut [Runner]) -> Result<(), Halt> {
        for _ in 0..self.slices / 2 {
            // All have the same random arrivals in a pass, and others in the next.
            self.seed = self.seed.wrapping_add(1);
            let mut order: Vec<usize> = (0..runners.len()).collect();
            self.random.shuffle(&mut order);
            let back: Vec<usize> = order.iter().rev().copied().collect();
            for at in order.into_iter().chain(back) {
                self.visit(&mut runners[at])?;
            }
        }
        Ok(())
    }

    fn visit(&mut self, runner: &mut Runner) -> Result<(), Halt> {
        if self.race.options.stop.load(Ordering::Relaxed) {
            return Err(Halt::Stopped);
        }
        let State::Standing(built) = &mut runner.state else { return Ok(()) };
        let emit = &mut *self.emit;
        let mut emit = |event: Event| emit(event.into());
        let method = Method { seed: self.seed, ..self.race.method.clone() };
        let how = (&method, self.race.experiment.by_cpu);
        let visited =
            valid_trial(built.as_mut(), how, &self.load, TrialKey::NONE, &mut runner.trials, &mut emit);
        let Err(error) = visited else { return Ok(()) };
        if runner.arm.is_incumbent() {
            return Err(error.into());
        }
        let broken = State::Broken(format!("could not {error}"));
        if let State::Standing(built) = std::mem::replace(&mut runner.state, broken) {
            built.take_down()?;
        }
        Ok(())
    }

    /// The figures of a visit. One of which half does not count has none.
    fn seen(&self, runner: &Runner) -> SearchVisit {
        let valid: Vec<&TrialRecord> = runner.trials.iter().filter(|trial| trial.void.is_none()).collect();
        let void = u32::try_from(runner.trials.len() - valid.len()).unwrap_or(u32::MAX);
        let counts = 2 * valid.len() > self.slices as usize;
        let kind = self.race.experiment.workload.kind;
        let Load { rate_per_s, body_bytes, .. } = self.load;
        let reading = Reading { closed: rate_per_s.is_none(), measure: kind.measure(), body_bytes };
        let of = |figure: VisitMetric| figure.of(&valid, reading).filter(|_| counts);
        SearchVisit {
            arm: self.factors.places(&runner.arm),
            objective: of(self.sought.objective.figure),
            guards: self.sought.objective.guards(kind).into_iter().map(of).collect(),
            void,
            broken: match &runner.state {
                State::Standing(_) | State::Gone => None,
                State::Broken(why) => Some(why.clone()),
            },
        }
    }

    /// Every visit but the first against the first.
    fn responses(&self, visits: &[SearchVisit]) -> Vec<Response> {
        let [incumbent, arms @ ..] = visits else { return Vec::new() };
        let objective = self.sought.objective.figure;
        let guards = self.sought.objective.guards(self.race.experiment.workload.kind);
        let respond = |visit: &SearchVisit| {
            if let Some(why) = &visit.broken {
                return Response::Broken(why.clone());
            }
            let Some((value, of_incumbent)) = visit.objective.zip(incumbent.objective) else {
                return Response::Void;
            };
            let harm = |(at, guard): (usize, &VisitMetric)| {
                visit.guards[at].zip(incumbent.guards[at]).map(|(value, of)| -guard.gain(value, of))
            };
            let harms = guards.iter().enumerate().map(harm).collect();
            Response::Measured { gain: objective.gain(value, of_incumbent), harms }
        };
        arms.iter().map(respond).collect()
    }
}

/// Takes down what stands; its figures stay.
fn take_down(runners: &mut [Runner]) -> Result<(), Halt> {
    let mut failures = Vec::new();
    for runner in runners {
        if let State::Standing(_) = &runner.state
            && let State::Standing(built) = std::mem::replace(&mut runner.state, State::Gone)
        {
            failures.extend(built.take_down().err());
        }
    }
    failures.into_iter().next().map_or(Ok(()), |error| Err(error.into()))
}

impl From<LabError> for Halt {
    fn from(error: LabError) -> Halt {
        Halt::Failed(Box::new(error))
    }
}
