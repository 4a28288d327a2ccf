//! The files of a transaction at several moments, and who can open them. The fuzz target `transaction` damages those of
//! `fuzz/transactions`; `HOSTGAP_ACCEPT=1` writes them again.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use plan::{
    Account, Fault, Journal, Kernel, Phase, Plan, Store, TransactionError, WatchEnd, Watcher, Why, apply,
};
use serde_json::{Map, Value};
use testkit::{require_root, shell};

use crate::book::opened_by_nobody;
use crate::sample::sysctl_step;
use crate::scene::Scene;

const FILES: [&str; 2] = ["standing.json", "journal"];

fn kept(moment: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/transactions").join(moment)
}

/// What must be equal in two files: the kinds and keys of their lines. Ids and numbers differ from run to
/// run.
fn shape(bytes: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(bytes).expect("both files are text");
    let json = |line: &str| line[line.find('{').expect("each line is an object")..].to_owned();
    let keys = |line: &str| {
        let object: Map<String, Value> = serde_json::from_str(&json(line)).expect("and a sound one");
        let inner = |value: &Value| value.as_object().map(|inner| inner.keys().cloned().collect::<Vec<_>>());
        format!("{:?}", object.iter().map(|(key, value)| (key, inner(value))).collect::<Vec<_>>())
    };
    text.lines().map(keys).collect()
}

#[track_caller]
fn assert_kept(store: &Store, moment: &str) {
    let folder = kept(moment);
    for file in FILES {
        let now = fs::read(store.path().join(file)).expect("the store has both files");
        if std::env::var_os("HOSTGAP_ACCEPT").is_some() {
            fs::create_dir_all(&folder).expect("the checkout can be written");
            fs::write(folder.join(file), &now).expect("the checkout can be written");
        }
        let kept = fs::read(folder.join(file)).expect("every moment is kept");
        assert_eq!(shape(&now), shape(&kept), "{moment}: {file}");
    }
}

fn plan_of(scene: &Scene, steps: &[(&str, &str)]) -> Plan {
    let mut plan = Plan::new();
    for (key, value) in steps {
        plan.push(&scene.sample.home(), sysctl_step(key, value));
    }
    plan
}

fn open_steps(store: &Store) -> usize {
    match store.account().expect("the files are sound") {
        Account::Stands { open, doubt: None } => open.len(),
        account => panic!("{account:?}"),
    }
}

#[test]
fn every_moment_of_a_transaction_is_kept_for_the_fuzzer() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let store = Store::at(scene.directory.path());
    let plan = plan_of(
        &scene,
        &[("net/core/somaxconn", "8192"), ("net/ipv4/tcp_ecn", "1"), ("net/ipv4/ip_default_ttl", "63")],
    );
    let held = store.hold().unwrap();
    let mut kernel = Kernel::new().unwrap();

    // The process that applied it died after the intent of the second step.
    let (_, mut journal) = held.begin(&plan, None, Value::Null).unwrap();
    kernel.inject(Fault::DeadAfterLine(4));
    apply(&plan, &mut journal, &mut kernel).unwrap_err();
    drop(journal);
    assert_eq!(open_steps(&store), 2);
    assert_kept(&store, "applying");
    kernel.inject(Fault::None);
    held.take_back(&mut kernel, Why::Died).unwrap();

    let (standing, journal) = held.begin(&plan, None, Value::Null).unwrap();
    held.apply(&standing, &plan, journal, &mut kernel).unwrap();
    let standing = held.await_confirmation(standing, Some(Duration::from_secs(600))).unwrap();
    assert_eq!(open_steps(&store), 3);
    assert_kept(&store, "unconfirmed");
    held.confirm().unwrap();
    assert_kept(&store, "confirmed");

    let more = plan_of(&scene, &[("net/core/somaxconn", "16384"), ("net/ipv4/tcp_sack", "0")]);
    let (standing_then, mut journal) = held.extend(&more).unwrap();
    assert_eq!((standing_then.phase, standing_then.seal), (Phase::Extending { from: 3 }, standing.seal));
    apply(&more, &mut journal, &mut kernel).unwrap();
    drop(journal);
    assert_eq!(open_steps(&store), 5);
    assert_kept(&store, "extending");
    held.await_confirmation(standing_then, None).unwrap();
    assert_kept(&store, "extended");

    // The rollback was interrupted after it had undone two steps.
    let lines = Journal::open(&store.journal_path()).unwrap().entries().len();
    kernel.inject(Fault::DeadAfterLine(lines + 2));
    assert!(!held.take_back(&mut kernel, Why::Asked).unwrap().is_whole);
    assert_eq!(open_steps(&store), 3);
    assert_kept(&store, "going");
    kernel.inject(Fault::None);
    assert!(held.take_back(&mut kernel, Why::Asked).unwrap().is_whole);
    assert_eq!(store.account().unwrap(), Account::Nothing);
    scene.assert_as_before("after all");
}

