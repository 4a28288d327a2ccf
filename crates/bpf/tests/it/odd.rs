//! Whatever a frame contains, a program returns one of three verdicts, and forwards a pod's frames only if
//! they carry the pod's own addresses.

use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};

use bpf::forward::Program;
use linux::Mac;
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, Strategy, any};
use proptest::sample::select;
use proptest::test_runner::{TestCaseResult, TestRunner};
use proptest::{prop_assert, prop_oneof};

use crate::frame::{self, BROADCAST, ethernet};
use crate::node::{GATEWAY, GATEWAY_MAC, HERE, Node, ONE, PORT, THERE, TWO, VNI, WIRE_MAC, can_run, far};
use crate::preamble::{self, Given, Preamble};
use crate::run::{Context, Verdict};

const CASES: u32 = 3000;

/// Random bytes. Some frames have this node's addresses where addresses belong, so that the programs read
/// further than the first address.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let mac = || {
        let known = [ONE.mac, GATEWAY_MAC, WIRE_MAC, TWO.mac, BROADCAST];
        prop_oneof![8 => select(known.to_vec()), 1 => any::<[u8; 6]>().prop_map(Mac)]
    };
    let usual = [(GATEWAY_MAC, ONE.mac), (WIRE_MAC, ONE.mac)];
    let macs = prop_oneof![8 => select(usual.to_vec()), 2 => (mac(), mac())];
    let kinds = [frame::IPV4, frame::IPV4, frame::IPV6, frame::IPV6, frame::ARP];
    let kind = prop_oneof![8 => select(kinds.to_vec()), 1 => any::<u16>()];
    let address = || {
        let others = [far::DIRECT, far::DIRECT, far::UNRESOLVED, far::UNRESOLVED, far::ROUTED];
        let known = [&[ONE.v4, ONE.v4, TWO.v4, HERE, GATEWAY][..], &others].concat();
        prop_oneof![8 => select(known), 1 => any::<[u8; 4]>().prop_map(Into::into)]
    };
    let address6 = || {
        let others = [far::DIRECT6, far::DIRECT6, far::UNRESOLVED6, far::UNRESOLVED6];
        let known = [&[ONE.v6, ONE.v6, TWO.v6][..], &others].concat();
        prop_oneof![8 => select(known), 1 => any::<[u8; 16]>().prop_map(Into::into)]
    };
    let places = (macs, kind, (address(), address()), (address6(), address6()));
    let named = (places, vec(any::<u8>(), 0..1986), any::<bool>(), any::<bool>()).prop_map(
        |(((to, from), kind, v4, v6), payload, is_tunnel, is_sound)| {
            let mut frame = ethernet(to, from, kind, &payload);
            let mut put = |at: usize, bytes: &[u8]| {
                if let Some(place) = frame.get_mut(at..at + bytes.len()) {
                    place.copy_from_slice(bytes);
                }
            };
            match kind {
                frame::IPV4 => {
                    put(26, &[v4.0.octets(), v4.1.octets()].concat());
                    if is_tunnel {
                        put(14, &[0x45, 0]);
                        put(20, &[0x40, 0, 64, 17]);
                        put(36, &PORT.to_be_bytes());
                        put(42, &[8, 0, 0, 0]);
                        put(46, &(VNI << 8).to_be_bytes());
                        put(62, &frame::IPV4.to_be_bytes());
                        put(76, &[far::DIRECT.octets(), ONE.v4.octets()].concat());
                    }
                }
                frame::IPV6 => put(22, &[v6.0.octets(), v6.1.octets()].concat()),
                frame::ARP => {
                    put(14, &[0, 1, 8, 0, 6, 4, 0, 1]);
                    put(22, &from.0);
                    put(28, &v4.0.octets());
                    put(38, &v4.1.octets());
                }
                _ => {}
            }
            if is_sound {
                make_sound(&mut frame);
            }
            frame
        },
    );
    prop_oneof![1 => vec(any::<u8>(), 14..2000), 4 => named]
}

