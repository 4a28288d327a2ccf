//! What a runtime asks for one container, and what a network does on a node that changes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::thread;

use linux::cpu;
use serde_json::{Value, json};
use testkit::shell;

use crate::scene::{PATIENCE, Scene, address, conf, connect, with};

/// A configuration with what the runtime offers for capabilities.
fn asking(attach: &str, runtime: Value) -> Value {
    with(conf(attach), "runtimeConfig", runtime)
}

#[test]
fn addresses_that_are_asked_for_are_given() {
    let Some(scene) = Scene::new() else { return };
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    let wanted = json!({
        "ips": ["10.244.1.77/24", "fd00:244:0:1::77"], "mac": "02:00:00:00:00:77",
        "dns": { "servers": ["10.96.0.10"] },
    });
    let result = scene.add("a", &asking("bridge", wanted.clone()));
    assert_eq!([0, 1].map(|index| address(&result, index)), ["10.244.1.77", "fd00:244:0:1::77"]);
    assert_eq!(result["interfaces"][1]["mac"], "02:00:00:00:00:77");
    assert_eq!(result["dns"]["nameservers"], json!(["10.96.0.10"]));
    let other = scene.add("b", &conf("bridge"));
    scene.assert_reaches("b", "10.244.1.77");
    scene.assert_reaches("a", &address(&other, 1));
    let _ = scene.container("c");
    scene.fail("ADD", "c", &asking("bridge", wanted), 11, "10.244.1.77");
    scene.fail("ADD", "c", &asking("bridge", json!({ "ips": ["10.9.9.9"] })), 7, "10.9.9.9");
}

/// The machine outside, the node, a neighbour and the container itself reach what it publishes; the ports go with it.
#[track_caller]
fn publishes(attach: &str) {
    let Some(scene) = Scene::new() else { return };
    for name in ["first", "a", "b"] {
        let _ = scene.container(name);
    }
    // So that the tables alone keep a container from the node's loopback.
    let unchecked = with(conf(attach), "anti_spoofing", json!(false));
    scene.add("first", &unchecked);
    let before = scene.dump();
    let ports = json!({ "portMappings": [
        { "hostPort": 8080, "containerPort": 80, "protocol": "tcp" },
        { "hostPort": 8081, "containerPort": 80, "protocol": "tcp", "hostIP": "192.0.2.1" },
        { "hostPort": 8082, "containerPort": 80, "protocol": "tcp", "hostIP": "127.0.0.1" },
        { "hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": "127.0.0.1" },
    ] });
    let conf = with(unchecked.clone(), "runtimeConfig", ports);
    let result = scene.add("a", &conf);
    for client in ["far", "node", "first", "a"] {
        for to in ["192.0.2.1:8080", "[2001:db8::1]:8080", "192.0.2.1:8081"] {
            scene.exchange("a", client, to.parse().unwrap());
        }
    }
    for to in ["127.0.0.1:8080", "127.0.0.1:8082"] {
        scene.exchange("a", "node", to.parse().unwrap());
    }
    let refused = scene.world.open("far").run(|| connect("[2001:db8::1]:8081".parse().unwrap())).unwrap();
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    scene.succeed("CHECK", "a", &with(conf.clone(), "prevResult", result.clone()));
    assert_loopback_is_closed(&scene, "a", &result);
    // Another container cannot have the port, and nothing of it stays.
    scene.fail("ADD", "b", &conf, 100, "is there already");
    scene.exchange("a", "far", "192.0.2.1:8080".parse().unwrap());
    scene.succeed("DEL", "a", &conf);
    before.assert_same(&scene.dump(), "after DEL");
    scene.add("b", &conf);
    scene.exchange("b", "far", "192.0.2.1:8080".parse().unwrap());
    // Of two containers with ports one goes.
    let ports = json!({ "portMappings": [{ "hostPort": 8090, "containerPort": 80, "protocol": "tcp" }] });
    let other = with(unchecked, "runtimeConfig", ports);
    let _ = scene.container("c");
    scene.add("c", &other);
    scene.succeed("DEL", "c", &other);
    scene.exchange("b", "node", "127.0.0.1:8080".parse().unwrap());
}