/// What is confirmed keeps no room for its end, and another program takes all there is.
#[test]
fn a_full_disk_does_not_keep_what_is_taken_back() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let disk = scene.directory.path().join("disk");
    fs::create_dir(&disk).unwrap();
    shell(&format!("mount -t tmpfs -o size=8m none {}", disk.display()));
    let store = Store::at(&disk);
    // So many that their outcomes do not fit into what is left of the journal's last page.
    let values: Vec<String> = (5000..5120).map(|value| value.to_string()).collect();
    let steps: Vec<_> = values.iter().map(|value| ("net/core/somaxconn", value.as_str())).collect();
    let plan = plan_of(&scene, &steps);
    let held = store.hold().unwrap();
    let mut kernel = Kernel::new().unwrap();
    let (standing, journal) = held.begin(&plan, None, Value::Null).unwrap();
    held.apply(&standing, &plan, journal, &mut kernel).unwrap();
    held.await_confirmation(standing, Some(Duration::from_secs(600))).unwrap();
    held.confirm().unwrap();
    shell(&format!("! head -c 9m /dev/zero >{}/fill 2>/dev/null", disk.display()));
    let taken_back = held.take_back(&mut kernel, Why::Asked).unwrap();
    let failed = taken_back.steps.iter().find(|(_, undone)| !undone.is_final());
    assert_eq!((failed, taken_back.is_whole), (None, true));
    assert_eq!(store.account().unwrap(), Account::Nothing);
    drop(held);
    shell(&format!("umount {}", disk.display()));
    scene.assert_as_before("after all");
}

/// Applies a plan that nobody confirms; it is to be taken back after that time.
fn begin(store: &Store, plan: &Plan, patience: Duration) {
    let held = store.hold().unwrap();
    let (standing, journal) = held.begin(plan, None, Value::Null).unwrap();
    held.apply(&standing, plan, journal, &mut Kernel::new().unwrap()).unwrap();
    held.await_confirmation(standing, Some(patience)).unwrap();
}

/// Whoever can lock the journal, or the lock of the store or the watcher, can keep a tuning from being taken back.
#[test]
fn nobody_else_locks_what_a_transaction_needs() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    fs::set_permissions(scene.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let store = Store::at(scene.directory.path());
    begin(&store, &plan_of(&scene, &[("net/core/somaxconn", "8192")]), Duration::from_secs(600));
    drop(Watcher::of(&store).unwrap());
    assert_eq!(opened_by_nobody(store.path()), ["standing.json"]);
    // As an earlier version left them.
    for file in ["lock", "journal", "watch"] {
        fs::set_permissions(store.path().join(file), fs::Permissions::from_mode(0o644)).unwrap();
    }
    store.hold().unwrap().take_back(&mut Kernel::new().unwrap(), Why::Unconfirmed).unwrap();
    assert_eq!(opened_by_nobody(store.path()), ["last.json"]);
    scene.assert_as_before("after all");
}

/// Something keeps the journal from being opened when the time is over.
#[test]
fn a_watcher_that_fails_once_tries_again() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let store = Store::at(scene.directory.path());
    begin(&store, &plan_of(&scene, &[("net/core/somaxconn", "8192")]), Duration::ZERO);
    let journal = Journal::open(&store.journal_path()).unwrap();
    let watcher = Watcher::of(&store).unwrap();
    // Asked twice before the first attempt, and then after it.
    let asked = AtomicUsize::new(0);
    let stop = || {
        asked.fetch_add(1, Ordering::Relaxed);
        false
    };
    let end = std::thread::scope(|scope| {
        let watching = scope.spawn(|| watcher.watch(&mut Kernel::new().unwrap(), stop));
        while asked.load(Ordering::Relaxed) < 3 && !watching.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(journal);
        watching.join().unwrap()
    });
    assert!(matches!(end, Ok(WatchEnd::TakenBack(Why::Unconfirmed, ref back)) if back.is_whole), "{end:?}");
    scene.assert_as_before("after all");
}

/// The machine was restarted, and the process that then forgot what had stood died before the journal was gone.
#[test]
fn a_journal_that_outlived_a_restart_alone_is_no_obstacle() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let store = Store::at(scene.directory.path());
    let plan = plan_of(&scene, &[("net/core/somaxconn", "8192")]);
    let boot = scene.directory.path().join("boot");
    fs::write(&boot, "00000000-0000-0000-0000-000000000000\n").unwrap();
    let mut journal = Journal::create_with_boot_id(&store.journal_path(), &boot).unwrap();
    apply(&plan, &mut journal, &mut Kernel::new().unwrap()).unwrap();
    drop(journal);
    begin(&store, &plan_of(&scene, &[("net/ipv4/tcp_ecn", "1")]), Duration::from_secs(600));
    assert_eq!(open_steps(&store), 1);
    // One of this run of the kernel is the way back of something that stands.
    let held = store.hold().unwrap();
    fs::remove_file(store.path().join("standing.json")).unwrap();
    let refused = held.begin(&plan, None, Value::Null);
    assert!(matches!(refused, Err(TransactionError::Damaged { .. })), "{refused:?}");
    held.take_back(&mut Kernel::new().unwrap(), Why::Asked).unwrap();
}
