//! Neighbour and forwarding-database entries to be made.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{IfName, Mac};

/// An entry of the neighbour table (ARP, NDP).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// The link on which the neighbour is.
    pub dev: IfName,
    /// The neighbour's IP address.
    pub ip: IpAddr,
    /// Its Ethernet address: a permanent entry. `None`: a proxy entry, the node answers for the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
}

/// A permanent entry of a tunnel device's forwarding database: where frames for `mac` are sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FdbEntry {
    /// The tunnel device whose database holds the entry.
    pub dev: IfName,
    /// The inner destination; all zeros stands for every address without an entry.
    pub mac: Mac,
    /// The outer destination: the remote end of the tunnel.
    pub dst: IpAddr,
}
