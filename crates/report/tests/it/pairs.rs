//! The map of a race of all pairs, from generated records with known truth: what is planted is found and named,
//! and nothing else is.

use record::{End, NodeInZone, NodePair, RaceRecord};
use report::{PairsMap, Style, Verdict, analyse, html, json_of_pairs, map, map_table};

use crate::made::{Plan, Truth, flood};

/// Latency ÷ the usual of a client's node, a server's node and a path: 0 is the host, 1 the pod.
type Factor = fn(&str, &str, usize) -> f64;

fn node(name: &str, zone: Option<&str>) -> NodeInZone {
    NodeInZone { node: name.to_owned(), zone: zone.map(str::to_owned) }
}

/// The races of all pairs of nodes, both ways, with few samples, since many are made.
fn races(seed: u64, nodes: &[NodeInZone], factor: Factor) -> Vec<RaceRecord> {
    let pairs = nodes.iter().flat_map(|client| {
        let servers = nodes.iter().filter(move |server| *server != client);
        servers.map(move |server| NodePair { client: client.clone(), server: server.clone() })
    });
    let race = |(index, pair): (usize, NodePair)| {
        let of = |path| factor(&pair.client.node, &pair.server.node, path);
        let plan = Plan {
            samples: 70,
            rounds_a_build: 3,
            scatter: (0.02, 0.02),
            pace: of(0),
            pair: Some(pair.clone()),
            ..Plan::of(seed * 1_000 + index as u64, vec![Truth::of("pod", 1.1 * of(1) / of(0))])
        };
        plan.race()
    };
    pairs.enumerate().map(race).collect()
}

fn names(names: &[&str]) -> Vec<NodeInZone> {
    names.iter().map(|name| node(name, None)).collect()
}

/// What is found, in short: "b as server: host pod".
fn found(map: &PairsMap) -> Vec<String> {
    let of = |finding: &report::PairsFinding| {
        let at = match (&finding.node, finding.role) {
            (Some(node), Some(role)) => format!("{} as {role}", node.node),
            _ => format!("{} → {}", finding.client.as_ref().unwrap(), finding.server.as_ref().unwrap()),
        };
        let paths: Vec<&str> = finding.paths.iter().map(|path| path.name.as_str()).collect();
        assert_eq!(finding.with_host, paths.contains(&"host"));
        format!("{at}: {}", paths.join(" "))
    };
    map.findings.iter().map(of).collect()
}

#[track_caller]
fn check(nodes: &[&str], factor: Factor, expected: &[&str]) -> PairsMap {
    let map = map(&races(5, &names(nodes), factor)).unwrap();
    assert_eq!(found(&map), expected, "{}", map_table(&map, Style { colour: false, width: 200 }));
    map
}

#[test]
fn a_cluster_without_a_difference_has_no_finding() {
    let maps = (0..16).map(|seed| map(&races(seed, &names(&["a", "b", "c"]), |_, _, _| 1.0)).unwrap());
    let with_findings: Vec<Vec<String>> = maps.map(|map| found(&map)).filter(|all| !all.is_empty()).collect();
    assert!(with_findings.len() <= 1, "{with_findings:?}");
}

#[test]
fn a_node_that_is_slow_as_a_server_is_named_and_its_pairs_are_not() {
    let map = check(
        &["a", "b", "c", "d"],
        |_, server, _| if server == "c" { 1.6 } else { 1.0 },
        &["c as server: host pod"],
    );
    let sentence = &map.findings[0].sentence;
    assert!(sentence.starts_with("c as server is worse than pairs without it: host p"), "{sentence}");
    assert!(map.verdict.starts_with(sentence.as_str()));
    let pair = map.paths[0].pairs.iter().find(|pair| pair.client == "a" && pair.server == "c").unwrap();
    assert_eq!(pair.verdict, Some(Verdict::Worse));
    let over = pair.over_others.as_ref().unwrap();
    assert!(over.low <= 1.6 && 1.6 <= over.high && over.value > 1.2, "{over:?}");
}

#[test]
fn a_path_that_is_slow_between_two_nodes_is_named_alone() {
    let map = check(
        &["a", "b", "c"],
        |client, server, path| if (client, server, path) == ("a", "b", 1) { 1.6 } else { 1.0 },
        &["a → b: pod"],
    );
    let ends = "whether the nodes' own network is, too, is not known";
    assert!(map.findings[0].sentence.ends_with(ends), "{:?}", map.findings);
}

#[test]
fn one_bad_link_blames_no_node() {
    check(
        &["a", "b", "c"],
        |client, server, _| if client != "c" && server != "c" { 1.6 } else { 1.0 },
        &["a → b: host pod", "b → a: host pod"],
    );
}

#[test]
fn of_two_nodes_the_directions_are_compared() {
    let map = check(&["a", "b"], |client, _, _| if client == "a" { 1.6 } else { 1.0 }, &["a → b: host pod"]);
    assert!(map.notes[0].contains("a and b are the only nodes"), "{:?}", map.notes);
}

