//! Applying, confirming and rolling back.

use rustix::process::Signal;

use super::Ground;
use crate::sandbox::{check, json, kill, stderr, stdout, until};

#[test]
fn what_is_not_confirmed_is_taken_back_by_itself() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.dump();
    let applied =
        ground.apply(&["--confirm-within", "700ms", "--set", "somaxconn=8192", "--set", "initcwnd=20"]);
    check(&applied, 0, "somaxconn  4096 → 8192");
    assert!(stdout(&applied).contains("hostgap tune confirm"), "{}", stdout(&applied));
    let now = ground.sysctl("net/core/somaxconn");
    // The deadline may already have passed.
    if ground.phase().as_deref() == Some("unconfirmed") {
        assert_eq!(now, "8192");
    }
    ground.until_nothing_stands();
    before.assert_same(&ground.dump(), "after the confirmation that did not come");
    let last = ground.status()["last"].clone();
    assert_eq!((last["why"].as_str(), last["steps"].as_u64()), (Some("unconfirmed"), Some(5)), "{last}");
    check(&ground.tune("confirm", &[]), 1, "there is no tuning that could be confirmed");
    until("the watcher has ended", || ground.is_unwatched());
}

#[test]
fn what_is_confirmed_stays_until_somebody_takes_it_back() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.dump();
    check(
        &ground.apply(&["wan", "--set", "mtu=1400", "--set", "channels=2", "--set", "rps_cpus=node"]),
        0,
        "",
    );
    assert_eq!(ground.phase().as_deref(), Some("unconfirmed"));
    check(&ground.apply(&["--set", "somaxconn=1"]), 1, "is active already, unconfirmed");
    check(&ground.tune("confirm", &[]), 0, "");
    assert!(stdout(&ground.tune("confirm", &[])).contains("is confirmed already"));
    until("the watcher has ended", || ground.is_unwatched());
    let standing = ground.status()["standing"].clone();
    assert_eq!((standing["phase"].as_str(), standing["left_s"].as_u64()), (Some("confirmed"), None));
    let steps = standing["steps"].as_array().unwrap();
    assert!(steps.len() > 8 && steps.iter().all(|step| step["as_set"] == true), "{standing}");
    check(&ground.apply(&["--set", "somaxconn=1"]), 1, "is active already, confirmed");
    let back = ground.tune("rollback", &[]);
    check(&back, 0, "");
    assert!(stdout(&back).contains(&format!("{} steps undone.", steps.len())), "{}", stdout(&back));
    before.assert_same(&ground.dump(), "after rollback");
    check(&ground.tune("rollback", &[]), 1, "there is no tuning that could be rolled back");
}

#[test]
fn what_somebody_else_has_changed_is_left_alone_and_named() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.dump();
    check(
        &ground.apply(&["--set", "tcp_mtu_probing=1", "--set", "somaxconn=8192", "--set", "txqueuelen=77"]),
        0,
        "",
    );
    check(&ground.tune("confirm", &[]), 0, "");
    ground.set_sysctl("net/ipv4/tcp_mtu_probing", "2");
    let printed = stdout(&ground.tune("status", &[]));
    assert!(printed.contains("is 2 now: it was changed since"), "{printed}");
    let back = ground.tune("rollback", &[]);
    assert_eq!(back.status.code(), Some(3), "{}", stderr(&back));
    let said = stdout(&back) + &stderr(&back);
    assert!(said.contains("1 left alone because") && said.contains("left alone, changed since: 2"), "{said}");
    assert_eq!(ground.sysctl("net/ipv4/tcp_mtu_probing"), "2");
    let last = stdout(&ground.tune("status", &[]));
    assert!(last.contains("tcp_mtu_probing=1\n    found 2"), "{last}");
    ground.set_sysctl("net/ipv4/tcp_mtu_probing", "0");
    before.assert_same(&ground.dump(), "but for what somebody else had changed");
}

/// A login that closes kills its processes. The watcher must survive that.
#[test]
fn a_watcher_that_is_terminated_takes_it_back_first() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.dump();
    check(&ground.apply(&["--set", "somaxconn=8192"]), 0, "");
    kill(ground.watcher().unwrap(), Signal::TERM);
    ground.until_nothing_stands();
    before.assert_same(&ground.dump(), "after the watcher's end");
    assert_eq!(ground.status()["last"]["why"], "unwatched");
}

