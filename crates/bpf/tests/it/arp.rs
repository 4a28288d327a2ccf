//! ARP between a pod and its gateway. No link has the gateway's address.

use std::net::Ipv4Addr;

use bpf::forward::{Counter, Program};
use linux::Mac;

use crate::frame::{self, BROADCAST, arp, ethernet};
use crate::node::{GATEWAY, GATEWAY_MAC, Node, ONE, TWO, can_run};
use crate::run::Verdict;

const REQUEST: u16 = 1;
const REPLY: u16 = 2;
const UNKNOWN: Mac = Mac([0; 6]);
const UNSPECIFIED: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

/// The request "who has the gateway's address? Tell pod one."
pub(crate) fn question() -> Vec<u8> {
    said(REQUEST, (ONE.mac, ONE.v4), (UNKNOWN, GATEWAY))
}

fn said(operation: u16, sender: (Mac, Ipv4Addr), target: (Mac, Ipv4Addr)) -> Vec<u8> {
    ethernet(BROADCAST, ONE.mac, frame::ARP, &arp(operation, sender, target))
}

/// What a pod may and may not send, apart from [`question`].
pub(crate) fn cases() -> Vec<(&'static str, Vec<u8>, Counter)> {
    let own = (ONE.mac, ONE.v4);
    let other = |mac| ethernet(BROADCAST, mac, frame::ARP, &arp(REQUEST, own, (UNKNOWN, GATEWAY)));
    vec![
        ("asks for a pod", said(REQUEST, own, (UNKNOWN, TWO.v4)), Counter::PassArp),
        ("answers", said(REPLY, own, (GATEWAY_MAC, GATEWAY)), Counter::PassArp),
        ("probes its address", said(REQUEST, (ONE.mac, UNSPECIFIED), (UNKNOWN, ONE.v4)), Counter::PassArp),
        ("announces its address", said(REQUEST, own, (UNKNOWN, ONE.v4)), Counter::PassArp),
        (
            "announces another's",
            said(REQUEST, (ONE.mac, TWO.v4), (UNKNOWN, TWO.v4)),
            Counter::DropSpoofedAddress,
        ),
        (
            "answers for another",
            said(REPLY, (ONE.mac, TWO.v4), (GATEWAY_MAC, GATEWAY)),
            Counter::DropSpoofedAddress,
        ),
        ("is the gateway", said(REPLY, (ONE.mac, GATEWAY), (TWO.mac, TWO.v4)), Counter::DropSpoofedAddress),
        ("says another's MAC", said(REQUEST, (TWO.mac, ONE.v4), (UNKNOWN, GATEWAY)), Counter::DropSpoofedMac),
        ("sends with another's MAC", other(TWO.mac), Counter::DropSpoofedMac),
    ]
}

#[test]
fn a_pod_learns_the_gateway() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    for program in [Program::FromPod, Program::FromNetkit] {
        for asking in [ONE.v4, UNSPECIFIED] {
            // Links with a minimum length pad their frames.
            for padding in [0, 18] {
                let question = said(REQUEST, (ONE.mac, asking), (UNKNOWN, GATEWAY));
                let filled = [question, vec![0; padding]].concat();
                let found = node.send(program, ONE.link, &filled);
                let answer = arp(REPLY, (GATEWAY_MAC, GATEWAY), (ONE.mac, asking));
                let answer = [ethernet(ONE.mac, GATEWAY_MAC, frame::ARP, &answer), vec![0; padding]].concat();
                assert_eq!(
                    (found.verdict, found.counted),
                    (Verdict::Redirect, vec![]),
                    "{program:?} {asking}"
                );
                assert_eq!(found.frame, answer, "{program:?} {asking}");
            }
        }
    }
    // A pod on another link cannot ask with this pod's address.
    let found = node.send(Program::FromPod, TWO.link, &question());
    assert_eq!((found.verdict, found.counted), (Verdict::Drop, vec![Counter::DropSpoofedMac]));
}
