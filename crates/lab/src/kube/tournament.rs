//! A race of all pairs of nodes of a cluster: each is a race of its own with a record of its own, and
//! all go on together.
//!
//! All pods stand at once. A build of all pairs comes before the next build of any (`schedule`), so that what drifts
//! with time drifts for all alike, and the n-th builds of two pairs can be compared. Pairs of one slot share no node
//! and race at once. All pairs get the same rates: shares of the lowest capacity that any of them has, since a rate
//! that one cannot sustain would compare its queue with the others' latency.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;
use std::time::Instant;

use record::{Arrivals, Capacity, Header, Line, Load, Machine, Placement, RequestedRate};
use serde_json::Value;
use stats::Random;

use super::cluster_setup::{ClusterSetup, PodPlacement};
use super::nodes::{LeftOut, check_pairs, choose_many};
use super::options::ClusterOptions;
use super::pair_race::PairRace;
use super::pair_record::{PairRecord, PairResult};
use super::race::{ClusterRace, pairs};
use super::runner::ClusterArena;
use super::schedule::{Company, Places, slots};
use crate::race::{Contest, Finished, UnderWay, requested_rates};
use crate::{Event, LabError};

/// What a race of all pairs is asked beside what a race in a cluster is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AllPairs {
    /// One node stands for each zone.
    pub zones: bool,
    /// One pair races at a time.
    pub one_by_one: bool,
}

/// A race of all pairs that is ready to run.
#[derive(Debug)]
pub struct Tournament {
    race: ClusterRace,
    how: AllPairs,
}

impl Tournament {
    /// Checks everything that can be checked without the cluster.
    ///
    /// # Errors
    /// [`LabError::Experiment`]: something is asked for that is not done in a cluster, or not with all pairs.
    pub fn prepare(
        experiment: record::Experiment,
        options: ClusterOptions,
        how: AllPairs,
    ) -> Result<Tournament, LabError> {
        let refused =
            |what: &str, why: &str| LabError::Experiment { what: what.to_owned(), why: why.to_owned() };
        if experiment.placement == Placement::SameNode {
            return Err(refused("--all-pairs on one node", "pairs are of two nodes; leave out --same-node"));
        }
        if experiment.until.is_some() {
            let why =
                "pairs are compared with each other, and get as many rounds each; set them with --rounds";
            return Err(refused("--until with --all-pairs", why));
        }
        check_pairs(&options.access.nodes)?;
        Ok(Tournament { race: ClusterRace::of_nodes(experiment, options)?, how })
    }

    /// Everything that the race would create, and before it the rights that it takes, as a list of objects.
    ///
    /// # Errors
    /// The cluster's nodes cannot be listed, or not two of them take pods.
    pub fn manifests(&self) -> Result<Value, LabError> {
        Ok(self.race.listed(&self.race.setup(self.ground(&mut |_| ())?)))
    }

    /// Runs it, with a record of the name `file` for each pair in a directory of its own in `dir`. Whatever happens,
    /// finished rounds are in the records, and what was made in the cluster is deleted.
    ///
    /// A pair that fails leaves, and the others go on.
    ///
    /// # Errors
    /// The cluster fails, or all pairs did: then the error of the first.
    pub fn run(
        self,
        dir: &Path,
        file: &str,
        emit: &mut dyn FnMut(Event),
    ) -> Result<Vec<PairResult>, LabError> {
        emit(Event::Connecting { machine: self.race.options.access.kubectl.cluster() });
        // Each process in a pod has three pipes here, and each pair its record.
        linux::process::raise_open_files()?;
        let ground = self.ground(emit)?;
        let played =
            self.race.with_setup(ground, emit, |setup, emit| self.played(setup, (dir, file), emit))?;
        let mut played = played.unwrap_or_default();
        if !played.is_empty() && played.iter().all(|pair| pair.result.is_err()) {
            let first = played.swap_remove(0);
            return first.result.map(|_| Vec::new());
        }
        Ok(played)
    }

    fn ground(&self, emit: &mut dyn FnMut(Event)) -> Result<PodPlacement, LabError> {
        let access = &self.race.options.access;
        let (nodes, others) = choose_many(&access.kubectl, &access.nodes, self.how.zones)?;
        others.into_iter().for_each(|LeftOut { node, why }| emit(Event::NodeLeftOut { node, why }));
        Ok(PodPlacement::Everywhere(nodes))
    }

