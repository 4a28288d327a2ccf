//! The backend `wireguard`: pods talk through encrypted tunnels, which strangers cannot take away and which outlive the
//! agents; keys are on their node alone; and a kernel without WireGuard is left as it is.

use std::fs;
use std::path::Path;

use agent::check::ReasonKind;
use agent::source::file::FileSource;
use agent::status::Status;
use agent::{Settings, keys};
use linux::features::{Feature, probe};
use linux::netlink::WireGuard;
use linux::{IfName, PrivateKey, PublicKey};
use testkit::{dump, require_root};

use crate::full::Disk;
use crate::keep::{A, B, is_reached, take_back, transfer, with_pods};
use crate::nodes::{Agent, Nodes, PATIENCE};

const NO_ROOM: &str = "no space left on device";
pub(crate) const WIREGUARD: &str = "{ Type = \"wireguard\" }";

/// Why this kernel has no WireGuard.
fn missing() -> Option<String> {
    probe().unwrap().missing.remove(&Feature::WireGuard)
}

pub(crate) fn is_missing() -> bool {
    let why = missing();
    if let Some(why) = &why {
        testkit::skip(&format!("no wireguard: {why}"));
    }
    why.is_some()
}

impl Nodes {
    /// Writes the file of leases with these public keys.
    fn write_keys(&self, a: PublicKey, b: PublicKey) {
        self.write_leases(WIREGUARD, &[A, B]);
        self.add_keys(a, b);
    }

    /// Adds the public keys of both nodes to the file of leases.
    pub(crate) fn add_keys(&self, a: PublicKey, b: PublicKey) {
        let text = fs::read_to_string(self.leases()).unwrap();
        let with_key = |text: &str, name: &str, key: PublicKey| {
            text.replace(&format!("name = {name:?}\n"), &format!("name = {name:?}\nkey = \"{key}\"\n"))
        };
        let text = with_key(&with_key(&text, "a", a), "b", b);
        fs::write(self.leases().with_extension("new"), text).unwrap();
        fs::rename(self.leases().with_extension("new"), self.leases()).unwrap();
    }

    /// Starts both agents, whose keys no other node knows yet. They say them.
    fn start_keyless(&self) -> [(Agent, PublicKey); 2] {
        self.write_leases(WIREGUARD, &[A, B]);
        self.say_keys()
    }

    /// The same with the leases that are written.
    pub(crate) fn say_keys(&self) -> [(Agent, PublicKey); 2] {
        ["a", "b"].map(|node| {
            let agent = self.start(node);
            let status = agent.until("it says its key", |status| status.public_key.is_some());
            let why = status.peers.values().next().unwrap().why_not.clone().unwrap();
            assert!(why.contains("it has no `key`"), "{why}");
            (agent, status.public_key.unwrap().parse().unwrap())
        })
    }

    /// The tunnel devices of node a: their indexes and names.
    fn tunnels(&self) -> Vec<(String, IfName)> {
        let shown = self.at("ip -n A -o link show type wireguard");
        let tunnel = |line: &str| {
            let mut parts = line.split(": ");
            (parts.next().unwrap().to_owned(), IfName::new(parts.next().unwrap()).unwrap())
        };
        shown.lines().map(tunnel).collect()
    }
}

/// Waits until something was repaired, and returns what.
#[track_caller]
fn repaired(agent: &Agent, before: &Status, what: &str) -> Status {
    agent.until(what, |status| {
        let new = status.repairs_total - before.repairs_total;
        let newest = status.repairs.iter().rev().take(usize::try_from(new).unwrap());
        newest.into_iter().any(|repair| repair.what.contains(what)) && is_reached("b", "wireguard")(status)
    })
}

/// Refuses a text in the files of a directory.
fn assert_nowhere(directory: &Path, secret: &str) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_nowhere(&path, secret);
        } else if path.is_file() && !path.ends_with("pods.wireguard.key") {
            let text = fs::read(&path).unwrap();
            assert!(!String::from_utf8_lossy(&text).contains(secret), "{}", path.display());
        }
    }
}

