//! ICMP messages: the requests that are sent, and what comes back for them.

use std::net::IpAddr;

/// The header of an echo message in bytes.
pub(super) const ECHO_BYTES: usize = 8;
/// The headers of IP without options in bytes, in an error's copy of the packet.
const V4_BYTES: usize = 20;
const V6_BYTES: usize = 40;
/// The numbers of the protocols (`IPPROTO_ICMP`, `IPPROTO_ICMPV6`).
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// What comes for an echo request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IcmpMessage {
    /// The answer of the destination.
    Reply(Echo),
    /// Somebody on the way says that it does not get there.
    Refusal(EchoRefusal),
}

/// An answer to an echo request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo {
    /// The source address of the answer.
    pub from: IpAddr,
    /// What the request had, by which the asker knows its own.
    pub id: u16,
    /// The sequence number of the request.
    pub sequence: u16,
}

/// An error message about an echo request. Anybody can have made it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EchoRefusal {
    /// The sender: a router, the destination, or this machine of what it could not send.
    pub from: IpAddr,
    /// Where the request was to go.
    pub to: IpAddr,
    /// The identifier of the request.
    pub id: u16,
    /// The sequence number of the request.
    pub sequence: u16,
    /// Why it does not get there.
    pub reason: IcmpReason,
}

/// Why a packet does not get there: the types and codes of RFC 792, RFC 1812 §5.2.7 and RFC 4443 §3, by what they mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IcmpReason {
    /// A router or this machine has no route.
    NoRoute,
    /// The link is reached, and no neighbour there has the address.
    HostUnreachable,
    /// A rule of a filter forbids it.
    Prohibited,
    /// The destination, or a firewall in its stead, takes nothing of the kind (port or protocol unreachable).
    Rejected,
    /// It is too large, and may not be fragmented.
    TooBig {
        /// Bytes of a packet that pass; 0 where an old router does not say.
        mtu: u32,
    },
    /// It has passed as many routers as it may.
    HopLimit,
    /// Another type and code.
    Other {
        /// The number of the type.
        kind: u8,
        /// The number of the code, whose meaning depends on the type.
        code: u8,
    },
}

