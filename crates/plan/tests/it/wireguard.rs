//! WireGuard devices. Many kernels lack this kind of link, so it is not part of the sample.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::path::{Path, PathBuf};

use linux::features::{Feature, probe};
use linux::netlink::WireGuard;
use linux::{Link, LinkKind, PrivateKey, PublicKey, WireGuardPeer};
use plan::{Fault, Journal, Kernel, Made, Place, Plan, SetLinkUp, SetWireGuard, Step, Undone, apply, undo};
use testkit::{require_root, shell};

use crate::reconcile::reconciled;
use crate::sample::{ifname, net, sysctl_step};
use crate::scene::Scene;

const THEIRS: &str = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=";

fn identity(key_file: &Path, public: PublicKey) -> Step {
    let link = ifname("hgwg1");
    SetWireGuard { link, key_file: key_file.to_owned(), public, port: 51820 }.into()
}

fn peer(endpoint: &str) -> WireGuardPeer {
    WireGuardPeer {
        dev: ifname("hgwg1"),
        key: THEIRS.parse().expect("a sound key"),
        endpoint: endpoint.parse().expect("a sound address"),
        allowed: vec![net("10.244.2.0/24"), net("fd00:2::/64")],
        keepalive_s: 0,
    }
}

fn plan(home: &Place, key_file: &Path, public: PublicKey) -> Plan {
    let mut plan = Plan::new();
    // The device sets it when it comes up.
    plan.push(home, sysctl_step("net/ipv4/conf/all/send_redirects", "0"));
    let link = Link { name: ifname("hgwg1"), kind: LinkKind::WireGuard, mtu: Some(1440), mac: None };
    plan.push(home, Step::AddLink(link));
    plan.push(home, identity(key_file, public));
    plan.push(home, SetLinkUp { link: ifname("hgwg1") });
    plan.push(home, Step::AddWireGuardPeer(peer("192.0.2.2:51820")));
    plan
}

/// Whether this kernel lacks WireGuard. If so, the skip is recorded.
fn is_missing() -> bool {
    let why = probe().expect("a namespace can be made").missing.remove(&Feature::WireGuard);
    if let Some(why) = &why {
        testkit::skip(&format!("no wireguard: {why}"));
    }
    why.is_some()
}

/// A key in a file that goes with the test.
fn key() -> (tempfile::TempDir, PathBuf, PrivateKey) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    let key = PrivateKey::generate().unwrap();
    key.keep(&file).unwrap();
    (folder, file, key)
}

#[test]
fn commands_name_the_file_of_the_key() {
    let place = Place::Host;
    let mut plan = plan(&place, Path::new("/run/own key"), THEIRS.parse().unwrap());
    plan.push(
        &place,
        Step::AddWireGuardPeer(WireGuardPeer { keepalive_s: 25, ..peer("[2001:db8::2]:51820") }),
    );
    let allowed = "allowed-ips 10.244.2.0/24,fd00:2::/64";
    assert_eq!(
        plan.commands(),
        [
            "sysctl -w net.ipv4.conf.all.send_redirects=0".to_owned(),
            "ip link add name hgwg1 mtu 1440 type wireguard".to_owned(),
            "wg set hgwg1 listen-port 51820 private-key '/run/own key'".to_owned(),
            "ip link set dev hgwg1 up".to_owned(),
            format!("wg set hgwg1 peer {THEIRS} endpoint 192.0.2.2:51820 {allowed}"),
            format!(
                "wg set hgwg1 peer {THEIRS} endpoint [2001:db8::2]:51820 {allowed} persistent-keepalive 25"
            ),
        ]
    );
}

#[test]
fn undo_takes_all_of_it_wherever_apply_stopped() {
    if !require_root() || is_missing() {
        return;
    }
    let scene = Scene::new();
    let (_folder, file, key) = key();
    let plan = plan(&scene.sample.home(), &file, key.public());
    let lines = scene.apply(&plan, Fault::None).unwrap();
    let devices = WireGuard::open_in(&scene.world.open("home")).unwrap();
    let device = devices.device(&ifname("hgwg1")).unwrap();
    assert_eq!((device.public, device.peers.len()), (Some(key.public()), 1));
    let secret = std::fs::read_to_string(&file).unwrap();
    let journal = std::fs::read_to_string(scene.path()).unwrap();
    assert!(journal.contains(&key.public().to_string()) && !journal.contains(secret.trim()), "{journal}");
    let (results, _) = scene.undo();
    assert!(results.iter().all(|(_, outcome)| *outcome == Undone::Restored), "{results:?}");
    scene.assert_as_before("after undo");

    scene.undo_wherever_apply_stops(&plan, lines, |when| scene.assert_as_before_quick(when));
}

