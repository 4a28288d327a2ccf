//! What follows from leases, without a kernel.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn prefixes(texts: &[&str]) -> Prefixes {
    texts.iter().map(|text| text.parse::<IpNet>().unwrap()).collect()
}

fn node() -> Node {
    Node {
        wire: IfName::new("eth0").unwrap(),
        wire_mtu: 1500,
        underlay: [IpAddr::from([192, 0, 2, 1])].into_iter().collect(),
        subnets: vec!["192.0.2.1/24".parse().unwrap()],
        numbers: [7, 8],
        path_mtus: BTreeMap::new(),
        services: None,
    }
}

fn network(backend: &serde_json::Value) -> NetworkConfig {
    NetworkConfig::parse(&json!({ "Network": "10.244.0.0/16", "Backend": backend })).unwrap()
}

/// A node at the end of 192.0.2.0/24, or elsewhere.
fn lease(pods: &str, public: [u8; 4]) -> Lease {
    let public = [IpAddr::from(public)].into_iter().collect();
    let data = Some(TunnelData { vni: Some(1), mac: tunnel_mac(&public) });
    Lease {
        pods: prefixes(&[pods]),
        node: Announcement { public, backend: VXLAN.to_owned(), data, data_v6: None },
    }
}

fn snapshot(others: &[(&str, Result<Lease, String>)]) -> Snapshot {
    let others = others.iter().map(|(name, lease)| ((*name).to_owned(), lease.clone())).collect();
    Snapshot { own: prefixes(&["10.244.1.0/24"]), others, ..Snapshot::default() }
}

fn why<'d>(desired: &'d Desired, peer: &str) -> &'d str {
    match &desired.peers[peer] {
        DesiredPeer::Refused(why) => why,
        DesiredPeer::Reached { .. } => "",
    }
}

#[test]
fn a_way_that_carries_less_is_on_the_routes() {
    let (near, far) = (lease("10.244.2.0/24", [192, 0, 2, 2]), lease("10.244.3.0/24", [198, 51, 100, 3]));
    let snapshot = snapshot(&[("near", Ok(near)), ("far", Ok(far))]);
    let mtus = |near: u32, far: u32| {
        let ways = [(IpAddr::from([192, 0, 2, 2]), near), (IpAddr::from([198, 51, 100, 3]), far)];
        let node = Node { path_mtus: ways.into(), ..node() };
        let network = network(&json!({ "Type": "vxlan", "DirectRouting": true }));
        let desired = desired(&node, &network, &snapshot, &BTreeMap::new()).unwrap();
        assert_eq!((desired.mtu, &desired.targets), (1450, &ways.map(|(way, _)| (way, 1500)).into()));
        let mtu = |name: &str| {
            let steps = &desired.parts[&part_of(name)].steps;
            steps.iter().find_map(|placed| match &placed.step {
                Step::ReplaceRoute(route) => Some(route.mtu),
                _ => None,
            })
        };
        (mtu("near").unwrap(), mtu("far").unwrap())
    };
    assert_eq!(mtus(1500, 1500), (None, None));
    // Pods send 1450 bytes at most; by the tunnel they grow by 50.
    assert_eq!(mtus(1450, 1499), (None, Some(1449)));
    assert_eq!(mtus(1400, 1400), (Some(1400), Some(1350)));
}

#[test]
fn the_way_to_a_node_follows_from_where_it_is() {
    let (near, far) = (lease("10.244.2.0/24", [192, 0, 2, 2]), lease("10.244.3.0/24", [198, 51, 100, 3]));
    let snapshot = snapshot(&[("near", Ok(near)), ("far", Ok(far))]);
    let by = |backend| {
        let desired = desired(&node(), &network(&backend), &snapshot, &BTreeMap::new()).unwrap();
        let by = |name: &str| match &desired.peers[name] {
            DesiredPeer::Reached { by, .. } => by[&Family::V4],
            DesiredPeer::Refused(_) => "refused",
        };
        (by("near"), by("far"), desired.mtu)
    };
    assert_eq!(by(json!({ "Type": "vxlan" })), ("vxlan", "vxlan", 1450));
    assert_eq!(by(json!({ "Type": "vxlan", "DirectRouting": true })), ("direct", "vxlan", 1450));
    assert_eq!(by(json!({ "Type": "vxlan", "MTU": 1400 })), ("vxlan", "vxlan", 1350));
    // A tunnel cannot have more than its link.
    assert_eq!(by(json!({ "Type": "vxlan", "MTU": 9000 })), ("vxlan", "vxlan", 1450));
    // They announce another backend.
    assert_eq!(by(json!({ "Type": "host-gw" })), ("refused", "refused", 1500));
}

