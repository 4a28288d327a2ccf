//! Which node has which prefixes of pods, and how it is reached: what a lease source knows, in flannel's words.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use datapath::{Addresses, Prefixes};
use linux::{Mac, PublicKey};
use plan::forwarding::Service;
use serde_json::Value;

/// Services by the source's names for them: each at all of its addresses and ports. An address of zeros is the node's
/// own one of that family.
pub type Services = BTreeMap<String, Arc<Vec<Service>>>;

/// What a node has said of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The prefixes of its pods, one of each family at most.
    pub pods: Prefixes,
    /// What it says of the way to it.
    pub node: Announcement,
}

/// The way to a node, as it announces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// Its addresses on the underlay (`PublicIP`, `PublicIPv6`).
    pub public: Addresses,
    /// flannel's name of its transport (`BackendType`): `host-gw`, `vxlan`, `wireguard`.
    pub backend: String,
    /// What the transport needs beside the address (`BackendData`), for pods' IPv4.
    pub data: Option<TunnelData>,
    /// The same for pods' IPv6 (`BackendV6Data`): flannel has a tunnel device of each family.
    pub data_v6: Option<TunnelData>,
}

/// What a transport with tunnels says of a node's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TunnelData {
    /// The other end of a tunnel of the transport `vxlan`.
    Vxlan(VxlanEnd),
    /// The public key of an end of the transport `wireguard`.
    WireGuard(PublicKey),
}

/// What the transport `vxlan` says of a node's end of the tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VxlanEnd {
    /// The identifier of the tunnel; flannel before 0.12 has none.
    pub vni: Option<u32>,
    /// The Ethernet address of the node's end.
    pub mac: Mac,
}

impl Announcement {
    /// The public key of its tunnels, where they are encrypted.
    pub(crate) fn key(&self) -> Option<PublicKey> {
        self.data.or(self.data_v6).and_then(TunnelData::key)
    }
}

impl TunnelData {
    /// The Ethernet address of the end, where it has one.
    pub(crate) fn mac(self) -> Option<Mac> {
        match self {
            TunnelData::Vxlan(end) => Some(end.mac),
            TunnelData::WireGuard(_) => None,
        }
    }

    /// The public key of the end, where it has one.
    pub(crate) fn key(self) -> Option<PublicKey> {
        match self {
            TunnelData::Vxlan(_) => None,
            TunnelData::WireGuard(key) => Some(key),
        }
    }
}

/// All that a source knows at one moment. It is whole: what is not in it is gone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// The network, as its configuration says (`net-conf.json`).
    pub network: Option<Value>,
    /// The prefixes of this node's own pods, as soon as it has them.
    pub own: Prefixes,
    /// Why it has none, where the source knows.
    pub own_missing: Option<String>,
    /// The other nodes by the names that the source has for them (`10.5.52.0-24` in etcd, the node's name in
    /// Kubernetes). An entry that makes no sense is the reason why.
    pub others: BTreeMap<String, Result<Lease, String>>,
    /// The cluster's Services; `None`: the source does not know them, or not yet.
    pub services: Option<Services>,
    /// Where the source calls in vain. If that is a Service, its calls are to be left to the node: what is known of it
    /// may be what leads them astray.
    pub unled: Option<SocketAddr>,
    /// Why the source cannot be asked at the moment; what it said last is above.
    pub unreachable: Option<String>,
}