#[test]
fn a_key_that_could_not_be_given_back_is_refused() {
    if !require_root() || is_missing() {
        return;
    }
    let scene = Scene::new();
    let (_folder, file, key) = key();
    let home = scene.sample.home();
    let mut wrong = plan(&home, &file, THEIRS.parse().unwrap());
    wrong.steps.truncate(3);
    let error = scene.apply(&wrong, Fault::None).unwrap_err().to_string();
    assert!(error.contains("does not belong to the public key 3p7b"), "{error}");
    scene.undo();

    testkit::run(&scene.world.open("home"), "ip", &["link", "add", "hgwg1", "type", "wireguard"]);
    let devices = WireGuard::open_in(&scene.world.open("home")).unwrap();
    let foreign = PrivateKey::generate().unwrap();
    devices.set_key(&ifname("hgwg1"), &foreign, 1).unwrap();
    let mut over = Plan::new();
    over.push(&home, identity(&file, key.public()));
    let error = scene.apply(&over, Fault::None).unwrap_err().to_string();
    assert!(error.contains("has a key already"), "{error}");
    assert_eq!(devices.device(&ifname("hgwg1")).unwrap().public, Some(foreign.public()));
}

#[test]
fn a_port_without_a_key_is_given_back() {
    if !require_root() || is_missing() {
        return;
    }
    let scene = Scene::new();
    let (_folder, file, key) = key();
    testkit::run(&scene.world.open("home"), "ip", &["link", "add", "hgwg1", "type", "wireguard"]);
    let devices = WireGuard::open_in(&scene.world.open("home")).unwrap();
    devices.clear_key(&ifname("hgwg1"), 1234).unwrap();
    let mut plan = Plan::new();
    plan.push(&scene.sample.home(), identity(&file, key.public()));
    scene.apply(&plan, Fault::None).unwrap();
    let (results, _) = scene.undo();
    assert!(results.iter().all(|(_, outcome)| *outcome == Undone::Restored), "{results:?}");
    let device = devices.device(&ifname("hgwg1")).unwrap();
    assert_eq!((device.public, device.port), (None, 1234));
}

/// A node that gets another address keeps its key, and what strangers change is repaired.
#[test]
fn a_peer_changes_in_its_place() {
    if !require_root() || is_missing() {
        return;
    }
    let scene = Scene::new();
    let (_folder, file, key) = key();
    let home = scene.sample.home();
    let first = plan(&home, &file, key.public());
    let mut moved = first.clone();
    moved.steps[4].step = Step::AddWireGuardPeer(peer("192.0.2.3:51820"));
    scene.apply(&first, Fault::None).unwrap();
    let devices = WireGuard::open_in(&scene.world.open("home")).unwrap();
    let reconciled = |plan: &Plan| reconciled(&scene.path(), plan, Fault::None).unwrap();
    assert_eq!(reconciled(&moved).made.len(), 1);
    let found = devices.device(&ifname("hgwg1")).unwrap();
    assert_eq!(found.peers[&peer("192.0.2.3:1").key].endpoint, Some("192.0.2.3:51820".parse().unwrap()));
    assert!(reconciled(&moved).is_nothing());

    let narrow = WireGuardPeer { allowed: Vec::new(), ..peer("192.0.2.9:1") };
    devices.set_peer(&narrow).unwrap();
    assert_eq!(reconciled(&moved).repaired.len(), 1);
    devices.remove_peer(&ifname("hgwg1"), narrow.key).unwrap();
    assert_eq!(reconciled(&moved).repaired.len(), 1);
    // The device is the same one, with its peers.
    let mut narrower = moved.clone();
    narrower.steps[1].step =
        Step::AddLink(Link { name: ifname("hgwg1"), kind: LinkKind::WireGuard, mtu: Some(1360), mac: None });
    let place = scene.world.open("home");
    let index = || linux::netlink::Netlink::open_in(&place).unwrap().index_of(&ifname("hgwg1")).unwrap();
    let before = index();
    assert_eq!(reconciled(&narrower).made.len(), 1);
    assert_eq!((index(), devices.device(&ifname("hgwg1")).unwrap().peers.len()), (before, 1));

    let mut alone = narrower.clone();
    alone.steps.truncate(4);
    assert_eq!(reconciled(&alone).removed.len(), 1);
    assert!(devices.device(&ifname("hgwg1")).unwrap().peers.is_empty());
    scene.undo();
    scene.assert_as_before("after undo");
}

