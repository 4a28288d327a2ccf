//! The experiments in `scenarios/`: each can be read and has a quick form, its published figures concern
//! candidates that race, and each of these figures is the one in the table of its publication.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use record::{Candidate, Experiment, published_facts};

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
        check(&name, &experiment.swept());
        let quick = experiment.quick().unwrap().unwrap_or_else(|| panic!("{name} has no quick form")).swept();
        assert!(quick.rounds < experiment.rounds, "{name}");
        quick.candidates.iter().for_each(|candidate| exists(&name, candidate));
        read += 1;
    }
    assert!(read > 0, "there are scenarios");
}

/// Checks what a reader of the file takes for granted.
fn check(name: &str, experiment: &Experiment) {
    experiment.candidates.iter().for_each(|candidate| exists(name, candidate));
    let mut called: Vec<String> = experiment.candidates.iter().map(called).collect();
    called.push("host".to_owned());
    for figure in experiment.published.iter().filter(|figure| figure.not_comparable.is_empty()) {
        let against = figure.against.as_deref().unwrap_or("host");
        for candidate in [&*figure.candidate, against] {
            assert!(
                called.iter().any(|name| name == candidate),
                "{name}: no candidate is called {candidate}"
            );
        }
        assert!(
            figure.source.chars().any(|letter| letter.is_ascii_digit()),
            "{name}: {} has no year",
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

/// A figure is written once, in `published/`. No scenario repeats it, and each refers to the right value.
#[test]
fn every_published_figure_is_that_of_its_publication() {
    let mut used = BTreeSet::new();
    for (name, path) in all() {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("value = "), "{name} repeats a value of its publication");
        for figure in Experiment::from_toml(&text).unwrap().published {
            let fact = published_facts().iter().find(|fact| fact.key == figure.key);
            let fact = fact.unwrap_or_else(|| panic!("{name}: no publication has `{}`", figure.key));
            assert_eq!(
                (figure.value, figure.direction),
                (fact.value, fact.direction),
                "{name}: {}",
                fact.key
            );
            let [ours, theirs] = [
                (&*figure.unit, &*figure.source, &*figure.setting, figure.rounded_to),
                (fact.unit, fact.source, fact.setting, fact.rounded_to),
            ];
            assert_eq!(ours, theirs, "{name}: {}", fact.key);
            used.insert(&*fact.key);
        }
    }
    let idle: Vec<&str> =
        published_facts().iter().map(|fact| &*fact.key).filter(|key| !used.contains(key)).collect();
    assert_eq!(idle, Vec::<&str>::new(), "no scenario refers to these");
}

/// An author's observation is worthless without its date and machine.
#[test]
fn every_reading_names_the_run_it_is_of() {
    for (name, path) in all() {
        let experiment = Experiment::from_toml(&std::fs::read_to_string(path).unwrap()).unwrap();
        let is_dated = experiment.reading_of.is_some_and(|run| !run.machine.is_empty());
        assert!(is_dated || experiment.reading.is_empty(), "{name}: a reading without its date and machine");
    }
}

/// Netem treats a packet of several segments as one unless it is split before. Once split, loss is as on a
/// real wire.
#[test]
fn where_loss_is_raced_each_packet_is_lost_by_itself() {
    for (name, path) in all() {
        let experiment = Experiment::from_toml(&std::fs::read_to_string(path).unwrap()).unwrap().swept();
        for candidate in &experiment.candidates {
            let underlay = experiment.underlay.with(&candidate.underlay);
            for wire in [underlay.to_server(), underlay.to_client()] {
                let lossy = wire.loss.is_some_and(|loss| loss.billionths > 0);
                assert!(
                    !lossy || wire.gso == Some(false),
                    "{name}: {} loses 64 KiB at once",
                    called(candidate)
                );
            }
        }
    }
}

/// Emulation bends every time and every share of it, whatever a publication measured.
#[test]
fn over_emulated_cards_no_figure_is_compared() {
    let mut raced = 0;
    for (name, path) in all() {
        let experiment = Experiment::from_toml(&std::fs::read_to_string(path).unwrap()).unwrap().swept();
        if experiment.underlay.card.is_none() {
            continue;
        }
        for figure in &experiment.published {
            let is_shown = figure.metric.is_none() || !figure.not_comparable.is_empty();
            assert!(is_shown, "{name}: {}", figure.key);
        }
        assert!(
            experiment.vm.as_ref().is_some_and(|vm| vm.cpus > 2),
            "{name}: packets need CPUs to spread over"
        );
        raced += 1;
    }
    assert!(raced > 0, "there are scenarios over cards");
}

/// A candidate's own name, or that of its data path and its side in a container.
fn called(candidate: &Candidate) -> String {
    let path = Candidate {
        path: candidate.path.clone(),
        in_container: candidate.in_container,
        filter: candidate.filter,
        ..Candidate::default()
    };
    candidate.name.clone().unwrap_or_else(|| path.title())
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
        assert!(manual.contains(&format!("scenarios/{name}.toml")), "docs/scenarios.md does not list {name}");
    }
}

/// Sweeps race the points that their files list: a candidate for each congestion control and loss, a load for
/// each size.
#[test]
fn sweeps_race_every_point() {
    let laid = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../scenarios/{name}.toml"));
        Experiment::from_toml(&std::fs::read_to_string(path).unwrap()).unwrap().swept()
    };
    let curve = laid("aws-loss-curve");
    let losses = ["0.01", "0.1", "0.5", "1", "2", "4", "5", "6", "8", "10"];
    let names: Vec<String> =
        ["cubic", "bbr"].iter().flat_map(|of| losses.map(|loss| format!("{of} {loss} %"))).collect();
    assert_eq!(curve.candidates.iter().map(Candidate::title).collect::<Vec<_>>(), names);
    for (candidate, loss) in curve.candidates.iter().zip(losses.iter().cycle()) {
        let ways: Vec<_> = candidate.underlay.named().map(|(way, wire)| (way, wire.to_string())).collect();
        assert_eq!(ways, [("to_server", format!("loss {loss}%"))], "{}", candidate.title());
        assert_eq!(candidate.tune.both.len(), usize::from(candidate.title().starts_with("bbr")));
    }
    let sizes = laid("hokkaido-udp");
    assert_eq!(
        sizes.workload.body_bytes,
        [1472, 1024, 512, 256, 128, 64],
        "the first is what the verdict is about"
    );
    assert_eq!(sizes.sweep.unwrap().places().unwrap(), [64.0, 128.0, 256.0, 512.0, 1024.0, 1472.0]);
}
