//! A container's neighbours learn at once that an address has another Ethernet address now.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::net::IpAddr;
use std::time::{Duration, Instant};

use linux::{Mac, Netlink};
use serde_json::{Value, json};
use testkit::shell;

use crate::attachments::can_run;
use crate::scene::{PATIENCE, Scene, conf, with};

const ADDRESSES: [&str; 2] = ["10.244.1.77", "fd00:244:0:1::77"];

/// The Ethernet address of the container's end in a result.
fn mac_of(result: &Value) -> Mac {
    let interfaces = result["interfaces"].as_array().unwrap();
    let inside = interfaces.iter().find(|interface| interface["sandbox"].is_string()).unwrap();
    inside["mac"].as_str().unwrap().parse().unwrap()
}

impl Scene {
    fn mac_known_to(&self, neighbour: &str, address: IpAddr) -> Option<Mac> {
        let netlink = Netlink::open_in(&self.world.open(neighbour)).unwrap();
        let entries = netlink.neighbours().unwrap();
        entries.into_iter().find(|entry| entry.ip == address && !entry.proxy).and_then(|entry| entry.mac)
    }
}

/// One container after another has the same addresses. Who knew the first one sends nothing that would
/// show where they are.
#[track_caller]
fn check(attach: &str, neighbour: &str) {
    let Some(scene) = Scene::new().filter(|_| can_run(attach)) else { return };
    let far = scene.world.name("far");
    let _ = shell(&format!(
        "ip -n {far} addr add 10.244.1.200/24 dev wire1
         ip -n {far} addr add fd00:244:0:1::c8/64 dev wire1 nodad"
    ));
    for name in ["other", "first", "second"] {
        let _ = scene.container(name);
    }
    // A bridge without a port has no neighbours.
    scene.add("other", &conf(attach));
    let conf = with(conf(attach), "runtimeConfig", json!({ "ips": ADDRESSES }));
    let first = mac_of(&scene.add("first", &conf));
    for address in ADDRESSES {
        scene.assert_reaches(neighbour, address);
        assert_eq!(scene.mac_known_to(neighbour, address.parse().unwrap()), Some(first));
    }
    scene.succeed("DEL", "first", &conf);
    let second = mac_of(&scene.add("second", &conf));
    assert_ne!(first, second);
    let deadline = Instant::now() + PATIENCE;
    for address in ADDRESSES {
        let known = || scene.mac_known_to(neighbour, address.parse().unwrap());
        // An entry that is gone is asked for when it is needed.
        while known() == Some(first) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_ne!(known(), Some(first), "{address}");
    }
}

#[test]
fn of_macvlan_to_machines_on_the_wire() {
    check("macvlan", "far");
}

#[test]
fn of_a_bridge_to_the_node() {
    check("bridge", "node");
}
