//! The inputs from which the fuzzer begins: each kind of step is among them, in journals that are sound.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::collections::BTreeSet;
use std::path::Path;

use plan::{Journal, way_back};

/// The definitions of the steps and of the settings.
const STEPS: &str = include_str!("../../src/step.rs");
const SETTINGS: &str = include_str!("../../src/set/mod.rs");

/// The words that journals have for steps. A new step is found here without a list.
fn words() -> BTreeSet<String> {
    let (_, steps) = STEPS.split_once("pub enum Step {\n").unwrap();
    let (steps, _) = steps.split_once("\n}\n").unwrap();
    let mut words = BTreeSet::new();
    let mut given = None;
    for line in steps.lines() {
        if let Some(word) = line.trim().strip_prefix("#[serde(rename = \"") {
            given = word.split('"').next();
        } else if line.contains("#[serde(untagged)]") {
            break;
        } else if line.strip_prefix("    ").is_some_and(|line| line.starts_with(char::is_uppercase)) {
            let name = line.trim().split(|c: char| !c.is_alphanumeric()).next().unwrap();
            words.insert(given.take().map_or_else(|| snake_case(name), str::to_owned));
        }
    }
    let settings = SETTINGS.lines().filter_map(|line| line.split_once(" = \"set_"));
    words.extend(settings.map(|(_, rest)| format!("set_{}", rest.split('"').next().unwrap())));
    words
}

fn snake_case(name: &str) -> String {
    let mut word = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_uppercase() && at > 0 {
            word.push('_');
        }
        word.extend(letter.to_lowercase());
    }
    word
}

fn each_input(mut check: impl FnMut(&str, &Journal)) {
    let inputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/journal");
    let directory = tempfile::tempdir().unwrap();
    for input in std::fs::read_dir(inputs).unwrap() {
        let input = input.unwrap().path();
        let text = std::fs::read_to_string(&input).unwrap();
        let lines = text.lines().map(|json| format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes())));
        let path = directory.path().join("journal");
        std::fs::write(&path, lines.collect::<String>()).unwrap();
        let name = input.file_name().unwrap().to_string_lossy();
        let journal = Journal::open(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        check(&name, &journal);
    }
}

#[test]
fn every_step_has_a_journal_in_the_corpus() {
    let (words, mut found) = (words(), BTreeSet::new());
    assert!(words.len() > 50 && words.contains("add_netns") && words.contains("add_wireguard_peer"));
    each_input(|_, journal| {
        for entry in journal.entries() {
            let json = serde_json::to_value(entry).unwrap();
            let step = &json["intent"]["placed"]["step"];
            let word = step.as_str().or_else(|| step.as_object()?.keys().next().map(String::as_str));
            found.extend(word.map(str::to_owned));
        }
    });
    let missing: Vec<_> = words.difference(&found).collect();
    assert!(missing.is_empty(), "no input in fuzz/corpus/journal has {missing:?}");
}

/// What stands on a link that comes back from a namespace is undone before it, and the rest of a
/// namespace goes with it.
#[test]
fn the_way_back_is_planned_from_the_journal_alone() {
    let mut ways = Vec::new();
    each_input(|name, journal| {
        if name.starts_with("v3-way-") {
            let with = way_back(journal).into_iter().map(|(_, with)| with.is_some()).collect::<Vec<_>>();
            ways.push((name.to_owned(), with));
        }
    });
    ways.sort();
    let expected = [
        ("v3-way-back".to_owned(), vec![false, false, false, false]),
        ("v3-way-inside".to_owned(), vec![true, false, true, false]),
    ];
    assert_eq!(ways, expected);
}
