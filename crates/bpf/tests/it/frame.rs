//! Frames, byte by byte.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};

use linux::Mac;

pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const IPV6: u16 = 0x86dd;
pub(crate) const ARP: u16 = 0x0806;
pub(crate) const VLAN: u16 = 0x8100;
/// The tag of a service provider (IEEE 802.1ad).
pub(crate) const PROVIDER_VLAN: u16 = 0x88a8;
/// Reserved for local experiments (IEEE 802, section 9.2.3).
pub(crate) const UNKNOWN: u16 = 0x88b5;

pub(crate) const BROADCAST: Mac = Mac([0xff; 6]);

/// Bytes of an Ethernet header, of an IPv4 header without options, and of the headers that a tunnel adds
/// between them.
pub(crate) const ETHERNET: usize = 14;
pub(crate) const IP_HEADER: usize = 20;
pub(crate) const WRAPPING: usize = IP_HEADER + 8 + 8 + ETHERNET;

const UDP: u8 = 17;
pub(crate) const TCP: u8 = 6;
/// The VXLAN flags that mark the identifier as valid (RFC 7348, section 5).
pub(crate) const VXLAN_FLAGS: u8 = 0x08;

pub(crate) fn ethernet(to: Mac, from: Mac, kind: u16, payload: &[u8]) -> Vec<u8> {
    [&to.0[..], &from.0, &kind.to_be_bytes(), payload].concat()
}

/// The fields of an IPv4 header that a test may want to differ.
pub(crate) struct Ipv4 {
    pub(crate) from: Ipv4Addr,
    pub(crate) to: Ipv4Addr,
    pub(crate) tos: u8,
    /// Flags and fragment offset.
    pub(crate) fragment: u16,
    pub(crate) options: Vec<u8>,
}

impl Ipv4 {
    pub(crate) fn new(from: Ipv4Addr, to: Ipv4Addr) -> Ipv4 {
        Ipv4 { from, to, tos: 0, fragment: 0, options: Vec::new() }
    }

    /// An IPv4 packet with this header and its checksum around a UDP payload.
    pub(crate) fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let header = IP_HEADER + self.options.len();
        let bytes = u16::try_from(header + payload.len()).expect("a packet has at most 65535 bytes");
        let words = u8::try_from(header / 4).expect("a header has at most 60 bytes");
        let mut packet = vec![0x40 | words, self.tos];
        packet.extend(bytes.to_be_bytes());
        packet.extend([0x12, 0x34]);
        packet.extend(self.fragment.to_be_bytes());
        packet.extend([64, UDP, 0, 0]);
        packet.extend(self.from.octets());
        packet.extend(self.to.octets());
        packet.extend(&self.options);
        let sum = checksum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend(payload);
        packet
    }
}

/// The internet checksum (RFC 1071). Over a header that already contains its checksum, it is zero.
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |low| (*low).into()));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((sum & 0xffff) + (sum >> 16)).expect("both carries are added")
}

/// An IPv6 packet whose next header is `next`.
pub(crate) fn ipv6(from: Ipv6Addr, to: Ipv6Addr, next: u8, payload: &[u8]) -> Vec<u8> {
    let bytes = u16::try_from(payload.len()).expect("a payload has at most 65535 bytes");
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(bytes.to_be_bytes());
    packet.extend([next, 64]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(payload);
    packet
}

/// A UDP datagram without a checksum.
pub(crate) fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let bytes = u16::try_from(8 + payload.len()).expect("a datagram has at most 65535 bytes");
    [&from.to_be_bytes()[..], &to.to_be_bytes(), &bytes.to_be_bytes(), &[0, 0], payload].concat()
}

/// The EtherType and the packet of a UDP datagram, in the family of the addresses.
pub(crate) fn datagram(from: IpAddr, to: IpAddr, payload: &[u8]) -> (u16, Vec<u8>) {
    let datagram = udp(4000, 4001, payload);
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => (IPV4, Ipv4::new(from, to).packet(&datagram)),
        (IpAddr::V6(from), IpAddr::V6(to)) => (IPV6, ipv6(from, to, UDP, &datagram)),
        _ => panic!("{from} and {to} are of two families"),
    }
}

/// An ARP packet (RFC 826) with the sender's and the target's addresses.
pub(crate) fn arp(operation: u16, sender: (Mac, Ipv4Addr), target: (Mac, Ipv4Addr)) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4];
    packet.extend(operation.to_be_bytes());
    for (mac, address) in [sender, target] {
        packet.extend(mac.0);
        packet.extend(address.octets());
    }
    packet
}

/// A frame in VXLAN over IPv4, with the usual value in every field.
pub(crate) struct Wrapped {
    pub(crate) outer: Ipv4,
    pub(crate) port: u16,
    pub(crate) flags: u8,
    pub(crate) vni: u32,
}

impl Wrapped {
    pub(crate) fn between(from: SocketAddrV4, to: SocketAddrV4, vni: u32) -> Wrapped {
        let outer = Ipv4::new(*from.ip(), *to.ip());
        Wrapped { outer, port: to.port(), flags: VXLAN_FLAGS, vni }
    }

    pub(crate) fn packet(&self, inner: &[u8]) -> Vec<u8> {
        let header = [&[self.flags, 0, 0, 0][..], &(self.vni << 8).to_be_bytes()].concat();
        self.outer.packet(&udp(50000, self.port, &[&header, inner].concat()))
    }
}
