//! Links over a wire between two nodes: vxlan, routes into tunnels, macvlan and ipvlan.

use linux::features::{Feature, probe};
use linux::netlink::{EncapInfo, VxlanInfo};
use linux::{Encap, FdbEntry, IpvlanMode, LinkKind, Mac, MacvlanMode, Neighbour, Route, Vxlan};

use crate::world::{TestNetns, ifname, link, talk};

/// As flannel does it: no bridge, a route via the other node's tunnel address, and permanent entries.
fn vxlan_between(outer: [&str; 2], inner: [&str; 2], pods: [&str; 2]) {
    let nodes = [TestNetns::new("vx-a"), TestNetns::new("vx-b")];
    let prefix = if outer[0].contains(':') { 64 } else { 24 };
    nodes[0].wire(&nodes[1], "hgw0", &format!("{}/{prefix}", outer[0]), &format!("{}/{prefix}", outer[1]));
    for (here, there) in [(0, 1), (1, 0)] {
        let node = &nodes[here];
        let id = |n: usize| Mac::from_id(5, u32::try_from(n).expect("0 or 1"));
        let local = outer[here].parse().expect("a valid address");
        let vxlan = Vxlan { vni: 42, parent: ifname("hgw0"), local, port: 8472, learning: false };
        let mut tunnel = link("hgvx", LinkKind::Vxlan(vxlan));
        tunnel.mac = Some(id(here));
        tunnel.mtu = Some(1430);
        node.netlink.link_add(&tunnel).expect("the tunnel can be made");
        let (host, subnet) = if pods[0].contains(':') { (128, 64) } else { (32, 24) };
        node.up("hgvx", &[&format!("{}/{host}", inner[here])]);
        node.up("lo", &[&format!("{}/{host}", pods[here])]);
        let peer = inner[there].parse().expect("a valid address");
        let dst = outer[there].parse().expect("a valid address");
        let neighbour = Neighbour { dev: ifname("hgvx"), ip: peer, mac: Some(id(there)) };
        node.netlink.neighbour_add(&neighbour).expect("the neighbour can be added");
        let entry = FdbEntry { dev: ifname("hgvx"), mac: id(there), dst };
        node.netlink.fdb_add(&entry).expect("the entry can be added");
        let dst = format!("{}/{subnet}", inner[there]).parse().expect("a valid prefix");
        let route = Route { onlink: true, ..Route::via(dst, peer, ifname("hgvx")) };
        node.netlink.route_add(&route).expect("the route can be added");
    }
    assert!(talk(&nodes[0], &nodes[1], pods[1]), "{outer:?} {inner:?}");
    let bytes = bytes_sent(&nodes[0], "hgvx");
    assert!(bytes > 1_000_000, "{bytes}");
}

fn bytes_sent(place: &TestNetns, link: &str) -> u64 {
    let shown = place.judge("ip", &["-s", "link", "show", link]);
    let last = shown.lines().last().and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
    last.expect("a count")
}

#[test]
fn vxlan_over_ipv4_carries_both_families() {
    vxlan_between(["192.0.2.1", "192.0.2.2"], ["10.1.0.0", "10.2.0.0"], ["10.1.0.9", "10.2.0.9"]);
    vxlan_between(["192.0.2.1", "192.0.2.2"], ["fd01::", "fd02::"], ["fd01::9", "fd02::9"]);
}

#[test]
fn vxlan_over_ipv6_carries_both_families() {
    vxlan_between(["2001:db8::1", "2001:db8::2"], ["10.1.0.0", "10.2.0.0"], ["10.1.0.9", "10.2.0.9"]);
    vxlan_between(["2001:db8::1", "2001:db8::2"], ["fd01::", "fd02::"], ["fd01::9", "fd02::9"]);
}

#[test]
fn vxlan_has_the_options_that_were_asked_for() {
    let (here, there) = (TestNetns::new("vxo-a"), TestNetns::new("vxo-b"));
    here.wire(&there, "hgw0", "192.0.2.1/24", "192.0.2.2/24");
    here.up("hgw0", &["2001:db8::1/64"]);
    for (name, vni, local, learning, expected) in [
        ("hgvx4", 41, "192.0.2.1", false, "noudpcsum noudp6zerocsumtx"),
        ("hgvx6", 61, "2001:db8::1", true, "udpcsum noudp6zerocsumtx"),
    ] {
        let local_ip = local.parse().unwrap();
        let vxlan = Vxlan { vni, parent: ifname("hgw0"), local: local_ip, port: 4789, learning };
        here.add(name, LinkKind::Vxlan(vxlan));
        let shown = here.judge("ip", &["-d", "link", "show", name]);
        assert!(shown.contains(&format!("vxlan id {vni} local {local} dev hgw0")), "{shown}");
        assert!(shown.contains("dstport 4789") && shown.contains(&format!(" {expected}")), "{shown}");
        assert_eq!(shown.contains("nolearning"), !learning, "{shown}");
        let found = here.netlink.link(&ifname(name)).unwrap().unwrap().vxlan.unwrap();
        let parent = here.netlink.link(&ifname("hgw0")).unwrap().map(|wire| wire.index);
        assert_eq!(found, VxlanInfo { vni, parent, local: Some(local_ip), port: 4789, learning });
    }
}

