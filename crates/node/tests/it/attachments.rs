//! Each attach joins containers, and what it made goes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use datapath::{ATTACHES, Family};
use serde_json::{Value, json};
use testkit::skip;

use crate::scene::{Scene, address, check_failure, conf, of_each_attach, with};

/// Whether this kernel has what an attach needs.
pub(crate) fn can_run(attach: &str) -> bool {
    let path = ATTACHES.iter().find(|path| path.name == attach).unwrap();
    let unmet = path.unmet(&linux::features::probe().unwrap());
    unmet.first().is_none_or(|unmet| {
        skip(&format!("{attach}: {unmet}"));
        false
    })
}

#[track_caller]
fn check(attach: &str) {
    reach_each_other(attach, &Family::BOTH, &conf(attach));
}

/// Two containers reach each other over each family, CHECK finds all in order, and after DEL the node is as
/// with the network alone.
#[track_caller]
pub(crate) fn reach_each_other(attach: &str, families: &[Family], conf: &Value) {
    let Some(scene) = Scene::of(families) else { return };
    if !can_run(attach) {
        return;
    }
    for name in ["first", "a", "b"] {
        let _ = scene.container(name);
    }
    let untouched = scene.dump();
    // The network comes with the first attachment, and stays.
    scene.add("first", conf);
    scene.succeed("DEL", "first", conf);
    let before = scene.dump();
    let [a, b] = ["a", "b"].map(|name| scene.add(name, conf));
    let eth0 = a["interfaces"].as_array().unwrap().last().unwrap();
    assert_eq!((&eth0["name"], &eth0["sandbox"]), (&json!("eth0"), &json!(scene.netns("a"))));
    assert_eq!(a["ips"].as_array().unwrap().len(), families.len());
    for index in 0..families.len() {
        scene.assert_reaches("a", &address(&b, index));
        scene.assert_reaches("b", &address(&a, index));
    }
    for (name, result) in [("a", &a), ("b", &b)] {
        scene.succeed("CHECK", name, &with(conf.clone(), "prevResult", result.clone()));
    }
    for name in ["b", "a"] {
        scene.succeed("DEL", name, &with(conf.clone(), "prevResult", a.clone()));
    }
    before.assert_same(&scene.dump(), "after DEL");
    assert_eq!(scene.reserved("pods"), 0);
    let _ = testkit::shell(&format!("! ip -n {} link show eth0", scene.world.name("a")));
    assert_eq!(scene.remove_unused().removed, ["pods"]);
    untouched.assert_same(&scene.dump(), "without the network");
}

of_each_attach!(check);

#[test]
fn pods_of_several_networks_stand_side_by_side() {
    let Some(scene) = Scene::new() else { return };
    let other = json!({
        "cniVersion": "1.0.0", "name": "other", "type": "hostgap", "attach": "ptp", "default_route": false,
        "ipam": { "type": "hostgap", "ranges": [[{ "subnet": "10.245.1.0/24" }]] },
    });
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    let mut results = Vec::new();
    for name in ["a", "b"] {
        scene.add(name, &conf("bridge"));
        let netns = scene.netns(name);
        let second = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", name),
            ("CNI_NETNS", &netns),
            ("CNI_IFNAME", "net1"),
        ];
        let reply = scene.call_with(&second, &other);
        assert!(reply.is_success, "{reply:?}");
        results.push(reply.printed.unwrap());
    }
    scene.assert_reaches("a", &address(&results[1], 0));
    assert_eq!((scene.reserved("pods"), scene.reserved("other")), (4, 2));
    // The second interface goes alone.
    let del = [("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", "a"), ("CNI_IFNAME", "net1")];
    assert!(scene.call_with(&del, &other).is_success);
    assert_eq!((scene.reserved("pods"), scene.reserved("other")), (4, 1));
    scene.assert_reaches("a", "10.244.1.1");
}

