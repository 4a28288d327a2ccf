//! Compares the pairs of nodes of a race of all pairs with each other.
//!
//! A race of all pairs races build by build (the n-th of all pairs before the next of any), so all pairs are resampled
//! jointly: the n-th resample draws the same builds for each, and what drifted for all cancels in the ratio.
//!
//! **A pair** is compared with the median of the others. **A node** is compared, as a client and as a server, by
//! the lower median over its partners with the median of the pairs in which it takes no part. By the lower median
//! it is only worse if it is so with most of its partners (with two, with both), and not for one bad link, which
//! is a pair's finding.
//!
//! **Many tests.** Of 20 differences known at 95 % one is luck. The intervals that decide are those at 5 % ÷ the number
//! of all tests of the map (Bonferroni), so that of 20 maps of a cluster without any difference at most one names
//! something. A difference must exceed the noise of the control besides, as in any race.

mod figures;

use std::collections::{BTreeMap, BTreeSet};

use record::{NodeInZone, NodePair, RaceRecord, Statistic};
use stats::{Interval, median};

use crate::contrast::Contrast;
use crate::judged::{Compared, Test};
use crate::{Cells, ComparedAt, Comparisons, Judgement, ResamplingUnit, ResamplingUnits, Verdict};
use figures::{Figures, Middle};

/// The error that a map may make about a cluster.
const ALPHA: f64 = 0.05;
/// All that may decide.
const DECIDE: [Statistic; 4] = [Statistic::P99, Statistic::TypicalP99, Statistic::P50, Statistic::Throughput];
/// That of an interval that is shown.
const SHOWN: f64 = 0.05;

/// A race of one of the pairs.
#[derive(Debug)]
struct Raced<'a> {
    pair: &'a NodePair,
    cells: Cells<'a>,
    comparisons: Comparisons,
    /// The units of its cells.
    width: usize,
    /// Those that can be compared with the same of other pairs.
    units: usize,
}

/// As what a node takes part in a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Role {
    Client,
    Server,
}

impl Role {
    const BOTH: [Role; 2] = [Role::Client, Role::Server];
}

/// What is worse than the rest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Where {
    /// A node where it is the client's, or where it is the server's.
    Node(NodeInZone, Role),
    /// A pair, by its place among the races.
    Pair(usize),
}

/// A path that is worse somewhere than elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct WorsePath {
    /// The path, as an entrant.
    pub entrant: usize,
    /// The statistic that decided.
    pub of: Statistic,
    /// By how much.
    pub by: WorseBy,
}

/// By how much a path is worse.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WorseBy {
    /// The ratio to the rest, at 95 %.
    Ratio(Interval),
    /// The share of requests without an answer, and that of the rest: the statistic lies among these.
    Unanswered([f64; 2]),
}

/// Something that is worse than the rest.
#[derive(Debug, Clone, PartialEq)]
pub struct Worse {
    /// The node or pair that is worse.
    pub at: Where,
    /// With which paths, in display order.
    pub paths: Vec<WorsePath>,
}

/// The races of all pairs, compared.
#[derive(Debug)]
pub struct PairsCompared<'a> {
    raced: Vec<Raced<'a>>,
    nodes: Vec<NodeInZone>,
    /// The load at which they are compared.
    load: usize,
    at: ComparedAt,
    deciding: Vec<Statistic>,
    entrants: usize,
    /// Pairs ÷ the others, by pair, entrant and statistic.
    of_pairs: BTreeMap<(usize, usize, usize), Contrast>,
    /// Nodes ÷ the pairs without them, by node, role, entrant and statistic.
    of_nodes: BTreeMap<(usize, Role, usize, usize), Contrast>,
}

