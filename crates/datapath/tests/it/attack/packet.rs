//! The attacker's packets, from a seed: mostly correct, each with a few things wrong.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linux::Mac;
use stats::Random;
use testkit::Offload;

use super::ground::{Ground, Names, Target};
use super::rule::{ARP, ETHERNET, IPV4, IPV6, PROVIDER_VLAN, UDP, VLAN, VXLAN_PORT};

const TCP: u8 = 6;
/// The first bytes of a mark.
const MARK: [u8; 6] = *b"\xfehgap\xfe";
/// The least length of a frame that every driver accepts.
const SHORTEST: usize = 60;

#[derive(Debug, Clone)]
pub(crate) struct Packet {
    pub(crate) frame: Vec<u8>,
    pub(crate) offload: Offload,
    /// The protocol that the sender claims.
    pub(crate) claimed: u16,
}

impl Packet {
    /// Whether the sender claims the protocol that the frame has.
    pub(crate) fn is_what_it_claims(&self) -> bool {
        self.frame[12..14] == self.claimed.to_be_bytes()
    }
}

/// What identifies a packet wherever it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub(crate) id: u32,
    /// The mark is in a frame that the attacker wrapped in a datagram of its own.
    pub(crate) wrapped: bool,
    /// Its offset in the frame.
    pub(crate) at: usize,
}

/// The bytes of a mark.
fn mark(id: u32, wrapped: bool) -> Vec<u8> {
    [&MARK[..], &id.to_be_bytes(), &[wrapped.into(), 0]].concat()
}

impl Mark {
    /// The first mark in a frame.
    pub(crate) fn of(frame: &[u8]) -> Option<Mark> {
        let at = frame.windows(MARK.len()).position(|part| part == MARK)?;
        let rest = &frame[at + MARK.len()..];
        let id = u32::from_be_bytes(rest.get(..4)?.try_into().ok()?);
        Some(Mark { id, wrapped: *rest.get(4)? == 1, at })
    }
}

/// An honest datagram, plain or with IP options. The kernel examines options on the way.
pub(crate) fn honest(own: &Names, to: Target, id: u32, with_options: bool) -> Packet {
    let segment = udp(4001, &mark(id, false));
    let (kind, packet) = match to.ip {
        IpAddr::V4(to) => {
            let options: &[u8] = if with_options { &[1; 4] } else { &[] };
            (IPV4, ipv4(own.v4, to, UDP, options, 0, &segment))
        }
        IpAddr::V6(to) => {
            let options = [&[UDP, 0, 1, 4, 0, 0, 0, 0][..], &segment].concat();
            (IPV6, if with_options { ipv6(own.v6, to, 0, &options) } else { ipv6(own.v6, to, UDP, &segment) })
        }
    };
    Packet { frame: ethernet(to.mac, own.mac, kind, &packet), offload: Offload::default(), claimed: kind }
}

/// An honest datagram of `mtu` bytes that must not be fragmented.
pub(crate) fn longest(own: &Names, to: Target, mtu: u32) -> Packet {
    let payload = |headers: usize| vec![0; mtu as usize - headers - 8];
    let (kind, packet) = match to.ip {
        IpAddr::V4(to) => (IPV4, ipv4(own.v4, to, UDP, &[], 0x4000, &udp(4001, &payload(20)))),
        IpAddr::V6(to) => (IPV6, ipv6(own.v6, to, UDP, &udp(4001, &payload(40)))),
    };
    Packet { frame: ethernet(to.mac, own.mac, kind, &packet), offload: Offload::default(), claimed: kind }
}

