//! The real `host-local` as judge of the format: both work on one directory.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ipam::{Key, Store};
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use crate::{DUAL, all, key, sets, store, texts};

const PLUGIN: &str = "/usr/lib/cni/host-local";

/// Calls the plugin for a container. Its answer at ADD is the list of addresses, at DEL and CHECK an empty one.
fn call(
    command: &str,
    data_dir: &Path,
    ranges: &str,
    container: &str,
    args: &str,
) -> Result<Vec<String>, String> {
    let ranges: Value = serde_json::from_str(ranges).unwrap();
    let ipam = json!({"type": "host-local", "dataDir": data_dir, "ranges": ranges});
    let conf = json!({"cniVersion": "1.0.0", "name": "n", "type": "x", "ipam": ipam}).to_string();
    let mut process = Command::new(PLUGIN)
        .env_clear()
        .envs([("CNI_COMMAND", command), ("CNI_CONTAINERID", container), ("CNI_ARGS", args)])
        .envs([("CNI_NETNS", "/x"), ("CNI_IFNAME", "eth0"), ("CNI_PATH", "/usr/lib/cni")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    process.stdin.take().unwrap().write_all(conf.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    if !output.status.success() {
        return Err(answer["msg"].as_str().unwrap_or_default().to_owned());
    }
    let ips = answer["ips"].as_array().cloned().unwrap_or_default();
    Ok(ips.iter().map(|ip| ip["address"].as_str().unwrap().to_owned()).collect())
}

fn add(data_dir: &Path, container: &str) -> Result<Vec<String>, String> {
    call("ADD", data_dir, DUAL, container, "")
}

fn del(data_dir: &Path, container: &str) {
    assert_eq!(call("DEL", data_dir, DUAL, container, ""), Ok(Vec::new()));
}

/// Whether the plugin is there; a skip otherwise.
fn is_there() -> bool {
    let is_there = Path::new(PLUGIN).exists();
    if !is_there {
        testkit::skip(&format!("{PLUGIN} is missing; it is in the package containernetworking-plugins"));
    }
    is_there
}

#[test]
fn each_takes_the_next_address_after_the_other_and_releases_what_the_other_reserved() {
    if !is_there() {
        return;
    }
    let (root, store) = store();
    let root = root.path();
    let ours = |name: &str| texts(&store.reserve(&key(name), &sets(DUAL), &[]).unwrap());
    assert_eq!(ours("a"), ["10.0.0.2/29", "fd00::2/64"]);
    assert_eq!(add(root, "b").unwrap(), ["10.0.0.3/29", "fd00::3/64"]);
    assert_eq!(ours("c"), ["10.0.0.4/29", "fd00::4/64"]);
    assert_eq!(all(&store)[..3], ["10.0.0.2 a/eth0", "10.0.0.3 b/eth0", "10.0.0.4 c/eth0"]);
    call("CHECK", root, DUAL, "a", "").unwrap();
    // Neither gives a key a second address.
    assert!(add(root, "a").unwrap_err().contains("duplicate allocation"));
    let error = store.reserve(&key("b"), &sets(DUAL), &[]).unwrap_err();
    assert_eq!(error.to_string(), "reserve an address for b/eth0: it has 10.0.0.3, fd00::3 already");
    del(root, "a");
    assert!(call("CHECK", root, DUAL, "a", "").is_err());
    assert_eq!(store.release(&key("b")).unwrap().len(), 2);
    assert_eq!(all(&store), ["10.0.0.4 c/eth0", "fd00::4 c/eth0"]);
}

#[test]
fn an_asked_for_address_that_the_other_has_is_refused_by_both() {
    if !is_there() {
        return;
    }
    let (root, store) = store();
    let v4 = r#"[[{"subnet":"10.0.0.0/29"}]]"#;
    let wanted = ["10.0.0.5".parse().unwrap()];
    store.reserve(&key("a"), &sets(v4), &wanted).unwrap();
    let error = call("ADD", root.path(), v4, "b", "IP=10.0.0.5").unwrap_err();
    assert!(error.contains("10.0.0.5 is not available"), "{error}");
    del(root.path(), "a");
    assert_eq!(call("ADD", root.path(), v4, "b", "IP=10.0.0.5").unwrap(), ["10.0.0.5/29"]);
    let error = store.reserve(&key("a"), &sets(v4), &wanted).unwrap_err();
    assert_eq!(error.to_string(), "reserve 10.0.0.5 for a/eth0: b/eth0 has it");
}

#[test]
fn ipv6_addresses_have_one_spelling() {
    if !is_there() {
        return;
    }
    let (root, store) = store();
    // Their addresses have runs of zeros of every kind, but not at the beginning: host-local 1.1.1 loses those when it
    // counts, and fails.
    let subnets = [
        "fd00:0:0:1::/126",
        "fd00:1:0:1:0:1::/126",
        "fd00:a:0:b:c:d:e:10/126",
        "fd00::1:0:0:4/126",
        "fd00::a:0:0:f0/126",
    ];
    for (index, subnet) in subnets.iter().enumerate() {
        let ranges = format!(r#"[[{{"subnet":"{subnet}"}}]]"#);
        let theirs = call("ADD", root.path(), &ranges, &format!("theirs{index}"), "").unwrap();
        let ours = texts(&store.reserve(&key(&format!("ours{index}")), &sets(&ranges), &[]).unwrap());
        assert_ne!(ours, theirs);
        assert_eq!(store.left(&sets(&ranges)).unwrap(), [0]);
        assert!(
            call("ADD", root.path(), &ranges, "more", "").unwrap_err().contains("no IP addresses available")
        );
    }
}

#[test]
fn files_of_ours_disturb_nothing() {
    if !is_there() {
        return;
    }
    let (root, _) = store();
    let root = root.path();
    let store = Store::open(root, "n").unwrap();
    store.reserve(&key("a"), &sets(DUAL), &[]).unwrap();
    store.release(&key("a")).unwrap();
    let notes = fs::read(store.path().join(".hostgap-released")).unwrap();
    assert!(String::from_utf8(notes.clone()).unwrap().contains("10.0.0.2"));
    // As a process leaves it that was killed while it wrote.
    fs::write(store.path().join(".hostgap-new"), "a\r\neth0").unwrap();
    assert_eq!(add(root, "a").unwrap(), ["10.0.0.3/29", "fd00::3/64"]);
    fs::write(store.path().join(".hostgap-new"), "a\r\neth0").unwrap();
    del(root, "a");
    assert_eq!(fs::read(store.path().join(".hostgap-released")).unwrap(), notes);
    assert_eq!(all(&store), [""; 0]);
    // What rests here is given by host-local, which does not know; we see that it is reserved.
    fs::remove_file(store.path().join("last_reserved_ip.0")).unwrap();
    assert_eq!(add(root, "b").unwrap()[0], "10.0.0.2/29");
    assert_eq!(texts(&store.reserve(&key("c"), &sets(DUAL), &[]).unwrap())[0], "10.0.0.3/29");
}

#[test]
fn files_of_old_versions_are_released_by_both() {
    if !is_there() {
        return;
    }
    let (root, store) = store();
    fs::create_dir(store.path()).unwrap();
    let release_theirs = || del(root.path(), "a");
    let release_ours = || drop(store.release(&key("a")).unwrap());
    let releases: [&dyn Fn(); 2] = [&release_theirs, &release_ours];
    for release in releases {
        fs::write(store.path().join("10.0.0.2"), "a").unwrap();
        assert!(add(root.path(), "a").is_err());
        assert!(store.reserve(&Key::new("a", "eth7").unwrap(), &sets(DUAL), &[]).is_err());
        release();
        assert_eq!(all(&store), [""; 0]);
    }
}

/// Waits until a process waits for the lock of a file: /proc/locks has a line for it, with an arrow.
fn await_waiter(file: &fs::File) {
    let of_file = format!(":{} ", file.metadata().unwrap().ino());
    let is_there = |locks: &str| locks.lines().any(|line| line.contains(" -> ") && line.contains(&of_file));
    let begin = Instant::now();
    while !is_there(&fs::read_to_string("/proc/locks").unwrap()) {
        assert!(begin.elapsed() < Duration::from_secs(60), "nobody waits for the lock");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn host_local_waits_for_our_lock() {
    if !is_there() {
        return;
    }
    let (root, store) = store();
    store.reserve(&key("a"), &sets(DUAL), &[]).unwrap();
    let lock = fs::File::open(store.path().join("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    thread::scope(|scope| {
        let theirs = scope.spawn(|| add(root.path(), "b").unwrap());
        await_waiter(&lock);
        assert!(!theirs.is_finished());
        flock(&lock, FlockOperation::Unlock).unwrap();
        assert_eq!(theirs.join().unwrap(), ["10.0.0.3/29", "fd00::3/64"]);
    });
}

#[test]
fn both_at_once_give_distinct_addresses() {
    if !is_there() {
        return;
    }
    const RANGES: &str = r#"[[{"subnet":"10.0.0.0/25"}],[{"subnet":"fd00::/64"}]]"#;
    let (root, store) = store();
    let root = root.path();
    thread::scope(|scope| {
        for worker in 0..2 {
            scope.spawn(move || {
                for index in 0..15 {
                    let container = format!("theirs-{worker}-{index}");
                    call("ADD", root, RANGES, &container, "").unwrap();
                    if index % 3 == 0 {
                        call("DEL", root, RANGES, &container, "").unwrap();
                    }
                }
            });
            scope.spawn(move || {
                let store = Store::open(root, "n").unwrap();
                for index in 0..15 {
                    let key = key(&format!("ours-{worker}-{index}"));
                    store.reserve(&key, &sets(RANGES), &[]).unwrap();
                    if index % 3 == 0 {
                        store.release(&key).unwrap();
                    }
                }
            });
        }
    });
    let all = store.all().unwrap();
    let holders: BTreeSet<String> = all.iter().map(|(_, holder)| holder.to_string()).collect();
    assert_eq!((all.len(), holders.len()), (80, 40));
}