    /// Between pods that stand.
    fn played(
        &self,
        setup: &mut ClusterSetup<'_>,
        (dir, file): (&Path, &str),
        emit: &mut dyn FnMut(Event),
    ) -> Result<Vec<PairResult>, LabError> {
        let ClusterRace { experiment, options, .. } = &self.race;
        let mut rng = Random::from_seed(self.race.seed);
        let machines = self.machines(setup, &mut rng, emit)?;
        let cpus = (options.server_cpus.as_ref(), options.host_port);
        setup.serve(&self.race.paths(), &experiment.workload, cpus)?;
        let setup = &*setup;
        let mut entries = Vec::new();
        for (index, (places, machine)) in machines.into_iter().enumerate() {
            // Pairs that race at once are not to visit their candidates in the same order.
            let seed = self.race.seed.wrapping_add(index as u64);
            let pair_race = PairRace { seed, ..self.race.pair_race(setup.pair(places), true) };
            let pair_record = PairRecord::begin(setup, places, (dir, file))?;
            entries.push((pair_race, machine, pair_record));
        }
        let slots = self.slots(setup, &mut rng);
        for (at, slot) in slots.iter().enumerate() {
            let racing = entries.iter_mut().filter(|(_, _, pair_record)| slot.contains(&pair_record.places));
            let racing: Vec<_> = racing.map(|entry| (entry.2.name.clone(), entry)).collect();
            emit(preparing("looking which paths are there", (at, slots.len()), &racing));
            at_once(racing.into_iter(), emit, |(pair_race, machine, pair_record), emit| {
                let machine = machine.clone();
                let mut header = None;
                pair_record.go_on(emit, |writer, emit| {
                    if pair_race.options.access.is_stopped() {
                        return Ok(false);
                    }
                    header = Some(pair_race.open(machine, writer, emit)?);
                    Ok(true)
                });
                pair_record.header = header;
            });
        }
        let matches = entries
            .iter_mut()
            .filter_map(|(pair_race, _, pair_record)| Match::of(pair_race, pair_record))
            .collect();
        self.race_all(setup, matches, &mut rng, emit);
        Ok(entries.into_iter().map(|(_, _, pair_record)| pair_record.played()).collect())
    }

    /// What the processes of each pair see of their nodes. One that is of another version fails the
    /// race before it begins.
    fn machines(
        &self,
        setup: &ClusterSetup<'_>,
        rng: &mut Random,
        emit: &mut dyn FnMut(Event),
    ) -> Result<BTreeMap<Places, Machine>, LabError> {
        let pairs = pairs(&self.race.paths());
        let mut found = BTreeMap::new();
        for slot in self.slots(setup, rng) {
            let mut looks: Vec<(Places, Option<Result<Machine, LabError>>)> =
                slot.into_iter().map(|places| (places, None)).collect();
            at_once(looks.iter_mut().map(|look| (String::new(), look)), emit, |(places, seen), _| {
                *seen = Some(self.race.pair_race(setup.pair(*places), true).machine(&pairs));
            });
            for (places, seen) in looks {
                found.insert(places, seen.expect("each was looked at")?);
            }
        }
        Ok(found)
    }