/// Counts the messages in which the kernel lists the peers of a device: the calls of the function that fills one.
struct Messages(tempfile::TempDir);

impl Messages {
    fn new() -> Messages {
        let tracing = tempfile::tempdir().unwrap();
        let at = tracing.path().display();
        shell(&format!(
            "mount -t tracefs tracefs {at}
echo 'p:hostgap/peers wg_get_device_dump' >>{at}/kprobe_events
echo 1 >{at}/events/hostgap/peers/enable"
        ));
        Messages(tracing)
    }

    /// How many there were so far.
    fn count(&self) -> usize {
        let profile = std::fs::read_to_string(self.0.path().join("kprobe_profile")).unwrap();
        let of_peers = profile.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mut hits = of_peers.filter(|words| words[0] == "peers").map(|words| words[1].parse().unwrap());
        hits.next().expect("the event is there")
    }

    /// How many some work takes.
    fn of<T>(&self, work: impl FnOnce() -> T) -> (usize, T) {
        let before = self.count();
        let done = work();
        (self.count() - before, done)
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        let at = self.0.path().display();
        shell(&format!(
            "echo 0 >{at}/events/hostgap/peers/enable
echo '-:hostgap/peers' >>{at}/kprobe_events
umount {at}"
        ));
    }
}

/// One list of all peers for each of them was quadratic: 2,000 peers took tens of thousands of messages.
#[test]
fn many_peers_are_listed_in_fewer_messages_than_there_are_peers() {
    if !require_root() || is_missing() {
        return;
    }
    let messages = Messages::new();
    for count in [500_u32, 2_000] {
        let scene = Scene::new();
        let home = scene.sample.home();
        let mut plan = Plan::new();
        let link = Link { name: ifname("hgwg1"), kind: LinkKind::WireGuard, mtu: Some(1440), mac: None };
        plan.push(&home, Step::AddLink(link));
        for number in 0..count {
            let mut key = [1; 32];
            key[..4].copy_from_slice(&number.to_ne_bytes());
            let allowed = vec![net(&format!("10.{}.{}.0/24", number >> 8, number & 255))];
            let one = WireGuardPeer { key: PublicKey(key), allowed, ..peer("192.0.2.2:51820") };
            plan.push(&home, Step::AddWireGuardPeer(one));
        }
        let mut journal = Journal::create(&scene.path()).unwrap();
        let mut kernel = Kernel::new().unwrap();
        let (applying, applied) = messages.of(|| apply(&plan, &mut journal, &mut kernel));
        applied.unwrap();
        let (looking, changes) = messages.of(|| Made::of(&plan, &mut kernel).unwrap().1);
        assert_eq!(changes, []);
        let (undoing, results) = messages.of(|| undo(&mut journal, &mut kernel));
        assert!(results.iter().all(|(_, outcome)| *outcome == Undone::Restored));
        println!("{count} peers: {applying} messages to apply, {looking} to look, {undoing} to undo");
        for taken in [applying, looking, undoing] {
            assert!((1..count as usize).contains(&taken), "{taken} messages for {count} peers");
        }
        scene.assert_as_before("after undo");
    }
}

/// WireGuard leaves out a peer with the key of the device, and does not say so.
#[test]
fn a_device_is_no_peer_of_its_own() {
    if !require_root() || is_missing() {
        return;
    }
    let scene = Scene::new();
    let (_folder, file, key) = key();
    let mut plan = plan(&scene.sample.home(), &file, key.public());
    let own = WireGuardPeer { key: key.public(), ..peer("192.0.2.2:51820") };
    plan.push(&scene.sample.home(), Step::AddWireGuardPeer(own));
    let error = scene.apply(&plan, Fault::None).unwrap_err().to_string();
    assert!(error.contains("is no peer of its own"), "{error}");
    scene.undo();
    scene.assert_as_before("after undo");
}
