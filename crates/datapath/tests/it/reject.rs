//! Specifications for which no plan can be made, each with the reason that the user reads.

use std::net::{Ipv4Addr, Ipv6Addr};

use datapath::{
    Family, Limits, NodeSpec, Peer, Pod, Prefixes, Protocol, PublishedPort, RateLimit, ReceiveLimit,
    SpecError, find,
};
use ipnet::IpNet;
use linux::{IfName, Mac};
use plan::{Place, Plan};

use crate::specs::{Shape, peer};

fn shape(path: &'static str) -> Shape {
    Shape::new("hg", find(path).expect("a known path"))
}

fn prefixes(texts: &[&str]) -> Prefixes {
    texts.iter().map(|text| text.parse::<IpNet>().expect("a sound prefix")).collect()
}

#[track_caller]
fn check(got: Result<Plan, SpecError>, words: &str) {
    let error = got.expect_err("a bad specification was taken").to_string();
    assert!(error.contains(words), "{error:?} does not say {words:?}");
}

/// Node 1 with a change must be rejected by each of a path's plans.
#[track_caller]
fn check_node(name: &'static str, change: impl Fn(&mut NodeSpec), words: &str) {
    let shape = shape(name);
    let mut node = shape.node(1);
    change(&mut node);
    check(shape.path.node_plan(&node), words);
    check(shape.path.peer_plan(&node, &peer(&shape.node(2))), words);
}

#[track_caller]
fn check_pod(change: impl Fn(&mut Pod), words: &str) {
    let shape = shape("bridge+direct");
    let node = shape.node(1);
    let mut pod = shape.pod(&node, 1);
    change(&mut pod);
    check(shape.path.pod_plan(&node, &pod), words);
}

#[test]
fn a_port_of_af_xdp_takes_no_jumbo_frames() {
    let shape = shape("ovs-afxdp+direct");
    let node = |wire_mtu| NodeSpec { wire_mtu, ..shape.node(1) };
    assert!(shape.path.node_plan(&node(3490)).is_ok());
    check(shape.path.node_plan(&node(3491)), "3490 at most");
}

#[test]
fn a_node_must_be_possible() {
    check_node("host", |node| node.id = 0, "ids begin at 1");
    check_node("host", |node| node.wire_mtu = 1279, "1279 bytes is not within 1280 to 65535");
    check_node("host", |node| node.wire_mtu = 65536, "not within");
    check_node("ptp+direct", |node| node.pods = prefixes(&["10.244.1.0/31"]), "no room");
    check_node("ptp+direct", |node| node.pods = prefixes(&["fd00:244:0:1::/127"]), "no room");
    check_node("macvlan", |node| node.pods = prefixes(&["10.9.0.0/24"]), "outside the");
    let within = |node: &mut NodeSpec| node.underlay.v4 = Some([10, 244, 1, 9].into());
    check_node("ptp+direct", within, "lies in its pods' prefix");
    for name in ["bridge+direct", "ptp+direct", "ipvlan-l2"] {
        check_node(name, |node| node.network.host_link = true, "has no use for");
    }
    // Pods of the wire's own subnet are what macvlan is for.
    let mut node = shape("macvlan").node(1);
    within(&mut node);
    assert!(shape("macvlan").path.node_plan(&node).is_ok());
}

#[test]
fn routed_pods_must_lie_apart_from_the_underlay() {
    for path in ["bridge+direct", "bridge+vpc", "ptp+vxlan", "ipvlan-l3", "ipvlan-l3s"] {
        check_node(
            path,
            |node| node.underlay.v4 = Some([10, 244, 9, 1].into()),
            "lies in the cluster's prefix",
        );
        check_node(
            path,
            |node| node.underlay.v6 = Some(Ipv6Addr::new(0xfd00, 0x244, 0, 9, 0, 0, 0, 1)),
            "which is routed",
        );
    }
    let shape = shape("macvlan");
    let mut node = shape.node(1);
    node.underlay.v4 = Some([10, 244, 9, 1].into());
    assert!(shape.path.node_plan(&node).is_ok(), "on one wire pods and nodes may share a subnet");
}

#[test]
fn a_router_must_be_there_to_write_its_table() {
    check_node("bridge+vpc", |node| node.router = None, "no router is given");
}