#[test]
fn a_pair_that_left_is_compared_over_its_own_builds() {
    let mut races =
        races(
            5,
            &names(&["a", "b", "c"]),
            |client, server, _| {
                if (client, server) == ("a", "b") { 1.8 } else { 1.0 }
            },
        );
    races[0].rounds.truncate(12);
    races[0].end = Some(End { wall_s: 9.0, stopped: Some("could not ask pod client-pod-1".to_owned()) });
    let map = map(&races).unwrap();
    assert_eq!(found(&map), ["a → b: host pod"]);
    assert!(map.notes.iter().any(|note| note.contains("12 to 18 rounds")), "{:?}", map.notes);
    let text = map_table(&map, Style { colour: false, width: 200 });
    assert!(text.contains("a to b, after 12 rounds: could not ask pod client-pod-1"), "{text}");
}

#[test]
fn a_node_that_is_lost_is_judged_over_the_builds_that_its_pairs_have() {
    let nodes = names(&["a", "b", "c", "d"]);
    let mut races = races(5, &nodes, |_, server, _| if server == "c" { 1.8 } else { 1.0 });
    let is_of_c = |race: &&mut RaceRecord| {
        let pair = race.header.pair.as_ref().unwrap();
        pair.client.node == "c" || pair.server.node == "c"
    };
    races.iter_mut().filter(is_of_c).for_each(|race| race.rounds.truncate(12));
    assert_eq!(found(&map(&races).unwrap()), ["c as server: host pod"]);
}

#[test]
fn a_pair_that_is_a_build_ahead_is_compared_over_the_builds_of_all() {
    let mut races = races(5, &names(&["a", "b", "c"]), |_, _, _| 1.0);
    races[1..].iter_mut().for_each(|race| race.rounds.truncate(15));
    let map = map(&races).unwrap();
    assert!(map.paths[0].pairs.iter().all(|pair| pair.over_others.is_some()));
}

#[test]
fn rounds_of_one_build_are_not_compared_with_builds() {
    let mut races = races(5, &names(&["a", "b", "c"]), |_, _, _| 1.0);
    races[0].rounds.truncate(3);
    let map = map(&races).unwrap();
    let over = |pair: usize| map.paths[0].pairs[pair].over_others.as_ref();
    assert!(over(0).is_none() && over(1).is_some());
    assert_eq!(map.paths[0].pairs[0].verdict, None);
}

#[test]
fn what_does_not_answer_is_named_with_its_reason() {
    let mut races = races(5, &names(&["a", "b", "c"]), |_, _, _| 1.0);
    // a does not reach b at all; from a to c a path does not.
    races[0].rounds.clear();
    races[0].loads.clear();
    races[0].end = Some(End { wall_s: 9.0, stopped: Some("could not reach b".to_owned()) });
    races[1].header.entrants[2].unmet.push("no program answers".to_owned());
    races[1].rounds.iter_mut().for_each(|round| round.trials.retain(|trial| trial.entrant != 2));
    let map = map(&races).unwrap();
    assert_eq!(found(&map), Vec::<String>::new());
    assert!(map.verdict.ends_with("; 3 times a path did not race between two nodes"), "{}", map.verdict);
    let text = map_table(&map, Style { colour: false, width: 200 });
    assert!(text.contains("host from a to b: could not reach b"), "{text}");
    assert!(text.contains("pod from a to c: no program answers"), "{text}");
}

#[test]
fn a_map_is_drawn() {
    let nodes = [node("w-1", Some("b")), node("w-2", Some("a")), node("w-3", Some("b"))];
    let races = races(5, &nodes, |_, server, path| if server == "w-3" && path == 1 { 1.5 } else { 1.0 });
    let map = map(&races).unwrap();
    insta::assert_snapshot!("map", map_table(&map, Style { colour: false, width: 120 }));
    insta::assert_snapshot!("map_narrow", map_table(&map, Style { colour: false, width: 50 }));
    let coloured = map_table(&map, Style { colour: true, width: 120 });
    assert!(coloured.contains("\u{1b}[31m"));
    let link = |client: &str, server: &str| Some(format!("{client}--{server}/report.html"));
    let page = html::map_page(&map, &link);
    let main = page.split_once("<main>").unwrap().1.split_once("</main>").unwrap().0;
    insta::assert_snapshot!("map_page", main.replace("<tr>", "\n<tr>").replace("<section", "\n<section"));
}

#[test]
fn every_figure_of_the_map_is_on_its_page_with_its_interval() {
    let map = map(&races(5, &names(&["a", "b", "c"]), |_, _, _| 1.0)).unwrap();
    let page = html::map_page(&map, &|_, _| None);
    for pair in map.paths.iter().flat_map(|path| &path.pairs) {
        let over = pair.over_others.as_ref().unwrap();
        assert!(page.contains(&format!("{:.2} ({:.2}–{:.2})", over.value, over.low, over.high)), "{over:?}");
    }
    assert_eq!(page.matches("<td class=\"m-self\">").count(), 2 * 3);
    // What may be noise has no colour.
    assert_eq!(page.matches("<td class=\"m-w").count() + page.matches("<td class=\"m-b").count(), 0);
}

