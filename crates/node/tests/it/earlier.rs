//! What earlier versions wrote, without the keys that came later: their records and notes, and what a runtime has
//! cached of their configurations and results. CHECK, DEL and GC work with it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::scene::{Scene, with, works};

/// The keys of a container's record (`attachment.json`), as each version added one.
const RECORDS: [&[&str]; 4] = [
    &["network", "container_id", "ifname", "number"],
    &["network", "container_id", "ifname", "number", "data_dir"],
    &["network", "container_id", "ifname", "number", "rank", "data_dir"],
    &["network", "container_id", "ifname", "number", "rank", "data_dir", "bridge"],
];

/// What a container's record has today.
const TODAY: [&str; 8] =
    ["bridge", "container_id", "data_dir", "device", "ifname", "network", "number", "rank"];

/// A configuration from before containers were kept from posing as others.
fn conf(name: &str) -> Value {
    json!({
        "cniVersion": "1.0.0", "name": name, "type": "hostgap", "attach": "bridge",
        "ipam": { "type": "hostgap", "ranges": [[{ "subnet": "10.244.1.0/24" }]] },
        "anti_spoofing": false,
    })
}

/// Rewrites the record of a container with these keys alone.
fn rewrite(run: &Path, container: &str, keys: &[&str]) {
    let path = run.join(format!("cni-attachments/{container}.i-eth0/attachment.json"));
    let record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let record = record.as_object().unwrap();
    let has: Vec<&str> = record.keys().map(String::as_str).collect();
    assert_eq!(has, TODAY, "the key that is new is in no record of earlier versions");
    let old: serde_json::Map<String, Value> =
        keys.iter().map(|key| ((*key).to_owned(), record[*key].clone())).collect();
    fs::write(path, Value::Object(old).to_string()).unwrap();
}

/// A result as an earlier version printed it: routes without an MTU or an order.
fn older(mut result: Value) -> Value {
    for route in result["routes"].as_array_mut().unwrap() {
        let route = route.as_object_mut().unwrap();
        route.retain(|key, _| ["dst", "gw"].contains(&key.as_str()));
    }
    result
}

#[test]
fn containers_of_earlier_versions_are_checked_and_taken_back() {
    let Some(scene) = Scene::new() else { return };
    let conf = conf("pods");
    // A configuration of then does not have a key of today.
    let mut cached = conf.clone();
    cached.as_object_mut().unwrap().remove("anti_spoofing");
    for name in ["first", "a", "b"] {
        let _ = scene.container(name);
    }
    scene.add("first", &conf);
    scene.succeed("DEL", "first", &conf);
    let before = scene.dump();
    for keys in RECORDS {
        let result = older(scene.add("a", &conf));
        scene.add("b", &conf);
        assert_eq!(scene.reserved("pods"), 2);
        for container in ["a", "b"] {
            rewrite(&scene.run_dir(), container, keys);
        }
        let cached = with(cached.clone(), "prevResult", result);
        scene.succeed("CHECK", "a", &cached);
        let valid = json!([{ "containerID": "a", "ifname": "eth0" }]);
        let gc = with(with(cached.clone(), "cni.dev/valid-attachments", valid), "cniVersion", json!("1.1.0"));
        works(scene.call_with(&[("CNI_COMMAND", "GC")], &gc));
        assert_eq!(scene.reserved("pods"), 1, "{keys:?}: that of b is gone");
        scene.succeed("CHECK", "a", &cached);
        scene.succeed("DEL", "a", &cached);
        assert_eq!(scene.reserved("pods"), 0, "{keys:?}");
        before.assert_same(&scene.dump(), &format!("after containers with {keys:?}"));
    }
}

/// The note of a network says what it is like. One of an earlier version says less.
#[test]
fn a_network_of_an_earlier_version_is_joined_and_taken_back() {
    let Some(scene) = Scene::new() else { return };
    let untouched = scene.dump();
    let conf = conf("pods");
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    let result = scene.add("a", &conf);
    let owner = scene.run_dir().join("cni-networks/pods.net/owner");
    let written: Value = serde_json::from_slice(&fs::read(&owner).unwrap()).unwrap();
    let mut note: Value = serde_json::from_str(written["standing"].as_str().unwrap()).unwrap();
    assert_eq!(note.as_object_mut().unwrap().remove("wire_mtu"), Some(json!(1500)));
    fs::write(&owner, with(written, "standing", json!(note.to_string())).to_string()).unwrap();
    let keys: Vec<&str> = note.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["attach", "bridge", "masquerade", "mtu", "node", "pods", "prefixes", "wire"]);
    scene.succeed("CHECK", "a", &with(conf.clone(), "prevResult", result));
    scene.add("b", &conf);
    for container in ["a", "b"] {
        scene.succeed("DEL", container, &conf);
    }
    assert_eq!(scene.remove_unused().removed, ["pods"]);
    untouched.assert_same(&scene.dump(), "after the network was taken back");
}