#[test]
fn an_encrypted_tunnel_needs_the_keys_of_both_ends() {
    let shape = shape("ptp+wireguard");
    let (mut node, other) = (shape.node(1), shape.node(2));
    let stranger = Peer { tunnel_key: None, ..peer(&other) };
    check(shape.path.peer_plan(&node, &stranger), "peer 2 of node 1: its tunnel is encrypted, and no key");
    let twin = Peer { tunnel_key: node.tunnel_key.as_ref().map(|key| key.public), ..peer(&other) };
    check(shape.path.peer_plan(&node, &twin), "is the node's own");
    node.tunnel_key = None;
    check(shape.path.node_plan(&node), "node 1: its tunnel is encrypted, and no key");
}

#[test]
fn a_tunnel_without_a_device_needs_a_key_for_each_direction() {
    let shape = shape("ptp+ipsec");
    let (node, other) = (shape.node(1), shape.node(2));
    let stranger = Peer { associations: None, ..peer(&other) };
    check(shape.path.peer_plan(&node, &stranger), "peer 2 of node 1: its tunnel is encrypted, and no associ");
    let mut one = peer(&other);
    let associations = one.associations.as_mut().unwrap();
    associations.send.key_file = associations.receive.key_file.clone();
    check(shape.path.peer_plan(&node, &one), "both directions of its tunnel have one key");
}

/// The last bytes of an outer packet are used up to a multiple of four.
#[test]
fn what_ipsec_takes_depends_on_the_underlay() {
    #[track_caller]
    fn check(underlay: u32, outer: Family, expected: u32) {
        let shape = Shape { mtu: underlay, outer, ..shape("bridge+ipsec") };
        assert_eq!(shape.path.pod_mtu(&shape.node(1)), Ok(expected));
    }
    check(1500, Family::V4, 1446);
    check(1501, Family::V4, 1446);
    check(1503, Family::V4, 1446);
    check(1504, Family::V4, 1450);
    check(1500, Family::V6, 1426);
    check(9000, Family::V4, 8946);
    check(1336, Family::V4, 1282);
}

#[test]
fn a_tunnel_must_leave_ipv6_its_smallest_mtu() {
    let mtu = |mtu: u32, outer: Family| {
        let shape = Shape { mtu, outer, ..shape("ptp+vxlan") };
        shape.path.pod_mtu(&shape.node(1))
    };
    assert_eq!(mtu(1330, Family::V4), Ok(1280));
    assert_eq!(mtu(1350, Family::V6), Ok(1280));
    assert!(mtu(1329, Family::V4).unwrap_err().to_string().contains("1329 bytes less 50"));
    assert!(mtu(1349, Family::V6).unwrap_err().to_string().contains("1349 bytes less 70"));
    let shape = Shape { mtu: 1300, ..shape("bridge+vxlan") };
    check(shape.path.node_plan(&shape.node(1)), "less than the 1280 that a link needs");
}

#[test]
fn a_pod_must_be_possible() {
    check_pod(|pod| pod.id = 0, "ids begin at 1");
    check_pod(
        |pod| pod.addresses.v4 = Some(Ipv4Addr::new(10, 244, 2, 2)),
        "outside the node's prefix 10.244.1.0/24",
    );
    check_pod(|pod| pod.addresses.v6 = Some(Ipv6Addr::LOCALHOST), "outside the node's prefix");
    check_pod(|pod| pod.addresses.v4 = Some(Ipv4Addr::new(10, 244, 1, 0)), "is the network's");
    check_pod(|pod| pod.addresses.v4 = Some(Ipv4Addr::new(10, 244, 1, 1)), "is the gateway's");
    check_pod(|pod| pod.addresses.v4 = Some(Ipv4Addr::new(10, 244, 1, 255)), "broadcast");
    check_pod(|pod| pod.ifname = IfName::new("lo").unwrap(), "cannot be called lo");
    check_pod(|pod| pod.place = Place::Netns(shape("host").netns("n1")), "is the node's own");
}

#[test]
fn a_pod_behind_the_wire_s_ethernet_address_has_none_of_its_own() {
    for path in datapath::ALL {
        let shape = shape(path.name);
        let node = shape.node(1);
        let pod = Pod { mac: Some(Mac::from_id(9, 9)), ..shape.pod(&node, 1) };
        let plan = path.pod_plan(&node, &pod);
        match path.attach.name() {
            "ipvlan-l2" | "ipvlan-l3" | "ipvlan-l3s" | "host" | "slirp4netns" => {
                check(plan, "have that of the node's wire");
            }
            _ => assert!(plan.is_ok(), "{}: {plan:?}", path.name),
        }
    }
}

