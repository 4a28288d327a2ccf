//! Each operation: add, dump, delete, and the error when the kernel refuses.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linux::features::{Feature, probe};
use linux::netlink::PortFlag;
use linux::{Error, FdbEntry, LinkKind, Mac, MacvlanMode, Neighbour, Route, VethPeer, Vxlan};

use crate::world::{TestNetns, ifname, link, talk};

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Error>, errno: i32, text: &str) {
    let error = result.expect_err("it must be refused");
    assert_eq!(error.to_string(), text);
    assert_eq!(error.errno(), Some(errno));
}

#[test]
fn links_are_made_changed_and_deleted() {
    let place = TestNetns::new("links");
    let mut bridge = link("hgbr0", LinkKind::Bridge);
    bridge.mac = Some(Mac::from_id(1, 2));
    bridge.mtu = Some(1400);
    place.netlink.link_add(&bridge).unwrap();
    let made = place.netlink.link(&bridge.name).unwrap().unwrap();
    assert_eq!((made.kind.as_deref(), made.mtu, made.mac), (Some("bridge"), 1400, bridge.mac));
    assert!(!made.up);
    place.netlink.link_set_up(made.index, true).unwrap();
    place.netlink.link_set_mtu(made.index, 1300).unwrap();
    let changed = place.netlink.link(&bridge.name).unwrap().unwrap();
    assert!(changed.up && changed.mtu == 1300);
    assert!(place.judge("ip", &["-d", "link", "show", "hgbr0"]).contains("mtu 1300"));
    assert_eq!(place.netlink.links().unwrap().len(), 2);
    place.netlink.link_set_up(made.index, false).unwrap();
    assert!(!place.netlink.link(&bridge.name).unwrap().unwrap().up);
    place.netlink.link_del(made.index).unwrap();
    assert_eq!(place.netlink.link(&bridge.name).unwrap(), None);
    assert_eq!(place.netlink.links().unwrap().len(), 1);
}

#[test]
fn refusals_say_what_where_and_why() {
    let place = TestNetns::new("refusals");
    let (netlink, name) = (&place.netlink, &place.name);
    let bridge = place.add("hgbr0", LinkKind::Bridge);
    refused(
        netlink.link_add(&link("hgbr0", LinkKind::Bridge)),
        libc::EEXIST,
        &format!("create bridge link hgbr0 in namespace {name}: file exists"),
    );
    let macvlan = LinkKind::Macvlan { parent: ifname("nothing"), mode: MacvlanMode::Bridge };
    refused(
        netlink.link_add(&link("mv0", macvlan)),
        libc::ENODEV,
        &format!("find link nothing in namespace {name}: no such device"),
    );
    // The rest is the kernel's extended acknowledgement.
    refused(
        netlink.link_set_mtu(bridge, 10),
        libc::EINVAL,
        &format!(
            "set the MTU of link {bridge} to 10 in namespace {name}: \
             invalid argument: mtu less than device minimum"
        ),
    );
    refused(
        netlink.link_del(99),
        libc::ENODEV,
        &format!("delete link 99 in namespace {name}: no such device"),
    );
    let route = Route::via("10.9.0.0/16".parse().unwrap(), "192.0.2.1".parse().unwrap(), ifname("hgbr0"));
    netlink.link_set_up(bridge, true).unwrap();
    refused(
        netlink.route_add(&route),
        libc::ENETUNREACH,
        &format!(
            "add route 10.9.0.0/16 via 192.0.2.1 dev hgbr0 in namespace {name}: \
             network is unreachable: Nexthop has invalid gateway"
        ),
    );
}

