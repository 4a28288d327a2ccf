//! The tunnels of the backend before, when the network's changes.

use super::*;

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
    assert_eq!(changed[NODE_PART], desired(&node, &of(2), &other(VXLAN), &BTreeMap::new()).unwrap().parts[NODE_PART]);
}
