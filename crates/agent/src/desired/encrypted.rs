//! The backend `wireguard`: one device for each family, on which every other node is a peer, known by its key.

use std::collections::BTreeMap;

use datapath::{Family, Prefixes};
use ipnet::IpNet;
use linux::PublicKey;
use plan::{Plan, Step};

use super::Undecided;
use crate::backend::BackendKind;
use crate::lease::{Lease, TunnelData};
use crate::network::{Mode, NetworkConfig, WireGuardConfig};

/// Who has which keys. A node that has taken another prefix has two leases for a while, and a device has each key once.
#[derive(Default)]
pub(super) struct KeyHolders {
    /// By key: the lease whose part has the peer, and all prefixes that are the peer's.
    by_key: BTreeMap<(Family, PublicKey), (String, Vec<IpNet>)>,
}

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

impl KeyHolders {
    /// Finds out who has which keys.
    pub(super) fn find<'l>(&mut self, leases: impl Iterator<Item = (&'l String, &'l Result<Lease, String>)>) {
        let of_kind = |lease: &&Lease| lease.node.backend == BackendKind::WireGuard.name();
        for (name, lease) in leases {
            let Some(lease) = lease.as_ref().ok().filter(of_kind) else { continue };
            for (family, data) in [(Family::V4, lease.node.data), (Family::V6, lease.node.data_v6)] {
                let pods: Prefixes = lease.pods.only(&[family]);
                let key = data.and_then(TunnelData::key).filter(|_| !pods.families().is_empty());
                if let Some(key) = key {
                    let holder =
                        self.by_key.entry((family, key)).or_insert_with(|| (name.clone(), Vec::new()));
                    holder.1.extend(pods.iter());
                }
            }
        }
    }

    /// Leaves a peer in one plan of those that have its key, with the prefixes of all, and gives it what the network says of
    /// peers.
    pub(super) fn hold(&self, name: &str, family: Family, network: &NetworkConfig, way: &mut Plan) {
        way.steps.retain_mut(|placed| {
            let Step::AddWireGuardPeer(peer) = &mut placed.step else { return true };
            peer.keepalive_s = network.backend.wireguard.keepalive_s;
            match self.by_key.get(&(family, peer.key)) {
                Some((holder, _)) if holder != name => false,
                Some((_, prefixes)) => {
                    peer.allowed.clone_from(prefixes);
                    true
                }
                None => true,
            }
        });
    }
}