fn pair_across_namespaces(kind: impl FnOnce(VethPeer) -> LinkKind) {
    let (here, there) = (TestNetns::new("pair-a"), TestNetns::new("pair-b"));
    let peer = VethPeer {
        name: ifname("eth0"),
        netns: Some(there.name.clone().into()),
        mtu: Some(1450),
        mac: Some(Mac::from_id(7, 8)),
    };
    let mut near = link("hgv0", kind(peer));
    (near.mtu, near.mac) = (Some(1440), Some(Mac::from_id(7, 9)));
    here.netlink.link_add(&near).expect("the pair can be made");
    assert_eq!(here.netlink.link(&ifname("eth0")).expect("links can be looked at"), None);
    let found = here.netlink.link(&near.name).expect("links can be looked at").expect("it was made");
    assert_eq!((found.kind.as_deref(), found.mtu, found.mac), (Some(near.kind.name()), 1440, near.mac));
    let born = there.netlink.link(&ifname("eth0")).expect("links can be looked at").expect("it was made");
    assert_eq!(born.kind.as_deref(), Some(near.kind.name()));
    assert_eq!((born.mtu, born.mac), (1450, Some(Mac::from_id(7, 8))));
    assert!(born.parent_netns.is_some());
    here.up("hgv0", &["192.0.2.1/24", "2001:db8::1/64"]);
    there.up("eth0", &["192.0.2.2/24", "2001:db8::2/64"]);
    assert!(talk(&here, &there, "192.0.2.2"));
    assert!(talk(&here, &there, "2001:db8::2"));
    // Frames have Ethernet headers, so the reply came with the Ethernet address of its sender.
    let known = here.netlink.neighbours().expect("neighbours can be listed");
    let of_peer = known.iter().find(|entry| entry.ip.to_string() == "192.0.2.2").expect("it answered");
    assert_eq!(of_peer.mac, born.mac);
    here.netlink.link_del(here.index("hgv0")).expect("the pair can be deleted");
    assert_eq!(there.netlink.link(&ifname("eth0")).expect("links can be looked at"), None);
}

#[test]
fn a_peer_is_born_in_another_namespace() {
    pair_across_namespaces(|peer| LinkKind::Veth { peer });
}

#[test]
fn a_netkit_peer_is_born_in_another_namespace() {
    if let Some(why) = probe().unwrap().missing.get(&Feature::Netkit) {
        return testkit::skip(&format!("no netkit: {why}"));
    }
    pair_across_namespaces(|peer| LinkKind::Netkit { peer });
}

#[test]
fn addresses_are_added_listed_and_deleted() {
    let place = TestNetns::new("addresses");
    let lo = place.index("lo");
    for text in ["10.1.2.3/24", "2001:db8::5/64"] {
        let address = text.parse().unwrap();
        place.netlink.address_add(lo, &address).unwrap();
        let all = place.netlink.addresses().unwrap();
        let found = all.iter().find(|info| info.address == address).unwrap();
        assert!(found.index == lo && found.permanent && !found.tentative);
        assert!(place.netlink.address_add(lo, &address).unwrap_err().is(libc::EEXIST));
        assert!(place.judge("ip", &["address", "show", "lo"]).contains(text));
        place.netlink.address_del(lo, &address).unwrap();
        assert!(!place.netlink.addresses().unwrap().iter().any(|info| info.address == address));
        assert!(place.netlink.address_del(lo, &address).unwrap_err().is(libc::EADDRNOTAVAIL));
    }
}

#[test]
fn an_ipv6_address_can_be_used_at_once() {
    let (here, there) = (TestNetns::new("nodad-a"), TestNetns::new("nodad-b"));
    here.wire(&there, "hgv0", "2001:db8::1/64", "2001:db8::2/64");
    // A socket cannot bind to a tentative address.
    let bind = || UdpSocket::bind("[2001:db8::1]:0");
    here.netns.run(bind).unwrap().unwrap();
}

/// A query for one route must agree with the list of all routes, whatever else there is: longer and shorter
/// prefixes, other metrics and tables, rules.
#[test]
fn a_route_is_read_as_the_list_has_it() {
    let (here, there) = (TestNetns::new("rivals-a"), TestNetns::new("rivals-b"));
    here.wire(&there, "hgv0", "192.0.2.1/24", "192.0.2.2/24");
    here.up("hgv0", &["2001:db8::1/64"]);
    let asked: Vec<Route> =
        ["10.1.0.0/16", "10.1.0.0/24", "192.0.2.0/24", "0.0.0.0/0", "fd01::/64", "2001:db8::/64", "::/0"]
            .map(|dst| Route::on_link(dst.parse().unwrap(), ifname("hgv0")))
            .into();
    for change in [
        "route add 10.1.0.0/16 dev hgv0",
        "route add 10.1.0.0/24 dev hgv0 metric 7",
        "route add 10.1.0.0/32 via 192.0.2.2",
        "route add 10.1.0.0/24 dev hgv0",
        "route add blackhole 10.1.0.0/16 metric 5",
        "route add default via 192.0.2.2 metric 9",
        "route add fd01::/64 dev hgv0 metric 5",
        "route add fd01::/64 dev hgv0",
        "route add fd01::/128 via 2001:db8::2",
        "-6 route add default via 2001:db8::2",
        "route add 10.1.0.0/16 dev hgv0 table 99",
        "rule add priority 9 lookup 99",
        "rule add priority 8 unreachable",
        "-6 rule add priority 8 blackhole",
        "route del 10.1.0.0/16 dev hgv0 metric 0",
        "rule del priority 8",
    ] {
        let words: Vec<&str> = change.split(' ').collect();
        here.judge("ip", &words);
        let all = here.netlink.routes().unwrap();
        for route in &asked {
            let listed = all.iter().find(|info| info.is_rival(route));
            assert_eq!(here.netlink.rival(route).unwrap().as_ref(), listed, "{} after {change}", route.dst);
        }
    }
}

