//! What the wire shows of packets between pods.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use bpf::forward::Counter;
use datapath::{DataPath, Family};
use linux::Netns;
use plan::{Fault, Step};
use testkit::{Captured, PacketSocket, bound};

use crate::pair::Pair;
use crate::paths::runnable;
use crate::probe;
use crate::specs::POD_PORT;

/// The UDP port at which the driver's WireGuard listens on each node.
const PORT: u16 = 51820;
/// The numbers of UDP and ESP as protocols.
const UDP: u8 = 17;
const ESP: u8 = 50;
/// How long a packet may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of what pods say that are looked for on the wire.
const PART_BYTES: usize = 32;

/// What one end of the wire sent.
struct Seen {
    /// Frames of ESP, or of UDP to [`PORT`].
    encrypted: usize,
    /// Frames with a part of what the pods said.
    plain: usize,
    /// Bytes of the longest frame.
    longest: usize,
}

/// Lets pods of two nodes exchange datagrams of known bytes, and looks at what leaves by either end of the wire.
fn seen(path: &'static DataPath, outer: Family) -> [Seen; 2] {
    let mut pair = Pair::new(path, outer);
    let (plan, mut journal) = (pair.path_plan(), pair.journal());
    pair.apply(&plan, &mut journal, Fault::None).unwrap_or_else(|error| panic!("{error}"));
    let wires = [0, 1].map(|at| PacketSocket::witness(&pair.node(at), &pair.nodes[at].wire));
    let mtu = path.pod_mtu(&pair.nodes[1]).expect("a sound node");
    for to in pair.pods[1].addresses.iter() {
        let to = SocketAddr::new(to, POD_PORT);
        probe::udp(&pair.inside(1), POD_PORT, &pair.inside(0), to, mtu)
            .unwrap_or_else(|error| panic!("{to}: {error}"));
    }
    // All of it has arrived: the last answer was received.
    let seen = wires.map(|wire| {
        // What was decrypted enters by the wire once more.
        let received = std::iter::from_fn(|| wire.receive(Duration::ZERO));
        let frames: Vec<Captured> = received.filter(|frame| frame.sent).collect();
        let count = |is: &dyn Fn(&[u8]) -> bool| frames.iter().filter(|frame| is(&frame.bytes)).count();
        let part = &probe::pattern(2 * PART_BYTES)[PART_BYTES..];
        let has_part = |frame: &[u8]| frame.windows(PART_BYTES).any(|window| window == part);
        let longest = frames.iter().map(|frame| frame.bytes.len()).max().unwrap_or(0);
        Seen { encrypted: count(&is_encrypted), plain: count(&has_part), longest }
    });
    pair.undo(&mut journal);
    seen
}

/// Whether a frame, without options of IP, has a packet of an encrypted tunnel.
fn is_encrypted(frame: &[u8]) -> bool {
    let (protocol, port) = match frame.get(12..14) {
        Some([0x08, 0x00]) => (frame.get(23), 36),
        Some([0x86, 0xdd]) => (frame.get(20), 56),
        _ => return false,
    };
    match protocol {
        Some(&UDP) => frame.get(port..port + 2) == Some(&PORT.to_be_bytes()),
        protocol => protocol == Some(&ESP),
    }
}

/// Bytes of a frame with a packet of the underlay's MTU.
const FULL_BYTES: usize = 14 + 1500;

fn shows_nothing(paths: &[(&str, Family)]) {
    for (name, outer) in paths {
        let Some(path) = runnable(name) else { return };
        for Seen { encrypted, plain, longest } in seen(path, *outer) {
            // A dozen lengths in each family.
            assert!(encrypted > 24 && plain == 0, "{name}: {encrypted} encrypted, {plain} plain");
            assert_eq!(longest, FULL_BYTES, "{name}: a full packet of a pod makes one of the underlay");
        }
    }
}

#[test]
fn wireguard_shows_nothing_of_what_pods_say() {
    shows_nothing(&[("bridge+wireguard", Family::V4), ("ptp+wireguard", Family::V6)]);
}

#[test]
fn ipsec_shows_nothing_of_what_pods_say() {
    shows_nothing(&[("bridge+ipsec", Family::V6), ("ptp+ipsec", Family::V4)]);
}

#[test]
fn programs_redirect_nothing_past_what_encrypts() {
    shows_nothing(&[("ebpf+wireguard", Family::V4), ("ebpf+ipsec", Family::V6)]);
}

#[test]
fn what_goes_to_wireguard_was_checked() {
    is_checked("ebpf+wireguard");
}

#[test]
fn what_goes_to_ipsec_was_checked() {
    is_checked("ebpf+ipsec");
}

