//! From a race to the data path that a node ships: the best of those that the plugin can make.
//!
//! Figures and verdicts are the race's own ([`verdict`]). What is decided here is which candidates count, and that a
//! candidate goes before one that cannot be distinguished from it only by the order of the report.

use datapath::{ATTACHES, Between, DataPath, Family};
use record::{Entrant, RaceRecord, Setting, Side};
use verdict::{Cells, ComparedAt, Comparisons, Ranked, ResamplingUnits, Verdict, ranking};

/// What a race says is to be shipped.
#[derive(Debug, Clone)]
pub struct Choice {
    /// How containers reach the node, one of [`ATTACHES`].
    pub path: &'static DataPath,
    /// The containers' MTU in bytes, where the candidate raced with one of its own.
    pub mtu: Option<u32>,
    /// Whether nodes had routes to each other's containers in the race, which the plugin does not make.
    pub had_routes: bool,
    /// The load by which it was chosen, an index into the record's.
    pub load: usize,
    /// Why it was that load.
    pub compared_at: ComparedAt,
    /// All contenders, in the order of the report: those that were judged, the best first, then the others.
    pub contenders: Vec<Considered>,
}

/// What the choice made of a contender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Considered {
    /// Its index among the record's entrants.
    pub entrant: usize,
    /// What became of it.
    pub fate: Fate,
}

/// What became of a contender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It ranks first of those that can be shipped.
    Chosen,
    /// The race cannot distinguish it from the chosen one, which ranks ahead of it.
    WithinNoise,
    /// The chosen one beats it.
    Beaten,
    /// The race has too few samples to compare it with the chosen one, or it beats that one and is beaten by another.
    Uncompared,
    /// The plugin cannot make it as it raced, or it did not race; why.
    NotShipped(String),
}

/// Why a race gives nothing to ship.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoChoice {
    /// The record has no end.
    #[error("choose by a race that was cut off: its record has no end")]
    CutOff,
    /// The race was interrupted.
    #[error("choose by a race that was stopped early: {0}")]
    Stopped(String),
    /// Lines were taken out of the record.
    #[error("choose by a record from which rounds are missing")]
    Incomplete,
    /// The candidates differ in more than their data path.
    #[error("choose by a race that swept over {0}: its candidates differ in more than the data path")]
    Swept(String),
    /// The race counted instructions instead of measuring time.
    #[error("choose by a race that counted instructions, which do not say which path is faster")]
    Counted,
    /// The race judged no candidate, for this reason.
    #[error("choose by a race that compared nothing: {0}")]
    NotCompared(&'static str),
    /// Some candidate could not carry any of the rates.
    #[error("choose by a race whose every rate is past the capacity of a candidate")]
    PastCapacity,
    /// None of the candidates can be shipped.
    #[error("ship any candidate of this race: {0}")]
    NoneShips(String),
}

impl NoChoice {
    /// What the user can try, shown as a hint; `None`: nothing is known to help.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            NoChoice::CutOff | NoChoice::Stopped(_) | NoChoice::Incomplete => Some("race again, to the end"),
            NoChoice::Swept(_) => Some("race at one value, without `sweep`"),
            NoChoice::Counted => Some("race without --exact"),
            NoChoice::NotCompared(_) => Some("race several rounds, on several builds"),
            NoChoice::PastCapacity => Some("race at lower rates, or with a closed loop beside them"),
            NoChoice::NoneShips(_) => Some(
                "race one of the data paths that the plugin makes (docs/cni-plugin.md), or name one with --attach",
            ),
        }
    }
}

/// Chooses what to ship: of the candidates that the plugin can make, the first in the order of the report that none
/// behind it beats. Candidates are compared with each other as the race compares them with the host.
///
/// # Errors
/// The race is no ground for a choice, or none of its candidates can be shipped.
pub fn choose(race: &RaceRecord) -> Result<Choice, NoChoice> {
    refuse(race)?;
    let units = ResamplingUnits::of(race);
    let cells = Cells::of(race, &units);
    let compared_at = ComparedAt::of(&[(race, &cells)]).ok_or(NoChoice::NotCompared("it has no load"))?;
    let load = compared_at.load.ok_or(NoChoice::PastCapacity)?;
    let comparisons = Comparisons::of(&cells, race.header.seed);
    let ranked = ranking(&comparisons, race.header.entrants.len(), load);
    if ranked.is_empty() {
        return Err(NoChoice::NotCompared("it takes a contender, and rounds enough for an interval"));
    }
    let shipped = |entrant: usize| shipped(race, entrant);
    let able: Vec<&Ranked> = ranked.iter().filter(|one| shipped(one.entrant).is_ok()).collect();
    let against = |pair: [usize; 2]| comparisons.judged_against(&cells, pair, load).verdict();
    let better = |held: usize, one: &&Ranked| match against([one.entrant, held]) {
        Some(Verdict::Better) => one.entrant,
        _ => held,
    };
    let Some(chosen) = able.first().map(|first| able.iter().fold(first.entrant, better)) else {
        return Err(NoChoice::NoneShips(reasons(race)));
    };
    let fate = |entrant: usize| match (shipped(entrant), ranked.iter().any(|one| one.entrant == entrant)) {
        (Err(why), _) => Fate::NotShipped(why),
        (Ok(_), false) => Fate::NotShipped("it was not judged at this load".to_owned()),
        (Ok(_), true) if entrant == chosen => Fate::Chosen,
        (Ok(_), true) => match against([entrant, chosen]) {
            Some(Verdict::Indistinguishable | Verdict::Reference) => Fate::WithinNoise,
            Some(Verdict::Worse) => Fate::Beaten,
            Some(Verdict::Better) | None => Fate::Uncompared,
        },
    };
    let order = ranked.iter().map(|one| one.entrant);
    let others =
        (2..race.header.entrants.len()).filter(|other| ranked.iter().all(|one| one.entrant != *other));
    let contenders = order.chain(others).map(|entrant| Considered { entrant, fate: fate(entrant) }).collect();
    let Shipped { path, mtu, had_routes } = shipped(chosen).expect("only those that ship are chosen");
    Ok(Choice { path, mtu, had_routes, load, compared_at, contenders })
}

