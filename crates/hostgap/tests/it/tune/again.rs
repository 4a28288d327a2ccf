//! `apply --confirmed` while a tuning is active: the unit of `keep` runs it for a link that is created again.

use std::process::{Child, Output};
use std::time::Instant;

use rustix::process::Signal;
use serde_json::json;
use testkit::shell;

use super::Ground;
use super::death::{every_knob, kills, moment};
use crate::sandbox::{check, kill, stdout, until};

impl Ground {
    /// Makes a tuning that is active and confirmed.
    #[track_caller]
    fn stand(&self, arguments: &[&str]) {
        check(&self.apply(arguments), 0, "");
        check(&self.tune("confirm", &[]), 0, "");
        until("the watcher has ended", || self.is_unwatched());
    }

    fn again(&self, arguments: &[&str]) -> Output {
        self.apply(&[&["--confirmed", "--dev", "wire0"], arguments].concat())
    }
}

#[test]
fn a_link_that_comes_anew_gets_it_again_and_gives_it_back() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.dump();
    let set = ["somaxconn=8192", "mtu=1400", "txqueuelen=77", "initcwnd=20", "channels=1"];
    let set: Vec<&str> = set.iter().flat_map(|one| ["--set", one]).collect();
    ground.stand(&set);
    let (stood, index) = (ground.dump(), ground.status()["standing"]["device"]["index"].clone());
    check(&ground.again(&set), 0, "Nothing to change");
    shell(&format!("ip -n {} link del wire0", ground.world.name("home")));
    ground.lay_wire();
    let made = ground.again(&set);
    // The parameter belongs to the namespace, so it is still set.
    check(&made, 0, "initcwnd");
    assert!(stdout(&made).contains("4 settings made again"), "{}", stdout(&made));
    stood.assert_same(&ground.dump(), "on the new link");
    let standing = ground.status()["standing"].clone();
    assert_eq!(standing["phase"], "confirmed");
    assert_ne!(standing["device"]["index"], index);
    assert_eq!(standing["settings"].as_array().unwrap().len(), 5);
    let steps = standing["steps"].as_array().unwrap();
    assert!(steps.iter().all(|step| step["as_set"] == true), "each is reported once: {standing}");
    let back = ground.tune("rollback", &[]);
    check(&back, 0, "");
    // Every step except the namespace's parameter was done twice: on the old link and on the new one.
    let printed = stdout(&back);
    assert!(printed.contains(&format!("{} steps undone", steps.len())), "{printed}");
    assert!(printed.contains(&format!("{} already gone", steps.len() - 1)), "{printed}");
    before.assert_same(&ground.dump(), "after rollback");
}

/// The user edits the profile and the unit restarts.
#[test]
fn another_value_is_reported_once_and_both_go_back() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.dump();
    ground.stand(&["--set", "somaxconn=8192", "--set", "txqueuelen=77"]);
    check(&ground.again(&["--set", "somaxconn=16384"]), 0, "somaxconn  8192 → 16384");
    let standing = ground.status()["standing"].clone();
    let steps = standing["steps"].as_array().unwrap();
    assert!(steps.len() == 2 && steps.iter().all(|step| step["as_set"] == true), "{standing}");
    let values: Vec<_> = standing["settings"].as_array().unwrap().iter().map(|one| &one["value"]).collect();
    assert!(values.len() == 2 && values.contains(&&"16384".into()), "{standing}");
    check(&ground.tune("rollback", &[]), 0, "");
    before.assert_same(&ground.dump(), "after rollback");
}

#[test]
fn what_cannot_be_added_says_why() {
    let Some(ground) = Ground::new() else { return };
    check(&ground.apply(&["--set", "somaxconn=8192"]), 0, "");
    check(&ground.again(&["--set", "txqueuelen=77"]), 1, "is active already, unconfirmed");
    check(&ground.tune("confirm", &[]), 0, "");
    let away = ground.world.name("away");
    let elsewhere = ["--confirmed", "--netns", away.as_str(), "--set", "somaxconn=1"];
    check(&ground.tune("apply", &elsewhere), 2, &format!("not of namespace {away}"));
    check(&ground.tune("rollback", &[]), 0, "");
}