/// Gives a frame an IP header that a router accepts.
fn make_sound(frame: &mut [u8]) {
    let bytes = u16::try_from(frame.len() - frame::ETHERNET).expect("frames are short");
    match u16::from_be_bytes([frame[12], frame[13]]) {
        frame::IPV4 if frame.len() >= frame::ETHERNET + frame::IP_HEADER => {
            frame[14] = 0x45;
            frame[16..18].copy_from_slice(&bytes.to_be_bytes());
            frame[22] = 64;
            frame[24..26].fill(0);
            let sum = frame::checksum(&frame[frame::ETHERNET..][..frame::IP_HEADER]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        frame::IPV6 if bytes >= 40 => {
            frame[14] = 0x60;
            frame[18..20].copy_from_slice(&(bytes - 40).to_be_bytes());
            frame[20..22].copy_from_slice(&[17, 64]);
        }
        _ => {}
    }
}

/// Whether every address field of a frame that names its sender names pod one.
fn is_of_one(frame: &[u8]) -> bool {
    let at = |from: usize, bytes: &[u8]| frame.get(from..from + bytes.len()) == Some(bytes);
    let named = match u16::from_be_bytes([frame[12], frame[13]]) {
        frame::IPV4 => at(26, &ONE.v4.octets()),
        frame::IPV6 => at(22, &ONE.v6.octets()),
        frame::ARP => at(22, &ONE.mac.0) && (at(28, &ONE.v4.octets()) || at(28, &[0; 4])),
        _ => false,
    };
    named && at(6, &ONE.mac.0)
}

/// A program at its link. It checks every generated frame.
struct Stand {
    node: Node,
    program: Program,
    loaded: OwnedFd,
    preamble: Option<Preamble>,
    link: &'static str,
    sent_on: Cell<u32>,
}

impl Stand {
    fn new(program: Program, node: Node) -> Stand {
        let loaded = node.program(program);
        let (link, preamble) = match program {
            Program::FromPod | Program::FromNetkit => (ONE.link, None),
            Program::FromWire => ("wire", None),
            Program::FromTunnel => {
                ("tun", Some(preamble::load(loaded.as_fd(), Given::Tunnel { vni: VNI, from: THERE.into() })))
            }
            Program::Guard => unreachable!("it sends nothing on"),
        };
        Stand { node, program, loaded, preamble, link, sent_on: Cell::new(0) }
    }

    fn check(&self, frame: &[u8]) -> TestCaseResult {
        let context = Context { ifindex: self.node.index(self.link), ..Context::default() };
        // Newer kernels reject truncated headers before any program runs.
        let entry = self.preamble.as_ref().map_or(&self.loaded, |preamble| &preamble.program);
        let Ok(found) = self.node.send_with(entry, context, frame) else { return Ok(()) };
        if found.verdict == Verdict::Redirect {
            self.sent_on.set(self.sent_on.get() + 1);
            let is_from_pod = matches!(self.program, Program::FromPod | Program::FromNetkit);
            prop_assert!(!is_from_pod || is_of_one(frame), "{:?} let it through", self.program);
            prop_assert!(found.counted.is_empty(), "{:?} counted {:?}", self.program, found.counted);
        } else {
            prop_assert!(found.frame == frame, "{:?} changed what it did not send", self.program);
            prop_assert!(found.counted.len() <= 1, "{:?} counted {:?}", self.program, found.counted);
        }
        Ok(())
    }
}

#[test]
fn a_program_says_one_of_three_things() {
    if !can_run() {
        return;
    }
    let tunnelled = Program::FORWARD.iter().map(|program| Stand::new(*program, Node::tunnelled()));
    let direct = [Program::FromPod, Program::FromNetkit, Program::FromWire];
    let direct = direct.map(|program| Stand::new(program, Node::direct()));
    let stands: Vec<Stand> = tunnelled.chain(direct).collect();
    let config = ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() };
    let outcome = TestRunner::new(config)
        .run(&frames(), |frame| stands.iter().try_for_each(|stand| stand.check(&frame)));
    outcome.unwrap_or_else(|error| panic!("{error}"));
    for Stand { program, sent_on, .. } in &stands {
        // About one frame of 75 is; the number of those scatters.
        assert!(sent_on.get() > CASES / 300, "{program:?} found only {} worth sending on", sent_on.get());
    }
}
