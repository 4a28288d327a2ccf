//! Any text as the lines of a journal, each with a checksum that holds: what a journal says is checked before undo acts
//! on it. Nothing panics, and no step is planned that was not begun.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use plan::{Entry, Journal, Placed, Step};

static PATH: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("hostgap-fuzz-journal-{}", std::process::id())));

fuzz_target!(|text: &str| {
    let lines = text.lines().map(|json| format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes())));
    std::fs::write(&*PATH, lines.collect::<String>()).expect("a file can be written");
    // Who only shows a journal reads what undo refuses.
    let salvaged = plan::salvage(&PATH).expect("the file is there");
    if let Ok(journal) = Journal::open(&PATH) {
        assert_eq!(journal.entries().len(), salvaged.len(), "all lines have a checksum that holds");
        check(&journal);
    }
    std::fs::remove_file(&*PATH).expect("what was made can be removed");
});

/// Plans the way back, and shows each step.
fn check(journal: &Journal) {
    let begun: Vec<_> = journal
        .entries()
        .iter()
        .filter_map(|entry| if let Entry::Intent(intent) = entry { Some(&intent.placed) } else { None })
        .collect();
    let planned = plan::outstanding(journal);
    assert!(planned.len() <= begun.len());
    for step in &planned {
        assert!(begun.contains(step), "{step:?} was never begun");
        assert!(step.commands().iter().all(|command| !command.is_empty()));
    }
    assert_eq!(planned.is_empty(), journal.is_undone());
    check_way_back(journal, &planned);
}

/// All of it is taken back once: by itself, or with a namespace that is taken back later. A namespace
/// goes with no other.
fn check_way_back(journal: &Journal, planned: &[&Placed]) {
    let way = plan::way_back(journal);
    assert!(way.iter().map(|(placed, _)| placed).eq(planned.iter().copied()));
    for (placed, with) in &way {
        let Some(name) = with else { continue };
        assert_eq!(placed.place.name(), Some(name), "{placed:?} goes with a namespace in which it is not");
        assert_ne!(placed.step, Step::AddNetns);
        let is_made = way.iter().any(|(other, with)| {
            other.step == Step::AddNetns && other.place == placed.place && with.is_none()
        });
        assert!(is_made, "{placed:?} goes with a namespace that stays");
    }
}
