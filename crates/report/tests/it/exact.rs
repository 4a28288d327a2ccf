//! Counted instructions: records with known counts become the tables of one kernel and of two.

use record::{Machines, RaceRecord, Void};
use report::{Style, Verdict, analyse, html, json, json_of_all, kernels, table};

use crate::made::{Plan, Truth};

const STYLE: Style = Style { colour: false, width: 100 };

/// Three repetitions of seven rounds with exact instruction counts for each request, at most a thousandth
/// apart. In each repetition one or two slices contain other work.
fn counted(kernel: &str, truths: &[(&'static str, u64)]) -> RaceRecord {
    let contenders = truths[2..].iter().map(|(name, _)| Truth::of(name, 1.0)).collect();
    let plan = Plan { loads: vec![None], builds: 1, rounds_a_build: 21, ..Plan::of(7, contenders) };
    let mut race = plan.race();
    race.header.machine.kernel = kernel.to_owned();
    race.header.experiment.vm =
        Some(Machines { kernels: vec!["debian:6.1".to_owned()], exact: true, ..Machines::default() });
    for round in &mut race.rounds {
        for trial in &mut round.trials {
            let (_, instructions) = truths[trial.entrant];
            trial.answered_in_time = if round.round % 7 == trial.entrant as u32 { 900 } else { 1000 };
            trial.duration_ns = 1000 * instructions + 20_000 * u64::from(round.round / 7);
        }
    }
    race
}

fn old() -> RaceRecord {
    counted("6.1", &[("host", 50_000), ("host again", 50_010), ("macvlan", 51_500), ("docker", 90_000)])
}

fn new() -> RaceRecord {
    counted("6.12", &[("host", 40_000), ("host again", 40_004), ("macvlan", 40_010), ("docker", 70_000)])
}

#[test]
fn counts_are_compared_with_what_the_host_differs_from_itself() {
    let summary = analyse(&old());
    let verdicts: Vec<(&str, Verdict)> =
        summary.exact[0].candidates.iter().map(|of| (of.name.as_str(), of.verdict)).collect();
    let expected = [
        ("host", Verdict::Reference),
        ("host again", Verdict::Indistinguishable),
        ("macvlan", Verdict::Worse),
        ("docker", Verdict::Worse),
    ];
    assert_eq!(verdicts, expected);
    let macvlan = &summary.exact[0].candidates[2];
    assert_eq!((macvlan.per_request, macvlan.more, macvlan.repetitions), (51_520.0, Some(1500.0), 3));
    // On the other kernel macvlan costs a quarter of a thousandth more, and the host's own repetitions are a
    // thousandth apart.
    assert_eq!(analyse(&new()).exact[0].candidates[2].verdict, Verdict::Indistinguishable);
}

#[test]
fn the_tables_of_counts() {
    let (old, new) = (analyse(&old()), analyse(&new()));
    insta::assert_snapshot!("exact", table(&old, STYLE));
    insta::assert_snapshot!("exact_kernels", kernels(&[old.clone(), new.clone()], STYLE).unwrap());
    assert!(kernels(&[analyse(&crate::made::eventful())], STYLE).is_none());
    let page = html::page(&old);
    assert!(page.contains("Instructions per request") && !page.contains("id=\"curves\""));
    // Nothing is said of how timed races are judged, nor figures of theirs.
    for words in [
        "bootstrap",
        "widened for",
        "Nothing watched",
        "How long for ±3",
        "three times",
        "class=\"verdicts\"",
    ] {
        assert!(!page.contains(words), "{words}");
    }
    assert!(page.contains("if it differs from host by more than its own repetitions"));
    let all: serde_json::Value = serde_json::from_str(&json_of_all(&[old.clone(), new])).unwrap();
    assert_eq!(all["races"][0], serde_json::from_str::<serde_json::Value>(&json(&old)).unwrap());
}

#[test]
fn the_json_of_counts_is_what_its_schema_says() {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../../docs/report.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let whole = serde_json::to_value(analyse(&old())).unwrap();
    let errors: Vec<String> = validator.iter_errors(&whole).map(|error| error.to_string()).collect();
    assert_eq!(errors, Vec::<String>::new());
    assert!(whole["exact"].is_array());
}

/// Of the control no trial counts, or of the reference.
#[test]
fn who_has_no_count_takes_nobody_s_place() {
    let without = |entrant: usize| {
        let mut race = old();
        race.rounds
            .iter_mut()
            .flat_map(|round| &mut round.trials)
            .filter(|trial| trial.entrant == entrant)
            .for_each(|trial| trial.void = Some(Void::GeneratorLate { late_p99_ns: 2, limit_ns: 1 }));
        analyse(&race)
    };
    let verdict = without(1).verdict;
    let says =
        "host takes 50020 instructions a request; the least above it is macvlan +3 %, the most docker +80 %";
    assert_eq!(verdict, says);
    let summary = without(0);
    assert_eq!(summary.verdict, "no trial of host counts, so nothing is compared with it");
    let page = html::page(&summary);
    assert!(page.contains("not known") && !page.contains("host again takes"));
    let (_, counts) = page.split_once("id=\"exact\"").unwrap();
    let (counts, _) = counts.split_once("</section>").unwrap();
    assert!(!counts.contains("indistinguishable") && !counts.contains("class=\"one\""), "{counts}");
}

#[test]
fn what_takes_less_than_the_host_is_not_above_it() {
    let sentence = |least: u64| {
        let truths = [("host", 50_000), ("host again", 50_010), ("spliced", least), ("docker", 90_000)];
        analyse(&counted("6.1", &truths)).verdict
    };
    assert!(sentence(51_500).contains("; the least above it is spliced +3 %"), "{}", sentence(51_500));
    // A thousandth is what the host's own repetitions differ by.
    let within = "; the least above it is spliced +0.04 % (within the noise), the most docker +8";
    assert!(sentence(50_020).contains(within), "{}", sentence(50_020));
    assert!(
        sentence(44_000).contains("; the least is spliced −12 %, the most docker +8"),
        "{}",
        sentence(44_000)
    );
}
