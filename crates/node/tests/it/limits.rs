//! What a container may send and receive (`bandwidth`).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{dump, has_redirects, run, shell};

use crate::attachments::can_run;
use crate::scene::{PATIENCE, Scene, address, check_failure, conf, connect, of_each_attach, with, works};

/// Bits a second, and bits that pass at once.
const RATE: u64 = 40_000_000;
const BURST: u64 = 160_000;
/// What is sent: many times the burst, so that the rate decides how long it takes.
const BYTES: usize = 500_000;

fn limited(attach: &str, directions: &[&str]) -> Value {
    with(conf(attach), "runtimeConfig", json!({ "bandwidth": bandwidth(directions) }))
}

/// What a runtime asks for these directions.
pub(crate) fn bandwidth(directions: &[&str]) -> Value {
    let limits = directions.iter().flat_map(|direction| {
        [(format!("{direction}Rate"), json!(RATE)), (format!("{direction}Burst"), json!(BURST))]
    });
    limits.collect::<serde_json::Map<_, _>>().into()
}

/// How long it takes until all that one container sends to another has arrived.
pub(crate) fn transfer(scene: &Scene, from: &str, to: &str, address: &str) -> Duration {
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
pub(crate) fn assert_limited(took: Duration, what: &str) {
    let bytes = BYTES as u64 - BURST / 8;
    let least = Duration::from_secs_f64((bytes * 8) as f64 / RATE as f64);
    assert!(took >= least, "{what}: {BYTES} bytes took {took:?}, at least {least:?} by the rate");
}

/// Whether a bucket is at the root of a container's interface.
fn has_bucket(scene: &Scene, container: &str) -> bool {
    run(&scene.world.open(container), "tc", &["qdisc", "show", "dev", "eth0"]).contains("qdisc tbf")
}

/// The one link of a namespace that has a bucket.
fn with_bucket(scene: &Scene, namespace: &str) -> String {
    let shown = run(&scene.world.open(namespace), "tc", &["qdisc", "show"]);
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

/// The link that holds back what a container receives, where that is in the container, comes behind its interface.
#[test]
fn the_result_lists_the_link_that_holds_back() {
    let Some(scene) = Scene::new() else { return };
    if !can_run("macvlan") {
        return;
    }
    let _ = scene.container("a");
    let limited = limited("macvlan", &["ingress"]);
    let result = scene.add("a", &limited);
    let interfaces = result["interfaces"].as_array().unwrap();
    let [own, holds_back] = interfaces.as_slice() else { panic!("{result}") };
    assert_eq!(own["name"], "eth0");
    assert_eq!(holds_back["name"].as_str().unwrap(), with_bucket(&scene, "a"));
    assert_eq!(holds_back["sandbox"], scene.netns("a"));
    assert!(result["ips"].as_array().unwrap().iter().all(|ip| ip["interface"] == 0), "{result}");
    scene.succeed("CHECK", "a", &with(limited, "prevResult", result));
}

/// The machine at the other end of the wire becomes a node, of which this is a pod: the programs of a node redirect
/// what comes from pods alone.
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

/// Both directions have a rate of their own, which does not depend on the sender.
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
    let link = with_bucket(&scene, "node");
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

/// The machine at the other end of the wire has a pod's addresses on it, as a neighbour of those of the node.
fn add_far_neighbour(scene: &Scene) {
    let far = scene.world.name("far");
    let [v4, v6] = FAR_POD;
    let _ = shell(&format!(
        "ip -n {far} addr add {v4}/32 dev wire1; ip -n {far} addr add {v6}/128 dev wire1 nodad
         ip -n {far} route add 10.244.1.0/24 dev wire1 src {v4}
         ip -n {far} route add fd00:244:0:1::/64 dev wire1 src {v6}"
    ));
}

/// What somebody takes away of a limit in the container, in which `HGI` is the link that has the bucket, and
/// what CHECK says then.
const TAKEN: [(&str, &str); 4] = [
    (
        "tc -n POD filter del dev eth0 ingress",
        "the redirect of what arrives at link eth0 is now an ingress qdisc without a filter",
    ),
    ("tc -n POD qdisc del dev eth0 ingress", "the redirect of what arrives at link eth0 is gone"),
    ("tc -n POD qdisc del dev HGI root", "the queueing discipline of link HGI"),
    ("ip -n POD link del HGI", "link HGI is gone"),
];

/// Where the node has no end of a container's link, what arrives waits in the container.
#[track_caller]
fn receives_in_pod(attach: &str, senders: &[&str]) {
    let Some(scene) = Scene::new() else { return };
    if !can_run(attach) || !has_redirects() {
        return;
    }
    match attach {
        "ipvlan-l3" => add_far_pod(&scene),
        _ => add_far_neighbour(&scene),
    }
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    // The node itself is a sender where it has a link beside theirs.
    let of_network = |conf| {
        let conf = with(conf, "prefixes", json!(["10.244.0.0/16", "fd00:244::/48"]));
        with(conf, "host_link", json!(senders.contains(&"node")))
    };
    let b = scene.add("b", &of_network(conf(attach)));
    let before = ["node", "a"].map(|name| dump(&scene.world.open(name)));
    let limited = of_network(limited(attach, &["ingress"]));
    for (index, (change, says)) in TAKEN.into_iter().enumerate() {
        let a = scene.add("a", &limited);
        let link = with_bucket(&scene, "a");
        assert_ne!(link, "eth0");
        for sender in senders.iter().filter(|_| index < 2) {
            let took = transfer(&scene, sender, "a", &address(&a, index));
            assert_limited(took, &format!("received from {sender}"));
        }
        let _ = transfer(&scene, "a", "b", &address(&b, index % 2));
        let checked = with(limited.clone(), "prevResult", a);
        scene.succeed("CHECK", "a", &checked);
        let _ = shell(&change.replace("POD", scene.world.name("a").as_str()).replace("HGI", &link));
        scene.fail("CHECK", "a", &checked, 101, &says.replace("HGI", &link));
        scene.succeed("DEL", "a", &limited);
        for (name, before) in ["node", "a"].into_iter().zip(&before) {
            before.assert_same(&dump(&scene.world.open(name)), &format!("{name} after {change} and DEL"));
        }
    }
}

#[test]
fn what_a_macvlan_link_receives_is_limited() {
    receives_in_pod("macvlan", &["b", "node", "far"]);
}

#[test]
fn what_an_ipvlan_link_receives_is_limited() {
    // The node has the Ethernet address of its containers, and no way to them.
    receives_in_pod("ipvlan-l2", &["b", "far"]);
}

#[test]
fn what_a_routed_ipvlan_link_receives_is_limited() {
    receives_in_pod("ipvlan-l3", &["b", "node", "far"]);
}

/// Each interface of a container has a limit of its own, and they go one without the other.
#[test]
fn two_interfaces_wait_at_links_of_their_own() {
    let Some(scene) = Scene::new() else { return };
    if !has_redirects() {
        return;
    }
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    let (limited, netns) = (limited("macvlan", &["ingress"]), scene.netns("a"));
    let call = |verb: &str, ifname: &str, conf: &Value| {
        let variables =
            [("CNI_COMMAND", verb), ("CNI_CONTAINERID", "a"), ("CNI_NETNS", &*netns), ("CNI_IFNAME", ifname)];
        works(scene.call_with(&variables, conf))
    };
    scene.add("b", &conf("macvlan"));
    let before = dump(&scene.world.open("a"));
    let [first, second] = ["eth0", "net1"].map(|ifname| call("ADD", ifname, &limited));
    for (ifname, result) in [("eth0", &first), ("net1", &second)] {
        call("CHECK", ifname, &with(limited.clone(), "prevResult", result.clone()));
    }
    call("DEL", "eth0", &limited);
    call("CHECK", "net1", &with(limited.clone(), "prevResult", second.clone()));
    assert_limited(transfer(&scene, "b", "a", &address(&second, 0)), "received by the second interface");
    call("DEL", "net1", &limited);
    before.assert_same(&dump(&scene.world.open("a")), "after both have gone");
}

/// `tuning` and programs in the container may turn IPv6 on for all of its links.
#[test]
fn ipv6_of_all_links_is_the_containers() {
    let Some(scene) = Scene::new() else { return };
    if !has_redirects() {
        return;
    }
    let _ = scene.container("a");
    let before = scene.dump();
    let limited = limited("macvlan", &["ingress"]);
    let checked = with(limited.clone(), "prevResult", scene.add("a", &limited));
    let netns = scene.world.name("a");
    let _ = shell(&format!("ip netns exec {netns} sh -c 'echo 0 >/proc/sys/net/ipv6/conf/all/disable_ipv6'"));
    scene.succeed("CHECK", "a", &checked);
    scene.succeed("DEL", "a", &limited);
    before.assert_same(&scene.dump(), "after DEL");
}

/// Under the names of the CNI project's plugins, too.
#[test]
fn it_limits_by_the_names_of_other_plugins() {
    let Some(scene) = Scene::new() else { return };
    if !has_redirects() {
        return;
    }
    let _ = scene.container("a");
    let on_wire = |mode: &str| {
        json!({
            "cniVersion": "1.0.0", "name": "pods", "type": "x", "master": "wire0", "mode": mode,
            "ipam": { "type": "host-local", "subnet": "10.1.2.0/24" },
            "runtimeConfig": { "bandwidth": bandwidth(&["ingress"]) },
        })
    };
    let macvlan = on_wire("bridge");
    let result = works(scene.call_named("macvlan", "ADD", "a", &macvlan));
    assert_ne!(with_bucket(&scene, "a"), "eth0");
    works(scene.call_named("macvlan", "CHECK", "a", &with(macvlan.clone(), "prevResult", result)));
    works(scene.call_named("macvlan", "DEL", "a", &macvlan));
    let refused = scene.call_named("ipvlan", "ADD", "a", &on_wire("l3s"));
    check_failure(&refused, 2, "an `ingressRate`, which pods of ipvlan-l3s cannot have");
}

/// Keeps the kernel from loading modules, and puts back what was taken.
struct Without<'a> {
    module: &'a str,
    loader: String,
}

impl Without<'_> {
    /// Takes a module out of the kernel.
    fn module(module: &str) -> Without<'_> {
        let path = "/proc/sys/kernel/modprobe";
        let loader = std::fs::read_to_string(path).unwrap();
        let _ = shell(&format!("modprobe --remove {module} && echo /bin/false >{path}"));
        Without { module, loader }
    }
}

