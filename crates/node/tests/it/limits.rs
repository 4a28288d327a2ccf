//! What a container may send and receive (`bandwidth`).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{run, shell};

use crate::attachments::can_run;
use crate::scene::{PATIENCE, Scene, address, conf, connect, of_each_attach, with};

/// Bits a second, and bits that pass at once.
const RATE: u64 = 40_000_000;
const BURST: u64 = 160_000;
/// What is sent: many times the burst, so that the rate decides how long it takes.
const BYTES: usize = 500_000;

fn limited(attach: &str, directions: &[&str]) -> Value {
    let limits = directions.iter().flat_map(|direction| {
        [(format!("{direction}Rate"), json!(RATE)), (format!("{direction}Burst"), json!(BURST))]
    });
    let limits: serde_json::Map<String, Value> = limits.collect();
    with(conf(attach), "runtimeConfig", json!({ "bandwidth": limits }))
}

/// How long it takes until all that one container sends to another has arrived.
fn transfer(scene: &Scene, from: &str, to: &str, address: &str) -> Duration {
    let to_address = SocketAddr::new(address.parse().unwrap(), 80);
    let listener = scene.world.open(to).run(|| TcpListener::bind(to_address)).unwrap().unwrap();
    let mut near = scene.world.open(from).run(|| connect(to_address)).unwrap().unwrap();
    let (mut far, _) = listener.accept().unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || near.write_all(&vec![7; BYTES]).unwrap());
        let mut received = Vec::new();
        far.read_to_end(&mut received).unwrap();
        assert_eq!(received.len(), BYTES);
    });
    begun.elapsed()
}

/// A bucket lets no more pass than its rate and once its burst, however fast the machine is.
#[track_caller]
fn assert_limited(took: Duration, what: &str) {
    let bytes = BYTES as u64 - BURST / 8;
    let least = Duration::from_secs_f64((bytes * 8) as f64 / RATE as f64);
    assert!(took >= least, "{what}: {BYTES} bytes took {took:?}, at least {least:?} by the rate");
}

/// Whether a bucket is at the root of a container's interface.
fn has_bucket(scene: &Scene, container: &str) -> bool {
    run(&scene.world.open(container), "tc", &["qdisc", "show", "dev", "eth0"]).contains("qdisc tbf")
}

/// The one link of the node that has a bucket.
fn node_end(scene: &Scene) -> String {
    let shown = run(&scene.world.open("node"), "tc", &["qdisc", "show"]);
    let links = shown
        .lines()
        .filter(|line| line.contains("qdisc tbf"))
        .map(|line| line.split_whitespace().skip_while(|word| *word != "dev").nth(1).unwrap().to_owned());
    let links: Vec<String> = links.collect();
    assert_eq!(links.len(), 1, "{shown}");
    links[0].clone()
}

/// What a container sends is held to a rate, CHECK says so if it no longer is, and DEL takes all back.
#[track_caller]
fn check(attach: &str) {
    let Some(scene) = Scene::new() else { return };
    if !can_run(attach) {
        return;
    }
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    let b = scene.add("b", &conf(attach));
    let before = scene.dump();
    let limited = limited(attach, &["egress"]);
    let a = scene.add("a", &limited);
    assert_eq!(["a", "b"].map(|name| has_bucket(&scene, name)), [true, false]);
    for index in 0..2 {
        assert_limited(transfer(&scene, "a", "b", &address(&b, index)), "sent");
    }
    let checked = with(limited.clone(), "prevResult", a);
    scene.succeed("CHECK", "a", &checked);
    let _ = run(&scene.world.open("a"), "tc", &["qdisc", "del", "dev", "eth0", "root"]);
    scene.fail("CHECK", "a", &checked, 101, "the queueing discipline of link eth0");
    scene.succeed("DEL", "a", &limited);
    before.assert_same(&scene.dump(), "after DEL");
}

of_each_attach!(check);

/// The machine at the other end of the wire becomes a node, of which this is a pod: the programs of a node redirect what
/// comes from pods alone.
const FAR_POD: [&str; 2] = ["10.244.2.7", "fd00:244:0:2::7"];

fn add_far_pod(scene: &Scene) {
    let (node, far) = (scene.world.name("node"), scene.world.name("far"));
    let [v4, v6] = FAR_POD;
    let _ = shell(&format!(
        "ip -n {far} link set lo up; ip -n {far} addr add {v4} dev lo; ip -n {far} addr add {v6}/128 dev lo nodad
         ip -n {far} route add 10.244.1.0/24 via 192.0.2.1 src {v4}
         ip -n {far} route add fd00:244:0:1::/64 via 2001:db8::1 src {v6}
         ip -n {node} route add {v4} via 192.0.2.2; ip -n {node} route add {v6} via 2001:db8::2"
    ));
}

/// Both directions have a rate of their own, which does not depend on who sends.
#[track_caller]
fn receives(attach: &str) {
    let Some(scene) = Scene::new() else { return };
    if !can_run(attach) {
        return;
    }
    add_far_pod(&scene);
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    let of_cluster = |conf| with(conf, "prefixes", json!(["10.244.0.0/16", "fd00:244::/48"]));
    let b = scene.add("b", &of_cluster(conf(attach)));
    let before = scene.dump();
    let limited = of_cluster(limited(attach, &["ingress", "egress"]));
    let a = scene.add("a", &limited);
    for index in 0..2 {
        assert_limited(transfer(&scene, "b", "a", &address(&a, index)), "received from a neighbour");
        assert_limited(transfer(&scene, "node", "a", &address(&a, index)), "received from the node");
        assert_limited(transfer(&scene, "far", "a", &address(&a, index)), "received from another node");
        assert_limited(transfer(&scene, "a", "b", &address(&b, index)), "sent");
    }
    let checked = with(limited.clone(), "prevResult", a);
    scene.succeed("CHECK", "a", &checked);
    let link = node_end(&scene);
    let _ = run(&scene.world.open("node"), "tc", &["qdisc", "del", "dev", &link, "root"]);
    scene.fail("CHECK", "a", &checked, 101, &format!("the queueing discipline of link {link}"));
    scene.succeed("DEL", "a", &limited);
    before.assert_same(&scene.dump(), "after DEL");
}

#[test]
fn what_a_port_of_a_bridge_receives_is_limited() {
    receives("bridge");
}

#[test]
fn what_a_routed_link_receives_is_limited() {
    receives("ptp");
}

#[test]
fn what_programs_redirect_to_a_veth_pair_is_limited() {
    receives("ebpf");
}

#[test]
fn what_programs_redirect_to_a_netkit_pair_is_limited() {
    receives("netkit");
}

#[test]
fn a_burst_that_holds_no_packet_is_refused() {
    let Some(scene) = Scene::new() else { return };
    let _ = scene.container("a");
    let short = json!({ "bandwidth": { "egressRate": RATE, "egressBurst": 8000 } });
    let conf = with(conf("ptp"), "runtimeConfig", short);
    scene.fail("ADD", "a", &conf, 7, "1000 at once its packets of 1514 bytes would never pass");
    assert_eq!(scene.reserved("pods"), 0);
}
