//! What takes back dies at each line of its journal: nothing half there counts as standing, and the next ADD
//! makes all of it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::fs;
use std::path::Path;

use node::plugin::{Reply, call};
use plan::Fault;
use serde_json::{Value, json};
use testkit::{Dump, quick_dump};

use crate::scene::{Scene, check_failure, conf, with};

/// A configuration that asks for addresses, so that each ADD makes the same.
fn asking(attach: &str) -> Value {
    with(
        with(conf(attach), "masquerade", json!(true)),
        "runtimeConfig",
        json!({ "ips": ["10.244.1.7/24", "fd00:244:0:1::7/64"] }),
    )
}

/// A call for `a` that stops dead once the journal has this many lines.
fn until_line(scene: &Scene, command: &str, conf: &Value, lines: usize) -> Reply {
    let home = scene.home().with_fault(Fault::DeadAfterLine(lines));
    let netns = scene.netns("a");
    let variable = |name: &str| match name {
        "CNI_COMMAND" => Some(command.to_owned()),
        "CNI_CONTAINERID" => Some("a".to_owned()),
        "CNI_NETNS" => Some(netns.clone()),
        "CNI_IFNAME" => Some("eth0".to_owned()),
        _ => None,
    };
    scene.world.open("node").run(|| call(&home, "hostgap", variable, &conf.to_string())).unwrap()
}

/// Node and container with `a` attached.
fn dumps(scene: &Scene) -> [Dump; 2] {
    ["node", "a"].map(|name| quick_dump(&scene.world.open(name)))
}

#[track_caller]
fn assert_same(before: &[Dump; 2], scene: &Scene, when: &str) {
    for (before, now) in before.iter().zip(dumps(scene)) {
        before.assert_same(&now, when);
    }
}

/// The lines of the only journal of that name in a directory of units.
fn lines(scene: &Scene, kind: &str, name: &str) -> usize {
    let units = fs::read_dir(scene.run_dir().join(kind)).unwrap();
    let journals = units.filter_map(|unit| fs::read_to_string(unit.unwrap().path().join(name)).ok());
    let lines: Vec<usize> = journals.map(|text| text.lines().count()).collect();
    let [lines] = lines.as_slice() else { panic!("{lines:?}") };
    *lines
}

/// Each time at least one more line is written: a step is done with.
fn network(attach: &str) {
    let Some(scene) = Scene::new() else { return };
    let conf = asking(attach);
    let _ = scene.container("a");
    scene.add("a", &conf);
    let (standing, made) = (dumps(&scene), lines(&scene, "cni-networks", "network.journal"));
    let mut deaths = 0;
    loop {
        scene.succeed("DEL", "a", &conf);
        let home = scene.home().with_fault(Fault::DeadAfterLine(made + 1 + deaths));
        let removed = scene.world.open("node").run(|| home.remove_unused_networks()).unwrap();
        let result = scene.add("a", &conf);
        assert_same(&standing, &scene, &format!("after {deaths} lines of what takes the network back"));
        scene.succeed("CHECK", "a", &with(conf.clone(), "prevResult", result));
        if removed.is_ok() {
            break;
        }
        deaths += 1;
    }
    assert!(deaths > 1, "{deaths}");
    scene.succeed("DEL", "a", &conf);
}

fn attachment(attach: &str) {
    let Some(scene) = Scene::new() else { return };
    let conf = asking(attach);
    let _ = scene.container("a");
    let mut result = scene.add("a", &conf);
    let (standing, made) = (dumps(&scene), lines(&scene, "cni-attachments", "pod.journal"));
    let mut deaths = 0;
    while !until_line(&scene, "DEL", &conf, made + 1 + deaths).is_success {
        let checked = with(conf.clone(), "prevResult", result);
        scene.fail("CHECK", "a", &checked, 101, "was left by a process that died");
        if deaths % 2 == 1 {
            // Without a list, GC takes back what is of the dead alone.
            let reply = scene.call_with(&[("CNI_COMMAND", "GC")], &conf);
            assert!(reply.is_success, "{reply:?}");
            assert_eq!(scene.reserved("pods"), 0);
        }
        result = scene.add("a", &conf);
        assert_same(&standing, &scene, &format!("after {deaths} lines of what takes the attachment back"));
        deaths += 1;
    }
    assert!(deaths > 1, "{deaths}");
    check_failure(&scene.call("CHECK", "a", &with(conf, "prevResult", result)), 3, "was not added");
}

/// Where nothing can be taken back since the journal is damaged, all of it stands as before.
#[test]
fn what_cannot_be_taken_back_at_all_stands() {
    let Some(scene) = Scene::new() else { return };
    let conf = asking("ptp");
    let _ = scene.container("a");
    let result = scene.add("a", &conf);
    let standing = dumps(&scene);
    let damaged = |journal: &Path, meanwhile: &dyn Fn()| {
        let sound = fs::read_to_string(journal).unwrap();
        fs::write(journal, sound.replacen("\"intent\"", "\"tnetni\"", 1)).unwrap();
        meanwhile();
        fs::write(journal, sound).unwrap();
    };
    damaged(&scene.journal("a"), &|| scene.fail("DEL", "a", &conf, 100, "pod.journal"));
    scene.succeed("CHECK", "a", &with(conf.clone(), "prevResult", result));
    scene.succeed("DEL", "a", &conf);
    let network = fs::read_dir(scene.run_dir().join("cni-networks")).unwrap();
    let network = network.map(|unit| unit.unwrap().path().join("network.journal")).find(|path| path.exists());
    damaged(&network.unwrap(), &|| {
        let removed = scene.world.open("node").run(|| scene.home().remove_unused_networks()).unwrap();
        assert!(removed.unwrap_err().to_string().contains("network.journal"));
    });
    scene.add("a", &conf);
    assert_same(&standing, &scene, "after what could not be taken back");
    scene.succeed("DEL", "a", &conf);
}

#[test]
fn network_of_ptp() {
    network("ptp");
}

#[test]
fn network_of_bridge() {
    network("bridge");
}

#[test]
fn attachment_of_ptp() {
    attachment("ptp");
}

#[test]
fn attachment_of_bridge() {
    attachment("bridge");
}
