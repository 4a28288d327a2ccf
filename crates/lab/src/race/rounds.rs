//! A round: each candidate once at each load, shuffled; and after the last what was asked beside.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use record::{Broken, Line, Load, TrialRecord, Void, Writer};
use stats::Random;

use super::goal::StoppingRule;
use super::{CONTENDERS_FROM, Race};
use crate::built_topology::BuiltTopology;
use crate::late::late;
use crate::profile::profile;
use crate::{Event, LabError, workload};

/// A void trial is repeated at most so often; then the candidate goes without this slice, and the report says so.
const REPEATS: u32 = 2;

/// A round that is under way: what may fail in it and what it has so far.
pub(super) struct Course<'a> {
    pub(super) loads: &'a [Load],
    pub(super) runners: Vec<(usize, BuiltTopology)>,
    pub(super) rng: Random,
    pub(super) done: u64,
    pub(super) total: u64,
}

/// What a round gave.
#[derive(Default)]
pub(super) struct Rounded {
    pub(super) trials: Vec<TrialRecord>,
    /// Who broke in it. They are taken down already.
    pub(super) broken: Vec<Broken>,
}

impl Race {
    /// Every candidate once at every load: loads in shuffled order, and for each the candidates in shuffled order, so
    /// that the trials that are compared lie next to each other in time. `None` if asked to stop.
    pub(super) fn round(
        &self,
        course: &mut Course<'_>,
        goal: &StoppingRule,
        round: u32,
        tell: &mut dyn FnMut(Event),
    ) -> Result<Option<Rounded>, LabError> {
        let mut rounded = Rounded::default();
        let mut loads: Vec<usize> = (0..course.loads.len()).filter(|load| goal.is_open(*load)).collect();
        course.rng.shuffle(&mut loads);
        for load in loads {
            let runners = course.runners.iter().map(|(entrant, _)| *entrant);
            let mut order: Vec<usize> = runners.filter(|entrant| goal.visits(*entrant, load)).collect();
            course.rng.shuffle(&mut order);
            for entrant in order {
                if self.settings.stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                let at = course.runners.iter().position(|(other, _)| *other == entrant);
                let at = at.expect("a runner is visited once at a load, and breaks on a visit");
                let built = &mut course.runners[at].1;
                let name = built.name.clone();
                let share = goal.share(course.done, course.total);
                tell(Event::Trial { round, of: goal.rounds(), name, share });
                let visited =
                    self.valid_trial(built, &course.loads[load], (entrant, load), &mut rounded.trials, tell);
                course.done += 1;
                match visited {
                    Err(LabError::Broken { candidate, what }) if entrant >= CONTENDERS_FROM => {
                        let (_, built) = course.runners.remove(at);
                        built.take_down()?;
                        tell(Event::Broke { name: candidate, round, why: what.clone() });
                        rounded.broken.push(Broken { entrant, why: what });
                    }
                    visited => visited?,
                }
            }
        }
        Ok(Some(rounded))
    }

    /// Runs a trial until it is valid or has been repeated often enough; all of them are kept. A path that has changed
    /// and stays so is an error: to repeat the trial would measure another path.
    pub(crate) fn valid_trial(
        &self,
        built: &mut BuiltTopology,
        load: &Load,
        indexes: (usize, usize),
        trials: &mut Vec<TrialRecord>,
        tell: &mut dyn FnMut(Event),
    ) -> Result<(), LabError> {
        for repeat in 0..=REPEATS {
            let trial = workload::of(built.workload.kind).trial(built, &self.method, load, indexes);
            let mut trial = trial.map_err(|error| built.because_of_the_path(error))?;
            if !self.experiment.by_cpu {
                // On a large machine this would be most of a record, and it was not requested.
                (trial.client_by_cpu, trial.server_by_cpu) = (BTreeMap::new(), BTreeMap::new());
            }
            let void = trial.void.clone();
            trials.push(trial);
            let Some(why) = void else { break };
            tell(Event::Voided { name: built.name.clone(), why: why.clone() });
            if let Void::PathChanged { what } = why {
                let stays = built.changed()?;
                if let Some(what) = stays.or((repeat == REPEATS).then_some(what)) {
                    return Err(built.path_broken(&what));
                }
            }
        }
        Ok(())
    }

    /// What was asked beside the rounds, on the last build. `false` if asked to stop.
    pub(super) fn after_rounds(
        &self,
        course: &mut Course<'_>,
        writer: &mut Writer,
        tell: &mut dyn FnMut(Event),
    ) -> Result<bool, LabError> {
        if self.experiment.why_late && !self.late(course, writer, tell)? {
            return Ok(false);
        }
        Ok(!self.experiment.profile || self.profile(course, writer, tell)?)
    }

    /// Watches all candidates for the causes of late answers and writes them down. `false` if asked to stop.
    fn late(
        &self,
        course: &mut Course<'_>,
        writer: &mut Writer,
        tell: &mut dyn FnMut(Event),
    ) -> Result<bool, LabError> {
        let stop = || self.settings.stop.load(Ordering::Relaxed);
        let found = late(&mut course.runners, course.loads, &self.method, &mut course.rng, stop, tell)?;
        let Some(found) = found else { return Ok(false) };
        found.into_iter().try_for_each(|late| writer.append(&Line::Late(late)))?;
        Ok(true)
    }

    /// Samples all candidates and writes it down. `false` if asked to stop.
    fn profile(
        &self,
        course: &mut Course<'_>,
        writer: &mut Writer,
        tell: &mut dyn FnMut(Event),
    ) -> Result<bool, LabError> {
        let stop = || self.settings.stop.load(Ordering::Relaxed);
        let found = profile(&mut course.runners, course.loads, &self.method, &mut course.rng, stop, tell)?;
        let Some(profiles) = found else { return Ok(false) };
        profiles.into_iter().try_for_each(|profile| writer.append(&Line::Profile(profile)))?;
        Ok(true)
    }
}
