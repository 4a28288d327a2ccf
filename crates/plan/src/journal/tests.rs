//! What a cut, changed, foreign or busy journal does.

use proptest::prelude::{Strategy, prop_assert, prop_assert_eq, proptest};

use super::*;
use crate::entry::{After, Before, Undone};
use crate::{Place, Placed, SetLinkUp};

fn up(index: u32) -> Before {
    was(&format!(r#"{{"set_link_up":{{"index":{index},"value":false}}}}"#))
}

fn was(json: &str) -> Before {
    Before::Was(serde_json::from_str(json).unwrap())
}

fn is(json: &str) -> After {
    After::Is(serde_json::from_str(json).unwrap())
}

fn step(seq: u64) -> [Entry; 3] {
    let link = linux::IfName::new(format!("hg{seq}")).unwrap();
    let placed = Placed { place: Place::Host, step: SetLinkUp { link }.into() };
    let before = up(7);
    [
        Entry::Intent(Intent { seq, placed, netns_cookie: Some(4), before }),
        Entry::Done { seq, after: is(r#"{"set_link_up":{"value":true}}"#) },
        Entry::Undone { seq, outcome: Undone::Restored, index: None },
    ]
}

/// A journal of some steps in a directory of its own; its bytes.
fn written(directory: &Path, steps: u64) -> (PathBuf, Vec<u8>, Vec<Entry>) {
    let path = directory.join("journal");
    let mut journal = Journal::create(&path).unwrap();
    for seq in 0..steps {
        for entry in step(seq) {
            journal.append_all(vec![entry]).unwrap();
        }
    }
    (path.clone(), std::fs::read(&path).unwrap(), journal.entries().to_vec())
}

/// Every byte of a journal of four steps, as a share, so that the strategy needs no file.
fn place() -> impl Strategy<Value = f64> {
    0.0..1.0
}

fn byte_at(bytes: &[u8], place: f64) -> usize {
    ((bytes.len() as f64) * place) as usize
}

/// One journal for all cases: each line of it waits for the disk.
fn four_steps() -> &'static (Vec<u8>, Vec<Entry>) {
    static WRITTEN: std::sync::OnceLock<(Vec<u8>, Vec<Entry>)> = std::sync::OnceLock::new();
    WRITTEN.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let (_, bytes, entries) = written(directory.path(), 4);
        (bytes, entries)
    })
}

proptest! {
    #[test]
    fn a_cut_journal_is_a_shorter_one(place in place()) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let (bytes, entries) = four_steps();
        let cut = byte_at(bytes, place);
        std::fs::write(&path, &bytes[..cut]).unwrap();
        let whole_lines = bytes[..cut].iter().filter(|byte| **byte == b'\n').count();
        match Journal::open(&path) {
            Ok(mut journal) => {
                prop_assert_eq!(journal.entries(), &entries[..whole_lines]);
                // It goes on behind the last sound line.
                let [next, ..] = step(journal.next_seq());
                journal.append_all(vec![next.clone()]).unwrap();
                drop(journal);
                let again = Journal::open(&path).unwrap();
                prop_assert_eq!(again.entries().len(), whole_lines + 1);
                prop_assert_eq!(again.entries().last(), Some(&next));
            }
            Err(JournalError::NoHeader { .. }) => prop_assert_eq!(whole_lines, 0),
            Err(error) => prop_assert!(false, "{}", error),
        }
    }

    #[test]
    fn a_changed_byte_is_found(place in place(), flip in 1_u8..) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let (mut bytes, entries) = four_steps().clone();
        let at = byte_at(&bytes, place);
        bytes[at] ^= flip;
        std::fs::write(&path, &bytes).unwrap();
        let damaged = bytes[..at].iter().filter(|byte| **byte == b'\n').count();
        match Journal::open(&path) {
            // The line is the last one, or its end is what was changed and it swallowed the last one.
            Ok(journal) => {
                prop_assert!(damaged + 2 >= entries.len());
                prop_assert_eq!(journal.entries(), &entries[..damaged]);
            }
            Err(JournalError::Damaged { line, .. }) => prop_assert_eq!(line, damaged + 1),
            Err(error) => prop_assert!(false, "{}", error),
        }
    }
}

