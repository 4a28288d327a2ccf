//! Addresses that another plugin gives.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use node::plugin::Reply;
use serde_json::{Value, json};

use crate::scene::{Scene, check_failure, works};

/// A directory with a plugin `given`, which logs each call and, at ADD, prints `result`.
struct Plugins {
    directory: tempfile::TempDir,
}

impl Plugins {
    fn giving(result: &Value) -> Plugins {
        Plugins::doing(&format!("if [ $CNI_COMMAND = ADD ]; then echo '{result}'; fi"))
    }

    fn doing(script: &str) -> Plugins {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("given");
        let log = directory.path().join("log");
        let text = format!(
            "#!/bin/sh\ncat >{}.input\necho $CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME >>{}\n{script}\n",
            log.display(),
            log.display()
        );
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Plugins { directory }
    }

    fn path(&self) -> &str {
        self.directory.path().to_str().unwrap()
    }

    /// The calls since the last look.
    fn calls(&self) -> Vec<String> {
        let log = self.directory.path().join("log");
        let text = fs::read_to_string(&log).unwrap_or_default();
        let _ = fs::remove_file(log);
        text.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// What it was given to read last.
    fn input(&self) -> Value {
        let text = fs::read_to_string(self.directory.path().join("log.input")).unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

fn call(scene: &Scene, command: &str, container: &str, conf: &Value, path: &str) -> Reply {
    let netns = scene.netns(container);
    let variables = [
        ("CNI_COMMAND", command),
        ("CNI_CONTAINERID", container),
        ("CNI_NETNS", &*netns),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", path),
    ];
    scene.call_with(&variables, conf)
}

/// A configuration that leaves addresses to `given`; a key of its own is not ours to judge.
fn conf(attach: &str) -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "pods", "type": "hostgap", "attach": attach,
        "ipam": { "type": "given", "server": "192.0.2.53" },
    })
}

#[test]
fn what_another_plugin_gives_is_used_and_released_by_it() {
    let Some(scene) = Scene::new() else { return };
    let plugins = Plugins::giving(&json!({
        "cniVersion": "1.1.0", "dns": { "nameservers": ["192.0.2.53"] },
        "ips": [{ "address": "10.244.1.9/24", "gateway": "10.244.1.1" }, { "address": "fd00:244:0:1::9/64" }],
        "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "198.51.100.0/24", "gw": "10.244.1.1", "mtu": 1300 }],
    }));
    let _ = scene.container("a");
    let conf = conf("ptp");
    let result = works(call(&scene, "ADD", "a", &conf, plugins.path()));
    assert_eq!(result["ips"][0]["address"], "10.244.1.9/32");
    let routes = result["routes"].as_array().unwrap();
    assert!(routes.iter().any(|one| one["dst"] == "198.51.100.0/24" && one["mtu"] == 1300), "{routes:?}");
    assert_eq!(result["dns"]["nameservers"][0], "192.0.2.53");
    assert_eq!(plugins.input()["ipam"]["server"], "192.0.2.53");
    // The node itself answers on its address of the wire.
    scene.assert_reaches("a", "192.0.2.1");
    let checked = json!({ "prevResult": result });
    let mut with_result = conf.clone();
    with_result.as_object_mut().unwrap().extend(checked.as_object().unwrap().clone());
    works(call(&scene, "CHECK", "a", &with_result, plugins.path()));
    works(call(&scene, "STATUS", "a", &conf, plugins.path()));
    works(call(&scene, "DEL", "a", &conf, plugins.path()));
    // Gone already, and asked of the other plugin once more, since it may still hold the address.
    works(call(&scene, "DEL", "a", &conf, plugins.path()));
    let mut none_valid = conf.clone();
    none_valid["cni.dev/valid-attachments"] = json!([]);
    works(call(&scene, "GC", "a", &none_valid, plugins.path()));
    let calls = ["ADD a eth0", "CHECK a eth0", "STATUS", "DEL a eth0", "DEL a eth0", "GC"];
    assert_eq!(plugins.calls(), calls);
    assert_eq!(scene.reserved("pods"), 0);
}

