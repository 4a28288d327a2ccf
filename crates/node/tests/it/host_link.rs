//! A node and its containers reach each other though the containers' links hang on the node's wire.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::attachments::can_run;
use crate::scene::{Scene, address, check_failure, conf, with};

/// A network with a link of the node's own.
fn linked(attach: &str) -> Value {
    with(with(conf(attach), "host_link", json!(true)), "masquerade", json!(true))
}

/// Node and container call each other over both families, and what a container sends out of the network has the node's
/// address: the machine outside has no way back to the container.
#[track_caller]
fn check(attach: &str) {
    let Some(scene) = Scene::new() else { return };
    if !can_run(attach) {
        return;
    }
    let conf = linked(attach);
    // As a virtual IP is: the kernel prefers it for what leaves by a link without an address.
    let node = scene.world.name("node");
    let _ = testkit::shell(&format!(
        "ip -n {node} address add 198.51.100.9/32 dev lo; ip -n {node} link set lo up"
    ));
    let untouched = scene.dump();
    let results = ["a", "b"].map(|name| {
        drop(scene.container(name));
        scene.add(name, &conf)
    });
    let nodes = ["192.0.2.1:80", "[2001:db8::1]:80"].map(|node| node.parse::<SocketAddr>().unwrap());
    for (index, node) in nodes.into_iter().enumerate() {
        for (name, result) in ["a", "b"].into_iter().zip(&results) {
            let pod = SocketAddr::new(address(result, index).parse().unwrap(), 80);
            scene.exchange(name, "node", pod);
            scene.exchange("node", name, node);
        }
        scene.assert_reaches("a", &address(&results[1], index));
    }
    for far in ["192.0.2.2", "2001:db8::2"] {
        scene.assert_reaches("a", far);
    }
    for (name, result) in ["a", "b"].into_iter().zip(&results) {
        scene.succeed("CHECK", name, &with(conf.clone(), "prevResult", result.clone()));
        scene.succeed("DEL", name, &conf);
    }
    assert_eq!(scene.remove_unused().removed, ["pods"]);
    untouched.assert_same(&scene.dump(), "without the network");
}

#[test]
fn macvlan() {
    check("macvlan");
}

#[test]
fn ipvlan_l3() {
    check("ipvlan-l3");
}

#[test]
fn ipvlan_l3s() {
    check("ipvlan-l3s");
}

/// Two networks of one wire have a link each, and a link has an Ethernet address that no other has there.
#[test]
fn networks_on_one_wire_have_links_of_their_own() {
    let Some(scene) = Scene::new() else { return };
    if !can_run("macvlan") {
        return;
    }
    let other = json!({
        "cniVersion": "1.1.0", "name": "other", "type": "hostgap", "attach": "macvlan", "host_link": true,
        "ipam": { "type": "hostgap", "ranges": [[{ "subnet": "10.245.1.0/24" }]] },
    });
    for (name, conf) in [("a", &linked("macvlan")), ("b", &other)] {
        drop(scene.container(name));
        let result = scene.add(name, conf);
        scene.exchange(name, "node", SocketAddr::new(address(&result, 0).parse().unwrap(), 80));
    }
    for (name, conf) in [("a", &linked("macvlan")), ("b", &other)] {
        scene.succeed("DEL", name, conf);
    }
    assert_eq!(scene.remove_unused().removed, ["other", "pods"]);
}

#[test]
fn it_is_refused_where_it_is_of_no_use() {
    let Some(scene) = Scene::new() else { return };
    drop(scene.container("a"));
    let says = "`host_link` is true, which is for macvlan, ipvlan-l3 and ipvlan-l3s";
    for attach in ["bridge", "ptp", "ebpf", "ipvlan-l2"] {
        check_failure(&scene.call("ADD", "a", &with(conf(attach), "host_link", json!(true))), 2, says);
    }
    let alone = with(conf("macvlan"), "masquerade", json!(true));
    check_failure(&scene.call("ADD", "a", &alone), 2, "`masquerade` is true, and what pods of macvlan send");
}
