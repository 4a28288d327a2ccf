//! The backend `wireguard`: one device for each family, on which every other node is a peer, known by its key.

use std::collections::{BTreeMap, BTreeSet};

use datapath::Family;
use ipnet::IpNet;
use linux::{IfName, PublicKey, WireGuardPeer};
use plan::{Plan, Step};

use super::Undecided;
use crate::network::{Mode, NetworkConfig, WireGuardConfig};

/// Refuses what would leave nodes that cannot hear each other.
pub(super) fn check_config(config: &WireGuardConfig, families: &[Family]) -> Result<(), Undecided> {
    if config.has_preshared_key {
        let why = "`Backend.PSK` is there, and this agent has no pre-shared keys: nodes with one and nodes without one do not \
                   hear each other";
        return Err(Undecided::Network(why.to_owned()));
    }
    let is_had = match config.mode {
        Mode::Separate => true,
        Mode::Auto => families.len() == 1,
        Mode::Ipv4 => families == [Family::V4],
        Mode::Ipv6 => families == [Family::V6],
    };
    if is_had {
        return Ok(());
    }
    let why = "`Backend.Mode` wants one tunnel for both families, or over another one than the pods', and this agent has a tunnel \
               for each: separate, which is flannel's default";
    Err(Undecided::Network(why.to_owned()))
}

/// Leaves each peer in one of the parts that have it, with the prefixes of all, and gives it what the network says of
/// peers. A node that has taken another prefix has two leases for a while, and a device has each key once. The part
/// that has it already keeps it: one that moves to another part is away for a moment, and its session is gone.
pub(super) fn hold_once(
    parts: &mut BTreeMap<String, Plan>,
    standing: &BTreeMap<String, Plan>,
    network: &NetworkConfig,
) {
    // By device and key: the part that has the peer, and all prefixes that are the peer's.
    let mut holders: BTreeMap<(IfName, PublicKey), (String, Vec<IpNet>)> = BTreeMap::new();
    let id = |peer: &WireGuardPeer| (peer.dev.clone(), peer.key);
    for (name, plan) in standing.iter().chain(&*parts) {
        let wanted: BTreeSet<_> = parts.get(name).into_iter().flat_map(peers).map(id).collect();
        for peer in peers(plan).map(id).filter(|peer| wanted.contains(peer)) {
            holders.entry(peer).or_insert_with(|| (name.clone(), Vec::new()));
        }
    }
    for peer in parts.values().flat_map(peers) {
        if let Some((_, prefixes)) = holders.get_mut(&id(peer)) {
            prefixes.extend(&peer.allowed);
        }
    }
    for (name, plan) in parts {
        plan.steps.retain_mut(|placed| {
            let Step::AddWireGuardPeer(peer) = &mut placed.step else { return true };
            peer.keepalive_s = network.backend.wireguard.keepalive_s;
            match holders.get(&id(peer)) {
                Some((holder, prefixes)) if holder == name => {
                    peer.allowed.clone_from(prefixes);
                    true
                }
                _ => false,
            }
        });
    }
}

fn peers(plan: &Plan) -> impl Iterator<Item = &WireGuardPeer> {
    plan.steps.iter().filter_map(|placed| match &placed.step {
        Step::AddWireGuardPeer(peer) => Some(peer),
        _ => None,
    })
}