#[test]
fn two_at_once_is_an_error_that_says_so() {
    let Some(ground) = Ground::new() else { return };
    std::fs::create_dir_all(ground.state()).unwrap();
    let lock = std::fs::File::create(ground.state().join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let before = ground.dump();
    check(&ground.apply(&["--set", "somaxconn=8192"]), 1, "another `hostgap tune` is at work");
    before.assert_same(&ground.dump(), "after a refusal");
    drop(lock);
    check(&ground.apply(&["--set", "somaxconn=8192"]), 0, "");
    check(&ground.tune("rollback", &[]), 0, "");
}

/// If the kernel refuses a step, the earlier ones are undone.
#[test]
fn a_step_that_fails_takes_back_those_before_it() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.dump();
    // A veth can be polled only with a program at its peer. The kernel reports this only when threaded
    // polling is set.
    let applied =
        ground.apply(&["--set", "txqueuelen=77", "--set", "channels=2", "--set", "threaded_napi=1"]);
    check(&applied, 1, "threaded");
    before.assert_same(&ground.dump(), "after a failed step");
    assert_eq!(ground.status()["standing"], serde_json::Value::Null);
    assert_eq!(ground.status()["last"]["why"], "failed");
    until("the watcher has ended", || ground.is_unwatched());
}

#[test]
fn a_plan_is_applied_as_it_was_made_or_not_at_all() {
    let Some(ground) = Ground::new() else { return };
    let before = ground.dump();
    let set = ["--set", "somaxconn=8192", "--set", "mtu=1400", "--json"];
    let planned = stdout(&ground.look("plan", &set));
    let file = ground.write("plan.json", &planned);
    let plan = ["--plan", file.as_str()];
    ground.set_sysctl("net/core/somaxconn", "1024");
    check(&ground.tune("apply", &plan), 2, "somaxconn was 4096 and is 1024");
    ground.set_sysctl("net/core/somaxconn", "8192");
    check(&ground.tune("apply", &plan), 2, "somaxconn was 4096 and is already set");
    ground.set_sysctl("net/core/somaxconn", "4096");
    check(&ground.tune("apply", &plan), 0, "");
    check(&ground.tune("rollback", &[]), 0, "");
    before.assert_same(&ground.dump(), "after rollback of a plan");
    let home = ground.world.name("home");
    testkit::shell(&format!("ip -n {home} link del wire0; ip -n {home} link add wire0 type bridge"));
    check(&ground.tune("apply", &plan), 2, "the link was wire0 (index");
    testkit::shell(&format!("ip -n {home} link del wire0"));
    check(&ground.tune("apply", &plan), 2, "there is no link wire0");
}

/// A minimum keeps a larger value in a plan too.
#[test]
fn a_plan_keeps_what_is_wanted_at_least() {
    let Some(ground) = Ground::new() else { return };
    ground.set_sysctl("net/ipv4/tcp_wmem", "4096 16384 67108864");
    let before = ground.dump();
    let profile = ground.write(
        "at-least.toml",
        "schema = 1\nabout = \"x\"\n[[set]]\nknob = \"tcp_wmem\"\nvalue = \"4096 65536 33554432\"\nat_least = true\n",
    );
    let plan = ground.write("plan.json", &stdout(&ground.look("plan", &[&profile, "--json"])));
    check(&ground.tune("apply", &["--plan", &plan]), 0, "");
    assert_eq!(ground.sysctl("net/ipv4/tcp_wmem"), "4096\t65536\t67108864");
    let settings = ground.status()["standing"]["settings"].clone();
    assert_eq!(settings[0]["at_least"], true, "{settings}");
    check(&ground.tune("rollback", &[]), 0, "");
    before.assert_same(&ground.dump(), "after rollback");
}

#[test]
fn findings_become_settings() {
    let Some(ground) = Ground::new() else { return };
    let findings = r#"{ "schema": 1, "findings": [
        { "code": "HG031", "title": "listen queues overflow", "proposals": [{ "knob": "somaxconn", "value": 8192 }] },
        { "code": "HG040", "title": "x", "proposals": [{ "knob": "somaxconn", "value": "1" }] }] }"#;
    let file = ground.write("findings.json", findings);
    let plan = json(&ground.look("plan", &["--from-findings", &file, "--json"]));
    let change = &plan["changes"][0];
    assert_eq!(plan["changes"].as_array().unwrap().len(), 1, "{plan}");
    assert_eq!(
        (change["value"].as_str(), change["why"].as_str()),
        (Some("8192"), Some("HG031 listen queues overflow"))
    );
    assert_eq!(
        (change["steps"][0]["old"].as_str(), change["steps"][0]["new"].as_str()),
        (Some("4096"), Some("8192"))
    );
    let broken = ground.write("broken.json", "{}");
    check(&ground.look("plan", &["--from-findings", &broken]), 2, "there is no list \"findings\"");
}
