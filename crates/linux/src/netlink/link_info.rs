//! What the kernel says of a link.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{IfName, Mac};

/// A link as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct LinkInfo {
    /// Its number, unique in its namespace.
    pub index: u32,
    pub name: IfName,
    /// The kernel's name of its kind ("veth", "bridge"); `None` for loopback and hardware.
    pub kind: Option<String>,
    /// Bytes of a packet without the Ethernet header.
    pub mtu: u32,
    /// The greatest MTU that its driver takes; `None` where it has no limit.
    pub mtu_max: Option<u32>,
    /// Its Ethernet address; `None` if the link's address does not have six bytes.
    pub mac: Option<Mac>,
    /// It is administratively up.
    pub up: bool,
    /// It is up and its lower layer works (`IFF_LOWER_UP`).
    pub carrier: bool,
    /// The index of the bridge (or other master) of which it is a port.
    pub master: Option<u32>,
    /// The text that an administrator gave it.
    pub ifalias: Option<String>,
    /// The index of the link below it, or of a pair's other end; in the namespace `parent_netns` if that is given.
    pub parent: Option<u32>,
    /// The id (`ip netns list-id`) of the namespace of its parent, where that is another one.
    pub parent_netns: Option<i32>,
    /// Hairpin mode, where it is a port of a bridge.
    pub hairpin: Option<bool>,
    /// Whether it exchanges no frames with other isolated ports, where it is a port of a bridge.
    pub isolated: Option<bool>,
    /// The number of receive queues.
    pub rx_queues: u32,
    /// The number of send queues.
    pub tx_queues: u32,
    /// The most segments in a packet that it accepts; larger packets are segmented before they reach it.
    pub gso_max_segs: u32,
    /// The number of the XDP program that sees its packets first.
    pub xdp: Option<u32>,
    /// How it wraps packets, where it is a vxlan tunnel.
    pub vxlan: Option<VxlanInfo>,
}

/// A vxlan tunnel as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct VxlanInfo {
    /// The VXLAN network identifier, 24 bits.
    pub vni: u32,
    /// The index of the link that carries the outer packets; `None`: the one of each one's route.
    pub parent: Option<u32>,
    /// The outer source address; `None`: the kernel chooses one.
    pub local: Option<IpAddr>,
    /// The outer UDP destination port.
    pub port: u16,
    /// Whether it learns remotes from the packets that it receives.
    pub learning: bool,
}

impl LinkInfo {
    /// Whether a flag is on, where it is a port of a bridge.
    pub fn port_flag(&self, flag: PortFlag) -> Option<bool> {
        match flag {
            PortFlag::Hairpin => self.hairpin,
            PortFlag::Isolated => self.isolated,
        }
    }
}

/// A flag that each port of a bridge has (`IFLA_BRPORT_MODE`, `IFLA_BRPORT_ISOLATED`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortFlag {
    /// It sends a frame back where it came from: to a pod that calls its own published port.
    Hairpin,
    /// It exchanges no frames with other ports that are isolated as well; with the bridge itself it does.
    Isolated,
}

impl PortFlag {
    /// As `bridge link set` calls it.
    pub fn word(self) -> &'static str {
        match self {
            PortFlag::Hairpin => "hairpin",
            PortFlag::Isolated => "isolated",
        }
    }
}