/// The unit of an ADD that was killed holds what the other plugin gave, which would not give it twice.
#[test]
fn an_add_that_was_killed_gives_back_what_another_plugin_gave() {
    let Some(scene) = Scene::new() else { return };
    let plugins = Plugins::giving(&json!({ "cniVersion": "1.1.0", "ips": [{ "address": "10.244.1.9/24" }] }));
    let _ = scene.container("a");
    let conf = conf("ptp");
    works(call(&scene, "ADD", "a", &conf, plugins.path()));
    // As it is left by a process that ends before it leaves the unit standing.
    let owner = scene.journal("a").with_file_name("owner");
    fs::write(owner, json!({ "pid": 0, "standing": null }).to_string()).unwrap();
    works(call(&scene, "ADD", "a", &conf, plugins.path()));
    assert_eq!(plugins.calls(), ["ADD a eth0", "DEL a eth0", "ADD a eth0"]);
    works(call(&scene, "DEL", "a", &conf, plugins.path()));
}

/// What ADD fails with, and that the address is released.
#[track_caller]
fn add_fails(scene: &Scene, plugins: &Plugins, attach: &str, code: u32, says: &str) {
    let before = scene.dump();
    check_failure(&call(scene, "ADD", "a", &conf(attach), plugins.path()), code, says);
    assert_eq!(plugins.calls(), ["ADD a eth0", "DEL a eth0"]);
    before.assert_same(&scene.dump(), "after an ADD that failed");
}

#[test]
fn what_cannot_be_used_is_given_back() {
    let Some(scene) = Scene::new() else { return };
    let _ = scene.container("a");
    let gives = |ips: Value| Plugins::giving(&json!({ "cniVersion": "1.1.0", "ips": ips }));
    let far = gives(json!([{ "address": "10.244.1.9/24", "gateway": "10.244.1.254" }]));
    add_fails(&scene, &far, "ptp", 2, "`gateway` is 10.244.1.254");
    let gateway = gives(json!([{ "address": "10.244.1.1/24" }]));
    add_fails(&scene, &gateway, "bridge", 2, "is the address of its gateway");
    let two = gives(json!([{ "address": "10.244.1.9/24" }, { "address": "10.244.1.8/24" }]));
    add_fails(&scene, &two, "ptp", 2, "2 IPv4 and 0 IPv6 addresses");
    add_fails(&scene, &gives(json!([])), "ptp", 2, "0 IPv4 and 0 IPv6");
    let odd = gives(json!([{ "address": "10.244.1.9" }]));
    add_fails(&scene, &odd, "ptp", 6, "given: its result has the address");
    let route = json!({
        "ips": [{ "address": "10.244.1.9/24" }], "routes": [{ "dst": "10.0.0.0/8", "gw": "10.244.1.7" }],
    });
    add_fails(&scene, &Plugins::giving(&route), "ptp", 2, "its result has 10.0.0.0/8 by 10.244.1.7");
    let table = json!({
        "ips": [{ "address": "10.244.1.9/24" }], "routes": [{ "dst": "10.0.0.0/8", "table": 7 }],
    });
    add_fails(
        &scene,
        &Plugins::giving(&table),
        "ptp",
        2,
        "the result of given has 10.0.0.0/8 with `table` 7",
    );
    let garbage = Plugins::doing("echo garbage");
    add_fails(&scene, &garbage, "ptp", 6, "given: ");
}

#[test]
fn its_own_failure_is_passed_on_with_its_name() {
    let Some(scene) = Scene::new() else { return };
    let _ = scene.container("a");
    let none_left =
        r#"test $CNI_COMMAND = DEL || { echo '{"code":11,"msg":"no address is left"}'; exit 1; }"#;
    add_fails(&scene, &Plugins::doing(none_left), "ptp", 11, "given: no address is left");
    let silent = Plugins::doing("test $CNI_COMMAND = DEL || exit 3");
    add_fails(&scene, &silent, "ptp", 6, "given: it ended with exit status: 3");
    let status = call(&scene, "STATUS", "a", &conf("ptp"), Plugins::doing(none_left).path());
    check_failure(&status, 11, "no address is left");
}

#[test]
fn a_plugin_that_is_nowhere_is_named() {
    let Some(scene) = Scene::new() else { return };
    let _ = scene.container("a");
    check_failure(
        &call(&scene, "ADD", "a", &conf("ptp"), "/nonexistent:/elsewhere"),
        4,
        "`ipam.type` is \"given\", and no such plugin is in CNI_PATH (/nonexistent, /elsewhere)",
    );
    let mut outside = conf("ptp");
    outside["ipam"]["type"] = "../given".into();
    check_failure(&call(&scene, "ADD", "a", &outside, "/tmp"), 7, "the name of a plugin is expected");
}

/// Where Debian has the CNI project's plugins.
const DEBIAN: &str = "/usr/lib/cni";

/// False, with the skip recorded, if a plugin is not installed.
fn has(plugin: &str) -> bool {
    let path = Path::new(DEBIAN).join(plugin);
    let is_there = path.exists();
    if !is_there {
        let path = path.display();
        testkit::skip(&format!("{path} is missing; it is in the package containernetworking-plugins"));
    }
    is_there
}