#[test]
fn a_journal_is_never_made_over_another() {
    let directory = tempfile::tempdir().unwrap();
    let (path, bytes, _) = written(directory.path(), 1);
    assert!(matches!(Journal::create(&path), Err(JournalError::File { attempted: "create", .. })));
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn an_open_journal_is_not_opened_twice() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let held = Journal::create(&path).unwrap();
    let pid = std::process::id();
    assert!(matches!(Journal::open(&path), Err(JournalError::InUse { pid: by, .. }) if by == pid));
    drop(held);
    Journal::open(&path).unwrap();
}

#[test]
fn another_version_is_refused_by_number() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let later = VERSION + 1;
    let json = format!(r#"{{"header":{{"version":{later},"new":1}}}}"#);
    std::fs::write(&path, format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()))).unwrap();
    assert!(matches!(Journal::open(&path), Err(JournalError::Version { found, .. }) if found == later));
}

#[test]
fn a_foreign_file_is_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hosts");
    std::fs::write(&path, "127.0.0.1 localhost").unwrap();
    assert!(matches!(Journal::open(&path), Err(JournalError::NoHeader { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"127.0.0.1 localhost");
}

#[test]
fn a_step_without_a_final_outcome_is_open() {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(&directory.path().join("journal")).unwrap();
    let [intent, done, undone] = step(0);
    journal.append_all(vec![intent]).unwrap();
    journal.append_all(vec![done]).unwrap();
    let failed = Undone::Failed { why: "x".to_owned() };
    journal.append_all(vec![Entry::Undone { seq: 0, outcome: failed, index: None }]).unwrap();
    assert!(!journal.is_undone());
    journal.append_all(vec![undone]).unwrap();
    assert!(journal.is_undone());
    assert_eq!(journal.next_seq(), 1);
}

/// Every line has a valid checksum, so that only the order of the lines is wrong.
#[test]
fn a_line_that_is_missing_twice_or_elsewhere_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let (bytes, entries) = four_steps();
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let read = |lines: &[&[u8]]| {
        std::fs::write(&path, lines.concat()).unwrap();
        Journal::open(&path).map(|journal| journal.entries().to_vec())
    };
    for at in 0..lines.len() - 1 {
        let mut without = lines.clone();
        without.remove(at);
        match (read(&without), &entries[at]) {
            // Undo looks for the outcome again.
            (Ok(_), Entry::Done { .. } | Entry::Undone { .. }) => {}
            (Err(JournalError::NoHeader { .. } | JournalError::Damaged { .. }), _) => {}
            (found, lost) => panic!("without {lost:?}: {found:?}"),
        }
        let mut twice = lines.clone();
        twice.insert(at, lines[at]);
        assert!(matches!(read(&twice), Err(JournalError::Damaged { .. })), "twice: {:?}", entries[at]);
        let mut swapped = lines.clone();
        swapped.swap(at, at + 1);
        match (read(&swapped), &entries[at]) {
            (Err(JournalError::NoHeader { .. } | JournalError::Damaged { .. }), _) => {}
            // The outcome of another step may stand in between.
            (Ok(_), Entry::Undone { .. }) => {}
            (found, lost) => panic!("{lost:?} and the next: {found:?}"),
        }
    }
}

#[test]
fn a_seal_knows_its_journal() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let mut journal = Journal::create(&path).unwrap();
    let [intent, done, undone] = step(0);
    journal.append_all(vec![intent, done]).unwrap();
    let seal = journal.seal();
    let whole = std::fs::read(&path).unwrap();
    let check = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let (sound, bytes) = Sound::read(&path).unwrap().unwrap();
        seal.check(&sound.seal, &bytes)
    };
    assert_eq!((seal.steps, seal.bytes), (1, whole.len() as u64));
    check(&whole).unwrap();
    check(&[&whole[..], lines::line(&undone).as_bytes()].concat()).unwrap();
    let end = |lines: usize| whole.split_inclusive(|byte| *byte == b'\n').take(lines).map(<[u8]>::len).sum();
    let cut = |lines: usize| -> &[u8] { &whole[..end(lines)] };
    assert_eq!(check(cut(1)), Err("it has 0 of the 1 steps that were done".to_owned()));
    assert_eq!(check(cut(2)), Err("it is not as it was when its steps were done".to_owned()));
    let [other, done, _] = step(0);
    let Entry::Intent(other) = other else { unreachable!() };
    let other = Entry::Intent(Intent { before: up(8), ..other });
    let another = [cut(1), lines::line(&other).as_bytes(), lines::line(&done).as_bytes()].concat();
    assert_eq!(check(&another), Err("it is not as it was when its steps were done".to_owned()));
    // What was read back from the disk has the same seal.
    std::fs::write(&path, &whole).unwrap();
    drop(journal);
    assert_eq!(Journal::open(&path).unwrap().seal(), seal);
}

