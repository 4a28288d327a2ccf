//! The oldest files that are still read (in `oldest`). They must be read and rendered as long as the schema
//! is 1, because there is no other record of those races.

use std::path::Path;

use record::{Experiment, RaceRecord};
use report::{Style, analyse, html, json, table};

fn race() -> RaceRecord {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/oldest/race.jsonl");
    RaceRecord::read(Path::new(path)).unwrap()
}

#[test]
fn the_oldest_experiment_is_read() {
    let experiment = Experiment::from_toml(include_str!("oldest/experiment.toml")).unwrap();
    assert_eq!(experiment, race().header.experiment, "the same was asked on the command line");
    let paths: Vec<_> = experiment.candidates.iter().map(|candidate| candidate.path.as_str()).collect();
    assert_eq!((paths.as_slice(), experiment.rounds), (["docker", "bridge+vxlan"].as_slice(), 8));
}

#[test]
fn the_oldest_record_is_read_and_rendered() {
    let race = race();
    assert_eq!((race.rounds.len(), race.rounds[0].trials.len(), race.notes.len()), (8, 3, 0));
    let summary = analyse(&race);
    insta::assert_snapshot!("oldest_table", table(&summary, Style { colour: false, width: 120 }));
    let json: serde_json::Value = serde_json::from_str(&json(&summary)).unwrap();
    assert_eq!(json["candidates"].as_array().map(Vec::len), Some(4));
    let page = html::page(&summary);
    assert!(page.contains("docker") && page.contains("not available: unknown device type"));
}
