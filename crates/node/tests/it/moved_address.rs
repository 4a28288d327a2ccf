//! The node's address moves to another link while containers run: a card gets into a bridge or a bond, or the default
//! route comes after the first container. And the link to other nodes gets another MTU.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::net::{SocketAddr, UdpSocket};

use serde_json::{Value, json};
use testkit::shell;

use crate::scene::{PATIENCE, Scene, address, conf, with};

/// What an administrator does to put a card into a bridge, with another address of the same subnet on that.
const INTO_BRIDGE: &str = "ip -n NODE addr flush dev wire0 scope global; ip -n NODE -6 route del default
    ip -n NODE link add br0 up type bridge
    ip -n NODE link set wire0 master br0
    ip -n NODE addr add 192.0.2.77/24 dev br0; ip -n NODE addr add 2001:db8::77/64 dev br0 nodad
    ip -n NODE route add default via 192.0.2.2; ip -n NODE route add default via 2001:db8::2";
/// The machine has no network yet, and gets it.
const ADDRESSES_GO: &str = "ip -n NODE addr flush dev wire0 scope global";
const ADDRESSES_COME: &str = "ip -n NODE link set wire0 mtu 1420; ip -n NODE -6 route del default
    ip -n NODE addr add 192.0.2.1/24 dev wire0; ip -n NODE addr add 2001:db8::1/64 dev wire0 nodad
    ip -n NODE route add default via 192.0.2.2; ip -n NODE route add default via 2001:db8::2";

fn masquerading(attach: &str) -> Value {
    with(conf(attach), "masquerade", json!(true))
}

impl Scene {
    fn change_node(&self, commands: &str) {
        let _ = shell(&commands.replace("NODE", self.world.name("node").as_str()));
    }

    fn mtu_of(&self, container: &str) -> u32 {
        let netlink = linux::Netlink::open_in(&self.world.open(container)).unwrap();
        netlink.link(&"eth0".parse().unwrap()).unwrap().unwrap().mtu
    }
}

#[track_caller]
fn check_goes_on(attach: &str) {
    let Some(scene) = Scene::new() else { return };
    let conf = masquerading(attach);
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    let result = scene.add("a", &conf);
    scene.change_node(INTO_BRIDGE);
    assert!(scene.call_with(&[("CNI_COMMAND", "STATUS")], &conf).is_success);
    let b = scene.add("b", &conf);
    scene.succeed("CHECK", "a", &with(conf.clone(), "prevResult", result.clone()));
    for (index, far) in [(0, "192.0.2.2:80"), (1, "[2001:db8::2]:80")] {
        let (a, b) = (address(&result, index), address(&b, index));
        scene.exchange("b", "a", SocketAddr::new(b.parse().unwrap(), 80));
        scene.exchange("a", "b", SocketAddr::new(a.parse().unwrap(), 80));
        for name in ["a", "b"] {
            scene.exchange("far", name, far.parse().unwrap());
        }
    }
}

#[test]
fn containers_of_a_bridge_go_on() {
    check_goes_on("bridge");
}

#[test]
fn containers_of_ptp_go_on() {
    check_goes_on("ptp");
}

/// Before the node has its network, a container begins with the MTU of Ethernet.
#[track_caller]
fn check_wire_that_comes_later(attach: &str) {
    let Some(scene) = Scene::new() else { return };
    let conf = masquerading(attach);
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    scene.change_node(ADDRESSES_GO);
    scene.add("a", &conf);
    assert_eq!(scene.mtu_of("a"), 1500);
    scene.change_node(ADDRESSES_COME);
    scene.add("b", &conf);
    assert_eq!(scene.mtu_of("b"), 1420);
    scene.exchange("far", "b", "192.0.2.2:80".parse().unwrap());
}

#[test]
fn a_wire_that_comes_later_is_taken_by_ptp() {
    check_wire_that_comes_later("ptp");
}

/// Its bridge takes what is shorter than it was made for.
#[test]
fn a_wire_that_comes_later_is_taken_by_bridge() {
    check_wire_that_comes_later("bridge");
}

/// Such a link has no IPv6, and none of its parameters.
#[test]
fn an_mtu_too_small_for_ipv6_is_enough_for_ipv4() {
    for attach in ["bridge", "ptp"] {
        let Some(scene) = Scene::new() else { return };
        let ipam = json!({ "type": "hostgap", "ranges": [[{ "subnet": "10.244.1.0/24" }]] });
        let conf = with(with(conf(attach), "ipam", ipam), "mtu", json!(1200));
        let _ = scene.container("a");
        scene.add("a", &conf);
        assert_eq!(scene.mtu_of("a"), 1200, "{attach}");
        scene.succeed("DEL", "a", &conf);
    }
}

/// The wire takes jumbo frames while containers are attached. A bridge would drop what is longer for those that were
/// there before, without a word.
#[test]
fn containers_of_a_bridge_have_one_mtu() {
    let Some(scene) = Scene::new() else { return };
    let conf = conf("bridge");
    for name in ["a", "b", "c"] {
        let _ = scene.container(name);
    }
    let a = address(&scene.add("a", &conf), 0);
    scene.change_node("ip -n NODE link set wire0 mtu 9000");
    let b = address(&scene.add("b", &conf), 0);
    assert_eq!([scene.mtu_of("a"), scene.mtu_of("b")], [1500, 1500]);
    let datagram = [7; 4000];
    let receiver = scene.world.open("a").run(|| UdpSocket::bind((&*a, 700))).unwrap().unwrap();
    let sender = scene.world.open("b").run(|| UdpSocket::bind((&*b, 0))).unwrap().unwrap();
    sender.send_to(&datagram, (&*a, 700)).unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(receiver.recv(&mut [0; 5000]).unwrap(), datagram.len());
    for name in ["a", "b"] {
        scene.succeed("DEL", name, &conf);
    }
    // With none of them left it is made anew.
    scene.add("c", &conf);
    assert_eq!(scene.mtu_of("c"), 9000);
}

/// Links that are a container's own have the MTU of the wire, whenever they come.
#[test]
fn containers_of_ptp_have_that_of_the_wire() {
    let Some(scene) = Scene::new() else { return };
    let conf = conf("ptp");
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    scene.add("a", &conf);
    scene.change_node("ip -n NODE link set wire0 mtu 9000");
    scene.add("b", &conf);
    assert_eq!([scene.mtu_of("a"), scene.mtu_of("b")], [1500, 9000]);
}
