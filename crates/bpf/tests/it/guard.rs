//! What the guard drops and what it lets through: each frame by its sender's addresses.

mod replace;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::path::PathBuf;

use bpf::forward::{Counter, Program};
use bpf::guard::{self, Guarded};
use bpf::pins;
use libbpf_rs::Program as Loaded;

use crate::frame::{self, BROADCAST, IPV6, arp, ethernet, ipv6};
use crate::node::{GATEWAY_MAC, Node, ONE, Pod, TWO, can_run, far};
use crate::preamble::{self, Given};
use crate::run::{Context, Verdict, once};

const HOP_BY_HOP: u8 = 0;
const FRAGMENT: u8 = 44;
const ICMPV6: u8 = 58;
const DESTINATION_OPTIONS: u8 = 60;
/// Messages of neighbour discovery (RFC 4861, section 4).
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x11);
const UNSPECIFIED: Ipv6Addr = Ipv6Addr::UNSPECIFIED;

/// The namespace of the container behind the first link, and that of another.
const CONTAINER: u64 = 7;
const OTHER: u64 = 8;

/// A node with links to two pods, of which the guard knows the first.
pub(crate) struct Scene {
    pub(crate) node: Node,
    pub(crate) folder: PathBuf,
}

impl Scene {
    /// `None`, with the skip recorded, if the programs cannot run here.
    pub(crate) fn new() -> Option<Scene> {
        if !can_run() {
            return None;
        }
        let node = Node::direct();
        let folder = pins::folder(node.world.name("guard").as_str());
        pins::make(&folder).unwrap();
        guard::load(&folder).unwrap();
        let scene = Scene { node, folder };
        guard::add(&scene.folder, &scene.interface(&ONE, CONTAINER)).unwrap();
        Some(scene)
    }

    fn interface(&self, pod: &Pod, container: u64) -> Guarded {
        let addresses = vec![pod.v4.into(), pod.v6.into()];
        Guarded { link: self.node.index(pod.link), container, mac: pod.mac, addresses }
    }

    /// What becomes of a frame that arrives at a link, and the counters that rose.
    pub(crate) fn send_at(&self, link: &str, given: Option<Given>, frame: &[u8]) -> (Verdict, Vec<Counter>) {
        let program = Loaded::fd_from_pinned_path(Program::Guard.pin(&self.folder)).unwrap();
        let preamble = given.map(|given| preamble::load(program.as_fd(), given));
        let program = preamble.as_ref().map_or(program.as_fd(), |preamble| preamble.program.as_fd());
        let context = Context { ifindex: self.node.index(link), ..Context::default() };
        let before = guard::counters(&self.folder).unwrap();
        let (returned, after) = self.node.netns.run(|| once(program, context, frame)).unwrap().unwrap();
        if given.is_none() {
            assert_eq!(after, frame, "it changes nothing");
        }
        let pairs = before.into_iter().zip(guard::counters(&self.folder).unwrap());
        let risen = pairs.filter(|((_, before), (_, after))| after != before);
        (Verdict::of(returned), risen.map(|((counter, _), _)| counter).collect())
    }

    #[track_caller]
    fn passes(&self, link: &str, what: &str, frame: &[u8]) {
        assert_eq!(self.send_at(link, None, frame), (Verdict::Pass, vec![]), "{what}: {frame:x?}");
    }

    #[track_caller]
    fn drops(&self, link: &str, what: &str, frame: &[u8], why: Counter) {
        assert_eq!(self.send_at(link, None, frame), (Verdict::Drop, vec![why]), "{what}: {frame:x?}");
    }
}

/// A message of ICMPv6 about an address.
fn message(kind: u8, about: Ipv6Addr) -> Vec<u8> {
    [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &about.octets(), &[0; 16]].concat()
}

fn from_one(from: Ipv6Addr, to: Ipv6Addr, next: u8, payload: &[u8]) -> Vec<u8> {
    ONE.frame(IPV6, &ipv6(from, to, next, payload))
}

