//! WireGuard between two nodes: keys, peers, and what the wire shows of their packets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::net::SocketAddr;

use linux::features::Feature;
use linux::netlink::WireGuard;
use linux::{LinkKind, PrivateKey, PublicKey, Route, WireGuardPeer};

use crate::world::{TestNetns, ifname, is_missing, talk};

const PORT: u16 = 51820;

/// A node with its device, its key and its pods' addresses.
struct Node {
    place: TestNetns,
    devices: WireGuard,
    key: PrivateKey,
}

impl Node {
    fn new(label: &str, pods: [&str; 2]) -> Node {
        let place = TestNetns::new(label);
        place.add("hgwg1", LinkKind::WireGuard);
        let devices = WireGuard::open_in(&place.netns).unwrap();
        let key = PrivateKey::generate().unwrap();
        devices.set_key(&ifname("hgwg1"), &key, PORT).unwrap();
        place.up(
            "hgwg1",
            &pods
                .map(|pod| if pod.contains(':') { format!("{pod}/128") } else { format!("{pod}/32") })
                .each_ref()
                .map(String::as_str),
        );
        Node { place, devices, key }
    }

    fn knows(&self, key: PublicKey, at: &str, pods: [&str; 2]) -> WireGuardPeer {
        let allowed = pods.map(|pod| pod.parse().expect("a valid prefix"));
        let endpoint = SocketAddr::new(at.parse().unwrap(), PORT);
        let peer =
            WireGuardPeer { dev: ifname("hgwg1"), key, endpoint, allowed: allowed.to_vec(), keepalive_s: 0 };
        self.devices.set_peer(&peer).unwrap();
        for dst in allowed {
            self.place.netlink.route_add(&Route::on_link(dst, ifname("hgwg1"))).unwrap();
        }
        peer
    }
}

fn between(outer: [&str; 2]) {
    let nodes = [Node::new("wg-a", ["10.1.0.9", "fd01::9"]), Node::new("wg-b", ["10.2.0.9", "fd02::9"])];
    let prefix = if outer[0].contains(':') { 64 } else { 24 };
    let [one, two] = &nodes;
    one.place.wire(&two.place, "hgw0", &format!("{}/{prefix}", outer[0]), &format!("{}/{prefix}", outer[1]));
    one.knows(two.key.public(), outer[1], ["10.2.0.0/24", "fd02::/64"]);
    let peer = two.knows(one.key.public(), outer[0], ["10.1.0.0/24", "fd01::/64"]);
    for address in ["10.2.0.9", "fd02::9"] {
        assert!(talk(&one.place, &two.place, address), "{address} over {outer:?}");
    }
    let device = two.devices.device(&ifname("hgwg1")).unwrap();
    assert_eq!((device.public, device.port), (Some(two.key.public()), PORT));
    let found = &device.peers[&one.key.public()];
    assert!(found.is(&peer), "{found:?}");
    assert_eq!(found.endpoint, Some(peer.endpoint));
    assert!(found.handshake_s.is_some(), "{found:?}");

    two.devices.remove_peer(&ifname("hgwg1"), one.key.public()).unwrap();
    two.devices
        .remove_peer(&ifname("hgwg1"), one.key.public())
        .expect("to remove an absent peer is no error");
    assert!(two.devices.device(&ifname("hgwg1")).unwrap().peers.is_empty());
    two.devices.clear_key(&ifname("hgwg1"), 1234).unwrap();
    let device = two.devices.device(&ifname("hgwg1")).unwrap();
    assert_eq!((device.public, device.port), (None, 1234));
}

#[test]
fn it_carries_both_families_over_either() {
    if is_missing(Feature::WireGuard) {
        return;
    }
    between(["192.0.2.1", "192.0.2.2"]);
    between(["2001:db8::1", "2001:db8::2"]);
}

/// The kernel lists so many in several messages.
#[test]
fn a_long_list_of_peers_is_read_whole() {
    if is_missing(Feature::WireGuard) {
        return;
    }
    let node = Node::new("wg-many", ["10.1.0.9", "fd01::9"]);
    let mut known = Vec::new();
    for at in 0..300_u16 {
        let key = PrivateKey::generate().unwrap().public();
        let [high, low] = at.to_be_bytes();
        let allowed =
            (0..4).map(|part| format!("10.{}.{low}.{}/32", 64 + high, part).parse().unwrap()).collect();
        let endpoint = SocketAddr::new("192.0.2.2".parse().unwrap(), 1000 + at);
        known.push(WireGuardPeer { dev: ifname("hgwg1"), key, endpoint, allowed, keepalive_s: 25 });
        node.devices.set_peer(&known[usize::from(at)]).unwrap();
    }
    let device = node.devices.device(&ifname("hgwg1")).unwrap();
    assert_eq!(device.peers.len(), known.len());
    for peer in &known {
        let found = &device.peers[&peer.key];
        assert!(found.is(peer) && found.endpoint == Some(peer.endpoint), "{found:?}");
    }
    // A prefix belongs to one peer.
    let taker = WireGuardPeer { allowed: known[1].allowed.clone(), ..known[0].clone() };
    node.devices.set_peer(&taker).unwrap();
    let device = node.devices.device(&ifname("hgwg1")).unwrap();
    assert!(device.peers[&taker.key].is(&taker) && device.peers[&known[1].key].allowed.is_empty());
}

/// They do not fit into one message, in either direction.
#[test]
fn a_peer_may_have_thousands_of_prefixes() {
    if is_missing(Feature::WireGuard) {
        return;
    }
    let node = Node::new("wg-wide", ["10.1.0.9", "fd01::9"]);
    let key = PrivateKey::generate().unwrap().public();
    let endpoint = SocketAddr::new("192.0.2.2".parse().unwrap(), PORT);
    let mut peer = WireGuardPeer {
        dev: ifname("hgwg1"),
        key,
        endpoint,
        allowed: (0..4000).map(|at| format!("fd00:{at:x}::/64").parse().unwrap()).collect(),
        keepalive_s: 25,
    };
    // The second time all of it is there already, and half of it goes.
    for count in [4000, 2000] {
        peer.allowed.truncate(count);
        node.devices.set_peer(&peer).unwrap();
        let device = node.devices.device(&ifname("hgwg1")).unwrap();
        let found = &device.peers[&key];
        assert!(found.is(&peer), "{} of {count}", found.allowed.len());
    }
}

#[test]
fn a_link_of_another_kind_has_an_error_of_its_own() {
    if is_missing(Feature::WireGuard) {
        return;
    }
    let place = TestNetns::new("wg-other");
    place.add("hgbr1", LinkKind::Bridge);
    let devices = WireGuard::open_in(&place.netns).unwrap();
    let errno = |link: &str| devices.device(&ifname(link)).unwrap_err().errno();
    assert_eq!([errno("hgbr1"), errno("absent")], [Some(libc::EOPNOTSUPP), Some(libc::ENODEV)]);
}
