//! The families of IP addresses that a race can have, and the wildcard and loopback address of each.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use datapath::{Family, NodeSpec};

/// The family in which clients call and transports wrap.
pub fn family(ipv6: bool) -> Family {
    if ipv6 { Family::V6 } else { Family::V4 }
}

/// The families of this kernel: both, unless IPv6 is switched off.
pub fn families() -> &'static [Family] {
    if linux::features::has_ipv6() { &Family::BOTH } else { &[Family::V4] }
}

/// The address at which a socket accepts calls to every address of the machine.
pub(crate) fn any(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// `127.0.0.1` or `::1`.
pub(crate) fn loopback(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    }
}

/// A node's address on the underlay, in a family in which the topology is called.
pub(crate) fn on_underlay(node: &NodeSpec, family: Family) -> IpAddr {
    node.underlay.of(family).expect("nodes have the family in which clients call")
}
