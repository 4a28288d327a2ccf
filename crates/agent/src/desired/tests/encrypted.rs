//! The backend `wireguard`.

use super::*;
use crate::backend::WIREGUARD;

pub(super) fn key(byte: u8) -> PublicKey {
    PublicKey([byte; 32])
}

/// A node of both families whose key has the number.
pub(super) fn encrypted_node(number: u8) -> Node {
    let public = [IpAddr::from([192, 0, 2, 1]), "2001:db8::1".parse().unwrap()].into_iter().collect();
    let file = "/var/lib/hostgap/agent/pods.wireguard.key".into();
    Node { underlay: public, tunnel_key: Some(TunnelKey { file, public: key(number) }), ..node() }
}

fn encrypted_network(backend: &serde_json::Value) -> NetworkConfig {
    let mut backend = backend.clone();
    backend["Type"] = json!("wireguard");
    let conf = json!({ "Network": "10.244.0.0/16", "EnableIPv6": true, "IPv6Network": "fd00:244::/48",
        "Backend": backend });
    NetworkConfig::parse(&conf).unwrap()
}

/// A lease of both families of the node whose address ends in a number.
pub(super) fn encrypted_lease(public: u8, pods: u8, key: Option<PublicKey>) -> Lease {
    let addresses =
        Addresses::both([192, 0, 2, public].into(), format!("2001:db8::{public}").parse().unwrap());
    let data = key.map(TunnelData::WireGuard);
    Lease {
        pods: prefixes(&[&format!("10.244.{pods}.0/24"), &format!("fd00:244:0:{pods}::/64")]),
        node: Announcement { public: addresses, backend: WIREGUARD.to_owned(), data, data_v6: data },
    }
}

fn encrypted(
    backend: &serde_json::Value,
    others: &[(&str, Lease)],
    standing: &BTreeMap<String, Plan>,
) -> Result<Desired, Undecided> {
    let others = others.iter().map(|(name, lease)| ((*name).to_owned(), Ok(lease.clone()))).collect();
    let own = prefixes(&["10.244.1.0/24", "fd00:244:0:1::/64"]);
    let snapshot = Snapshot { own, others, ..Snapshot::default() };
    desired(&encrypted_node(1), &encrypted_network(backend), &snapshot, standing)
}

fn commands(desired: &Desired, part: &str) -> String {
    desired.parts[part].commands().join("\n")
}

#[test]
fn encrypted_tunnels_are_as_flannels() {
    let b = encrypted_lease(2, 2, Some(key(2)));
    let desired = encrypted(&json!({}), &[("b", b)], &BTreeMap::new()).unwrap();
    assert_eq!(desired.mtu, 1420);
    let node = commands(&desired, NODE_PART);
    let file = "private-key /var/lib/hostgap/agent/pods.wireguard.key";
    for line in [
        "ip link add name hgwg7 mtu 1440 type wireguard".to_owned(),
        format!("wg set hgwg7 listen-port 51820 {file}"),
        "ip address add 10.244.1.0/32 dev hgwg7".to_owned(),
        "ip link add name hgwg8 mtu 1420 type wireguard".to_owned(),
        format!("wg set hgwg8 listen-port 51821 {file}"),
    ] {
        assert!(node.contains(&line), "{line}: {node}");
    }
    let peer = commands(&desired, "peer-b");
    let public = key(2);
    for line in [
        format!("wg set hgwg7 peer {public} endpoint 192.0.2.2:51820 allowed-ips 10.244.2.0/24"),
        "ip route replace 10.244.2.0/24 dev hgwg7".to_owned(),
        format!("wg set hgwg8 peer {public} endpoint [2001:db8::2]:51821 allowed-ips fd00:244:0:2::/64"),
    ] {
        assert!(peer.contains(&line), "{line}: {peer}");
    }
    assert!(desired.tunnels.is_empty(), "nothing of an encrypted packet is left to a card");
    let said = announcement(&encrypted_node(1), &encrypted_network(&json!({})), &BTreeMap::new());
    assert_eq!((said.backend.as_str(), said.data), (WIREGUARD, Some(TunnelData::WireGuard(key(1)))));
    assert_eq!(said.data_v6, said.data);
}

#[test]
fn what_a_network_says_of_encrypted_tunnels_is_followed_or_refused() {
    let b = [("b", encrypted_lease(2, 2, Some(key(2))))];
    let conf = json!({ "ListenPort": 1234, "ListenPortV6": 1235, "PersistentKeepaliveInterval": 25, "DirectRouting": true });
    let desired = encrypted(&conf, &b, &BTreeMap::new()).unwrap();
    let peer = commands(&desired, "peer-b");
    assert!(peer.contains("192.0.2.2:1234") && peer.contains("[2001:db8::2]:1235"), "{peer}");
    assert_eq!(peer.matches("persistent-keepalive 25").count(), 2, "{peer}");
    let refused = |conf: &serde_json::Value| encrypted(conf, &b, &BTreeMap::new()).unwrap_err().to_string();
    let secret = "FpCyhws9cxwWoV4xELtfJvjJN+zQVRPISllRWgeopVE=";
    let why = refused(&json!({ "PSK": secret }));
    assert!(why.contains("no pre-shared keys") && !why.contains(secret), "{why}");
    assert!(refused(&json!({ "Mode": "auto" })).contains("a tunnel for each: separate"));
    let unknown = NetworkConfig::parse(&json!({ "Network": "10.244.0.0/16",
        "Backend": { "Type": "wireguard", "Mode": "both" } }));
    assert!(unknown.unwrap_err().to_string().contains("separate, auto, ipv4 or ipv6"));
    // With one family there is one tunnel in every mode.
    let alone = json!({ "Type": "wireguard", "Mode": "auto" });
    let snapshot = Snapshot { own: prefixes(&["10.244.1.0/24"]), ..Snapshot::default() };
    let alone = super::desired(&encrypted_node(1), &network(&alone), &snapshot, &BTreeMap::new()).unwrap();
    assert_eq!(alone.mtu, 1440);
}