/// Containers of veth and of netkit pairs, in a network each, reach each other over both families, and those of one
/// network go without the others.
#[test]
fn veth_and_netkit_stand_side_by_side() {
    let Some(scene) = Scene::new() else { return };
    if !can_run("netkit") {
        return;
    }
    let veth = conf("ptp");
    let netkit = json!({
        "cniVersion": "1.1.0", "name": "other", "type": "hostgap", "attach": "netkit",
        "ipam": { "type": "hostgap", "ranges": [
            [{ "subnet": "10.245.1.0/24" }], [{ "subnet": "fd00:245:0:1::/64" }],
        ] },
    });
    let conf_of = |name: &str| if name.starts_with("veth") { &veth } else { &netkit };
    let add = |name: &'static str| {
        let _ = scene.container(name);
        (name, scene.add(name, conf_of(name)))
    };
    let mut results = BTreeMap::from(["veth-a", "veth-b"].map(add));
    let veth_alone = scene.dump();
    results.extend(["netkit-a", "netkit-b"].map(add));
    let exchange_all = |names: &[&str]| {
        for (server, client) in
            names.iter().flat_map(|server| names.iter().map(move |client| (server, client)))
        {
            for index in (0..2).filter(|_| server != client) {
                let to: IpAddr = address(&results[server], index).parse().unwrap();
                scene.exchange(server, client, (to, 80).into());
            }
        }
    };
    exchange_all(&["veth-a", "veth-b", "netkit-a", "netkit-b"]);
    scene.succeed("DEL", "netkit-b", &netkit);
    exchange_all(&["veth-a", "veth-b", "netkit-a"]);
    for name in ["veth-a", "netkit-a"] {
        let checked = with(conf_of(name).clone(), "prevResult", results[name].clone());
        scene.succeed("CHECK", name, &checked);
    }
    scene.succeed("DEL", "netkit-a", &netkit);
    assert_eq!(scene.remove_unused().removed, ["other"]);
    veth_alone.assert_same(&scene.dump(), "without netkit");
    exchange_all(&["veth-a", "veth-b"]);
}

/// Both interfaces of a container in one network, as two annotations of one network ask for, are reached, CHECKed, and
/// go one without the other, the first one too.
#[track_caller]
fn check_two(attach: &str) {
    let Some(scene) = Scene::new() else { return };
    if !can_run(attach) {
        return;
    }
    let conf = conf(attach);
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    let neighbour = scene.add("b", &conf);
    let call = |verb: &str, ifname: &str, conf: &Value| {
        let netns = scene.netns("a");
        let variables =
            [("CNI_COMMAND", verb), ("CNI_CONTAINERID", "a"), ("CNI_NETNS", &*netns), ("CNI_IFNAME", ifname)];
        let reply = scene.call_with(&variables, conf);
        assert!(reply.is_success, "{verb} {ifname}: {:?}", reply.printed);
        reply.printed.unwrap_or_default()
    };
    let [first, second, third] = ["eth0", "net1", "net2"].map(|ifname| call("ADD", ifname, &conf));
    for result in [&first, &second, &third] {
        scene.assert_reaches("b", &address(result, 0));
        scene.assert_reaches("b", &address(result, 1));
    }
    for (ifname, result) in [("eth0", &first), ("net1", &second), ("net2", &third)] {
        call("CHECK", ifname, &with(conf.clone(), "prevResult", result.clone()));
    }
    call("DEL", "net1", &conf);
    let again = call("ADD", "net1", &conf);
    call("DEL", "eth0", &conf);
    call("CHECK", "net1", &with(conf.clone(), "prevResult", again.clone()));
    // By a route that is left.
    scene.assert_reaches("a", &address(&neighbour, 1));
    scene.assert_reaches("b", &address(&again, 0));
    scene.assert_reaches("b", &address(&third, 1));
    for ifname in ["net1", "net2"] {
        call("DEL", ifname, &conf);
    }
    assert_eq!(scene.reserved("pods"), 2);
}

#[test]
fn two_interfaces_on_a_bridge() {
    check_two("bridge");
}

#[test]
fn two_routed_interfaces() {
    check_two("ptp");
}

#[test]
fn two_neighbours_on_the_wire() {
    check_two("macvlan");
}

