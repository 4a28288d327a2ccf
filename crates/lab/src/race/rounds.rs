//! A round: each candidate at each load, shuffled.

use std::collections::BTreeMap;

use record::{Broken, Load, TrialRecord, Void};
use stats::Random;

use super::CONTENDERS_FROM;
use super::arena::Arena;
use super::contest::Contest;
use super::goal::StoppingRule;
use super::runners::{Runner, Runners, tell};
use crate::repeats::REPEATS;
use crate::trial::Method;
use crate::trial_key::TrialKey;
use crate::void::{breaks, is_of_the_path};
use crate::{Event, LabError};

/// A round that is under way: what may fail in it and what it has so far.
pub(super) struct Course<'a, R> {
    pub(super) loads: &'a [Load],
    pub(super) runners: Runners<R>,
    /// How many contenders the race began with.
    pub(super) contenders: usize,
    pub(super) rng: Random,
    pub(super) done: u64,
    pub(super) total: u64,
}

/// What a round gave.
#[derive(Default)]
pub(super) struct Rounded {
    pub(super) trials: Vec<TrialRecord>,
    /// The entrants that broke in it. They are taken down already.
    pub(super) broken: Vec<Broken>,
}

/// How often each host is visited in a round at a load, where so many contenders are compared with it.
///
/// Each of *m* ratios has the reference's error beside its contender's. With as much time in all, the errors of the
/// ratios are least where the common divisor has √*m* times the measurements of a contender (C. W. Dunnett, *A Multiple
/// Comparison Procedure for Comparing Several Treatments with a Control*, 1955). The control has as many, since the
/// noise floor is the difference of the two. In a closed loop requests per second scatter little, and once is enough.
pub fn host_visits(is_rate: bool, contenders: usize) -> usize {
    if is_rate { contenders.isqrt().max(1) } else { 1 }
}

/// The visits of a round at a load, not yet shuffled. The hosts' are as many as the contenders that the race began with
/// ask for, also when some have left: otherwise the merged figures of the hosts would have more of the early builds
/// than those of a contender, and what changed meanwhile for all would look like a difference.
pub(super) fn visits(load: &Load, visited: &[usize], contenders: usize) -> Vec<usize> {
    let hosts = host_visits(load.rate_per_s.is_some(), contenders);
    let times = |entrant: usize| if entrant < CONTENDERS_FROM { hosts } else { 1 };
    visited.iter().flat_map(|entrant| std::iter::repeat_n(*entrant, times(*entrant))).collect()
}

/// Visits of an entrant in a row.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    entrant: usize,
    loads: Vec<usize>,
}

/// The turns of a round: loads come in shuffled order, and for each its visits in shuffled order, so that the trials
/// that are compared lie next to each other in time.
fn together(mut loads: Vec<(usize, Vec<usize>)>, rng: &mut Random) -> Vec<Turn> {
    rng.shuffle(&mut loads);
    let shuffled = |(load, mut visits): (usize, Vec<usize>)| {
        rng.shuffle(&mut visits);
        visits.into_iter().map(move |entrant| Turn { entrant, loads: vec![load] }).collect::<Vec<_>>()
    };
    loads.into_iter().flat_map(shuffled).collect()
}

/// The turns of a round where each has to be built for its visits: at all loads in a row, in shuffled order, but those
/// in a closed loop last. A host that is visited more often has more turns, and not all of them have a closed loop,
/// after which connections and cards are not what they were before.
fn in_turn(
    loads: Vec<(usize, Vec<usize>)>,
    is_closed_loop: impl Fn(usize) -> bool,
    rng: &mut Random,
) -> Vec<Turn> {
    let mut turns: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for (load, visits) in loads {
        let mut times: BTreeMap<usize, usize> = BTreeMap::new();
        for entrant in visits {
            let nth = times.entry(entrant).or_default();
            turns.entry((entrant, *nth)).or_default().push(load);
            *nth += 1;
        }
    }
    let mut turns: Vec<Turn> =
        turns.into_iter().map(|((entrant, _), loads)| Turn { entrant, loads }).collect();
    rng.shuffle(&mut turns);
    for turn in &mut turns {
        rng.shuffle(&mut turn.loads);
        turn.loads.sort_by_key(|load| is_closed_loop(*load));
    }
    turns
}

