//! SIGKILL at any moment.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tune::{Lives, TABLE};

use super::Ground;
use crate::sandbox::{check, kill, stdout, until};

/// How many times it is killed. `HOSTGAP_KILLS` sets another number.
pub(super) fn kills() -> u32 {
    std::env::var("HOSTGAP_KILLS").ok().map_or(8, |text| text.parse().unwrap())
}

/// Every knob of the table with its example. `apply` leaves out what this machine or a veth lacks.
pub(super) fn every_knob() -> String {
    let mut text = String::from("schema = 1\nabout = \"every knob\"\n");
    for knob in TABLE.iter().flat_map(|family| family.knobs) {
        // Only when it is written does the kernel report that a veth is not polled. A card that has virtual functions
        // has other queues and interrupts, for which the rest of the examples are not.
        let is_apart = ["threaded_napi", "virtual_functions"].contains(&knob.id);
        if matches!(knob.lives, Lives::Nowhere { .. }) || is_apart {
            continue;
        }
        text += &format!("[[set]]\nknob = \"{}\"\nvalue = \"{}\"\n", knob.id, knob.example);
    }
    text
}

/// A moment within `whole`, different for each turn. Most moments are late, because the first part is spent
/// on the plan.
pub(super) fn moment(sandbox: u32, whole: Duration) -> Duration {
    // The golden ratio spreads any number of points evenly.
    let share = (f64::from(sandbox) * 0.618_033_988_75).fract();
    whole.mul_f64(0.1 + 0.9 * share.sqrt())
}

/// The process that applies is killed at any moment. Then the watcher takes back what was done, or, if
/// everything was done, the tuning waits for confirmation.
#[test]
fn a_killed_apply_leaves_nothing() {
    let Some(ground) = Ground::new() else { return };
    let profile = ground.write("every.toml", &every_knob());
    let before = ground.dump();
    let home = ground.world.name("home");
    let apply = || ground.command("apply", &["--netns", home.as_str(), &profile]).spawn().unwrap();
    let start = Instant::now();
    check(&apply().wait_with_output().unwrap(), 0, "");
    let whole = start.elapsed();
    let steps = ground.status()["standing"]["steps"].as_array().unwrap().len();
    assert!(steps >= 50, "only {steps} steps");
    assert!(!before.diff(&ground.dump()).is_empty());
    check(&ground.tune("rollback", &[]), 0, "");
    before.assert_same(&ground.dump(), "after rollback of every knob");
    let (mut unbegun, mut died, mut stood) = (0, 0, 0);
    for sandbox in 0..kills() {
        let last = ground.status()["last"].clone();
        let child = apply();
        std::thread::sleep(moment(sandbox, whole));
        kill(child.id(), Signal::KILL);
        drop(child.wait_with_output().unwrap());
        // The watcher settles an interrupted tuning. A complete one stays active.
        until("it is settled", || {
            ground.watcher().is_none() || ground.phase().as_deref() == Some("unconfirmed")
        });
        match ground.phase().as_deref() {
            None if ground.status()["last"] == last => unbegun += 1,
            None => {
                assert_eq!(ground.status()["last"]["why"], "died");
                died += 1;
            }
            // Either complete, or killed after the store's first record and before the watcher's. Then
            // nothing was done, and the next command notices.
            Some(phase) => {
                stood += u32::from(phase == "unconfirmed");
                check(&ground.tune("rollback", &[]), 0, "");
            }
        }
        before.assert_same(&ground.dump(), &format!("after kill {sandbox}"));
    }
    let early = kills() - unbegun - died - stood;
    println!(
        "{steps} steps: {unbegun} not begun, {early} before the watcher, {died} taken back by it, {stood} whole"
    );
}

/// Both are killed, so nothing takes the tuning back by itself. Every command reports that, and can take it
/// back.
#[test]
fn with_the_watcher_dead_too_the_next_command_takes_it_back() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.dump();
    check(&ground.apply(&["--set", "somaxconn=8192"]), 0, "");
    kill(ground.watcher().unwrap(), Signal::KILL);
    until("the watcher is dead", || ground.is_unwatched());
    let printed = stdout(&ground.tune("status", &[]));
    assert!(printed.contains("NOT WATCHED: its watcher has died"), "{printed}");
    // The deadline has passed.
    ground.write_standing(|standing| standing["phase"]["unconfirmed"]["deadline_ns"] = 1.into());
    check(
        &ground.apply(&["--set", "tcp_mtu_probing=1"]),
        0,
        "was undone, since it was not confirmed in time",
    );
    assert_eq!(ground.sysctl("net/core/somaxconn"), "4096");
    check(&ground.tune("rollback", &[]), 0, "");
    before.assert_same(&ground.dump(), "after all");
}

/// The settings of a namespace disappear with it.
#[test]
fn a_namespace_that_goes_takes_its_settings_along() {
    let Some(ground) = Ground::new() else { return };
    check(&ground.apply(&["--set", "somaxconn=8192", "--set", "mtu=1400"]), 0, "");
    check(&ground.tune("confirm", &[]), 0, "");
    testkit::shell(&format!("ip netns del {}", ground.world.name("home")));
    let back = ground.tune("rollback", &[]);
    check(&back, 0, "");
    assert!(stdout(&back).contains("2 already gone"), "{}", stdout(&back));
}
