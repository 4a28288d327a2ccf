//! Cards of our virtual machine. `tune` fixes what `doctor` finds there, and rolls it back, even after a
//! kill.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use linux::ethtool::{Ethtool, FlowType, NicParameter};
use linux::interrupts::{Interrupts, queue_of};
use linux::procfs::Procfs;
use linux::sysfs::NetSysfs;
use linux::{CpuSet, IfName, Netlink, Netns};
use rustix::process::Signal;
use serde_json::Value;
use testkit::{Cards, card, dump, set_card_up};

use super::death::{every_knob, kills, moment};
use super::found::of;
use super::machine::tune;
use crate::sandbox::{HOSTGAP, check, json, kill, stdout, until};

/// Runs `hostgap doctor` and returns its findings.
fn findings() -> Value {
    json(&Command::new(HOSTGAP).args(["doctor", "--for", "3s", "--json"]).output().unwrap())
}

/// Runs a command that changes nothing and stores nothing.
fn looked(verb: &str, arguments: &[&str]) -> Output {
    Command::new(HOSTGAP).args(["tune", verb]).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Applies the proposals for a card and confirms them.
fn heed(state: &Path, card: &IfName, findings: &Value) {
    let file = state.join("findings.json");
    std::fs::create_dir_all(state).unwrap();
    std::fs::write(&file, findings.to_string()).unwrap();
    let applied = tune(state, "apply", &["--from-findings", file.to_str().unwrap()]);
    check(&applied, 0, &format!("link {card}"));
    check(&tune(state, "confirm", &[]), 0, "");
}

#[track_caller]
fn check_foremost(findings: &Value, code: &str) {
    let first = &findings["findings"][0];
    assert_eq!((&first["code"], &first["severity"]), (&code.into(), &"warning".into()), "{findings}");
}

/// The CPUs of the interrupts of a card's queues.
fn placed(card: &IfName) -> Vec<(u32, CpuSet)> {
    let own = NetSysfs::open(&Netns::current().unwrap()).unwrap().interrupts(card).unwrap();
    let all = Interrupts::kernel().list().unwrap().into_iter();
    all.filter(|one| own.contains(&one.number) && queue_of(&one.name).is_some())
        .map(|one| (one.number, Interrupts::kernel().read_cpus(one.number).unwrap().unwrap()))
        .collect()
}

fn place(interrupts: &[(u32, CpuSet)]) {
    interrupts.iter().for_each(|(number, cpus)| Interrupts::kernel().write_cpus(*number, cpus).unwrap());
}

/// All interrupts of a card on one CPU are found, spread over all CPUs, and put back by the rollback.
#[test]
fn interrupts_on_one_cpu_are_spread_and_come_back() {
    let Some(cards) = Cards::new("virtio_net", "vmxnet3") else { return };
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let at_first = placed(&cards.home);
    let one: CpuSet = "0".parse().unwrap();
    let crowded: Vec<_> = at_first.iter().map(|(number, _)| (*number, one.clone())).collect();
    place(&crowded);
    // An interrupt moves only when it next fires, and it does not fire while the queue is never empty. That all queues
    // of the card are empty, nothing says: a CPU needs a moment for what waits in them.
    drop(cards.flood());
    std::thread::sleep(Duration::from_millis(500));
    let flood = cards.flood();
    let before = findings();
    check_foremost(&before, "HG010");
    heed(&state, &cards.home, &before);
    drop(flood);
    std::thread::sleep(Duration::from_millis(500));
    let flood = cards.flood();
    let spread = placed(&cards.home);
    for cpu in 0..2 {
        assert!(spread.iter().any(|(_, cpus)| *cpus == CpuSet::from_iter([cpu])), "{spread:?}");
    }
    let after = findings();
    assert!(of(&after, "HG010").is_none(), "{after}");
    drop(flood);
    check(&tune(&state, "rollback", &[]), 0, "");
    assert_eq!(placed(&cards.home), crowded);
    place(&at_first);
}

/// A ring too small for bursts is found, enlarged until they fit, and restored to its old size by the
/// rollback.
#[test]
fn a_tiny_ring_is_made_larger_and_comes_back() {
    let Some(cards) = Cards::new("vmxnet3", "virtio_net") else { return };
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let ethtool = Ethtool::open_in(&Netns::current().unwrap()).unwrap();
    let ring = || ethtool.read(&cards.home, NicParameter::RingRx).unwrap().unwrap().now;
    let at_first = ring();
    ethtool.write(&cards.home, NicParameter::RingRx, 32).unwrap();
    let bursts = || {
        cards.await_way();
        let mut doctor = Command::new(HOSTGAP);
        doctor.args(["doctor", "--for", "3s", "--json"]).stdout(Stdio::piped());
        let doctor = doctor.spawn().unwrap();
        let doctor = std::thread::spawn(|| doctor.wait_with_output().unwrap());
        while !doctor.is_finished() {
            cards.burst(50);
            std::thread::sleep(Duration::from_millis(50));
        }
        json(&doctor.join().unwrap())
    };
    let before = bursts();
    check_foremost(&before, "HG030");
    heed(&state, &cards.home, &before);
    assert_eq!(ring(), 64);
    let after = bursts();
    assert!(of(&after, "HG030").is_none(), "{after}");
    check(&tune(&state, "rollback", &[]), 0, "");
    assert_eq!(ring(), 32);
    ethtool.write(&cards.home, NicParameter::RingRx, at_first).unwrap();
}

/// The queues of a card that interrupted while datagrams of 16 flows arrived. Repeats until there are
/// `least`.
fn queues_that_received(cards: &Cards, least: usize) -> Vec<u16> {
    let own = NetSysfs::open(&Netns::current().unwrap()).unwrap().interrupts(&cards.home).unwrap();
    let counts = || -> Vec<(u16, u64)> {
        let mut all = Procfs::kernel().interrupts().unwrap();
        all.retain(|one| own.contains(&one.number) && one.name.contains("input"));
        let counted = all.into_iter().map(|one| (queue_of(&one.name).unwrap(), one.counts.values().sum()));
        counted.collect()
    };
    let first = counts();
    let changed = || -> Vec<u16> {
        let pairs = first.iter().zip(counts()).filter(|(before, after)| **before != *after);
        pairs.map(|(_, (queue, _))| queue).collect()
    };
    // A late interrupt of the first flood has arrived by the time the third one is seen.
    for _ in 0..3 {
        let before = counts();
        until("datagrams interrupt", || {
            drop(cards.flood());
            counts() != before && changed().len() >= least
        });
    }
    changed()
}

/// With a key of zeros every flow hashes to zero and arrives at the first queue. So the card uses the given
/// key.
#[test]
fn a_key_is_previewed_used_and_taken_back() {
    let Some(cards) = Cards::new("virtio_net", "vmxnet3") else { return };
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let ethtool = Ethtool::open_in(&Netns::current().unwrap()).unwrap();
    let key = || ethtool.read_hash_key(&cards.home).unwrap().unwrap();
    let udp4 = || ethtool.read_hash_fields(&cards.home, FlowType::Udp4).unwrap().unwrap().to_string();
    let dev = ["--dev", cards.home.as_str()];
    let asked = |key: &str| [format!("--set=rss_hash_key={key}"), "--set=rss_hash_fields=udp4 sd".to_owned()];
    let look = |verb: &str, key: &str| {
        looked(verb, &[dev.as_slice(), &asked(key).each_ref().map(String::as_str)].concat())
    };
    let (old, old_fields) = (key(), udp4());
    assert_eq!(queues_that_received(&cards, 2), [0, 1], "by the key of the driver");
    let zeros = vec!["00"; old.len()].join(":");
    let planned = stdout(&look("plan", &zeros));
    assert!(planned.contains(&format!("rss_hash_key  {old} → {zeros}")), "{planned}");
    assert!(planned.contains("rss_hash_fields  udp4 sdfn → udp4 sd"), "{planned}");
    let symmetric = stdout(&look("plan", "symmetric"));
    assert!(symmetric.contains(&format!("rss_hash_key  {old} → symmetric")), "{symmetric}");
    let commands = stdout(&look("show-commands", &zeros));
    assert!(commands.contains(&format!("ethtool -X {} hkey {zeros}\n", cards.home)), "{commands}");
    assert!(commands.contains(&format!("ethtool -N {} rx-flow-hash udp4 sd\n", cards.home)), "{commands}");
    let short = format!("the hash key of {} has {} bytes, the requested key has 2", cards.home, old.len());
    check(&look("plan", "00:00"), 2, &short);
    assert_eq!((key(), udp4()), (old.clone(), old_fields.clone()), "`plan` changed something");
    let applied =
        tune(&state, "apply", &[dev.as_slice(), &asked(&zeros).each_ref().map(String::as_str)].concat());
    check(&applied, 0, "");
    assert_eq!((key().to_string(), udp4()), (zeros, "sd".to_owned()));
    assert_eq!(queues_that_received(&cards, 1), [0], "by a key of zeros");
    let status = json(&tune(&state, "status", &["--json"]));
    let steps = status["standing"]["steps"].as_array().unwrap();
    assert!(steps.len() == 2 && steps.iter().all(|step| step["as_set"] == true), "{status}");
    check(&tune(&state, "rollback", &[]), 0, "");
    assert_eq!((key(), udp4()), (old, old_fields));
    assert_eq!(queues_that_received(&cards, 2), [0, 1], "by the old key again");
}

/// Every knob, including those of the whole machine and of Intel's card. The process that sets them is killed
/// at any moment.
#[test]
fn a_killed_apply_leaves_nothing_at_a_card() {
    let Some(card) = card("igb") else { return };
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    set_card_up(&card);
    let no_key = looked("plan", &["--dev", card.as_str(), "--set", "rss_hash_key=symmetric"]);
    check(&no_key, 2, &format!("{card} has no hash key"));
    testkit::shell("modprobe tcp_bbr; modprobe tcp_cubic");
    let profile = directory.path().join("every.toml");
    std::fs::write(&profile, every_knob()).unwrap();
    // The examples in the table would not do here: there are already as many queues as the example says, igb
    // does not accept 8 µs, a veth is not polled, and a profile leaves the disciplines of several queues
    // alone.
    let sets = ["channels=1", "rss_indirection=1", "coalesce_rx_usecs=50", "threaded_napi=1", "qdisc=pfifo"];
    let asked: Vec<&str> =
        sets.iter().flat_map(|set| ["--set", set]).chain([profile.to_str().unwrap()]).collect();
    let netns = Netns::current().unwrap();
    let before = dump(&netns);
    let apply = || {
        let mut command = Command::new(HOSTGAP);
        command.args(["tune", "apply", "--state"]).arg(&state).args(["--dev", card.as_str()]);
        command.args(&asked);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let status = || json(&tune(&state, "status", &["--json"]));
    let start = Instant::now();
    check(&apply().wait_with_output().unwrap(), 0, "");
    let whole = start.elapsed();
    let steps = status()["standing"]["steps"].as_array().unwrap().len();
    assert!(steps >= 60, "{}", status());
    check(&tune(&state, "rollback", &[]), 0, "");
    before.assert_same(&dump(&netns), "after rollback");
    for sandbox in 0..kills() {
        let child = apply();
        std::thread::sleep(moment(sandbox, whole));
        kill(child.id(), Signal::KILL);
        drop(child.wait_with_output().unwrap());
        let unwatched = || super::processes_of(&state).is_empty();
        until("it is settled", || unwatched() || status()["standing"]["phase"] == "unconfirmed");
        if !status()["standing"].is_null() {
            check(&tune(&state, "rollback", &[]), 0, "");
        }
        before.assert_same(&dump(&netns), &format!("after kill {sandbox}"));
    }
    println!("{steps} steps, {} kills", kills());
    let netlink = Netlink::open().unwrap();
    netlink.link_set_up(netlink.index_of(&card).unwrap(), false).unwrap();
}