#[test]
fn a_pod_sends_from_its_own_addresses() {
    let Some(scene) = Scene::new() else { return };
    for to in [far::OUTSIDE.into(), far::OUTSIDE6.into(), TWO.v4.into(), std::net::IpAddr::from(TWO.v6)] {
        scene.passes(ONE.link, "to anybody", &ONE.to(to, b"x"));
        let (kind, packet) = match to.is_ipv4() {
            true => frame::datagram(TWO.v4.into(), to, b"x"),
            false => frame::datagram(TWO.v6.into(), to, b"x"),
        };
        let forged = ONE.frame(kind, &packet);
        scene.drops(ONE.link, "another's address", &forged, Counter::DropSpoofedAddress);
        let mut forged = ONE.to(to, b"x");
        forged[6..12].copy_from_slice(&TWO.mac.0);
        scene.drops(ONE.link, "another's MAC", &forged, Counter::DropSpoofedMac);
    }
    let (kind, unspecified) = frame::datagram(Ipv4Addr::UNSPECIFIED.into(), far::OUTSIDE.into(), b"x");
    scene.drops(ONE.link, "no address", &ONE.frame(kind, &unspecified), Counter::DropSpoofedAddress);
    let (kind, unspecified) = frame::datagram(UNSPECIFIED.into(), TWO.v6.into(), b"x");
    scene.drops(ONE.link, "no address to one", &ONE.frame(kind, &unspecified), Counter::DropSpoofedAddress);
}

#[test]
fn arp_is_judged_as_the_forwarding_programs_do() {
    let Some(scene) = Scene::new() else { return };
    for (what, frame, counter) in crate::arp::cases() {
        match counter.is_drop() {
            true => scene.drops(ONE.link, what, &frame, counter),
            false => scene.passes(ONE.link, what, &frame),
        }
    }
    scene.passes(ONE.link, "asks for the gateway", &crate::arp::question());
}

#[test]
fn neighbours_speak_for_themselves_alone() {
    let Some(scene) = Scene::new() else { return };
    let honest = [
        ("detects duplicates", UNSPECIFIED, ALL_NODES, NEIGHBOUR_SOLICITATION, ONE.v6),
        ("asks for a neighbour", ONE.v6, ALL_NODES, NEIGHBOUR_SOLICITATION, TWO.v6),
        ("asks from its link-local address", LINK_LOCAL, ALL_NODES, NEIGHBOUR_SOLICITATION, TWO.v6),
        ("asks for routers", LINK_LOCAL, ALL_NODES, ROUTER_SOLICITATION, UNSPECIFIED),
        ("answers", ONE.v6, TWO.v6, NEIGHBOUR_ADVERTISEMENT, ONE.v6),
        ("answers from its link-local address", LINK_LOCAL, TWO.v6, NEIGHBOUR_ADVERTISEMENT, ONE.v6),
        ("says where its link-local address is", LINK_LOCAL, ALL_NODES, NEIGHBOUR_ADVERTISEMENT, LINK_LOCAL),
    ];
    for (what, from, to, kind, about) in honest {
        scene.passes(ONE.link, what, &from_one(from, to, ICMPV6, &message(kind, about)));
    }
    let forged = [
        ("says where another is", LINK_LOCAL, NEIGHBOUR_ADVERTISEMENT, TWO.v6),
        ("says so by its own address", ONE.v6, NEIGHBOUR_ADVERTISEMENT, TWO.v6),
        ("says where the gateway is", LINK_LOCAL, NEIGHBOUR_ADVERTISEMENT, "fd00:1::1".parse().unwrap()),
        ("is a router", LINK_LOCAL, ROUTER_ADVERTISEMENT, UNSPECIFIED),
        ("redirects", LINK_LOCAL, REDIRECT, TWO.v6),
    ];
    for (what, from, kind, about) in forged {
        let said = message(kind, about);
        let frame = from_one(from, ALL_NODES, ICMPV6, &said);
        scene.drops(ONE.link, what, &frame, Counter::DropSpoofedAddress);
        // Padding of four bytes, once and as often as is looked at.
        for next in [HOP_BY_HOP, DESTINATION_OPTIONS] {
            let behind = [&[ICMPV6, 0, 1, 4, 0, 0, 0, 0][..], &said].concat();
            let frame = from_one(from, ALL_NODES, next, &behind);
            scene.drops(
                ONE.link,
                &format!("{what} behind header {next}"),
                &frame,
                Counter::DropSpoofedAddress,
            );
        }
        let deep = [&[DESTINATION_OPTIONS, 0, 1, 4, 0, 0, 0, 0].repeat(9)[..], &said].concat();
        let frame = from_one(from, ALL_NODES, DESTINATION_OPTIONS, &deep);
        scene.drops(ONE.link, &format!("{what}, deep"), &frame, Counter::DropSpoofedAddress);
        let part = [&[ICMPV6, 0, 0, 1, 0, 0, 0, 9][..], &said].concat();
        let frame = from_one(from, ALL_NODES, FRAGMENT, &part);
        scene.drops(ONE.link, &format!("{what} in a fragment"), &frame, Counter::DropSpoofedAddress);
    }
    let mut foreign = from_one(LINK_LOCAL, ALL_NODES, ICMPV6, &message(ROUTER_SOLICITATION, UNSPECIFIED));
    foreign[6..12].copy_from_slice(&TWO.mac.0);
    scene.drops(ONE.link, "another's MAC", &foreign, Counter::DropSpoofedMac);
    // A later fragment has no message, whatever its bytes are, and an echo names no other.
    let later = [&[ICMPV6, 0, 0, 9, 0, 0, 0, 9][..], &message(ROUTER_ADVERTISEMENT, UNSPECIFIED)].concat();
    scene.passes(ONE.link, "a later fragment", &from_one(ONE.v6, TWO.v6, FRAGMENT, &later));
    scene.passes(ONE.link, "an echo", &from_one(ONE.v6, TWO.v6, ICMPV6, &message(128, TWO.v6)));
}

