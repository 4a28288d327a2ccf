//! Why answers are late: the table, the page and the JSON agree.

use record::{Cause, Histogram, Late, RaceRecord, Retransmitted};
use report::{Style, analyse, html, json, table};

use crate::made::eventful;

fn histogram(values: &[(u64, u64)]) -> Histogram {
    let mut hdr = Histogram::empty_hdr();
    values.iter().for_each(|(ns, count)| hdr.record_n(*ns, *count).unwrap());
    Histogram::from(&hdr)
}

/// Of 100,000 answers a thousand are late, because of softirqs of half a millisecond and 200 time-outs.
fn late(entrant: usize) -> Late {
    Late {
        entrant,
        load: 1,
        unwatched: histogram(&[(60_000, 99_000), (500_000, 1_000)]),
        watched: histogram(&[(61_000, 98_990), (500_000, 810), (203_000_000, 200)]),
        medians_ns: (0..8).map(|visit| (60_000, 60_900 + 50 * visit)).collect(),
        causes: [
            (Cause::Softirq, histogram(&[(500_000, 810)])),
            (Cause::TimeOut, histogram(&[(203_000_000, 200)])),
        ]
        .into(),
        retransmitted: Retransmitted { time_outs: 200, probes: 0, fast: 0 },
        drops: [("CPU_BACKLOG".to_owned(), 200)].into(),
        lost_events: 0,
        lost_answers: 0,
        missing: vec![],
    }
}

fn race() -> RaceRecord {
    RaceRecord { late: vec![late(0), late(1), late(2)], ..eventful() }
}

#[test]
fn the_table_says_whose_a_percentile_is_and_names_time_outs() {
    let text = table(&analyse(&race()), Style { colour: false, width: 100 });
    let block = text.split_once("Why answers are late").expect("it is there").1;
    let words = block.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("p99 500 µs long softirq 100 %"), "{words}");
    assert!(words.contains("p99.9 203 ms retransmission time-out 100 %"), "{words}");
    assert!(
        words.contains("200 answers took 190 ms or more, 200 of them because of TCP's time-out"),
        "{words}"
    );
    assert!(words.contains("packets dropped: CPU_BACKLOG 200"), "{words}");
    assert!(words.contains("watching changed the median by +1.8 %"), "{words}");
}

#[test]
fn the_json_is_what_its_schema_says() {
    let summary = analyse(&race());
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../../docs/report.schema.json")).unwrap();
    let value: serde_json::Value = serde_json::from_str(&json(&summary)).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> =
        validator.iter_errors(&value).map(|error| format!("{error} at {}", error.instance_path())).collect();
    assert_eq!(errors, Vec::<String>::new());
    let percentile = &value["late"][0]["candidates"][2]["percentiles"][1];
    assert_eq!(
        (percentile["quantile"].as_f64(), &percentile["shares"][0]["cause"]),
        (Some(0.999), &"time_out".into())
    );
    assert!(html::page(&summary).contains("Causes of late answers by percentile"));
    assert!(serde_json::to_value(analyse(&eventful())).unwrap().get("late").is_none(), "it was not asked");
}