#[test]
fn routes_are_added_found_and_deleted() {
    let (here, there) = (TestNetns::new("routes-a"), TestNetns::new("routes-b"));
    here.wire(&there, "hgv0", "192.0.2.1/24", "192.0.2.2/24");
    here.up("hgv0", &["2001:db8::1/64"]);
    let dev = ifname("hgv0");
    let net = |text: &str| text.parse().unwrap();
    let ip = |text: &str| text.parse().unwrap();
    let onlink = |dst: &str, via: &str| Route { onlink: true, ..Route::via(net(dst), ip(via), dev.clone()) };
    let routes = [
        // Before those without a metric.
        Route { metric: Some(7), ..Route::via(net("10.2.0.0/16"), ip("192.0.2.2"), dev.clone()) },
        Route { metric: Some(7), ..Route::via(net("fd02::/64"), ip("2001:db8::2"), dev.clone()) },
        Route { metric: Some(2000), ..Route::on_link(net("fd01::/64"), dev.clone()) },
        Route::on_link(net("10.1.0.0/16"), dev.clone()),
        Route::via(net("10.2.0.0/16"), ip("192.0.2.2"), dev.clone()),
        Route { mtu: Some(1400), ..Route::via(net("10.3.0.0/16"), ip("192.0.2.2"), dev.clone()) },
        Route { src: Some(ip("192.0.2.1")), ..Route::on_link(net("10.4.0.0/16"), dev.clone()) },
        onlink("10.5.0.0/16", "169.254.1.1"),
        Route::via(net("0.0.0.0/0"), ip("192.0.2.2"), dev.clone()),
        Route::via(net("10.6.0.0/16"), ip("2001:db8::2"), dev.clone()),
        Route::on_link(net("fd01::/64"), dev.clone()),
        Route::via(net("fd02::/64"), ip("2001:db8::2"), dev.clone()),
        Route { mtu: Some(1400), ..Route::via(net("fd03::/64"), ip("2001:db8::2"), dev.clone()) },
        Route {
            mtu: Some(1300),
            mtu_locked: true,
            ..Route::via(net("10.7.0.0/16"), ip("192.0.2.2"), dev.clone())
        },
        Route {
            mtu: Some(1300),
            mtu_locked: true,
            ..Route::via(net("fd07::/64"), ip("2001:db8::2"), dev.clone())
        },
        onlink("fd05::/64", "fe80::1"),
        Route::via(net("::/0"), ip("2001:db8::2"), dev.clone()),
    ];
    for route in &routes {
        assert!(!here.netlink.has_route(route).unwrap(), "{route:?}");
        here.netlink.route_add(route).unwrap();
        assert!(here.netlink.has_route(route).unwrap(), "{route:?}: {:?}", here.netlink.routes());
        assert!(here.netlink.route_add(route).unwrap_err().is(libc::EEXIST), "{route:?}");
    }
    assert!(here.judge("ip", &["route"]).contains("10.5.0.0/16 via 169.254.1.1 dev hgv0 onlink"));
    assert!(here.judge("ip", &["route"]).contains("10.7.0.0/16 via 192.0.2.2 dev hgv0 mtu lock 1300"));
    let locked = routes.iter().filter(|route| route.mtu_locked);
    for unlocked in locked.map(|route| Route { mtu_locked: false, ..route.clone() }) {
        assert!(!here.netlink.has_route(&unlocked).unwrap(), "{unlocked:?}");
    }
    assert!(!here.netlink.has_route(&Route::on_link(net("10.2.0.0/16"), dev.clone())).unwrap());
    for route in &routes {
        here.netlink.route_del(route).unwrap();
        assert!(!here.netlink.has_route(route).unwrap(), "{route:?}");
        assert!(here.netlink.route_del(route).unwrap_err().is(libc::ESRCH), "{route:?}");
    }
    // The remaining routes are the kernel's own.
    assert!(here.netlink.routes().unwrap().iter().all(|route| route.protocol == 2));
}

