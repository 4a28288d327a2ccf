//! How long a race goes on, and which candidates still take part: for a number of rounds, or until the statistics
//! asked for are known.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::{Duration, Instant};

use record::{Header, InterimLook, Round};

use super::CONTENDERS_FROM;

/// The end of a race.
#[derive(Debug)]
pub(super) enum StoppingRule {
    /// It comes after so many rounds, for all alike.
    Rounds {
        /// How many, on all builds.
        rounds: u32,
        /// On how many builds.
        builds: u32,
    },
    /// It comes when every comparison is decided, or when the budget is spent.
    Known(Box<AdaptiveRace>),
}

/// A race that ends for what it sees.
#[derive(Debug)]
pub(super) struct AdaptiveRace {
    /// All that is in its record so far.
    race: record::RaceRecord,
    /// Candidates with loads that race on. Reference and control are beside them at each of these loads.
    undecided: BTreeSet<(usize, usize)>,
    budget: Duration,
    started: Instant,
    build_began: Instant,
    /// How long the last build took, with its rounds.
    last_build: Duration,
}

impl StoppingRule {
    /// The goal of an experiment; its time begins now.
    pub(super) fn of(header: &Header) -> StoppingRule {
        let experiment = &header.experiment;
        if experiment.until.is_none() {
            return StoppingRule::Rounds { rounds: experiment.rounds, builds: experiment.builds };
        }
        let race = record::RaceRecord {
            header: header.clone(),
            capacities: vec![],
            loads: vec![],
            witness: None,
            rounds: vec![],
            looks: vec![],
            profiles: vec![],
            late: vec![],
            end: None,
            notes: vec![],
        };
        let budget = Duration::from_secs(experiment.budget_s().into());
        let (started, last_build) = (Instant::now(), Duration::ZERO);
        let undecided = BTreeSet::new();
        StoppingRule::Known(Box::new(AdaptiveRace {
            race,
            undecided,
            budget,
            started,
            build_began: started,
            last_build,
        }))
    }

    /// How many builds there will be, if that is known.
    pub(super) fn builds(&self) -> Option<u32> {
        match self {
            StoppingRule::Rounds { builds, .. } => Some(*builds),
            StoppingRule::Known(_) => None,
        }
    }

    /// How many rounds there will be, if that is known.
    pub(super) fn rounds(&self) -> Option<u32> {
        match self {
            StoppingRule::Rounds { rounds, .. } => Some(*rounds),
            StoppingRule::Known(_) => None,
        }
    }

    /// The rounds of a build; the first builds get one more where they do not divide evenly.
    pub(super) fn rounds_of(&self, build: u32) -> Range<u32> {
        match self {
            StoppingRule::Rounds { rounds, builds } => {
                let start = |build: u32| rounds / builds * build + (rounds % builds).min(build);
                start(build)..start(build + 1)
            }
            StoppingRule::Known(pursuit) => {
                let each = pursuit.race.header.experiment.rounds_a_build();
                build * each..(build + 1) * each
            }
        }
    }

    /// Whether another build begins after so many. One that would end after the budget does not: its rounds could be
    /// cut short, and a build counts as a whole.
    pub(super) fn goes_on(&self, builds: u32) -> bool {
        match self {
            StoppingRule::Rounds { builds: all, .. } => builds < *all,
            StoppingRule::Known(_) if builds == 0 => true,
            StoppingRule::Known(pursuit) => {
                !pursuit.undecided.is_empty()
                    && pursuit.started.elapsed() + pursuit.last_build <= pursuit.budget
            }
        }
    }

    /// The time until the race ends at the latest, if that is known without its rounds.
    pub(super) fn left(&self) -> Option<Duration> {
        match self {
            StoppingRule::Rounds { .. } => None,
            StoppingRule::Known(pursuit) => Some(pursuit.budget.saturating_sub(pursuit.started.elapsed())),
        }
    }