#[test]
fn encrypted_tunnels_carry_pods_and_are_mended_and_taken_back() {
    if !require_root() || is_missing() {
        return;
    }
    let nodes = Nodes::new();
    with_pods(&nodes);
    let before = ["a", "b"].map(|node| dump(&nodes.world.open(node)));
    let [(a, key_a), (b, key_b)] = nodes.start_keyless();
    nodes.write_keys(key_a, key_b);
    let status = a.until("b is reached", is_reached("b", "wireguard"));
    b.until("a is reached", is_reached("a", "wireguard"));
    assert_eq!(status.mtu, Some(1420));
    transfer(&nodes);

    // The kernel announces neither of the first two.
    let devices = WireGuard::open_in(&nodes.world.open("a")).unwrap();
    let made = nodes.tunnels();
    let tunnel = &made[0].1;
    devices.remove_peer(tunnel, key_b).unwrap();
    let status = repaired(&a, &status, &format!("peer {key_b}"));
    devices.clear_key(tunnel, 0).unwrap();
    let status = repaired(&a, &status, "the key of link");
    transfer(&nodes);
    for (wire, pods) in [(1400, 1320), (1500, 1420)] {
        nodes.at(&format!("ip -n A link set wire mtu {wire}; ip -n B link set wire mtu {wire}"));
        for agent in [&a, &b] {
            agent.until("the tunnel follows", |status| status.mtu == Some(pods));
        }
    }
    assert_eq!(nodes.tunnels(), made);
    nodes.at(&format!("ip -n A link del {tunnel}"));
    repaired(&a, &status, tunnel.as_str());
    transfer(&nodes);

    drop((a, b));
    transfer(&nodes);
    for node in ["a", "b"] {
        let row = nodes.check(node);
        assert!(row.is_well() && row.peers.len() == 1, "{row:#?}");
    }
    let file = keys::file(&nodes.settings("a").keys, "pods");
    let secret = fs::read_to_string(&file).unwrap();
    assert_nowhere(&nodes.directory.path().join("a"), secret.trim());
    let again = nodes.start("a");
    let status = again.until("b is reached", is_reached("b", "wireguard"));
    assert_eq!((status.public_key, status.repairs_total), (Some(key_a.to_string()), 0));
    drop(again);

    // A key that is lost is replaced by another one, in the devices too.
    fs::remove_file(file).unwrap();
    let (again, b) = (nodes.start("a"), nodes.start("b"));
    let status = again.until("it says its key", |status| status.public_key.is_some());
    let new: PublicKey = status.public_key.unwrap().parse().unwrap();
    assert_ne!(new, key_a);
    nodes.write_keys(new, key_b);
    transfer(&nodes);
    nodes.write_leases(WIREGUARD, &[A]);
    again.until("b is gone", |status| status.peers.is_empty());
    assert!(nodes.tunnels().iter().all(|(_, name)| devices.device(name).unwrap().peers.is_empty()));
    drop((again, b));
    take_back(&nodes, &before);
}

/// The next agent waits beside the present one, as in a rollout, and that one looks at the node once more.
#[test]
fn a_key_that_is_moved_away_is_replaced_by_the_next_agent_and_not_put_back() {
    if !require_root() || is_missing() {
        return;
    }
    let nodes = Nodes::new();
    let [(mut a, key_a), (_b, key_b)] = nodes.start_keyless();
    nodes.write_keys(key_a, key_b);
    let status = a.until("b is reached", is_reached("b", "wireguard"));
    let file = keys::file(&nodes.settings("a").keys, "pods");
    fs::rename(&file, file.with_extension("old")).unwrap();
    // A tunnel that stands needs no file.
    WireGuard::open_in(&nodes.world.open("a")).unwrap().remove_peer(&nodes.tunnels()[0].1, key_b).unwrap();
    let status = repaired(&a, &status, &format!("peer {key_b}"));
    assert_eq!((status.public_key, file.exists()), (Some(key_a.to_string()), false));
    let settings = Settings { waits: true, ..nodes.settings("a") };
    let source = FileSource { path: nodes.leases(), node: "a".to_owned() };
    let (next, ready) = Agent::begin(nodes.world.open("a"), settings, nodes.home("a"), source);
    a.stop().unwrap();
    ready.recv_timeout(PATIENCE).unwrap();
    let new = next.until("it says its key", |status| status.public_key != Some(key_a.to_string()));
    nodes.write_keys(new.public_key.unwrap().parse().unwrap(), key_b);
    assert!(file.exists());

    // One that has to be made anew needs it, and has the key that it had.
    let secret = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    nodes.at(&format!("ip -n A link del {}", nodes.tunnels()[0].1));
    next.until("the tunnel is made anew", |_| file.exists() && nodes.tunnels().len() == 2);
    assert_eq!(fs::read_to_string(&file).unwrap(), secret);
}

