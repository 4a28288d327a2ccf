//! Units: begun, left standing, found dead, and taken back by their own journals.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use linux::{NetnsName, netns};
use plan::{Book, BookError, Kernel, Place, Plan, Step, Undone, Unit, UnitState};
use testkit::require_root;

fn namespace(unit: &Unit) -> NetnsName {
    NetnsName::new(format!("hgt-book-{}", unit.id())).unwrap()
}

/// Makes a namespace that belongs to the unit.
fn build(unit: &Unit) -> NetnsName {
    let name = namespace(unit);
    let mut plan = Plan::new();
    plan.push(&Place::Netns(name.clone()), Step::AddNetns);
    plan::apply(&plan, &mut unit.journal("a").unwrap(), &mut Kernel::new().unwrap()).unwrap();
    name
}

fn states(book: &Book) -> Vec<(String, UnitState, Option<String>)> {
    book.units().unwrap().into_iter().map(|found| (found.id, found.state, found.note)).collect()
}

#[test]
fn each_unit_is_taken_back_without_any_other() {
    if !require_root() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let book = Book::at(root.path());
    let (one, other) = (book.begin().unwrap(), book.begin().unwrap());
    let (gone, kept) = (build(&one), build(&other));
    let (id, kept_id) = (one.id().to_owned(), other.id().to_owned());
    other.leave_standing("of the other").unwrap();
    drop(one);
    let mut expected = vec![
        (id.clone(), UnitState::Dead, None),
        (kept_id.clone(), UnitState::Standing, Some("of the other".into())),
    ];
    expected.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(states(&book), expected);

    let unit = book.take_over(&id).unwrap();
    let outcomes = unit.take_back(&mut Kernel::new().unwrap()).unwrap();
    let undone: Vec<_> = outcomes[0].steps.as_ref().unwrap().iter().map(|(_, undone)| undone).collect();
    assert_eq!((outcomes.len(), undone), (1, vec![&Undone::Restored]));
    assert!(!netns::exists(&gone) && netns::exists(&kept));
    unit.end().unwrap();
    assert_eq!(states(&book).len(), 1);

    let unit = book.take_over(&kept_id).unwrap();
    unit.take_back(&mut Kernel::new().unwrap()).unwrap();
    unit.end().unwrap();
    assert!(!netns::exists(&kept));
    assert_eq!(states(&book), []);
}

#[test]
fn a_unit_that_a_process_holds_is_not_taken_over() {
    let root = tempfile::tempdir().unwrap();
    let book = Book::at(root.path());
    let unit = book.begin_as("0123456789ab-eth0").unwrap();
    let error = book.take_over("0123456789ab-eth0").unwrap_err();
    assert!(matches!(error, BookError::Held { pid, .. } if pid == std::process::id()), "{error}");
    assert!(matches!(book.begin_as("0123456789ab-eth0").unwrap_err(), BookError::Exists { .. }));
    unit.leave_standing("a pod").unwrap();
    assert!(matches!(book.begin_as("0123456789ab-eth0").unwrap_err(), BookError::Exists { .. }));
    book.take_over("0123456789ab-eth0").unwrap().end().unwrap();
    assert!(matches!(book.take_over("0123456789ab-eth0").unwrap_err(), BookError::Unknown { .. }));
}

/// A process that takes over a standing unit and then dies or fails has not ended it.
#[test]
fn a_unit_that_was_left_standing_stands_until_it_is_ended() {
    let root = tempfile::tempdir().unwrap();
    let book = Book::at(root.path());
    book.begin_as("pod").unwrap().leave_standing("a pod").unwrap();
    let standing = [("pod".to_owned(), UnitState::Standing, Some("a pod".to_owned()))];
    assert!(book.take_over_dead("pod").unwrap().is_none());
    drop(book.take_over("pod").unwrap());
    assert_eq!(states(&book), standing);
    book.take_over("pod").unwrap().end().unwrap();
    assert_eq!(states(&book), []);
}

/// A process that takes over a standing unit may be killed at any moment, so the unit's file must say at
/// every moment that it stands.
#[test]
fn the_owner_of_what_stands_is_never_unknown() {
    const TAKEOVERS: usize = 2000;
    let root = tempfile::tempdir().unwrap();
    let book = Book::at(root.path());
    book.begin_as("pod").unwrap().leave_standing("a pod").unwrap();
    let path = root.path().join("pod/owner");
    let text = fs::read_to_string(&path).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(fs::read_to_string(&path).unwrap(), text);
            }
        });
        for _ in 0..TAKEOVERS {
            drop(book.take_over("pod").unwrap());
        }
        is_over.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
}

/// It counts as that of a dead process, and the others are found beside it.
#[test]
fn a_unit_whose_owner_is_damaged_hides_no_other() {
    let root = tempfile::tempdir().unwrap();
    let book = Book::at(root.path());
    for id in ["damaged", "sound"] {
        book.begin_as(id).unwrap().leave_standing("it stands").unwrap();
    }
    let sound = ("sound".to_owned(), UnitState::Standing, Some("it stands".to_owned()));
    for owner in [&b"\xff"[..], b"", b"{\"pid\":-1,\"standing\":\"x\"}", b"[]"] {
        fs::write(root.path().join("damaged/owner"), owner).unwrap();
        let damaged = ("damaged".to_owned(), UnitState::Dead, None);
        assert_eq!(states(&book), [damaged, sound.clone()], "{owner:?}");
        assert!(book.find("damaged").unwrap().is_some());
    }
    assert!(book.take_over_dead("damaged").unwrap().is_some());
}