/// The programs leave to the kernel what is a pod's own, and drop the rest with a reason.
#[track_caller]
fn is_checked(name: &str) {
    let Some(path) = runnable(name) else { return };
    let mut pair = Pair::new(path, Family::V4);
    let (plan, mut journal) = (pair.path_plan(), pair.journal());
    pair.apply(&plan, &mut journal, Fault::None).unwrap_or_else(|error| panic!("{error}"));
    let programs = bpf::pins::folder(&pair.nodes[0].programs());
    let counted = |counter| {
        let counters = bpf::forward::counters(&programs).expect("the programs are loaded");
        counters.into_iter().find_map(|(of, packets)| (of == counter).then_some(packets)).unwrap_or(0)
    };
    let pod = pair.inside(0);
    for (sent, to) in (1..).zip(pair.pods[1].addresses.iter()) {
        let to = SocketAddr::new(to, POD_PORT);
        let routed = counted(Counter::PassRouted);
        probe::udp(&pair.inside(1), POD_PORT, &pod, to, 1000).unwrap_or_else(|error| panic!("{to}: {error}"));
        assert!(counted(Counter::PassRouted) > routed, "{to}: it was not left to the kernel's path");
        let foreign = if to.is_ipv4() { "10.244.1.99" } else { "fd00:244:0:1::99" };
        testkit::run(&pod, "ip", &["address", "add", foreign, "dev", "eth0", "nodad"]);
        let socket = pod.run(|| UdpSocket::bind((foreign, 0))).expect("the pod is there");
        socket.and_then(|socket| socket.send_to(b"x", to)).expect("the pod has the address and a route");
        await_or_fail(&format!("{foreign} was let through"), || counted(Counter::DropSpoofedAddress) == sent);
    }
    pair.undo(&mut journal);
}

/// Waits for what packets on their way bring about.
#[track_caller]
fn await_or_fail(failure: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{failure}");
        std::thread::yield_now();
    }
}

#[test]
fn ipsec_takes_from_pods_what_was_encrypted_alone() {
    takes_what_was_encrypted("ptp+ipsec");
}

#[test]
fn programs_hand_to_pods_nothing_that_was_not_encrypted() {
    takes_what_was_encrypted("ebpf+ipsec");
}

/// As if another program had taken the policies from node 1, and led its packets to node 2 as they are.
#[track_caller]
fn takes_what_was_encrypted(name: &str) {
    let Some(path) = runnable(name) else { return };
    let mut pair = Pair::new(path, Family::V4);
    let (mut plan, mut journal) = (pair.path_plan(), pair.journal());
    let [here, there] = pair.nodes.clone();
    plan.steps.retain(|placed| placed.place != here.place || !matches!(placed.step, Step::AddXfrmPolicy(_)));
    for placed in plan.steps.iter_mut().filter(|placed| placed.place == here.place) {
        if let Step::AddRoute(route) = &mut placed.step
            && route.dev == here.wire
        {
            (route.via, route.onlink) = (there.underlay.of(Family::of(route.dst.addr())), false);
        }
    }
    pair.apply(&plan, &mut journal, Fault::None).unwrap_or_else(|error| panic!("{error}"));
    for (sent, to) in (1..).zip(pair.pods[1].addresses.iter()) {
        let any = if to.is_ipv4() { "0.0.0.0" } else { "::" };
        let open = |at, port| {
            let socket = pair.inside(at).run(|| bound(|| UdpSocket::bind((any, port))));
            socket.expect("the pod is there").expect("the port is free")
        };
        let (server, client) = (open(1, POD_PORT), open(0, 0));
        client.send_to(b"x", (to, POD_PORT)).expect("the pod has a route");
        let node = pair.node(1);
        await_or_fail(&format!("what went to {to} was not refused"), || refused(&node) >= sent);
        server.set_nonblocking(true).expect("a socket of our own");
        assert!(server.recv(&mut [0]).is_err(), "{to} received what was not encrypted");
    }
    pair.undo(&mut journal);
}

/// Packets that a namespace dropped since they did not come by the tunnel of their policy.
fn refused(netns: &Netns) -> u64 {
    let text = netns.run(|| std::fs::read_to_string("/proc/thread-self/net/xfrm_stat"));
    let text = text.expect("the namespace is there").expect("the kernel counts");
    let counted = text.lines().find_map(|line| line.strip_prefix("XfrmInTmplMismatch"));
    counted.and_then(|count| count.trim().parse().ok()).expect("it is counted")
}

/// The same look finds them where they are not encrypted.
#[test]
fn vxlan_shows_all_of_it() {
    let Some(path) = runnable("ptp+vxlan") else { return };
    for Seen { encrypted, plain, .. } in seen(path, Family::V4) {
        assert!(encrypted == 0 && plain > 24, "{encrypted} encrypted, {plain} plain");
    }
}