/// Two nodes with an external vxlan device each. Node 1 has the tunnel addresses 10.1.0.0 and fd01:: and the
/// pod addresses 10.1.0.9 and fd01::9; those of node 2 begin with 10.2 and fd02. Neither node has a route to
/// the other's pods yet.
fn external_nodes(outer: [&str; 2]) -> [TestNetns; 2] {
    let nodes = [TestNetns::new("ext-a"), TestNetns::new("ext-b")];
    let prefix = if outer[0].contains(':') { 64 } else { 24 };
    nodes[0].wire(&nodes[1], "hgw0", &format!("{}/{prefix}", outer[0]), &format!("{}/{prefix}", outer[1]));
    for (node, id) in nodes.iter().zip([1_u32, 2]) {
        let mut tunnel = link("hgvx", LinkKind::VxlanExternal { port: 8472 });
        (tunnel.mac, tunnel.mtu) = (Some(Mac::from_id(5, id)), Some(1430));
        node.netlink.link_add(&tunnel).expect("the tunnel can be made");
        node.up("hgvx", &[&format!("10.{id}.0.0/32"), &format!("fd0{id}::/128")]);
        node.up("lo", &[&format!("10.{id}.0.9/32"), &format!("fd0{id}::9/128")]);
        for peer in [1, 2].into_iter().filter(|peer| *peer != id) {
            for ip in [format!("10.{peer}.0.0"), format!("fd0{peer}::")] {
                let ip = ip.parse().expect("a valid address");
                let neighbour = Neighbour { dev: ifname("hgvx"), ip, mac: Some(Mac::from_id(5, peer)) };
                node.netlink.neighbour_add(&neighbour).expect("the neighbour can be added");
            }
        }
    }
    nodes
}

/// The routes to a node's pods, in both families.
fn ways(id: u32, encap: Encap) -> [Route; 2] {
    [(format!("10.{id}.0.0/24"), format!("10.{id}.0.0")), (format!("fd0{id}::/64"), format!("fd0{id}::"))]
        .map(|(dst, via)| {
            let dst = dst.parse().expect("a valid prefix");
            let via = via.parse().expect("a valid address");
            Route { onlink: true, encap: Some(encap), ..Route::via(dst, via, ifname("hgvx")) }
        })
}

fn routes_into_tunnels(outer: [&str; 2]) {
    let nodes = external_nodes(outer);
    for (node, (peer, remote)) in nodes.iter().zip([(2, outer[1]), (1, outer[0])]) {
        let encap = Encap { id: 42, remote: remote.parse().expect("a valid address") };
        for route in ways(peer, encap) {
            node.netlink.route_add(&route).expect("the route can be added");
            assert!(node.netlink.has_route(&route).expect("routes can be listed"), "{route:?}");
        }
    }
    let [a, b] = &nodes;
    for (from, to, pods) in [(a, b, ["10.2.0.9", "fd02::9"]), (b, a, ["10.1.0.9", "fd01::9"])] {
        for pod in pods {
            let before = (bytes_sent(from, "hgvx"), bytes_sent(from, "hgw0"));
            assert!(talk(from, to, pod), "{pod} over {outer:?}");
            // The packets go through the tunnel, and the tunnel's over the wire.
            let (tunnel, wire) = (bytes_sent(from, "hgvx") - before.0, bytes_sent(from, "hgw0") - before.1);
            assert!(tunnel > 1_000_000 && wire > tunnel, "{tunnel} and {wire} bytes");
        }
    }
}

#[test]
fn routes_into_tunnels_lead_there_over_ipv4() {
    routes_into_tunnels(["192.0.2.1", "192.0.2.2"]);
}

#[test]
fn routes_into_tunnels_lead_there_over_ipv6() {
    routes_into_tunnels(["2001:db8::1", "2001:db8::2"]);
}

