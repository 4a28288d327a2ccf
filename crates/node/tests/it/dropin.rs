//! The program under the names of the CNI project's plugins, with their configurations.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testkit::{run, shell};

use crate::attachments::can_run;
use crate::scene::{Scene, address, check_failure, with, works};

/// The CNI project's plugin for addresses.
const HOST_LOCAL: &str = "/usr/lib/cni/host-local";

/// A plugin's configuration with addresses of host-local.
fn conf(ipam: &Value) -> Value {
    let mut whole = json!({ "type": "host-local", "subnet": "10.1.2.0/24" });
    whole.as_object_mut().unwrap().extend(ipam.as_object().unwrap().clone());
    json!({ "cniVersion": "1.0.0", "name": "pods", "type": "ptp", "ipam": whole })
}

/// The addresses in a directory of host-local's format, with their owners.
fn leases(data_dir: &Path) -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir(data_dir.join("pods")) else { return BTreeMap::new() };
    let files = entries.map(|entry| entry.unwrap().path());
    let leases = files.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("10."));
    leases
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect()
}

#[test]
fn addresses_are_kept_where_the_configuration_says() {
    let Some(scene) = Scene::new() else { return };
    let elsewhere = tempfile::tempdir().unwrap();
    let conf = conf(&json!({ "dataDir": elsewhere.path() }));
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    let result = works(scene.call_named("ptp", "ADD", "a", &conf));
    assert_eq!(address(&result, 0), "10.1.2.2");
    let of_a = ("10.1.2.2".to_owned(), "a\r\neth0".to_owned());
    assert_eq!(leases(elsewhere.path()), BTreeMap::from([of_a.clone()]));
    assert_eq!(scene.reserved("pods"), 0, "the usual place has none");
    // Called for its addresses alone, it has the same store.
    let other = works(scene.call_named("host-local", "ADD", "b", &conf));
    assert_eq!(other["ips"][0]["address"], "10.1.2.3/24");
    works(scene.call_named("host-local", "CHECK", "b", &conf));
    let valid = json!([{ "containerID": "a", "ifname": "eth0" }]);
    let gc = with(with(conf.clone(), "cniVersion", json!("1.1.0")), "cni.dev/valid-attachments", valid);
    works(scene.call_named("host-local", "GC", "", &gc));
    assert_eq!(leases(elsewhere.path()), BTreeMap::from([of_a]));
    let checked = with(conf.clone(), "prevResult", result);
    works(scene.call_named("ptp", "CHECK", "a", &checked));
    // Somebody has changed the configuration since.
    let moved =
        with(self::conf(&json!({ "dataDir": "/nowhere" })), "prevResult", checked["prevResult"].clone());
    works(scene.call_named("ptp", "CHECK", "a", &moved));
    fs::rename(elsewhere.path().join("pods/10.1.2.2"), elsewhere.path().join("away")).unwrap();
    check_failure(&scene.call_named("ptp", "CHECK", "a", &checked), 101, "10.1.2.2/32 is no longer reserved");
    fs::rename(elsewhere.path().join("away"), elsewhere.path().join("pods/10.1.2.2")).unwrap();
    // Between ADD and DEL somebody has changed the configuration.
    works(scene.call_named("ptp", "DEL", "a", &self::conf(&json!({}))));
    assert_eq!(leases(elsewhere.path()), BTreeMap::new());
    // As with host-local, an empty one is the usual place.
    works(scene.call_named("ptp", "ADD", "a", &self::conf(&json!({ "dataDir": "" }))));
    assert_eq!(scene.reserved("pods"), 1);
    works(scene.call_named("ptp", "DEL", "a", &conf));
}

