//! What a stack of our own says of its addresses where no kernel does: answers to ARP requests and neighbour
//! solicitations (RFC 826, RFC 4861).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use smoltcp::wire::Icmpv6Packet;

use super::ethernet::{ETHERNET, IPV6, Mac};

/// The number of ARP in an Ethernet header.
const ARP: [u8; 2] = [0x08, 0x06];
/// What an ARP packet for Ethernet and IPv4 begins with, and the two operations.
const ARP_OF_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: [u8; 2] = [0, 1];
const REPLY: [u8; 2] = [0, 2];
/// The header of IPv6, the number of ICMPv6 in it, and the hop limit of a packet that no router has passed on.
const IPV6_HEADER: usize = 40;
const ICMPV6: u8 = 58;
const UNROUTED: u8 = 255;
/// Types of ICMPv6.
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// The advertisement was asked for, and replaces what is known.
const SOLICITED_AND_OVERRIDE: u8 = 0x60;
/// The option with the Ethernet address of what is advertised: its type, and its length in units of eight bytes.
const TARGET_LINK_LAYER: [u8; 2] = [2, 1];
/// Bytes of an advertisement with that option.
const ADVERTISEMENT_BYTES: usize = 32;

/// A stack's addresses.
#[derive(Debug)]
pub(super) struct Neighbours {
    mac: Mac,
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
}

impl Neighbours {
    pub(super) fn new(mac: Mac, addresses: &[IpAddr]) -> Neighbours {
        let mut known = Neighbours { mac, v4: None, v6: None };
        for address in addresses {
            match address {
                IpAddr::V4(v4) => known.v4 = Some(*v4),
                IpAddr::V6(v6) => known.v6 = Some(*v6),
            }
        }
        known
    }

    pub(super) fn mac(&self) -> Mac {
        self.mac
    }

    /// The frame that answers one, if that asks for an address of ours.
    pub(super) fn answer(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let (header, packet) = frame.split_at_checked(ETHERNET)?;
        let (kind, answer) = match [header[12], header[13]] {
            ARP => (ARP, self.reply(packet)?),
            IPV6 => (IPV6, self.advertisement(packet)?),
            _ => return None,
        };
        Some([&header[6..12], &self.mac, &kind, &answer].concat())
    }

    fn reply(&self, packet: &[u8]) -> Option<Vec<u8>> {
        let packet: &[u8; 28] = packet.first_chunk()?;
        let own = self.v4?.octets();
        if packet[..6] != ARP_OF_IPV4 || packet[6..8] != REQUEST || packet[24..] != own {
            return None;
        }
        // Who asked, by both addresses.
        let asker = &packet[8..18];
        Some([&ARP_OF_IPV4[..], &REPLY, &self.mac, &own, asker].concat())
    }

    fn advertisement(&self, packet: &[u8]) -> Option<Vec<u8>> {
        let own = self.v6?;
        let (header, asked) = packet.split_at_checked(IPV6_HEADER)?;
        let from = Ipv6Addr::from(<[u8; 16]>::try_from(&header[8..24]).expect("sixteen bytes"));
        // One that has no address yet asks whether ours is free. Two pods do not get the same.
        let is_asked = header[6] == ICMPV6
            && header[7] == UNROUTED
            && asked.first() == Some(&SOLICITATION)
            && asked.get(8..24) == Some(&own.octets()[..])
            && !from.is_unspecified();
        if !is_asked {
            return None;
        }
        let mut answer = vec![0; IPV6_HEADER + ADVERTISEMENT_BYTES];
        answer[0] = 0x60;
        answer[4..6].copy_from_slice(&(ADVERTISEMENT_BYTES as u16).to_be_bytes());
        answer[6..8].copy_from_slice(&[ICMPV6, UNROUTED]);
        answer[8..24].copy_from_slice(&own.octets());
        answer[24..40].copy_from_slice(&from.octets());
        let said = &mut answer[IPV6_HEADER..];
        said[0] = ADVERTISEMENT;
        said[4] = SOLICITED_AND_OVERRIDE;
        said[8..24].copy_from_slice(&own.octets());
        said[24..26].copy_from_slice(&TARGET_LINK_LAYER);
        said[26..].copy_from_slice(&self.mac);
        Icmpv6Packet::new_unchecked(said).fill_checksum(&own, &from);
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ethernet::IPV4;
    use super::*;

    const OWN: Mac = [0x0a, 0x58, 192, 0, 2, 2];
    const ASKER: Mac = [2, 0, 0, 0, 0, 1];

    fn neighbours() -> Neighbours {
        Neighbours::new(OWN, &["192.0.2.2".parse().unwrap(), "2001:db8::2".parse().unwrap()])
    }

    fn arp(operation: u8, target: [u8; 4]) -> Vec<u8> {
        let ethernet = [&[0xff; 6][..], &ASKER, &ARP].concat();
        let asks = [&ARP_OF_IPV4[..], &[0, operation], &ASKER, &[192, 0, 2, 1], &[0; 6], &target].concat();
        [ethernet, asks].concat()
    }

    fn solicitation(from: &str, target: &str) -> Vec<u8> {
        let of = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
        let mut packet = vec![0; IPV6_HEADER + 24];
        packet[6..8].copy_from_slice(&[ICMPV6, UNROUTED]);
        packet[8..24].copy_from_slice(&of(from));
        packet[24..40].copy_from_slice(&of("ff02::1:ff00:2"));
        packet[40] = SOLICITATION;
        packet[48..64].copy_from_slice(&of(target));
        [&[0x33, 0x33, 0xff, 0, 0, 2][..], &ASKER, &IPV6, &packet].concat()
    }

    #[test]
    fn requests_for_an_own_address_are_answered() {
        let answer = neighbours().answer(&arp(1, [192, 0, 2, 2])).unwrap();
        assert_eq!(answer[..14], [&ASKER[..], &OWN, &ARP].concat());
        let expected = [&ARP_OF_IPV4[..], &REPLY, &OWN, &[192, 0, 2, 2], &ASKER, &[192, 0, 2, 1]].concat();
        assert_eq!(answer[14..], expected);
        for other in [arp(1, [192, 0, 2, 3]), arp(2, [192, 0, 2, 2]), arp(1, [192, 0, 2, 2])[..40].to_vec()] {
            assert_eq!(neighbours().answer(&other), None);
        }
    }

    #[test]
    fn solicitations_of_an_own_address_are_answered_with_a_sound_checksum() {
        let answer = neighbours().answer(&solicitation("2001:db8::1", "2001:db8::2")).unwrap();
        assert_eq!(answer[..14], [&ASKER[..], &OWN, &IPV6].concat());
        let [from, to] = ["2001:db8::2", "2001:db8::1"].map(|text| text.parse::<Ipv6Addr>().unwrap());
        assert_eq!((&answer[22..38], &answer[38..54]), (&from.octets()[..], &to.octets()[..]));
        assert!(Icmpv6Packet::new_checked(&answer[54..]).unwrap().verify_checksum(&from, &to));
        assert_eq!(answer[80..], OWN);
        for (from, target) in [("2001:db8::1", "2001:db8::3"), ("::", "2001:db8::2")] {
            assert_eq!(neighbours().answer(&solicitation(from, target)), None);
        }
    }

    #[test]
    fn other_frames_are_not_answered() {
        for frame in [vec![], vec![0; 13], [&[0; 12][..], &IPV4, &[0; 40]].concat(), vec![0; 60]] {
            assert_eq!(neighbours().answer(&frame), None);
        }
    }
}
