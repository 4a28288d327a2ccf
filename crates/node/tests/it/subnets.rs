//! A network whose node gets another prefix while containers stand.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use serde_json::{Value, json};

use crate::attachments::can_run;
use crate::scene::{Scene, address, conf, with};

/// The configuration that an agent writes for the prefix of a number.
fn of_prefix(attach: &str, number: u8) -> Value {
    let mut conf = with(conf(attach), "prefixes", json!(["10.244.0.0/16", "fd00:244::/48"]));
    conf["ipam"]["ranges"] = json!([
        [{ "subnet": format!("10.244.{number}.0/24") }], [{ "subnet": format!("fd00:244:0:{number}::/64") }],
    ]);
    conf
}

/// Containers of both prefixes reach each other, and all goes with them.
#[track_caller]
fn side_by_side(attach: &str) {
    if !can_run(attach) {
        return;
    }
    let Some(scene) = Scene::new() else { return };
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    let before = scene.dump();
    let [old, new] = [1, 7].map(|number| of_prefix(attach, number));
    let a = scene.add("a", &old);
    let b = scene.add("b", &new);
    for (index, begins) in ["10.244.7.", "fd00:244:0:7:"].into_iter().enumerate() {
        assert!(address(&b, index).starts_with(begins), "{b}");
        scene.assert_reaches("a", &address(&b, index));
        scene.assert_reaches("b", &address(&a, index));
    }
    for (name, result) in [("a", a), ("b", b)] {
        scene.succeed("CHECK", name, &with(new.clone(), "prevResult", result));
        scene.succeed("DEL", name, &new);
    }
    assert_eq!(scene.remove_unused().removed, ["pods"]);
    before.assert_same(&scene.dump(), "after both are gone");
}

#[test]
fn of_routed_links_stand_side_by_side() {
    side_by_side("ptp");
}

#[test]
fn of_macvlan_stand_side_by_side() {
    side_by_side("macvlan");
}

#[test]
fn of_ipvlan_stand_side_by_side() {
    side_by_side("ipvlan-l3");
}

/// New containers wait for those of the old prefix, and need nothing else.
#[track_caller]
fn take_turns(old: &Value, new: &Value) {
    if !can_run(old["attach"].as_str().unwrap()) {
        return;
    }
    let Some(scene) = Scene::new() else { return };
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    scene.add("a", old);
    let says = "network pods stands on this node for 10.244.1.0/24 and fd00:244:0:1::/64, and 1 attachments rest on it; \
                it is made anew for 10.244.7.0/24 and fd00:244:0:7::/64 when nothing rests on it any more";
    scene.fail("ADD", "b", new, 7, says);
    scene.succeed("DEL", "a", new);
    let b = scene.add("b", new);
    assert!(address(&b, 0).starts_with("10.244.7."), "{b}");
    for index in 0..2 {
        scene.assert_reaches("node", &address(&b, index));
    }
}

#[test]
fn of_a_bridge_take_turns() {
    take_turns(&of_prefix("bridge", 1), &of_prefix("bridge", 7));
}

#[test]
fn of_programs_take_turns() {
    take_turns(&of_prefix("ebpf", 1), &of_prefix("ebpf", 7));
}

#[test]
fn that_are_masqueraded_take_turns() {
    let masqueraded = |number| with(of_prefix("ptp", number), "masquerade", json!(true));
    take_turns(&masqueraded(1), &masqueraded(7));
}
