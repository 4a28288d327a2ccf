//! ICMP echo requests of a given size that no router may fragment: with them it is found out what a path carries.
//!
//! Sources: RFC 792 and RFC 4443 §4 for the form of the messages; ip(7) and ipv6(7) for `IP_PMTUDISC_PROBE`: "don't
//! fragment" is set, and what the kernel itself believes of the path does not count.

mod message;

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};

pub use message::{Echo, EchoRefusal, IcmpMessage, IcmpReason, checksum};

use crate::Result;
use crate::error::Attempt;
use message::{ECHO_BYTES, read, request};

/// The headers of IP without options in bytes.
const V4_BYTES: usize = 20;
const V6_BYTES: usize = 40;
/// The most bytes of a packet.
const PACKET_BYTES_MAX: usize = 65_535;
/// How much may wait to be read, and how much to be sent, in bytes: a few hundred full packets.
const WAITING_BYTES: usize = 4 << 20;

/// A socket that asks for echoes, of one family. It is in the network namespace in which it was opened.
#[derive(Debug)]
pub struct EchoSocket {
    socket: OwnedFd,
    is_v6: bool,
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
        // What is sent waits for seconds where a neighbour is away, and would take the room from all other packets.
        let _ = sockopt::set_socket_send_buffer_size_force(&socket, WAITING_BYTES);
        Ok(EchoSocket { socket, is_v6 })
    }

    /// Sets after how many routers its packets end. With 1 the first one that is to forward a packet returns
    /// it with an error.
    ///
    /// # Errors
    /// The kernel refuses, as for 0.
    pub fn set_hop_limit(&self, hops: u8) -> Result<()> {
        let attempted = || format!("limit a socket's packets to {hops} hops");
        match self.is_v6 {
            false => sockopt::set_ip_ttl(&self.socket, hops.into()).attempt(attempted),
            true => sockopt::set_ipv6_unicast_hops(&self.socket, Some(hops)).attempt(attempted),
        }
    }

    /// Gives its packets a source address of the node's; otherwise the kernel chooses one. What comes to another
    /// address is no longer read.
    ///
    /// # Errors
    /// The node does not have the address.
    pub fn bind(&self, source: IpAddr) -> Result<()> {
        rustix::net::bind(&self.socket, &SocketAddr::new(source, 0))
            .attempt(|| format!("send echo requests from {source}"))
    }

    /// Whether its packets are those of IPv6.
    pub fn is_v6(&self) -> bool {
        self.is_v6
    }

    /// Sends a request whose IP packet has so many bytes. False: the way begins with a link that carries less, or there
    /// is no way at the moment, or nothing more can be sent now.
    ///
    /// # Errors
    /// The address is of another family, or the kernel refuses for another reason.
    pub fn ask(&self, to: IpAddr, id: u16, sequence: u16, packet_bytes: u32) -> Result<bool> {
        match self.send(to, id, sequence, packet_bytes) {
            Ok(()) => Ok(true),
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

    /// The same for callers that report why nothing was sent: `EMSGSIZE` where the link carries less, `ENETUNREACH`
    /// without a route, `EPERM` where a rule of this machine drops it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn try_ask(&self, to: IpAddr, id: u16, sequence: u16, packet_bytes: u32) -> Result<()> {
        self.send(to, id, sequence, packet_bytes).attempt(|| format!("send a packet to {to}"))
    }

    /// Whether [`EchoSocket::try_ask`] failed since too much waits to be sent: the same packet may be sent later.
    pub fn lacks_room(error: &crate::Error) -> bool {
        let errno = error.source.raw_os_error().map(Errno::from_raw_os_error);
        matches!(errno, Some(Errno::NOBUFS | Errno::AGAIN))
    }

    fn send(&self, to: IpAddr, id: u16, sequence: u16, packet_bytes: u32) -> Result<(), Errno> {
        let headers = if self.is_v6 { V6_BYTES } else { V4_BYTES };
        let bytes = (packet_bytes as usize).clamp(headers + ECHO_BYTES, PACKET_BYTES_MAX) - headers;
        let message = request(self.is_v6, id, sequence, bytes);
        rustix::net::sendto(&self.socket, &message, SendFlags::empty(), &SocketAddr::new(to, 0)).map(drop)
    }

    /// The next answer that comes until an instant; `None`: none came.
    ///
    /// # Errors
    /// The socket cannot be read.
    pub fn next_answer(&self, until: Instant) -> Result<Option<Echo>> {
        loop {
            match self.next_message()? {
                Some(IcmpMessage::Reply(echo)) => return Ok(Some(echo)),
                // What a router says of a request is not believed here.
                Some(IcmpMessage::Refusal(_)) => {}
                None if !EchoSocket::await_any(&[self], until)? => return Ok(None),
                None => {}
            }
        }
    }

    /// The next message that has come about an echo request, this socket's or another one's of this
    /// machine; `None`: none waits.
    ///
    /// # Errors
    /// The socket cannot be read.
    pub fn next_message(&self) -> Result<Option<IcmpMessage>> {
        let mut packet = [0; 128];
        loop {
            match rustix::net::recvfrom(&self.socket, &mut packet, RecvFlags::empty()) {
                // What does not fit is cut off, and other messages are read past.
                Ok((bytes, _, from)) => {
                    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                    let bytes = packet.get(..bytes).unwrap_or_default();
                    if let Some(message) = from.and_then(|from| read(self.is_v6, from.ip(), bytes)) {
                        return Ok(Some(message));
                    }
                }
                Err(Errno::AGAIN) => return Ok(None),
                // What a router says of an earlier request, which comes as a message, too.
                Err(
                    Errno::INTR
                    | Errno::MSGSIZE
                    | Errno::HOSTUNREACH
                    | Errno::NETUNREACH
                    | Errno::ACCESS
                    | Errno::PROTO
                    | Errno::NOPROTOOPT
                    | Errno::CONNREFUSED,
                ) => {}
                Err(error) => return Err(error).attempt(|| "read answers to echo requests"),
            }
        }
    }

    /// Waits until one of several sockets has something to read, or until an instant. False: nothing came.
    ///
    /// # Errors
    /// They cannot be waited for.
    pub fn await_any(sockets: &[&EchoSocket], until: Instant) -> Result<bool> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        // The kernel's own limit is 292 years of nanoseconds.
        let left = rustix::time::Timespec::try_from(left).unwrap_or_default();
        let mut polled: Vec<PollFd<'_>> =
            sockets.iter().map(|socket| PollFd::new(&socket.socket, PollFlags::IN)).collect();
        match poll(&mut polled, Some(&left)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(error).attempt(|| "wait for answers to echo requests"),
        }
    }
}