    /// Finds the rates that all pairs get, then races build by build.
    fn race_all(
        &self,
        setup: &ClusterSetup<'_>,
        mut matches: Vec<Match<'_, '_>>,
        rng: &mut Random,
        emit: &mut dyn FnMut(Event),
    ) {
        let slots = self.slots(setup, rng);
        for (at, slot) in slots.iter().enumerate() {
            let racing: Vec<_> = in_slot(&mut matches, slot).collect();
            emit(preparing("finding capacities", (at, slots.len()), &racing));
            at_once(racing.into_iter(), emit, |one, emit| one.sound(emit));
        }
        let found = matches.iter().map(|one| (one.pair_record.name.as_str(), one.found.as_slice()));
        let lowest = lowest(found);
        let (rates, arrivals) =
            (requested_rates(&self.race.experiment), self.race.experiment.workload.arrivals);
        let loads = shared_loads(&rates, arrivals, &lowest);
        if rates.iter().any(|rate| matches!(rate, RequestedRate::OfCapacity(_))) {
            for (pair, capacity) in &lowest {
                emit(Event::LowestCapacity { pair: (*pair).to_owned(), capacity: (*capacity).clone() });
            }
        }
        matches.iter_mut().for_each(|one| one.adopt(&loads, emit));
        let (began, builds) = (Instant::now(), self.race.experiment.builds);
        for build in 0..builds {
            let slots = self.slots(setup, rng);
            for (at, slot) in slots.iter().enumerate() {
                let racing: Vec<_> = in_slot(&mut matches, slot).collect();
                if racing.is_empty() {
                    continue;
                }
                let done = build * slots.len() as u32 + at as u32;
                let all = builds * slots.len() as u32;
                let left = began.elapsed().checked_div(done).map(|each| each * (all - done));
                let pairs = racing.iter().map(|(name, _)| name.clone()).collect();
                emit(Event::Slot { build, builds, slot: at, slots: slots.len(), pairs, left });
                at_once(racing.into_iter(), emit, |one, emit| one.build(emit));
            }
        }
        matches.into_iter().for_each(|one| one.pair_record.end(Ok(Finished::Whole)));
    }

    fn slots(&self, setup: &ClusterSetup<'_>, rng: &mut Random) -> Vec<Vec<Places>> {
        let company = if self.how.one_by_one { Company::Alone } else { Company::Disjoint };
        slots(setup.nodes().len(), company, rng)
    }
}

/// The pairs of a slot that are still racing, with their names.
fn in_slot<'a, 'm, 'c>(
    matches: &'a mut [Match<'m, 'c>],
    slot: &'a [Places],
) -> impl Iterator<Item = (String, &'a mut Match<'m, 'c>)> {
    let racing =
        matches.iter_mut().filter(|one| slot.contains(&one.pair_record.places) && !one.pair_record.is_over());
    racing.map(|one| (one.pair_record.name.clone(), one))
}

/// Does something with several pairs at once, each on a thread of its own, and passes on what they emit.
fn at_once<T: Send>(
    pairs: impl Iterator<Item = (String, T)>,
    emit: &mut dyn FnMut(Event),
    work: impl Fn(T, &mut dyn FnMut(Event)) + Sync,
) {
    std::thread::scope(|scope| {
        let (say, heard) = mpsc::channel();
        for (name, pair) in pairs {
            let (say, work) = (say.clone(), &work);
            // The other end hears until all have ended.
            let mut emit = move |event| say.send((name.clone(), event)).expect("it is heard");
            scope.spawn(move || work(pair, &mut emit));
        }
        drop(say);
        heard.into_iter().filter_map(|(name, event)| of_pair(&name, event)).for_each(emit);
    });
}

/// An event of one pair among many, if it matters to a user that waits for all.
fn of_pair(pair: &str, event: Event) -> Option<Event> {
    let named = |name: &str| format!("{pair}: {name}");
    match event {
        Event::Voided { name, why } => Some(Event::Voided { name: named(&name), why }),
        Event::Broke { name, round, why } => Some(Event::Broke { name: named(&name), round, why }),
        Event::CannotRun { name, reasons } => Some(Event::CannotRun { name: named(&name), reasons }),
        Event::PairLeft { .. } => Some(event),
        _ => None,
    }
}

/// What pairs of a slot do before the first build.
fn preparing<T>(what: &str, (slot, slots): (usize, usize), racing: &[(String, T)]) -> Event {
    let pairs = racing.iter().map(|(name, _)| name.clone()).collect();
    Event::Preparing { what: what.to_owned(), slot, slots, pairs }
}

/// For each size of answers the lowest capacity that was found, and the name of the pair that has it.
fn lowest<'f>(found: impl Iterator<Item = (&'f str, &'f [Capacity])>) -> Vec<(&'f str, &'f Capacity)> {
    let mut lowest: Vec<(&str, &Capacity)> = Vec::new();
    for (pair, found) in found {
        if lowest.is_empty() {
            lowest.extend(found.iter().map(|one| (pair, one)));
            continue;
        }
        for (lowest, one) in lowest.iter_mut().zip(found) {
            if one.rate_per_s < lowest.1.rate_per_s {
                *lowest = (pair, one);
            }
        }
    }
    lowest
}