/// The CNI project's plugin for fixed addresses.
#[test]
fn static_gives_what_a_configuration_says() {
    if !has("static") {
        return;
    }
    let Some(scene) = Scene::new() else { return };
    let _ = scene.container("a");
    let mut conf = conf("bridge");
    conf["cniVersion"] = "1.0.0".into();
    conf["ipam"] = json!({
        "type": "static", "addresses": [{ "address": "10.244.1.9/24", "gateway": "10.244.1.1" }],
    });
    let result = works(call(&scene, "ADD", "a", &conf, DEBIAN));
    assert_eq!(result["ips"][0]["address"], "10.244.1.9/24");
    scene.assert_reaches("a", "192.0.2.1");
    works(call(&scene, "DEL", "a", &conf, DEBIAN));
}

/// The CNI project's own plugin for addresses, as another program: what it gives it releases, also where our ADD fails
/// behind it.
#[test]
fn host_local_gives_addresses_and_gets_them_back() {
    if !has("host-local") {
        return;
    }
    let Some(scene) = Scene::new() else { return };
    let store = tempfile::tempdir().unwrap();
    for (attach, length) in [("bridge", 24), ("ptp", 32)] {
        let mut conf = conf(attach);
        conf["cniVersion"] = "1.0.0".into();
        conf["ipam"] = json!({
            "type": "host-local", "dataDir": store.path(), "routes": [{ "dst": "0.0.0.0/0" }],
            "ranges": [[{ "subnet": "10.244.1.0/24", "rangeStart": "10.244.1.7", "rangeEnd": "10.244.1.8" }]],
        });
        for name in ["a", "b", "c"] {
            let _ = scene.container(&format!("{attach}-{name}"));
        }
        let [a, b, c] = ["a", "b", "c"].map(|name| format!("{attach}-{name}"));
        let does =
            |verb: &str, container: &str, conf: &Value| works(call(&scene, verb, container, conf, DEBIAN));
        // The network stands before and stays.
        does("ADD", &a, &conf);
        does("DEL", &a, &conf);
        let before = scene.dump();
        let result = does("ADD", &a, &conf);
        let address = crate::scene::address(&result, 0);
        assert_eq!(result["ips"][0]["address"], format!("{address}/{length}"));
        assert_eq!(held(store.path()), [format!("{address} {a}")]);
        scene.assert_reaches(&a, "192.0.2.1");
        let mut checked = conf.clone();
        checked["prevResult"] = result;
        does("CHECK", &a, &checked);
        // A link of another program has the name: our part fails, and the address goes back at once.
        let _ = testkit::shell(&format!("ip -n {} link add eth0 type bridge", scene.world.name(&b)));
        check_failure(&call(&scene, "ADD", &b, &conf, DEBIAN), 100, "eth0");
        assert_eq!(held(store.path()), [format!("{address} {a}")]);
        does("DEL", &b, &conf);
        // It has two addresses, and a third container gets none.
        let _ = testkit::shell(&format!("ip -n {} link del eth0", scene.world.name(&b)));
        does("ADD", &b, &conf);
        let none_left = call(&scene, "ADD", &c, &conf, DEBIAN);
        assert!(!none_left.is_success, "{none_left:?}");
        let says = none_left.printed.unwrap()["msg"].as_str().unwrap().to_owned();
        assert!(says.contains("host-local: ") && says.contains("no IP addresses available"), "{says}");
        // What it no longer has, CHECK misses.
        fs::remove_file(store.path().join("pods").join(&address)).unwrap();
        let missed = call(&scene, "CHECK", &a, &checked, DEBIAN);
        assert!(!missed.is_success, "{missed:?}");
        for container in [&a, &b, &c, &a] {
            does("DEL", container, &conf);
        }
        assert_eq!(held(store.path()), [""; 0]);
        assert_eq!(scene.reserved("pods"), 0);
        before.assert_same(&scene.dump(), "after DEL of all");
        assert_eq!(scene.remove_unused().removed, ["pods"]);
    }
}

/// The addresses that host-local's store holds, and the container that has each.
fn held(store: &Path) -> Vec<String> {
    let mut held = Vec::new();
    for entry in fs::read_dir(store.join("pods")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.parse::<std::net::IpAddr>().is_ok() {
            let text = fs::read_to_string(&path).unwrap();
            held.push(format!("{name} {}", text.lines().next().unwrap_or_default()));
        }
    }
    held.sort();
    held
}
