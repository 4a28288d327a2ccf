//! What each verb promises, whatever went wrong before.

use std::fs;

use node::plugin::Reply;
use serde_json::{Value, json};
use testkit::shell;

use crate::scene::{Scene, address, check_failure, conf, with};

#[test]
fn del_succeeds_for_what_is_gone() {
    let Some(scene) = Scene::new() else { return };
    let conf = conf("bridge");
    scene.succeed("DEL", "never", &conf);
    for name in ["first", "a"] {
        let _ = scene.container(name);
    }
    scene.add("first", &conf);
    scene.succeed("DEL", "first", &conf);
    let before = scene.dump();
    scene.add("a", &conf);
    assert_eq!(scene.reserved("pods"), 2);
    // The namespace goes first, and DEL comes without its path and without a result.
    linux::netns::delete(&scene.world.name("a")).unwrap();
    let del = [("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", "a"), ("CNI_IFNAME", "eth0")];
    for _ in 0..2 {
        assert!(scene.call_with(&del, &conf).is_success);
    }
    assert_eq!(scene.reserved("pods"), 0);
    before.assert_same(&scene.dump(), "after DEL without a namespace");
}

#[test]
fn an_attachment_is_added_once() {
    let Some(scene) = Scene::new() else { return };
    let conf = conf("ptp");
    let _ = scene.container("a");
    let result = scene.add("a", &conf);
    scene.fail("ADD", "a", &conf, 4, "interface eth0 of container a is attached to pods already");
    scene.succeed("CHECK", "a", &with(conf.clone(), "prevResult", result));
    // An interface of another program has the name.
    let _ = scene.container("b");
    let _ = shell(&format!("ip -n {} link add eth0 type bridge", scene.world.name("b")));
    scene.fail("ADD", "b", &conf, 100, "eth0");
    assert_eq!(scene.reserved("pods"), 2, "nothing of the failed ADD stays");
    scene.succeed("DEL", "b", &conf);
    let _ = shell(&format!("ip -n {} link show eth0", scene.world.name("b")));
}

#[test]
fn check_names_what_is_otherwise() {
    let Some(scene) = Scene::new() else { return };
    let conf = conf("ptp");
    scene.fail("CHECK", "a", &conf, 7, "`prevResult` is missing");
    let _ = scene.container("a");
    let result = scene.add("a", &conf);
    let checked = with(conf.clone(), "prevResult", result.clone());
    scene.fail("CHECK", "b", &checked, 3, "eth0 of container b was not added to pods here");
    let old = with(checked.clone(), "cniVersion", json!("0.3.1"));
    scene.fail("CHECK", "a", &old, 1, "`cniVersion` is 0.3.1, and CHECK came with 0.4.0");
    let _ = shell(&format!("ip -n {} route del default", scene.world.name("a")));
    scene.fail("CHECK", "a", &checked, 101, "is gone");
    scene.succeed("DEL", "a", &conf);
    scene.add("a", &conf);
    scene.succeed("CHECK", "a", &checked);
    let _ = shell(&format!("ip -n {} link set eth0 down", scene.world.name("a")));
    scene.fail("CHECK", "a", &checked, 101, "container a");
}

/// A plugin behind ours has taken routes and an address away or replaced them, and the result says so.
#[test]
fn check_allows_for_what_the_result_no_longer_lists() {
    let Some(scene) = Scene::new() else { return };
    let conf = conf("ptp");
    let _ = scene.container("a");
    let result = scene.add("a", &conf);
    let with_list = |key: &str, list: Vec<Value>| with(result.clone(), key, list.into());
    let check = |result: Value| with(conf.clone(), "prevResult", result);
    let of = |key: &str, is_kept: &dyn Fn(&Value) -> bool| {
        let list = result[key].as_array().unwrap().iter().filter(|one| is_kept(one)).cloned();
        with_list(key, list.collect())
    };
    let a = scene.world.name("a");
    let _ = shell(&format!("ip -n {a} route del default"));
    scene.fail("CHECK", "a", &check(result.clone()), 101, "is gone");
    scene.succeed("CHECK", "a", &check(of("routes", &|route| route["dst"] != "0.0.0.0/0")));
    // Replaced by one with another next hop.
    let _ = shell(&format!("ip -n {a} route add default via 10.244.1.250 dev eth0 onlink"));
    scene.fail("CHECK", "a", &check(result.clone()), 101, "0.0.0.0/0");
    let mut routes = result["routes"].as_array().unwrap().clone();
    routes
        .iter_mut()
        .filter(|route| route["dst"] == "0.0.0.0/0")
        .for_each(|route| route["gw"] = json!("10.244.1.250"));
    scene.succeed("CHECK", "a", &check(with_list("routes", routes)));
    let _ = shell(&format!("ip -n {a} route del default"));
    let gateway = result["ips"][0]["gateway"].as_str().unwrap();
    let _ = shell(&format!("ip -n {a} route add default via {gateway} dev eth0 onlink"));

    scene.succeed("DEL", "a", &conf);
    let result = scene.add("a", &conf);
    let v6 = address(&result, 1);
    let _ = shell(&format!("ip -n {a} addr del {v6}/128 dev eth0"));
    scene.fail("CHECK", "a", &check(result.clone()), 101, &v6);
    let mut less = result;
    less["ips"].as_array_mut().unwrap().remove(1);
    less["routes"].as_array_mut().unwrap().retain(|route| !route["dst"].as_str().unwrap().contains(':'));
    scene.succeed("CHECK", "a", &check(less));
}