/// Programs drop what an interface sends from an address of another one.
#[test]
fn a_second_interface_that_would_not_be_reached_is_refused() {
    let Some(scene) = Scene::new() else { return };
    if !can_run("ebpf") {
        return;
    }
    let _ = scene.container("a");
    let conf = conf("ebpf");
    scene.add("a", &conf);
    let before = scene.dump();
    let netns = scene.netns("a");
    let second = |verb: &str| {
        let variables =
            [("CNI_COMMAND", verb), ("CNI_CONTAINERID", "a"), ("CNI_NETNS", &*netns), ("CNI_IFNAME", "net1")];
        scene.call_with(&variables, &conf)
    };
    let says = "container a is attached to pods by eth0 already; with ebpf net1 would not be reached";
    check_failure(&second("ADD"), 2, says);
    before.assert_same(&scene.dump(), "after a refusal");
    assert!(second("DEL").is_success);
    assert_eq!(scene.reserved("pods"), 2);
    scene.assert_reaches("a", "192.0.2.1");
}

#[test]
fn what_leaves_a_masqueraded_network_has_the_nodes_address() {
    let Some(scene) = Scene::new() else { return };
    let _ = scene.container("a");
    scene.add("a", &with(conf("bridge"), "masquerade", json!(true)));
    // The machine outside has no route to pods: an answer comes only if the node's address asked.
    scene.assert_reaches("a", "192.0.2.2");
    scene.assert_reaches("a", "2001:db8::2");
}

#[test]
fn many_come_at_once_and_go_in_any_order() {
    const CONTAINERS: usize = 200;
    let Some(scene) = Scene::new() else { return };
    let conf = conf("bridge");
    let names: Vec<String> = (0..CONTAINERS).map(|at| format!("c{at}")).collect();
    for name in names.iter().chain([&"first".to_owned()]) {
        let _ = scene.container(name);
    }
    let results: Vec<Value> = std::thread::scope(|scope| {
        let adding: Vec<_> = names.iter().map(|name| scope.spawn(|| scene.add(name, &conf))).collect();
        adding.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let addresses: BTreeSet<String> = results.iter().map(|result| address(result, 0)).collect();
    let ends: BTreeSet<&str> =
        results.iter().map(|result| result["interfaces"][0]["name"].as_str().unwrap()).collect();
    assert_eq!((addresses.len(), ends.len()), (CONTAINERS, CONTAINERS));
    scene.assert_reaches("c0", &address(&results[CONTAINERS - 1], 0));
    std::thread::scope(|scope| {
        for name in names.iter().rev() {
            scope.spawn(|| scene.succeed("DEL", name, &conf));
        }
    });
    assert_eq!(scene.reserved("pods"), 0);
    let links = testkit::shell(&format!("ip -n {} -br link", scene.world.name("node")));
    assert!(!links.contains("hgp"), "{links}");
}

#[test]
fn a_neighbour_on_the_wire_leaves_it_by_a_gateway_there() {
    let Some(scene) = Scene::new() else { return };
    // Behind the machine at the other end of the wire.
    let far = scene.world.name("far");
    let _ = testkit::shell(&format!(
        "ip -n {far} link set lo up; ip -n {far} addr add 198.51.100.1/32 dev lo
         ip -n {far} addr add 2001:db8:ffff::1/128 dev lo"
    ));
    let _ = scene.container("a");
    let conf = json!({
        "cniVersion": "1.1.0", "name": "pods", "type": "hostgap", "attach": "macvlan", "default_route": true,
        "ipam": { "type": "hostgap", "ranges": [
            [{ "subnet": "192.0.2.0/24", "rangeStart": "192.0.2.100", "gateway": "192.0.2.2" }],
            [{ "subnet": "2001:db8::/64", "rangeStart": "2001:db8::100", "gateway": "2001:db8::2" }],
        ] },
    });
    let result = scene.add("a", &conf);
    assert_eq!(result["ips"][0]["gateway"], "192.0.2.2");
    scene.assert_reaches("a", "198.51.100.1");
    scene.assert_reaches("a", "2001:db8:ffff::1");
    scene.succeed("DEL", "a", &conf);
}