#[test]
fn pods_have_no_vlans_and_no_other_protocols() {
    let Some(scene) = Scene::new() else { return };
    let tagged = (Verdict::Drop, vec![Counter::DropVlan]);
    for tag in [0, 7, 7 << 13] {
        let frame = ONE.to(TWO.v4, b"x");
        assert_eq!(scene.send_at(ONE.link, Some(Given::Vlan(tag)), &frame), tagged);
        let (macs, rest) = frame.split_at(12);
        for kind in [frame::VLAN, frame::PROVIDER_VLAN] {
            let within = [macs, &kind.to_be_bytes(), &u16::to_be_bytes(tag), rest].concat();
            scene.drops(ONE.link, "a tag in the frame", &within, Counter::DropVlan);
        }
    }
    let other = |mac| ethernet(BROADCAST, mac, frame::UNKNOWN, &[0; 46]);
    scene.drops(ONE.link, "another protocol", &other(ONE.mac), Counter::DropProtocol);
    scene.drops(ONE.link, "the same with another's MAC", &other(TWO.mac), Counter::DropSpoofedMac);
    let short = ethernet(BROADCAST, ONE.mac, frame::ARP, &arp(1, (ONE.mac, ONE.v4), (ONE.mac, TWO.v4))[..20]);
    scene.drops(ONE.link, "half an ARP packet", &short, Counter::DropShort);
}