/// An echo request of so many bytes, its header among them.
pub(super) fn request(is_v6: bool, id: u16, sequence: u16, bytes: usize) -> Vec<u8> {
    let mut message = vec![0; bytes];
    message[0] = if is_v6 { 128 } else { 8 };
    message[4..6].copy_from_slice(&id.to_be_bytes());
    message[6..8].copy_from_slice(&sequence.to_be_bytes());
    if !is_v6 {
        // For IPv6 the kernel does it: the addresses are part of that sum.
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    message
}

/// The Internet checksum (RFC 1071) of a message whose own is 0; 0 of one that has it.
pub fn checksum(message: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    let mut sum: u32 = message.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Reads a received packet: over IPv4 with its IP header, over IPv6 without. `None` if it is not about an echo request.
pub(super) fn read(is_v6: bool, from: IpAddr, packet: &[u8]) -> Option<IcmpMessage> {
    let header = if is_v6 { 0 } else { usize::from(packet.first()? & 0x0f) * 4 };
    let message = packet.get(header..)?;
    let reply = if is_v6 { 129 } else { 0 };
    if message.first() == Some(&reply) {
        return Some(IcmpMessage::Reply(Echo { from, id: word(message, 4)?, sequence: word(message, 6)? }));
    }
    let reason = reason(is_v6, message)?;
    let (to, about) = copied(is_v6, message.get(ECHO_BYTES..)?)?;
    let (id, sequence) = (word(about, 4)?, word(about, 6)?);
    Some(IcmpMessage::Refusal(EchoRefusal { from, to, id, sequence, reason }))
}

/// `None` if it is no error message. Redirects say that a packet went another way, and so are none.
fn reason(is_v6: bool, message: &[u8]) -> Option<IcmpReason> {
    let (kind, code) = (*message.first()?, *message.get(1)?);
    Some(match (is_v6, kind, code) {
        (false, 3, 0 | 6 | 11) | (true, 1, 0) => IcmpReason::NoRoute,
        (false, 3, 1 | 7 | 8 | 12) | (true, 1, 3) => IcmpReason::HostUnreachable,
        (false, 3, 2 | 3) | (true, 1, 4) => IcmpReason::Rejected,
        (false, 3, 9 | 10 | 13) | (true, 1, 1 | 5 | 6) => IcmpReason::Prohibited,
        (false, 3, 4) => IcmpReason::TooBig { mtu: word(message, 6)?.into() },
        (true, 2, _) => {
            IcmpReason::TooBig { mtu: u32::from(word(message, 4)?) << 16 | u32::from(word(message, 6)?) }
        }
        (false, 11, 0) | (true, 3, 0) => IcmpReason::HopLimit,
        (false, 3 | 11 | 12, _) | (true, 1 | 3 | 4, _) => IcmpReason::Other { kind, code },
        _ => return None,
    })
}

/// The destination and the echo request in an error's copy of a packet; `None` if it was another packet.
fn copied(is_v6: bool, packet: &[u8]) -> Option<(IpAddr, &[u8])> {
    if is_v6 {
        let to = <[u8; 16]>::try_from(packet.get(24..V6_BYTES)?).ok()?;
        let about = packet.get(V6_BYTES..)?;
        return (packet.get(6) == Some(&ICMPV6) && about.first() == Some(&128)).then_some((to.into(), about));
    }
    let header = (usize::from(packet.first()? & 0x0f) * 4).max(V4_BYTES);
    let to = <[u8; 4]>::try_from(packet.get(16..V4_BYTES)?).ok()?;
    let about = packet.get(header..)?;
    (packet.get(9) == Some(&ICMP) && about.first() == Some(&8)).then_some((to.into(), about))
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_sums_up_to_nothing() {
        for bytes in [8, 9, 64, 1480] {
            let message = request(false, 0xabcd, 7, bytes);
            assert_eq!((message.len(), checksum(&message)), (bytes, 0));
        }
        // RFC 1071 §3 has this example.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        assert_eq!(request(true, 1, 2, 8), [128, 0, 0, 0, 0, 1, 0, 2]);
    }

    #[test]
    fn answers_are_known_from_other_messages() {
        let from = IpAddr::from([192, 0, 2, 1]);
        let echo = Some(IcmpMessage::Reply(Echo { from, id: 1, sequence: 2 }));
        let reply = [0, 0, 0, 0, 0, 1, 0, 2];
        let with_header = |words: u8, message: &[u8]| {
            let mut packet = vec![0; usize::from(words) * 4];
            packet[0] = 0x40 | words;
            packet.extend(message);
            packet
        };
        assert_eq!(read(false, from, &with_header(5, &reply)), echo);
        assert_eq!(read(false, from, &with_header(15, &reply)), echo, "with options");
        assert_eq!(read(true, from, &[129, 0, 0, 0, 0, 1, 0, 2]), echo);
        for packet in
            [vec![], vec![0x45], with_header(5, &reply[..7]), with_header(5, &[8, 0, 0, 0, 0, 1, 0, 2])]
        {
            assert_eq!(read(false, from, &packet), None, "{packet:?}");
        }
        assert_eq!(read(true, from, &[128, 0, 0, 0, 0, 1, 0, 2]), None);
    }

    #[test]
    fn errors_about_a_request_say_why_and_where_it_was_to_go() {
        let from = IpAddr::from([192, 0, 2, 254]);
        let mut about = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 1, ICMP, 0, 0, 192, 0, 2, 1, 10, 244, 2, 1];
        about.extend([8, 0, 0, 0, 0, 1, 0, 2]);
        let error = |head: [u8; 8]| {
            let mut packet = vec![0x45; 20];
            packet.extend(head);
            packet.extend(&about);
            packet
        };
        for (head, reason) in [
            ([3, 0, 0, 0, 0, 0, 0, 0], IcmpReason::NoRoute),
            ([3, 1, 0, 0, 0, 0, 0, 0], IcmpReason::HostUnreachable),
            ([3, 3, 0, 0, 0, 0, 0, 0], IcmpReason::Rejected),
            ([3, 13, 0, 0, 0, 0, 0, 0], IcmpReason::Prohibited),
            ([3, 4, 0, 0, 0, 0, 0x05, 0x78], IcmpReason::TooBig { mtu: 1400 }),
            ([11, 0, 0, 0, 0, 0, 0, 0], IcmpReason::HopLimit),
            ([11, 1, 0, 0, 0, 0, 0, 0], IcmpReason::Other { kind: 11, code: 1 }),
        ] {
            let to = IpAddr::from([10, 244, 2, 1]);
            let refusal = IcmpMessage::Refusal(EchoRefusal { from, to, id: 1, sequence: 2, reason });
            assert_eq!(read(false, from, &error(head)), Some(refusal));
        }
        assert_eq!(read(false, from, &error([5, 1, 0, 0, 192, 0, 2, 9])), None, "a redirect");
        let short = error([3, 1, 0, 0, 0, 0, 0, 0]);
        for bytes in 0..short.len() {
            assert_eq!(read(false, from, short.get(..bytes).unwrap()), None, "{bytes}");
        }
        let mut other = short;
        other[20 + 8 + 9] = 17;
        assert_eq!(read(false, from, &other), None, "it is about a datagram");
    }

    #[test]
    fn errors_of_ipv6_have_a_larger_mtu_and_no_header() {
        let (from, to) =
            ("2001:db8::9".parse().unwrap(), "fd00:244:0:2::1".parse::<std::net::Ipv6Addr>().unwrap());
        let mut packet = vec![2, 0, 0, 0, 0, 1, 0, 0];
        packet.extend([0x60, 0, 0, 0, 0, 8, ICMPV6, 1]);
        packet.extend([0; 16]);
        packet.extend(to.octets());
        packet.extend([128, 0, 0, 0, 0, 1, 0, 2]);
        let reason = IcmpReason::TooBig { mtu: 65_536 };
        let refusal = IcmpMessage::Refusal(EchoRefusal { from, to: to.into(), id: 1, sequence: 2, reason });
        assert_eq!(read(true, from, &packet), Some(refusal));
        packet[0] = 3;
        let hops = match read(true, from, &packet) {
            Some(IcmpMessage::Refusal(refusal)) => refusal.reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(hops, IcmpReason::HopLimit);
    }
}