/// One of an endless number of packets.
pub(crate) fn hostile(random: &mut Random, ground: &Ground, id: u32) -> Packet {
    let own = &ground.own;
    let to = *pick(random, &ground.targets);
    let mac = if one_in(random, 12) {
        *pick(random, &[to.mac, Mac([2, 0x66, 0, 0, 0, 1]), Mac([0xff; 6])])
    } else {
        own.mac
    };
    let mut offload = Offload::default();
    let (kind, mut packet) = match random.below(20) {
        0 => (ARP, arp(random, ground, mac, id)),
        1 => (*pick(random, &[0x88b5, 0x8847, 0x8864, 0x0600, 0x0100]), mark(id, false)),
        _ => ip(random, ground, to.ip, id, &mut offload),
    };
    if one_in(random, 8) {
        spoil(random, kind, &mut packet);
    }
    let mut frame = ethernet(to.mac, mac, kind, &packet);
    if offload.kind == 0 && one_in(random, 7) {
        tag(random, &mut frame);
    }
    if one_in(random, 25) {
        // The mark identifies the packet, so it stays whole.
        let headers = Mark::of(&frame).map_or(ETHERNET, |mark| mark.at).min(54);
        frame[random.below(headers as u64) as usize] ^= 1 << random.below(8);
    }
    if frame.len() < SHORTEST {
        frame.resize(SHORTEST, 0);
    }
    let said = u16::from_be_bytes([frame[12], frame[13]]);
    let claimed = if one_in(random, 10) { *pick(random, &[IPV4, IPV6, ARP, VLAN, 0x88b5]) } else { said };
    Packet { frame, offload, claimed }
}

fn ip(random: &mut Random, ground: &Ground, to: IpAddr, id: u32, offload: &mut Offload) -> (u16, Vec<u8>) {
    let (protocol, segment) = segment(random, ground, id);
    let (kind, headers, packet) = match to {
        IpAddr::V4(to) => {
            let from = if one_in(random, 3) { foreign4(random, ground) } else { ground.own.v4 };
            let nop: &[u8] = &[1; 4];
            let source_route: &[u8] = &[0x83, 7, 4, 192, 168, 100, 1, 0];
            let record: &[u8] = &[7, 7, 4, 0, 0, 0, 0, 0];
            let options = if one_in(random, 10) { *pick(random, &[nop, source_route, record]) } else { &[] };
            let fragment =
                if one_in(random, 8) { *pick(random, &[0x2000, 0x2003, 0x0004, 0x1fff]) } else { 0x4000 };
            (IPV4, ETHERNET + 20 + options.len(), ipv4(from, to, protocol, options, fragment, &segment))
        }
        IpAddr::V6(to) => {
            let from = if one_in(random, 3) { foreign6(random, ground) } else { ground.own.v6 };
            let (next, extensions) = extensions(random, protocol);
            let behind = [&extensions[..], &segment].concat();
            (IPV6, ETHERNET + 40 + extensions.len(), ipv6(from, to, next, &behind))
        }
    };
    if [TCP, UDP].contains(&protocol) && one_in(random, 8) {
        *offload = segments(random, ground, kind, protocol, headers);
    }
    (kind, packet)
}

/// The IP protocol and payload of a packet, with the mark in it.
fn segment(random: &mut Random, ground: &Ground, id: u32) -> (u8, Vec<u8>) {
    let fill = if one_in(random, 10) { 1200 } else { random.below(64) };
    let payload = [mark(id, false), vec![0; fill as usize]].concat();
    match random.below(12) {
        0..5 => (UDP, udp(*pick(random, &[4001, 53, 68]), &payload)),
        5..8 => (UDP, udp(VXLAN_PORT, &wrapped(random, ground, id))),
        8..10 => {
            let head = [&[0x0f, 0xa0, 0x0f, 0xa1, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x02, 0x10, 0][..], &[0; 4]]
                .concat();
            (TCP, [head, payload].concat())
        }
        10 => (1, [&[8, 0, 0, 0, 0, 1, 0, 1][..], &payload].concat()),
        _ => (*pick(random, &[4, 41, 47, 50, 58, 132, 136]), payload),
    }
}