/// Answers leave by a container's first interface, whichever of its addresses was asked.
#[test]
fn a_container_has_the_addresses_of_all_its_interfaces() {
    let Some(scene) = Scene::new() else { return };
    let by_one = |pod: &Pod| {
        let (v4, v6) = (frame::datagram(pod.v4.into(), far::OUTSIDE.into(), b"x"), pod.v6);
        let v6 = frame::datagram(v6.into(), far::OUTSIDE6.into(), b"x");
        [v4, v6].map(|(kind, packet)| ONE.frame(kind, &packet))
    };
    let answer =
        ethernet(BROADCAST, ONE.mac, frame::ARP, &arp(2, (ONE.mac, TWO.v4), (GATEWAY_MAC, far::OUTSIDE)));
    let located = from_one(LINK_LOCAL, ALL_NODES, ICMPV6, &message(NEIGHBOUR_ADVERTISEMENT, TWO.v6));
    let as_two = by_one(&TWO).into_iter().chain([answer, located]).collect::<Vec<_>>();
    let stranger = scene.interface(&TWO, OTHER);
    guard::add(&scene.folder, &stranger).unwrap();
    for frame in &as_two {
        scene.drops(ONE.link, "another container's", frame, Counter::DropSpoofedAddress);
    }
    guard::remove(&scene.folder, &stranger).unwrap();
    let second = scene.interface(&TWO, CONTAINER);
    guard::add(&scene.folder, &second).unwrap();
    for frame in &as_two {
        scene.passes(ONE.link, "its own", frame);
    }
    // By another interface's link, but not with another interface's Ethernet address.
    let mut forged = by_one(&TWO)[0].clone();
    forged[6..12].copy_from_slice(&TWO.mac.0);
    scene.drops(ONE.link, "the other interface's MAC", &forged, Counter::DropSpoofedMac);
    // Each goes alone.
    guard::remove(&scene.folder, &scene.interface(&ONE, CONTAINER)).unwrap();
    assert_eq!(guard::has(&scene.folder, &second).unwrap(), Some(true));
    scene.passes(TWO.link, "what is left", &TWO.to(far::OUTSIDE, b"x"));
    scene.drops(ONE.link, "what is gone", &ONE.to(far::OUTSIDE, b"x"), Counter::DropSpoofedAddress);
    let (kind, packet) = frame::datagram(ONE.v4.into(), far::OUTSIDE.into(), b"x");
    scene.drops(
        TWO.link,
        "what is gone, by the other",
        &TWO.frame(kind, &packet),
        Counter::DropSpoofedAddress,
    );
}

#[test]
fn an_interface_of_one_family_has_none_of_the_other() {
    let Some(scene) = Scene::new() else { return };
    let both = scene.interface(&TWO, OTHER);
    for own in [0, 1] {
        let one = Guarded { addresses: vec![both.addresses[own]], ..both.clone() };
        guard::add(&scene.folder, &one).unwrap();
        let frames = [TWO.to(far::OUTSIDE, b"x"), TWO.to(far::OUTSIDE6, b"x")];
        scene.passes(TWO.link, "its family", &frames[own]);
        scene.drops(TWO.link, "the other", &frames[1 - own], Counter::DropSpoofedAddress);
        let unspecified = [
            frame::datagram(Ipv4Addr::UNSPECIFIED.into(), far::OUTSIDE.into(), b"x"),
            frame::datagram(UNSPECIFIED.into(), far::OUTSIDE6.into(), b"x"),
        ];
        for (kind, packet) in unspecified {
            scene.drops(TWO.link, "none", &TWO.frame(kind, &packet), Counter::DropSpoofedAddress);
        }
        guard::remove(&scene.folder, &one).unwrap();
        assert_eq!(guard::has(&scene.folder, &one).unwrap(), None);
    }
}

#[test]
fn what_is_there_stays_if_an_interface_is_refused() {
    let Some(scene) = Scene::new() else { return };
    let (one, two) = (scene.interface(&ONE, CONTAINER), scene.interface(&TWO, CONTAINER));
    let same = Guarded { addresses: vec![two.addresses[0], one.addresses[1]], ..two.clone() };
    let _ = guard::add(&scene.folder, &same).unwrap_err();
    assert_eq!(guard::has(&scene.folder, &same).unwrap(), Some(false));
    assert_eq!(guard::has(&scene.folder, &two).unwrap(), None);
    assert_eq!(guard::has(&scene.folder, &one).unwrap(), Some(true));
    guard::remove(&scene.folder, &same).unwrap();
    assert_eq!(guard::has(&scene.folder, &one).unwrap(), Some(true), "another's entries stay");
}
