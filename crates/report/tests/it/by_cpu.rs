//! Races whose record has the time of every CPU.

use record::{CpuTime, Metric, Published, RaceRecord};
use report::{Agreement, CpuNode, Style, analyse};

use crate::made::{Plan, Truth, published};

/// A race in which CPU 2 does all of the softirq work. In the candidate `spread` CPU 3 does half of it.
fn race() -> RaceRecord {
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
    let figures: Vec<_> = spread.iter().map(|one| (one.node, one.cpu, one.softirq, one.idle)).collect();
    let expected =
        [(CpuNode::Server, 2, 0.4, 0.6), (CpuNode::Server, 3, 0.4, 0.6), (CpuNode::Client, 0, 0.1, 0.9)];
    assert_eq!(figures, expected);
    let table = report::table(&summary, Style { colour: false, width: 100 });
    assert!(table.contains("Time of each CPU"), "{table}");
    let softirq = |cpu: &str| {
        let row = table.lines().find(|line| line.contains(cpu)).unwrap();
        row.split('%').nth(2).unwrap().trim().to_owned()
    };
    assert_eq!(
        (softirq("server all"), softirq("server 2"), softirq("server 3")),
        ("40".into(), "80".into(), "0".into())
    );
    let page = report::html::page(&summary);
    assert!(page.contains("spread, server 3") && page.contains("spread, server all"));
    let schema = serde_json::from_str(include_str!("../../../../docs/report.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let json: serde_json::Value = serde_json::from_str(&report::json(&summary)).unwrap();
    let against: Vec<String> = validator.iter_errors(&json).map(|error| error.to_string()).collect();
    assert_eq!(against, Vec::<String>::new());
    assert_eq!(json["candidates"][0]["rates"][0]["by_cpu"][1]["cpu"], 3);
}

/// The positions and widths of the softirq bars in the wide drawing, by tooltip.
fn softirq_bars(page: &str) -> Vec<(String, f64, f64)> {
    let wide = page.split_once("<h4>Each CPU</h4>").unwrap().1.split_once("</svg>").unwrap().0;
    // The drawing has a title, and so has each bar.
    let bars = wide.split("<title>").skip(2).filter(|bar| bar.contains("class=\"c-softirq\""));
    let number = |bar: &str, name: &str| -> f64 {
        let bar = bar.split_once("class=\"c-softirq\"").unwrap().1;
        bar.split_once(&format!(" {name}=\"")).unwrap().1.split_once('"').unwrap().0.parse().unwrap()
    };
    let title = |bar: &str| bar.split_once("</title>").unwrap().0.to_owned();
    bars.map(|bar| (title(bar), number(bar, "y"), number(bar, "width"))).collect()
}

#[test]
fn bars_of_a_cpu_stand_beside_each_other_and_are_as_long_as_its_share() {
    let bars = softirq_bars(&report::html::page(&analyse(&race())));
    let of = |name: &str| {
        bars.iter().find(|bar| bar.0.starts_with(name)).unwrap_or_else(|| panic!("{name}: {bars:?}"))
    };
    let (busy, spread) = (of("host, server 2: 80 %"), of("spread, server 2: 40 %"));
    assert!(busy.1 == spread.1 && (busy.2 / spread.2 - 2.0).abs() < 0.01, "{busy:?} {spread:?}");
    assert_eq!((of("host, server all: 40 %").2 * 10.0).round(), (spread.2 * 10.0).round());
    assert!(of("host, server all").1 < busy.1 && busy.1 < of("host, client 0").1);
    assert!(bars.iter().all(|bar| !bar.0.contains("client all")), "one CPU is the whole node");
    assert!(bars.iter().all(|bar| !bar.0.starts_with("host, server 3")), "zero is not drawn");
}

#[test]
fn the_busiest_cpu_is_compared_with_the_busiest_that_was_published() {
    let figure = |candidate: &str, value: f64| Published {
        candidate: candidate.to_owned(),
        metric: Some(Metric::CpuSoftirqMax),
        value: Some(value),
        unit: "%".to_owned(),
        rate: None,
        ..published().remove(0)
    };
    let mut race = race();
    race.header.experiment.published = vec![figure("host", 100.0), figure("spread", 50.0)];
    let of = |race: &RaceRecord| {
        let summary = analyse(race);
        summary.published.into_iter().find(|figure| figure.path == "spread").unwrap()
    };
    let figure = of(&race);
    assert_eq!(figure.agreement, Agreement::Agrees, "{}", figure.reason);
    assert!((figure.ratio.unwrap().value - 0.5).abs() < 1e-9 && figure.ours == Some(40.0), "{figure:?}");
    for trial in race.rounds.iter_mut().flat_map(|round| &mut round.trials) {
        trial.server_by_cpu.clear();
    }
    let figure = of(&race);
    assert!(figure.reason.contains("did not record the time of each CPU"), "{}", figure.reason);
}
