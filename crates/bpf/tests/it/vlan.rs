//! Frames with a VLAN's tag. A link takes it out of the bytes before a program sees them, so that the frame of a VLAN
//! looks like any other; it would leave with its tag, into a VLAN that is none of a pod's business.

use bpf::forward::{Counter, Program};

use crate::frame::{self, ethernet};
use crate::node::{Node, ONE, TWO, can_run, far, from_hop};
use crate::preamble::Given;
use crate::run::Verdict;

const TAG: u16 = 7;

#[test]
fn no_pod_reaches_a_vlan() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    for program in [Program::FromPod, Program::FromNetkit] {
        for frame in [
            ONE.to(TWO.v4, b"x"),
            ONE.to(TWO.v6, b"x"),
            ONE.to(far::DIRECT, b"x"),
            ONE.to(far::DIRECT6, b"x"),
            crate::arp::question(),
        ] {
            let found = node.send_given(program, ONE.link, Given::Vlan(TAG), &frame);
            let expected = (Verdict::Pass, vec![Counter::PassProtocol]);
            assert_eq!((found.verdict, found.counted), expected, "{program:?} {frame:x?}");
        }
        let alien = ethernet(frame::BROADCAST, TWO.mac, frame::IPV4, &[0; 40]);
        let found = node.send_given(program, ONE.link, Given::Vlan(TAG), &alien);
        assert_eq!((found.verdict, found.counted), (Verdict::Drop, vec![Counter::DropSpoofedMac]));
    }
}

#[test]
fn no_vlan_reaches_a_pod() {
    if !can_run() {
        return;
    }
    let node = Node::tunnelled();
    for frame in [from_hop(far::DIRECT, ONE.v4, b"x"), from_hop(far::DIRECT6, ONE.v6, b"x")] {
        let found = node.send_given(Program::FromWire, "wire", Given::Vlan(TAG), &frame);
        assert_eq!((found.verdict, found.counted), (Verdict::Pass, vec![]));
    }
}
