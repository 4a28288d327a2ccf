//! Generated frames and what judges them: every frame meets its verdict, wherever on its way that is.

use std::net::Ipv4Addr;
use std::num::NonZero;

use bpf::packets::{Filter, PacketPrograms, Seen, Source};
use linux::ethtool::{Ethtool, NicFeature, NicParameter};
use linux::{IfName, Mac, Netlink, Netns, clock};
use testkit::{World, require_root, run};

use crate::frame::{IPV4, Ipv4, ethernet, udp};

const NEAR_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const FAR_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);
const NEAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// Frames that are under way at one time. A veth link has room for 256, so none is lost however late it is read.
const BURST: u32 = 64;
const BURSTS: u32 = 20;
const FRAMES: u64 = 1280;
/// The longest that a burst may take, whatever else the machine does.
const PATIENCE_NS: u64 = 60_000_000_000;
/// What a kernel without live test runs, or without tcx, says.
const INVALID: i32 = 22;

/// A wire between two namespaces, and one that leads onward from its far end to a third.
struct Wire {
    near: Netns,
    far: Netns,
    onward: Netns,
    programs: PacketPrograms,
    _world: World,
}

impl Wire {
    /// `None`, with the skip recorded, if this kernel cannot generate frames.
    fn new() -> Option<Wire> {
        Wire::with(PacketPrograms::load)
    }

    fn with(programs: impl FnOnce() -> linux::Result<PacketPrograms>) -> Option<Wire> {
        if !require_root() {
            return None;
        }
        let world = World::new();
        let (near, far, onward) = (world.add("a"), world.add("b"), world.add("c"));
        let ip = |netns: &Netns, arguments: &str| {
            run(netns, "ip", &arguments.split(' ').collect::<Vec<_>>());
        };
        let (to_far, to_onward) = (world.name("b"), world.name("c"));
        ip(
            &near,
            &format!(
                "link add a0 address {NEAR_MAC} type veth peer name b0 address {FAR_MAC} netns {to_far}"
            ),
        );
        ip(&far, &format!("link add b1 type veth peer name c0 netns {to_onward}"));
        ip(&far, &format!("address add {FAR}/24 dev b0"));
        for (netns, link) in [(&near, "a0"), (&far, "b0"), (&far, "b1"), (&onward, "c0")] {
            // Else the kernel's own frames of IPv6 would be judged too.
            ip(netns, &format!("link set {link} addrgenmode none"));
            ip(netns, &format!("link set {link} up"));
        }
        // Else the far end would have NAPI only with XDP in its driver.
        let ethtool = Ethtool::open_in(&far).unwrap();
        ethtool.write(&IfName::new("b0").unwrap(), NicParameter::Feature(NicFeature::Gro), 1).unwrap();
        let programs = programs().unwrap();
        near.run(|| programs.send_over(index("a0"))).unwrap().unwrap();
        far.run(|| programs.redirect_to(index("b1"))).unwrap().unwrap();
        let wire = Wire { near, far, onward, programs, _world: world };
        if let Err(error) = wire.programs.generate(Source::Alone, &frame(64), 1) {
            assert_eq!(error.errno(), Some(INVALID), "{error}");
            testkit::skip("this kernel has no live test runs (Linux 5.18)");
            return None;
        }
        Some(wire)
    }

    /// Sends bursts of frames, each when the one before has arrived, and returns what was seen of all of them.
    fn flood(&self, frame: &[u8], arrived: impl Fn(Seen) -> u64) -> Seen {
        let start = self.programs.seen().unwrap();
        for _ in 0..BURSTS {
            // A burst of none is none.
            for frames in [0, BURST] {
                self.near.run(|| self.programs.generate(Source::Wire, frame, frames)).unwrap().unwrap();
            }
            let deadline = clock::now_ns() + PATIENCE_NS;
            loop {
                let seen = self.programs.seen().unwrap();
                if arrived(seen) - arrived(start) >= seen.generated - start.generated {
                    break;
                }
                assert!(clock::now_ns() < deadline, "frames were lost: {start:?}, then {seen:?}");
                std::thread::yield_now();
            }
        }
        let end = self.programs.seen().unwrap();
        Seen {
            generated: end.generated - start.generated,
            judged: end.judged - start.judged,
            sunk: end.sunk - start.sunk,
        }
    }
}

fn index(link: &str) -> u32 {
    let netlink = Netlink::open().unwrap();
    netlink.index_of(&IfName::new(link).unwrap()).unwrap()
}

/// A frame of so many bytes with a UDP datagram for the far end.
fn frame(bytes: usize) -> Vec<u8> {
    let datagram = udp(4000, 4001, &vec![0; bytes - 14 - 20 - 8]);
    ethernet(FAR_MAC, NEAR_MAC, IPV4, &Ipv4::new(NEAR, FAR).packet(&datagram))
}

#[test]
fn frames_of_every_size_meet_the_filter_that_drops_them() {
    let Some(wire) = Wire::new() else { return };
    for filter in [Filter::XdpDrop, Filter::XdpGeneric, Filter::TcDrop] {
        let judging = wire.far.run(|| wire.programs.attach(filter, index("b0"))).unwrap();
        let judging = match judging {
            Err(error) if filter == Filter::TcDrop && error.errno() == Some(INVALID) => {
                testkit::skip("this kernel has no tcx (Linux 6.6)");
                continue;
            }
            judging => judging.unwrap(),
        };
        for bytes in [64, 590, 1514] {
            let seen = wire.flood(&frame(bytes), |seen| seen.judged);
            assert_eq!(
                seen,
                Seen { generated: FRAMES, judged: FRAMES, sunk: 0 },
                "{filter:?}, {bytes} bytes"
            );
        }
        drop(judging);
    }
}

