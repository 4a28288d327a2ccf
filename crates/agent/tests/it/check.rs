//! The check on real faults: what is wrong is named, and nothing is where nothing is wrong. The agents are stopped
//! before, so that they repair nothing.

mod crowd;
mod routed;

use std::time::Instant;

use agent::check::{CheckedWay, Network, ReasonKind, Row, check};
use testkit::{dump, require_root};

use crate::keep::{A, B, DIRECT_ROUTING, HOST_GW, VXLAN, is_reached, started, with_pods};
use crate::nodes::{Nodes, PATIENCE};

impl Nodes {
    /// What a node finds of its ways to the others.
    #[track_caller]
    pub(crate) fn check(&self, node: &str) -> Row {
        let network =
            Network { name: "pods".to_owned(), status: self.settings(node).status, home: self.home(node) };
        self.world.open(node).run(|| check(&network, &[])).unwrap().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Two nodes that were brought into a network by agents which have ended, and which forward.
    fn left_standing(backend: &str, by: &'static str) -> Nodes {
        let nodes = Nodes::new();
        with_pods(&nodes);
        let (a, b) = started(&nodes, backend);
        a.until("b is reached", is_reached("b", by));
        b.until("a is reached", is_reached("a", by));
        nodes
    }

    /// The tunnel device of node a for IPv4.
    fn tunnel(&self) -> String {
        let links = self.at("ip -n A -d -o link show type vxlan ");
        let line = links.lines().find(|line| line.contains("local 192.0.2.1")).unwrap();
        line.split(": ").nth(1).unwrap().to_owned()
    }
}

/// What is found of node b, which is expected to be one thing for each family.
#[track_caller]
fn assert_found(row: &Row, kind: ReasonKind, families: &[&str], seen: &str, follows: &str) {
    let peer = &row.peers["b"];
    assert!(!peer.is_reached && !row.is_well(), "{row:#?}");
    let found: Vec<_> = peer.reasons.iter().filter_map(|reason| reason.family.as_deref()).collect();
    assert_eq!(found, families, "{peer:#?}");
    for reason in &peer.reasons {
        assert_eq!(reason.kind, kind, "{peer:#?}");
    }
    let first = &peer.reasons[0];
    assert!(first.seen.contains(seen) && first.follows.contains(follows), "{seen:?} {follows:?}: {first:#?}");
}

#[track_caller]
fn assert_well(nodes: &Nodes) {
    for node in ["a", "b"] {
        let row = nodes.check(node);
        assert!(row.is_well() && row.peers.len() == 1, "{row:#?}");
    }
}

#[test]
fn where_all_is_well_all_ways_are_and_nothing_is_made() {
    if !require_root() {
        return;
    }
    for (backend, by, bytes) in
        [(VXLAN, "vxlan", Some(1430)), (DIRECT_ROUTING, "direct", Some(1430)), (HOST_GW, "direct", None)]
    {
        let nodes = Nodes::left_standing(backend, by);
        let before = dump(&nodes.world.open("a"));
        assert_well(&nodes);
        let row = nodes.check("a");
        before.assert_same(&dump(&nodes.world.open("a")), "after a check");
        let b = &row.peers["b"];
        assert_eq!((row.pods.join(" ").as_str(), b.families.len()), (A.2, 2), "{row:#?}");
        let v4 = &b.families["ipv4"];
        let address = |way: Option<&CheckedWay>| way.map(|way| way.address.to_string());
        assert_eq!((v4.by.as_str(), v4.node.full_bytes, v4.node.carries_full), (by, Some(1500), Some(true)));
        assert_eq!(address(Some(&v4.node)).unwrap(), "192.0.2.2");
        assert_eq!(address(Some(&v4.pods)).unwrap(), "10.244.2.1");
        let tunnel =
            v4.tunnel.as_ref().map(|way| (way.address.to_string(), way.full_bytes, way.carries_full));
        assert_eq!(tunnel, bytes.map(|bytes| ("10.244.2.0".to_owned(), Some(bytes), Some(true))));
        // What goes by the tunnel has an address of the pods' network anyway.
        assert_eq!(address(v4.as_pod.as_ref()), (by == "direct").then(|| "10.244.2.1".to_owned()));
        assert!(v4.ways().all(|way| way.rtt_us.is_some()), "{v4:#?}");
    }
}

#[test]
fn routes_that_are_gone_or_others_are_named() {
    if !require_root() {
        return;
    }
    for (backend, by) in [(VXLAN, "vxlan"), (HOST_GW, "direct")] {
        let nodes = Nodes::left_standing(backend, by);
        nodes.at("ip -n A route del 10.244.2.0/24");
        let row = nodes.check("a");
        assert_found(
            &row,
            ReasonKind::RouteMissing,
            &["ipv4"],
            "no route 10.244.2.0/24 via ",
            "something has deleted it",
        );
        assert!(row.peers["b"].families["ipv4"].node.is_well() && row.peers["b"].families["ipv6"].is_well());
        assert!(row.peers["b"].reasons[0].seen.contains("nothing leads to 10.244.2.1"));
        nodes.at("ip -n A route add default via 192.0.2.9");
        let row = nodes.check("a");
        let default = "what goes to 10.244.2.1 takes 0.0.0.0/0 via 192.0.2.9 dev wire proto boot";
        assert_found(&row, ReasonKind::RouteMissing, &["ipv4"], default, "");
        nodes.at("ip -n A route add 10.244.2.0/24 via 192.0.2.9 proto static");
        let row = nodes.check("a");
        let foreign = "10.244.2.0/24 via 192.0.2.9 dev wire proto static";
        assert_found(&row, ReasonKind::RouteForeign, &["ipv4"], foreign, "find the program that makes it");
    }
    let nodes = Nodes::left_standing(HOST_GW, "direct");
    nodes.at("ip -n A route add 10.244.2.0/25 via 192.0.2.9; ip -n A -6 route del fd00:244:0:2::/64");
    let row = nodes.check("a");
    let reasons = &row.peers["b"].reasons;
    assert_eq!(
        reasons.iter().map(|reason| reason.kind).collect::<Vec<_>>(),
        [ReasonKind::RouteForeign, ReasonKind::RouteMissing]
    );
    assert!(reasons[0].seen.contains("10.244.2.0/25 via 192.0.2.9 dev wire proto boot"), "{reasons:#?}");
    assert!(reasons[1].seen.contains("no route fd00:244:0:2::/64 via 2001:db8::2 dev wire"), "{reasons:#?}");
}

#[test]
fn what_a_tunnel_lacks_is_named() {
    if !require_root() {
        return;
    }
    for (harm, kind, seen) in [
        (
            "bridge -n A fdb del 02:68:c0:00:02:02 dev TUNNEL",
            ReasonKind::ForwardingEntry,
            "(fdb) of 02:68:c0:00:02:02 to 192.0.2.2",
        ),
        (
            "bridge -n A fdb replace 02:68:c0:00:02:02 dev TUNNEL dst 192.0.2.77",
            ReasonKind::ForwardingEntry,
            "192.0.2.77",
        ),
        (
            "ip -n A neighbour flush dev TUNNEL nud permanent",
            ReasonKind::Neighbour,
            "no permanent neighbour 10.244.2.0 at 02:68:c0:00:02:02",
        ),
        ("ip -n A link set TUNNEL down", ReasonKind::TunnelDown, "is down"),
        ("ip -n A link del TUNNEL", ReasonKind::TunnelMissing, "is not there"),
    ] {
        let nodes = Nodes::left_standing(VXLAN, "vxlan");
        let tunnel = nodes.tunnel();
        nodes.at(&harm.replace("TUNNEL", &tunnel));
        let row = nodes.check("a");
        assert_found(&row, kind, &["ipv4"], seen, "an agent that runs makes it again");
        assert!(row.peers["b"].reasons[0].seen.contains(&format!("the tunnel device {tunnel} ")), "{row:#?}");
        assert!(row.peers["b"].families["ipv4"].node.is_well(), "{row:#?}");
    }
}

/// Nothing is wrong on the node that asks.
#[test]
fn a_peer_that_drops_the_tunnel_or_does_not_forward_is_distinguished_from_one_that_is_away() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::left_standing(VXLAN, "vxlan");
    let drop = |rule: &str| {
        nodes.at(&format!(
            "ip netns exec B nft 'add table inet harm'
             ip netns exec B nft 'add chain inet harm in {{ type filter hook prerouting priority -400; }}'
             ip netns exec B nft 'add rule inet harm in {rule}'"
        ));
    };
    drop("udp dport 8472 drop");
    let row = nodes.check("a");
    assert_found(
        &row,
        ReasonKind::TunnelSilent,
        &["ipv4", "ipv6"],
        "192.0.2.2 answers",
        "UDP port 8472 is dropped",
    );
    nodes.at("ip netns exec B nft 'delete table inet harm'");
    assert_well(&nodes);
    drop("icmp type echo-request drop");
    let row = nodes.check("a");
    assert_found(&row, ReasonKind::NodeSilent, &["ipv4"], "192.0.2.2 does not answer", "a firewall");
    nodes.at("ip netns exec B nft 'delete table inet harm'");
    nodes.at("ip -n B address del 192.0.2.2/24 dev wire");
    // Until the kernel has asked the neighbour again, it is only silent.
    let begun = Instant::now();
    let row = loop {
        let row = nodes.check("a");
        let is_silent = row.peers["b"].reasons.iter().all(|reason| reason.kind == ReasonKind::NodeSilent);
        if !is_silent || begun.elapsed() > PATIENCE {
            break row;
        }
    };
    let (seen, follows) = ("no neighbour answers ARP for 192.0.2.2", "down or off this link");
    assert_found(&row, ReasonKind::NextHopUnresolved, &["ipv4"], seen, follows);
    nodes.at("ip -n B link set wire down ");
    let row = nodes.check("a");
    assert_found(&row, ReasonKind::WireDown, &["ipv4", "ipv6"], "wire, has no carrier", "cable");
    nodes.at("ip -n A link set wire down ");
    let row = nodes.check("a");
    assert_found(&row, ReasonKind::WireDown, &["ipv4", "ipv6"], "wire, is down", "ip link set wire up");
}