#[test]
fn a_node_with_a_strange_name_is_only_a_name() {
    let nodes = [node("<b>\u{1b}[2J", Some("\u{202e}z")), node("b", None)];
    let map = map(&races(5, &nodes, |_, _, _| 1.0)).unwrap();
    let page = html::map_page(&map, &|_, _| None);
    assert!(!page.contains("<b>\u{1b}") && !page.contains('\u{202e}'));
    let text = map_table(&map, Style { colour: false, width: 120 });
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text:?}");
}

/// What the JSON of a map must be.
pub(crate) fn map_schema(whole: serde_json::Value) -> jsonschema::Validator {
    let mut of_map = whole;
    of_map["$ref"] = "#/$defs/map".into();
    for key in ["properties", "required", "additionalProperties", "type"] {
        of_map.as_object_mut().unwrap().remove(key);
    }
    jsonschema::validator_for(&of_map).unwrap()
}

#[test]
fn records_of_a_map_are_read_back_and_its_json_is_what_the_schema_says() {
    let races = races(5, &names(&["a", "b"]), |_, _, _| 1.0);
    let line = record::Line::Header(Box::new(races[0].header.clone()));
    let text = serde_json::to_string(&line).unwrap();
    assert_eq!(serde_json::from_str::<record::Line>(&text).unwrap(), line);
    let map = map(&races).unwrap();
    let summaries: Vec<_> = races.iter().map(analyse).collect();
    let all: serde_json::Value = serde_json::from_str(&json_of_pairs(&map, &summaries)).unwrap();
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../../docs/report.schema.json")).unwrap();
    let whole = jsonschema::validator_for(&schema).unwrap();
    assert!(all["races"].as_array().unwrap().iter().all(|race| whole.is_valid(race)));
    let of_map = map_schema(schema);
    let errors: Vec<String> = of_map.iter_errors(&all["map"]).map(|error| error.to_string()).collect();
    assert_eq!(errors, Vec::<String>::new());
    let mut strange = all["map"].clone();
    strange["paths"][0]["moon"] = true.into();
    assert!(!of_map.is_valid(&strange));
}

/// As where an experiment has no rates. A host of these races answers 66,000 requests a second.
#[test]
fn a_map_of_closed_loops_has_requests_per_second() {
    let mut races = races(5, &names(&["a", "b", "c"]), |_, _, _| 1.0);
    for race in &mut races {
        let plan = Plan {
            loads: vec![None],
            samples: 70,
            pair: race.header.pair.clone(),
            ..Plan::of(7, vec![Truth::of("pod", 1.1)])
        };
        *race = plan.race();
    }
    let map = map(&races).unwrap();
    assert_eq!((map.statistic, map.unit), ("req/s", "req/s"));
    let host = map.paths[0].median.unwrap();
    assert!((host / 66_000.0 - 1.0).abs() < 0.1, "{host}");
    assert!(map.paths[0].pairs.iter().all(|pair| (pair.figure.unwrap() / host - 1.0).abs() < 0.1));
    let text = map_table(&map, Style { colour: false, width: 120 });
    assert!(text.contains("k req/s"), "{text}");
}

/// Between two nodes the pods cannot carry the higher rate: all pairs are compared at the lower one, and the map names
/// the pair. A pair whose race ended before its first round says nothing of any load.
#[test]
fn a_rate_past_a_capacity_somewhere_is_not_compared_at() {
    let nodes = names(&["a", "b", "c"]);
    let mut races = races(5, &nodes, |client, _, path| if (client, path) == ("a", 1) { 1.6 } else { 1.0 });
    for race in &mut races {
        let (mut higher, pair) = (race.loads[0].clone(), race.header.pair.clone().unwrap());
        higher.rate_per_s = Some(40_000.0);
        race.loads.push(higher);
        for round in &mut race.rounds {
            let mut more: Vec<_> = round.trials.clone();
            more.iter_mut().for_each(|trial| trial.load = 1);
            let is_short = (pair.client.node.as_str(), pair.server.node.as_str()) == ("b", "c");
            more.iter_mut().filter(|trial| is_short && trial.entrant == 2).for_each(flood);
            round.trials.append(&mut more);
        }
    }
    let begins = "100 B at 30 % (40.0k/s) is past the capacity of pod from b to c; at 100 B at 30 % (20.0k/s) a as client";
    for has_all in [true, false] {
        let map = map(&races).unwrap();
        assert_eq!(map.load.as_ref().unwrap().requested_rps, Some(20_000.0));
        assert!(map.verdict.starts_with(begins), "{}", map.verdict);
        assert!(!has_all || found(&map) == ["a as client: pod"], "{:?}", found(&map));
        let cut = races.iter_mut().find(|race| race.header.pair.as_ref().unwrap().server.node == "a");
        cut.unwrap().rounds.clear();
    }
}
