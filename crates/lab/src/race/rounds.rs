//! A round: each candidate at each load, shuffled; and after the last what was asked beside.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use record::{Broken, Line, Load, TrialRecord, Void, Writer};
use stats::Random;

use super::goal::StoppingRule;
use super::{CONTENDERS_FROM, Race};
use crate::built_topology::BuiltTopology;
use crate::late::late;
use crate::profile::profile;
use crate::{Event, LabError, packets};

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

/// How often each host is visited in a round at a load, where so many contenders are compared with it.
///
/// Each of *m* ratios has the reference's error beside its contender's. With as much time in all, the errors of the ratios
/// are least where the common divisor has √*m* times the measurements of a contender (C. W. Dunnett, *A Multiple
/// Comparison Procedure for Comparing Several Treatments with a Control*, 1955). The control has as many, since the noise
/// floor is the difference of the two. In a closed loop requests per second scatter little, and once is enough.
pub fn host_visits(is_rate: bool, contenders: usize) -> usize {
    if is_rate { contenders.isqrt().max(1) } else { 1 }
}

/// The visits of a round at a load, not yet shuffled.
pub(super) fn visits(load: &Load, visited: &[usize]) -> Vec<usize> {
    let contenders = visited.iter().filter(|entrant| **entrant >= CONTENDERS_FROM).count();
    let hosts = host_visits(load.rate_per_s.is_some(), contenders);
    let times = |entrant: usize| if entrant < CONTENDERS_FROM { hosts } else { 1 };
    visited.iter().flat_map(|entrant| std::iter::repeat_n(*entrant, times(*entrant))).collect()
}

impl Race {
    /// Every contender once at every load, the hosts as often as [`host_visits`] says: loads in shuffled order, and for
    /// each the visits in shuffled order, so that the trials that are compared lie next to each other in time. `None` if
    /// asked to stop.
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
            let visited: Vec<usize> = runners.filter(|entrant| goal.visits(*entrant, load)).collect();
            let mut order = visits(&course.loads[load], &visited);
            course.rng.shuffle(&mut order);
            for entrant in order {
                if self.settings.stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                let at = course.runners.iter().position(|(other, _)| *other == entrant);
                let at = at.expect("who is visited again is a host, and a host that breaks ends the race");
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
            let trial = packets::trial(built, &self.method, load, indexes);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_visited_more_often_the_more_are_compared_with_them() {
        let rate = Load { body_bytes: 100, rate_per_s: Some(1e3), of_capacity: None };
        let closed_loop = Load { rate_per_s: None, ..rate.clone() };
        let all: Vec<usize> = (0..11).collect();
        assert_eq!(visits(&closed_loop, &all), all);
        let hosts = |entrant: &usize| *entrant < CONTENDERS_FROM;
        let at_rate = visits(&rate, &all);
        assert_eq!(at_rate.iter().filter(|entrant| hosts(entrant)).count(), 6);
        assert_eq!(at_rate.iter().filter(|entrant| !hosts(entrant)).count(), 9);
        // Three are too few for a second visit, and a host that races with itself alone has nobody to serve.
        assert_eq!(visits(&rate, &[0, 1, 2, 3, 4]), [0, 1, 2, 3, 4]);
        assert_eq!(visits(&rate, &[0, 1]), [0, 1]);
        // Who left is not counted.
        assert_eq!(visits(&rate, &[0, 1, 3, 5, 7, 9]), [0, 0, 1, 1, 3, 5, 7, 9]);
    }
}
