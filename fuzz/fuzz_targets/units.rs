//! What says who has what: the owner of a unit, and the claims of units on what they share. The first line of an input
//! is the owner's file; the rest is a file of claims, under a checksum that holds.
//!
//! A damaged file hides no other unit, and counts as nobody's word that a unit stands; claims go only if they can be
//! read and no unit is left that has one.
#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use plan::{Book, Kernel, UnitState};
use serde_json::{Map, Value};

/// A namespace that there never is.
const COOKIE: u64 = u64::MAX;

/// A book of two units, and a directory of claims.
struct Ground {
    book: Book,
    claims: PathBuf,
}

static ROOT: LazyLock<PathBuf> =
    LazyLock::new(|| std::env::temp_dir().join(format!("hostgap-fuzz-units-{}", std::process::id())));

impl Ground {
    fn new() -> Ground {
        let book = Book::at(ROOT.join("book"));
        for id in ["another", "unit"] {
            let unit = book.begin_as(id).expect("a temporary directory can be made");
            unit.leave_standing(id).expect("a file can be written");
        }
        let claims = ROOT.join("claims");
        fs::create_dir_all(&claims).expect("a temporary directory can be made");
        Ground { book, claims }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        fs::remove_dir_all(&*ROOT).expect("what was made can be removed");
    }
}

fuzz_target!(|bytes: &[u8]| {
    let ground = Ground::new();
    let at = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (owner, claims) = bytes.split_at(at);
    check_owner(&ground.book, owner);
    check_claims(&ground.claims, claims.get(1..).unwrap_or_default());
});

fn check_owner(book: &Book, owner: &[u8]) {
    fs::write(book.path().join("unit/owner"), owner).expect("a file can be written");
    let units = book.units().expect("a damaged owner hides no other");
    let [another, unit] = units.as_slice() else { panic!("there are two units: {units:?}") };
    assert_eq!((another.state, another.note.as_deref()), (UnitState::Standing, Some("another")));
    assert_ne!(unit.state, UnitState::Alive, "no process holds it");
    assert_eq!(unit.note.is_some(), unit.state == UnitState::Standing);
    if unit.state == UnitState::Standing {
        // Fields may stand in a list, in their order.
        let said: Value = serde_json::from_slice(owner).expect("what cannot be read says nothing");
        assert!(said["standing"].is_string() || said[1].is_string(), "nobody said so");
    }
}

fn check_claims(directory: &Path, claims: &[u8]) {
    let path = directory.join(format!("{COOKIE}.json"));
    let sealed = sealed(claims).unwrap_or_else(|| claims.to_vec());
    fs::write(&path, &sealed).expect("a file can be written");
    let kernel = Kernel::new().expect("a process has a network namespace").with_claims(directory);
    let removed = plan::remove_stale_claims(&kernel);
    assert_eq!(path.exists(), removed.as_ref().map_or(true, Vec::is_empty), "{removed:?}");
    if path.exists() {
        assert_eq!(fs::read(&path).expect("it is there"), sealed, "who only looks writes nothing");
    } else {
        let said: Value = serde_json::from_slice(claims).expect("what cannot be read stays");
        assert!(!owners(&said).any(|journal| Path::new(journal).exists()), "a unit needs it");
    }
}

/// The journals of all units that have a claim.
fn owners(file: &Value) -> impl Iterator<Item = &str> {
    let claims = file["claims"].as_object().into_iter().flat_map(Map::values);
    let owners = claims.flat_map(|claim| claim["owners"].as_array().into_iter().flatten());
    owners.filter_map(|owner| owner["journal"].as_str())
}

/// The object with its checksum; `None` if it is none.
fn sealed(claims: &[u8]) -> Option<Vec<u8>> {
    let mut object: Map<String, Value> = serde_json::from_slice(claims).ok()?;
    object.remove("crc32");
    let crc32 = crc32fast::hash(&serde_json::to_vec(&object).ok()?);
    object.insert("crc32".to_owned(), crc32.into());
    serde_json::to_vec(&object).ok()
}
