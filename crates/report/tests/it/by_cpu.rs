//! Races that wrote down the time of every CPU.

use record::{CpuTime, Metric, Published, Race};
use report::{Agreement, CpuNode, Style, analyse};

use crate::made::{Plan, Truth, published};

/// A race in which CPU 2 does all of the softirq, and of `spread` CPU 3 half of it.
fn race() -> Race {
    let mut race = Plan { loads: vec![None], ..Plan::of(5, vec![Truth::of("spread", 1.0)]) }.race();
    for trial in race.rounds.iter_mut().flat_map(|round| &mut round.trials) {
        let of = |softirq_ns| CpuTime { softirq_ns, idle_ns: 100 - softirq_ns, ..CpuTime::default() };
        let [two, three] = if trial.entrant == 2 { [40, 40] } else { [80, 0] };
        trial.server_by_cpu = [(2, of(two)), (3, of(three))].into();
        trial.client_by_cpu = [(0, of(10))].into();
    }
    race
}

#[test]
fn each_cpu_has_its_shares_in_table_page_and_json() {
    let summary = analyse(&race());
    let spread = &summary.candidates[2].rates[0].by_cpu;
    let told: Vec<_> = spread.iter().map(|one| (one.node, one.cpu, one.softirq, one.idle)).collect();
    let expected =
        [(CpuNode::Server, 2, 0.4, 0.6), (CpuNode::Server, 3, 0.4, 0.6), (CpuNode::Client, 0, 0.1, 0.9)];
    assert_eq!(told, expected);
    let table = report::table(&summary, Style { colour: false, width: 100 });
    assert!(table.contains("Time of each CPU"), "{table}");
    let row = table.lines().find(|line| line.contains("host") && line.contains("server 2")).unwrap();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>()[7..9], ["80", "%"], "{row}");
    assert!(report::html::page(&summary).contains("spread, server 3"));
    let schema = serde_json::from_str(include_str!("../../../../docs/report.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let json: serde_json::Value = serde_json::from_str(&report::json(&summary)).unwrap();
    let against: Vec<String> = validator.iter_errors(&json).map(|error| error.to_string()).collect();
    assert_eq!(against, Vec::<String>::new());
    assert_eq!(json["candidates"][0]["rates"][0]["by_cpu"][1]["cpu"], 3);
}

#[test]
fn the_busiest_cpu_is_compared_with_the_busiest_that_was_published() {
    let figure = |candidate: &str, value| Published {
        candidate: candidate.to_owned(),
        metric: Some(Metric::CpuSoftirqMax),
        value,
        unit: "%".to_owned(),
        rate: None,
        ..published().remove(0)
    };
    let mut race = race();
    race.header.experiment.published = vec![figure("host", 100.0), figure("spread", 50.0)];
    let of = |race: &Race| {
        let summary = analyse(race);
        summary.published.into_iter().find(|figure| figure.path == "spread").unwrap()
    };
    let told = of(&race);
    assert_eq!(told.agreement, Agreement::Agrees, "{}", told.reason);
    assert!((told.ratio.unwrap().value - 0.5).abs() < 1e-9 && told.ours == Some(40.0), "{told:?}");
    for trial in race.rounds.iter_mut().flat_map(|round| &mut round.trials) {
        trial.server_by_cpu.clear();
    }
    let told = of(&race);
    assert!(told.reason.contains("did not write down the time of each CPU"), "{}", told.reason);
}
