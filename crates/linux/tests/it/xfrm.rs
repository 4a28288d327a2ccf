//! IPsec between two nodes: associations, policies, and what the wire shows of their packets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use linux::features::Feature;
use linux::netlink::Xfrm;
use linux::{EspKey, EspTunnel, Route, Spi, XfrmDirection, XfrmPolicy, XfrmState};
use testkit::PacketSocket;

use crate::world::{TestNetns, ifname, is_missing, talk};

const WIRE: &str = "hgx0";
/// What IPv4 and IPv6 call ESP.
const ESP: u8 = 50;

/// A node with an address in each of its pods' prefixes.
struct Node {
    place: TestNetns,
    xfrm: Xfrm,
    outer: IpAddr,
    pods: [IpNet; 2],
}

impl Node {
    fn new(label: &str, outer: &str, pods: [&str; 2]) -> Node {
        let place = TestNetns::new(label);
        let xfrm = Xfrm::open_in(&place.netns).unwrap();
        let pods = pods.map(|pod| pod.parse::<IpNet>().expect("a valid prefix"));
        let addresses = pods.map(|pod| IpNet::from(pod.addr()).to_string());
        place.up("lo", &addresses.each_ref().map(String::as_str));
        Node { place, xfrm, outer: outer.parse().unwrap(), pods }
    }

    /// What this node encrypts for another one.
    fn toward(&self, there: &Node) -> XfrmState {
        let tunnel = EspTunnel { src: self.outer, dst: there.outer, reqid: 1 };
        XfrmState { tunnel, spi: Spi::generate().unwrap() }
    }

    fn policies(&self, there: &Node, out: &XfrmState, back: &XfrmState) -> Vec<XfrmPolicy> {
        let both = self.pods.into_iter().zip(there.pods);
        both.flat_map(|(here, there)| {
            let policy = |direction, src, dst, tunnel| XfrmPolicy { direction, src, dst, tunnel };
            [
                policy(XfrmDirection::Out, here, there, out.tunnel),
                policy(XfrmDirection::In, there, here, back.tunnel),
                policy(XfrmDirection::Forward, there, here, back.tunnel),
            ]
        })
        .collect()
    }

    fn knows(&self, there: &Node) {
        for (here, there) in self.pods.into_iter().zip(there.pods) {
            let route = Route { src: Some(here.addr()), ..Route::on_link(there.trunc(), ifname(WIRE)) };
            self.place.netlink.route_add(&route).unwrap();
        }
    }
}

fn nodes(outer: [&str; 2]) -> [Node; 2] {
    let one = Node::new("esp-a", outer[0], ["10.1.0.9/24", "fd01::9/64"]);
    let two = Node::new("esp-b", outer[1], ["10.2.0.9/24", "fd02::9/64"]);
    let length = if outer[0].contains(':') { 64 } else { 24 };
    one.place.wire(&two.place, WIRE, &format!("{}/{length}", outer[0]), &format!("{}/{length}", outer[1]));
    [one, two]
}

