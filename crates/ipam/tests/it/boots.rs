//! Reservations of earlier boots.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use ipam::{Boot, Moment, Store};

use crate::{DUAL, all, key, names, sets, store};

const HOUR: Duration = Duration::from_secs(3600);

/// A store on a machine that booted an hour before `wall`.
fn after_an_hour(root: &Path, boot: &str, wall: SystemTime) -> Store {
    let id_path = root.join(boot);
    fs::write(&id_path, boot).unwrap();
    Store::open(root, "n").unwrap().with_boot(Boot::fixed(id_path, Moment { since_boot: HOUR, wall }))
}

fn set_written(store: &Store, name: &str, time: SystemTime) {
    File::options().write(true).open(store.path().join(name)).unwrap().set_modified(time).unwrap();
}

#[test]
fn what_was_written_before_the_boot_is_released_once() {
    let (root, _) = store();
    let now = SystemTime::now();
    let store = after_an_hour(root.path(), "x", now);
    let host_local = [("10.0.0.2", "a"), ("10.0.0.3", "b"), ("10.0.0.4", "c")];
    fs::create_dir(store.path()).unwrap();
    for (name, container) in host_local {
        fs::write(store.path().join(name), format!("{container}\r\neth0")).unwrap();
    }
    // A store of the boot before has been here, though what it noted is damaged.
    fs::write(store.path().join(".hostgap-released"), "{").unwrap();
    set_written(&store, "10.0.0.2", now - 2 * HOUR);
    set_written(&store, "10.0.0.3", now - HOUR - Duration::from_secs(5));
    let released = store.release_of_earlier_boots().unwrap();
    assert_eq!(released.iter().map(|(_, holder)| holder.to_string()).collect::<Vec<_>>(), ["a/eth0"]);
    assert_eq!(all(&store), ["10.0.0.3 b/eth0", "10.0.0.4 c/eth0"]);
    // The clock was set forward: files of this boot look older than it.
    let later = after_an_hour(root.path(), "x", now + 24 * HOUR);
    assert!(later.release_of_earlier_boots().unwrap().is_empty());
    let next_boot = after_an_hour(root.path(), "y", now + 24 * HOUR);
    assert_eq!(next_boot.release_of_earlier_boots().unwrap().len(), 2);
    assert_eq!(names(store.path()), [".hostgap-released", "lock"]);
}

/// A node changes over from host-local while its containers run, after its clock was set forward: they keep their
/// addresses, and those that the next boot finds go.
#[test]
fn what_another_program_has_given_out_is_not_released_in_the_boot_that_finds_it() {
    let (root, _) = store();
    let now = SystemTime::now();
    let store = after_an_hour(root.path(), "x", now);
    fs::create_dir(store.path()).unwrap();
    for (name, container) in [("10.0.0.2", "a"), ("10.0.0.5", "b")] {
        fs::write(store.path().join(name), format!("{container}\r\neth0")).unwrap();
        // By a clock that was a day behind.
        set_written(&store, name, now - 24 * HOUR);
    }
    // The first that is asked is for the end of one of them.
    assert_eq!(store.release(&key("b")).unwrap().len(), 1);
    let given = store.reserve(&key("c1"), &sets(DUAL), &[]).unwrap();
    assert_eq!(given[0].address.addr().to_string(), "10.0.0.3");
    assert!(store.release_of_earlier_boots().unwrap().is_empty());
    assert_eq!(all(&store)[0], "10.0.0.2 a/eth0");
    let next_boot = after_an_hour(root.path(), "y", now + 24 * HOUR);
    assert_eq!(next_boot.release_of_earlier_boots().unwrap().len(), 3);
}

#[test]
fn what_is_reserved_in_an_empty_store_is_of_this_boot_whatever_the_clock_says_later() {
    let (root, _) = store();
    let now = SystemTime::now();
    assert!(after_an_hour(root.path(), "x", now).release_of_earlier_boots().unwrap().is_empty());
    after_an_hour(root.path(), "x", now).reserve(&key("c1"), &sets(DUAL), &[]).unwrap();
    let later = after_an_hour(root.path(), "x", now + 24 * HOUR);
    assert!(later.release_of_earlier_boots().unwrap().is_empty());
    assert_eq!(later.release(&key("c1")).unwrap().len(), 2);
}

#[test]
fn without_the_id_of_the_boot_nothing_is_released() {
    let (root, store) = store();
    store.reserve(&key("c1"), &sets(DUAL), &[]).unwrap();
    let moment = Moment { since_boot: HOUR, wall: SystemTime::now() + 24 * HOUR };
    let unknown = store.with_boot(Boot::fixed(root.path().join("none"), moment));
    assert!(unknown.release_of_earlier_boots().unwrap().is_empty());
    assert_eq!(unknown.release(&key("c1")).unwrap().len(), 2);
}

/// A node that was full when its machine stopped must say that it has room, or nobody asks for the
/// reservation that makes it.
#[test]
fn what_the_next_reservation_would_release_counts_as_left() {
    let (root, _) = store();
    let now = SystemTime::now();
    let full = sets(r#"[[{"subnet":"10.0.0.0/30"}]]"#);
    let before = after_an_hour(root.path(), "x", now);
    before.reserve(&key("c1"), &full, &[]).unwrap();
    assert_eq!(before.left(&full).unwrap(), [0]);
    let after = after_an_hour(root.path(), "y", now + 2 * HOUR);
    assert_eq!(after.left(&full).unwrap(), [1]);
    assert_eq!(all(&after), ["10.0.0.2 c1/eth0"], "nothing is released");
    after.reserve(&key("c2"), &full, &[]).unwrap();
    // Swept, and the clock is set forward.
    assert_eq!(after_an_hour(root.path(), "y", now + 24 * HOUR).left(&full).unwrap(), [0]);
    // Another program's directory is not swept in the boot that finds it.
    fs::remove_file(after.path().join(".hostgap-released")).unwrap();
    assert_eq!(after_an_hour(root.path(), "z", now + 24 * HOUR).left(&full).unwrap(), [0]);
}

/// To sweep a second time in a boot, after the clock was set forward, would give addresses twice that pods have.
#[test]
fn notes_that_cannot_be_read_are_not_taken_for_none() {
    let (root, _) = store();
    let now = SystemTime::now();
    let store = after_an_hour(root.path(), "x", now);
    store.reserve(&key("a"), &sets(DUAL), &[]).unwrap();
    let had = all(&store);
    // Everybody is refused to read a directory as a file.
    let notes = store.path().join(".hostgap-released");
    fs::rename(&notes, root.path().join("notes")).unwrap();
    fs::create_dir(&notes).unwrap();
    let later = after_an_hour(root.path(), "x", now + 24 * HOUR);
    assert!(later.release_of_earlier_boots().is_err());
    assert!(later.reserve(&key("b"), &sets(DUAL), &[]).is_err());
    assert!(later.left(&sets(DUAL)).is_err());
    assert_eq!(all(&later), had);
    // What a container gives back is free all the same.
    later.release(&key("a")).unwrap();
    fs::remove_dir(&notes).unwrap();
    fs::rename(root.path().join("notes"), &notes).unwrap();
    later.reserve(&key("b"), &sets(DUAL), &[]).unwrap();
}