#[test]
fn what_is_not_for_the_port_of_a_filter_passes_it() {
    let Some(wire) = Wire::with(|| PacketPrograms::load_for(NonZero::new(4001).unwrap())) else { return };
    let rules = "add table ip t; add chain ip t c { type filter hook input priority filter; }; \
                 add rule ip t c udp dport != 4001 counter drop";
    run(&wire.far, "nft", &[rules]);
    let elsewhere = || {
        let datagram = udp(4000, 4002, &[0; 22]);
        ethernet(FAR_MAC, NEAR_MAC, IPV4, &Ipv4::new(NEAR, FAR).packet(&datagram))
    };
    let passed = || {
        let counted = run(&wire.far, "nft", &["list", "table", "ip", "t"]);
        let packets = counted.split("counter packets ").nth(1).unwrap().split(' ').next().unwrap();
        packets.parse::<u32>().unwrap()
    };
    let mut expected = 0;
    for filter in [Filter::XdpDrop, Filter::XdpGeneric, Filter::TcDrop] {
        // Without tcx the other two are enough.
        let Ok(_judging) = wire.far.run(|| wire.programs.attach(filter, index("b0"))).unwrap() else {
            continue;
        };
        let before = wire.programs.seen().unwrap();
        wire.near.run(|| wire.programs.generate(Source::Wire, &elsewhere(), BURST)).unwrap().unwrap();
        expected += BURST;
        let deadline = clock::now_ns() + PATIENCE_NS;
        while passed() < expected {
            assert!(clock::now_ns() < deadline, "frames were lost: {} of {expected}", passed());
        }
        assert_eq!(wire.programs.seen().unwrap().judged, before.judged, "{filter:?}");
        let seen = wire.flood(&frame(64), |seen| seen.judged);
        assert_eq!((seen.judged, passed()), (FRAMES, expected), "{filter:?}");
    }
}

#[test]
fn frames_that_are_sent_back_end_where_they_came_from() {
    let Some(wire) = Wire::new() else { return };
    let _back = wire.near.run(|| wire.programs.attach(Filter::Sink, index("a0"))).unwrap().unwrap();
    let _judging = wire.far.run(|| wire.programs.attach(Filter::XdpTx, index("b0"))).unwrap().unwrap();
    let seen = wire.flood(&frame(64), |seen| seen.sunk);
    assert_eq!(seen, Seen { generated: FRAMES, judged: FRAMES, sunk: FRAMES });
}

#[test]
fn redirected_frames_end_at_the_other_link() {
    let Some(wire) = Wire::new() else { return };
    let _end = wire.onward.run(|| wire.programs.attach(Filter::Sink, index("c0"))).unwrap().unwrap();
    let _judging = wire.far.run(|| wire.programs.attach(Filter::XdpRedirect, index("b0"))).unwrap().unwrap();
    let seen = wire.flood(&frame(64), |seen| seen.sunk);
    assert_eq!(seen, Seen { generated: FRAMES, judged: FRAMES, sunk: FRAMES });
}

#[test]
fn frames_that_pass_reach_the_rules_of_the_kernel() {
    let Some(wire) = Wire::new() else { return };
    let rules = "add table ip t; add chain ip t c { type filter hook prerouting priority raw; }; \
                 add rule ip t c udp dport 4001 counter drop";
    run(&wire.far, "nft", &[rules]);
    let _judging = wire.far.run(|| wire.programs.attach(Filter::XdpPass, index("b0"))).unwrap().unwrap();
    let seen = wire.flood(&frame(64), |seen| seen.judged);
    assert_eq!(seen, Seen { generated: FRAMES, judged: FRAMES, sunk: 0 });
    let counted = run(&wire.far, "nft", &["list", "table", "ip", "t"]);
    assert!(counted.contains(&format!("counter packets {FRAMES} ")), "{counted}");
}

#[test]
fn frames_that_meet_no_filter_are_only_generated() {
    let Some(wire) = Wire::new() else { return };
    let before = wire.programs.seen().unwrap();
    let mut made = 0;
    let deadline = clock::now_ns() + PATIENCE_NS;
    // A virtual machine may count a thread's time in ticks, in which a call or two find none.
    let mut cpu_ns = 0;
    while cpu_ns == 0 {
        assert!(clock::now_ns() < deadline, "{made} frames took no CPU time");
        cpu_ns = wire.programs.generate(Source::Alone, &frame(64), 1000).unwrap();
        made += 1000;
    }
    let seen = wire.programs.seen().unwrap();
    assert_eq!(seen, Seen { generated: before.generated + made, ..before });
}

#[test]
fn a_filter_that_was_dropped_judges_no_frame() {
    let Some(wire) = Wire::new() else { return };
    let attach = |filter| wire.far.run(|| wire.programs.attach(filter, index("b0"))).unwrap();
    let judging = attach(Filter::XdpDrop).unwrap();
    let error = attach(Filter::XdpPass).unwrap_err().to_string();
    assert!(error.starts_with("attach a filter of packets to link "), "{error}");
    drop(judging);
    let _passing = attach(Filter::XdpPass).unwrap();
}

#[test]
fn what_is_no_frame_and_no_link_is_refused() {
    let Some(wire) = Wire::new() else { return };
    let error = wire.programs.generate(Source::Alone, &[0; 5], 1).unwrap_err().to_string();
    assert!(error.starts_with("generate 1 frames of 5 bytes: "), "{error}");
    let error = wire.near.run(|| wire.programs.send_over(4_000_000)).unwrap().unwrap_err().to_string();
    assert!(error.starts_with("send frames to link 4000000: "), "{error}");
}
