//! From the records of a race of all pairs to a [`PairsMap`].

use record::{NodeInZone, NodePair, RaceRecord};
use stats::median;
use verdict::{ComparedAt, PairsCompared, Role, Where, Worse, WorseBy};

use super::{load, unit};
use crate::figures;
use crate::pairs::{
    PairFigure, PairRace, PairsFinding, PairsMap, PathMap, UnansweredShares, WorsePathFigure,
};

/// Compares the pairs of a race of all pairs. Records that are of none are left out; `None` if no others are there.
pub fn map(races: &[RaceRecord]) -> Option<PairsMap> {
    let mut races: Vec<(&NodePair, &RaceRecord)> =
        races.iter().filter_map(|race| Some((race.header.pair.as_ref()?, race))).collect();
    races.sort_by_key(|(pair, _)| (*pair).clone());
    let (_, first) = *races.first()?;
    let records: Vec<&RaceRecord> = races.iter().map(|(_, race)| *race).collect();
    let compared = PairsCompared::of(&records);
    let shown = compared.as_ref().map(PairsCompared::shown);
    let paths = compared.iter().flat_map(|compared| paths(&races, compared)).collect::<Vec<_>>();
    let findings: Vec<PairsFinding> = compared
        .iter()
        .flat_map(|compared| compared.worse().into_iter().map(|worse| finding(&races, worse)))
        .collect();
    let measure = first.header.experiment.workload.kind.measure();
    Some(PairsMap {
        experiment: first.header.experiment.name.clone(),
        hostgap: first.header.hostgap.clone(),
        started_unix_s: records.iter().map(|race| race.header.started_unix_s).min()?,
        nodes: compared.as_ref().map_or_else(Vec::new, |compared| compared.nodes().to_vec()),
        races: races.iter().map(|(pair, race)| raced(pair, race)).collect(),
        load: compared.as_ref().and_then(|compared| {
            let at = compared.load();
            records.iter().find_map(|race| Some(load(race, race.loads.get(at)?)))
        }),
        statistic: shown.map_or("", |shown| shown.label(measure)),
        unit: shown.map_or("ns", |shown| unit(shown, measure).0),
        tests: compared.as_ref().map_or(0, PairsCompared::tests),
        verdict: verdict(&races, &findings, &paths, compared.as_ref()),
        notes: notes(&records, compared.as_ref()),
        paths,
        findings,
    })
}

fn raced(pair: &NodePair, race: &RaceRecord) -> PairRace {
    PairRace {
        client: pair.client.node.clone(),
        server: pair.server.node.clone(),
        rounds: race.rounds.len() as u32,
        stopped: match &race.end {
            Some(end) => end.stopped.clone(),
            None => Some("its record has no end".to_owned()),
        },
    }
}

/// The reference and the contenders; the control is the noise.
fn paths(races: &[(&NodePair, &RaceRecord)], compared: &PairsCompared<'_>) -> Vec<PathMap> {
    let names = races[0].1.header.entrants.iter().enumerate().filter(|(entrant, _)| *entrant != 1);
    let of = |(entrant, named): (usize, &record::Entrant)| {
        let pairs: Vec<PairFigure> = races
            .iter()
            .enumerate()
            .map(|(place, (pair, race))| figure(pair, race, compared, (place, entrant)))
            .collect();
        let figures: Vec<f64> = pairs.iter().filter_map(|pair| pair.figure).collect();
        PathMap { name: named.name.clone(), median: median(&figures), pairs }
    };
    names.map(of).collect()
}

fn figure(
    pair: &NodePair,
    race: &RaceRecord,
    compared: &PairsCompared<'_>,
    (place, entrant): (usize, usize),
) -> PairFigure {
    let shown = compared.shown();
    let (verdict, decided) = compared.judged(place, entrant);
    let measure = race.header.experiment.workload.kind.measure();
    PairFigure {
        client: pair.client.node.clone(),
        server: pair.server.node.clone(),
        figure: compared.own(place, entrant, shown).map(|figure| figure * unit(shown, measure).1),
        over_others: compared.over_median(place, entrant, shown).map(Into::into),
        over_host: compared.over_host(place, entrant, shown).map(Into::into),
        verdict,
        decided_by: decided.map(|of| of.label(measure)),
        unmet: unmet(race, entrant),
    }
}

/// Why a path has no rounds in a pair.
fn unmet(race: &RaceRecord, entrant: usize) -> Option<String> {
    let unmet = race.header.entrants.get(entrant).map(|entrant| entrant.unmet.join("; "));
    let unmet = unmet.filter(|why| !why.is_empty());
    let broke = || race.broke(entrant).map(|(round, why)| format!("it broke in round {}: {why}", round + 1));
    let ended = || race.end.as_ref().filter(|_| race.rounds.is_empty())?.stopped.clone();
    unmet.or_else(broke).or_else(ended)
}