#[test]
fn what_stands_of_a_refused_node_stays_until_another_has_its_prefix() {
    let network = network(&json!({ "Type": "vxlan" }));
    let before = snapshot(&[("a", Ok(lease("10.244.2.0/24", [192, 0, 2, 2])))]);
    let standing = desired(&node(), &network, &before, &BTreeMap::new()).unwrap().parts;
    let broken = || Err("it makes no sense".to_owned());
    let stays = desired(&node(), &network, &snapshot(&[("a", broken())]), &standing).unwrap();
    assert_eq!(stays.parts["peer-a"], standing["peer-a"]);
    let taken = snapshot(&[("a", broken()), ("b", Ok(lease("10.244.2.0/24", [192, 0, 2, 3])))]);
    let goes = desired(&node(), &network, &taken, &standing).unwrap();
    assert!(!goes.parts.contains_key("peer-a") && goes.parts.contains_key("peer-b"));
    assert_eq!(why(&goes, "a"), "it makes no sense");
}

#[test]
fn nodes_that_cannot_be_told_apart_are_refused() {
    let network = network(&json!({ "Type": "vxlan" }));
    let mut twin = lease("10.244.9.0/24", [192, 0, 2, 9]);
    twin.node.data = lease("10.244.4.0/24", [192, 0, 2, 4]).node.data;
    let mut moved = lease("10.244.10.0/24", [192, 0, 2, 5]);
    moved.node.data = lease("10.244.5.0/24", [192, 0, 2, 5]).node.data;
    let of = [
        ("wide", Ok(lease("10.244.2.0/23", [192, 0, 2, 2]))),
        ("narrow", Ok(lease("10.244.3.128/25", [192, 0, 2, 3]))),
        ("d", Ok(lease("10.244.4.0/24", [192, 0, 2, 4]))),
        ("twin", Ok(twin)),
        // One node with two leases, of which one will end.
        ("e", Ok(lease("10.244.5.0/24", [192, 0, 2, 5]))),
        ("e-anew", Ok(moved)),
    ];
    let desired = desired(&node(), &network, &snapshot(&of), &BTreeMap::new()).unwrap();
    assert_eq!(why(&desired, "narrow"), "its 10.244.3.128/25 is also wide's: 10.244.2.0/23");
    assert_eq!(why(&desired, "wide"), "its 10.244.2.0/23 is also narrow's: 10.244.3.128/25");
    assert!(why(&desired, "d").contains("is also twin's") && why(&desired, "twin").contains("is also d's"));
    assert_eq!((why(&desired, "e"), why(&desired, "e-anew")), ("", ""));
}

#[test]
fn a_node_in_any_place_of_its_prefix_has_a_tunnel_address_of_its_own() {
    let mac = |text: &str| tunnel_mac(&[text.parse::<IpAddr>().unwrap()].into_iter().collect());
    let all = ["192.0.2.1", "192.1.2.1", "2001:db8:1::1", "2001:db8:2::1", "2001:db8::1:1"];
    let macs: BTreeSet<Mac> = all.iter().map(|text| mac(text)).collect();
    assert_eq!(macs.len(), all.len());
    assert_eq!(mac("192.0.2.1").to_string(), "02:68:c0:00:02:01");
}

proptest! {
    #[test]
    fn parts_of_different_nodes_have_different_names(one in ".{0,300}", two in ".{0,300}") {
        let parts = [part_of(&one), part_of(&two)];
        prop_assert_eq!(one == two, parts[0] == parts[1]);
        for part in parts {
            prop_assert!(part.len() <= PART_BYTES_MAX && !part.contains('/') && part.as_str() > NODE_PART);
        }
    }
}