#[test]
fn a_tunnel_takes_packets_without_outer_checksum() {
    let [a, b] = external_nodes(["2001:db8::1", "2001:db8::2"]);
    let shown = a.judge("ip", &["-d", "link", "show", "hgvx"]);
    assert!(shown.contains("vxlan external id 0"), "{shown}");
    assert!(shown.contains("dstport 8472 nolearning") && shown.contains(" udp6zerocsumrx"), "{shown}");
    // The route that `ip` makes does not ask for a checksum. Ours on the way back does.
    let typed = "route add fd02::/64 encap ip6 id 42 dst 2001:db8::2 via fd02:: dev hgvx onlink";
    a.judge("ip", &typed.split(' ').collect::<Vec<_>>());
    let encap = Encap { id: 42, remote: "2001:db8::1".parse().unwrap() };
    let back = ways(1, encap);
    b.netlink.route_add(&back[1]).unwrap();
    assert!(talk(&a, &b, "fd02::9"));
    let shown = b.judge("ip", &["-6", "route", "show", "fd01::/64"]);
    assert!(shown.contains("csum"), "{shown}");
    let listed = a.netlink.routes().unwrap();
    let typed = listed.iter().find(|route| route.dst == ways(2, encap)[1].dst).unwrap();
    // Without the checksum it does not count as a tunnel of ours. 4 is LWTUNNEL_ENCAP_IP6.
    assert_eq!(typed.next_hops[0].encap, Some(EncapInfo::Other(4)));
}

#[test]
fn a_route_into_another_tunnel_is_another_route() {
    let [node, _other] = external_nodes(["192.0.2.1", "192.0.2.2"]);
    let encap = |id, remote: &str| Encap { id, remote: remote.parse().unwrap() };
    for remote in ["192.0.2.2", "2001:db8::2"] {
        for route in ways(2, encap(42, remote)) {
            node.netlink.route_add(&route).unwrap();
            assert!(node.netlink.has_route(&route).unwrap());
            for other in [Some(encap(43, remote)), Some(encap(42, "192.0.2.3")), None] {
                let other = Route { encap: other, ..route.clone() };
                assert!(!node.netlink.has_route(&other).unwrap(), "{other:?}");
                let error = node.netlink.route_add(&other).unwrap_err();
                assert!(error.is(libc::EEXIST), "{error}");
            }
            let listed = node.netlink.routes().unwrap();
            let listed = listed.iter().find(|info| info.dst == route.dst).unwrap();
            assert_eq!(listed.next_hops[0].encap, Some(EncapInfo::Tunnel(encap(42, remote))));
            node.netlink.route_del(&route).unwrap();
            assert!(!node.netlink.has_route(&route).unwrap());
            assert!(node.netlink.route_del(&route).unwrap_err().is(libc::ESRCH));
        }
    }
}

/// A pod on the node's wire. Its namespace already has a link with the name under which the pod's link was
/// made.
fn pod_on_wire(kind: LinkKind) {
    let (node, other, pod) =
        (TestNetns::new("mv-node"), TestNetns::new("mv-other"), TestNetns::new("mv-pod"));
    node.wire(&other, "eth0", "192.0.2.1/24", "192.0.2.2/24");
    pod.add("hgborn", LinkKind::Bridge);
    let index = node.add("hgborn", kind);
    node.netlink.link_move(index, &pod.netns, &ifname("eth0")).expect("the link can be moved");
    assert_eq!(node.netlink.link(&ifname("hgborn")).expect("links can be looked at"), None);
    pod.up("eth0", &["192.0.2.9/24", "2001:db8::9/64"]);
    other.up("eth0", &["2001:db8::2/64"]);
    assert!(talk(&pod, &other, "192.0.2.2"));
    assert!(talk(&other, &pod, "192.0.2.9"));
    assert!(talk(&pod, &other, "2001:db8::2"));
}

#[test]
fn macvlan_is_on_the_parents_wire() {
    for mode in [MacvlanMode::Bridge, MacvlanMode::Private] {
        pod_on_wire(LinkKind::Macvlan { parent: ifname("eth0"), mode });
    }
}

#[test]
fn ipvlan_is_on_the_parents_wire() {
    if let Some(why) = probe().unwrap().missing.get(&Feature::Ipvlan) {
        return testkit::skip(&format!("no ipvlan: {why}"));
    }
    pod_on_wire(LinkKind::Ipvlan { parent: ifname("eth0"), mode: IpvlanMode::L2 });
}
