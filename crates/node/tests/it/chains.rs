//! Our plugin in a list with those of the CNI project, and with some that fail.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::process::Child;
use std::time::{Duration, Instant};

use cni::AddResult;
use serde_json::{Value, json};
use testkit::{Dump, has_redirects, run, shell};

use crate::chain::{Chain, has_debians};
use crate::limits::bandwidth as bandwidth_of;
use crate::scene::{PATIENCE, Scene, address, conf, connect, with};

/// Our part of a list, behind which packets leave the node.
fn own(attach: &str) -> Value {
    with(conf(attach), "masquerade", json!(true))
}

/// The other plugin needs the ingress qdisc of the link.
fn beside_bandwidth(attach: &str) -> Value {
    with(own(attach), "anti_spoofing", json!("tcx"))
}

fn portmap() -> Value {
    json!({ "type": "portmap", "snat": true, "capabilities": { "portMappings": true } })
}

fn ports() -> Value {
    json!({ "portMappings": [{ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" }] })
}

/// A rate that no test reaches, so that no transfer waits for it.
fn bandwidth() -> Value {
    let (rate, burst) = (1_000_000_000_u64, 1_000_000_000_u64);
    json!({
        "type": "bandwidth", "ingressRate": rate, "ingressBurst": burst, "egressRate": rate, "egressBurst": burst,
    })
}

fn tuning() -> Value {
    json!({ "type": "tuning", "sysctl": { "net.core.somaxconn": "517" }, "mtu": 1400 })
}

/// The scene with containers, and what a chain's first use leaves on the node: our network, and chains of iptables.
fn used(chain: &Chain<'_>, scene: &Scene) -> Dump {
    let first = chain.add("first");
    chain.del("first", Some(&first));
    scene.dump()
}

/// However DEL comes, nothing of a container stays: with its result, once more, and when its namespace is gone.
#[track_caller]
fn goes(chain: &Chain<'_>, scene: &Scene, before: &Dump, result: &AddResult) {
    for _ in 0..2 {
        chain.del("a", Some(result));
        before.assert_same(&scene.dump(), "after DEL");
    }
    let result = chain.add("a");
    linux::netns::delete(&scene.world.name("a")).unwrap();
    for _ in 0..2 {
        chain.del("a", Some(&result));
    }
    // Links that were in the namespace alone go when the kernel comes to it.
    let deadline = Instant::now() + PATIENCE;
    while !before.diff(&scene.dump()).is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
    before.assert_same(&scene.dump(), "after DEL without a namespace");
    assert_eq!(scene.reserved("pods"), 0);
}

/// When our network goes as well, the node is as it was but for a table of iptables, with the chains that another
/// plugin keeps there for its next container.
#[track_caller]
fn leaves_only(table: &str, untouched: &Dump, scene: &Scene) {
    assert_eq!(scene.remove_unused().removed, ["pods"]);
    for line in untouched.diff(&scene.dump()) {
        assert!(line.starts_with("+ nft ") && line.contains(&format!("\"{table}\"")), "{line}");
    }
}

/// The machine outside, the node and a neighbour reach a port that portmap publishes.
#[track_caller]
fn portmap_publishes(attach: &str) {
    let Some(scene) = Scene::new().filter(|_| has_debians()) else { return };
    for name in ["first", "a", "b"] {
        let _ = scene.container(name);
    }
    let untouched = scene.dump();
    let chain = Chain::new(&scene, &[own(attach), portmap()], &ports());
    let before = used(&chain, &scene);
    let result = chain.add("a");
    scene.add("b", &own(attach));
    for client in ["far", "node", "b"] {
        for to in ["192.0.2.1:8080", "[2001:db8::1]:8080"] {
            scene.exchange("a", client, to.parse().unwrap());
        }
    }
    // Of a container in both families portmap 1.1.1 looks for the rules of one in the tables of the other.
    chain.check_without("portmap", "a", &result);
    scene.succeed("DEL", "b", &own(attach));
    goes(&chain, &scene, &before, &result);
    let to: SocketAddr = "192.0.2.1:8080".parse().unwrap();
    let refused = scene.world.open("far").run(|| connect(to)).unwrap().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    leaves_only("nat", &untouched, &scene);
}

#[test]
fn portmap_publishes_ports_of_a_bridge() {
    portmap_publishes("bridge");
}

#[test]
fn portmap_publishes_ports_of_routed_links() {
    portmap_publishes("ptp");
}

/// What a link of a container is like, as `ip` says it.
fn link(scene: &Scene, container: &str) -> Value {
    let text = shell(&format!("ip -n {} -j link show eth0", scene.world.name(container)));
    serde_json::from_str::<Value>(&text).unwrap()[0].clone()
}

/// Where neighbours ask for Ethernet addresses, `tuning` may change a container's own.
#[track_caller]
fn tuning_holds(own: &Value, asked: &Value) {
    let Some(scene) = Scene::new().filter(|_| has_debians()) else { return };
    for name in ["first", "a", "b"] {
        let _ = scene.container(name);
    }
    let tuning = with(tuning(), "mac", json!("02:00:00:00:00:77"));
    let chain = Chain::new(&scene, &[own.clone(), tuning], asked);
    let before = used(&chain, &scene);
    let result = chain.add("a");
    let eth0 = link(&scene, "a");
    assert_eq!((&eth0["mtu"], &eth0["address"]), (&json!(1400), &json!("02:00:00:00:00:77")));
    let somaxconn = run(&scene.world.open("a"), "cat", &["/proc/sys/net/core/somaxconn"]);
    assert_eq!(somaxconn, "517\n");
    scene.add("b", own);
    let a = address(&Value::from(result.as_json().clone()), 0);
    scene.exchange("a", "b", SocketAddr::new(a.parse().unwrap(), 80));
    chain.check("a", &result);
    scene.succeed("DEL", "b", own);
    goes(&chain, &scene, &before, &result);
}

#[test]
fn what_tuning_sets_holds_in_a_container_of_a_bridge() {
    // Else what the container sends with another Ethernet address is dropped.
    tuning_holds(&with(own("bridge"), "anti_spoofing", json!(false)), &json!({}));
}

#[test]
fn what_tuning_sets_holds_in_a_container_on_the_wire() {
    tuning_holds(&conf("macvlan"), &json!({}));
}

/// What the container receives goes by a link of ours, with an MTU of its own; `tuning` sets neither there.
#[test]
fn what_tuning_sets_holds_where_rates_are_limited_in_the_container() {
    if !has_redirects() {
        return;
    }
    let own = with(conf("macvlan"), "capabilities", json!({ "bandwidth": true }));
    let both = bandwidth_of(&["ingress", "egress"]);
    tuning_holds(&own, &json!({ "bandwidth": both }));
}

/// Packets that the queueing discipline of a link has sent.
fn sent(scene: &Scene, link: &str) -> u64 {
    let text = run(&scene.world.open("node"), "tc", &["-s", "-j", "qdisc", "show", "dev", link]);
    let all: Value = serde_json::from_str(&text).unwrap();
    let tbf = all.as_array().unwrap().iter().find(|qdisc| qdisc["kind"] == "tbf");
    tbf.unwrap_or_else(|| panic!("{link} has no tbf: {all}"))["packets"].as_u64().unwrap()
}

/// What the container sends and what it gets go through a bucket each.
#[track_caller]
fn bandwidth_limits(attach: &str) {
    let Some(scene) = Scene::new().filter(|_| has_debians()) else { return };
    for name in ["first", "a"] {
        let _ = scene.container(name);
    }
    let chain = Chain::new(&scene, &[beside_bandwidth(attach), bandwidth()], &json!({}));
    let before = used(&chain, &scene);
    let result = chain.add("a");
    let interfaces = result.as_json()["interfaces"].as_array().unwrap().clone();
    let names: Vec<&str> = interfaces.iter().map(|interface| interface["name"].as_str().unwrap()).collect();
    let end = names.iter().find(|name| name.starts_with("hgp")).unwrap();
    let other = names.iter().find(|name| name.starts_with("bwp")).unwrap();
    let count = || [sent(&scene, end), sent(&scene, other)];
    let first = count();
    scene.assert_reaches("a", "192.0.2.2");
    let then = count();
    assert!(first[0] < then[0] && first[1] < then[1], "{first:?}, then {then:?}");
    chain.check("a", &result);
    goes(&chain, &scene, &before, &result);
}

#[test]
fn bandwidth_limits_ports_of_a_bridge() {
    bandwidth_limits("bridge");
}

#[test]
fn bandwidth_limits_routed_links() {
    bandwidth_limits("ptp");
}

/// The node forwards nothing but what the plugin `firewall` lets pass.
#[test]
fn firewall_lets_a_container_pass() {
    let Some(scene) = Scene::new().filter(|_| has_debians()) else { return };
    let node = scene.world.open("node");
    for (program, with) in [("iptables", "icmp-host-prohibited"), ("ip6tables", "icmp6-adm-prohibited")] {
        let _ = run(&node, program, &["-A", "FORWARD", "-j", "REJECT", "--reject-with", with]);
    }
    for name in ["first", "a", "b"] {
        let _ = scene.container(name);
    }
    let chain = Chain::new(&scene, &[own("ptp"), json!({ "type": "firewall" })], &json!({}));
    let before = used(&chain, &scene);
    let result = chain.add("a");
    scene.add("b", &own("ptp"));
    for far in ["192.0.2.2", "2001:db8::2"] {
        scene.assert_reaches("a", far);
        let to = SocketAddr::new(far.parse().unwrap(), 9);
        let rejected = scene.world.open("b").run(|| connect(to)).unwrap().unwrap_err();
        assert_ne!(rejected.kind(), ErrorKind::ConnectionRefused, "{far}");
        assert_ne!(rejected.kind(), ErrorKind::TimedOut, "{far}");
    }
    chain.check("a", &result);
    scene.succeed("DEL", "b", &own("ptp"));
    goes(&chain, &scene, &before, &result);
}

/// Behind `loopback`, and before all others.
#[test]
fn ours_stands_anywhere_in_a_list() {
    let Some(scene) = Scene::new().filter(|_| has_debians()) else { return };
    for name in ["first", "a"] {
        let _ = scene.container(name);
    }
    let untouched = scene.dump();
    let loopback = json!({ "type": "loopback" });
    let firewall = json!({ "type": "firewall" });
    let plugins = [loopback, beside_bandwidth("bridge"), tuning(), firewall, bandwidth()];
    let chain = Chain::new(&scene, &plugins, &json!({}));
    let before = used(&chain, &scene);
    let result = chain.add("a");
    let printed = Value::from(result.as_json().clone());
    let of = |index: usize| printed["interfaces"][index]["name"].as_str().unwrap();
    assert_eq!((of(0), &printed["ips"][0]["address"]), ("lo", &json!("127.0.0.1/8")));
    let mut ips = printed["ips"].as_array().unwrap().iter();
    let ours = ips.find(|ip| ip["address"].as_str().unwrap().starts_with("10.244.1.")).unwrap();
    let interface = usize::try_from(ours["interface"].as_u64().unwrap()).unwrap();
    assert_eq!(of(interface), "eth0", "counted from the first interface of all: {printed}");
    scene.assert_reaches("a", "192.0.2.2");
    chain.check("a", &result);
    goes(&chain, &scene, &before, &result);
    leaves_only("filter", &untouched, &scene);
}

/// A script that hands on the result that it was given.
const GOOD: &str = "test $CNI_COMMAND = DEL || sed 's/.*\"prevResult\":\\({.*}\\),\"type\".*/\\1/'";

/// A list with a script in it that answers an ADD badly: what is said of it, and that nothing stays.
#[track_caller]
fn fails(chain: &Chain<'_>, scene: &Scene, before: &Dump, script: &str, says: &str) {
    chain.script("bad", &format!("test $CNI_COMMAND = ADD || exit 0\n{script}"));
    let why = chain.try_add("a").unwrap_err();
    assert!(why.contains(says), "{why}");
    chain.del("a", None);
    before.assert_same(&scene.dump(), says);
    assert_eq!(scene.reserved("pods"), 0, "{says}");
}

#[test]
fn where_another_plugin_fails_nothing_stays_and_the_next_add_works() {
    let Some(scene) = Scene::new() else { return };
    for name in ["first", "a"] {
        let _ = scene.container(name);
    }
    let chain = Chain::new(&scene, &[own("bridge"), json!({ "type": "bad" })], &json!({}));
    chain.script("bad", GOOD);
    let before = used(&chain, &scene);
    let object = r#"{"cniVersion":"1.0.0","code":11,"msg":"no more doors"}"#;
    fails(&chain, &scene, &before, &format!("echo '{object}'; exit 1"), "bad: no more doors (code 11)");
    fails(&chain, &scene, &before, "echo garbage", "bad: its result is no JSON");
    fails(&chain, &scene, &before, "", "it said that it worked and printed no result");
    // Before ours too: ADD does not come to it, and DEL does.
    let behind = Chain::new(&scene, &[json!({ "type": "bad" }), own("bridge")], &json!({}));
    fails(&behind, &scene, &before, "exit 1", "bad: ");
    chain.script("bad", GOOD);
    let result = chain.add("a");
    scene.assert_reaches("a", "192.0.2.2");
    chain.del("a", Some(&result));
    before.assert_same(&scene.dump(), "after DEL");
}

/// Waits until a script has said that it is at work.
fn until_at_work(chain: &Chain<'_>, script: &mut Child) {
    while !chain.file("at-work").exists() {
        assert!(script.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A runtime kills a plugin that does not end, and calls DEL. The plugin behind ours had changed what is ours.
#[test]
fn a_plugin_that_hangs_is_taken_back_with_ours() {
    let Some(scene) = Scene::new() else { return };
    for name in ["first", "a"] {
        let _ = scene.container(name);
    }
    let chain = Chain::new(&scene, &[own("ptp"), json!({ "type": "bad" })], &json!({}));
    chain.script("bad", GOOD);
    let before = used(&chain, &scene);
    let (a, end) = (scene.world.name("a"), scene.world.name("node"));
    let changes = format!(
        "ip -n {a} link set eth0 mtu 1300; ip -n {a} route flush default
         for link in $(ip -n {end} -o link show type veth | grep -o 'hgp[0-9]*'); do ip -n {end} link set $link down; done"
    );
    chain.script(
        "bad",
        &format!("test $CNI_COMMAND = ADD || exit 0\n{changes}\n: >$HERE/at-work; exec sleep 1000"),
    );
    let previous = chain.add_own("a");
    let mut hanging = chain.start_add("a", "bad", &previous);
    until_at_work(&chain, &mut hanging);
    hanging.kill().unwrap();
    hanging.wait().unwrap();
    chain.del("a", None);
    before.assert_same(&scene.dump(), "after a plugin was killed");
    assert_eq!(scene.reserved("pods"), 0);
    chain.script("bad", GOOD);
    let result = chain.add("a");
    scene.assert_reaches("a", "192.0.2.2");
    chain.del("a", Some(&result));
}
