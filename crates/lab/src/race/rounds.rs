//! A round: each candidate at each load, shuffled; and after the last what was asked beside.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use plan::Unit;
use record::{Broken, Line, Load, TrialRecord, Void, Writer};
use stats::Random;

use super::goal::StoppingRule;
use super::runners::Runners;
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
    pub(super) runners: Runners,
    /// Whose topologies they are.
    pub(super) claim: &'a Unit,
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

/// The order of a round's visits, each an entrant and a load. Loads come in shuffled order, and for each its visits in
/// shuffled order, so that the trials that are compared lie next to each other in time. Where each has to be built for its
/// visits, it is visited at all loads in a row.
fn order(loads: Vec<(usize, Vec<usize>)>, in_turn: bool, rng: &mut Random) -> Vec<(usize, usize)> {
    if !in_turn {
        let mut loads = loads;
        rng.shuffle(&mut loads);
        let shuffled = |(load, mut visits): (usize, Vec<usize>)| {
            rng.shuffle(&mut visits);
            visits.into_iter().map(move |entrant| (entrant, load)).collect::<Vec<_>>()
        };
        return loads.into_iter().flat_map(shuffled).collect();
    }
    // A host's second visit is a turn of its own.
    let mut turns: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for (load, visits) in loads {
        let mut times: BTreeMap<usize, usize> = BTreeMap::new();
        for entrant in visits {
            let nth = times.entry(entrant).or_default();
            turns.entry((entrant, *nth)).or_default().push(load);
            *nth += 1;
        }
    }
    let mut turns: Vec<_> = turns.into_iter().collect();
    rng.shuffle(&mut turns);
    let shuffled = |((entrant, _), mut loads): ((usize, usize), Vec<usize>)| {
        rng.shuffle(&mut loads);
        loads.into_iter().map(move |load| (entrant, load)).collect::<Vec<_>>()
    };
    turns.into_iter().flat_map(shuffled).collect()
}

impl Race {
    /// Every contender once at every load, the hosts as often as [`host_visits`] says, in the order of [`order`]. `None` if
    /// asked to stop.
    pub(super) fn round(
        &self,
        course: &mut Course<'_>,
        goal: &StoppingRule,
        round: u32,
        tell: &mut dyn FnMut(Event),
    ) -> Result<Option<Rounded>, LabError> {
        let mut rounded = Rounded::default();
        let loads = (0..course.loads.len()).filter(|load| goal.is_open(*load)).map(|load| {
            let entrants = course.runners.entrants().iter().copied();
            let visited: Vec<usize> = entrants.filter(|entrant| goal.visits(*entrant, load)).collect();
            (load, visits(&course.loads[load], &visited))
        });
        let visits = order(loads.collect(), course.runners.are_in_turn(), &mut course.rng);
        for (entrant, load) in visits {
            if self.settings.stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            // It may have broken at another load.
            if !course.runners.entrants().contains(&entrant) {
                continue;
            }
            let name = self.contenders[entrant].name.clone();
            tell(Event::Trial {
                round,
                of: goal.rounds(),
                name,
                share: goal.share(course.done, course.total),
            });
            let visited = self.visit(course, (entrant, load), &mut rounded.trials, tell);
            course.done += 1;
            match visited {
                Err(LabError::Broken { candidate, what }) if entrant >= CONTENDERS_FROM => {
                    course.runners.drop_out(entrant)?;
                    tell(Event::Broke { name: candidate, round, why: what.clone() });
                    rounded.broken.push(Broken { entrant, why: what });
                }
                visited => visited?,
            }
        }
        Ok(Some(rounded))
    }

    /// One visit. Who is built for it and does not come to stand is broken: the machines are as they are.
    fn visit(
        &self,
        course: &mut Course<'_>,
        (entrant, load): (usize, usize),
        trials: &mut Vec<TrialRecord>,
        tell: &mut dyn FnMut(Event),
    ) -> Result<(), LabError> {
        let built = course.runners.reach(self, course.claim, entrant).map_err(|error| match error {
            LabError::Build { candidate, why } => LabError::Broken { candidate, what: why.to_string() },
            LabError::Load { candidate, why } => {
                LabError::Broken { candidate, what: format!("could not {why}") }
            }
            error => error,
        })?;
        self.valid_trial(built, &course.loads[load], (entrant, load), trials, tell)
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
        let found = late(course.runners.standing(), course.loads, &self.method, &mut course.rng, stop, tell)?;
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
        let found =
            profile(course.runners.standing(), course.loads, &self.method, &mut course.rng, stop, tell)?;
        let Some(profiles) = found else { return Ok(false) };
        profiles.into_iter().try_for_each(|profile| writer.append(&Line::Profile(profile)))?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_built_for_a_visit_is_visited_at_all_loads_in_a_row() {
        let loads = || vec![(0, vec![0, 1, 2]), (1, vec![0, 0, 1, 1, 2])];
        let mut together = order(loads(), false, &mut Random::from_seed(7));
        let mut in_turn = order(loads(), true, &mut Random::from_seed(7));
        let mut turns: Vec<usize> = in_turn.iter().map(|(entrant, _)| *entrant).collect();
        turns.dedup();
        // Two turns of a host may follow each other.
        assert!(
            (3..=5).contains(&turns.len()) && turns.iter().filter(|entrant| **entrant == 2).count() == 1,
            "{turns:?}"
        );
        let runs = together.chunk_by(|one, next| one.1 == next.1).count();
        assert_eq!(runs, 2, "{together:?}");
        (together.sort(), in_turn.sort());
        assert_eq!(together, in_turn);
    }

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