#[test]
fn neighbours_are_added_listed_and_deleted() {
    let (here, there) = (TestNetns::new("neigh-a"), TestNetns::new("neigh-b"));
    here.wire(&there, "hgv0", "192.0.2.1/24", "192.0.2.2/24");
    for (ip, mac) in [
        ("192.0.2.7", Some(Mac::from_id(1, 7))),
        ("2001:db8::7", Some(Mac::from_id(1, 7))),
        ("192.0.2.8", None),
        ("2001:db8::8", None),
    ] {
        let neighbour = Neighbour { dev: ifname("hgv0"), ip: ip.parse().unwrap(), mac };
        here.netlink.neighbour_add(&neighbour).unwrap();
        let all = here.netlink.neighbours().unwrap();
        let found = all.iter().find(|info| info.ip == neighbour.ip).unwrap();
        assert_eq!((found.mac, found.proxy, found.permanent), (mac, mac.is_none(), mac.is_some()));
        assert!(here.netlink.neighbour_add(&neighbour).unwrap_err().is(libc::EEXIST), "{ip}");
        here.netlink.neighbour_del(&neighbour).unwrap();
        assert!(!here.netlink.neighbours().unwrap().iter().any(|info| info.ip == neighbour.ip));
        assert!(here.netlink.neighbour_del(&neighbour).unwrap_err().is(libc::ENOENT), "{ip}");
    }
}

#[test]
fn a_learnt_neighbour_gives_way_to_a_configured_one() {
    let (here, there) = (TestNetns::new("learnt-a"), TestNetns::new("learnt-b"));
    here.wire(&there, "hgv0", "192.0.2.1/24", "192.0.2.2/24");
    assert!(talk(&here, &there, "192.0.2.2"));
    let ip = "192.0.2.2".parse().unwrap();
    let learnt = here.netlink.neighbours().unwrap();
    let learnt = learnt.iter().find(|info| info.ip == ip).unwrap();
    assert!(!learnt.permanent && learnt.mac.is_some());
    let neighbour = Neighbour { dev: ifname("hgv0"), ip, mac: Some(Mac::from_id(9, 9)) };
    here.netlink.neighbour_add(&neighbour).unwrap();
    let now = here.netlink.neighbours().unwrap();
    let now = now.iter().find(|info| info.ip == ip).unwrap();
    assert!(now.permanent && now.mac == neighbour.mac);
}

#[test]
fn forwarding_entries_are_added_listed_and_deleted() {
    let (here, there) = (TestNetns::new("fdb-a"), TestNetns::new("fdb-b"));
    here.wire(&there, "hgv0", "192.0.2.1/24", "192.0.2.2/24");
    here.up("hgv0", &["2001:db8::1/64"]);
    for (dev, vni, local, remotes) in [
        ("hgvx4", 4, "192.0.2.1", ["192.0.2.2", "192.0.2.3"]),
        ("hgvx6", 6, "2001:db8::1", ["2001:db8::2", "2001:db8::3"]),
    ] {
        let local = local.parse().unwrap();
        let vxlan = Vxlan { vni, parent: ifname("hgv0"), local, port: 8472, learning: false };
        let index = here.add(dev, LinkKind::Vxlan(vxlan));
        let entry = |mac, dst: &str| FdbEntry { dev: ifname(dev), mac, dst: dst.parse().unwrap() };
        // An address has one remote. The address that stands for all others may have several.
        let one = entry(Mac::from_id(1, 1), remotes[0]);
        let all = remotes.map(|remote| entry(Mac([0; 6]), remote));
        for entry in [&one, &all[0], &all[1]] {
            here.netlink.fdb_add(entry).unwrap();
            assert!(here.netlink.fdb_add(entry).unwrap_err().is(libc::EEXIST), "{entry:?}");
        }
        let held = |entry: &FdbEntry| {
            let fdb = here.netlink.fdb().unwrap();
            fdb.iter().any(|info| {
                info.index == index && info.mac == entry.mac && info.dst == Some(entry.dst) && info.permanent
            })
        };
        let judged = here.judge("bridge", &["fdb", "show", "dev", dev]);
        for entry in [&one, &all[0], &all[1]] {
            assert!(held(entry), "{entry:?}: {:?}", here.netlink.fdb());
            assert!(judged.contains(&format!("{} dst {}", entry.mac, entry.dst)), "{judged}");
        }
        for entry in [&one, &all[0], &all[1]] {
            here.netlink.fdb_del(entry).unwrap();
            assert!(!held(entry));
            assert!(here.netlink.fdb_del(entry).unwrap_err().is(libc::ENOENT), "{entry:?}");
        }
        // `bridge` marks its entries as both static and permanent, each of which is a bit of the state.
        let mac = one.mac.to_string();
        here.judge("bridge", &["fdb", "append", &mac, "dev", dev, "dst", remotes[0], "permanent"]);
        assert!(held(&one), "{:?}", here.netlink.fdb());
    }
}