/// A gateway that is written down is the one that there is anyway, in both families.
#[test]
fn a_gateway_may_be_the_first_address_of_its_subnet() {
    let Some(scene) = Scene::new() else { return };
    let ipam = json!({
        "type": "host-local",
        "ranges": [
            [{ "subnet": "10.1.2.0/24", "gateway": "10.1.2.1" }],
            [{ "subnet": "fd00:1:2::/64", "gateway": "fd00:1:2::1" }],
        ],
        "routes": [{ "dst": "::/0", "gw": "fd00:1:2::1" }, { "dst": "0.0.0.0/0", "gw": "10.1.2.1" }],
    });
    let conf = json!({ "cniVersion": "1.0.0", "name": "pods", "type": "ptp", "ipam": ipam });
    let _ = scene.container("a");
    works(scene.call_named("ptp", "ADD", "a", &conf));
    for target in ["192.0.2.1", "2001:db8::1"] {
        scene.assert_reaches("a", target);
    }
    let mut other = conf.clone();
    other["ipam"]["ranges"][1][0]["gateway"] = json!("fd00:1:2::");
    let _ = scene.container("b");
    check_failure(&scene.call_named("ptp", "ADD", "b", &other), 2, "`gateway` is fd00:1:2::;");
}

/// As with host-local, ranges that the runtime gives come before those of the configuration; and programs in Go write
/// null for a list that they do not have.
#[test]
fn ranges_of_the_runtime_come_first() {
    let Some(scene) = Scene::new() else { return };
    for name in ["a", "b", "c"] {
        let _ = scene.container(name);
    }
    let quiet = conf(&json!({ "ranges": null, "rangeEnd": null, "routes": null }));
    assert_eq!(address(&works(scene.call_named("ptp", "ADD", "a", &quiet)), 0), "10.1.2.2");
    works(scene.call_named("ptp", "DEL", "a", &quiet));
    let ipam = json!({ "type": "host-local", "ranges": [[{ "subnet": "fd00:1:2::/64" }]] });
    let conf = json!({ "cniVersion": "1.0.0", "name": "pods", "type": "ptp", "ipam": ipam });
    let given = |subnet: &str| json!({ "ipRanges": [[{ "subnet": subnet }]] });
    let with_v4 = with(conf, "runtimeConfig", given("10.1.3.0/24"));
    let result = works(scene.call_named("ptp", "ADD", "b", &with_v4));
    assert_eq!([0, 1].map(|index| address(&result, index)), ["10.1.3.2", "fd00:1:2::2"]);
    let alone = works(scene.call_named("host-local", "ADD", "c", &with_v4));
    assert_eq!(alone["ips"].as_array().unwrap().len(), 2, "{alone}");
    works(scene.call_named("host-local", "DEL", "c", &with_v4));
    works(scene.call_named("ptp", "DEL", "b", &with_v4));
    // Two of one family would be two addresses of it.
    let both = with(self::conf(&json!({})), "runtimeConfig", given("10.1.3.0/24"));
    check_failure(&scene.call_named("ptp", "ADD", "a", &both), 2, "several sets of one family");
}

#[test]
fn a_directory_of_addresses_that_is_none_is_refused() {
    let Some(scene) = Scene::new() else { return };
    let _ = scene.container("a");
    let before = scene.dump();
    for (name, verb) in [("ptp", "ADD"), ("ptp", "DEL"), ("host-local", "ADD")] {
        let relative = scene.call_named(name, verb, "a", &conf(&json!({ "dataDir": "var/pods" })));
        check_failure(&relative, 7, "`ipam.dataDir` is \"var/pods\"; an absolute path is expected");
    }
    check_failure(
        &scene.call_named("ptp", "ADD", "a", &conf(&json!({ "dataDir": 7 }))),
        7,
        "`ipam.dataDir` is 7",
    );
    before.assert_same(&scene.dump(), "after refusals");
    let file = tempfile::NamedTempFile::new().unwrap();
    let full = scene.call_named("ptp", "ADD", "a", &conf(&json!({ "dataDir": file.path() })));
    check_failure(&full, 5, file.path().to_str().unwrap());
}

