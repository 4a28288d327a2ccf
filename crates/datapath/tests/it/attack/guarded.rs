//! The same attacks where the kernel forwards and the network checks what pods send.

use datapath::DataPath;

use super::ground::Ground;
use super::packet::Packet;
use super::rule::{Breach, breach};
use super::{Outcome, attack, delivered_alike, dropped_with_a_reason, promised};
use crate::paths::runnable_guarded;

#[test]
fn bridge() {
    if let Some(path) = runnable_guarded("bridge+direct") {
        attacked(path);
    }
}

#[test]
fn ptp() {
    if let Some(path) = runnable_guarded("ptp+direct") {
        attacked(path);
    }
}

/// What gets through is compared with the same path without the check, on which only honest packets are sent: forged
/// ones would make a bridge send later honest ones elsewhere.
fn attacked(path: &'static DataPath) {
    let ground = Ground::guarded(path);
    let outcome = attack(&ground, |_| true);
    promised(&format!("`{}` with `anti_spoofing`", path.name), path, &outcome);
    let counters = bpf::guard::counters(&ground.programs()).expect("it is loaded");
    dropped_with_a_reason(&ground, &outcome, &counters);
    let open = Ground::new(path);
    let is_honest = |packet: &Packet| matches!(breach(&packet.frame, &open.own), None | Some(Breach::Tunnel));
    let expected: Outcome = attack(&open, is_honest);
    delivered_alike(&ground, &outcome, &open, &expected);
}
