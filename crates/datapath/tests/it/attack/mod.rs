//! Attacks by a pod on everything around it: thousands of odd packets through each data path, from a packet
//! socket. A pod with CAP_NET_RAW, which Docker grants by default, may open one. The packets come from a
//! seed, and a failure prints it.

mod ground;
mod guarded;
mod narrow;
mod packet;
mod rule;

use std::collections::{BTreeMap, BTreeSet};

use bpf::forward::Counter;
use datapath::{DataPath, Reach, find};
use linux::cpu;
use linux::features::Feature;
use stats::Random;
use testkit::{Captured, Offload};

use crate::paths::for_each_path;
use ground::{Ground, Sight};
use packet::{Mark, Packet, honest, hostile};
use rule::{Breach, breach, frame_bytes, pods_frame};

/// `HOSTGAP_ATTACK_SEED` and `HOSTGAP_ATTACK_PACKETS` override it and the number of packets.
const SEED: u64 = 20_260_801;
const PACKETS: u64 = 6000;
/// In a virtual machine the processor is emulated.
const PACKETS_VM: u64 = 1000;
/// Packets between two looks: fewer than a CPU's backlog holds (net.core.netdev_max_backlog, 1000).
const BATCH: u32 = 100;
/// The ids of the packets that end a batch begin here.
const LAST: u32 = 1 << 31;

/// A frame that was unwrapped from the attacker's datagram has its mark before this byte. A frame that is
/// still wrapped has it after: the headers of IP, UDP and VXLAN and two of Ethernet come first.
const WRAPPED_AT: usize = 80;

for_each_path!(attacked);

fn chosen(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

#[derive(Default)]
struct Outcome {
    /// Packets that the kernel accepted.
    sent: BTreeMap<u32, Packet>,
    /// Where each was seen.
    seen: BTreeMap<u32, BTreeSet<Sight>>,
    /// The forbidden packets that got through: an example of each breach.
    breaches: BTreeMap<Breach, String>,
}

fn attacked(path: &'static DataPath) {
    // The host's own network has no pod to attack from. What leaves an encrypted tunnel's node shows nothing to judge;
    // the attach meets the same attack with `direct`. So it is with a switch that wraps by itself.
    let needs = |feature| path.transport.needs().contains(&feature);
    let hides = needs(Feature::WireGuard) || needs(Feature::IpSec) || needs(Feature::OpenVSwitch);
    // Nor does a packet leave a pod whose connections a process makes anew.
    if path.reach == Reach::Node || hides || path.attach.relay_mtu().is_some() {
        return;
    }
    let ground = Ground::new(path);
    // A switch of Open vSwitch that learns believes a pod that claims to be the gateway, and hands it what pods send
    // there: no batch would come to its end.
    let own = ground.own.mac.0;
    let is_borne =
        |packet: &Packet| !path.attach.name().starts_with("ovs") || packet.frame.get(6..12) == Some(&own[..]);
    let outcome = attack(&ground, is_borne);
    assert!(!outcome.sent.is_empty(), "the kernel took no packet");
    promised(&format!("`{}`", path.name), path, &outcome);
    if let Some(routed) = routed(path) {
        let counters = bpf::forward::counters(&ground.programs()).expect("the programs are loaded");
        dropped_with_a_reason(&ground, &outcome, &counters);
        let routed = Ground::new(routed);
        delivered_alike(&ground, &outcome, &routed, &attack(&routed, |_| true));
    }
}

/// Sends all packets that are wanted in batches. A batch ends with honest packets that take the programs' way and the
/// kernel's, so all earlier packets have arrived when these have.
fn attack(ground: &Ground, is_wanted: impl Fn(&Packet) -> bool) -> Outcome {
    let mut outcome = Outcome::default();
    let mut random = Random::from_seed(chosen("HOSTGAP_ATTACK_SEED", SEED));
    let packets = if std::env::var_os("HOSTGAP_VM").is_some() { PACKETS_VM } else { PACKETS };
    let packets = u32::try_from(chosen("HOSTGAP_ATTACK_PACKETS", packets)).expect("some thousands");
    // Packets from one CPU stay in order, because each goes through that CPU's backlog.
    let cpus = cpu::allowed().expect("this thread runs somewhere");
    cpu::pin_current_thread(&cpus.iter().take(1).collect()).expect("that CPU is allowed");
    for first in (0..packets).step_by(BATCH as usize) {
        for id in first..(first + BATCH).min(packets) {
            let packet = hostile(&mut random, ground, id);
            if !is_wanted(&packet) {
                continue;
            }
            match ground.attacker.send(&packet.frame, packet.offload, packet.claimed) {
                // A packet that the kernel refuses to send attacks nothing. But ENOBUFS also means that a
                // link dropped the packet.
                Err(error) if error.raw_os_error() != Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {}
                Ok(()) | Err(_) => drop(outcome.sent.insert(id, packet)),
            }
        }
        for (sight, captured) in end_batch(ground, LAST + first) {
            judge(ground, &mut outcome, sight, &captured);
        }
    }
    outcome
}

fn end_batch(ground: &Ground, id: u32) -> Vec<(Sight, Captured)> {
    ground.neighbour_speaks();
    for target in ground.honest_targets() {
        for with_options in [false, true] {
            let packet = honest(&ground.own, target, id, with_options);
            ground.attacker.send(&packet.frame, packet.offload, packet.claimed).expect("an honest packet");
        }
    }
    // Four packets: both families, each plain and with options.
    ground.seen(4, |captured| Mark::of(&captured.bytes).is_some_and(|mark| mark.id == id))
}

fn judge(ground: &Ground, outcome: &mut Outcome, sight: Sight, captured: &Captured) {
    let end = ground.tunnel_mac.and(ground.pair.nodes[1].underlay.v4);
    let frame = pods_frame(&captured.bytes, end);
    let Some(mark) = Mark::of(frame).filter(|_| !rule::is_icmp_error(frame)) else { return };
    let Some(packet) = outcome.sent.get(&mark.id) else { return };
    outcome.seen.entry(mark.id).or_default().insert(sight);
    let bytes = frame_bytes(captured) - (captured.bytes.len() - frame.len());
    let found = if mark.wrapped && mark.at < WRAPPED_AT && !rule::is_fragment(frame) {
        Some(Breach::Tunnel)
    } else if bytes > ground.mtu as usize + rule::ETHERNET {
        Some(Breach::Length)
    } else {
        breach(&packet.frame, &ground.own).filter(|breach| *breach != Breach::Tunnel)
    };
    if let Some(breach) = found {
        outcome.breaches.entry(breach).or_insert_with(|| {
            format!("packet {} at {sight:?}\n  sent {packet:x?}\n  seen {captured:x?}", mark.id)
        });
    }
}

/// A path stops and passes exactly what SECURITY.md says.
fn promised(title: &str, path: &DataPath, outcome: &Outcome) {
    let cells = Breach::ALL.map(|breach| match outcome.breaches.get(&breach) {
        Some(_) => "passes",
        None if breach == Breach::Tunnel && !path.transport.name().starts_with("vxlan") => "–",
        None => "stopped",
    });
    let row = format!("| {title} | {} |", cells.join(" | "));
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../SECURITY.md");
    let text = std::fs::read_to_string(file).expect("it is there");
    if !text.lines().any(|line| line == row) {
        let examples: Vec<_> =
            outcome.breaches.iter().map(|(breach, what)| format!("{breach:?}: {what}")).collect();
        panic!("SECURITY.md does not say\n{row}\n{}", examples.join("\n"));
    }
}

/// The path without programs that corresponds to this one.
fn routed(path: &DataPath) -> Option<&'static DataPath> {
    match path.attach.name() {
        "ebpf" | "ebpf-sockmap" | "netkit" => find("ptp+direct"),
        "ebpf-tunnel" => find("ptp+vxlan"),
        _ => None,
    }
}

