//! Containers that send from addresses of others, with and without `anti_spoofing`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;

use datapath::Family;
use linux::cpu;
use serde_json::{Value, json};
use testkit::{shell, skip};

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

/// The first datagram that arrives at an address of `b`, of one that `a` sends from an address that it was not given
/// and one from its own, in this order.
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

/// The node's programs lack the pin of one, as those of a version that did not have it. The next ADD brings it, and
/// what the others know of the containers that run stays.
#[track_caller]
fn check_renewed(conf: &Value, pin: &str) {
    let Some(scene) = Scene::new() else { return };
    if !can_run(conf["attach"].as_str().unwrap()) {
        return;
    }
    let addresses = strangers(&scene, conf);
    let (folder, journal) = (fs::read_dir(PINS).unwrap().next().unwrap(), scene.journal_of_network("pods"));
    let pin = folder.unwrap().path().join(pin);
    fs::remove_file(&pin).unwrap();
    let _ = scene.container("c");
    let c = scene.add("c", conf);
    assert!(pin.exists());
    for to in addresses {
        assert_eq!(first_to_arrive(&scene, to), b"own", "{conf}, {to}");
    }
    scene.assert_reaches("a", &address(&c, 0));
    assert!(scene.journal_of_network("pods") == journal, "the journal grows");
    for name in ["a", "b", "c"] {
        scene.succeed("DEL", name, conf);
    }
    assert_eq!(scene.remove_unused().removed, ["pods"]);
    assert_eq!(fs::read_dir(PINS).map_or(0, Iterator::count), 0, "pins are left");
}

#[test]
fn programs_of_which_one_is_missing_keep_their_containers() {
    check_renewed(&conf("ebpf"), "from_tunnel");
}

#[test]
fn a_check_without_its_pin_keeps_its_containers() {
    check_renewed(&with(conf("bridge"), "anti_spoofing", json!("tcx")), "guard");
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

/// A network of IPv4 whose containers may send what they like. The node's links that are named
/// so, with their `accept_ra`.
fn taking_routers(scene: &Scene, attach: &str, bridge: Option<&str>, links: &str) -> Vec<String> {
    let _ = scene.container("a");
    let mut conf = with(conf(attach), "anti_spoofing", json!(false));
    conf["ipam"]["ranges"].as_array_mut().unwrap().pop();
    if let Some(bridge) = bridge {
        conf["bridge"] = json!(bridge);
    }
    let before = scene.dump();
    let result = scene.add("a", &conf);
    let node = scene.world.name("node");
    let read = format!("ip netns exec {node} sh -c 'grep -H . /proc/sys/net/ipv6/conf/{links}/accept_ra'");
    let values = shell(&read).lines().map(|line| line.rsplit(':').next().unwrap().to_owned()).collect();
    scene.succeed("CHECK", "a", &with(conf.clone(), "prevResult", result));
    scene.succeed("DEL", "a", &conf);
    let _ = scene.remove_unused();
    before.assert_same(&scene.dump(), "without the network");
    values
}

/// A node that does not forward IPv6 takes a default route from whoever says that it is a router, and a
/// container may say so.
#[test]
fn a_node_takes_no_container_for_a_router() {
    for (attach, bridge, links) in
        [("ptp", None, "hgp*"), ("bridge", None, "hgbr*"), ("bridge", Some("cni0"), "cni0")]
    {
        let Some(scene) = Scene::of(&[Family::V4]) else { return };
        if !Path::new("/proc/sys/net/ipv6").exists() {
            return skip("no IPv6");
        }
        assert_eq!(taking_routers(&scene, attach, bridge, links), ["0"], "{attach} {bridge:?}");
    }
}

/// By a bridge of its own a node may have its own default route.
#[test]
fn a_bridge_of_the_machine_takes_routers_as_before() {
    let Some(scene) = Scene::of(&[Family::V4]) else { return };
    if !Path::new("/proc/sys/net/ipv6").exists() {
        return skip("no IPv6");
    }
    let node = scene.world.name("node");
    let _ = shell(&format!(
        "ip -n {node} link add br0 address 52:54:00:12:34:56 type bridge; ip -n {node} link set br0 addrgenmode none up"
    ));
    assert_eq!(taking_routers(&scene, "bridge", Some("br0"), "br0"), ["1"]);
}