#[test]
fn keys_that_cannot_be_distinguished_are_refused_and_what_stood_stays() {
    let lease = encrypted_lease;
    let before = encrypted(
        &json!({}),
        &[("a", lease(2, 2, Some(key(2)))), ("b", lease(3, 3, Some(key(3))))],
        &BTreeMap::new(),
    );
    let standing = before.unwrap().parts;
    let now = [
        ("a", lease(2, 2, Some(key(3)))),
        ("b", lease(3, 3, Some(key(3)))),
        ("own", lease(4, 4, Some(key(1)))),
        ("silent", lease(5, 5, None)),
    ];
    let desired = encrypted(&json!({}), &now, &standing).unwrap();
    let shown = format!("public key {}", key(3));
    assert_eq!(why(&desired, "a"), format!("its {shown} is also b's: {shown}"));
    assert_eq!(why(&desired, "b"), format!("its {shown} is also a's: {shown}"));
    assert_eq!(why(&desired, "own"), format!("its public key {} is the node's own", key(1)));
    assert!(why(&desired, "silent").contains("which public key its tunnel has"));
    assert_eq!(desired.parts, standing);

    // The key of a node that is refused now is another node's.
    let broken = [("a", lease(2, 2, None)), ("c", lease(6, 6, Some(key(2))))];
    let desired = encrypted(&json!({}), &broken, &standing).unwrap();
    assert!(!desired.parts.contains_key("peer-a") && desired.parts.contains_key("peer-c"));
}

#[test]
fn a_node_with_two_leases_is_one_peer_with_the_prefixes_of_both() {
    let both = [("e", encrypted_lease(5, 5, Some(key(5)))), ("e-anew", encrypted_lease(5, 10, Some(key(5))))];
    let desired = encrypted(&json!({}), &both, &BTreeMap::new()).unwrap();
    let (first, second) = (commands(&desired, "peer-e"), commands(&desired, "peer-e-anew"));
    assert!(first.contains("allowed-ips 10.244.5.0/24,10.244.10.0/24"), "{first}");
    assert!(!second.contains("wg set") && second.contains("10.244.10.0/24 dev hgwg7"), "{second}");
    let later = encrypted(&json!({}), &both[1..], &desired.parts).unwrap();
    assert!(commands(&later, "peer-e-anew").contains("allowed-ips 10.244.10.0/24"));
}

#[test]
fn a_peer_stays_with_the_lease_that_has_it_whatever_the_names() {
    let (one, anew) = (encrypted_lease(5, 5, Some(key(5))), encrypted_lease(5, 10, Some(key(5))));
    let alone = encrypted(&json!({}), &[("e", one.clone())], &BTreeMap::new()).unwrap();
    let both = [("a", anew), ("e", one.clone())];
    let both = encrypted(&json!({}), &both, &alone.parts).unwrap();
    let (first, second) = (commands(&both, "peer-a"), commands(&both, "peer-e"));
    assert!(!first.contains("wg set") && first.contains("10.244.10.0/24 dev hgwg7"), "{first}");
    assert!(second.contains("allowed-ips 10.244.10.0/24,10.244.5.0/24"), "{second}");
    // The other one ends, and then all is as before.
    let again = encrypted(&json!({}), &[("e", one)], &both.parts).unwrap();
    assert_eq!(again.parts, alone.parts);
}

#[test]
fn a_lease_that_is_refused_has_no_part_in_the_peer_of_another() {
    let elsewhere = |name: &'static str| {
        let lease = encrypted_lease(5, 9, Some(key(5)));
        (name, Lease { pods: prefixes(&["10.99.5.0/24", "fd00:99:0:5::/64"]), ..lease })
    };
    let good = ("b", encrypted_lease(5, 5, Some(key(5))));
    let alone = encrypted(&json!({}), std::slice::from_ref(&good), &BTreeMap::new()).unwrap();
    // Its name comes before the other's, or after.
    for name in ["a", "c"] {
        let both = encrypted(&json!({}), &[elsewhere(name), good.clone()], &BTreeMap::new()).unwrap();
        assert_ne!(why(&both, name), "");
        assert_eq!((why(&both, "b"), commands(&both, "peer-b")), ("", commands(&alone, "peer-b")));
    }
}
