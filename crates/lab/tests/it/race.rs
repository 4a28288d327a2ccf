//! What is left of a race that could not begin.

use std::sync::Arc;

use lab::{Home, Race, RaceOptions};
use linux::cpu::{self, Scheduling};
use record::{Experiment, ServerKind};

#[test]
fn a_race_that_could_not_begin_leaves_no_record() {
    let cpus = cpu::allowed().unwrap();
    if cpus.len() < 2 {
        return testkit::skip("on one CPU nothing is built before the record begins");
    }
    let root = tempfile::tempdir().unwrap();
    let home = Home::at(root.path().join("run"));
    let settings = RaceOptions {
        machines: None,
        plugins: lab::PluginDirs::default(),
        guest: None,
        record: root.path().join("race.jsonl"),
        nginx: None,
        // An executable that exits at once instead of serving.
        own: crate::own("/bin/false"),
        cpus,
        scheduling: Scheduling::Normal,
        stop: Arc::default(),
    };
    let mut experiment = Experiment::default();
    experiment.workload.server = ServerKind::Hostgap;
    let facts = linux::features::probe().unwrap();
    let race = Race::prepare(experiment, settings, &facts, home.clone()).unwrap();
    let error = race.run(&mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("the server of host ended by itself"), "{error}");
    assert!(!root.path().join("race.jsonl").exists());
    assert_eq!(home.remains().unwrap(), []);
}
