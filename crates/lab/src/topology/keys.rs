//! The keys of encrypted tunnels. Each topology has its own, made for it and gone with it.

use std::path::{Path, PathBuf};

use datapath::{Association, TunnelAssociations};
use linux::features::Feature;
use linux::{EspKey, PrivateKey, PublicKey, Spi};
use plan::{Set, Step};

use super::{CLIENT_NODE, SERVER_NODE, Topology};
use crate::{ByRole, LabError, Shape};

/// The keys of both nodes.
#[derive(Debug, Clone)]
pub(super) enum TunnelKeys {
    /// What each node is known by.
    WireGuard(ByRole<PrivateKey>),
    /// What each node encrypts with, and the other decrypts.
    IpSec(ByRole<EspKey>, ByRole<Spi>),
}

impl TunnelKeys {
    /// New ones, where the data path needs some.
    pub(super) fn make(shape: &Shape) -> Result<Option<TunnelKeys>, LabError> {
        let needs = shape.path.needs();
        Ok(if needs.contains(&Feature::WireGuard) {
            let keys = ByRole { client: PrivateKey::generate()?, server: PrivateKey::generate()? };
            Some(TunnelKeys::WireGuard(keys))
        } else if needs.contains(&Feature::IpSec) {
            let keys = ByRole { client: EspKey::generate()?, server: EspKey::generate()? };
            Some(TunnelKeys::IpSec(keys, ByRole { client: Spi::generate()?, server: Spi::generate()? }))
        } else {
            None
        })
    }

    /// What each node is known by.
    pub(super) fn public(&self) -> Option<ByRole<PublicKey>> {
        match self {
            TunnelKeys::WireGuard(keys) => Some(keys.as_ref().map(PrivateKey::public)),
            TunnelKeys::IpSec(..) => None,
        }
    }

    /// Those of a node's tunnel with this peer.
    pub(super) fn associations_with(&self, peer: u16) -> Option<TunnelAssociations> {
        let TunnelKeys::IpSec(_, numbers) = self else { return None };
        let of_client = Association { spi: numbers.client, key_file: file(CLIENT_NODE) };
        let of_server = Association { spi: numbers.server, key_file: file(SERVER_NODE) };
        let (send, receive) =
            if peer == CLIENT_NODE { (of_server, of_client) } else { (of_client, of_server) };
        Some(TunnelAssociations { send, receive })
    }

    fn keep(&self, dir: &Path) -> linux::Result<()> {
        let [client, server] = [CLIENT_NODE, SERVER_NODE].map(|node| dir.join(file(node)));
        match self {
            TunnelKeys::WireGuard(keys) => keys.client.keep(&client).and_then(|()| keys.server.keep(&server)),
            TunnelKeys::IpSec(keys, _) => keys.client.keep(&client).and_then(|()| keys.server.keep(&server)),
        }
    }
}

/// The file of a node's key, in the directory of its topology.
pub(super) fn file(node: u16) -> PathBuf {
    format!("n{node}.key").into()
}

impl Topology {
    /// Writes the nodes' keys to files of a directory, from which its plan takes them.
    pub(crate) fn keep_keys(&mut self, dir: &Path) -> Result<(), LabError> {
        let Some(keys) = &self.keys else { return Ok(()) };
        keys.keep(dir)?;
        for placed in &mut self.plan.steps {
            match &mut placed.step {
                Step::Set(Set::WireGuard(set)) => set.key_file = dir.join(&set.key_file),
                Step::AddXfrmState { key_file, .. } => *key_file = dir.join(&key_file),
                _ => {}
            }
        }
        Ok(())
    }
}