#[test]
fn ids_that_lead_elsewhere_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let book = Book::at(root.path().join("book"));
    book.begin().unwrap().end().unwrap();
    // Their names are no ids, or they would be units.
    for dir in ["", "book/a/b", "book/.hidden", "book/a b", "book/race.lock"] {
        fs::create_dir_all(root.path().join(dir)).unwrap();
        fs::write(root.path().join(dir).join("owner"), "{}").unwrap();
    }
    for id in ["", "..", "a/b", ".hidden", "a b", "race.lock", &"x".repeat(129)] {
        let error = book.begin_as(id).unwrap_err();
        assert!(matches!(error, BookError::BadId { .. }), "{id:?}: {error}");
        assert!(matches!(book.take_over(id).unwrap_err(), BookError::Unknown { .. }), "{id:?}");
    }
    assert!(book.units().unwrap().is_empty());
}

/// A damaged journal cannot be undone, so the unit stays for a user to inspect.
#[test]
fn a_unit_whose_journal_cannot_be_read_is_kept_and_named() {
    let root = tempfile::tempdir().unwrap();
    let book = Book::at(root.path());
    let unit = book.begin().unwrap();
    let journal = unit.dir().join("a.journal");
    fs::write(&journal, "no journal").unwrap();
    let outcomes = unit.take_back(&mut Kernel::new().unwrap()).unwrap();
    assert!(outcomes[0].path == journal && outcomes[0].steps.is_err());
    let id = unit.id().to_owned();
    let error = unit.end().unwrap_err();
    assert!(matches!(&error, BookError::NotUndone { journal: named } if *named == journal), "{error}");
    assert_eq!(states(&book), [(id.clone(), UnitState::Dead, None)]);
    book.take_over(&id).unwrap().discard().unwrap();
    assert_eq!(states(&book), []);
}

/// As a runtime does when it starts and ends many pods at once.
#[test]
fn units_come_and_go_at_the_same_time() {
    const WORKERS: usize = 8;
    const UNITS: usize = 25;
    let root = tempfile::tempdir().unwrap();
    let book = Book::at(root.path());
    let work = |worker: usize| {
        let mut ids = Vec::new();
        for number in 0..UNITS {
            let unit = book.begin_as(&format!("pod-{worker}-{number}")).unwrap();
            ids.push(unit.id().to_owned());
            drop(unit.journal("a").unwrap());
            assert!(book.units().unwrap().iter().any(|found| found.id == unit.id()));
            match number % 2 {
                0 => unit.leave_standing("a pod").unwrap(),
                _ => unit.discard().unwrap(),
            }
        }
        ids
    };
    let ids: BTreeSet<String> = std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (0..WORKERS).map(|worker| scope.spawn(move || work(worker))).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert_eq!(ids.len(), WORKERS * UNITS);
    let standing = states(&book);
    assert_eq!(standing.len(), WORKERS * UNITS.div_ceil(2));
    assert!(standing.iter().all(|(_, state, _)| *state == UnitState::Standing), "{standing:?}");
}

/// What a process without privileges can open, and with that lock, in a directory.
pub(crate) fn opened_by_nobody(root: &Path) -> Vec<String> {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "find"]).arg(root);
    let output = command.args(["-type", "f", "-readable", "-printf", "%f\n"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// A book in a directory that, unlike others of tests, every user can enter.
fn book_that_all_can_see() -> (tempfile::TempDir, Book) {
    let root = tempfile::tempdir().unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let book = Book::at(root.path());
    (root, book)
}

/// Whoever can read a file can lock it for as long as it likes, and no container would come or go meanwhile.
#[test]
fn nobody_else_locks_what_a_unit_needs() {
    if !require_root() {
        return;
    }
    let (root, book) = book_that_all_can_see();
    let unit = book.begin_as("pod").unwrap();
    let gone = build(&unit);
    assert_eq!(opened_by_nobody(root.path()), ["owner"]);
    unit.leave_standing("a pod").unwrap();
    // It says whose the unit is, and a lock on it says nothing.
    let theirs = fs::File::open(root.path().join("pod/owner")).unwrap();
    theirs.lock().unwrap();
    assert_eq!(states(&book), [("pod".to_owned(), UnitState::Standing, Some("a pod".to_owned()))]);
    let unit = book.take_over("pod").unwrap();
    assert_eq!(states(&book)[0].1, UnitState::Alive);
    unit.take_back(&mut Kernel::new().unwrap()).unwrap();
    unit.end().unwrap();
    assert!(!netns::exists(&gone));
}

/// A unit of an earlier version has files that everybody can lock, until it is taken over.
#[test]
fn a_unit_of_an_earlier_version_is_closed_to_others() {
    if !require_root() {
        return;
    }
    let (root, book) = book_that_all_can_see();
    let unit = book.begin_as("pod").unwrap();
    let _ = build(&unit);
    unit.leave_standing("a pod").unwrap();
    fs::remove_file(root.path().join("pod/hold")).unwrap();
    for file in ["claim.lock", "pod/a.journal"] {
        fs::set_permissions(root.path().join(file), fs::Permissions::from_mode(0o644)).unwrap();
    }
    let owner = fs::File::open(root.path().join("pod/owner")).unwrap();
    owner.lock().unwrap();
    assert!(matches!(book.take_over("pod"), Err(BookError::Held { .. })), "its process lives");
    owner.unlock().unwrap();
    let unit = book.take_over("pod").unwrap();
    assert_eq!(opened_by_nobody(root.path()), ["owner"]);
    unit.take_back(&mut Kernel::new().unwrap()).unwrap();
    unit.end().unwrap();
}
