//! Numbered datagrams that are echoed: each must come back.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::node::Node;

/// Datagrams in flight at a time in each direction. A socket has room for them.
pub(crate) const AHEAD: usize = 16;
/// How long a datagram may be in flight before it counts as lost. Other tests use the same CPUs.
pub(crate) const LOST: Duration = Duration::from_secs(10);

/// A socket of a pod, or of the next hop.
pub(crate) fn socket(node: &Node, place: &str, address: Ipv4Addr, port: u16) -> UdpSocket {
    let socket = node
        .world
        .open(place)
        .run(|| UdpSocket::bind((address, port)))
        .expect("root can do it")
        .expect("root can do it");
    socket.set_read_timeout(Some(LOST)).expect("root can do it");
    socket
}

/// Sends numbered datagrams to `to`, which echoes them, until `stop` is set. Each must come back once, with at
/// most [`AHEAD`] in flight; `count` says meanwhile how many have. Their order is not checked: a sender that
/// changes CPUs changes queues.
pub(crate) fn exchange(here: &UdpSocket, to: SocketAddr, stop: &AtomicBool, count: &AtomicU64) {
    let mut sent = 0_u64;
    let mut away = BTreeSet::new();
    while !stop.load(Ordering::Relaxed) || !away.is_empty() {
        while away.len() < AHEAD && !stop.load(Ordering::Relaxed) {
            here.send_to(&sent.to_ne_bytes(), to).expect("root can do it");
            away.insert(sent);
            sent += 1;
        }
        if !away.is_empty() {
            let mut number = [0; 8];
            here.recv(&mut number)
                .unwrap_or_else(|error| panic!("{to}: of {sent} these are lost: {away:?}: {error}"));
            assert!(away.remove(&u64::from_ne_bytes(number)), "{to}: {number:?} came twice");
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

pub(crate) fn echo(socket: &UdpSocket, stop: &AtomicBool) {
    let mut bytes = [0; 8];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((_, from)) = socket.recv_from(&mut bytes) {
            socket.send_to(&bytes, from).expect("root can do it");
        }
    }
}
