//! What follows from leases, without a kernel.

mod cloud;
mod encrypted;
mod leaving;

use std::collections::BTreeSet;

use plan::Place;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::backend::{AWS_VPC, VXLAN};

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
        offloads: BTreeMap::new(),
        programs: None,
        services: None,
        tunnel_key: None,
        cloud: View::default(),
        others_may_lag: false,
    }
}

fn network(backend: &serde_json::Value) -> NetworkConfig {
    NetworkConfig::parse(&json!({ "Network": "10.244.0.0/16", "Backend": backend })).unwrap()
}

/// A node at the end of 192.0.2.0/24, or elsewhere.
fn lease(pods: &str, public: [u8; 4]) -> Lease {
    let public = [IpAddr::from(public)].into_iter().collect();
    let data = Some(TunnelData::Vxlan(VxlanEnd { vni: Some(1), mac: tunnel_mac(&public) }));
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
fn a_route_keeps_its_mtu_until_it_is_known_what_the_way_carries() {
    let network = network(&json!({ "Type": "vxlan" }));
    let way = IpAddr::from([192, 0, 2, 2]);
    let b = |public| snapshot(&[("b", Ok(lease("10.244.2.0/24", public)))]);
    let decide = |path_mtus: &[(IpAddr, u32)], snapshot: &Snapshot, standing: &BTreeMap<String, Plan>| {
        let node = Node { path_mtus: path_mtus.iter().copied().collect(), ..node() };
        desired(&node, &network, snapshot, standing).unwrap().parts
    };
    let same = b([192, 0, 2, 2]);
    let narrow = decide(&[(way, 1400)], &same, &BTreeMap::new());
    let mtu = |parts: &BTreeMap<String, Plan>| {
        let mut steps = parts["peer-b"].steps.iter();
        steps.find_map(|placed| if let Step::ReplaceRoute(route) = &placed.step { route.mtu } else { None })
    };
    assert_eq!(mtu(&narrow), Some(1350));
    assert_eq!(decide(&[], &same, &narrow), narrow, "an agent that begins");
    // Programs come with the first pod.
    let with_programs = Node { programs: Some("net".to_owned()), ..node() };
    let locked = desired(&with_programs, &network, &same, &narrow).unwrap().parts;
    let locks = |parts: &BTreeMap<String, Plan>| {
        let mut steps = parts["peer-b"].steps.iter();
        steps.any(|placed| matches!(&placed.step, Step::ReplaceRoute(route) if route.mtu_locked))
    };
    assert_eq!((mtu(&locked), locks(&narrow), locks(&locked)), (Some(1350), false, true));
    assert_eq!(desired(&with_programs, &network, &same, &locked).unwrap().parts, locked);
    assert_eq!(mtu(&decide(&[(way, 1500)], &same, &narrow)), None, "it carries all");
    assert_eq!(mtu(&decide(&[], &b([192, 0, 2, 3]), &narrow)), None, "another way");
    // The pods' links carry less by now.
    let small = Node { wire_mtu: 1390, ..node() };
    assert_eq!(mtu(&desired(&small, &network, &same, &narrow).unwrap().parts), None);
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
fn nodes_that_cannot_be_distinguished_are_refused() {
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

/// Its old lease goes with all that its part has.
#[test]
fn a_node_with_two_leases_has_one_forwarding_entry() {
    let network = network(&json!({ "Type": "vxlan" }));
    let [one, anew] = ["10.244.5.0/24", "10.244.10.0/24"].map(|pods| Ok(lease(pods, [192, 0, 2, 5])));
    let decide = |others: &[(&str, Result<Lease, String>)], standing: &BTreeMap<String, Plan>| {
        desired(&node(), &network, &snapshot(others), standing).unwrap().parts
    };
    let holders = |parts: &BTreeMap<String, Plan>| {
        let has = |plan: &Plan| plan.steps.iter().any(|placed| matches!(placed.step, Step::ReplaceFdb(_)));
        parts.iter().filter(|(_, plan)| has(plan)).map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    let alone = decide(&[("e", one.clone())], &BTreeMap::new());
    assert_eq!(holders(&alone), ["peer-e"]);
    // It stays where it is, whatever the names.
    let both = decide(&[("a", anew.clone()), ("e", one.clone())], &alone);
    assert_eq!((holders(&both), &both["peer-e"]), (vec!["peer-e".to_owned()], &alone["peer-e"]));
    assert_eq!(decide(&[("e", one)], &both), alone);
    assert_eq!(holders(&decide(&[("a", anew)], &both)), ["peer-a"]);
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

#[test]
fn what_a_card_breaks_is_switched_off_as_long_as_the_tunnel_is_the_same() {
    let peer = lease("10.244.2.0/24", [192, 0, 2, 2]);
    let snapshot = snapshot(&[("b", Ok(peer))]);
    let link = IfName::new("hgvx7").unwrap();
    let decide = |wire: &str, offloads: &[(IfName, Offload)], standing: &BTreeMap<String, Plan>| {
        let wire = IfName::new(wire).unwrap();
        let node = Node { wire, offloads: offloads.iter().cloned().collect(), ..node() };
        desired(&node, &network(&json!({ "Type": "vxlan" })), &snapshot, standing).unwrap()
    };
    let switched_off = |desired: &Desired| {
        let commands = desired.parts[NODE_PART].commands();
        commands.into_iter().filter(|command| command.contains("ethtool")).collect::<Vec<_>>()
    };
    let untried = decide("eth0", &[], &BTreeMap::new());
    assert_eq!(untried.tunnels[&link].from, IpAddr::from([10, 244, 1, 0]));
    assert_eq!(untried.tunnels[&link].to, [IpAddr::from([10, 244, 2, 0])]);
    assert!(switched_off(&untried).is_empty());

    let fault = |fault| [(link.clone(), Offload::Faulty(fault))];
    let cut = decide("eth0", &fault(OffloadFault::Segmentation), &BTreeMap::new());
    assert_eq!(
        switched_off(&cut),
        ["ethtool -K hgvx7 tx-tcp-segmentation off", "ethtool -K hgvx7 tx-tcp6-segmentation off"]
    );
    let faulty = decide("eth0", &fault(OffloadFault::Checksums), &BTreeMap::new());
    assert_eq!(switched_off(&faulty), ["ethtool -K hgvx7 tx-checksum-ip-generic off"]);
    assert!(faulty.tunnels.is_empty(), "it is not tried any more");

    let later = decide("eth0", &[], &faulty.parts);
    assert_eq!((switched_off(&later), later.offload_faults), (switched_off(&faulty), faulty.offload_faults));
    let elsewhere = decide("eth1", &[], &faulty.parts);
    assert!(switched_off(&elsewhere).is_empty(), "another card");
    assert!(elsewhere.tunnels.contains_key(&link));
}

#[test]
fn a_tunnel_of_which_nothing_is_known_has_the_fault_of_the_other() {
    let public: Addresses =
        [IpAddr::from([192, 0, 2, 1]), "2001:db8::1".parse().unwrap()].into_iter().collect();
    let conf = json!({ "Network": "10.244.0.0/16", "EnableIPv6": true, "IPv6Network": "fd00:244::/48",
        "Backend": { "Type": "vxlan" } });
    let snapshot = Snapshot { own: prefixes(&["10.244.1.0/24", "fd00:244:0:1::/64"]), ..Snapshot::default() };
    let [v4, v6] = ["hgvx7", "hgvx8"].map(|name| IfName::new(name).unwrap());
    let faults = |offloads: &[(&IfName, Offload)]| {
        let offloads = offloads.iter().map(|(link, offload)| ((*link).clone(), *offload)).collect();
        let node = Node { underlay: public, offloads, ..node() };
        let desired = desired(&node, &NetworkConfig::parse(&conf).unwrap(), &snapshot, &BTreeMap::new());
        desired.unwrap().offload_faults.into_keys().collect::<Vec<_>>()
    };
    let faulty = Offload::Faulty(OffloadFault::Checksums);
    assert_eq!(faults(&[(&v4, faulty)]), [v4.clone(), v6.clone()]);
    assert_eq!(faults(&[(&v4, faulty), (&v6, Offload::Whole)]), std::slice::from_ref(&v4));
    assert_eq!(faults(&[(&v4, Offload::Whole), (&v6, faulty)]), [v6]);
    assert!(faults(&[(&v4, Offload::Whole)]).is_empty());
}

#[test]
fn programs_that_are_there_use_the_tunnels() {
    let snapshot = snapshot(&[("far", Ok(lease("10.244.3.0/24", [198, 51, 100, 3])))]);
    let parts = |programs: Option<&str>, backend: &str| {
        let node = Node { programs: programs.map(str::to_owned), ..node() };
        let network = network(&json!({ "Type": backend }));
        desired(&node, &network, &snapshot, &BTreeMap::new()).unwrap().parts
    };
    let with = parts(Some("host-3"), VXLAN);
    let at_tunnel = |step: &Step| match step {
        Step::AttachProgram(attachment) => (attachment.node == "host-3").then(|| attachment.link.to_string()),
        Step::AddUplink(uplink) => (uplink.node == "host-3").then(|| uplink.link.to_string()),
        _ => None,
    };
    let at: Vec<_> = with[PROGRAMS_PART].steps.iter().map(|placed| at_tunnel(&placed.step)).collect();
    assert_eq!(at, vec![Some("hgvx7".to_owned()); 2]);
    // They are made after the tunnels, and taken back before.
    let names: Vec<&str> = with.keys().map(String::as_str).collect();
    assert_eq!(names, [NODE_PART, "peer-far", PORT_GUARD_PART, PROGRAMS_PART]);
    assert!(!parts(None, VXLAN).contains_key(PROGRAMS_PART));
    assert!(!parts(Some("host-3"), BackendKind::HostGw.name()).contains_key(PROGRAMS_PART));
}

/// The parts of a node whose tunnel is flannel's, with this identifier.
fn found_tunnel(vni: u32) -> BTreeMap<String, Plan> {
    let mut plan = Plan::new();
    let kind = linux::LinkKind::Vxlan(linux::Vxlan {
        vni,
        parent: node().wire,
        local: [192, 0, 2, 1].into(),
        port: 8472,
        learning: false,
    });
    let link =
        linux::Link { name: IfName::new("flannel.1").unwrap(), kind, mtu: None, mac: Some(Mac([2; 6])) };
    plan.push(&Place::Host, Step::EnsureLink(link));
    BTreeMap::from([(NODE_PART.to_owned(), plan)])
}

fn links(desired: &Desired) -> Vec<&str> {
    let steps = &desired.parts[NODE_PART].steps;
    steps.iter().filter_map(|placed| placed.step.link()).map(|link| link.name.as_str()).collect()
}

#[test]
fn a_tunnel_that_was_flannel_s_is_used_under_its_name_and_address() {
    let (network, standing) = (network(&json!({ "Type": "vxlan" })), found_tunnel(1));
    let said = announcement(&node(), &network, &standing);
    assert_eq!(said.data, Some(TunnelData::Vxlan(VxlanEnd { vni: Some(1), mac: Mac([2; 6]) })));
    let seen = snapshot(&[("b", Ok(lease("10.244.2.0/24", [192, 0, 2, 2])))]);
    let wanted = desired(&node(), &network, &seen, &standing).unwrap();
    assert_eq!(links(&wanted), ["flannel.1"]);
    let commands = wanted.parts[&part_of("b")].commands();
    assert!(commands.iter().all(|command| command.contains("dev flannel.1")), "{commands:?}");
    // What stands is as it is wanted the next time.
    let again = desired(&node(), &network, &seen, &wanted.parts).unwrap();
    assert_eq!(again.parts, wanted.parts);
}

#[test]
fn a_tunnel_that_was_flannel_s_is_remembered_while_it_is_of_no_use() {
    let seen = snapshot(&[]);
    for backend in [json!({ "Type": "vxlan", "VNI": 2 }), json!({ "Type": "host-gw" })] {
        let network = network(&backend);
        let wanted = desired(&node(), &network, &seen, &found_tunnel(1)).unwrap();
        assert_eq!(links(&wanted).last(), Some(&"flannel.1"), "{backend}");
        let said = announcement(&node(), &network, &found_tunnel(1)).data;
        assert!(said.is_none_or(|data| data.mac() == Some(tunnel_mac(&node().underlay))), "{backend}");
    }
    let moved = Node { underlay: [IpAddr::from([192, 0, 2, 9])].into_iter().collect(), ..node() };
    let network = network(&json!({ "Type": "vxlan" }));
    let why = desired(&moved, &network, &seen, &found_tunnel(1)).unwrap_err().to_string();
    assert!(why.contains("flannel.1") && why.contains("192.0.2.1 on eth0"), "{why}");
}
