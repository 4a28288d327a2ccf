//! Links to be made: the options of `RTM_NEWLINK`, under the field's names.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{IfName, Mac, NetnsRef};

/// A link to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Its name in the namespace where it is made.
    pub name: IfName,
    /// The kind of link, with the options of that kind.
    pub kind: LinkKind,
    /// Bytes of a packet without the Ethernet header; `None` leaves the kernel's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Its Ethernet address; `None` lets the kernel choose one at random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
}

/// The kinds of link that the project makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkKind {
    /// A pair of links: what enters one leaves the other.
    Veth {
        /// The other end, made in the same request.
        peer: VethPeer,
    },
    /// A pair like veth's, on which eBPF programs can be the link's own way of sending (Linux 6.7). Made in L2 mode,
    /// with Ethernet addresses, which can be given since Linux 6.10. Both ends pass what no program decides about, so
    /// that a pair without programs is a slower veth and not a hole.
    Netkit {
        /// The other end, made in the same request.
        peer: VethPeer,
    },
    /// A software switch; its ports are the links that have it as master.
    Bridge,
    /// A link that gives what it sends back to the stack, as if it had just arrived where it was redirected from. So
    /// the queueing discipline at its root holds what another link of the namespace receives (`ifb`).
    Ifb,
    /// Ethernet in UDP (RFC 7348).
    Vxlan(Vxlan),
    /// A vxlan device without a network identifier, parent or remotes ("external", "collect metadata", Linux 4.3). A
    /// route with [`Encap`](crate::Encap) or an eBPF program sets the destination of each packet. One device serves
    /// all networks and both address families of its namespace, and occupies its port there.
    VxlanExternal {
        /// The UDP port, as [`Vxlan::port`].
        port: u16,
    },
    /// Encrypted IP packets in UDP (WireGuard, Linux 5.6). It has no Ethernet header, and no key or peer
    /// when it is made.
    WireGuard,
    /// Another Ethernet address on a parent link.
    Macvlan {
        /// The link whose physical network it shares.
        parent: IfName,
        /// Which links of the same parent may talk to each other.
        mode: MacvlanMode,
    },
    /// Other IP addresses behind the parent's Ethernet address.
    Ipvlan {
        /// The link whose physical network it shares.
        parent: IfName,
        /// Where routing happens. One mode holds for all ipvlan links of a parent.
        mode: IpvlanMode,
    },
}

/// The other end of a veth or netkit pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VethPeer {
    /// Its name where it is born.
    pub name: IfName,
    /// The namespace in which it is born; `None`: the same as its twin's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<NetnsRef>,
    /// The MTU of this end, as [`Link::mtu`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The Ethernet address of this end, as [`Link::mac`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
}

/// A vxlan tunnel device with one fixed network identifier; remotes are given by fdb entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vxlan {
    /// The VXLAN network identifier, 24 bits.
    pub vni: u32,
    /// The link that carries the outer packets.
    pub parent: IfName,
    /// The outer source address; its family is the underlay's family.
    pub local: IpAddr,
    /// The outer UDP destination port (IANA: 4789, flannel and Linux's old default: 8472).
    pub port: u16,
    /// Learn remotes from received packets. Off where a control plane writes the fdb.
    pub learning: bool,
}

/// Modes of a macvlan link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MacvlanMode {
    /// macvlan links of one parent reach each other directly.
    Bridge,
    /// No traffic between macvlan links of one parent.
    Private,
}

/// Modes of an ipvlan link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IpvlanMode {
    /// The pod resolves neighbours on the parent's network itself.
    L2,
    /// The parent's namespace routes; no broadcast, netfilter of the node is not passed.
    L3,
    /// As L3, but packets pass the node's netfilter and conntrack.
    L3s,
}

impl LinkKind {
    /// The kernel's name of the kind (`IFLA_INFO_KIND`).
    pub fn name(&self) -> &'static str {
        match self {
            LinkKind::Veth { .. } => "veth",
            LinkKind::Netkit { .. } => "netkit",
            LinkKind::Bridge => "bridge",
            LinkKind::Ifb => "ifb",
            LinkKind::Vxlan(_) | LinkKind::VxlanExternal { .. } => "vxlan",
            LinkKind::WireGuard => "wireguard",
            LinkKind::Macvlan { .. } => "macvlan",
            LinkKind::Ipvlan { .. } => "ipvlan",
        }
    }

    /// The link on which one of the kind stands.
    pub fn parent(&self) -> Option<&IfName> {
        match self {
            LinkKind::Vxlan(Vxlan { parent, .. })
            | LinkKind::Macvlan { parent, .. }
            | LinkKind::Ipvlan { parent, .. } => Some(parent),
            LinkKind::Veth { .. }
            | LinkKind::Netkit { .. }
            | LinkKind::Bridge
            | LinkKind::Ifb
            | LinkKind::VxlanExternal { .. }
            | LinkKind::WireGuard => None,
        }
    }

    /// The other end, where links of the kind come in pairs.
    pub fn peer(&self) -> Option<&VethPeer> {
        match self {
            LinkKind::Veth { peer } | LinkKind::Netkit { peer } => Some(peer),
            LinkKind::Bridge
            | LinkKind::Ifb
            | LinkKind::Vxlan(_)
            | LinkKind::VxlanExternal { .. }
            | LinkKind::WireGuard
            | LinkKind::Macvlan { .. }
            | LinkKind::Ipvlan { .. } => None,
        }
    }
}
