//! The two files of a tuning that stands, damaged in up to three places: whatever is left of them, it is never reported
//! that a restart took it back, that nothing stands, or that what the journal says is all, unless it is so.
//!
//! An input is a moment of a recorded transaction and a list of damages. Three of them do not make a CRC-32 right
//! again; whoever computes it anew is not what this is about.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use plan::{Account, Intent, OpenTransaction, Store, TransactionError};

/// `standing.json` and `journal`, where they are there.
type Files = [Option<Vec<u8>>; 2];

/// Both files of a moment, as `plan`'s test of transactions has written them.
macro_rules! moment {
    ($name:literal) => {
        [
            Some(include_bytes!(concat!("../transactions/", $name, "/standing.json")).to_vec()),
            Some(include_bytes!(concat!("../transactions/", $name, "/journal")).to_vec()),
        ]
    };
}

/// What is known of the moments, and a place for the files.
struct Ground {
    store: Store,
    boot_id: String,
    moments: Vec<Files>,
    /// Every step that any of them began.
    known: Vec<Intent>,
}

#[derive(Debug, Arbitrary)]
struct Input {
    moment: u8,
    damages: [Option<Damage>; 3],
}

#[derive(Debug, Clone, Copy, Arbitrary)]
struct Damage {
    of_journal: bool,
    at: u16,
    what: What,
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum What {
    /// A byte is combined with these bits by XOR.
    Flip(u8),
    /// All from there on is gone.
    Cut,
    LineGone,
    LineTwice,
    /// A line stands behind the next one.
    LineLater,
    FileGone,
    /// The file is that of another moment.
    FileOf(u8),
}

static GROUND: LazyLock<Ground> = LazyLock::new(|| {
    let store = Store::at(std::env::temp_dir().join(format!("hostgap-fuzz-{}", std::process::id())));
    // All of one transaction, and the death at the beginning of another.
    let moments = vec![
        moment!("unconfirmed"),
        moment!("confirmed"),
        moment!("extending"),
        moment!("extended"),
        moment!("going"),
        moment!("applying"),
    ];
    let boot_id = standing(&moments[0]).boot_id;
    let mut known = Vec::new();
    for files in &moments {
        match account(&store, files, &boot_id) {
            Ok(Account::Stands { open, doubt: None }) => known.extend(open),
            other => panic!("a sound moment is not reported: {other:?}"),
        }
    }
    Ground { store, boot_id, moments, known }
});

fuzz_target!(|input: Input| {
    let ground = &*GROUND;
    let mut files = ground.moments[usize::from(input.moment) % ground.moments.len()].clone();
    for damage in input.damages.into_iter().flatten() {
        strike(damage, &mut files, &ground.moments);
    }
    match account(&ground.store, &files, &ground.boot_id) {
        // Nothing is claimed, and nothing is done.
        Err(_) => {}
        Ok(Account::Restarted) => panic!("no restart has been"),
        Ok(Account::Nothing) => {
            assert_eq!(files[0], None, "something stands");
            // A damaged last line was never answered for, so that its step was not begun.
            let journal = files[1].as_deref().unwrap_or_default();
            let lines: Vec<&[u8]> = journal.split_inclusive(|byte| *byte == b'\n').collect();
            let before_it = lines.split_last().map_or(Vec::new(), |(_, before)| before.concat());
            assert!(!has(&Some(before_it), b"\"intent\""), "steps stand");
        }
        Ok(Account::Stands { open, doubt }) => {
            open.iter().for_each(|step| assert!(ground.known.contains(step), "{step:?} was never begun"));
            if doubt.is_none() {
                assert_whole(&open, &files, ground);
            }
        }
    }
});

/// Fails unless every step is among those that are reported as standing, of which `standing.json` knows.
fn assert_whole(open: &[Intent], files: &Files, ground: &Ground) {
    assert!(ground.moments.iter().any(|moment| moment[0] == files[0]), "a changed standing.json is believed");
    if !has(&files[1], b"\"undone\"") {
        let seqs: Vec<u64> = open.iter().map(|step| step.seq).collect();
        let all: Vec<u64> = (0..seqs.len() as u64).collect();
        assert_eq!(seqs, all);
        assert!(all.len() as u64 >= standing(files).seal.steps, "steps are missing");
    }
}

fn has(file: &Option<Vec<u8>>, word: &[u8]) -> bool {
    file.as_ref().is_some_and(|bytes| bytes.windows(word.len()).any(|window| window == word))
}

fn standing(files: &Files) -> OpenTransaction {
    serde_json::from_slice(files[0].as_ref().expect("it is there")).expect("it is sound")
}

/// What is reported of these files, once they lie in the store.
fn account(store: &Store, files: &Files, boot_id: &str) -> Result<Account, TransactionError> {
    fs::create_dir_all(store.path()).expect("a temporary directory can be made");
    let put = |path: PathBuf, bytes: &Option<Vec<u8>>| {
        if let Some(bytes) = bytes {
            fs::write(path, bytes).expect("a file can be written");
        }
    };
    put(store.path().join("standing.json"), &files[0]);
    put(store.journal_path(), &files[1]);
    let account = store.account_in(boot_id);
    fs::remove_dir_all(store.path()).expect("what was made can be removed");
    account
}

fn strike(damage: Damage, files: &mut Files, moments: &[Files]) {
    let which = usize::from(damage.of_journal);
    let file = match damage.what {
        What::FileGone => return files[which] = None,
        // Not that of the other transaction, which the same process has recorded: its first line is the same.
        What::FileOf(moment) => {
            let others = &moments[..moments.len() - 1];
            return files[which].clone_from(&others[usize::from(moment) % others.len()][which]);
        }
        _ => files[which].as_mut().filter(|bytes| !bytes.is_empty()),
    };
    let Some(bytes) = file else { return };
    let at = usize::from(damage.at) % bytes.len();
    let mut lines: Vec<Vec<u8>> = bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let line = usize::from(damage.at) % lines.len();
    match damage.what {
        What::Flip(by) => return bytes[at] ^= by.max(1),
        What::Cut => return bytes.truncate(at),
        What::LineGone => drop(lines.remove(line)),
        What::LineTwice => lines.insert(line, lines[line].clone()),
        What::LineLater => {
            let next = (line + 1) % lines.len();
            lines.swap(line, next);
        }
        What::FileGone | What::FileOf(_) => unreachable!("a whole file is done above"),
    }
    *bytes = lines.concat();
}
