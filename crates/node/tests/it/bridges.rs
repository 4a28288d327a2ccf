//! Bridges with a name, which may be another program's: a node changes over to ours and back with containers on it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use linux::Netlink;
use linux::netlink::LinkInfo;
use serde_json::{Value, json};
use testkit::{Dump, shell};

use crate::chain::has_debians;
use crate::scene::{PATIENCE, Scene, address, check_failure, conf, connect, with, works};

/// The CNI project's plugins.
const DEBIANS: &str = "/usr/lib/cni";

/// A configuration of the CNI project's bridge, with addresses in a directory of the test's.
fn theirs_too(data_dir: &Path) -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "pods", "type": "bridge", "bridge": "cni0", "isDefaultGateway": true,
        "ipam": { "type": "host-local", "subnet": "10.1.2.0/24", "dataDir": data_dir },
    })
}

impl Scene {
    /// Calls the CNI project's bridge for a container, on the node.
    #[track_caller]
    fn call_theirs(&self, command: &str, container: &str, conf: &Value) -> Value {
        let mut program = Command::new(Path::new(DEBIANS).join("bridge"));
        program.env("CNI_COMMAND", command).env("CNI_CONTAINERID", container).env("CNI_IFNAME", "eth0");
        program.env("CNI_NETNS", self.netns(container)).env("CNI_PATH", DEBIANS);
        program.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = self.world.open("node").run(|| program.spawn()).unwrap().unwrap();
        child.stdin.take().unwrap().write_all(conf.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{command}: {printed}");
        serde_json::from_str(&printed).unwrap_or_default()
    }

    fn at_node(&self, commands: &str) {
        let _ = shell(&commands.replace("NODE", self.world.name("node").as_str()));
    }

    fn link_of_node(&self, name: &str) -> LinkInfo {
        let netlink = Netlink::open_in(&self.world.open("node")).unwrap();
        netlink.link(&name.parse().unwrap()).unwrap().unwrap()
    }

    /// Both talk to each other and to the node at this address.
    #[track_caller]
    fn assert_neighbours(&self, one: (&str, &str), other: (&str, &str), gateway: &str) {
        for ((server, to), (client, _)) in [(one, other), (other, one)] {
            self.exchange(server, client, SocketAddr::new(to.parse().unwrap(), 80));
            self.assert_reaches(server, gateway);
        }
    }

    /// With our containers, these networks and addresses gone, the node is as it was.
    #[track_caller]
    fn assert_left_as(&self, before: &Dump, networks: &[&str]) {
        assert_eq!(self.remove_unused().removed, networks);
        before.assert_same(&self.dump(), "without the network");
    }
}

/// A scene with containers, if the CNI project's plugins are there.
fn with_debians(containers: [&str; 2]) -> Option<(Scene, tempfile::TempDir)> {
    let scene = Scene::new().filter(|_| has_debians())?;
    for name in containers {
        let _ = scene.container(name);
    }
    Some((scene, tempfile::tempdir().unwrap()))
}

#[test]
fn a_bridge_with_running_containers_is_joined_and_left_as_it_was() {
    let Some((scene, data_dir)) = with_debians(["theirs", "ours"]) else { return };
    let conf = theirs_too(data_dir.path());
    let theirs = address(&scene.call_theirs("ADD", "theirs", &conf), 0);
    let before = scene.dump();
    let result = works(scene.call_named("bridge", "ADD", "ours", &conf));
    let ours = address(&result, 0);
    assert_eq!((&*theirs, &*ours), ("10.1.2.2", "10.1.2.3"), "no address is given twice");
    scene.assert_neighbours(("theirs", &theirs), ("ours", &ours), "10.1.2.1");
    works(scene.call_named("bridge", "CHECK", "ours", &with(conf.clone(), "prevResult", result)));
    works(scene.call_named("bridge", "DEL", "ours", &conf));
    scene.assert_left_as(&before, &["pods on cni0"]);
    scene.assert_reaches("theirs", "10.1.2.1");
    // Now all of them are ours, one after the other.
    let ours = address(&works(scene.call_named("bridge", "ADD", "ours", &conf)), 0);
    scene.call_theirs("DEL", "theirs", &conf);
    let theirs = address(&works(scene.call_named("bridge", "ADD", "theirs", &conf)), 0);
    scene.assert_neighbours(("theirs", &theirs), ("ours", &ours), "10.1.2.1");
    for name in ["ours", "theirs"] {
        works(scene.call_named("bridge", "DEL", name, &conf));
    }
}

/// The bridge is ours. A container of another program holds it, with all that it needs to reach the outside.
#[test]
fn a_bridge_that_another_program_joined_stays_as_long_as_its_containers() {
    let Some((scene, data_dir)) = with_debians(["theirs", "ours"]) else { return };
    let before = scene.dump();
    let conf = theirs_too(data_dir.path());
    let own = with(conf.clone(), "ipMasq", json!(true));
    let ours = address(&works(scene.call_named("bridge", "ADD", "ours", &own)), 0);
    let result = scene.call_theirs("ADD", "theirs", &conf);
    let theirs = address(&result, 0);
    scene.assert_neighbours(("theirs", &theirs), ("ours", &ours), "10.1.2.1");
    works(scene.call_named("bridge", "DEL", "ours", &own));
    let unused = scene.remove_unused();
    assert_eq!(unused.removed, [] as [&str; 0]);
    let port = result["interfaces"][1]["name"].as_str().unwrap();
    let why = format!("link cni0 has ports of another program: {port}");
    assert_eq!((&*unused.left[0].network, &unused.left[0].why), ("pods on cni0", &why));
    for to in ["10.1.2.1", "192.0.2.2"] {
        scene.assert_reaches("theirs", to);
    }
    let changed = scene.call_named("bridge", "ADD", "ours", &conf);
    check_failure(&changed, 7, &format!("stands on this node with another configuration, and {why}"));
    scene.call_theirs("DEL", "theirs", &conf);
    scene.assert_left_as(&before, &["pods on cni0"]);
}

/// The plugin whose name this is knows bridges and no networks: the CNI project's own tests have two of one name.
#[test]
fn two_bridges_may_have_one_network_s_name() {
    let Some(scene) = Scene::new() else { return };
    let before = scene.dump();
    let data_dir = tempfile::tempdir().unwrap();
    let of = |bridge: &str, subnet: &str| {
        let ipam = json!({ "type": "host-local", "subnet": subnet, "dataDir": data_dir.path().join(bridge) });
        with(with(theirs_too(data_dir.path()), "bridge", json!(bridge)), "ipam", ipam)
    };
    let confs = [("a", of("br-0", "10.1.2.0/24")), ("b", of("br.1", "10.1.3.0/24"))];
    for (name, conf) in &confs {
        let _ = scene.container(name);
        let result = works(scene.call_named("bridge", "ADD", name, conf));
        works(scene.call_named("bridge", "CHECK", name, &with(conf.clone(), "prevResult", result)));
    }
    scene.assert_neighbours(("a", "10.1.2.2"), ("b", "10.1.3.2"), "10.1.2.1");
    // Each bridge goes with its own containers.
    works(scene.call_named("bridge", "DEL", "a", &confs[0].1));
    assert_eq!(scene.remove_unused().removed, ["pods on br-0"]);
    scene.assert_reaches("b", "10.1.3.1");
    works(scene.call_named("bridge", "DEL", "b", &confs[1].1));
    scene.assert_left_as(&before, &["pods on br.1"]);
}

/// Earlier versions had one unit for a network under this name too, as our own name still has. Its containers rest on
/// it until they go, beside those of the bridge's own unit.
#[test]
fn a_network_of_an_earlier_version_goes_on_until_its_containers_are_gone() {
    let Some(scene) = Scene::new() else { return };
    let before = scene.dump();
    let data_dir = tempfile::tempdir().unwrap();
    let now = theirs_too(data_dir.path());
    let ranges = json!([[{ "subnet": "10.1.2.0/24" }]]);
    let earlier = json!({
        "cniVersion": "1.0.0", "name": "pods", "type": "hostgap", "attach": "bridge", "bridge": "cni0",
        "anti_spoofing": false,
        "ipam": { "type": "hostgap", "ranges": ranges, "dataDir": data_dir.path() },
    });
    for name in ["old", "new"] {
        let _ = scene.container(name);
    }
    let old = address(&scene.add("old", &earlier), 0);
    let new = address(&works(scene.call_named("bridge", "ADD", "new", &now)), 0);
    scene.assert_neighbours(("old", &old), ("new", &new), "10.1.2.1");
    works(scene.call_named("bridge", "DEL", "old", &now));
    assert_eq!(scene.remove_unused().removed, ["pods"]);
    for to in ["10.1.2.1", "192.0.2.1"] {
        scene.assert_reaches("new", to);
    }
    works(scene.call_named("bridge", "DEL", "new", &now));
    scene.assert_left_as(&before, &["pods on cni0"]);
}

/// A bridge of the machine's own, with a card and an address of another subnet. It has no Ethernet address of its own,
/// so a port with a lower one than the card's would change it.
#[test]
fn a_bridge_without_containers_gets_what_is_missing_and_keeps_its_address() {
    let Some(scene) = Scene::new() else { return };
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    scene.at_node(
        "ip -n NODE link add br0 type bridge
         ip -n NODE link add card0 address 52:54:00:12:34:56 type veth peer name card1
         ip -n NODE link set card0 master br0 up; ip -n NODE link set card1 up; ip -n NODE link set br0 mtu 1480 up
         ip -n NODE addr add 192.168.7.1/24 dev br0",
    );
    // The kernel lets a port forward some time after its carrier has come.
    let deadline = Instant::now() + PATIENCE;
    while !scene.link_of_node("br0").carrier && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
    let bridge = scene.link_of_node("br0");
    let before = scene.dump();
    let conf = with(conf("bridge"), "bridge", json!("br0"));
    let a = scene.add("a", &conf);
    let b = scene.add("b", &conf);
    let now = scene.link_of_node("br0");
    assert_eq!((now.index, now.mac, now.mtu), (bridge.index, bridge.mac, bridge.mtu));
    for (index, gateway) in [(0, "10.244.1.1"), (1, "fd00:244:0:1::1")] {
        let (a, b) = (address(&a, index), address(&b, index));
        scene.assert_neighbours(("a", &a), ("b", &b), gateway);
    }
    for name in ["a", "b"] {
        scene.succeed("DEL", name, &conf);
    }
    scene.assert_left_as(&before, &["pods"]);
}

#[test]
fn what_is_no_bridge_or_has_another_address_is_named_and_left() {
    let Some(scene) = Scene::new() else { return };
    let _ = scene.container("a");
    scene.at_node(
        "ip -n NODE link add cni0 type veth peer name cni1
         ip -n NODE link add br0 up type bridge; ip -n NODE addr add 10.1.2.254/24 dev br0",
    );
    let before = scene.dump();
    let conf = theirs_too(Path::new("/run/addresses"));
    let refused = scene.call_named("bridge", "ADD", "a", &conf);
    check_failure(&refused, 100, "cni0 is veth and no bridge");
    let refused = scene.call_named("bridge", "ADD", "a", &with(conf, "bridge", json!("br0")));
    check_failure(&refused, 100, "br0 has the address 10.1.2.254/24");
    check_failure(&refused, 100, "overlaps with that of 10.1.2.1/24");
    before.assert_same(&scene.dump(), "after refusals");
}

/// The last user takes the bridge back, whichever made it.
#[test]
fn two_networks_may_have_one_bridge_of_one_kind() {
    let Some(scene) = Scene::new() else { return };
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    let untouched = scene.dump();
    let first = theirs_too(Path::new("/run/addresses"));
    let mut second = with(first.clone(), "name", json!("other"));
    second["ipam"]["subnet"] = json!("10.1.3.0/24");
    works(scene.call_named("bridge", "ADD", "a", &first));
    let before = scene.dump();
    let refused = scene.call_named("bridge", "ADD", "b", &with(second.clone(), "mtu", json!(1400)));
    check_failure(&refused, 100, "link cni0 is shared by cni-networks/pods.net");
    before.assert_same(&scene.dump(), "after a refusal");
    works(scene.call_named("bridge", "ADD", "b", &second));
    works(scene.call_named("bridge", "DEL", "a", &first));
    assert_eq!(scene.remove_unused().removed, ["pods on cni0"]);
    for to in ["10.1.3.1", "192.0.2.1"] {
        scene.assert_reaches("b", to);
    }
    works(scene.call_named("bridge", "DEL", "b", &second));
    assert_eq!(scene.remove_unused().removed, ["other on cni0"]);
    untouched.assert_same(&scene.dump(), "without both");
}

#[test]
fn isolated_ports_reach_the_node_and_not_each_other() {
    let Some(scene) = Scene::new() else { return };
    for name in ["a", "b", "c"] {
        let _ = scene.container(name);
    }
    let conf = theirs_too(Path::new("/run/addresses"));
    let isolated = with(conf.clone(), "portIsolation", json!(true));
    let add = |name, conf| address(&works(scene.call_named("bridge", "ADD", name, conf)), 0);
    let (a, b) = (add("a", &isolated), add("b", &isolated));
    for name in ["a", "b"] {
        scene.assert_reaches(name, "10.1.2.1");
    }
    let to = SocketAddr::new(b.parse().unwrap(), 80);
    let error = scene.world.open("a").run(|| connect(to)).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostUnreachable, "{error}");
    // One that is not isolated reaches both: to isolate the next containers changes nothing that stands.
    let c = add("c", &conf);
    scene.assert_neighbours(("a", &a), ("c", &c), "10.1.2.1");
    scene.assert_neighbours(("b", &b), ("c", &c), "10.1.2.1");
    for name in ["a", "b", "c"] {
        works(scene.call_named("bridge", "DEL", name, &conf));
    }
}