/// Refuses a race that ended before its end, or whose figures are about something else.
fn refuse(race: &RaceRecord) -> Result<(), NoChoice> {
    let end = race.end.as_ref().ok_or(NoChoice::CutOff)?;
    if let Some(why) = &end.stopped {
        return Err(NoChoice::Stopped(why.clone()));
    }
    if !race.missing_rounds().is_empty() {
        return Err(NoChoice::Incomplete);
    }
    if let Some(sweep) = &race.header.experiment.sweep {
        return Err(NoChoice::Swept(sweep.over.to_string()));
    }
    if race.header.experiment.exact() { Err(NoChoice::Counted) } else { Ok(()) }
}

/// A candidate as the plugin makes it.
struct Shipped {
    path: &'static DataPath,
    mtu: Option<u32>,
    had_routes: bool,
}

/// The knob that is a key of a configuration, too.
const MTU: &str = "mtu";

/// A candidate as the plugin makes it, or why it cannot.
fn shipped(race: &RaceRecord, entrant: usize) -> Result<Shipped, String> {
    let Entrant { name, path, unmet, settings, mtu, .. } = &race.header.entrants[entrant];
    if let Some(unmet) = unmet.first() {
        return Err(format!("it could not run in the race: {unmet}"));
    }
    let Some(raced) = datapath::find(path) else {
        return Err("other plugins made it: install it with their own configuration".to_owned());
    };
    if raced.between == Between::Router {
        return Err(
            "it needs the route table of a cloud's router, which the plugin does not write".to_owned()
        );
    }
    // Whatever the underlay's MTU is.
    if raced.transport.overhead_bytes(Family::V4, 1500) > 0 {
        return Err(format!(
            "it needs a tunnel between nodes ({}), and the plugin makes none",
            raced.transport.name()
        ));
    }
    let Some(path) = ATTACHES.iter().find(|one| one.attach.name() == raced.attach.name()) else {
        return Err(format!("the plugin has no attach {}", raced.attach.name()));
    };
    // What the experiment asked of a candidate beside its path and settings, found by the name that it raced under.
    if let Some(asked) = race.header.experiment.candidates.iter().find(|asked| asked.title() == *name) {
        if asked.in_container != Side::Both {
            return Err("only one side of it was in a container".to_owned());
        }
        if !asked.underlay.is_empty() || asked.connections.is_some() {
            return Err("it raced on a wire or with connections of its own".to_owned());
        }
        if let Some(plant) = asked.plant {
            return Err(format!("it raced with {plant}, on purpose"));
        }
        if !asked.stack.is_usual() {
            return Err(format!("its server was of the race's own ({})", asked.stack));
        }
    }
    let is_mtu = |setting: &&Setting| setting.knob == MTU && setting.side.is_both();
    if let Some(Setting { knob, value, side }) = settings.iter().find(|setting| !is_mtu(setting)) {
        return Err(format!(
            "it raced with {knob}={value} on {side}, which is no key of a network's configuration; `hostgap tune` sets it"
        ));
    }
    let had_routes = raced.transport.name() != path.transport.name();
    Ok(Shipped { path, mtu: mtu.filter(|_| settings.iter().any(|one| is_mtu(&one))), had_routes })
}

/// Why none ships, each contender with its reason.
fn reasons(race: &RaceRecord) -> String {
    let contenders = race.header.entrants.iter().enumerate().skip(2);
    let reasons = contenders.filter_map(|(index, entrant)| {
        shipped(race, index).err().map(|why| format!("{}: {why}", entrant.name))
    });
    let reasons: Vec<String> = reasons.collect();
    if reasons.is_empty() { "none of them was judged".to_owned() } else { reasons.join("; ") }
}