fn between(outer: [&str; 2]) {
    let nodes = nodes(outer);
    let [one, two] = &nodes;
    let states = [one.toward(two), two.toward(one)];
    for (state, key) in states.iter().zip([(); 2].map(|()| EspKey::generate().unwrap())) {
        for node in &nodes {
            node.xfrm.state_add(state, &key).unwrap();
            let again = node.xfrm.state_add(state, &key).unwrap_err();
            assert!(again.is(libc::EEXIST), "{again}");
        }
    }
    let policies = [one.policies(two, &states[0], &states[1]), two.policies(one, &states[1], &states[0])];
    for (node, policies) in nodes.iter().zip(&policies) {
        for policy in policies {
            assert_eq!(node.xfrm.policy(policy).unwrap(), None);
            node.xfrm.policy_add(policy).unwrap();
            let again = node.xfrm.policy_add(policy).unwrap_err();
            assert!(again.is(libc::EEXIST), "{again}");
            assert_eq!(node.xfrm.policy(policy).unwrap().unwrap().tunnel, Some(policy.tunnel));
        }
    }
    one.knows(two);
    two.knows(one);

    let wire = PacketSocket::witness(&one.place.netns, &ifname(WIRE));
    for address in ["10.2.0.9", "fd02::9"] {
        assert!(talk(&one.place, &two.place, address), "{address} over {outer:?}");
    }
    // What came in is seen once more when it was decrypted.
    let frames = std::iter::from_fn(|| wire.receive(Duration::ZERO)).filter(|frame| frame.sent);
    let protocols: Vec<u8> = frames.filter_map(|frame| protocol(&frame.bytes)).collect();
    assert!(protocols.iter().filter(|protocol| **protocol == ESP).count() > 1000, "{}", protocols.len());
    assert!(!protocols.contains(&(libc::IPPROTO_TCP as u8)), "over {outer:?} something was not encrypted");
    for (node, state) in [(one, &states[0]), (two, &states[0]), (one, &states[1]), (two, &states[1])] {
        let found = node.xfrm.state(state).unwrap().unwrap();
        assert!(found.is(state) && found.packets > 1000, "{found:?}");
    }

    for (node, policies) in nodes.iter().zip(&policies) {
        for policy in policies {
            node.xfrm.policy_del(policy).unwrap();
            assert!(node.xfrm.policy_del(policy).unwrap_err().is(libc::ENOENT));
        }
        for state in &states {
            node.xfrm.state_del(state).unwrap();
            assert_eq!(node.xfrm.state(state).unwrap(), None);
            assert!(node.xfrm.state_del(state).unwrap_err().is(libc::ESRCH));
        }
        for what in ["state", "policy"] {
            assert_eq!(node.place.judge("ip", &["xfrm", what]), "", "{what}");
        }
    }
}

/// What an IP packet in a frame says that it carries.
fn protocol(frame: &[u8]) -> Option<u8> {
    match frame.get(12..14)? {
        [0x08, 0x00] => frame.get(23).copied(),
        [0x86, 0xdd] => frame.get(20).copied(),
        _ => None,
    }
}

#[test]
fn it_carries_both_families_over_either() {
    if is_missing(Feature::IpSec) {
        return;
    }
    between(["192.0.2.1", "192.0.2.2"]);
    between(["2001:db8::1", "2001:db8::2"]);
}

/// `ip` is the judge of what the kernel was given.
#[test]
fn ip_shows_what_was_added() {
    if is_missing(Feature::IpSec) {
        return;
    }
    let [one, two] = nodes(["192.0.2.1", "192.0.2.2"]);
    let state = XfrmState { spi: 0x1234.try_into().unwrap(), ..one.toward(&two) };
    one.xfrm.state_add(&state, &EspKey::generate().unwrap()).unwrap();
    let shown = one.place.judge("ip", &["xfrm", "state"]);
    for words in [
        "src 192.0.2.1 dst 192.0.2.2",
        "proto esp spi 0x00001234 reqid 1 mode tunnel",
        "aead rfc4106(gcm(aes)) 0x",
        " 128\n",
        "flag af-unspec esn",
        "replay_window 1024",
    ] {
        assert!(shown.contains(words), "{words:?}: {shown}");
    }
    let policy = one.policies(&two, &state, &state).remove(0);
    one.xfrm.policy_add(&policy).unwrap();
    let shown = one.place.judge("ip", &["xfrm", "policy"]);
    for words in ["src 10.1.0.0/24 dst 10.2.0.0/24", "dir out priority 0", "proto esp reqid 1 mode tunnel"] {
        assert!(shown.contains(words), "{words:?}: {shown}");
    }

    // What another program put there is not taken for ours.
    let [src, dst] = [one.outer, two.outer].map(|outer| outer.to_string());
    one.xfrm.state_del(&state).unwrap();
    let id =
        ["xfrm", "state", "add", "src", &src, "dst", &dst, "proto", "esp", "spi", "0x1234", "reqid", "1"];
    let algorithm = ["mode", "tunnel", "enc", "cipher_null", ""];
    one.place.judge("ip", &[&id[..], &algorithm].concat());
    let found = one.xfrm.state(&state).unwrap().unwrap();
    assert!(found.tunnel == state.tunnel && !found.is(&state), "{found:?}");
}
