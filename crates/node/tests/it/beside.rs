//! Programs of others where a network has its own: at the node's wire.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use serde_json::{Value, json};
use testkit::{shell, skip};

use crate::attachments::can_run;
use crate::scene::{Scene, address, conf, with};

/// STATUS finds nothing to make again, and leaves the network's journal as it is.
#[track_caller]
fn assert_stands(scene: &Scene, conf: &Value, journal: &[u8]) {
    for _ in 0..2 {
        let reply = scene.call_with(&[("CNI_COMMAND", "STATUS")], conf);
        assert!(reply.is_success && reply.left.is_empty(), "{reply:?}");
    }
    assert!(scene.journal_of_network(conf["name"].as_str().unwrap()) == journal, "the journal grows");
}

/// As tools that look at a node's traffic have.
#[test]
fn a_filter_of_others_at_the_wire_is_left_beside_ours() {
    let Some(scene) = Scene::new() else { return };
    if !can_run("ebpf") {
        return;
    }
    let conf = conf("ebpf");
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    let a = scene.add("a", &conf);
    let journal = scene.journal_of_network("pods");
    let node = scene.world.name("node");
    // Without tcx ours is in a filter of that qdisc.
    let _ = shell(&format!(
        "tc -n {node} qdisc add dev wire0 clsact 2>/dev/null || true
         tc -n {node} filter add dev wire0 egress prio 7 protocol all bpf bytecode '1,6 0 0 0'"
    ));
    assert_stands(&scene, &conf, &journal);
    scene.add("b", &conf);
    assert_stands(&scene, &conf, &journal);
    scene.assert_reaches("b", &address(&a, 0));
    scene.succeed("CHECK", "a", &with(conf.clone(), "prevResult", a));
    for name in ["a", "b"] {
        scene.succeed("DEL", name, &conf);
    }
    assert_eq!(scene.remove_unused().removed, ["pods"]);
    assert!(shell(&format!("tc -n {node} filter show dev wire0 egress")).contains("pref 7"));
}

/// Each of the two is the other's neighbour at the wire.
#[test]
fn two_networks_of_programs_leave_each_other_alone() {
    let Some(scene) = Scene::new() else { return };
    if !can_run("ebpf") {
        return;
    }
    let pods = conf("ebpf");
    let ipam = json!({ "type": "hostgap", "ranges": [
        [{ "subnet": "10.244.2.0/24" }], [{ "subnet": "fd00:244:0:2::/64" }],
    ] });
    let other = with(with(conf("ebpf"), "name", json!("other")), "ipam", ipam);
    for name in ["a", "b", "c", "d"] {
        let _ = scene.container(name);
    }
    let a = scene.add("a", &pods);
    if !scene.dump().lines().any(|line| line.contains("tcx")) {
        return skip("two programs at a hook need tcx");
    }
    let c = scene.add("c", &other);
    let journals = ["pods", "other"].map(|network| scene.journal_of_network(network));
    for (conf, journal, more, first) in [(&pods, &journals[0], "b", &a), (&other, &journals[1], "d", &c)] {
        assert_stands(&scene, conf, journal);
        scene.add(more, conf);
        assert_stands(&scene, conf, journal);
        scene.assert_reaches(more, &address(first, 0));
    }
    for (conf, name, result) in [(&pods, "a", a), (&other, "c", c)] {
        scene.succeed("CHECK", name, &with(conf.clone(), "prevResult", result));
    }
}