#[test]
fn a_bridge_carries_frames_and_its_ports_have_hairpin_and_isolation() {
    let (node, a, b) = (TestNetns::new("br"), TestNetns::new("br-a"), TestNetns::new("br-b"));
    let bridge = node.add("hgbr0", LinkKind::Bridge);
    node.up("hgbr0", &[]);
    for (port, place, address) in [("hgp0", &a, "10.0.0.1/24"), ("hgp1", &b, "10.0.0.2/24")] {
        let peer =
            VethPeer { name: ifname("eth0"), netns: Some(place.name.clone().into()), mtu: None, mac: None };
        let index = node.add(port, LinkKind::Veth { peer });
        node.netlink.link_set_master(index, Some(bridge)).unwrap();
        node.up(port, &[]);
        place.up("eth0", &[address]);
    }
    assert!(talk(&a, &b, "10.0.0.2"));
    let port = node.index("hgp0");
    assert_eq!(node.netlink.links().unwrap().iter().filter(|link| link.master == Some(bridge)).count(), 2);
    for flag in [PortFlag::Hairpin, PortFlag::Isolated] {
        let found = |index| node.netlink.link_at(index).unwrap().unwrap().port_flag(flag);
        assert_eq!((found(bridge), found(port)), (None, Some(false)), "{flag:?}");
        for (on, state) in [(true, "on"), (false, "off")] {
            node.netlink.link_set_port_flag(port, flag, on).unwrap();
            assert_eq!(found(port), Some(on), "{flag:?}");
            let judged = node.judge("bridge", &["-d", "link", "show", "dev", "hgp0"]);
            assert!(judged.contains(&format!("{} {state}", flag.word())), "{judged}");
        }
    }
    node.netlink.link_set_master(port, None).unwrap();
    assert_eq!(node.netlink.link(&ifname("hgp0")).unwrap().unwrap().master, None);
}

#[test]
fn policy_rules_are_listed() {
    let place = TestNetns::new("rules");
    let rules = place.netlink.rules().unwrap();
    let v4: Vec<(u32, u32)> =
        rules.iter().filter(|rule| !rule.ipv6).map(|rule| (rule.priority, rule.table)).collect();
    assert_eq!(v4, [(0, 255), (32766, 254), (32767, 253)]);
    place.judge("ip", &["rule", "add", "from", "10.0.0.0/8", "fwmark", "7", "iif", "lo", "table", "1234"]);
    let rules = place.netlink.rules().unwrap();
    let rule = rules.iter().find(|rule| rule.table == 1234).unwrap();
    assert_eq!((rule.fwmark, rule.iifname.as_deref()), (Some(7), Some("lo")));
    assert_eq!(rule.src, Some("10.0.0.0/8".parse().unwrap()));
}

#[test]
fn long_dumps_are_whole_while_the_table_changes() {
    let place = TestNetns::new("dumps");
    let lo = place.index("lo");
    let dst = |n: u32| format!("10.{}.{}.0/24", n / 256, n % 256).parse().unwrap();
    for n in 0..1500 {
        place.netlink.route_add(&Route::on_link(dst(n), ifname("lo"))).unwrap();
    }
    // A dump fails if the table keeps changing for seconds, so this thread rests for the time of a few dumps.
    let begun = Instant::now();
    place.netlink.routes().unwrap();
    let rest = Duration::from_millis(2).max(begun.elapsed() * 4);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let churn = linux::Netlink::open_in(&place.netns).unwrap();
        let stop = &stop;
        scope.spawn(move || {
            let address = "192.0.2.9/32".parse().unwrap();
            while !stop.load(Ordering::Relaxed) {
                churn.address_add(lo, &address).unwrap();
                churn.address_del(lo, &address).unwrap();
                std::thread::sleep(rest);
            }
        });
        let ours = |count: usize| count == 1500;
        for _ in 0..10 {
            let routes = place.netlink.routes();
            let count = routes.map(|routes| routes.iter().filter(|route| route.table == 254).count());
            if !count.as_ref().is_ok_and(|count| ours(*count)) {
                stop.store(true, Ordering::Relaxed);
                panic!("{count:?}");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
