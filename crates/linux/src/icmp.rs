//! ICMP echo requests of a given size that no router may fragment: with them it is found out what a path carries.
//!
//! Sources: RFC 792 and RFC 4443 §4 for the form of the messages; ip(7) and ipv6(7) for `IP_PMTUDISC_PROBE`: "don't
//! fragment" is set, and what the kernel itself believes of the path does not count.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};

use crate::Result;
use crate::error::Attempt;

/// The header of an echo message in bytes.
const ECHO_BYTES: usize = 8;
/// The headers of IP without options in bytes.
const V4_BYTES: usize = 20;
const V6_BYTES: usize = 40;
/// The most bytes of a packet.
const PACKET_BYTES_MAX: usize = 65_535;
/// How much may wait to be read, in bytes: the answers of a few hundred full packets.
const WAITING_BYTES: usize = 4 << 20;

/// A socket that asks for echoes, of one family. It is in the network namespace in which it was opened.
#[derive(Debug)]
pub struct EchoSocket {
    socket: OwnedFd,
    is_v6: bool,
}

/// An answer to an echo request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo {
    /// Who answers.
    pub from: IpAddr,
    /// What the request had, by which the asker knows its own.
    pub id: u16,
    /// What the request had.
    pub sequence: u16,
}

impl EchoSocket {
    /// Opens a raw socket, which takes `CAP_NET_RAW`.
    ///
    /// # Errors
    /// It may not be opened, or the kernel lacks the family.
    pub fn open(is_v6: bool) -> Result<EchoSocket> {
        let attempted = || format!("open a socket for ICMP{}", if is_v6 { "v6" } else { "" });
        let (family, protocol) = match is_v6 {
            false => (AddressFamily::INET, ipproto::ICMP),
            true => (AddressFamily::INET6, ipproto::ICMPV6),
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(family, SocketType::RAW, flags, Some(protocol)).attempt(attempted)?;
        if is_v6 {
            sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE).attempt(attempted)?;
        } else {
            sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE).attempt(attempted)?;
        }
        // With less, answers are lost where many come at once.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, WAITING_BYTES);
        Ok(EchoSocket { socket, is_v6 })
    }

    /// Whether its packets are those of IPv6.
    pub fn is_v6(&self) -> bool {
        self.is_v6
    }

    /// Sends a request whose IP packet has so many bytes. False: the way begins with a link that carries less, or there is no
    /// way at the moment, or nothing more can be sent now.
    ///
    /// # Errors
    /// The address is of another family, or the kernel refuses for another reason.
    pub fn ask(&self, to: IpAddr, id: u16, sequence: u16, packet_bytes: u32) -> Result<bool> {
        let headers = if self.is_v6 { V6_BYTES } else { V4_BYTES };
        let bytes = (packet_bytes as usize).clamp(headers + ECHO_BYTES, PACKET_BYTES_MAX) - headers;
        let message = request(self.is_v6, id, sequence, bytes);
        match rustix::net::sendto(&self.socket, &message, SendFlags::empty(), &SocketAddr::new(to, 0)) {
            Ok(_) => Ok(true),
            Err(
                Errno::MSGSIZE
                | Errno::NETUNREACH
                | Errno::HOSTUNREACH
                | Errno::NETDOWN
                | Errno::NOBUFS
                | Errno::AGAIN
                | Errno::PERM,
            ) => Ok(false),
            Err(error) => Err(error).attempt(|| format!("ask {to} for an echo")),
        }
    }

    /// The next answer that comes until an instant; `None`: none came.
    ///
    /// # Errors
    /// The socket cannot be read.
    pub fn next_answer(&self, until: Instant) -> Result<Option<Echo>> {
        let attempted = || "read answers to echo requests".to_owned();
        let mut packet = [0; 128];
        loop {
            match rustix::net::recvfrom(&self.socket, &mut packet, RecvFlags::empty()) {
                // What does not fit is cut off, and answers nobody asks for are read past.
                Ok((bytes, _, from)) => {
                    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                    let read = packet.get(..bytes).unwrap_or_default();
                    if let Some(echo) = from.and_then(|from| answer(self.is_v6, from.ip(), read)) {
                        return Ok(Some(echo));
                    }
                }
                Err(Errno::AGAIN) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() || !self.wait(left).attempt(attempted)? {
                        return Ok(None);
                    }
                }
                // What a router says of an earlier request.
                Err(
                    Errno::INTR
                    | Errno::MSGSIZE
                    | Errno::HOSTUNREACH
                    | Errno::NETUNREACH
                    | Errno::CONNREFUSED,
                ) => {}
                Err(error) => return Err(error).attempt(attempted),
            }
        }
    }

    /// Whether something can be read within so long.
    fn wait(&self, left: Duration) -> io::Result<bool> {
        // The kernel's own limit is 292 years of nanoseconds.
        let left = rustix::time::Timespec::try_from(left).unwrap_or_default();
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&left)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

/// An echo request of so many bytes, its header among them.
fn request(is_v6: bool, id: u16, sequence: u16, bytes: usize) -> Vec<u8> {
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

/// The Internet checksum (RFC 1071) of a message whose own is 0.
fn checksum(message: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    let mut sum: u32 = message.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Reads a received packet: over IPv4 with its IP header, over IPv6 without. `None` if it is no answer to an echo request.
fn answer(is_v6: bool, from: IpAddr, packet: &[u8]) -> Option<Echo> {
    let header = if is_v6 { 0 } else { usize::from(packet.first()? & 0x0f) * 4 };
    let message = packet.get(header..)?;
    let reply = if is_v6 { 129 } else { 0 };
    let word = |at: usize| Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]));
    (message.first() == Some(&reply)).then_some(())?;
    Some(Echo { from, id: word(4)?, sequence: word(6)? })
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
        let echo = Some(Echo { from, id: 1, sequence: 2 });
        let reply = [0, 0, 0, 0, 0, 1, 0, 2];
        let with_header = |words: u8, message: &[u8]| {
            let mut packet = vec![0; usize::from(words) * 4];
            packet[0] = 0x40 | words;
            packet.extend(message);
            packet
        };
        assert_eq!(answer(false, from, &with_header(5, &reply)), echo);
        assert_eq!(answer(false, from, &with_header(15, &reply)), echo, "with options");
        assert_eq!(answer(true, from, &[129, 0, 0, 0, 0, 1, 0, 2]), echo);
        for packet in
            [vec![], vec![0x45], with_header(5, &reply[..7]), with_header(5, &[8, 0, 0, 0, 0, 1, 0, 2])]
        {
            assert_eq!(answer(false, from, &packet), None, "{packet:?}");
        }
        assert_eq!(answer(true, from, &[128, 0, 0, 0, 0, 1, 0, 2]), None);
    }
}