#[test]
fn a_published_port_must_be_possible() {
    let port = |node, protocol| PublishedPort { node, address: None, pod: 80, protocol };
    let refused = |name, published, words: &str| {
        let shape = shape(name);
        let node = shape.node(1);
        check(shape.path.pod_plan(&node, &Pod { published, ..shape.pod(&node, 1) }), words);
    };
    refused("docker", vec![port(0, Protocol::Tcp)], "published port of 0");
    let twice = vec![port(8080, Protocol::Tcp), port(8080, Protocol::Udp), port(8080, Protocol::Udp)];
    refused("docker", twice, "publishes port 8080 twice");
    let foreign = PublishedPort { address: Some(Ipv6Addr::LOCALHOST.into()), ..port(80, Protocol::Tcp) };
    let alone = Shape { families: &[Family::V4], ..shape("docker") };
    let node = alone.node(1);
    let pod = Pod { published: vec![foreign], ..alone.pod(&node, 1) };
    check(alone.path.pod_plan(&node, &pod), "publishes a port on ::1, and has no address of that family");
    for path in datapath::ALL.iter().filter(|path| !path.attach.publishes_ports()) {
        let words =
            format!("publishes port 8080, and the attach {} of {} publishes", path.attach.name(), path.name);
        refused(path.name, vec![port(8080, Protocol::Tcp)], &words);
    }
}

#[test]
fn a_limit_must_be_possible() {
    let limit = |rate_bytes_per_s, burst_bytes| Some(RateLimit { rate_bytes_per_s, burst_bytes });
    let plan = |path: &datapath::DataPath, limits| {
        let shape = shape(path.name);
        let node = shape.node(1);
        path.pod_plan(&node, &Pod { limits, ..shape.pod(&node, 1) })
    };
    let ptp = find("ptp+direct").unwrap();
    let fits = Limits { send: limit(1, 1514), receive: limit(1, 1514) };
    assert!(plan(ptp, fits).is_ok());
    check(plan(ptp, Limits { send: limit(0, 1514), ..fits }), "with 0 bytes a second");
    check(plan(ptp, Limits { receive: limit(1, 1513), ..fits }), "1513 at once its packets of 1514 bytes");
    for path in datapath::ALL {
        let burst_bytes = path.attach.relay_mtu().map_or(1514, |mtu| mtu + 14);
        let plan = plan(path, Limits { send: None, receive: limit(1, burst_bytes) });
        match path.attach.receive_limit() {
            ReceiveLimit::NodeEnd | ReceiveLimit::Pod => assert!(plan.is_ok(), "{}: {plan:?}", path.name),
            ReceiveLimit::Nowhere(why) => {
                check(plan, &format!("to be limited, and with {} {why}", path.attach.name()));
            }
        }
    }
}

#[test]
fn a_peer_must_stand_beside_the_node() {
    let shape = shape("ptp+direct");
    let (node, other) = (shape.node(1), shape.node(2));
    let plan = |change: &dyn Fn(&mut Peer)| {
        let mut peer = peer(&other);
        change(&mut peer);
        shape.path.peer_plan(&node, &peer)
    };
    assert!(plan(&|_| ()).is_ok());
    check(plan(&|peer| peer.id = 1), "the node's own id");
    check(plan(&|peer| peer.underlay.v4 = node.underlay.v4), "is the node's own");
    check(plan(&|peer| peer.pods = node.pods.clone()), "overlaps");
    check(plan(&|peer| peer.pods = prefixes(&["10.9.0.0/24"])), "outside the cluster's");
}

#[test]
fn clients_get_the_address_at_which_a_pod_serves() {
    #[track_caller]
    fn check(path: &'static str, family: Family, expected: &str) {
        let shape = shape(path);
        let node = shape.node(2);
        let got = shape.path.address_of(&node, &shape.pod(&node, 1), family, 80).unwrap();
        assert_eq!(got.to_string(), expected);
    }
    check("host", Family::V4, "192.168.100.2:80");
    check("docker", Family::V4, "192.168.100.2:8080");
    check("docker", Family::V6, "[fd00:100::2]:8080");
    check("bridge+vpc", Family::V4, "10.244.2.2:80");
    check("ipvlan-l3", Family::V6, "[fd00:244:0:2::2]:80");

    let shape = shape("docker");
    let node = shape.node(2);
    let refused = |pod: u8, port: u16| {
        shape.path.address_of(&node, &shape.pod(&node, pod), Family::V4, port).unwrap_err().to_string()
    };
    assert!(refused(1, 81).contains("does not publish port 81"), "another port than the published one");
    assert!(refused(2, 80).contains("does not publish port 80"), "a pod that publishes nothing");
}
