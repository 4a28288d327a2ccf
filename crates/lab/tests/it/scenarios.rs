//! The experiments in `scenarios/`: each can be read, has a quick form, and its published figures are about candidates
//! that race.

use std::path::{Path, PathBuf};

use record::{Candidate, Experiment};

fn all() -> Vec<(String, PathBuf)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    files
        .filter(|path| path.extension().is_some_and(|ext| ext == "toml"))
        .map(|path| (name(&path), path))
        .collect()
}

#[test]
fn each_can_be_raced_also_in_its_quick_form() {
    let mut read = 0;
    for (name, path) in all() {
        let text = std::fs::read_to_string(&path).unwrap();
        let experiment = Experiment::from_toml(&text);
        let experiment = experiment.unwrap_or_else(|error| panic!("{name}: {error}"));
        check(&name, &experiment);
        let quick = experiment.quick().unwrap().unwrap_or_else(|| panic!("{name} has no quick form"));
        assert!(quick.rounds < experiment.rounds, "{name}");
        quick.candidates.iter().for_each(|candidate| exists(&name, candidate));
        read += 1;
    }
    assert!(read > 0, "there are scenarios");
}

/// What a reader of the file takes for granted.
fn check(name: &str, experiment: &Experiment) {
    experiment.candidates.iter().for_each(|candidate| exists(name, candidate));
    let mut called: Vec<String> = experiment.candidates.iter().map(called).collect();
    called.push("host".to_owned());
    for figure in &experiment.published {
        let against = figure.against.as_deref().unwrap_or("host");
        for candidate in [&*figure.candidate, against] {
            assert!(called.iter().any(|name| name == candidate), "{name}: nobody is called {candidate}");
        }
        assert!(
            figure.source.chars().any(|letter| letter.is_ascii_digit()),
            "{name}: {} of what year",
            figure.source
        );
        if figure.metric.is_some() {
            let rate = figure.rate;
            assert!(rate.is_none_or(|rate| experiment.rates.contains(&rate)), "{name}: no rate is {rate:?}");
            let body = figure.body_bytes;
            assert!(
                body.is_none_or(|body| experiment.workload.body_bytes.contains(&body)),
                "{name}: {body:?}"
            );
        }
    }
}

/// A candidate's own name, if it has one, or that of its data path.
fn called(candidate: &Candidate) -> String {
    let keys = serde_json::to_value(candidate).unwrap();
    let own = keys.get("name").and_then(|name| name.as_str());
    own.unwrap_or(&candidate.path).to_owned()
}

fn exists(name: &str, candidate: &Candidate) {
    if candidate.cni.is_none() {
        assert!(lab::find(&candidate.path).is_ok(), "{name}: there is no data path {}", candidate.path);
    }
}

#[test]
fn the_manual_lists_them_all() {
    let manual = include_str!("../../../../docs/scenarios.md");
    for (name, _) in all() {
        assert!(
            manual.contains(&format!("scenarios/{name}.toml")),
            "docs/scenarios.md does not tell of {name}"
        );
    }
}