impl<'a> PairsCompared<'a> {
    /// Of the records of one race of all pairs. `None` if none of them has a round, or one is not of a pair.
    pub fn of(races: &[&'a RaceRecord]) -> Option<PairsCompared<'a>> {
        let has_builds = races.iter().any(|race| ResamplingUnits::builds(race).len() > 1);
        let raced = |race: &&'a RaceRecord| {
            let units = ResamplingUnits::of(race);
            let cells = Cells::of(race, &units);
            let comparisons = Comparisons::of_those(&cells, race.header.seed, &DECIDE);
            // The rounds of its only build are not the builds of others.
            let is_short = has_builds && units.unit == ResamplingUnit::Round;
            let whole = if is_short { units.count.min(1) } else { units.count };
            let pair = race.header.pair.as_ref()?;
            Some(Raced { pair, cells, comparisons, width: units.count, units: whole })
        };
        let raced: Vec<Raced<'_>> = races.iter().map(raced).collect::<Option<_>>()?;
        let cells: Vec<(&RaceRecord, &Cells<'_>)> =
            races.iter().copied().zip(raced.iter().map(|one| &one.cells)).collect();
        let at = ComparedAt::of(&cells)?;
        let load = at.load.unwrap_or(at.main);
        let nodes: BTreeSet<NodeInZone> =
            raced.iter().flat_map(|one| [one.pair.client.clone(), one.pair.server.clone()]).collect();
        let whole = raced.iter().find(|one| one.cells.loads() > load)?;
        let mut compared = PairsCompared {
            deciding: whole.comparisons.deciding(load),
            entrants: raced.iter().map(|one| one.cells.entrants).min()?,
            nodes: by_zone(nodes),
            load,
            at,
            raced,
            of_pairs: BTreeMap::new(),
            of_nodes: BTreeMap::new(),
        };
        let figures = Figures::of(&compared, races.iter().map(|race| race.header.seed).min()?);
        compared.of_pairs = compared.pairs_over_others(&figures);
        compared.of_nodes = compared.nodes_over_rest(&figures);
        Some(compared)
    }

    /// The nodes, those of a zone side by side.
    pub fn nodes(&self) -> &[NodeInZone] {
        &self.nodes
    }

    /// The load at which pairs are compared: the one by which a race is summed up, or where that is past the capacity
    /// of a path between some nodes, a lower one or the closed loop.
    pub fn load(&self) -> usize {
        self.load
    }

    /// Why it is that load.
    pub fn compared_at(&self) -> &ComparedAt {
        &self.at
    }

    /// How many tests were made.
    pub fn tests(&self) -> usize {
        self.of_pairs.len() + self.of_nodes.len()
    }

    /// What is shown of each pair: the first of the statistics that decide which all pairs that raced have.
    pub fn shown(&self) -> Statistic {
        let raced = |pair: &usize| self.deciding.iter().any(|of| self.own(*pair, 0, *of).is_some());
        let all_have = |of: &&Statistic| {
            let mut pairs = (0..self.raced.len()).filter(raced);
            pairs.all(|pair| self.own(pair, 0, **of).is_some())
        };
        let last = self.deciding.last().expect("something decides at each load");
        *self.deciding.iter().find(all_have).unwrap_or(last)
    }

    /// A pair's own figure.
    pub fn own(&self, pair: usize, entrant: usize, of: Statistic) -> Option<f64> {
        Some(self.raced_at_load(pair)?.comparisons.own(entrant, self.load, of)?.0)
    }

    /// The ratio to the pair's own reference, at 95 %.
    pub fn over_host(&self, pair: usize, entrant: usize, of: Statistic) -> Option<Interval> {
        self.raced_at_load(pair)?.comparisons.interval(entrant, self.load, of)
    }

    /// The ratio to the median of the other pairs, at 95 %.
    pub fn over_median(&self, pair: usize, entrant: usize, of: Statistic) -> Option<Interval> {
        let ratio = self.of_pairs.get(&(pair, entrant, of as usize))?.ratio()?;
        Some(ratio.interval(SHOWN))
    }

    /// A pair compared with the others, and what decided.
    pub fn judged(&self, pair: usize, entrant: usize) -> (Option<Verdict>, Option<Statistic>) {
        let judged = self.pair_judged(pair, entrant);
        (judged.verdict(), judged.decisive().map(|test| test.of))
    }

    /// How many paths between two nodes have no verdict for the requests that one side left without an answer.
    pub fn open(&self) -> usize {
        let pairs = (0..self.raced.len())
            .flat_map(|pair| self.judged_entrants().map(move |entrant| self.pair_judged(pair, entrant)));
        pairs.filter(|judged| judged.verdict().is_none() && !judged.tests().is_empty()).count()
    }

    fn pair_judged(&self, pair: usize, entrant: usize) -> Judgement {
        judgement(self.deciding.iter().filter_map(|of| self.pair_test(pair, entrant, *of)).collect())
    }

    /// What is worse than the rest, nodes first. Pairs of a node that is worse itself, in that role and with that path,
    /// are not named again.
    pub fn worse(&self) -> Vec<Worse> {
        let mut found: BTreeMap<Where, Vec<WorsePath>> = BTreeMap::new();
        for entrant in self.judged_entrants() {
            let mut blamed: BTreeSet<(&str, Role)> = BTreeSet::new();
            for (at, node) in self.nodes.iter().enumerate() {
                for role in Role::BOTH {
                    let tests = self.deciding.iter().filter_map(|of| {
                        let contrast = self.of_nodes.get(&(at, role, entrant, *of as usize))?;
                        Some(Test::of(*of, contrast, self.alpha(), self.usual_floor(*of, contrast)?))
                    });
                    let of_node = |of: Statistic| self.of_nodes.get(&(at, role, entrant, of as usize));
                    if let Some((of, by)) = worse_by(&judgement(tests.collect()), of_node) {
                        blamed.insert((&node.node, role));
                        let paths = found.entry(Where::Node(node.clone(), role)).or_default();
                        paths.push(WorsePath { entrant, of, by });
                    }
                }
            }
            for (index, Raced { pair, .. }) in self.raced.iter().enumerate() {
                let ends =
                    [(pair.client.node.as_str(), Role::Client), (pair.server.node.as_str(), Role::Server)];
                if ends.iter().any(|end| blamed.contains(end)) {
                    continue;
                }
                let of_pair = |of: Statistic| self.of_pairs.get(&(index, entrant, of as usize));
                if let Some((of, by)) = worse_by(&self.pair_judged(index, entrant), of_pair) {
                    found.entry(Where::Pair(index)).or_default().push(WorsePath { entrant, of, by });
                }
            }
        }
        found.into_iter().map(|(at, paths)| Worse { at, paths }).collect()
    }

    /// The reference and the contenders: what the control is off by is noise.
    fn judged_entrants(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.entrants).filter(|entrant| *entrant != 1)
    }

    fn alpha(&self) -> f64 {
        ALPHA / self.tests().max(1) as f64
    }

    fn pair_test(&self, pair: usize, entrant: usize, of: Statistic) -> Option<Test> {
        let contrast = self.of_pairs.get(&(pair, entrant, of as usize))?;
        let own = self.raced_at_load(pair)?.comparisons.floor_of(self.load, of, contrast)?;
        Some(Test::of(of, contrast, self.alpha(), own.max(self.usual_floor(of, contrast)?)))
    }

    /// The median of what the control is off by in the pairs, in the logarithm, for a comparison of that kind.
    fn usual_floor(&self, of: Statistic, contrast: &Contrast) -> Option<f64> {
        let floors = (0..self.raced.len())
            .filter_map(|pair| self.raced_at_load(pair)?.comparisons.floor_of(self.load, of, contrast));
        median(&floors.collect::<Vec<_>>())
    }

    /// Each pair's figure ÷ the median of the others', over the builds that it and most of these have.
    fn pairs_over_others(&self, figures: &Figures) -> BTreeMap<(usize, usize, usize), Contrast> {
        let mut contrasts = BTreeMap::new();
        for (pair, entrant, of) in self.tested() {
            let others: Vec<usize> = (0..self.raced.len()).filter(|other| *other != pair).collect();
            let Some(units) = self.shared_units([&[pair], &others], entrant) else { continue };
            let sides = [(&[pair][..], Middle::Between), (&others, Middle::Between)];
            let contrast = figures.contrast(sides, entrant, of, units);
            contrasts.extend(contrast.map(|contrast| ((pair, entrant, of as usize), contrast)));
        }
        contrasts
    }

    /// Each node's figure in a role ÷ that of the pairs without it, over the builds that most on both sides have.
    fn nodes_over_rest(&self, figures: &Figures) -> BTreeMap<(usize, Role, usize, usize), Contrast> {
        let mut contrasts = BTreeMap::new();
        for (at, node) in self.nodes.iter().enumerate() {
            for role in Role::BOTH {
                let (own, rest) = self.with_and_without(node, role);
                for entrant in self.judged_entrants() {
                    let Some(units) = self.shared_units([&own, &rest], entrant) else { continue };
                    for of in &self.deciding {
                        // With one partner it could not be distinguished from the pair.
                        if figures.count(&own, entrant, *of, units) < 2 {
                            continue;
                        }
                        let sides = [(&own[..], Middle::Better), (&rest, Middle::Between)];
                        let contrast = figures.contrast(sides, entrant, *of, units);
                        contrasts
                            .extend(contrast.map(|contrast| ((at, role, entrant, *of as usize), contrast)));
                    }
                }
            }
        }
        contrasts
    }

    /// The pairs in which a node has a role, and those in which it has none.
    fn with_and_without(&self, node: &NodeInZone, role: Role) -> (Vec<usize>, Vec<usize>) {
        let is_at = |pair: usize, role: Role| match role {
            Role::Client => self.raced[pair].pair.client == *node,
            Role::Server => self.raced[pair].pair.server == *node,
        };
        let all = || 0..self.raced.len();
        let rest = all().filter(|pair| Role::BOTH.iter().all(|role| !is_at(*pair, *role)));
        (all().filter(|pair| is_at(*pair, role)).collect(), rest.collect())
    }

    /// Every comparison that is tested: pair, entrant and statistic.
    fn tested(&self) -> impl Iterator<Item = (usize, usize, Statistic)> {
        (0..self.raced.len()).flat_map(move |pair| {
            self.judged_entrants()
                .flat_map(move |entrant| self.deciding.iter().map(move |of| (pair, entrant, *of)))
        })
    }

    /// The builds of a path in a pair; `None` if it did not race there to the pair's end.
    fn units(&self, pair: usize, entrant: usize) -> Option<usize> {
        let raced = self.raced_at_load(pair)?;
        let is_whole = !raced.cells.broke[entrant] && !raced.cells.cell(entrant, self.load).trials.is_empty();
        is_whole.then_some(raced.units)
    }

    /// The builds of a path that most of the pairs have, on each of two sides; `None` if one side has none.
    fn shared_units(&self, sides: [&[usize]; 2], entrant: usize) -> Option<usize> {
        let of_most = |pairs: &[usize]| {
            let mut units: Vec<usize> = pairs.iter().filter_map(|pair| self.units(*pair, entrant)).collect();
            units.sort_unstable();
            units.get(units.len().checked_sub(1)? / 2).copied()
        };
        let [one, other] = sides.map(of_most);
        Some(one?.min(other?))
    }

    fn raced_at_load(&self, pair: usize) -> Option<&Raced<'a>> {
        Some(&self.raced[pair]).filter(|raced| raced.cells.loads() > self.load)
    }
}

/// The verdict of tests in their order.
fn judgement(tests: Vec<Test>) -> Judgement {
    if tests.is_empty() { Judgement::Unknown } else { Judgement::Tested(tests) }
}

/// The statistic that decides for the worse, and by how much.
fn worse_by<'a>(
    judged: &Judgement,
    contrast: impl Fn(Statistic) -> Option<&'a Contrast>,
) -> Option<(Statistic, WorseBy)> {
    let test = judged.decisive().filter(|test| test.verdict == Verdict::Worse)?;
    let by = match (test.compared, contrast(test.of)?) {
        (Compared::Answered { shares, .. }, _) => WorseBy::Unanswered(shares.map(|share| 1.0 - share)),
        (Compared::Figures, contrast) => WorseBy::Ratio(contrast.ratio()?.interval(SHOWN)),
    };
    Some((test.of, by))
}

/// By zone, then by name; those without a zone last.
fn by_zone(nodes: BTreeSet<NodeInZone>) -> Vec<NodeInZone> {
    let mut nodes: Vec<NodeInZone> = nodes.into_iter().collect();
    nodes.sort_by_key(|node| (node.zone.is_none(), node.zone.clone(), node.node.clone()));
    nodes
}
