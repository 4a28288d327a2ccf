//! Frames with a VLAN tag. A link takes the first tag out of the bytes before a program sees them, so the
//! frame of a VLAN looks like any other. If it were forwarded, it would leave with its tag. The kernel
//! ignores the tag of VLAN 0 and forwards what is behind it.

use bpf::forward::{Counter, Program};

use crate::frame;
use crate::node::{Node, ONE, TWO, can_run, far, from_hop};
use crate::preamble::Given;
use crate::run::Verdict;

/// Identifiers with priorities: two of a VLAN, two without one.
const TAGS: [u16; 4] = [7, 0, 7 << 13, 7 << 13 | 7];

#[test]
fn no_pod_sends_in_a_vlan() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    let honest = [
        ONE.to(TWO.v4, b"x"),
        ONE.to(TWO.v6, b"x"),
        ONE.to(far::DIRECT, b"x"),
        ONE.to(far::DIRECT6, b"x"),
        crate::arp::question(),
    ];
    let spoofed = [
        frame::datagram(far::OUTSIDE.into(), TWO.v4.into(), b"x"),
        frame::datagram(far::OUTSIDE6.into(), TWO.v6.into(), b"x"),
    ];
    let spoofed = spoofed.map(|(kind, packet)| ONE.frame(kind, &packet));
    let expected = (Verdict::Drop, vec![Counter::DropVlan]);
    for program in [Program::FromPod, Program::FromNetkit] {
        for (frame, tag) in honest.iter().chain(&spoofed).flat_map(|frame| TAGS.map(|tag| (frame, tag))) {
            let found = node.send_given(program, ONE.link, Given::Vlan(tag), frame);
            assert_eq!((found.verdict, found.counted), expected, "{program:?} {tag:x} {frame:x?}");
            for kind in [frame::VLAN, frame::PROVIDER_VLAN] {
                let tagged = within(kind, tag, frame);
                let found = node.send(program, ONE.link, &tagged);
                assert_eq!((found.verdict, found.counted), expected, "{program:?} {tagged:x?}");
                let found = node.send_given(program, ONE.link, Given::Vlan(tag), &tagged);
                assert_eq!((found.verdict, found.counted), expected, "{program:?}, twice: {tagged:x?}");
            }
        }
    }
}

/// A frame with its tag among its bytes.
fn within(kind: u16, tag: u16, frame: &[u8]) -> Vec<u8> {
    let (macs, rest) = frame.split_at(12);
    [macs, &kind.to_be_bytes(), &tag.to_be_bytes(), rest].concat()
}

/// Some switches and cards tag all frames so.
#[test]
fn a_priority_without_a_vlan_is_no_tag_on_the_wire() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    for frame in [from_hop(far::DIRECT, ONE.v4, b"x"), from_hop(far::DIRECT6, ONE.v6, b"x")] {
        let plain = node.send(Program::FromWire, "wire", &frame);
        for tag in [TAGS[1], TAGS[2]] {
            let found = node.send_given(Program::FromWire, "wire", Given::Vlan(tag), &frame);
            assert_eq!((found.verdict, found.counted), (plain.verdict, plain.counted.clone()), "{tag:x}");
        }
        let found = node.send_given(Program::FromWire, "wire", Given::Vlan(TAGS[0]), &frame);
        assert_ne!(found.verdict, plain.verdict, "a VLAN is another network");
    }
}

#[test]
fn no_vlan_reaches_a_pod() {
    if !can_run() {
        return;
    }
    let node = Node::tunnelled();
    for frame in [from_hop(far::DIRECT, ONE.v4, b"x"), from_hop(far::DIRECT6, ONE.v6, b"x")] {
        let found = node.send_given(Program::FromWire, "wire", Given::Vlan(TAGS[0]), &frame);
        assert_eq!((found.verdict, found.counted), (Verdict::Pass, vec![]));
    }
}
