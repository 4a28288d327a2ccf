//! What follows from leases where the network has a cloud's route tables.

use super::*;
use crate::cloud::{Interface, Route, Table, Wish};

const OTHER: &str = "10.244.2.0/24";

fn in_cloud() -> NetworkConfig {
    network(&json!({ "Type": "aws-vpc" }))
}

/// A lease of a node that has the backend.
fn in_cloud_too(pods: &str, public: [u8; 4]) -> Lease {
    let mut lease = lease(pods, public);
    lease.node.backend = AWS_VPC.to_owned();
    lease
}

/// A node whose cloud leads both prefixes where they belong.
fn node_in_cloud(is_settled: bool) -> Node {
    let route = |prefix: &str, name: &str| Route {
        prefix: prefix.parse().unwrap(),
        target: format!("eni-{name}"),
        instance: Some(format!("i-{name}")),
        is_dead: false,
        is_static: true,
    };
    let interface = Interface {
        id: "eni-a".to_owned(),
        instance: "i-a".to_owned(),
        subnet: "subnet-a".to_owned(),
        vpc: "vpc-1".to_owned(),
        account: None,
        checks_source: false,
    };
    let table = Table {
        id: "rtb-1".to_owned(),
        routes: vec![route("10.244.1.0/24", "a"), route(OTHER, "b")],
        counted: [2, 0],
    };
    let cloud = View { interface: Some(interface), tables: vec![table], is_settled, ..View::default() };
    Node { cloud, ..node() }
}

#[test]
fn what_no_transport_could_have_is_not_asked_of_a_cloud() {
    let alone = snapshot(&[]);
    let decided = |node: &Node, snapshot: &Snapshot| desired(node, &in_cloud(), snapshot, &BTreeMap::new());
    assert!(decided(&node(), &alone).is_ok());
    let among_pods = Node { underlay: [IpAddr::from([10, 244, 7, 7])].into_iter().collect(), ..node() };
    let Err(Undecided::Node(why)) = decided(&among_pods, &alone) else { panic!("it is followed") };
    assert!(why.contains("10.244.0.0/16"), "{why}");
    let elsewhere = Snapshot { own: prefixes(&["10.1.0.0/24"]), ..alone };
    let Err(Undecided::Node(why)) = decided(&node(), &elsewhere) else { panic!("it is followed") };
    assert!(why.contains("10.1.0.0/24"), "{why}");
}

#[test]
fn a_lease_that_no_transport_could_follow_is_refused() {
    let others = [
        ("as this one", Ok(in_cloud_too(OTHER, [192, 0, 2, 1]))),
        ("outside", Ok(in_cloud_too("10.1.0.0/24", [192, 0, 2, 3]))),
        ("overlapping", Ok(in_cloud_too("10.244.1.128/25", [192, 0, 2, 4]))),
    ];
    let desired = desired(&node_in_cloud(true), &in_cloud(), &snapshot(&others), &BTreeMap::new()).unwrap();
    assert!(why(&desired, "as this one").contains("is the node's own"), "{desired:?}");
    assert!(why(&desired, "outside").contains("lies outside"), "{desired:?}");
    assert!(why(&desired, "overlapping").contains("overlaps the node's"), "{desired:?}");
}

#[test]
fn the_cloud_is_left_when_no_node_sends_by_it() {
    let vxlan = network(&json!({ "Type": "vxlan" }));
    let (followed, not_yet) = (lease(OTHER, [192, 0, 2, 2]), in_cloud_too("10.244.3.0/24", [192, 0, 2, 3]));
    let wished = |others: &[(&str, Result<Lease, String>)]| wish(&node(), &vxlan, &snapshot(others));
    assert_eq!(wished(&[("b", Ok(followed.clone())), ("c", Ok(not_yet))]), None);
    assert_eq!(wished(&[("b", Ok(followed))]), Some(Wish::Nothing));
    assert_eq!(wished(&[("b", Err("it makes no sense".to_owned()))]), Some(Wish::Nothing));
}

#[test]
fn tunnels_stay_until_the_others_have_seen_that_the_tables_lead_here() {
    let vxlan = network(&json!({ "Type": "vxlan" }));
    let before = snapshot(&[("b", Ok(lease(OTHER, [192, 0, 2, 2])))]);
    let standing = desired(&node(), &vxlan, &before, &BTreeMap::new()).unwrap().parts;
    assert!(!standing[NODE_PART].steps.is_empty());
    let followed = snapshot(&[("b", Ok(in_cloud_too(OTHER, [192, 0, 2, 2])))]);
    let parts = |node: &Node| desired(node, &in_cloud(), &followed, &standing).unwrap().parts;
    // Not even this node has seen it.
    assert_eq!(parts(&node()), standing);
    let unsettled = parts(&node_in_cloud(false));
    assert_eq!(unsettled[NODE_PART], standing[NODE_PART]);
    assert!(!unsettled.contains_key(&part_of("b")), "this node sends by the tables");
    assert!(parts(&node_in_cloud(true))[NODE_PART].steps.is_empty());
}