impl<A: Arena> Contest<'_, A> {
    /// Every contender once at every load, the hosts as often as [`host_visits`] says, in the order of [`together`], or
    /// of [`in_turn`]. `None` if asked to stop.
    pub(super) fn round(
        &mut self,
        course: &mut Course<'_, A::Runner>,
        goal: &StoppingRule,
        round: u32,
        emit: &mut dyn FnMut(Event),
    ) -> Result<Option<Rounded>, LabError> {
        let mut rounded = Rounded::default();
        for Turn { entrant, loads } in turns(course, goal) {
            course.runners.begin_turn()?;
            tell(course.runners.left_alone(), emit);
            for load in loads {
                if self.is_stopped() {
                    return Ok(None);
                }
                // It may have broken at another load.
                if !course.runners.entrants().contains(&entrant) {
                    continue;
                }
                let name = self.arena.names()[entrant].to_owned();
                let share = goal.share(course.done, course.total);
                emit(Event::Trial { round, of: goal.rounds(), name, share });
                let method =
                    Method { seed: instants_seed(self.method.seed, round, load), ..self.method.clone() };
                let key = TrialKey { entrant, load };
                let visited = self.visit(course, &method, key, &mut rounded.trials, emit);
                course.done += 1;
                match visited {
                    Err(LabError::Broken { candidate, what }) if entrant >= CONTENDERS_FROM => {
                        course.runners.drop_out(entrant)?;
                        tell(course.runners.left_alone(), emit);
                        emit(Event::Broke { name: candidate, round, why: what.clone() });
                        rounded.broken.push(Broken { entrant, why: what });
                    }
                    // It was not to be reached again, since the race is to end.
                    Err(LabError::ClientLost { .. }) if self.is_stopped() => return Ok(None),
                    visited => visited?,
                }
            }
        }
        Ok(Some(rounded))
    }

    /// One visit. An entrant that is built for it and does not come to stand is broken: it is not
    /// tried on other machines.
    fn visit(
        &mut self,
        course: &mut Course<'_, A::Runner>,
        method: &Method,
        key: TrialKey,
        trials: &mut Vec<TrialRecord>,
        emit: &mut dyn FnMut(Event),
    ) -> Result<(), LabError> {
        let runner = course
            .runners
            .reach(key.entrant, |entrant| self.arena.stand(entrant))
            .map_err(LabError::of_candidate)?;
        let how = (method, self.experiment.by_cpu);
        valid_trial(runner, how, &course.loads[key.load], key, trials, emit)
    }
}

/// Selects the instants of random arrivals. They are the same for all who are visited in a round at a load: what a
/// burst costs is then in both figures of a ratio.
fn instants_seed(race: u64, round: u32, load: usize) -> u64 {
    let drawn = |seed| Random::from_seed(seed).below(u64::MAX);
    drawn(drawn(race ^ u64::from(round)) ^ load as u64)
}

/// The turns of a round, at the loads that are still undecided.
fn turns<R: Runner>(course: &mut Course<'_, R>, goal: &StoppingRule) -> Vec<Turn> {
    let loads = (0..course.loads.len()).filter(|load| goal.is_open(*load)).map(|load| {
        let entrants = course.runners.entrants().iter().copied();
        let visited: Vec<usize> = entrants.filter(|entrant| goal.visits(*entrant, load)).collect();
        (load, visits(&course.loads[load], &visited, course.contenders))
    });
    let (loads, all) = (loads.collect(), course.loads);
    let is_closed_loop = |load: usize| all[load].rate_per_s.is_none();
    match course.runners.are_in_turn() {
        true => in_turn(loads, is_closed_loop, &mut course.rng),
        false => together(loads, &mut course.rng),
    }
}

/// Runs a trial until it is valid or has been repeated often enough; all of them are kept, with each CPU's time if that
/// was asked for. A path that has changed and stays so is an error: to repeat the trial would measure another path. So
/// it is if no attempt took the path or had answers.
pub(crate) fn valid_trial<R: Runner>(
    runner: &mut R,
    (method, by_cpu): (&Method, bool),
    load: &Load,
    key: TrialKey,
    trials: &mut Vec<TrialRecord>,
    emit: &mut dyn FnMut(Event),
) -> Result<(), LabError> {
    let mut voids = Vec::new();
    while voids.len() <= REPEATS {
        let mut trial = runner.trial(method, load, key)?;
        if !by_cpu {
            // On a large machine this would be most of a record, and it was not requested.
            (trial.client_by_cpu, trial.server_by_cpu) = (BTreeMap::new(), BTreeMap::new());
        }
        let void = trial.void.clone();
        trials.push(trial);
        let Some(why) = void else { return Ok(()) };
        emit(Event::Voided { name: runner.name().to_owned(), why: why.clone() });
        if is_of_the_path(&why)
            && let Some(what) = runner.changed()?
        {
            voids = vec![Void::PathChanged { what }];
            break;
        }
        voids.push(why);
    }
    match broke(&voids) {
        Some(what) => Err(LabError::Broken { candidate: runner.name().to_owned(), what }),
        None => Ok(()),
    }
}