    /// How much of the race is done, 0 to 1, after so many of all trials.
    pub(super) fn share(&self, done: u64, total: u64) -> f64 {
        match self {
            StoppingRule::Rounds { .. } => done as f64 / total.max(1) as f64,
            StoppingRule::Known(pursuit) => {
                (pursuit.started.elapsed().as_secs_f64() / pursuit.budget.as_secs_f64()).min(1.0)
            }
        }
    }

    /// Whether a candidate is built again.
    pub(super) fn stands(&self, entrant: usize) -> bool {
        match self {
            StoppingRule::Rounds { .. } => true,
            // Before the first round no candidate has left.
            StoppingRule::Known(pursuit) if pursuit.race.rounds.is_empty() => true,
            StoppingRule::Known(pursuit) => {
                entrant < CONTENDERS_FROM || pursuit.undecided.iter().any(|(other, _)| *other == entrant)
            }
        }
    }

    /// Whether a candidate is visited at a load. Reference and control are as long as anyone is undecided there.
    pub(super) fn visits(&self, entrant: usize, load: usize) -> bool {
        match self {
            StoppingRule::Rounds { .. } => true,
            StoppingRule::Known(pursuit) if entrant < CONTENDERS_FROM => pursuit.is_open(load),
            StoppingRule::Known(pursuit) => pursuit.undecided.contains(&(entrant, load)),
        }
    }

    /// Whether anyone is visited at a load.
    pub(super) fn is_open(&self, load: usize) -> bool {
        match self {
            StoppingRule::Rounds { .. } => true,
            StoppingRule::Known(pursuit) => pursuit.is_open(load),
        }
    }

    /// Whether a comparison is settled already: then the race has a result, even if candidates break after it.
    pub(super) fn anyone_left(&self) -> bool {
        match self {
            StoppingRule::Rounds { .. } => false,
            StoppingRule::Known(pursuit) => pursuit.race.looks.iter().any(|look| !look.left.is_empty()),
        }
    }

    /// Takes note of the loads.
    pub(super) fn announce(&mut self, loads: &[record::Load]) {
        if let StoppingRule::Known(pursuit) = self {
            pursuit.race.loads = loads.to_vec();
            pursuit.decide();
        }
    }

    /// Starts the clock of a build.
    pub(super) fn begin(&mut self) {
        if let StoppingRule::Known(pursuit) = self {
            pursuit.build_began = Instant::now();
        }
    }

    /// Takes note of a round.
    pub(super) fn add(&mut self, round: &Round) {
        if let StoppingRule::Known(pursuit) = self {
            pursuit.race.rounds.push(round.clone());
            pursuit.decide();
        }
    }

    /// A build has ended: the look that is due, if one is.
    pub(super) fn look(&mut self) -> Option<InterimLook> {
        let StoppingRule::Known(pursuit) = self else { return None };
        pursuit.last_build = pursuit.build_began.elapsed();
        let look = verdict::look(&pursuit.race)?;
        pursuit.race.looks.push(look.clone());
        pursuit.decide();
        Some(look)
    }

    /// The race has ended: the look at which all that is undecided leaves.
    pub(super) fn last_look(&self) -> Option<InterimLook> {
        let StoppingRule::Known(pursuit) = self else { return None };
        let seen = pursuit.race.looks.last().map_or(0, |look| look.rounds as usize);
        let is_whole = pursuit.undecided.is_empty() && seen == pursuit.race.rounds.len();
        (!is_whole).then(|| verdict::last_look(&pursuit.race))
    }

    /// The names of the candidates that are undecided, in their order, and at how many loads together.
    pub(super) fn undecided(&self) -> (Vec<String>, usize) {
        let StoppingRule::Known(pursuit) = self else { return (vec![], 0) };
        let mut names: Vec<String> = vec![];
        for (entrant, _) in &pursuit.undecided {
            let name = &pursuit.race.header.entrants[*entrant].name;
            if names.last() != Some(name) {
                names.push(name.clone());
            }
        }
        (names, pursuit.undecided.len())
    }
}