/// Many containers are checked at once, and others begin meanwhile.
#[test]
fn calls_do_not_wait_for_a_reader_of_what_a_network_shares() {
    let Some(scene) = Scene::new() else { return };
    let conf = conf("ptp");
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    let checked = with(conf.clone(), "prevResult", scene.add("a", &conf));
    let networks = fs::read_dir(scene.run_dir().join("cni-networks")).unwrap();
    let journal =
        networks.map(|unit| unit.unwrap().path().join("network.journal")).find(|path| path.exists());
    let held = fs::File::open(journal.unwrap()).unwrap();
    held.lock().unwrap();
    scene.succeed("CHECK", "a", &checked);
    // It stands with another configuration, of which what the containers share is the same.
    scene.add("b", &with(conf, "mtu", json!(1400)));
}

/// A parameter that was set to a third value stays, and the runtime's log says so, whichever verb takes it back.
#[test]
fn what_another_program_changed_stays_and_is_said() {
    let Some(scene) = Scene::new() else { return };
    let conf = with(conf("ptp"), "sysctl", json!({ "net.core.somaxconn": "517" }));
    for name in ["a", "b"] {
        let _ = scene.container(name);
        scene.add(name, &conf);
        let set = || linux::sysctl::write(&linux::sysctl::Key::new("net/core/somaxconn").unwrap(), "519");
        scene.world.open(name).run(set).unwrap().unwrap();
    }
    let check = |reply: Reply| {
        assert!(reply.is_success, "{reply:?}");
        let [left] = reply.left.as_slice() else { panic!("{:?}", reply.left) };
        assert!(left.contains("somaxconn") && left.contains("519"), "{left}");
    };
    check(scene.call("DEL", "a", &conf));
    let none_valid = with(conf, "cni.dev/valid-attachments", json!([]));
    check(scene.call_with(&[("CNI_COMMAND", "GC")], &none_valid));
}

#[test]
fn status_says_whether_add_could_be_done() {
    let Some(scene) = Scene::new() else { return };
    let small = json!({ "type": "hostgap", "ranges": [[{ "subnet": "10.9.0.0/30" }]] });
    let conf = with(conf("ptp"), "ipam", small);
    let status = || scene.call_with(&[("CNI_COMMAND", "STATUS")], &conf);
    assert!(status().is_success, "{:?}", status());
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    assert_eq!(address(&scene.add("a", &conf), 0), "10.9.0.2");
    check_failure(&status(), 50, "no address is left");
    scene.fail("ADD", "b", &conf, 11, "none is left");
    scene.succeed("DEL", "a", &conf);
    assert!(status().is_success);
    let _ = shell(&format!("ip -n {} link del wire0", scene.world.name("node")));
    assert!(status().is_success, "routed links need no wire: {:?}", status());
    let conf = with(conf.clone(), "attach", json!("macvlan"));
    let reply = scene.call_with(&[("CNI_COMMAND", "STATUS")], &conf);
    check_failure(&reply, 50, "find the link to other nodes");
}

