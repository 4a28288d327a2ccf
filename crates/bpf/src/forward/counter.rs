//! What the programs count: every drop, and every packet left to the kernel's path, by reason.

use std::fmt;
use std::path::Path;

use linux::Result;

use super::skeleton::types::counter as list;
use crate::ffi;

const _: () = assert!(Counter::ALL.len() == list::COUNTERS.0 as usize, "the lists are as long");

/// A reason, by its number in `enum counter` of `forward.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Counter {
    /// Dropped: its header is cut off.
    DropShort = list::DROP_SHORT.0 as isize,
    /// Dropped: a pod used another Ethernet address than its own.
    DropSpoofedMac = list::DROP_SPOOFED_MAC.0 as isize,
    /// Dropped: a pod used another IP address than its own, or spoke as a router.
    DropSpoofedAddress = list::DROP_SPOOFED_ADDRESS.0 as isize,
    /// Dropped: it came by the tunnel with the identifier of another network.
    DropForeignVni = list::DROP_FOREIGN_VNI.0 as isize,
    /// Dropped: a pod sent to the tunnel's port of a node.
    DropTunnelPort = list::DROP_TUNNEL_PORT.0 as isize,
    /// Dropped: it came by the tunnel from an address that is no other node's.
    DropTunnelPeer = list::DROP_TUNNEL_PEER.0 as isize,
    /// Dropped: it has a VLAN tag, and pods have no VLANs.
    DropVlan = list::DROP_VLAN.0 as isize,
    /// Dropped: neither IP nor ARP.
    DropProtocol = list::DROP_PROTOCOL.0 as isize,
    /// Dropped: the kernel could not change the packet, for want of memory.
    DropRewrite = list::DROP_REWRITE.0 as isize,
    /// Left to the kernel: ARP.
    PassArp = list::PASS_ARP.0 as isize,
    /// Left to the kernel: IPv6 between a pod and its node.
    PassLinkScope = list::PASS_LINK_SCOPE.0 as isize,
    /// Left to the kernel: between a pod and an address outside the cluster.
    PassOutside = list::PASS_OUTSIDE.0 as isize,
    /// Left to the kernel: to an address in the pods' prefix that no pod has.
    PassNode = list::PASS_NODE.0 as isize,
    /// Left to the kernel: above the MTU of its way.
    PassTooBig = list::PASS_TOO_BIG.0 as isize,
    /// Left to the kernel: a router has more to do than forward it (options, a spent TTL, a malformed header).
    PassIrregular = list::PASS_IRREGULAR.0 as isize,
    /// Left to the kernel: the next hop's Ethernet address is not known yet.
    PassUnresolved = list::PASS_UNRESOLVED.0 as isize,
    /// Left to the kernel: its routes lead elsewhere than to the wire.
    PassRouted = list::PASS_ROUTED.0 as isize,
    /// Left to the kernel: from outside with the address of a pod of this node.
    PassMartian = list::PASS_MARTIAN.0 as isize,
}

impl Counter {
    /// Every reason, in the order of `forward.h`.
    pub const ALL: &[Counter] = &[
        Counter::DropShort,
        Counter::DropSpoofedMac,
        Counter::DropSpoofedAddress,
        Counter::DropForeignVni,
        Counter::DropTunnelPort,
        Counter::DropTunnelPeer,
        Counter::DropVlan,
        Counter::DropProtocol,
        Counter::DropRewrite,
        Counter::PassArp,
        Counter::PassLinkScope,
        Counter::PassOutside,
        Counter::PassNode,
        Counter::PassTooBig,
        Counter::PassIrregular,
        Counter::PassUnresolved,
        Counter::PassRouted,
        Counter::PassMartian,
    ];

    /// True if the packet was dropped; false if the kernel's path had it.
    pub fn is_drop(self) -> bool {
        (self as u32) < Counter::PassArp as u32
    }

    /// A short name, for tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Counter::DropShort => "short",
            Counter::DropSpoofedMac => "spoofed_mac",
            Counter::DropSpoofedAddress => "spoofed_address",
            Counter::DropForeignVni => "foreign_vni",
            Counter::DropTunnelPort => "tunnel_port",
            Counter::DropTunnelPeer => "tunnel_peer",
            Counter::DropVlan => "vlan",
            Counter::DropProtocol => "protocol",
            Counter::DropRewrite => "rewrite",
            Counter::PassArp => "arp",
            Counter::PassLinkScope => "link_scope",
            Counter::PassOutside => "outside",
            Counter::PassNode => "node",
            Counter::PassTooBig => "too_big",
            Counter::PassIrregular => "irregular",
            Counter::PassUnresolved => "unresolved",
            Counter::PassRouted => "routed",
            Counter::PassMartian => "martian",
        }
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Counter::DropShort => "the header is cut off",
            Counter::DropSpoofedMac => "a pod used another Ethernet address than its own",
            Counter::DropSpoofedAddress => "a pod used another IP address than its own, or spoke as a router",
            Counter::DropForeignVni => "it came by the tunnel with the identifier of another network",
            Counter::DropTunnelPort => "a pod sent to the tunnel's port of a node",
            Counter::DropTunnelPeer => "it came by the tunnel from an address that is no other node's",
            Counter::DropVlan => "it has a VLAN tag; pods have no VLANs",
            Counter::DropProtocol => "neither IP nor ARP",
            Counter::DropRewrite => "the kernel could not change the packet",
            Counter::PassArp => "ARP",
            Counter::PassLinkScope => "IPv6 between a pod and its node",
            Counter::PassOutside => "between a pod and an address outside the cluster",
            Counter::PassNode => "to an address in the pods' prefix that no pod has",
            Counter::PassTooBig => "above the MTU of its way",
            Counter::PassIrregular => "options, a spent TTL or a malformed header",
            Counter::PassUnresolved => "the next hop's Ethernet address is not known yet",
            Counter::PassRouted => {
                "the kernel's routes lead elsewhere than to the wire, or than to where it came from"
            }
            Counter::PassMartian => "from outside with the address of a pod of this node",
        })
    }
}

/// The counters of a node, summed over its CPUs, in packets since the programs were loaded.
///
/// # Errors
/// Nothing is loaded in this folder, or this user may not read it.
pub fn counters(folder: &Path) -> Result<Vec<(Counter, u64)>> {
    ffi::listen();
    let counts = ffi::counts(&folder.join("counters"), Counter::ALL.len() as u32)
        .map_err(|error| ffi::failed(format!("read the counters of {}", folder.display()), &error))?;
    Ok(Counter::ALL.iter().copied().zip(counts).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_order() {
        for (at, counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(*counter as usize, at);
        }
    }
}