/// VXLAN with a frame in it, for another pod and with any sender, including the attacker itself.
fn wrapped(random: &mut Random, ground: &Ground, id: u32) -> Vec<u8> {
    let to = *pick(random, &ground.targets);
    let payload = udp(4001, &mark(id, true));
    let honest = one_in(random, 3);
    let (kind, packet) = match to.ip {
        IpAddr::V4(to) => {
            let from = if honest { ground.own.v4 } else { foreign4(random, ground) };
            (IPV4, ipv4(from, to, UDP, &[], 0, &payload))
        }
        IpAddr::V6(to) => {
            let from = if honest { ground.own.v6 } else { foreign6(random, ground) };
            (IPV6, ipv6(from, to, UDP, &payload))
        }
    };
    let mac = if random.below(2) == 0 { ground.tunnel_mac.unwrap_or(to.mac) } else { to.mac };
    let vni = *pick(random, &[1_u32, 1, 1, 0, 2]);
    [&[8, 0, 0, 0][..], &(vni << 8).to_be_bytes(), &ethernet(mac, ground.own.mac, kind, &packet)].concat()
}

fn foreign4(random: &mut Random, ground: &Ground) -> Ipv4Addr {
    let known = ground.targets.iter().filter_map(|target| match target.ip {
        IpAddr::V4(v4) => Some(v4),
        IpAddr::V6(_) => None,
    });
    let odd = [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED, [198, 51, 100, 7].into(), [10, 244, 9, 9].into()];
    *pick(random, &known.chain(odd).collect::<Vec<_>>())
}

fn foreign6(random: &mut Random, ground: &Ground) -> Ipv6Addr {
    let known = ground.targets.iter().filter_map(|target| match target.ip {
        IpAddr::V6(v6) => Some(v6),
        IpAddr::V4(_) => None,
    });
    let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0x66, 1);
    let outside = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
    let odd = [Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED, link_local, link_local, outside];
    *pick(random, &known.chain(odd).collect::<Vec<_>>())
}

/// The first header's number and a chain of IPv6 extension headers.
fn extensions(random: &mut Random, protocol: u8) -> (u8, Vec<u8>) {
    if !one_in(random, 6) {
        return (protocol, Vec::new());
    }
    let padding = [0, 1, 4, 0, 0, 0, 0];
    let one = |first: u8, rest: [u8; 7]| (first, [&[protocol][..], &rest].concat());
    match random.below(7) {
        0 => one(0, padding),
        1 => one(60, padding),
        2 => one(44, [0, 0, 1, 0, 0, 0, 9]),
        3 => one(44, [0, 0, 9, 0, 0, 0, 9]),
        4 => one(44, [0, 0, 0, 0, 0, 0, 9]),
        // A segment routing header with no segment left (RFC 8754).
        5 => (43, [&[protocol, 2, 4, 0, 0, 0, 0, 0][..], &[0; 16]].concat()),
        _ => {
            let many = random.below(12) as usize;
            let mut chain = [&[60][..], &padding].concat().repeat(many);
            chain.extend([protocol]);
            chain.extend(padding);
            (60, chain)
        }
    }
}

/// Offload of a packet that stands for several: short segments, some that just fit, and some that do not.
fn segments(random: &mut Random, ground: &Ground, kind: u16, protocol: u8, headers: usize) -> Offload {
    let transport = if protocol == TCP { 20 } else { 8 };
    let fitting = ground.mtu as u16 + ETHERNET as u16 - headers as u16 - transport;
    let udp_kind = *pick(random, &[Offload::FRAGMENTS, 5, 5]);
    Offload {
        flags: 1,
        kind: match (protocol, kind) {
            (TCP, IPV4) => 1,
            (TCP, _) => 4,
            _ => udp_kind,
        },
        header_bytes: headers as u16 + transport,
        segment_bytes: *pick(random, &[100, fitting, fitting + 1, fitting + 400, 0xffff]),
        checksum_start: headers as u16,
        checksum_offset: if protocol == TCP { 16 } else { 6 },
    }
}