impl Drop for Without<'_> {
    fn drop(&mut self) {
        let loader = self.loader.trim();
        let _ = shell(&format!("echo {loader} >/proc/sys/kernel/modprobe && modprobe {}", self.module));
    }
}

/// Whoever asks for a limit learns which module would make it, and nothing of the container stays.
#[test]
fn a_module_that_is_missing_is_named() {
    if std::env::var_os("HOSTGAP_VM").is_none() {
        return testkit::skip("it takes modules out of the kernel, and needs a virtual machine of ours");
    }
    let Some(scene) = Scene::new() else { return };
    if !has_redirects() {
        return;
    }
    let _ = scene.container("a");
    let limited = limited("macvlan", &["ingress"]);
    // The network stands before and stays.
    scene.add("a", &limited);
    scene.succeed("DEL", "a", &limited);
    let before = scene.dump();
    for module in ["ifb", "cls_u32", "act_mirred", "sch_tbf"] {
        let without = Without::module(module);
        let failed = scene.call("ADD", "a", &limited);
        drop(without);
        assert!(!failed.is_success, "without {module}");
        let printed = failed.printed.unwrap_or_default();
        let details = printed["details"].as_str().unwrap_or_default();
        assert!(details.contains(&format!("module {module} is missing")), "{printed}");
        before.assert_same(&scene.dump(), &format!("after ADD without {module}"));
    }
    scene.add("a", &limited);
    scene.succeed("DEL", "a", &limited);
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
