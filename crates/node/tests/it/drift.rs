//! What containers share is made again when another program has taken it away.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::net::SocketAddr;

use serde_json::{Value, json};
use testkit::{Dump, shell};

use crate::scene::{Scene, address, check_failure, conf, with, works};

/// What the firewall of most systems begins with when it is started again.
const FLUSH: &str = "ip netns exec NODE nft flush ruleset";
/// What a profile for hardening sets.
const NO_FORWARDING: &str =
    "ip netns exec NODE sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0";

impl Scene {
    fn on_node(&self, command: &str) -> String {
        shell(&command.replace("NODE", self.world.name("node").as_str()))
    }

    /// Both are translated and forwarded on their way out: the machine there knows no way to them.
    #[track_caller]
    fn assert_reaches_far(&self, container: &str) {
        for to in ["192.0.2.2:80", "[2001:db8::2]:80"] {
            self.exchange("far", container, to.parse::<SocketAddr>().unwrap());
        }
    }

    /// The containers and then the network go, and the node is as before them.
    #[track_caller]
    fn assert_goes_without_a_trace(&self, containers: &[&str], conf: &Value, before: &Dump) {
        for name in containers {
            self.succeed("DEL", name, conf);
        }
        assert_eq!(self.remove_unused().removed, ["pods"]);
        before.assert_same(&self.dump(), "without the network");
    }

    /// The name of the network's bridge.
    fn bridge(&self) -> String {
        let shown = self.on_node("ip -n NODE -o link show type bridge");
        shown.split(": ").nth(1).unwrap().to_owned()
    }
}

fn masquerading(attach: &str) -> Value {
    with(conf(attach), "masquerade", json!(true))
}

#[track_caller]
fn check_next_add_mends(attach: &str, damage: &str) {
    let Some(scene) = Scene::new() else { return };
    let conf = masquerading(attach);
    for name in ["a", "b", "c"] {
        let _ = scene.container(name);
    }
    let before = scene.dump();
    let result = scene.add("a", &conf);
    let journal = scene.journal_of_network("pods");
    scene.assert_reaches_far("a");
    scene.on_node(damage);
    scene.add("b", &conf);
    for name in ["a", "b"] {
        scene.assert_reaches_far(name);
    }
    scene.succeed("CHECK", "a", &with(conf.clone(), "prevResult", result));
    // It has happened for months, and there is no more to read than at first.
    scene.on_node(damage);
    scene.add("c", &conf);
    assert!(scene.journal_of_network("pods") == journal, "the journal grows");
    scene.assert_goes_without_a_trace(&["a", "b", "c"], &conf, &before);
}

#[test]
fn rules_that_were_flushed_are_made_again_with_bridge() {
    check_next_add_mends("bridge", FLUSH);
}

#[test]
fn rules_that_were_flushed_are_made_again_with_ptp() {
    check_next_add_mends("ptp", FLUSH);
}

#[test]
fn forwarding_is_set_again() {
    check_next_add_mends("ptp", NO_FORWARDING);
}

/// One that was there before the network belongs to it when it is made again, and goes with it.
#[test]
fn a_bridge_that_was_found_and_deleted_is_made_again() {
    let Some(scene) = Scene::new() else { return };
    let conf = with(conf("bridge"), "bridge", json!("br9"));
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    let before = scene.dump();
    scene.on_node("ip -n NODE link add br9 type bridge");
    scene.on_node("ip -n NODE link set br9 up");
    scene.add("a", &conf);
    scene.on_node("ip -n NODE link del br9");
    scene.add("b", &conf);
    assert!(
        scene.on_node("ip -n NODE -o address show dev br9").contains("inet "),
        "it has a gateway's address"
    );
    scene.assert_goes_without_a_trace(&["a", "b"], &conf, &before);
}

/// Containers of before lose their ports of the bridge with it; those that come have one.
#[test]
fn a_bridge_that_was_deleted_is_made_again() {
    let Some(scene) = Scene::new() else { return };
    let conf = masquerading("bridge");
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    let before = scene.dump();
    scene.add("a", &conf);
    scene.on_node(&format!("ip -n NODE link del {}", scene.bridge()));
    scene.add("b", &conf);
    scene.assert_reaches_far("b");
    scene.assert_goes_without_a_trace(&["a", "b"], &conf, &before);
}

/// A link that is there is not made anew under the containers that hang on it.
#[test]
fn a_bridge_with_another_ethernet_address_stays() {
    let Some(scene) = Scene::new() else { return };
    let conf = masquerading("bridge");
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    let a = address(&scene.add("a", &conf), 0);
    let bridge = scene.bridge();
    scene.on_node(&format!("ip -n NODE link set {bridge} address 02:00:00:00:00:77"));
    scene.on_node(FLUSH);
    scene.add("b", &conf);
    assert!(scene.on_node(&format!("ip -n NODE link show {bridge}")).contains("02:00:00:00:00:77"));
    scene.exchange("a", "b", SocketAddr::new(a.parse().unwrap(), 80));
}

/// A runtime asks every few seconds, so that containers need not wait for the next one.
#[test]
fn status_makes_it_again_and_says_so() {
    let Some(scene) = Scene::new() else { return };
    let conf = masquerading("ptp");
    let status = || scene.call_with(&[("CNI_COMMAND", "STATUS")], &conf);
    let _ = scene.container("a");
    assert!(status().is_success && status().left.is_empty());
    scene.add("a", &conf);
    assert!(status().left.is_empty());
    scene.on_node(FLUSH);
    let reply = status();
    assert!(reply.is_success, "{reply:?}");
    assert!(reply.left[0].contains("nftables table ip hg-border-"), "{reply:?}");
    scene.assert_reaches_far("a");
    assert!(status().left.is_empty());
}

/// What cannot be made again is named, by STATUS and by ADD.
#[test]
fn what_cannot_be_made_again_is_named() {
    let Some(scene) = Scene::new() else { return };
    let conf = masquerading("bridge");
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    scene.add("a", &conf);
    // A card of another program has the name.
    let bridge = scene.bridge();
    scene.on_node(&format!("ip -n NODE link del {bridge}; ip -n NODE link add {bridge} type veth"));
    let reply = scene.call_with(&[("CNI_COMMAND", "STATUS")], &conf);
    check_failure(&reply, 51, &bridge);
    check_failure(&scene.call("ADD", "b", &conf), 100, &bridge);
    scene.on_node(&format!("ip -n NODE link del {bridge}"));
    works(scene.call("ADD", "b", &conf));
}
