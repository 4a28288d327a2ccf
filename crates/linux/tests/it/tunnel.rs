//! Links on a wire between two nodes: vxlan, macvlan, ipvlan.

use linux::features::{Feature, probe};
use linux::{FdbEntry, IpvlanMode, LinkKind, Mac, MacvlanMode, Neighbour, Route, Vxlan};

use crate::world::{Place, ifname, link, talk};

/// flannel's way: no bridge, a route by way of the other node's tunnel address, permanent entries.
fn vxlan_between(outer: [&str; 2], inner: [&str; 2], pods: [&str; 2]) {
    let nodes = [Place::new("vx-a"), Place::new("vx-b")];
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
    let sent = nodes[0].judge("ip", &["-s", "link", "show", "hgvx"]);
    let bytes: u64 = sent
        .lines()
        .last()
        .and_then(|line| line.split_ascii_whitespace().next()?.parse().ok())
        .expect("a count");
    assert!(bytes > 1_000_000, "{sent}");
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
    let (here, there) = (Place::new("vxo-a"), Place::new("vxo-b"));
    here.wire(&there, "hgw0", "192.0.2.1/24", "192.0.2.2/24");
    here.up("hgw0", &["2001:db8::1/64"]);
    for (name, vni, local, learning, expected) in [
        ("hgvx4", 41, "192.0.2.1", false, "noudpcsum noudp6zerocsumtx"),
        ("hgvx6", 61, "2001:db8::1", true, "udpcsum noudp6zerocsumtx"),
    ] {
        let local_ip = local.parse().unwrap();
        let vxlan = Vxlan { vni, parent: ifname("hgw0"), local: local_ip, port: 4789, learning };
        here.add(name, LinkKind::Vxlan(vxlan));
        let told = here.judge("ip", &["-d", "link", "show", name]);
        assert!(told.contains(&format!("vxlan id {vni} local {local} dev hgw0")), "{told}");
        assert!(told.contains("dstport 4789") && told.contains(&format!(" {expected}")), "{told}");
        assert_eq!(told.contains("nolearning"), !learning, "{told}");
    }
}

/// A pod on the wire of node a, in a namespace in which its old name is taken.
fn pod_on_wire(kind: LinkKind) {
    let (node, other, pod) = (Place::new("mv-node"), Place::new("mv-other"), Place::new("mv-pod"));
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
