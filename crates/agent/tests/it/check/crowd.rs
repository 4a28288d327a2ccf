//! Many nodes, all asked at the same time.

use std::time::{Duration, Instant};

use agent::check::ReasonKind;
use testkit::require_root;

use crate::keep::{VXLAN, is_reached, with_pods};
use crate::nodes::Nodes;

/// How long a thousand nodes may take on a busy machine. One after the other, each with the time that a node gets which
/// does not answer, they would take half an hour.
const FOR_A_THOUSAND: Duration = Duration::from_secs(120);

/// What eight thousand requests take at the most that a check sends.
const AT_THE_RATE: Duration = Duration::from_millis(3_900);

/// All of them are one node, which answers for them; no tunnel of theirs is there.
#[test]
fn a_thousand_nodes_are_asked_at_the_same_time() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new();
    nodes.at("ip -n B route add local 198.18.0.0/16 dev lo; ip -n A route add 198.18.0.0/16 via 192.0.2.2");
    let many: Vec<(String, String, String)> = (0..1000)
        .map(|number| {
            let [high, low] = [number / 250 + 1, number % 250 + 1];
            let pods = format!("10.244.{}.{}/28", 16 + number / 16, number % 16 * 16);
            (format!("n{number}"), format!("198.18.{high}.{low}"), pods)
        })
        .collect();
    let of_text = |(name, public, pods)| (String::as_str(name), String::as_str(public), String::as_str(pods));
    let own = ("a", "192.0.2.1", "10.244.1.0/24");
    let all: Vec<_> = std::iter::once(own)
        .chain(many.iter().map(|(name, public, pods)| of_text((name, public, pods))))
        .collect();
    nodes.write_leases(VXLAN, &all);
    let mut a = nodes.start("a");
    a.until("all are there", |status| status.peers.len() == 1000);
    a.stop().unwrap();
    let begun = Instant::now();
    let row = nodes.check("a");
    let took = begun.elapsed();
    assert!(took < FOR_A_THOUSAND, "{took:?}");
    // Each node is sent a small and a full packet, its silent tunnel three, and its pods three: 8,000,
    // at 2,000 a second.
    assert!(took > AT_THE_RATE, "{took:?}");
    assert_eq!(row.peers.len(), 1000);
    for (name, peer) in &row.peers {
        assert!(peer.families["ipv4"].node.is_well(), "{name}: {peer:#?}");
        assert_eq!(
            peer.reasons.iter().map(|reason| reason.kind).collect::<Vec<_>>(),
            [ReasonKind::TunnelSilent],
            "{name}"
        );
    }
}

/// Nodes that are off, of whose neighbourhood each packet waits three seconds for.
const AWAY: usize = 400;

/// What waits for nodes that do not answer fills a socket's buffer, and the next packet is to another one.
#[test]
fn a_node_is_reached_however_many_others_are_off() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::new();
    with_pods(&nodes);
    nodes.at("ip -n A route add 198.18.0.0/16 dev wire");
    let away: Vec<(String, String, String)> = (0..AWAY)
        .map(|number| {
            let pods = format!("10.244.{}.{}/28", 16 + number / 16, number % 16 * 16);
            (format!("a{number}"), format!("198.18.{}.{}", number / 250, number % 250 + 1), pods)
        })
        .collect();
    let both = [("a", "192.0.2.1", "10.244.1.0/24"), ("b", "192.0.2.2", "10.244.2.0/24")];
    nodes.write_leases(VXLAN, &both);
    let (mut a, mut b) = (nodes.start("a"), nodes.start("b"));
    a.until("b is reached", is_reached("b", "vxlan"));
    b.until("a is reached", is_reached("a", "vxlan"));
    b.stop().unwrap();
    // The name of b comes after all of theirs, and so does the question to it.
    let away = away.iter().map(|(name, public, pods)| (name.as_str(), public.as_str(), pods.as_str()));
    nodes.write_leases(VXLAN, &both.into_iter().chain(away).collect::<Vec<_>>());
    a.until("all are there", |status| status.peers.len() == AWAY + 1);
    a.stop().unwrap();
    let row = nodes.check("a");
    assert!(row.peers["b"].is_reached, "{:#?}", row.peers["b"]);
    let others = row.peers.iter().filter(|(name, _)| *name != "b");
    for (name, peer) in others {
        let kinds: Vec<_> = peer.reasons.iter().map(|reason| reason.kind).collect();
        assert_eq!(kinds, [ReasonKind::NextHopUnresolved], "{name}: {peer:#?}");
    }
}
