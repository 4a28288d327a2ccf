//! What the wire shows of packets between pods.

use std::net::SocketAddr;
use std::time::Duration;

use datapath::{DataPath, Family};
use plan::Fault;
use testkit::{Captured, PacketSocket};

use crate::pair::Pair;
use crate::paths::runnable;
use crate::probe;
use crate::specs::POD_PORT;

/// WireGuard's usual port.
const PORT: u16 = 51820;
/// Bytes of what pods say that are looked for on the wire.
const PART_BYTES: usize = 32;

/// What one end of the wire received.
struct Seen {
    /// Frames with UDP to [`PORT`].
    encrypted: usize,
    /// Frames with a part of what the pods said.
    plain: usize,
}

/// Lets pods of two nodes exchange datagrams of known bytes, and looks at what arrives at either end of the wire.
fn seen(path: &'static DataPath, outer: Family) -> [Seen; 2] {
    let mut pair = Pair::new(path, outer);
    let (plan, mut journal) = (pair.path_plan(), pair.journal());
    pair.apply(&plan, &mut journal, Fault::None).unwrap_or_else(|error| panic!("{error}"));
    let wires = [0, 1].map(|at| PacketSocket::receiver(&pair.node(at), &pair.nodes[at].wire));
    let mtu = path.pod_mtu(&pair.nodes[1]).expect("a sound node");
    for to in pair.pods[1].addresses.iter() {
        let to = SocketAddr::new(to, POD_PORT);
        probe::udp(&pair.inside(1), POD_PORT, &pair.inside(0), to, mtu)
            .unwrap_or_else(|error| panic!("{to}: {error}"));
    }
    // All of it has arrived: the last answer was received.
    let seen = wires.map(|wire| {
        let frames: Vec<Captured> = std::iter::from_fn(|| wire.receive(Duration::ZERO)).collect();
        let count = |is: &dyn Fn(&[u8]) -> bool| frames.iter().filter(|frame| is(&frame.bytes)).count();
        let part = &probe::pattern(2 * PART_BYTES)[PART_BYTES..];
        let has_part = |frame: &[u8]| frame.windows(PART_BYTES).any(|window| window == part);
        Seen { encrypted: count(&|frame| udp_port(frame) == Some(PORT)), plain: count(&has_part) }
    });
    pair.undo(&mut journal);
    seen
}

/// The destination's port of a frame with UDP, without options of IP.
fn udp_port(frame: &[u8]) -> Option<u16> {
    let (protocol, port) = match frame.get(12..14)? {
        [0x08, 0x00] => (frame.get(23)?, 36),
        [0x86, 0xdd] => (frame.get(20)?, 56),
        _ => return None,
    };
    let port = frame.get(port..port + 2)?;
    (*protocol == 17).then(|| u16::from_be_bytes([port[0], port[1]]))
}

#[test]
fn wireguard_shows_nothing_of_what_pods_say() {
    for (name, outer) in [("bridge+wireguard", Family::V4), ("ptp+wireguard", Family::V6)] {
        let Some(path) = runnable(name) else { return };
        for Seen { encrypted, plain } in seen(path, outer) {
            // A dozen lengths in each family, and the handshake.
            assert!(encrypted > 24 && plain == 0, "{name}: {encrypted} encrypted, {plain} plain");
        }
    }
}

/// The same look finds them where they are not encrypted.
#[test]
fn vxlan_shows_all_of_it() {
    let Some(path) = runnable("ptp+vxlan") else { return };
    for Seen { encrypted, plain } in seen(path, Family::V4) {
        assert!(encrypted == 0 && plain > 24, "{encrypted} encrypted, {plain} plain");
    }
}
