//! Paths that leave requests without an answer: what they answered may be faster for that, and says nothing for them.

use record::{Leaving, NodeInZone, NodePair, RaceRecord, Statistic, TrialRecord, Until, Void};
use report::{Style, Verdict, analyse, html, json, map, map_table, table};
use verdict::{Cells, Comparisons, ResamplingUnits};

use crate::lost::lose_where;
use crate::made::{Plan, Truth};

const WIDE: Style = Style { colour: false, width: 160 };

/// A contender at one rate, whose latency is so many times the host's.
fn race(factor: f64) -> RaceRecord {
    let contenders = vec![Truth::of("x", factor), Truth::of("y", 1.2)];
    Plan { samples: 2_000, ..Plan::of(3, contenders) }.race()
}

#[test]
fn a_path_that_loses_requests_is_worse_though_its_median_is_better() {
    let mut race = race(0.8);
    lose_where(&mut race, |_, trial| trial.entrant == 2, 0.02);
    let summary = analyse(&race);
    let x = &summary.candidates[2].rates[0];
    assert_eq!((x.response_ns.p99, x.ratio.p99, x.ratio.typical_p99), (None, None, None));
    assert!(x.ratio.p50.is_some_and(|p50| p50.high < 0.9), "{:?}", x.ratio.p50);
    assert_eq!(x.verdict, Some(Verdict::Worse), "{}", x.verdict_reason);
    let expected = "p99 decides: p99 lies among the requests without an answer, 2 % here and 0 % of host: answered × 0.980";
    assert!(x.verdict_reason.starts_with(expected), "{}", x.verdict_reason);
    assert!(
        x.verdict_reason.ends_with("; typical p99 agrees; p50, however, is better"),
        "{}",
        x.verdict_reason
    );
    assert!(x.among_unanswered.starts_with(&["p99"]), "{:?}", x.among_unanswered);
    let expected = "x costs most, requests without an answer 2 % (host 0 %), but p50 −2";
    assert!(summary.verdict.contains(expected), "{}", summary.verdict);
    let text = table(&summary, WIDE);
    let row = text.lines().find(|line| line.trim_start().starts_with("x ")).expect(&text);
    assert!(row.ends_with("worse"), "{row}");
    assert!(text.contains(", and of p99, p99.9, typical p99 there is no ratio"), "{text}");
    let page = html::page(&summary);
    assert!(page.contains("among unanswered requests") && !page.contains("too few samples"));
    assert!(page.contains("the shares of requests that have one are compared"));
    let shown: serde_json::Value = serde_json::from_str(&json(&summary)).unwrap();
    let schema = serde_json::from_str(include_str!("../../../../docs/report.schema.json")).unwrap();
    let valid = jsonschema::validate(&schema, &shown);
    assert!(valid.is_ok(), "{valid:?}");
    assert_eq!(shown["candidates"][2]["rates"][0]["verdict"], "worse");
}

#[test]
fn a_host_that_loses_requests_is_beaten_by_who_loses_none() {
    let mut race = race(1.0);
    lose_where(&mut race, |_, trial| trial.entrant < 2, 0.05);
    let summary = analyse(&race);
    assert_eq!(summary.candidates[2].rates[0].verdict, Some(Verdict::Better));
    let expected = "x by requests without an answer 0 % (host 5 %)";
    assert!(summary.verdict.contains(expected), "{}", summary.verdict);
}

/// All of them were lost on one build, so how many a race loses is not known; nor is it nothing.
#[test]
fn a_loss_that_is_too_little_known_leaves_no_verdict() {
    for (factor, verdict) in [(0.8, None), (1.0, None), (1.4, Some(Verdict::Worse))] {
        let mut race = race(factor);
        lose_where(&mut race, |build, trial| trial.entrant == 2 && build == 4, 0.3);
        let summary = analyse(&race);
        let x = &summary.candidates[2].rates[0];
        assert_eq!(x.verdict, verdict, "{factor}: {}", x.verdict_reason);
        if verdict.is_none() {
            let expected = "p99 may lie among the requests without an answer, 5 % here and 0 % of host";
            assert!(x.verdict_reason.starts_with(expected), "{}", x.verdict_reason);
            let expected = format!("x is not compared: {}", x.verdict_reason);
            assert!(summary.verdict.contains(&expected), "{}", summary.verdict);
        }
    }
}

/// On a wire that loses as much for all, the answers are what is left to compare.
#[test]
fn where_all_lose_as_much_the_answers_are_compared() {
    let mut race = race(1.0);
    lose_where(&mut race, |_, _| true, 0.03);
    let summary = analyse(&race);
    let [x, y] = [2, 3].map(|entrant| &summary.candidates[entrant].rates[0]);
    assert_eq!((x.verdict, y.verdict), (Some(Verdict::Indistinguishable), Some(Verdict::Worse)));
    assert!(y.verdict_reason.starts_with("p50 decides: "), "{}", y.verdict_reason);
    assert!(y.verdict_reason.contains("; p99 is indistinguishable"), "{}", y.verdict_reason);
    let said = "p99 lies among the requests without an answer, 3 % here and 3 % of host: answered × 1.000";
    assert!(x.verdict_reason.starts_with(said), "{}", x.verdict_reason);
}

