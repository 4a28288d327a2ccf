//! The single rule by which an attack is judged: a packet that leaves a pod carries the pod's own addresses,
//! reaches no port of the node's own plumbing, and fits the MTU.
//!
//! It is written from the RFCs and does not depend on how a data path enforces it.

use std::net::{Ipv4Addr, Ipv6Addr};

use datapath::Addresses;
use testkit::Captured;

use super::ground::Names;

pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const ARP: u16 = 0x0806;
pub(crate) const VLAN: u16 = 0x8100;
pub(crate) const IPV6: u16 = 0x86dd;
pub(crate) const PROVIDER_VLAN: u16 = 0x88a8;
pub(crate) const UDP: u8 = 17;
pub(crate) const VXLAN_PORT: u16 = 8472;
pub(crate) const ETHERNET: usize = 14;
/// Bytes from the UDP header of a tunnel's datagram to the frame in it: UDP and VXLAN (RFC 7348, section 5).
pub(crate) const VXLAN: usize = 16;
/// Extension headers that a router skips before it gives up.
const EXTENSIONS_MAX: usize = 8;

/// How a packet breaks the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Breach {
    /// An Ethernet source address other than its own.
    Mac,
    /// An IPv4 source address other than its own, or a foreign address in its ARP.
    Source4,
    /// An IPv6 source address other than its own.
    Source6,
    Vlan,
    /// Neither IP nor ARP, or too short for what it claims to be.
    Protocol,
    /// A datagram to a node's tunnel address.
    Tunnel,
    /// Longer than the MTU.
    Length,
}

impl Breach {
    pub(crate) const ALL: [Breach; 7] = [
        Breach::Mac,
        Breach::Source4,
        Breach::Source6,
        Breach::Vlan,
        Breach::Protocol,
        Breach::Tunnel,
        Breach::Length,
    ];
}

/// The breach by a pod that sends this frame, apart from its length.
pub(crate) fn breach(frame: &[u8], own: &Names) -> Option<Breach> {
    let packet = &frame[ETHERNET..];
    let kind = number(frame, 12)?;
    if [VLAN, PROVIDER_VLAN].contains(&kind) {
        return Some(Breach::Vlan);
    }
    let source = match kind {
        IPV4 if packet.len() >= 20 => (packet[12..16] != own.v4.octets()).then_some(Breach::Source4),
        IPV6 if packet.len() >= 40 => spoofs6(packet, own).then_some(Breach::Source6),
        ARP if packet.len() >= 28 => spoofs_by_arp(packet, own),
        _ => Some(Breach::Protocol),
    };
    let is_own = frame[6..12] == own.mac.0;
    source.or((!is_own).then_some(Breach::Mac)).or_else(|| to_tunnel(kind, packet).then_some(Breach::Tunnel))
}

/// Link-local addresses, and the unspecified address to a group, are for neighbour discovery (RFC 4861).
fn spoofs6(packet: &[u8], own: &Names) -> bool {
    let [from, to] = addresses6(packet);
    let is_nameless = from.is_unspecified() && to.is_multicast();
    from != own.v6 && !from.is_unicast_link_local() && !is_nameless
}

/// A probe for an address does not name the sender's own (RFC 5227, section 1.1).
fn spoofs_by_arp(packet: &[u8], own: &Names) -> Option<Breach> {
    let (mac, address) = (&packet[8..14], &packet[14..18]);
    if mac != own.mac.0 {
        return Some(Breach::Mac);
    }
    (address != own.v4.octets() && address != [0; 4]).then_some(Breach::Source4)
}

fn addresses6(packet: &[u8]) -> [Ipv6Addr; 2] {
    [8, 24].map(|at| Ipv6Addr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).expect("sixteen bytes")))
}

/// Whether a packet is a datagram to the tunnel's port or the first fragment of one. A packet with more
/// extension headers than anything needs counts as one too.
fn to_tunnel(kind: u16, packet: &[u8]) -> bool {
    let datagram = match kind {
        IPV4 => datagram4(packet),
        IPV6 => match upper_layer(packet) {
            Some(upper) if upper.headers == EXTENSIONS_MAX => return true,
            upper => upper.filter(|upper| upper.protocol == Some(UDP)).map(|upper| upper.at),
        },
        _ => None,
    };
    datagram.is_some_and(|at| number(packet, at + 2) == Some(VXLAN_PORT))
}

/// The offset of an IPv4 packet's UDP header.
pub(crate) fn datagram4(packet: &[u8]) -> Option<usize> {
    let is_first = number(packet, 6)? & 0x1fff == 0;
    (is_first && packet[9] == UDP).then_some(usize::from(packet[0] & 15) * 4)
}

