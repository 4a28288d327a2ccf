//! Addresses that rest after their release.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use ipam::{Boot, Moment, Store};

use crate::{DUAL, address, key, sets, store, texts};

const FOUR: &str = r#"[[{"subnet":"10.0.0.0/29","rangeEnd":"10.0.0.5"}]]"#;

/// A store in a boot with an id, some seconds after it began.
fn at(root: &Path, boot: &str, seconds: u64) -> Store {
    let id_path = root.join("boot_id");
    fs::write(&id_path, boot).unwrap();
    let moment = Moment { since_boot: Duration::from_secs(seconds), wall: SystemTime::now() };
    Store::open(root, "n").unwrap().with_boot(Boot::fixed(id_path, moment))
}

/// What the next container gets.
fn next(store: &Store, container: &str) -> String {
    texts(&store.reserve(&key(container), &sets(FOUR), &[]).unwrap()).remove(0)
}

#[test]
fn a_released_address_is_given_again_after_all_others() {
    let (root, _) = store();
    let root = root.path();
    assert_eq!(
        ["a", "b", "c"].map(|name| next(&at(root, "x", 100), name)),
        ["10.0.0.2/29", "10.0.0.3/29", "10.0.0.4/29"]
    );
    at(root, "x", 100).release(&key("b")).unwrap();
    at(root, "x", 101).release(&key("a")).unwrap();
    // The one that never was given, then the longest released, then the other.
    assert_eq!(
        ["d", "e", "f"].map(|name| next(&at(root, "x", 102), name)),
        ["10.0.0.5/29", "10.0.0.3/29", "10.0.0.2/29"]
    );
    assert!(at(root, "x", 102).reserve(&key("g"), &sets(FOUR), &[]).is_err());
}

#[test]
fn rest_ends_with_its_time_and_with_the_boot() {
    for (boot, seconds, expected) in
        [("x", 129, "10.0.0.3/29"), ("x", 130, "10.0.0.2/29"), ("y", 101, "10.0.0.2/29")]
    {
        let (root, _) = store();
        let root = root.path();
        next(&at(root, "x", 100), "a");
        at(root, "x", 100).release(&key("a")).unwrap();
        // Without the hint the search begins with the first address.
        fs::remove_file(root.join("n/last_reserved_ip.0")).unwrap();
        assert_eq!(next(&at(root, boot, seconds), "b"), expected, "{boot} {seconds}");
    }
}

#[test]
fn a_resting_address_is_given_to_who_asks_for_it() {
    let (root, _) = store();
    let store = at(root.path(), "x", 100);
    next(&store, "a");
    store.release(&key("a")).unwrap();
    let reserved = store.reserve(&key("b"), &sets(FOUR), &[address("10.0.0.2")]).unwrap();
    assert_eq!(texts(&reserved), ["10.0.0.2/29"]);
}

#[test]
fn damaged_or_missing_notes_are_none_and_are_written_again() {
    let (root, _) = store();
    let store = at(root.path(), "x", 100);
    let notes = store.path().join(".hostgap-released");
    next(&store, "a");
    store.release(&key("a")).unwrap();
    fs::write(&notes, "{\"boot_id\":\"x\",").unwrap();
    fs::remove_file(store.path().join("last_reserved_ip.0")).unwrap();
    assert_eq!(next(&store, "b"), "10.0.0.2/29");
    store.release(&key("b")).unwrap();
    fs::remove_file(store.path().join("last_reserved_ip.0")).unwrap();
    assert_eq!(next(&store, "c"), "10.0.0.3/29");
    fs::remove_file(&notes).unwrap();
    assert_eq!(next(&store, "d"), "10.0.0.4/29");
}

#[test]
fn notes_of_a_killed_release_mean_nothing_for_an_address_that_is_still_reserved() {
    let (root, _) = store();
    let store = at(root.path(), "x", 100);
    next(&store, "a");
    store.release(&key("a")).unwrap();
    // The notes were written and the file was not yet removed.
    fs::write(store.path().join("10.0.0.2"), "a\r\neth0").unwrap();
    assert_eq!(["b", "c", "d"].map(|name| next(&store, name)), ["10.0.0.3/29", "10.0.0.4/29", "10.0.0.5/29"]);
    assert!(store.reserve(&key("e"), &sets(FOUR), &[]).is_err());
    assert_eq!(store.release(&key("a")).unwrap(), [address("10.0.0.2")]);
}

#[test]
fn an_address_is_released_even_if_its_rest_cannot_be_noted() {
    let (root, _) = store();
    let store = at(root.path(), "x", 100);
    next(&store, "a");
    let notes = store.path().join(".hostgap-released");
    fs::remove_file(&notes).unwrap();
    fs::create_dir_all(notes.join("in the way")).unwrap();
    assert_eq!(store.release(&key("a")).unwrap(), [address("10.0.0.2")]);
    // Whether earlier boots left something can be noted neither, and then nothing is given.
    let error = store.reserve(&key("b"), &sets(DUAL), &[]).unwrap_err().to_string();
    assert!(error.contains(".hostgap-released"), "{error}");
    fs::remove_dir_all(&notes).unwrap();
    assert_eq!(next(&store, "b"), "10.0.0.3/29");
}
