//! The builds of a race: topologies are made, raced for some rounds, and taken down.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use record::{Header, Line, Load, Round, Writer};
use stats::Random;

use super::arena::{Arena, LastBuild};
use super::contest::Contest;
use super::goal::StoppingRule;
use super::rounds::{Course, Rounded, visits};
use super::runners::{Runners, take_down, tell};
use super::{CONTENDERS_FROM, Finished};
use crate::machine::drifted;
use crate::{Event, LabError};

/// What outlives a build.
pub(crate) struct UnderWay {
    goal: StoppingRule,
    /// The number of the next build.
    build: u32,
    loads: Vec<Load>,
    broken: BTreeSet<usize>,
    rng: Random,
    /// Trials that are done, of all builds.
    done: u64,
    /// The machines when the race began.
    facts: record::Machine,
    started: Instant,
}

impl UnderWay {
    /// Whether there is another build.
    pub(crate) fn goes_on(&self) -> bool {
        self.goal.goes_on(self.build)
    }

    /// What each candidate gets in each round.
    pub(crate) fn adopt(&mut self, loads: Vec<Load>) {
        self.goal.announce(&loads);
        self.loads = loads;
    }
}

impl<A: Arena> Contest<'_, A> {
    /// Build after build, until the goal is reached.
    pub(crate) fn builds(
        &mut self,
        header: &Header,
        writer: &mut Writer,
        emit: &mut dyn FnMut(Event),
    ) -> Result<Finished, LabError> {
        let mut under_way = self.begin(header)?;
        while under_way.goes_on() {
            if !self.next_build(&mut under_way, writer, emit)? {
                return Ok(Finished::Stopped);
            }
        }
        under_way.goal.last_look().map_or(Ok(()), |look| writer.append(&Line::Look(look)))?;
        Ok(Finished::Whole)
    }

    /// A race of which nothing is built yet; its time begins now.
    pub(crate) fn begin(&mut self, header: &Header) -> Result<UnderWay, LabError> {
        Ok(UnderWay {
            goal: StoppingRule::of(header),
            build: 0,
            loads: Vec::new(),
            broken: BTreeSet::new(),
            rng: Random::from_seed(self.seed),
            done: 0,
            facts: self.arena.machine()?,
            started: Instant::now(),
        })
    }

    /// One build with its rounds, and the look after it, where there is one. `false` if asked to stop.
    pub(crate) fn next_build(
        &mut self,
        under_way: &mut UnderWay,
        writer: &mut Writer,
        emit: &mut dyn FnMut(Event),
    ) -> Result<bool, LabError> {
        if !self.build(under_way.build, under_way, writer, emit)? {
            return Ok(false);
        }
        under_way.build += 1;
        if let Some(look) = under_way.goal.look() {
            let (undecided, comparisons) = under_way.goal.undecided();
            let left = under_way.goal.left().unwrap_or_default();
            emit(Event::Looked { builds: look.builds, undecided, comparisons, left });
            writer.append(&Line::Look(look))?;
        }
        Ok(true)
    }

    /// One build with its rounds. `false` if asked to stop.
    fn build(
        &mut self,
        build: u32,
        under_way: &mut UnderWay,
        writer: &mut Writer,
        emit: &mut dyn FnMut(Event),
    ) -> Result<bool, LabError> {
        under_way.goal.begin();
        emit(Event::Building { build, of: under_way.goal.builds() });
        let stood = self.stand_up(under_way, emit)?;
        let Some(mut runners) = stood else { return Ok(false) };
        if under_way.loads.is_empty() {
            let Some(found) = self.loads(&mut runners, writer, emit)? else {
                tell(runners.take_down()?, emit);
                return Ok(false);
            };
            under_way.adopt(found);
        }
        let loads = under_way.loads.clone();
        let contenders = CONTENDERS_FROM..self.arena.names().len();
        let contenders = contenders.filter(|entrant| self.arena.can_run(*entrant)).count();
        let a_round: usize =
            loads.iter().map(|load| visits(load, runners.entrants(), contenders).len()).sum();
        let total = u64::from(self.experiment.rounds) * a_round as u64;
        let (rng, done) = (under_way.rng.clone(), under_way.done);
        let mut course = Course { loads: &loads, runners, contenders, rng, done, total };
        for round in under_way.goal.rounds_of(build) {
            if !self.recorded_round(&mut course, under_way, (round, build), writer, emit)? {
                tell(course.runners.take_down()?, emit);
                return Ok(false);
            }
        }
        let last = under_way.goal.builds() == Some(build + 1);
        if last && !self.after_rounds(&mut course, writer, emit)? {
            tell(course.runners.take_down()?, emit);
            return Ok(false);
        }
        (under_way.rng, under_way.done) = (course.rng, course.done);
        tell(course.runners.take_down()?, emit);
        Ok(true)
    }

    /// Makes all stand but those that broke or left, in shuffled order, so that none is always the first; those that
    /// stand in turn wait for it. `None` if asked to stop.
    fn stand_up(
        &mut self,
        under_way: &mut UnderWay,
        emit: &mut dyn FnMut(Event),
    ) -> Result<Option<Runners<A::Runner>>, LabError> {
        let all = 0..self.arena.names().len();
        let races = |entrant: &usize| {
            self.arena.can_run(*entrant)
                && !under_way.broken.contains(entrant)
                && under_way.goal.stands(*entrant)
        };
        let mut order: Vec<usize> = all.filter(races).collect();
        if self.arena.is_in_turn() {
            return Ok(Some(Runners::in_turn(order)));
        }
        under_way.rng.shuffle(&mut order);
        let mut standing = Vec::with_capacity(order.len());
        for entrant in order {
            if self.is_stopped() {
                tell(take_down(standing)?, emit);
                return Ok(None);
            }
            standing.push((entrant, self.arena.stand(entrant)?));
        }
        Ok(Some(Runners::together(standing)))
    }

    /// What was asked beside the rounds. `false` if asked to stop.
    fn after_rounds(
        &mut self,
        course: &mut Course<'_, A::Runner>,
        writer: &mut Writer,
        emit: &mut dyn FnMut(Event),
    ) -> Result<bool, LabError> {
        let Course { runners, loads, rng, .. } = course;
        let last = LastBuild { runners, method: &self.method, loads, rng };
        self.arena.after_rounds(last, self.experiment, writer, emit)
    }

    /// One round, judged and written down. `false` if asked to stop.
    fn recorded_round(
        &mut self,
        course: &mut Course<'_, A::Runner>,
        under_way: &mut UnderWay,
        (round, build): (u32, u32),
        writer: &mut Writer,
        emit: &mut dyn FnMut(Event),
    ) -> Result<bool, LabError> {
        let Some(rounded) = self.round(course, &under_way.goal, round, emit)? else { return Ok(false) };
        under_way.broken.extend(rounded.broken.iter().map(|broken| broken.entrant));
        let last_to_break = rounded.broken.last().cloned();
        let mut judged = self.judged(rounded, (round, build), &under_way.facts)?;
        let elapsed = under_way.started.elapsed();
        judged.ended_s = Some(elapsed.as_secs_f64());
        under_way.goal.add(&judged);
        writer.append(&Line::Round(judged))?;
        let alone = course.runners.entrants().len() <= CONTENDERS_FROM && !under_way.goal.anyone_left();
        if let Some(broken) = last_to_break.filter(|_| alone) {
            course.runners.empty()?;
            tell(course.runners.left_alone(), emit);
            let candidate = self.arena.names()[broken.entrant].to_owned();
            return Err(LabError::Broken { candidate, what: broken.why });
        }
        let (ran, of) = (round + 1, under_way.goal.rounds());
        let left = under_way.goal.left().or_else(|| Some(elapsed * (of? - ran) / ran));
        emit(Event::Round { done: ran, of, left: left.unwrap_or(Duration::ZERO) });
        Ok(true)
    }

    /// A round as it is written down. If a fact of the machine has changed since the race's start, none of it counts.
    fn judged(
        &mut self,
        rounded: Rounded,
        (round, build): (u32, u32),
        facts: &record::Machine,
    ) -> Result<Round, LabError> {
        let Rounded { mut trials, broken } = rounded;
        let now = self.arena.machine()?;
        if let Some(what) = drifted(facts, &now) {
            for trial in trials.iter_mut().filter(|trial| trial.void.is_none()) {
                trial.void = Some(record::Void::FactsChanged { what: what.clone() });
            }
        }
        Ok(Round { round, build, ended_s: None, trials, broken })
    }
}