/// What follows an IPv6 packet's extension headers (RFC 8200, section 4).
struct Upper {
    /// `None`: this is a fragment other than the first.
    protocol: Option<u8>,
    /// The packet is a fragment.
    part: bool,
    /// The offset of the upper-layer header.
    at: usize,
    /// Extension headers before it, up to [`EXTENSIONS_MAX`].
    headers: usize,
}

/// `None`: the packet ends within its extension headers.
fn upper_layer(packet: &[u8]) -> Option<Upper> {
    let mut upper = Upper { protocol: Some(packet[6]), part: false, at: 40, headers: 0 };
    while upper.headers < EXTENSIONS_MAX {
        let at = upper.at;
        match upper.protocol {
            Some(0 | 43 | 60) => upper.at += (usize::from(*packet.get(at + 1)?) + 1) * 8,
            Some(44) => {
                upper.part = true;
                upper.at += 8;
            }
            Some(_) | None => break,
        }
        let is_later = upper.protocol == Some(44) && number(packet, at + 2)? & 0xfff8 != 0;
        upper.protocol = if is_later { None } else { Some(*packet.get(at)?) };
        upper.headers += 1;
    }
    Some(upper)
}

pub(crate) fn is_ipv4(frame: &[u8]) -> bool {
    number(frame, 12) == Some(IPV4)
}

/// Whether a frame is an ICMP error or a redirect, which quote the packet that they answer (RFC 792; RFC
/// 4443, section 2.1; RFC 4861, section 4.5).
pub(crate) fn is_icmp_error(frame: &[u8]) -> bool {
    let packet = frame.get(ETHERNET..).unwrap_or_default();
    match number(frame, 12) {
        Some(IPV4) if packet.len() >= 20 && packet[9] == 1 => {
            packet.get(usize::from(packet[0] & 15) * 4).is_some_and(|kind| [3, 5, 11, 12].contains(kind))
        }
        Some(IPV6) if packet.len() > 40 && packet[6] == 58 => packet[40] < 128 || packet[40] == 137,
        _ => false,
    }
}

/// Whether a frame is for one of a pod's addresses.
pub(crate) fn is_to(frame: &[u8], pod: Addresses) -> bool {
    match number(frame, 12) {
        Some(IPV4) => pod.v4.is_some_and(|own| frame.get(30..34) == Some(&own.octets())),
        Some(IPV6) => pod.v6.is_some_and(|own| frame.get(38..54) == Some(&own.octets())),
        _ => false,
    }
}

/// Whether a packet is a fragment.
pub(crate) fn is_fragment(frame: &[u8]) -> bool {
    match number(frame, 12) {
        Some(IPV4) => number(frame, ETHERNET + 6).is_some_and(|field| field & 0x3fff != 0),
        Some(IPV6) => {
            frame.len() > ETHERNET + 40 && upper_layer(&frame[ETHERNET..]).is_some_and(|upper| upper.part)
        }
        _ => false,
    }
}

/// The bytes of a frame on the wire, or those of one segment if the packet stands for several.
pub(crate) fn frame_bytes(captured: &Captured) -> usize {
    let (offload, frame) = (captured.offload, &captured.bytes);
    let headers = headers(frame);
    match headers.filter(|_| offload.kind != 0) {
        Some(headers) => (headers + usize::from(offload.segment_bytes)).min(frame.len()),
        None => frame.len(),
    }
}

/// The bytes of all headers of a frame, including those of tunnels and of UDP or TCP.
fn headers(frame: &[u8]) -> Option<usize> {
    let packet = frame.get(ETHERNET..)?;
    let (protocol, at) = match number(frame, 12)? {
        IPV4 => (*packet.get(9)?, usize::from(packet[0] & 15) * 4),
        IPV6 => (*packet.get(6)?, 40),
        _ => return None,
    };
    match protocol {
        UDP if number(packet, at + 2)? == VXLAN_PORT => {
            Some(ETHERNET + at + VXLAN + headers(packet.get(at + VXLAN..)?)?)
        }
        UDP => Some(ETHERNET + at + 8),
        _ => Some(ETHERNET + at + usize::from(packet.get(at + 12)? >> 4) * 4),
    }
}

/// The pod's frame in a captured one: the inner frame of a tunnel packet from `end`, or the frame itself.
pub(crate) fn pods_frame(frame: &[u8], end: Option<Ipv4Addr>) -> &[u8] {
    let packet = &frame[ETHERNET.min(frame.len())..];
    let is_node = number(frame, 12) == Some(IPV4)
        && packet.len() > 20
        && end.is_some_and(|end| packet[12..16] == end.octets());
    match is_node.then(|| datagram4(packet)).flatten() {
        Some(at) if number(packet, at + 2) == Some(VXLAN_PORT) => {
            packet.get(at + VXLAN..).unwrap_or_default()
        }
        _ => frame,
    }
}

pub(crate) fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}