/// Before the ways to other nodes are made a container would not reach those. Only STATUS says so: what
/// is there goes on.
#[test]
fn status_waits_for_the_ways_to_other_nodes() {
    let Some(scene) = Scene::new() else { return };
    let run = tempfile::tempdir().unwrap();
    let file = run.path().join("flannel/subnet.env");
    let conf = with(conf("ptp"), "readiness_file", json!(file));
    let status = |conf: &Value| scene.call_with(&[("CNI_COMMAND", "STATUS")], conf);
    let is_missing = |conf: &Value| {
        let reply = status(conf);
        check_failure(&reply, 50, "network pods does not reach other nodes yet: `readiness_file` is ");
        check_failure(&reply, 50, "flannel/subnet.env, and it is not there");
    };
    is_missing(&conf);
    // Also where the runtime gives the ranges with ADD alone.
    is_missing(&with(conf.clone(), "ipam", json!({ "type": "hostgap" })));
    let _ = scene.container("a");
    let result = scene.add("a", &conf);
    scene.succeed("CHECK", "a", &with(conf.clone(), "prevResult", result));
    fs::create_dir(file.parent().unwrap()).unwrap();
    is_missing(&conf);
    fs::write(&file, "").unwrap();
    assert!(status(&conf).is_success, "{:?}", status(&conf));
    fs::remove_file(&file).unwrap();
    is_missing(&conf);
    // The network is the same with the key and without it.
    let _ = scene.container("b");
    scene.add("b", &self::conf("ptp"));
    for name in ["a", "b"] {
        scene.succeed("DEL", name, &conf);
    }
    for wrong in [json!("run/subnet.env"), json!(7)] {
        let wrong = with(conf.clone(), "readiness_file", wrong);
        scene.fail("ADD", "a", &wrong, 7, "the absolute path of a file is expected");
        check_failure(&status(&wrong), 7, "`readiness_file` is ");
    }
}

#[test]
fn wrong_configurations_are_named_and_leave_nothing() {
    let Some(scene) = Scene::new() else { return };
    let _ = scene.container("a");
    let before = scene.dump();
    let good = conf("ptp");
    let cases = [
        (with(good.clone(), "attach", json!("brigde")), 7, "did you mean \"bridge\"?"),
        (with(good.clone(), "atach", json!("ptp")), 2, "did you mean `attach`?"),
        (
            with(good.clone(), "ipam", json!({ "type": "hostgap", "range": [] })),
            2,
            "did you mean `ipam.ranges`?",
        ),
        (
            with(
                good.clone(),
                "ipam",
                ranges(&json!([[{ "subnet": "10.9.0.0/24", "gateway": "10.9.0.9" }]])),
            ),
            2,
            "`gateway` is 10.9.0.9",
        ),
        (
            with(
                good.clone(),
                "ipam",
                ranges(&json!([[{ "subnet": "10.8.0.0/24" }], [{ "subnet": "10.9.0.0/24" }]])),
            ),
            2,
            "set 1 would be a second",
        ),
        (with(conf("macvlan"), "masquerade", json!(true)), 2, "`masquerade` is true"),
        (with(conf("ebpf"), "anti_spoofing", json!(false)), 2, "`anti_spoofing` is false"),
        (with(conf("ptp"), "anti_spoofing", json!("always")), 7, "`anti_spoofing` is true, false or \"tcx\""),
        (with(conf("macvlan"), "anti_spoofing", json!("tcx")), 2, "`anti_spoofing` is \"tcx\""),
        (with(conf("macvlan"), "anti_spoofing", json!(true)), 2, "`anti_spoofing` is true"),
        (with(good.clone(), "wire", json!("nolink")), 7, "there is no link nolink"),
        (with(good.clone(), "mtu", json!(9000)), 7, "9000"),
        (with(good.clone(), "cniVersion", json!("0.2.0")), 1, "0.3.0"),
        (with(good.clone(), "ipam", json!({ "type": "dhcp" })), 4, "`ipam.type` is \"dhcp\""),
        (with(good.clone(), "ipam", json!({ "type": "hostgap" })), 7, "no range"),
    ];
    for (conf, code, says) in cases {
        scene.fail("ADD", "a", &conf, code, says);
    }
    let netns = scene.netns("nowhere");
    let gone =
        [("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", "a"), ("CNI_NETNS", &netns), ("CNI_IFNAME", "eth0")];
    check_failure(&scene.call_with(&gone, &good), 4, "CNI_NETNS");
    let netns = scene.netns("node");
    let own =
        [("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", "a"), ("CNI_NETNS", &netns), ("CNI_IFNAME", "eth0")];
    check_failure(&scene.call_with(&own, &good), 4, "is the node's own namespace");
    before.assert_same(&scene.dump(), "after refusals");
    assert_eq!(scene.reserved("pods"), 0);
    // The same network with another configuration, while an attachment rests on it and when none does.
    scene.add("a", &good);
    let _ = scene.container("b");
    scene.fail(
        "ADD",
        "b",
        &with(good.clone(), "masquerade", json!(true)),
        7,
        "stands on this node with another configuration, and 1 attachments rest on it",
    );
}