#[test]
fn a_step_that_fails_takes_back_what_was_added_and_no_more() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.dump();
    ground.stand(&["--set", "somaxconn=8192"]);
    let (stood, standing) = (ground.dump(), ground.status()["standing"].clone());
    // A veth can be polled only with a program at its peer. The kernel reports this only when threaded
    // polling is set.
    let more = ["--set", "txqueuelen=77", "--set", "channels=1", "--set", "threaded_napi=1"];
    check(&ground.again(&more), 1, "threaded");
    stood.assert_same(&ground.dump(), "after a failed step");
    until("the watcher has ended", || ground.is_unwatched());
    assert_eq!(ground.status()["standing"], standing);
    let last = ground.status()["last"].clone();
    assert_eq!((last["why"].as_str(), last["addition"].as_bool()), (Some("failed"), Some(true)), "{last}");
    let printed = stdout(&ground.tune("status", &[]));
    assert!(printed.contains("What was being added to it was undone, since a step failed."), "{printed}");
    check(&ground.tune("rollback", &[]), 0, "");
    before.assert_same(&ground.dump(), "after rollback");
}

/// The process that adds is killed at any moment. The watcher that it started takes the addition back.
#[test]
fn a_killed_addition_leaves_what_stood() {
    let Some(ground) = Ground::new() else { return };
    let profile = ground.write("every.toml", &every_knob());
    let before = ground.dump();
    let stand = || ground.stand(&["--set", "somaxconn=1111"]);
    let home = ground.world.name("home");
    let more = ["--confirmed", "--netns", home.as_str(), &profile];
    let add = || -> Child { ground.command("apply", &more).spawn().unwrap() };
    stand();
    let stood = ground.dump();
    let start = Instant::now();
    check(&add().wait_with_output().unwrap(), 0, "");
    let whole = start.elapsed();
    let full = ground.dump();
    assert!(stood.diff(&full).len() >= 50, "{:?}", stood.diff(&full));
    let (mut unbegun, mut died, mut added) = (0, 0, 0);
    for sandbox in 0..kills() {
        check(&ground.tune("rollback", &[]), 0, "");
        before.assert_same(&ground.dump(), &format!("before kill {sandbox}"));
        stand();
        let last = ground.status()["last"].clone();
        let child = add();
        std::thread::sleep(moment(sandbox, whole));
        kill(child.id(), Signal::KILL);
        drop(child.wait_with_output().unwrap());
        until("the watcher has ended", || ground.is_unwatched());
        if ground.phase().as_deref() != Some("confirmed") {
            // Killed after the store's first record, before the watcher's: nothing was done, and the next
            // command notices.
            stood.assert_same(&ground.dump(), &format!("after kill {sandbox}"));
            check(&ground.again(&["--set", "somaxconn=1111"]), 0, "What was being added to tuning");
            assert_eq!(ground.phase().as_deref(), Some("confirmed"));
        }
        let now = ground.dump();
        if ground.status()["last"] != last {
            assert_eq!(ground.status()["last"]["why"], "died");
            stood.assert_same(&now, &format!("after kill {sandbox}"));
            died += 1;
        } else if now == stood {
            unbegun += 1;
        } else {
            full.assert_same(&now, &format!("after kill {sandbox}"));
            added += 1;
        }
    }
    check(&ground.tune("rollback", &[]), 0, "");
    before.assert_same(&ground.dump(), "after all");
    println!("{unbegun} not begun, {died} taken back by the watcher, {added} whole");
}

/// The process that adds and its watcher both died just before the last record was written. The store's phase
/// shows this.
#[test]
fn after_both_processes_died_the_next_command_takes_back_what_was_added() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.dump();
    ground.stand(&["--set", "somaxconn=8192"]);
    let stood = ground.dump();
    check(&ground.again(&["--set", "txqueuelen=77"]), 0, "");
    until("the watcher has ended", || ground.is_unwatched());
    ground.write_standing(|standing| standing["phase"] = json!({ "extending": { "from": 1 } }));
    let printed = stdout(&ground.tune("status", &[]));
    assert!(
        printed.contains("more is being added") && printed.contains("NOT WATCHED while something"),
        "{printed}"
    );
    check(&ground.tune("confirm", &[]), 1, "is active already, confirmed, and more is being added");
    let next = ground.apply(&["--set", "tcp_mtu_probing=1"]);
    let said = check(&next, 1, "is active already, confirmed");
    assert!(
        said.contains("What was being added to tuning") && said.contains("died before all was done"),
        "{said}"
    );
    stood.assert_same(&ground.dump(), "after the next command");
    assert_eq!(ground.phase().as_deref(), Some("confirmed"));
    check(&ground.tune("rollback", &[]), 0, "");
    before.assert_same(&ground.dump(), "after rollback");
}