/// A path that is dark for seconds: a slice within has no answers, and its repeat begins when it is over.
#[test]
fn slices_without_answers_are_said_where_the_verdict_does_not_have_them() {
    let mut race = race(1.0);
    for round in race.rounds.iter_mut().step_by(8) {
        let place = round.trials.iter().position(|trial| trial.entrant == 2).expect("it races");
        let silent = Void::Unanswered {
            intended: 2_000,
            sent: 2_000,
            unanswered: 1_900,
            unexpected: 0,
            connection_errors: 0,
        };
        let dark = TrialRecord { void: Some(silent), ..round.trials[place].clone() };
        round.trials.insert(place, dark);
    }
    let summary = analyse(&race);
    let said = "x left most requests without an answer in 4 of 34 slices";
    assert!(summary.verdict.contains(&format!("; {said}, which are not in this")), "{}", summary.verdict);
    assert!(summary.notes.iter().any(|note| note.starts_with(said)), "{:?}", summary.notes);
    let text = table(&summary, WIDE);
    assert!(text.contains("the machine was not the reason"), "{text}");
    assert!(html::page(&summary).contains(said));
}

/// `hostgap cni install --from` takes the first that none behind it beats.
#[test]
fn two_candidates_are_compared_by_what_they_lose() {
    let mut race = race(0.8);
    lose_where(&mut race, |_, trial| trial.entrant == 2, 0.02);
    crate::verdicts::assert_compared_alike(&race);
    let cells = Cells::of(&race, &ResamplingUnits::of(&race));
    let comparisons = Comparisons::of(&cells, race.header.seed);
    let verdict = |pair: [usize; 2]| comparisons.judged_against(&cells, pair, 0).verdict();
    assert_eq!((verdict([2, 3]), verdict([3, 2])), (Some(Verdict::Worse), Some(Verdict::Better)));
    let order: Vec<usize> = verdict::ranking(&comparisons, 4, 0).iter().map(|one| one.entrant).collect();
    assert_eq!(order, [3, 2], "what loses requests costs most");
}

#[test]
fn who_is_known_to_lose_requests_leaves_at_a_look() {
    let mut race = race(0.8);
    race.header.experiment.until = Some(Until { statistic: Some(Statistic::P99), half_width: 0.03 });
    race.rounds.retain(|round| round.build < 5);
    lose_where(&mut race, |_, trial| trial.entrant == 2, 0.02);
    let look = verdict::look(&race).expect("one is due after five builds");
    let left: Vec<(usize, Leaving)> = look.left.iter().map(|left| (left.entrant, left.why)).collect();
    assert!(left.contains(&(2, Leaving::Different)), "{left:?}");
    // Where all lose as much there is nothing to leave for, and the page says why.
    let mut race = self::race(1.0);
    race.header.experiment.until = Some(Until { statistic: Some(Statistic::P99), half_width: 0.03 });
    lose_where(&mut race, |_, _| true, 0.03);
    let text = table(&analyse(&race), WIDE);
    let expected = "p99 has no interval: it lies, or may lie, among requests without an answer";
    assert!(text.contains(expected), "{text}");
}

/// The races of all pairs of three nodes, of which one link loses a share of the requests of each build.
fn pairs(share: fn(u32) -> f64) -> Vec<RaceRecord> {
    let node = |name: &str| NodeInZone { node: name.to_owned(), zone: None };
    let pairs = ["a", "b", "c"].into_iter().flat_map(|client| {
        ["a", "b", "c"]
            .into_iter()
            .filter(move |server| *server != client)
            .map(move |server| (client, server))
    });
    let race = |(index, (client, server))| {
        let pair = NodePair { client: node(client), server: node(server) };
        let plan = Plan {
            samples: 400,
            rounds_a_build: 3,
            pair: Some(pair),
            ..Plan::of(900 + index as u64, vec![Truth::of("pod", 1.1)])
        };
        let mut race = plan.race();
        if (client, server) == ("a", "b") {
            for build in 0..plan.builds {
                lose_where(&mut race, |of, trial| of == build && trial.entrant == 2, share(build));
            }
        }
        race
    };
    pairs.enumerate().map(race).collect()
}

#[test]
fn the_map_names_a_link_that_loses_requests() {
    let map = map(&pairs(|_| 0.05)).unwrap();
    let text = map_table(&map, WIDE);
    let [finding] = map.findings.as_slice() else { panic!("{text}") };
    assert_eq!((finding.client.as_deref(), finding.server.as_deref()), (Some("a"), Some("b")), "{text}");
    let expected = "pod requests without an answer 5 % (the rest 0 %)";
    assert!(finding.sentence.contains(expected), "{}", finding.sentence);
    let shown = serde_json::to_value(&map).unwrap();
    let schema = serde_json::from_str(include_str!("../../../../docs/report.schema.json")).unwrap();
    let valid = crate::pairs::map_schema(schema);
    assert!(valid.is_valid(&shown), "{shown}");
    let path = &shown["findings"][0]["paths"][0];
    assert_eq!((&path["ratio"], &path["statistic"]), (&serde_json::Value::Null, &"p99".into()));
    assert!(text.contains("unanswered ▲"), "{text}");
}

/// It has a p99, and in some of the resamples it has none.
#[test]
fn a_link_that_loses_nearly_a_hundredth_takes_the_p99_of_no_other() {
    let [lossy, whole] =
        [|build| if build < 2 { 0.02 } else { 0.0025 }, |_| 0.0].map(|share| map(&pairs(share)).unwrap());
    assert_eq!(lossy.tests, whole.tests, "each pair has its test of p99");
    let over = |map: &report::PairsMap| {
        let known = map.paths[1].pairs.iter().filter(|pair| pair.over_others.is_some());
        known.map(|pair| format!("{} to {}", pair.client, pair.server)).collect::<Vec<_>>()
    };
    let (lossy, whole) = (over(&lossy), over(&whole));
    assert_eq!((lossy.len(), whole.len()), (5, 6), "{lossy:?}");
    assert!(!lossy.contains(&"a to b".to_owned()), "{lossy:?}");
}