impl AdaptiveRace {
    fn decide(&mut self) {
        self.undecided = verdict::undecided(&self.race).into_iter().collect();
    }

    fn is_open(&self, load: usize) -> bool {
        self.undecided.iter().any(|(_, open)| *open == load)
    }
}

#[cfg(test)]
mod tests {
    use record::{Entrant, Experiment, Leaving, Left, Load, Machine};

    use super::*;

    fn header(experiment: &str) -> Header {
        let entrant = |name: &str| Entrant {
            name: name.to_owned(),
            path: name.to_owned(),
            stands_for: String::new(),
            unmet: vec![],
            commands: vec![],
            settings: vec![],
            mtu: None,
            carried: false,
            crowded: false,
        };
        Header {
            schema: record::SCHEMA,
            hostgap: "0".to_owned(),
            started_unix_s: 1,
            seed: 7,
            experiment: Experiment::from_toml(&format!("schema = 1\nname = \"x\"\n{experiment}")).unwrap(),
            machine: Machine::default(),
            server: "nginx".to_owned(),
            entrants: ["host", "host again", "a", "b"].map(entrant).to_vec(),
            pair: None,
        }
    }

    fn round(number: u32) -> Round {
        Round { round: number, build: number / 3, ended_s: None, trials: vec![], broken: vec![] }
    }

    #[test]
    fn rounds_are_divided_among_the_builds() {
        let goal = StoppingRule::of(&header("rounds = 8\nbuilds = 3"));
        let rounds: Vec<_> = (0..3).map(|build| goal.rounds_of(build)).collect();
        assert_eq!(rounds, [0..3, 3..6, 6..8]);
        assert!(goal.goes_on(2) && !goal.goes_on(3));
        assert!(goal.visits(3, 9) && goal.stands(3) && (goal.share(3, 4) - 0.75).abs() < 1e-9);
    }

    #[test]
    fn who_left_is_not_visited_and_the_hosts_stay_where_anyone_does() {
        let mut goal = StoppingRule::of(&header("until = \"3%\"\nrounds = 8\nbuilds = 3\nbudget_s = 3600"));
        assert_eq!((goal.rounds_of(2), goal.rounds(), goal.builds()), (6..9, None, None));
        assert!(goal.goes_on(0) && goal.stands(2));
        let load = Load::closed_loop(100);
        goal.announce(&[load.clone(), Load { rate_per_s: Some(1e3), ..load }]);
        goal.add(&round(0));
        assert_eq!(goal.undecided(), (vec!["a".to_owned(), "b".to_owned()], 4));
        let StoppingRule::Known(pursuit) = &mut goal else { panic!("it ends for what it sees") };
        let left = |entrant, load| Left { entrant, load, why: Leaving::Precise };
        let left = vec![left(2, 0), left(2, 1), left(3, 0)];
        pursuit.race.looks.push(InterimLook { number: 1, builds: 1, rounds: 1, left });
        pursuit.decide();
        assert!(!goal.stands(2) && goal.stands(3) && goal.stands(0) && goal.stands(1));
        assert!(!goal.is_open(0) && goal.is_open(1) && goal.goes_on(1));
        let visited = |load| (0..4).filter(|entrant| goal.visits(*entrant, load)).collect::<Vec<_>>();
        assert_eq!((visited(0), visited(1)), (vec![], vec![0, 1, 3]));
        assert_eq!(goal.last_look().unwrap().left, [Left { entrant: 3, load: 1, why: Leaving::Ended }]);
    }

    #[test]
    fn no_build_begins_that_would_end_after_the_budget() {
        let mut goal = StoppingRule::of(&header("until = \"3%\"\nbudget_s = 3600"));
        goal.announce(&[Load::closed_loop(100)]);
        goal.add(&round(0));
        assert!(goal.goes_on(1));
        let StoppingRule::Known(pursuit) = &mut goal else { panic!("it ends for what it sees") };
        pursuit.last_build = Duration::from_secs(3601);
        assert!(!goal.goes_on(1) && goal.left().is_some());
    }
}
