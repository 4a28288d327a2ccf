//! The MTU of the wire is lowered while the pods keep theirs. A packet that no longer fits must be answered,
//! and none may vanish.

use std::net::IpAddr;
use std::time::Duration;

use bpf::forward::Counter;
use datapath::DataPath;
use testkit::PacketSocket;

use super::ground::{Ground, Target};
use super::packet::longest;
use super::rule;
use crate::paths::runnable;

const MTU: u32 = 1400;
/// More than the kernel answers at once (net.ipv4.icmp_ratelimit lets 6 errors in a row pass to one address).
const PACKETS: u64 = 50;
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_lower_mtu_of_the_wire_is_followed() {
    for name in ["ebpf+direct", "netkit+direct"] {
        if let Some(path) = runnable(name) {
            followed(path);
        }
    }
}

fn followed(path: &'static DataPath) {
    let ground = Ground::new(path);
    let pod = ground.pair.pods[1].clone();
    let heard = PacketSocket::receiver(&super::ground::place(&ground.pair, &pod.place), &pod.ifname);
    let far = ground.pair.pods[0].addresses.iter().collect::<Vec<_>>();
    let targets: Vec<Target> =
        ground.targets.iter().copied().filter(|target| far.contains(&target.ip)).collect();
    for target in &targets {
        send(&ground, *target);
    }
    ground.narrow_wire(MTU);
    for target in targets {
        // The programs keep an earlier route for a second.
        let before = too_big(&ground);
        while too_big(&ground) == before {
            send(&ground, target);
        }
        let before = too_big(&ground);
        for _ in 0..PACKETS {
            send(&ground, target);
        }
        assert_eq!(too_big(&ground) - before, PACKETS, "{}: {}", path.name, target.ip);
        await_answer(&heard, target.ip);
    }
}

/// Sends a packet of exactly the pods' own MTU.
fn send(ground: &Ground, to: Target) {
    let packet = longest(&ground.own, to, ground.mtu);
    ground.attacker.send(&packet.frame, packet.offload, packet.claimed).expect("an honest packet");
}

fn too_big(ground: &Ground) -> u64 {
    let counters = bpf::forward::counters(&ground.programs()).expect("the programs are loaded");
    counters.iter().filter(|(counter, _)| *counter == Counter::PassTooBig).map(|(_, packets)| packets).sum()
}

/// Waits for the node to report the lower MTU (RFC 1191, section 4; RFC 4443, section 3.2).
fn await_answer(heard: &PacketSocket, to: IpAddr) {
    let mtu_at = if to.is_ipv4() { rule::ETHERNET + 20 + 4 } else { rule::ETHERNET + 40 + 4 };
    loop {
        let frame = heard.receive(PATIENCE).unwrap_or_else(|| panic!("no answer for {to}")).bytes;
        let mtu = frame
            .get(mtu_at..mtu_at + 4)
            .map(|word| u32::from_be_bytes(word.try_into().expect("four bytes")));
        if rule::is_icmp_error(&frame) && mtu == Some(MTU) && to.is_ipv4() == rule::is_ipv4(&frame) {
            return;
        }
    }
}
