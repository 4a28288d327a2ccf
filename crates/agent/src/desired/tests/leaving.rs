//! The tunnels of the backend before, when the network's changes.

use super::encrypted::{encrypted_lease, encrypted_node, key};
use super::*;
use crate::backend::WIREGUARD;

const HOST_GW: &str = "host-gw";

/// Another node with this backend.
fn other(backend: &str) -> Snapshot {
    let mut lease = lease("10.244.2.0/24", [192, 0, 2, 2]);
    lease.node.backend = backend.to_owned();
    snapshot(&[("b", Ok(lease))])
}

#[test]
fn a_tunnel_is_left_when_no_other_node_can_use_it() {
    let (vxlan, host_gw) = (network(&json!({ "Type": "vxlan" })), network(&json!({ "Type": "host-gw" })));
    let standing = desired(&node(), &vxlan, &other(VXLAN), &BTreeMap::new()).unwrap().parts;
    let direct = desired(&node(), &host_gw, &other(HOST_GW), &BTreeMap::new()).unwrap().parts;
    let parts = |others_may_lag, backend| {
        let node = Node { others_may_lag, ..node() };
        desired(&node, &host_gw, &other(backend), &standing).unwrap().parts
    };
    let has_tunnel = |parts: &BTreeMap<String, Plan>| {
        standing[NODE_PART].steps.iter().all(|placed| parts[NODE_PART].steps.contains(placed))
    };
    let b = part_of("b");
    // The other node has not followed: it is sent to as before.
    let early = parts(false, VXLAN);
    assert!(has_tunnel(&early) && early[&b] == standing[&b], "{early:?}");
    // It has, and may not know yet that this one has.
    let just_now = parts(true, HOST_GW);
    assert!(has_tunnel(&just_now) && just_now[&b] == direct[&b], "{just_now:?}");
    assert_eq!(parts(false, HOST_GW), direct);
}

/// Two tunnels cannot have one name.
#[test]
fn a_tunnel_of_another_identifier_takes_the_place_at_once() {
    let of = |vni| network(&json!({ "Type": "vxlan", "VNI": vni }));
    let standing = desired(&node(), &of(1), &other(VXLAN), &BTreeMap::new()).unwrap().parts;
    let node = Node { others_may_lag: true, ..node() };
    let changed = desired(&node, &of(2), &other(VXLAN), &standing).unwrap().parts;
    assert_eq!(
        changed[NODE_PART],
        desired(&node, &of(2), &other(VXLAN), &BTreeMap::new()).unwrap().parts[NODE_PART]
    );
}

/// The first look makes the new tunnels, the next ones find both.
#[test]
fn a_tunnel_is_kept_beside_that_of_the_new_backend() {
    let network = |kind| {
        NetworkConfig::parse(&json!({ "Network": "10.244.0.0/16", "Backend": { "Type": kind } })).unwrap()
    };
    let others = [encrypted_lease(2, 2, Some(key(2)))];
    let others = others.map(|mut lease| {
        lease.pods = prefixes(&["10.244.2.0/24"]);
        ("b", Ok(lease))
    });
    let parts = |kind, others_may_lag, standing: &BTreeMap<String, Plan>| {
        let node = Node { others_may_lag, ..encrypted_node(1) };
        let snapshot = if kind == VXLAN { other(VXLAN) } else { snapshot(&others) };
        desired(&node, &network(kind), &snapshot, standing).unwrap().parts
    };
    let links = |parts: &BTreeMap<String, Plan>| {
        let links = parts[NODE_PART].steps.iter().filter_map(|placed| placed.step.link());
        links.map(|link| link.name.to_string()).collect::<BTreeSet<_>>()
    };
    let vxlan = parts(VXLAN, false, &BTreeMap::new());
    let first = parts(WIREGUARD, true, &vxlan);
    let second = parts(WIREGUARD, true, &first);
    assert_eq!((links(&first).len(), links(&second)), (2, links(&first)));
    let later = parts(WIREGUARD, false, &second);
    assert_eq!(later, parts(WIREGUARD, false, &BTreeMap::new()));
    // And back: what the other node may still encrypt is heard.
    let back = parts(VXLAN, true, &later);
    let hears = |step: &Step| matches!(step, Step::AddWireGuardPeer(peer) if peer.key == key(2));
    assert!(back[&part_of("b")].steps.iter().any(|placed| hears(&placed.step)), "{back:?}");
    assert_eq!(parts(VXLAN, false, &back), vxlan);
}