/// The loads of all pairs: rates that are shares of a capacity are shares of the lowest. For each size of answers first
/// the closed loop, then the rates.
fn shared_loads(rates: &[RequestedRate], arrivals: Arrivals, lowest: &[(&str, &Capacity)]) -> Vec<Load> {
    let of_size = |lowest: &Capacity| {
        let closed_loop = Load::closed_loop(lowest.body_bytes);
        // It is no share of each pair's own.
        let at = |rate: &RequestedRate| Load { of_capacity: None, ..lowest.load(rate, arrivals) };
        std::iter::once(closed_loop).chain(rates.iter().map(at)).collect::<Vec<_>>()
    };
    lowest.iter().flat_map(|(_, lowest)| of_size(lowest)).collect()
}

/// A pair that races.
struct Match<'m, 'c> {
    contest: Contest<'m, ClusterArena<'m>>,
    header: Header,
    under_way: Option<UnderWay>,
    /// Of its reference, for each size of answers.
    found: Vec<Capacity>,
    pair_record: &'m mut PairRecord<'c>,
}

impl<'m, 'c> Match<'m, 'c> {
    /// `None`: it is over before it began.
    fn of(pair_race: &'m PairRace<'c>, pair_record: &'m mut PairRecord<'c>) -> Option<Match<'m, 'c>> {
        let header = pair_record.header.take()?;
        Some(Match { contest: pair_race.contest(), header, under_way: None, found: Vec::new(), pair_record })
    }

    /// Finds the capacity of its reference.
    fn sound(&mut self, emit: &mut dyn FnMut(Event)) {
        let Match { contest, header, under_way, found, pair_record } = self;
        pair_record.go_on(emit, |writer, emit| {
            *under_way = Some(contest.begin(header)?);
            let capacities = contest.capacities(writer, emit)?;
            let is_found = capacities.is_some();
            *found = capacities.unwrap_or_default();
            Ok(is_found)
        });
    }

    /// Takes on the rates of all pairs.
    fn adopt(&mut self, loads: &[Load], emit: &mut dyn FnMut(Event)) {
        let Match { under_way, pair_record, .. } = self;
        let Some(under_way) = under_way.as_mut().filter(|_| !pair_record.is_over()) else { return };
        pair_record.go_on(emit, |writer, _| {
            writer.append(&Line::Loads(loads.to_vec()))?;
            under_way.adopt(loads.to_vec());
            Ok(true)
        });
    }

    /// Races one build, unless the pair is out.
    fn build(&mut self, emit: &mut dyn FnMut(Event)) {
        let Match { contest, under_way, pair_record, .. } = self;
        let Some(under_way) = under_way else { return };
        pair_record.go_on(emit, |writer, emit| contest.next_build(under_way, writer, emit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pairs_get_shares_of_the_lowest_capacity() {
        let found = |rates: [f64; 2]| -> Vec<Capacity> {
            let of = |(body_bytes, rate_per_s)| Capacity { body_bytes, rate_per_s, samples_per_s: vec![] };
            [100, 4096].into_iter().zip(rates).map(of).collect()
        };
        let (fast, slow) = (found([20_000.0, 9_000.0]), found([10_000.0, 9_500.0]));
        let rates = [RequestedRate::OfCapacity(0.5), RequestedRate::PerSecond(700.0)];
        let shares = |found: &[&[Capacity]]| -> Vec<(u32, Option<f64>)> {
            let loads =
                shared_loads(&rates, Arrivals::Constant, &lowest(found.iter().map(|found| ("", *found))));
            assert!(loads.iter().all(|load| load.of_capacity.is_none()));
            loads.into_iter().map(|load| (load.body_bytes, load.rate_per_s)).collect()
        };
        let expected = [
            (100, None),
            (100, Some(5_000.0)),
            (100, Some(700.0)),
            (4096, None),
            (4096, Some(4_500.0)),
            (4096, Some(700.0)),
        ];
        assert_eq!(shares(&[&fast, &slow]), expected);
        // One that found none has left.
        assert_eq!(shares(&[&slow, &[], &fast]), expected);
        assert_eq!(shares(&[&[], &[]]), []);
        let named = [("a", fast.as_slice()), ("b", &slow)];
        let pairs: Vec<&str> = lowest(named.into_iter()).into_iter().map(|(pair, _)| pair).collect();
        assert_eq!(pairs, ["b", "a"]);
    }
}