#[test]
fn a_file_says_how_containers_resolve_names() {
    let Some(scene) = Scene::new() else { return };
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = "# theirs\nnameserver 192.0.2.53\nnameserver 2001:db8::53\ndomain b.example\nsearch x.example\noptions ndots:2\n";
    fs::write(file.path(), text).unwrap();
    let conf = conf(&json!({ "resolvConf": file.path() }));
    let said = json!({
        "nameservers": ["192.0.2.53", "2001:db8::53"], "domain": "b.example", "search": ["x.example"],
        "options": ["ndots:2"],
    });
    assert_eq!(works(scene.call_named("ptp", "ADD", "a", &conf))["dns"], said);
    assert_eq!(works(scene.call_named("host-local", "ADD", "b", &conf))["dns"], said);
    works(scene.call_named("host-local", "DEL", "b", &conf));
    let own = json!({ "nameservers": ["10.96.0.10"] });
    assert_eq!(
        works(scene.call_named("ptp", "ADD", "b", &with(conf.clone(), "dns", own.clone())))["dns"],
        own
    );
    for name in ["a", "b"] {
        works(scene.call_named("ptp", "DEL", name, &conf));
    }
}

#[test]
fn a_file_of_servers_that_cannot_be_followed_is_named_and_nothing_is_made() {
    let Some(scene) = Scene::new() else { return };
    let _ = scene.container("a");
    let before = scene.dump();
    let missing = conf(&json!({ "resolvConf": "/nonexistent/resolv.conf" }));
    let wrong = tempfile::NamedTempFile::new().unwrap();
    fs::write(wrong.path(), "search a\nnameserver dns.example\n").unwrap();
    let wrong = conf(&json!({ "resolvConf": wrong.path() }));
    let endless = conf(&json!({ "resolvConf": "/dev/zero" }));
    for name in ["ptp", "host-local"] {
        let gone = scene.call_named(name, "ADD", "a", &missing);
        check_failure(&gone, 5, "follow `ipam.resolvConf`: /nonexistent/resolv.conf: No such file");
        assert!(gone.printed.unwrap()["details"].as_str().unwrap().contains("resolv.conf(5)"));
        check_failure(
            &scene.call_named(name, "ADD", "a", &wrong),
            7,
            "line 2 has the nameserver \"dns.example\"",
        );
        check_failure(&scene.call_named(name, "ADD", "a", &endless), 5, "it has more than 65536 bytes");
        check_failure(&scene.call_named(name, "ADD", "a", &conf(&json!({ "resolvConf": 7 }))), 7, "`ipam`");
    }
    let status = with(missing, "cniVersion", json!("1.1.0"));
    check_failure(&scene.call_named("ptp", "STATUS", "", &status), 50, "follow `ipam.resolvConf`");
    before.assert_same(&scene.dump(), "after refusals");
    assert_eq!(scene.reserved("pods"), 0);
}

/// A configuration of the CNI project's plugins for links on the node's wire, in both families. The gateway is the
/// machine at its other end.
fn on_wire(name: &str, mode: &str) -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "pods", "type": name, "master": "wire0", "mode": mode, "mtu": 1400,
        "ipam": {
            "type": "host-local",
            "ranges": [
                [{ "subnet": "10.1.2.0/24", "rangeStart": "10.1.2.10", "gateway": "10.1.2.1" }],
                [{ "subnet": "fd00:1:2::/64", "rangeStart": "fd00:1:2::10", "gateway": "fd00:1:2::1" }],
            ],
            "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }],
        },
    })
}