/// A line that is whole, with a state that the step never has: undo would take it for one that it has, or end there.
#[track_caller]
fn check_unpaired(changed: usize, entry: Entry, expected: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let (_, entries) = four_steps();
    let mut entries = entries.clone();
    entries[changed] = entry;
    std::fs::write(&path, entries.iter().map(lines::line).collect::<String>()).unwrap();
    let error = Journal::open(&path).unwrap_err();
    let JournalError::Damaged { line, why, .. } = &error else { panic!("{error:?}") };
    assert_eq!((*line, why.as_str()), (changed + 1, expected));
}

#[test]
fn a_state_of_another_step_is_refused() {
    let (_, entries) = four_steps();
    let Entry::Intent(first) = &entries[1] else { panic!("{entries:?}") };
    let before = "its state before step 0 does not belong to a step of that kind";
    let states = [
        Before::Absent,
        was(r#"{"set_debug":{"value":3}}"#),
        was(r#"{"set_hairpin":{"index":7,"value":true}}"#),
        was(r#"{"set_link_up":{"value":true}}"#),
    ];
    for state in states {
        check_unpaired(1, Entry::Intent(Intent { before: state, ..first.clone() }), before);
    }
    let after = "its state after step 0 does not belong to a step of that kind";
    let module = is(r#"{"set_module":{"value":3}}"#);
    for state in [After::AsPlanned, After::Netns { cookie: 1 }, After::Link { index: 7 }, module] {
        check_unpaired(2, Entry::Done { seq: 0, after: state }, after);
    }
}

/// One step of every kind, as the last program with format 2 wrote them.
#[test]
fn a_journal_of_format_2_is_read_as_one_of_today() {
    let sound = lines::parse(Path::new("v2"), include_bytes!("golden/v2.journal")).unwrap();
    let states: String = sound.entries.iter().filter_map(state).collect();
    insta::assert_snapshot!(states);
    for salvaged in
        salvage(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/journal/golden/v2.journal"))).unwrap()
    {
        assert_eq!(salvaged.entry.as_ref(), Ok(&sound.entries[salvaged.line - 1]));
    }
    // Written again, it says the same.
    let again: String = sound.entries.iter().map(lines::line).collect();
    assert_eq!(lines::parse(Path::new("v3"), again.as_bytes()).unwrap().entries, sound.entries);
}

fn state(entry: &Entry) -> Option<String> {
    match entry {
        Entry::Intent(intent) => {
            Some(format!("{}\n    {}\n", json(&intent.placed.step), json(&intent.before)))
        }
        Entry::Done { after, .. } => Some(format!("    {}\n", json(after))),
        Entry::Header(_) | Entry::Undone { .. } => None,
    }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap()
}