/// What broke a candidate all of whose attempts were void. If the machine or the generator voided one of them, they may
/// have been behind the others too.
fn broke(voids: &[Void]) -> Option<String> {
    voids.iter().map(breaks).collect::<Option<Vec<String>>>()?.pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_candidate_breaks_if_every_attempt_failed_by_its_path() {
        let changed = || Void::PathChanged { what: "no packet took it".to_owned() };
        let late = || Void::GeneratorLate { late_p99_ns: 300_000, limit_ns: 150_000 };
        let none =
            || Void::Unanswered { sent: 4, intended: 5, unanswered: 4, unexpected: 0, connection_errors: 1 };
        assert_eq!(broke(&[changed(), changed(), changed()]).unwrap(), "the path changed: no packet took it");
        let words = "4 of 4 requests that were sent, of 5 that were due, got no valid answer (0 unexpected answers, \
                     1 connection errors)";
        assert_eq!(broke(&[none(), changed(), none()]).unwrap(), words);
        assert_eq!(broke(&[late(), late(), none()]), None);
        assert_eq!(broke(&[none(), none(), late()]), None);
    }

    #[test]
    fn who_is_built_for_a_visit_is_visited_at_all_loads_in_a_row() {
        let loads = || vec![(0, vec![0, 1, 2]), (1, vec![0, 0, 1, 1, 2]), (2, vec![0, 0, 1, 1, 2])];
        let mut rng = Random::from_seed(7);
        let mut turns = in_turn(loads(), |load| load == 0, &mut rng);
        assert!(turns.iter().all(|turn| turn.loads.iter().rev().skip(1).all(|load| *load != 0)), "{turns:?}");
        turns.iter_mut().for_each(|turn| turn.loads.sort_unstable());
        turns.sort();
        let turn = |entrant, loads: &[usize]| Turn { entrant, loads: loads.to_vec() };
        let hosts = [turn(0, &[0, 1, 2]), turn(0, &[1, 2]), turn(1, &[0, 1, 2]), turn(1, &[1, 2])];
        assert_eq!(turns, hosts.into_iter().chain([turn(2, &[0, 1, 2])]).collect::<Vec<_>>());
        // Where all stand, the visits are the same, one load after the other.
        let visits = |turns: Vec<Turn>| -> Vec<(usize, usize)> {
            turns
                .into_iter()
                .flat_map(|turn| turn.loads.into_iter().map(move |load| (turn.entrant, load)))
                .collect()
        };
        let mut all = visits(together(loads(), &mut rng));
        assert_eq!(all.chunk_by(|one, next| one.1 == next.1).count(), 3, "{all:?}");
        all.sort_unstable();
        let mut same = visits(turns);
        same.sort_unstable();
        assert_eq!(all, same);
    }

    #[test]
    fn hosts_are_visited_more_often_the_more_are_compared_with_them() {
        let rate = Load::at_rate(100, 1e3);
        let closed_loop = Load { rate_per_s: None, ..rate.clone() };
        let all: Vec<usize> = (0..11).collect();
        assert_eq!(visits(&closed_loop, &all, 9), all);
        let hosts = |entrant: &usize| *entrant < CONTENDERS_FROM;
        let at_rate = visits(&rate, &all, 9);
        assert_eq!(at_rate.iter().filter(|entrant| hosts(entrant)).count(), 6);
        assert_eq!(at_rate.iter().filter(|entrant| !hosts(entrant)).count(), 9);
        // Three are too few for a second visit, and a host that races with itself alone has no contender.
        assert_eq!(visits(&rate, &[0, 1, 2, 3, 4], 3), [0, 1, 2, 3, 4]);
        assert_eq!(visits(&rate, &[0, 1], 0), [0, 1]);
        // Those that have left change nothing: every build of a race has the same share in a host's figures.
        assert_eq!(visits(&rate, &[0, 1, 3, 5, 7], 9), [0, 0, 0, 1, 1, 1, 3, 5, 7]);
    }
}