/// Called by a plugin's name with its configuration, the program makes the link of that mode, CHECK finds all in order,
/// and DEL leaves the node as it was. `targets` are reached beside the neighbour.
#[track_caller]
fn comes_and_goes(name: &str, mode: &str, attach: &str, targets: &[&str]) {
    let Some(scene) = Scene::new() else { return };
    if !can_run(attach) {
        return;
    }
    let far = scene.world.name("far");
    let _ = shell(&format!(
        "ip -n {far} addr add 10.1.2.1/24 dev wire1; ip -n {far} addr add fd00:1:2::1/64 dev wire1 nodad
         ip -n {far} link set lo up; ip -n {far} addr add 198.51.100.1/32 dev lo
         ip -n {far} addr add 2001:db8:ffff::1/128 dev lo"
    ));
    let conf = on_wire(name, mode);
    for container in ["first", "a", "b"] {
        let _ = scene.container(container);
    }
    works(scene.call_named(name, "ADD", "first", &conf));
    works(scene.call_named(name, "DEL", "first", &conf));
    let before = scene.dump();
    let [a, b] = ["a", "b"].map(|container| works(scene.call_named(name, "ADD", container, &conf)));
    assert_eq!([0, 1].map(|index| address(&a, index)), ["10.1.2.11", "fd00:1:2::11"]);
    let shown = run(&scene.world.open("a"), "ip", &["-d", "link", "show", "eth0"]);
    let words: Vec<&str> = shown.split_whitespace().collect();
    for expected in [&[name, "mode", mode][..], &["mtu", "1400"]] {
        assert!(words.windows(expected.len()).any(|window| window == expected), "{expected:?}: {shown}");
    }
    for index in 0..2 {
        scene.assert_reaches("a", &address(&b, index));
        scene.assert_reaches("b", &address(&a, index));
    }
    for target in targets {
        scene.assert_reaches("a", target);
    }
    for (container, result) in [("a", a), ("b", b)] {
        works(scene.call_named(name, "CHECK", container, &with(conf.clone(), "prevResult", result)));
    }
    for container in ["a", "b"] {
        works(scene.call_named(name, "DEL", container, &conf));
    }
    before.assert_same(&scene.dump(), "after DEL");
    assert_eq!(scene.reserved("pods"), 0);
}

/// What containers reach on their wire, and behind the gateway there.
const ON_WIRE: [&str; 4] = ["10.1.2.1", "fd00:1:2::1", "198.51.100.1", "2001:db8:ffff::1"];

#[test]
fn it_is_macvlan() {
    comes_and_goes("macvlan", "bridge", "macvlan", &ON_WIRE);
}

#[test]
fn it_is_ipvlan() {
    comes_and_goes("ipvlan", "l2", "ipvlan-l2", &ON_WIRE);
}

#[test]
fn it_is_routed_ipvlan() {
    comes_and_goes("ipvlan", "l3", "ipvlan-l3", &[]);
}

#[test]
fn it_is_ipvlan_routed_through_netfilter() {
    comes_and_goes("ipvlan", "l3s", "ipvlan-l3s", &[]);
}

/// The CNI project's own host-local, for a container of the same directory.
fn theirs(command: &str, container: &str, conf: &Value) -> Value {
    let mut program = Command::new(HOST_LOCAL);
    program.env("CNI_COMMAND", command).env("CNI_CONTAINERID", container).env("CNI_IFNAME", "eth0");
    program.env("CNI_NETNS", "/proc/self/ns/net").env("CNI_PATH", "/usr/lib/cni");
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(conf.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command}: {printed}");
    serde_json::from_str(&printed).unwrap_or_default()
}

/// A node that changes from the CNI project's host-local to ours and back gives no address twice, and each releases
/// what the other reserved.
#[test]
fn a_node_changes_over_and_back_without_losing_an_address() {
    if !Path::new(HOST_LOCAL).exists() {
        testkit::skip(&format!("{HOST_LOCAL} is missing; it is in the package containernetworking-plugins"));
        return;
    }
    let Some(scene) = Scene::new() else { return };
    let data_dir = tempfile::tempdir().unwrap();
    let conf = conf(&json!({ "dataDir": data_dir.path() }));
    let _ = scene.container("ours");
    assert_eq!(theirs("ADD", "theirs", &conf)["ips"][0]["address"], "10.1.2.2/24");
    assert_eq!(address(&works(scene.call_named("ptp", "ADD", "ours", &conf)), 0), "10.1.2.3");
    assert_eq!(theirs("ADD", "later", &conf)["ips"][0]["address"], "10.1.2.4/24");
    works(scene.call_named("ptp", "DEL", "theirs", &conf));
    theirs("DEL", "ours", &conf);
    let left = BTreeMap::from([("10.1.2.4".to_owned(), "later\r\neth0".to_owned())]);
    assert_eq!(leases(data_dir.path()), left);
    works(scene.call_named("ptp", "DEL", "ours", &conf));
}