/// What containers do not share may change while others stand.
#[test]
fn a_change_for_new_containers_alone_is_followed() {
    let Some(scene) = Scene::new() else { return };
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    let before = conf("ptp");
    let a = address(&scene.add("a", &before), 0);
    let mut after = with(before.clone(), "mtu", json!(1400));
    after["dns"] = json!({ "nameservers": ["192.0.2.53"] });
    after["sysctl"] = json!({ "net.core.somaxconn": "511" });
    after["ipam"]["routes"] = json!([{ "dst": "203.0.113.0/24" }]);
    after["ipam"]["ranges"][0][0]["rangeStart"] = json!("10.244.1.99");
    let result = scene.add("b", &after);
    let b = address(&result, 0);
    assert_eq!((&*b, &result["dns"]), ("10.244.1.99", &after["dns"]));
    scene.exchange("a", "b", (a.parse::<std::net::IpAddr>().unwrap(), 80).into());
    let mtu = |name: &str| {
        let netlink = linux::Netlink::open_in(&scene.world.open(name)).unwrap();
        netlink.link(&"eth0".parse().unwrap()).unwrap().unwrap().mtu
    };
    assert_eq!((mtu("a"), mtu("b")), (1500, 1400));
    scene.succeed("CHECK", "b", &with(after.clone(), "prevResult", result));
    for name in ["a", "b"] {
        scene.succeed("DEL", name, &after);
    }
    // A bridge of our own has the containers' MTU.
    let shared = with(conf("bridge"), "name", json!("other"));
    scene.add("a", &shared);
    let why = "stands on this node for the MTU of the wire, and 1 attachments rest on it; it is made anew for an MTU of 1400";
    scene.fail("ADD", "b", &with(shared, "mtu", json!(1400)), 7, why);
}

/// The part of a configuration that has these ranges.
fn ranges(sets: &Value) -> Value {
    json!({ "type": "hostgap", "ranges": sets })
}

#[test]
fn a_subnet_may_have_several_ranges() {
    let Some(scene) = Scene::new() else { return };
    let both = [
        json!({ "subnet": "10.9.0.0/24", "rangeStart": "10.9.0.20", "rangeEnd": "10.9.0.20" }),
        json!({ "subnet": "10.9.0.0/24", "rangeStart": "10.9.0.30", "rangeEnd": "10.9.0.30" }),
    ];
    let conf = with(conf("ptp"), "ipam", ranges(&json!([both])));
    let addresses = ["a", "b"].map(|name| {
        let _ = scene.container(name);
        address(&scene.add(name, &conf), 0)
    });
    assert_eq!(addresses, ["10.9.0.20", "10.9.0.30"]);
}

/// What libcni adds to a plugin's part of the file, and what it leaves in it.
#[test]
fn input_as_a_runtime_makes_it_is_understood() {
    let Some(scene) = Scene::new() else { return };
    let mut conf = conf("ptp");
    for (key, value) in [
        ("capabilities", json!({ "ipRanges": true, "portMappings": true })),
        ("runtimeConfig", json!({ "ipRanges": [[{ "subnet": "10.9.0.0/24" }]] })),
        ("dns", json!({ "nameservers": ["192.0.2.53"] })),
        ("disableGC", json!(true)),
    ] {
        conf[key] = value;
    }
    let _ = scene.container("a");
    let result = scene.add("a", &conf);
    assert_eq!((address(&result, 0).as_str(), &result["dns"]), ("10.9.0.2", &conf["dns"]));
    conf["cni.dev/valid-attachments"] = json!(null);
    assert!(scene.call_with(&[("CNI_COMMAND", "GC")], &conf).is_success);
    assert_eq!(scene.reserved("pods"), 0);
}

/// The interface belongs to one network; another one is refused, and the DEL that follows harms nothing.
#[test]
fn a_del_for_another_network_harms_nothing() {
    let Some(scene) = Scene::new() else { return };
    let other = with(conf("ptp"), "name", json!("other"));
    let _ = scene.container("a");
    let result = scene.add("a", &conf("ptp"));
    scene.fail("ADD", "a", &other, 4, "is attached to pods already");
    scene.succeed("DEL", "a", &other);
    scene.fail("CHECK", "a", &with(other, "prevResult", result.clone()), 3, "was not added to other");
    scene.succeed("CHECK", "a", &with(conf("ptp"), "prevResult", result));
}

#[test]
fn versions_are_said_without_anything_else() {
    let Some(scene) = Scene::new() else { return };
    let reply = scene.call_with(&[("CNI_COMMAND", "VERSION")], &json!({ "cniVersion": "1.0.0" }));
    let all = json!(["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]);
    assert_eq!(reply.printed, Some(json!({ "cniVersion": "1.0.0", "supportedVersions": all })));
    check_failure(&scene.call_with(&[], &json!({})), 4, "missing in the environment: CNI_COMMAND");
}
