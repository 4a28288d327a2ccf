//! Routes to be made.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::IfName;

/// A unicast route of the main table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Where it leads; a prefix of length 0 is the default route.
    pub dst: IpNet,
    /// The next hop; `None` if the destination is on the link itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// The link. Plans name links, never indexes.
    pub dev: IfName,
    /// Treat the next hop as reachable on `dev` even if no route leads to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub onlink: bool,
    /// The preferred source address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src: Option<IpAddr>,
    /// The path MTU in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The path MTU holds for all packets (`mtu lock`): no message of a router changes it, and it bounds what programs
    /// find by `bpf_fib_lookup` too (`ip_mtu_from_fib_result`, `ip6_mtu_from_fib6`). The kernel clears DF in the IPv4
    /// packets that the node itself sends there (`ip_dont_fragment`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mtu_locked: bool,
    /// Order among routes to the same destination, lowest first; `None` is the kernel's default, 0 for IPv4
    /// and 1024 for IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
    /// The tunnel into which packets are put; `dev` is then a device such as [`LinkKind::VxlanExternal`].
    ///
    /// [`LinkKind::VxlanExternal`]: crate::LinkKind::VxlanExternal
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encap: Option<Encap>,
}

/// Where a tunnel leads: what a route passes to a tunnel device with each packet (lightweight tunnel, Linux 4.3).
///
/// The outer UDP packet has a checksum over IPv6 and none over IPv4, as that of [`Vxlan`](crate::Vxlan).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Encap {
    /// The network identifier; 24 bits for vxlan.
    pub id: u32,
    /// The outer destination. Its family is the underlay's family, whichever the route's own is.
    pub remote: IpAddr,
}

impl Route {
    /// A route to a destination on the link itself.
    pub fn on_link(dst: IpNet, dev: IfName) -> Route {
        Route {
            dst,
            via: None,
            dev,
            onlink: false,
            src: None,
            mtu: None,
            mtu_locked: false,
            metric: None,
            encap: None,
        }
    }

    /// The destination by way of a next hop.
    pub fn via(dst: IpNet, via: IpAddr, dev: IfName) -> Route {
        Route { via: Some(via), ..Route::on_link(dst, dev) }
    }
}
