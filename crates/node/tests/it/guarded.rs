//! Containers that send from addresses of others, with and without `anti_spoofing`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use linux::cpu;
use serde_json::{Value, json};
use testkit::shell;

use crate::attachments::can_run;
use crate::scene::{PATIENCE, Scene, address, check_failure, conf, with};

/// Where the programs of nodes are pinned.
const PINS: &str = "/run/hostgap-bpf";

/// Two containers, `a` and `b`, of which `a` has given itself an address more in each family; the addresses of `b`.
fn strangers(scene: &Scene, conf: &Value) -> [IpAddr; 2] {
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    scene.add("a", conf);
    let b = scene.add("b", conf);
    let addresses = [0, 1].map(|family| address(&b, family));
    for to in &addresses {
        // Ethernet addresses are known from here on: who asks for one would do so from the wrong address.
        scene.assert_reaches("a", to);
    }
    // Deprecated: it is no packet's source unless a socket has it.
    let a = scene.world.name("a");
    let _ = shell(&format!(
        "ip -n {a} addr add 10.244.1.99/32 dev eth0
         ip -n {a} addr add fd00:244:0:1::99/128 dev eth0 nodad preferred_lft 0"
    ));
    addresses.map(|to| to.parse().unwrap())
}

/// The first datagram that arrives at an address of `b`, of one that `a` sends from an address that it was not given and
/// one from its own, in this order.
pub(crate) fn first_to_arrive(scene: &Scene, to: IpAddr) -> Vec<u8> {
    let server = scene.world.open("b").run(|| UdpSocket::bind(SocketAddr::new(to, 0))).unwrap().unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let there = server.local_addr().unwrap();
    let foreign: IpAddr = if to.is_ipv4() { "10.244.1.99" } else { "fd00:244:0:1::99" }.parse().unwrap();
    let any: IpAddr = if to.is_ipv4() { "0.0.0.0" } else { "::" }.parse().unwrap();
    let send = || {
        // Packets from one CPU stay in order.
        cpu::pin_current_thread(&cpu::allowed().unwrap().iter().take(1).collect()).unwrap();
        for (from, what) in [(foreign, "foreign"), (any, "own")] {
            let socket = UdpSocket::bind(SocketAddr::new(from, 0)).unwrap();
            // Connected: the route's own source is taken, and not the newest address.
            socket.connect(there).unwrap();
            let _ = socket.send(what.as_bytes()).unwrap();
        }
    };
    scene.world.open("a").run(send).unwrap();
    let mut bytes = [0; 16];
    let (length, _) = server.recv_from(&mut bytes).unwrap();
    bytes[..length].to_vec()
}

/// By a filter, and by tcx where the kernel has it.
#[track_caller]
fn check(attach: &str) {
    for conf in [conf(attach), with(conf(attach), "anti_spoofing", json!("tcx"))] {
        let Some(scene) = Scene::new() else { return };
        if !can_run(attach) {
            return;
        }
        for to in strangers(&scene, &conf) {
            assert_eq!(first_to_arrive(&scene, to), b"own", "{conf}, {to}");
        }
        for name in ["a", "b"] {
            scene.succeed("DEL", name, &conf);
        }
        assert_eq!(scene.remove_unused().removed, ["pods"]);
        let pinned = fs::read_dir(PINS).map_or(0, Iterator::count);
        assert_eq!(pinned, 0, "{conf}: pins are left");
    }
}

#[test]
fn a_container_of_a_bridge_sends_from_its_own_addresses() {
    check("bridge");
}

#[test]
fn a_routed_container_sends_from_its_own_addresses() {
    check("ptp");
}

/// As under the other plugins' names, unless one asks for it.
#[test]
fn without_the_check_it_sends_from_any() {
    let Some(scene) = Scene::new() else { return };
    for to in strangers(&scene, &with(conf("bridge"), "anti_spoofing", json!(false))) {
        assert_eq!(first_to_arrive(&scene, to), b"foreign", "{to}");
    }
    assert!(!fs::exists(PINS).unwrap(), "nothing is loaded");
}

#[test]
fn a_program_that_cannot_be_loaded_has_a_remedy() {
    let Some(scene) = Scene::new() else { return };
    let _ = scene.container("a");
    let before = scene.dump();
    // Where it would be pinned is taken.
    scene.add("a", &conf("bridge"));
    let taken = fs::read_dir(PINS).unwrap().next().unwrap().unwrap().path();
    scene.succeed("DEL", "a", &conf("bridge"));
    assert_eq!(scene.remove_unused().removed, ["pods"]);
    fs::create_dir_all(&taken).unwrap();
    let reply = scene.call("ADD", "a", &conf("bridge"));
    check_failure(&reply, 100, "hostgap bpf guard host-");
    let details = reply.printed.unwrap()["details"].clone();
    assert!(details.as_str().unwrap().contains("`\"anti_spoofing\": false`"), "{details}");
    before.assert_same(&scene.dump(), "after a refusal");
    scene.add("a", &with(conf("bridge"), "anti_spoofing", json!(false)));
    fs::remove_dir(&taken).unwrap();
    fs::remove_dir(PINS).unwrap();
}
