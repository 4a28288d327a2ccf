//! Many threads and processes on one store.

use std::collections::BTreeSet;
use std::env;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use ipam::{RangeSets, Store};

use crate::{key, names, sets, store};

const RANGES: &str = r#"[[{"subnet":"10.0.0.0/24"}],[{"subnet":"fd00::/64"}]]"#;
/// The environment variable with the directory of the store, for a process of this test.
const DATA_DIR: &str = "IPAM_TEST_DATA_DIR";
/// The environment variable with the prefix of its containers' names.
const NAME: &str = "IPAM_TEST_NAME";
const CONTAINERS: usize = 20;

/// Reserves for containers of a name, and releases every second one on the way.
fn work(data_dir: &Path, name: &str, sets: &RangeSets) {
    let store = Store::open(data_dir, "n").unwrap();
    for index in 0..CONTAINERS {
        let key = key(&format!("{name}-{index}"));
        let reserved = store.reserve(&key, sets, &[]).unwrap();
        let addresses: Vec<IpAddr> = reserved.iter().map(|reserved| reserved.address.addr()).collect();
        assert_eq!(store.reserved(&key).unwrap(), addresses);
        if index % 2 == 1 {
            assert_eq!(store.release(&key).unwrap(), addresses);
        }
    }
}

fn process(data_dir: &Path, name: &str) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "together::of_a_process", "--ignored"]).env(DATA_DIR, data_dir).env(NAME, name);
    command.stdout(Stdio::null()).spawn().unwrap()
}

#[test]
#[ignore = "this is the child process of the tests below"]
fn of_a_process() {
    if let Some(data_dir) = env::var_os(DATA_DIR) {
        work(data_dir.as_ref(), &env::var(NAME).unwrap(), &sets(RANGES));
    }
}

#[test]
fn threads_and_processes_get_distinct_addresses() {
    let (root, store) = store();
    let ranges = sets(RANGES);
    let processes: Vec<Child> = (0..4).map(|index| process(root.path(), &format!("p{index}"))).collect();
    thread::scope(|scope| {
        for index in 0..4 {
            let (root, ranges) = (root.path(), &ranges);
            scope.spawn(move || work(root, &format!("t{index}"), ranges));
        }
    });
    for mut process in processes {
        assert!(process.wait().unwrap().success());
    }
    let all = store.all().unwrap();
    let holders: BTreeSet<String> = all.iter().map(|(_, holder)| holder.to_string()).collect();
    assert_eq!((all.len(), holders.len()), (8 * CONTAINERS, 8 * CONTAINERS / 2));
    assert_eq!(store.left(&ranges).unwrap()[0], (253 - 8 * CONTAINERS / 2) as u128);
}

#[test]
fn killed_processes_leave_whole_files_and_nothing_that_disturbs() {
    let (root, store) = store();
    let ranges = sets(RANGES);
    for round in 0..10 {
        let mut process = process(root.path(), &format!("r{round}"));
        // A process is killed at whatever it does then; each round a bit later.
        thread::sleep(std::time::Duration::from_millis(5 + 3 * round));
        process.kill().unwrap();
        process.wait().unwrap();
        let all = store.all().unwrap();
        assert!(all.iter().all(|(_, holder)| holder.ifname.as_deref() == Some("eth0")), "{all:?}");
        store.reserve(&key("c"), &ranges, &[]).unwrap();
        store.release(&key("c")).unwrap();
        assert!(!names(store.path()).contains(&".hostgap-new".to_owned()));
    }
    store.keep_only(|_| false).unwrap();
    assert_eq!(store.left(&ranges).unwrap(), [253, u128::from(u64::MAX) - 1]);
}
