//! The frames: each an Ethernet frame with a UDP datagram from the client's node to the server's.

use std::net::SocketAddrV4;

use linux::Mac;
use linux::icmp::checksum;

/// `ETH_P_IP` in network order, and the number of UDP in an IP header (`IPPROTO_UDP`).
const IPV4: [u8; 2] = [0x08, 0x00];
const UDP: u8 = 17;
/// Bytes of the headers of Ethernet and IPv4.
const ETHERNET: usize = 14;
const IP: usize = 20;

/// An end of the frames' way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Endpoint {
    pub(super) mac: Mac,
    pub(super) at: SocketAddrV4,
}

/// A frame of so many bytes, the checksum at its end not counted. The datagram has no checksum, which UDP over IPv4
/// allows, and its content is zeroes.
pub(super) fn frame(from: Endpoint, to: Endpoint, bytes: usize) -> Vec<u8> {
    let length = |header: usize| {
        u16::try_from(bytes - header).expect("a frame is no longer than a page").to_be_bytes()
    };
    let mut ip = [0; IP];
    // Version 4, a header of five words; 64 hops.
    (ip[0], ip[8], ip[9]) = (0x45, 64, UDP);
    ip[2..4].copy_from_slice(&length(ETHERNET));
    ip[12..16].copy_from_slice(&from.at.ip().octets());
    ip[16..20].copy_from_slice(&to.at.ip().octets());
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let [source, destination] = [from, to].map(|end| end.at.port().to_be_bytes());
    let udp = length(ETHERNET + IP);
    let mut frame = [&to.mac.0[..], &from.mac.0, &IPV4, &ip, &source, &destination, &udp, &[0, 0]].concat();
    frame.resize(bytes, 0);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_its_length_and_a_header_that_sums_up_to_nothing() {
        let end = |n: u8| Endpoint {
            mac: Mac([2, 0, 0, 0, 0, n]),
            at: SocketAddrV4::new([10, 0, 0, n].into(), 80),
        };
        for bytes in [60, 64, 590, 1514] {
            let frame = frame(end(1), end(2), bytes);
            assert_eq!(frame.len(), bytes);
            assert_eq!(checksum(&frame[ETHERNET..ETHERNET + IP]), 0);
            assert_eq!((&frame[..6], &frame[12..14]), (&[2, 0, 0, 0, 0, 2][..], &[8, 0][..]));
            let [ip, udp] = [16, 38].map(|at| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]])));
            assert_eq!([ip, udp], [bytes - 14, bytes - 34]);
        }
    }
}