/// Damages a correct header.
fn spoil(random: &mut Random, kind: u16, packet: &mut [u8]) {
    let places: &[(usize, u8)] = match kind {
        IPV4 => &[(0, 0x65), (0, 0x44), (0, 0x4f), (3, 0xff), (3, 3), (8, 0), (8, 1), (11, 0x5a)],
        IPV6 => &[(0, 0x40), (0, 0x70), (4, 0xff), (5, 0), (7, 0), (7, 1)],
        ARP => &[(0, 9), (2, 0x86), (4, 8), (5, 16), (7, 9)],
        _ => return,
    };
    let (at, byte) = *pick(random, places);
    packet[at] = byte;
    // A wrong checksum would hide the other damage.
    if kind == IPV4 && at != 11 {
        packet[10..12].fill(0);
        let sum = checksum(&packet[..20]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Puts one tag or two into a frame.
fn tag(random: &mut Random, frame: &mut Vec<u8>) {
    for _ in 0..=random.below(2) {
        let kind: u16 = *pick(random, &[VLAN, PROVIDER_VLAN]);
        let tag: u16 = *pick(random, &[0, 0, 7 << 13, 7, 7 << 13 | 7]);
        let tag = [kind.to_be_bytes(), tag.to_be_bytes()].concat();
        frame.splice(12..12, tag);
    }
}

fn arp(random: &mut Random, ground: &Ground, mac: Mac, id: u32) -> Vec<u8> {
    let of = |random: &mut Random| if one_in(random, 2) { ground.own.v4 } else { foreign4(random, ground) };
    let said = if one_in(random, 4) { pick(random, &ground.targets).mac } else { mac };
    let (sender, target) = (of(random), foreign4(random, ground));
    let operation = 1 + random.below(2) as u8;
    [
        &[0, 1, 8, 0, 6, 4, 0, operation][..],
        &said.0,
        &sender.octets(),
        &[0; 6],
        &target.octets(),
        &mark(id, false),
    ]
    .concat()
}

fn ethernet(to: Mac, from: Mac, kind: u16, packet: &[u8]) -> Vec<u8> {
    [&to.0[..], &from.0, &kind.to_be_bytes(), packet].concat()
}

fn ipv4(
    from: Ipv4Addr,
    to: Ipv4Addr,
    protocol: u8,
    options: &[u8],
    fragment: u16,
    payload: &[u8],
) -> Vec<u8> {
    let header = 20 + options.len();
    let bytes = (header + payload.len()) as u16;
    let mut packet = [&[0x40 | (header / 4) as u8, 0][..], &bytes.to_be_bytes(), &[0x12, 0x34]].concat();
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    packet.extend(from.octets().iter().chain(&to.octets()).chain(options));
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

fn ipv6(from: Ipv6Addr, to: Ipv6Addr, next: u8, payload: &[u8]) -> Vec<u8> {
    let bytes = (payload.len() as u16).to_be_bytes();
    [&[0x60, 0, 0, 0][..], &bytes, &[next, 64], &from.octets(), &to.octets(), payload].concat()
}

/// It has no checksum, which IPv4 allows. Over IPv6 only the receiver reads the checksum.
fn udp(to: u16, payload: &[u8]) -> Vec<u8> {
    let bytes = (8 + payload.len()) as u16;
    [&4000_u16.to_be_bytes()[..], &to.to_be_bytes(), &bytes.to_be_bytes(), &[0, 0], payload].concat()
}

/// The internet checksum (RFC 1071).
fn checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

fn one_in(random: &mut Random, count: u64) -> bool {
    random.below(count) == 0
}

fn pick<'a, T>(random: &mut Random, from: &'a [T]) -> &'a T {
    &from[random.below(from.len() as u64) as usize]
}
