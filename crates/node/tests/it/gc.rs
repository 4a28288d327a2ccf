//! What GC removes, and what it leaves.

use std::fs;

use node::plugin::Reply;
use serde_json::{Value, json};
use testkit::shell;

use crate::limits::bandwidth;
use crate::scene::{Scene, check_failure, conf, with};

#[test]
fn gc_keeps_what_is_valid_and_nothing_else() {
    let Some(scene) = Scene::new() else { return };
    let conf = conf("bridge");
    for name in ["a", "b", "c"] {
        let _ = scene.container(name);
        scene.add(name, &conf);
    }
    linux::netns::delete(&scene.world.name("c")).unwrap();
    let gc = [("CNI_COMMAND", "GC")];
    let wrong = with(conf.clone(), "cni.dev/valid-attachments", json!("b"));
    check_failure(&scene.call_with(&gc, &wrong), 7, "cni.dev/valid-attachments");
    // `cnitool gc` gives no list. Nothing that stands is known to be invalid.
    assert!(scene.call_with(&gc, &conf).is_success);
    assert_eq!(scene.reserved("pods"), 6);
    scene.assert_reaches("a", "10.244.1.1");
    let valid = json!([{ "containerID": "b", "ifname": "eth0" }]);
    let reply = scene.call_with(&gc, &with(conf.clone(), "cni.dev/valid-attachments", valid));
    assert!(reply.is_success && reply.printed.is_none(), "{reply:?}");
    assert_eq!(scene.reserved("pods"), 2);
    let links = shell(&format!("ip -n {} -br link", scene.world.name("node")));
    assert_eq!(links.matches("hgp").count(), 1, "{links}");
    scene.assert_reaches("b", "10.244.1.1");
}

/// What cannot be looked at may be there.
#[test]
fn gc_keeps_what_it_cannot_see() {
    let Some(scene) = Scene::new() else { return };
    let _ = scene.container("a");
    let result = scene.add("a", &conf("ptp"));
    let guard = scene.run_dir().join("cni-attachments/claim.lock");
    let aside = guard.with_extension("aside");
    fs::rename(&guard, &aside).unwrap();
    std::os::unix::fs::symlink("claim.lock", &guard).unwrap();
    check_failure(&gc(&scene, &conf("ptp"), &[]), 100, "claim.lock");
    fs::rename(&aside, &guard).unwrap();
    assert_eq!(scene.reserved("pods"), 2);
    scene.succeed("CHECK", "a", &with(conf("ptp"), "prevResult", result));
    let numbers = fs::read_dir(scene.run_dir().join("cni-numbers/attachments")).unwrap();
    assert_eq!(numbers.count(), 1);
    assert!(gc(&scene, &conf("ptp"), &[]).is_success);
    assert_eq!(scene.reserved("pods"), 0);
}

/// GC for `eth0` of these containers.
fn gc(scene: &Scene, conf: &Value, valid: &[&str]) -> Reply {
    let valid = valid.iter().map(|name| json!({ "containerID": name, "ifname": "eth0" }));
    let conf = with(conf.clone(), "cni.dev/valid-attachments", valid.collect());
    scene.call_with(&[("CNI_COMMAND", "GC")], &conf)
}

/// A container that cannot be taken back keeps none of the others from it, and what is listed stays as it was.
#[test]
fn gc_goes_on_where_one_cannot_be_taken_back() {
    let Some(scene) = Scene::new() else { return };
    // Published and limited, so that there are elements of maps and buckets to go.
    let asks = |port: u16| {
        let ports = json!([{ "hostPort": port, "containerPort": 80, "protocol": "tcp" }]);
        let asked = json!({ "portMappings": ports, "bandwidth": bandwidth(&["ingress", "egress"]) });
        with(conf("ptp"), "runtimeConfig", asked)
    };
    let add = |name: &str, port: u16| {
        let _ = scene.container(name);
        scene.add(name, &asks(port))
    };
    let result = add("b-listed", 8082);
    let listed = scene.dump();
    // Units are taken in the order of their names: one comes before the damaged one, and one behind it.
    add("c-damaged", 8083);
    let listed_and_damaged = scene.dump();
    for (name, port) in [("a-sound", 8081), ("d-sound", 8084)] {
        add(name, port);
    }
    let more = listed_and_damaged.diff(&scene.dump()).join("\n");
    for what in ["8081", "8084", "tbf", "hgp"] {
        assert!(more.contains(what), "{what} is not compared: {more}");
    }
    let journal = scene.journal("c-damaged");
    let sound = fs::read_to_string(&journal).unwrap();
    fs::write(&journal, sound.replacen("\"intent\"", "\"tnetni\"", 1)).unwrap();

    let valid = ["b-listed"];
    let reply = gc(&scene, &conf("ptp"), &valid);
    check_failure(&reply, 100, "interface eth0 of container c-damaged: ");
    check_failure(&reply, 100, "c-damaged.i-eth0/pod.journal");
    listed_and_damaged.assert_same(&scene.dump(), "after a GC that failed for one");
    // In both families. What is damaged keeps its addresses, which may still be in use.
    assert_eq!(scene.reserved("pods"), 4);
    for name in ["a-sound", "d-sound"] {
        let _ = shell(&format!("! ip -n {} link show eth0", scene.world.name(name)));
    }
    scene.exchange("b-listed", "far", "192.0.2.1:8082".parse().unwrap());
    scene.succeed("CHECK", "b-listed", &with(asks(8082), "prevResult", result));
    // The ports are free again.
    for (name, port) in [("a-sound", 8084), ("d-sound", 8081)] {
        scene.add(name, &asks(port));
        scene.exchange(name, "far", format!("192.0.2.1:{port}").parse().unwrap());
    }

    fs::write(&journal, sound).unwrap();
    let reply = gc(&scene, &conf("ptp"), &valid);
    assert!(reply.is_success, "{reply:?}");
    listed.assert_same(&scene.dump(), "after GC");
    assert_eq!(scene.reserved("pods"), 2);
}