#[test]
fn a_peer_that_does_not_forward_is_said_to_be_reached_without_its_pods() {
    if !require_root() {
        return;
    }
    for (backend, by, answers) in
        [(VXLAN, "vxlan", "10.244.2.0 answers"), (HOST_GW, "direct", "192.0.2.2 answers")]
    {
        let nodes = Nodes::left_standing(backend, by);
        nodes.at("ip netns exec B sysctl -qw net.ipv4.ip_forward=0");
        let row = nodes.check("a");
        assert_found(&row, ReasonKind::PodsSilent, &["ipv4"], answers, "look on b: net.ipv4.ip_forward");
        assert!(row.peers["b"].families["ipv4"].node.is_well(), "{row:#?}");
    }
}

#[test]
fn a_way_that_carries_less_than_it_should_is_measured() {
    if !require_root() {
        return;
    }
    for (backend, by) in [(VXLAN, "vxlan"), (HOST_GW, "direct")] {
        let nodes = Nodes::left_standing(backend, by);
        nodes.at("ip netns exec B nft 'add table inet narrow'
             ip netns exec B nft 'add chain inet narrow in { type filter hook prerouting priority -400; }'
             ip netns exec B nft 'add rule inet narrow in iifname \"wire\" meta length > 1400 drop'");
        let row = nodes.check("a");
        let seen = "packets of 1500 bytes to 192.0.2.2 do not come back and small ones do; 1400 bytes pass";
        assert_found(&row, ReasonKind::Narrow, &["ipv4", "ipv6"], seen, "smaller MTU");
        assert!(row.peers["b"].families["ipv4"].node.is_reached, "{row:#?}");
    }
}

#[test]
fn what_this_node_itself_does_is_not_put_to_the_way() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::left_standing(HOST_GW, "direct");
    nodes.at("ip netns exec A nft 'add table inet harm'
         ip netns exec A nft 'add chain inet harm out { type filter hook output priority 0; }'
         ip netns exec A nft 'add rule inet harm out ip daddr 192.0.2.2 drop'");
    let row = nodes.check("a");
    let (seen, follows) =
        ("does not send to 192.0.2.2: operation not permitted", "a rule of its own drops it");
    assert_found(&row, ReasonKind::SendRefused, &["ipv4"], seen, follows);
    nodes.at("ip netns exec A nft 'delete table inet harm'");
    nodes.at("ip netns exec A sysctl -qw net.ipv4.ip_forward=0");
    let row = nodes.check("a");
    let here: Vec<_> = row.here.iter().map(|reason| (reason.kind, reason.family.as_deref())).collect();
    assert_eq!(here, [(ReasonKind::ForwardingOff, Some("ipv4"))], "{row:#?}");
    assert!(row.peers["b"].is_reached && !row.is_well(), "{row:#?}");
    nodes.at("ip netns exec A sysctl -qw net.ipv4.ip_forward=1");
    assert_well(&nodes);
    // Answers come by the wire, and the way there is another one.
    nodes.at("ip -n A link add second type veth peer name second netns B 
         ip -n A address add 198.51.100.1/24 dev second; ip -n B address add 198.51.100.2/24 dev second
         ip -n A link set second up; ip -n B link set second up
         ip netns exec B sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.second.rp_filter=0
         ip -n A route add 192.0.2.2/32 via 198.51.100.2 dev second src 192.0.2.1
         ip netns exec A sysctl -qw net.ipv4.conf.wire.rp_filter=1");
    let row = nodes.check("a");
    let (seen, follows) = ("net.ipv4.conf.wire.rp_filter is strict", "this node drops the answers");
    assert_found(&row, ReasonKind::ReversePathFilter, &["ipv4"], seen, follows);
}

#[test]
fn a_lease_that_is_refused_is_no_way() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new();
    nodes.write_leases(HOST_GW, &[A, B, ("c", "203.0.113.3", "10.244.3.0/24")]);
    let a = nodes.start("a");
    let b = nodes.start("b");
    a.until("b is reached", is_reached("b", "direct"));
    b.until("a is reached", is_reached("a", "direct"));
    let row = nodes.check("a");
    assert!(row.peers["b"].is_reached, "{row:#?}");
    let c = &row.peers["c"];
    assert_eq!((c.is_reached, c.families.len(), c.reasons[0].kind), (false, 0, ReasonKind::LeaseRefused));
    assert!(c.reasons[0].seen.contains("203.0.113.3 is not on the link wire"), "{c:#?}");
    // What the agent cannot follow is no reason to say that all is well.
    nodes.write_leases("{ Type = \"udp\" }", &[A, B]);
    a.until("undecided", |status| status.undecided.is_some());
    let here = nodes.check("a").here;
    assert_eq!(
        here.iter().map(|reason| reason.kind).collect::<Vec<_>>(),
        [ReasonKind::Undecided],
        "{here:#?}"
    );
    assert!(here[0].seen.contains("`Backend.Type` is udp"), "{here:#?}");
}