/// The programs counted a drop for each packet that they must stop. They may count more: the sender splits a
/// packet that stands for several if the kernel does not trust its offload.
fn dropped_with_a_reason(ground: &Ground, outcome: &Outcome, counters: &[(Counter, u64)]) {
    let has_tunnel = ground.tunnel_mac.is_some();
    let pods: Vec<_> = ground.pair.pods.iter().map(|pod| pod.addresses).collect();
    let is_forbidden = |packet: &&Packet| match breach(&packet.frame, &ground.own) {
        Some(Breach::Tunnel) => has_tunnel && !pods.iter().any(|pod| rule::is_to(&packet.frame, *pod)),
        Some(_) => packet.offload.kind == 0,
        None => false,
    };
    let forbidden = outcome.sent.values().filter(is_forbidden).count() as u64;
    let dropped: u64 =
        counters.iter().filter(|(counter, _)| counter.is_drop()).map(|(_, packets)| packets).sum();
    assert!(dropped >= forbidden, "of {forbidden} forbidden packets {dropped} were dropped: {counters:?}");
}

/// A packet that the rule allows arrives where it arrives on the other path, which has no programs, and nowhere else.
fn delivered_alike(ground: &Ground, outcome: &Outcome, routed: &Ground, expected: &Outcome) {
    // The programs take packets out of the tunnel before its device sees them.
    let seen = |outcome: &Outcome, id| {
        let all = outcome.seen.get(id).into_iter().flatten().copied();
        all.filter(|sight| ![Sight::OwnTunnel, Sight::FarTunnel].contains(sight)).collect::<BTreeSet<_>>()
    };
    let mut compared = 0;
    for (id, packet) in &outcome.sent {
        let both_sent = expected.sent.contains_key(id);
        // Where the kernel tracks connections, it holds fragments back until all have arrived. It also treats
        // packets that are to be fragmented in its own way.
        let is_part = rule::is_fragment(&packet.frame) || packet.offload.kind == Offload::FRAGMENTS;
        // A veth pair reads the protocol from the frame. A netkit pair believes the sender, and then the
        // program finds the lie.
        let lies = ground.path.attach.name() == "netkit" && !packet.is_what_it_claims();
        if !both_sent || is_part || lies || breach(&packet.frame, &ground.own).is_some() {
            continue;
        }
        let [here, there] = [outcome, expected].map(|outcome| seen(outcome, id));
        compared += usize::from(!here.is_empty());
        assert_eq!(here, there, "{}: packet {id} by {}: {packet:x?}", ground.path.name, routed.path.name);
    }
    assert!(compared > outcome.sent.len() / 100, "only {compared} honest packets arrived anywhere");
}