/// Its name, prefix and key are as before.
#[test]
fn encrypted_tunnels_lead_to_a_node_that_came_back_with_another_address() {
    if !require_root() || is_missing() {
        return;
    }
    let nodes = Nodes::new();
    with_pods(&nodes);
    let [(a, key_a), (mut b, key_b)] = nodes.start_keyless();
    nodes.write_keys(key_a, key_b);
    a.until("b is reached", is_reached("b", "wireguard"));
    b.until("a is reached", is_reached("a", "wireguard"));
    transfer(&nodes);
    b.stop().unwrap();
    nodes.at("ip -n B address del 192.0.2.2/24 dev wire; ip -n B address add 192.0.2.77/24 dev wire
              ip -n B address del 2001:db8::2/64 dev wire; ip -n B address add 2001:db8::77/64 dev wire nodad");
    let text = fs::read_to_string(nodes.leases()).unwrap();
    let moved =
        text.replace("\"192.0.2.2\"", "\"192.0.2.77\"").replace("\"2001:db8::2\"", "\"2001:db8::77\"");
    assert_ne!(moved, text);
    fs::write(nodes.leases().with_extension("new"), moved).unwrap();
    fs::rename(nodes.leases().with_extension("new"), nodes.leases()).unwrap();
    let b = nodes.start("b");
    b.until("a is reached", is_reached("a", "wireguard"));
    a.until("b is there", |status| {
        is_reached("b", "wireguard")(status) && status.peers["b"].public == ["192.0.2.77", "2001:db8::77"]
    });
    transfer(&nodes);
}

#[test]
fn encrypted_tunnels_to_another_key_carry_nothing_and_a_check_says_so() {
    if !require_root() || is_missing() {
        return;
    }
    let nodes = Nodes::new();
    let [(a, key_a), (b, key_b)] = nodes.start_keyless();
    let wrong = PrivateKey::generate().unwrap().public();
    nodes.write_keys(key_a, wrong);
    a.until("b is thought to be reached", is_reached("b", "wireguard"));
    b.until("a is reached", is_reached("a", "wireguard"));
    let row = nodes.check("a");
    let peer = &row.peers["b"];
    let kinds: Vec<ReasonKind> = peer.reasons.iter().map(|reason| reason.kind).collect();
    assert_eq!(kinds, [ReasonKind::NoHandshake; 2], "{peer:#?}");
    let (seen, follows) = (&peer.reasons[0].seen, &peer.reasons[0].follows);
    assert!(seen.contains(&format!("no session with the key {wrong}")), "{seen}");
    assert!(follows.contains(&key_a.to_string()) && follows.contains("UDP port 51820"), "{follows}");
    for family in peer.families.values() {
        assert!(family.node.is_reached && !family.pods.is_reached, "{family:#?}");
        assert!(!family.tunnel.as_ref().unwrap().is_reached, "{family:#?}");
    }
    nodes.write_keys(key_a, key_b);
    let status =
        a.until("b is reached", |status| is_reached("b", "wireguard")(status) && nodes.check("a").is_well());
    assert_eq!(status.peers["b"].why_not, None);
}

/// Nothing is changed: neither the node nor its directory of keys.
#[test]
fn a_kernel_without_wireguard_is_named_and_left_as_it_is() {
    if !require_root() {
        return;
    }
    if missing().is_none() {
        return testkit::skip("this kernel has wireguard");
    }
    let nodes = Nodes::new();
    let before = dump(&nodes.world.open("a"));
    nodes.write_leases(WIREGUARD, &[A, B]);
    let source = FileSource { path: nodes.leases(), node: "a".to_owned() };
    let (agent, _ready) = Agent::begin(nodes.world.open("a"), nodes.settings("a"), nodes.home("a"), source);
    let status = agent.until("it is undecided", |status| status.undecided.is_some());
    let why = status.undecided.unwrap();
    assert!(why.contains("wireguard links not available") && why.contains("modprobe wireguard"), "{why}");
    before.assert_same(&dump(&nodes.world.open("a")), "nothing was made");
    assert!(!nodes.settings("a").keys.exists());
}

#[test]
fn a_key_for_which_there_is_no_room_is_made_when_there_is() {
    if !require_root() || is_missing() {
        return;
    }
    let nodes = Nodes::new();
    let keys = nodes.settings("a").keys;
    let disk = Disk::at(keys.clone());
    disk.fill();
    nodes.write_leases(WIREGUARD, &[A, B]);
    let file = FileSource { path: nodes.leases(), node: "a".to_owned() };
    let (a, _ready) = Agent::begin(nodes.world.open("a"), nodes.settings("a"), nodes.home("a"), file);
    a.until_said(&["a/keys/pods.wireguard.key", NO_ROOM]);
    // The loop looks again.
    for address in ["192.0.2.91/32", "192.0.2.92/32"] {
        nodes.at(&format!("ip -n A address add {address} dev wire"));
    }
    assert!(nodes.tunnels().is_empty() && !keys::file(&keys, "pods").exists());
    a.until("no half-written one stays", |_| disk.half_written().is_empty());
    disk.make_room();
    nodes.at("ip -n A address add 192.0.2.93/32 dev wire");
    let status = a.until("it has a key", |status| status.public_key.is_some());
    let key = PrivateKey::read(&keys::file(&keys, "pods")).unwrap();
    assert_eq!(status.public_key, Some(key.public().to_string()));
    assert_eq!(disk.half_written(), "");
    a.check_said_once(NO_ROOM);
}