fn finding(races: &[(&NodePair, &RaceRecord)], worse: Worse) -> PairsFinding {
    let race = races[0].1;
    let measure = race.header.experiment.workload.kind.measure();
    let paths: Vec<WorsePathFigure> = worse
        .paths
        .iter()
        .map(|path| WorsePathFigure {
            name: race.header.entrants[path.entrant].name.clone(),
            statistic: path.of.label(measure),
            ratio: match path.by {
                WorseBy::Ratio(ratio) => Some(ratio.into()),
                WorseBy::Unanswered(_) => None,
            },
            unanswered: match path.by {
                WorseBy::Ratio(_) => None,
                WorseBy::Unanswered([own, rest]) => Some(UnansweredShares { own, rest }),
            },
        })
        .collect();
    let with_host = worse.paths.iter().any(|path| path.entrant == 0);
    let (node, role, pair) = match worse.at {
        Where::Node(node, role) => (Some(node), Some(role), None),
        Where::Pair(place) => (None, None, Some(races[place].0)),
    };
    let what = match (&node, role, pair) {
        (Some(node), Some(role), _) => {
            format!("{} as {} is worse than pairs without it", named(node), role_name(role))
        }
        (_, _, Some(pair)) => {
            format!("from {} to {} is worse than the other pairs", named(&pair.client), named(&pair.server))
        }
        _ => String::new(),
    };
    let change = |path: &WorsePathFigure| {
        let ratio = path.ratio.map(|ratio| format!("{} {}", path.statistic, figures::change_within(&ratio)));
        let lost = path.unanswered.map(|lost| figures::unanswered(lost.own, lost.rest, "the rest"));
        format!("{} {}", path.name, ratio.or(lost).unwrap_or_default())
    };
    let changes: Vec<String> = paths.iter().map(change).collect();
    // That host is not named does not say that it is as good as others'.
    let cause = match (with_host, paths.len()) {
        (true, 1) => "",
        (true, _) => "; the nodes' own network is worse, too",
        (false, _) => "; whether the nodes' own network is, too, is not known",
    };
    PairsFinding {
        role: role.map(role_name),
        node,
        client: pair.map(|pair| pair.client.node.clone()),
        server: pair.map(|pair| pair.server.node.clone()),
        sentence: format!("{what}: {}{cause}", changes.join(", ")),
        paths,
        with_host,
    }
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Client => "client",
        Role::Server => "server",
    }
}

/// A node with its zone: "worker-7 (zone b)".
pub(crate) fn named(node: &NodeInZone) -> String {
    match &node.zone {
        Some(zone) => format!("{} (zone {zone})", node.node),
        None => node.node.clone(),
    }
}

fn verdict(
    races: &[(&NodePair, &RaceRecord)],
    findings: &[PairsFinding],
    paths: &[PathMap],
    compared: Option<&PairsCompared<'_>>,
) -> String {
    let Some(compared) = compared else { return "nothing has been raced yet".to_owned() };
    let silent = |path: &PathMap| path.pairs.iter().filter(|pair| pair.unmet.is_some()).count();
    let silent: usize = paths.iter().map(silent).sum();
    let silent = match silent {
        0 => String::new(),
        1 => "; once a path did not race between two nodes".to_owned(),
        some => format!("; {some} times a path did not race between two nodes"),
    };
    let found = match findings {
        [] if compared.tests() == 0 => {
            "pairs cannot be compared: there are too few builds or samples".to_owned()
        }
        [] => format!(
            "no node and no pair is worse than the rest beyond noise and luck ({})",
            figures::counted(compared.tests() as u64, "test")
        ),
        [one] => one.sentence.clone(),
        [first, others @ ..] => {
            format!("{}; and {} more", first.sentence, figures::counted(others.len() as u64, "finding"))
        }
    };
    let open = match compared.open() {
        0 => String::new(),
        1 => "; of a path between two nodes it is not known, as requests have no answer there or elsewhere"
            .to_owned(),
        some => format!(
            "; {some} times it is not known of a path between two nodes, as requests have no answer there or elsewhere"
        ),
    };
    format!("{}{found}{open}{silent}", past(races, compared).unwrap_or_default())
}

fn notes(races: &[&RaceRecord], compared: Option<&PairsCompared<'_>>) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(compared) = compared.filter(|compared| compared.nodes().len() == 2) {
        let both = compared.nodes().iter().map(|node| node.node.as_str()).collect::<Vec<_>>().join(" and ");
        notes.push(format!("{both} are the only nodes: each direction is compared with the other"));
    }
    let rounds = || races.iter().map(|race| race.rounds.len());
    if let (Some(least), Some(most)) = (rounds().min(), rounds().max())
        && least < most
    {
        notes.push(format!(
            "pairs have {least} to {most} rounds: each is compared over its own builds with the pairs that have as many"
        ));
    }
    if let Some(1 | 0) = races.iter().map(|race| race.header.experiment.builds).max() {
        notes.push(
            "all rounds ran on one build: the intervals do not include differences between builds".to_owned(),
        );
    }
    notes
}

/// Where the usual load is past the capacity of a path between two nodes, and at which one all are compared instead:
/// "100 B at 61 % (40.0k/s) is past the capacity of pod from b to c; at 100 B at 30 % (20.0k/s) ".
fn past(races: &[(&NodePair, &RaceRecord)], compared: &PairsCompared<'_>) -> Option<String> {
    let ComparedAt { main, past, uncounted, load: lower } = compared.compared_at();
    let (_, any) = races.iter().find(|(_, race)| race.loads.len() > *main)?;
    let named = |at: usize| figures::load(&load(any, &any.loads[at]));
    let Some((first, others)) = past.split_first() else {
        let path = &any.header.entrants[*uncounted.first()?].name;
        let lower = lower.filter(|lower| lower != main)?;
        return Some(format!("no trial of {path} counts with {}; at {} ", named(*main), named(lower)));
    };
    let (pair, race) = races[first.race];
    let path = &race.header.entrants[first.entrant].name;
    let more = match others.len() {
        0 => String::new(),
        1 => " and of another path".to_owned(),
        more => format!(" and of {more} other paths"),
    };
    let at = match lower {
        Some(lower) => format!("at {} ", named(*lower)),
        None => "no load was carried by all, so these latencies are those of growing queues: ".to_owned(),
    };
    let (client, server) = (&pair.client.node, &pair.server.node);
    Some(format!("{} is past the capacity of {path} from {client} to {server}{more}; {at}", named(*main)))
}
