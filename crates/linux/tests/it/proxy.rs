//! Proxy neighbours: a node answers for an address that no host has, and what it needs for that.

use std::net::{IpAddr, UdpSocket};

use ipnet::IpNet;
use linux::{Mac, Neighbour, Route, sysctl};

use crate::world::{TestNetns, eventually, ifname};

/// Addresses that no host has.
const GATEWAYS: [&str; 2] = ["169.254.1.1", "fdff::1"];

/// The table of a namespace's own addresses.
const LOCAL: u32 = 255;

/// What a node needs besides the proxy entry, according to the kernel's code (`arp_process` in
/// net/ipv4/arp.c, `ndisc_recv_ns` in net/ipv6/ndisc.c).
#[derive(Clone, Copy)]
struct Needs {
    /// `forwarding` of the link.
    forwarding: bool,
    /// IPv4: a route to the address over another link than the one on which the request arrives.
    route_elsewhere: bool,
    /// IPv6: `proxy_ndp` of the link.
    proxy_ndp: bool,
}

const ALL: Needs = Needs { forwarding: true, route_elsewhere: true, proxy_ndp: true };

fn set(place: &TestNetns, key: &str, value: &str) {
    let key = sysctl::Key::new(key).expect("a valid key");
    let written = place.netns.run(|| sysctl::write(&key, value)).expect("the namespace is there");
    written.expect("the parameter can be written");
}

/// A node and a pod at the ends of a veth pair. The node has its proxy entries and the rest of `needs`.
fn node_and_pod(needs: Needs) -> (TestNetns, TestNetns) {
    let (node, pod) = (TestNetns::new("px-node"), TestNetns::new("px-pod"));
    node.wire(&pod, "hgv0", "fd00::1/64", "10.1.0.9/32");
    pod.up("hgv0", &["fd00::9/64"]);
    let dev = ifname("hgv0");
    for gateway in GATEWAYS {
        let ip: IpAddr = gateway.parse().expect("a valid address");
        let family = family(gateway);
        set(&node, &format!("net/{family}/neigh/hgv0/proxy_delay"), "0");
        set(&node, &format!("net/{family}/conf/hgv0/forwarding"), if needs.forwarding { "1" } else { "0" });
        pod.netlink.route_add(&Route::on_link(ip.into(), dev.clone())).expect("the route can be added");
        let proxy = Neighbour { dev: dev.clone(), ip, mac: None };
        node.netlink.neighbour_add(&proxy).expect("the entry can be added");
    }
    set(&node, "net/ipv6/conf/hgv0/proxy_ndp", if needs.proxy_ndp { "1" } else { "0" });
    // A namespace may inherit strict reverse path filtering from its host. It would drop requests from an
    // address to which there is no route.
    let back = Route::on_link("10.1.0.9/32".parse().expect("a valid prefix"), dev);
    node.netlink.route_add(&back).expect("the route can be added");
    let link = ifname(if needs.route_elsewhere { "lo" } else { "hgv0" });
    let route = Route::on_link("169.254.1.1/32".parse().expect("a valid prefix"), link);
    node.netlink.route_add(&route).expect("the route can be added");
    // Until the kernel has made this route, a little later (`addrconf_dad_work`), answers are lost.
    let own: IpNet = "fd00::9/128".parse().expect("a valid prefix");
    eventually("the pod's address receives", || {
        let routes = pod.netlink.routes().expect("routes can be listed");
        routes.iter().any(|route| route.table == LOCAL && route.dst == own)
    });
    (node, pod)
}

fn family(gateway: &str) -> &'static str {
    if gateway.contains(':') { "ipv6" } else { "ipv4" }
}

/// The Ethernet address that the pod learns when it sends a packet to an address, or `None` without an
/// answer. If an answer is expected, the pod keeps asking, so a slow answer does not fail the test.
fn learnt(pod: &TestNetns, gateway: &str, is_due: bool) -> Option<Mac> {
    if !is_due {
        // A single request and a short wait, 0.3 s, are enough to see that there is no answer.
        let family = family(gateway);
        set(pod, &format!("net/{family}/neigh/hgv0/mcast_solicit"), "1");
        set(pod, &format!("net/{family}/neigh/hgv0/retrans_time_ms"), "300");
    }
    let any = if gateway.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = pod.netns.run(|| UdpSocket::bind(any)).expect("the namespace is there");
    let socket = socket.expect("any port will do");
    let ip: IpAddr = gateway.parse().expect("a valid address");
    socket.send_to(b"x", (ip, 9)).expect("it is on the link as far as the pod knows");
    eventually(&format!("the question for {gateway} has an end"), || {
        let shown = pod.judge("ip", &["neighbour", "show", gateway, "dev", "hgv0"]);
        if shown.contains("FAILED") && is_due {
            // The failure of the previous request may surface here as an error.
            let _ = socket.send_to(b"x", (ip, 9));
        }
        shown.contains("lladdr") || (shown.contains("FAILED") && !is_due)
    });
    let known = pod.netlink.neighbours().expect("neighbours can be listed");
    known.iter().find(|entry| entry.ip == ip).and_then(|entry| entry.mac)
}

#[track_caller]
fn check(needs: Needs, expected: [bool; 2]) {
    let (node, pod) = node_and_pod(needs);
    let mac = node.netlink.link(&ifname("hgv0")).expect("links can be looked at").expect("it was made").mac;
    for (gateway, answers) in GATEWAYS.into_iter().zip(expected) {
        assert_eq!(learnt(&pod, gateway, answers), mac.filter(|_| answers), "{gateway}");
    }
}

#[test]
fn a_node_answers_for_addresses_that_no_host_has() {
    check(ALL, [true, true]);
}

#[test]
fn it_does_not_without_what_it_needs() {
    check(Needs { forwarding: false, ..ALL }, [false, false]);
    check(Needs { route_elsewhere: false, ..ALL }, [false, true]);
    check(Needs { proxy_ndp: false, ..ALL }, [true, false]);
}

/// A plan therefore adds them once the link is there to stay up. Setting the link up does them no harm.
#[test]
fn proxy_entries_go_when_the_link_goes_down() {
    let (node, _pod) = node_and_pod(ALL);
    let proxies = || {
        let all = node.netlink.neighbours().expect("neighbours can be listed");
        all.into_iter().filter(|entry| entry.proxy).map(|entry| entry.ip.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(proxies(), GATEWAYS);
    let index = node.index("hgv0");
    node.netlink.link_set_up(index, false).unwrap();
    assert_eq!(proxies(), [""; 0]);
    for gateway in GATEWAYS {
        let proxy = Neighbour { dev: ifname("hgv0"), ip: gateway.parse().unwrap(), mac: None };
        node.netlink.neighbour_add(&proxy).unwrap();
    }
    node.netlink.link_set_up(index, true).unwrap();
    assert_eq!(proxies(), GATEWAYS);
}