/// What a container sends by its gateway to the node's 127.0.0.1, or as if it came from there, does not arrive.
#[track_caller]
fn assert_loopback_is_closed(scene: &Scene, container: &str, result: &Value) {
    let gateway = result["ips"][0]["gateway"].as_str().unwrap();
    let name = scene.world.name(container);
    shell(&format!(
        "ip -n {name} route del table local local 127.0.0.1 dev lo
         ip -n {name} route del table local local 127.0.0.0/8 dev lo
         ip netns exec {name} sh -c 'echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet'
         ip -n {name} addr add 127.0.0.2/32 dev eth0
         ip -n {name} route add 127.0.0.0/8 via {gateway} dev eth0 onlink"
    ));
    let bind = |at: &str| scene.world.open("node").run(|| UdpSocket::bind(at)).unwrap().unwrap();
    let (own, open) = (bind("127.0.0.1:7001"), bind("192.0.2.1:7001"));
    // On one CPU, so that they arrive in this order.
    let send = || {
        cpu::pin_current_thread(&cpu::allowed().unwrap().iter().take(1).collect()).unwrap();
        let [any, posing] = ["0.0.0.0:0", "127.0.0.2:0"].map(|from| UdpSocket::bind(from).unwrap());
        any.send_to(b"to loopback", "127.0.0.1:7001").unwrap();
        posing.send_to(b"from loopback", "192.0.2.1:7001").unwrap();
        any.send_to(b"open", "192.0.2.1:7001").unwrap();
    };
    scene.world.open(container).run(|| thread::scope(|scope| scope.spawn(send).join().unwrap())).unwrap();
    open.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = [0; 16];
    let length = open.recv(&mut bytes).unwrap();
    assert_eq!(&bytes[..length], b"open");
    own.set_nonblocking(true).unwrap();
    assert_eq!(own.recv(&mut bytes).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_bridge_publishes_ports() {
    publishes("bridge");
}

#[test]
fn routed_links_publish_ports() {
    publishes("ptp");
}

#[test]
fn parameters_are_set_in_the_container_alone() {
    let Some(scene) = Scene::new() else { return };
    let _ = scene.container("a");
    let sysctl = json!({ "net.core.somaxconn": "517", "net.ipv4.conf.IFNAME.arp_filter": 1 });
    let conf = with(conf("ptp"), "sysctl", sysctl);
    let read = |name: &str, key: &str| {
        let read = || linux::sysctl::read(&linux::sysctl::Key::new(key).unwrap());
        scene.world.open(name).run(read).unwrap().unwrap().unwrap()
    };
    let before = read("node", "net/core/somaxconn");
    scene.add("a", &conf);
    assert_eq!(read("a", "net/core/somaxconn"), "517");
    assert_eq!(read("a", "net/ipv4/conf/eth0/arp_filter"), "1");
    assert_eq!(read("node", "net/core/somaxconn"), before);
    scene.succeed("DEL", "a", &conf);
    let unknown = with(conf, "sysctl", json!({ "net.core.no_such": "1" }));
    scene.fail("ADD", "a", &unknown, 100, "no_such");
}

/// The node's number and wire are those with which the network began.
#[test]
fn a_network_outlives_the_node_s_default_route_and_address() {
    let Some(scene) = Scene::new() else { return };
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    let conf = conf("ebpf");
    let a = scene.add("a", &conf);
    let node = scene.world.name("node");
    let _ = shell(&format!(
        "ip -n {node} link add wire2 type veth peer name wire3; ip -n {node} link set wire2 up
         ip -n {node} link set wire3 up; ip -n {node} addr add 203.0.113.9/24 dev wire2
         ip -n {node} route replace default via 203.0.113.1; ip -n {node} addr add 192.0.2.77/24 dev wire0
         ip -n {node} addr del 192.0.2.1/24 dev wire0"
    ));
    let b = scene.add("b", &conf);
    for index in 0..2 {
        scene.assert_reaches("a", &address(&b, index));
        scene.assert_reaches("b", &address(&a, index));
    }
}

#[test]
fn a_node_without_other_nodes_connects_its_containers() {
    let Some(scene) = Scene::new() else { return };
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    let _ = shell(&format!("ip -n {} link del wire0", scene.world.name("node")));
    for attach in ["bridge", "ptp"] {
        let conf = with(conf(attach), "name", json!(attach));
        let [a, b] = ["a", "b"].map(|name| scene.add(name, &conf));
        scene.assert_reaches("a", &address(&b, 0));
        scene.assert_reaches("b", &address(&a, 1));
        for name in ["a", "b"] {
            scene.succeed("DEL", name, &conf);
        }
    }
    scene.fail("ADD", "a", &conf("macvlan"), 7, "no default route");
}
