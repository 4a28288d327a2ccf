//! TCP segments that belong to no connection of their receiver. A host answers one that arrives whole with a reset (RFC
//! 9293 §3.10.7.1), and drops one with a wrong checksum without a word. So a sender finds out, with no program at the
//! other end, whether what it leaves to a link comes out right: to fill in checksums, and to cut large packets.
//!
//! The socket is put into an open connection that no other program knows (`TCP_REPAIR`, made for moving processes
//! between machines), and sends in it as any other does. What leaves nothing to the link is made by hand and sent
//! beside it, as a segment of the same connection. So the resets for all meet the same receiver, which verifies
//! their checksums: over IPv6 a host leaves that of a reset to its own link, and what that one breaks must not count
//! for one kind alone.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto};

use crate::error::Attempt;
use crate::{IfName, Result};

/// The port "discard" (RFC 863). Whether a program listens there makes no difference: a listener resets such a
/// segment too.
const PORT: u16 = 9;
/// How many segments a large packet has, and the bytes of data in each: every path carries them (RFC 9293 §3.7.1).
const SEGMENTS: u32 = 8;
const SEGMENT_BYTES: u32 = 512;
/// The bytes of data in a small packet. An even number: the checksum is one of words.
const FEW_BYTES: usize = 2;
/// A TCP header without options in bytes.
const TCP_BYTES: usize = 20;
/// The number of the protocol (`IPPROTO_TCP`), and flags of a header (RFC 9293, 3.1).
const TCP: u8 = 6;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
/// The values of `TCP_REPAIR_QUEUE`, and of `TCP_REPAIR` for "go on without a probe of the window". Source:
/// include/uapi/linux/tcp.h.
const NO_QUEUE: u32 = 0;
const RECEIVED: u32 = 1;
const SENT: u32 = 2;
const OFF_WITHOUT_PROBE: u32 = u32::MAX;
/// A window that holds all that is sent.
const WINDOW: u32 = 65_535;

/// What the sender's kernel leaves to the link by which a packet leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeftToLink {
    /// Nothing: the checksum is in the packet.
    Nothing,
    /// To fill in the checksum of one segment, if the link says that it can.
    Checksum,
    /// To cut a packet of eight segments, and their checksums, if the link says that it can.
    Segmentation,
}

/// Asks one host over one link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpProbe {
    /// The link by which packets leave.
    pub link: IfName,
    /// An address of this host.
    pub from: IpAddr,
    /// The host that is asked, of the same family.
    pub to: IpAddr,
}

/// An open connection of which the other end knows nothing. However it ends, it sends no packet to say so.
struct Connection {
    socket: OwnedFd,
    port: u16,
    /// The number of the next byte, in both directions.
    number: u32,
}

impl TcpProbe {
    /// Sends once, and waits for the reset. False: none came in time, which may have other reasons
    /// than a wrong checksum.
    ///
    /// It takes `CAP_NET_ADMIN` and `CAP_NET_RAW`. No more than 0.9 s can be waited: after a second the kernel sends
    /// the first segment again, alone.
    ///
    /// # Errors
    /// The host has no way to the address by this link, a rule of its own forbids it, or the kernel lacks something.
    pub fn is_answered(&self, left: LeftToLink, patience: Duration) -> Result<bool> {
        let attempted = || format!("ask {} by {} whether TCP segments arrive", self.to, self.link);
        let until = Instant::now() + patience.min(Duration::from_millis(900));
        self.ask(left, until).attempt(attempted)
    }

    fn ask(&self, left: LeftToLink, until: Instant) -> Result<bool, Errno> {
        let connection = Connection::open(self)?;
        let sent = match left {
            LeftToLink::Nothing => self.send_by_hand(&connection),
            LeftToLink::Checksum => connection.send(FEW_BYTES),
            LeftToLink::Segmentation => connection.send((SEGMENTS * SEGMENT_BYTES) as usize),
        };
        match sent {
            // The answer was faster than the call's return.
            Err(Errno::CONNRESET) => Ok(true),
            Err(error) => Err(error),
            Ok(()) => connection.is_reset(until),
        }
    }

    /// Sends a small packet of a connection whose checksum is computed here.
    fn send_by_hand(&self, connection: &Connection) -> Result<(), Errno> {
        let socket = self.socket(SocketType::RAW)?;
        rustix::net::bind(&socket, &SocketAddr::new(self.from, 0))?;
        rustix::net::connect(&socket, &SocketAddr::new(self.to, 0))?;
        let segment = segment(self.from, self.to, connection.port, connection.number);
        rustix::net::send(&socket, &segment, SendFlags::empty()).map(drop)
    }

    fn socket(&self, kind: SocketType) -> Result<OwnedFd, Errno> {
        let family = if self.to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, kind, flags, Some(ipproto::TCP))?;
        set_bytes(&socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, self.link.as_str().as_bytes())?;
        Ok(socket)
    }
}

impl Connection {
    fn open(probe: &TcpProbe) -> Result<Connection, Errno> {
        let socket = probe.socket(SocketType::STREAM)?;
        let mut connection = Connection { socket, port: 0, number: random() };
        let Connection { socket, number, .. } = &connection;
        let tcp = |name, value: &[u32]| set(socket, libc::IPPROTO_TCP, name, value);
        tcp(libc::TCP_MAXSEG, &[SEGMENT_BYTES])?;
        tcp(libc::TCP_REPAIR, &[1])?;
        for queue in [SENT, RECEIVED] {
            tcp(libc::TCP_REPAIR_QUEUE, &[queue])?;
            tcp(libc::TCP_QUEUE_SEQ, &[*number])?;
        }
        tcp(libc::TCP_REPAIR_QUEUE, &[NO_QUEUE])?;
        rustix::net::bind(socket, &SocketAddr::new(probe.from, 0))?;
        rustix::net::connect(socket, &SocketAddr::new(probe.to, PORT))?;
        // struct tcp_repair_window: snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup.
        tcp(libc::TCP_REPAIR_WINDOW, &[*number, WINDOW, WINDOW, WINDOW, *number])?;
        tcp(libc::TCP_REPAIR, &[OFF_WITHOUT_PROBE])?;
        connection.port = SocketAddr::try_from(rustix::net::getsockname(socket)?)?.port();
        Ok(connection)
    }

    fn send(&self, bytes: usize) -> Result<(), Errno> {
        rustix::net::send(&self.socket, &vec![0; bytes], SendFlags::NOSIGNAL).map(drop)
    }

    /// Waits for the reset. False: it did not come.
    fn is_reset(&self, until: Instant) -> Result<bool, Errno> {
        await_events(&self.socket, PollFlags::ERR, until)?;
        Ok(matches!(rustix::net::sockopt::socket_error(&self.socket)?, Err(Errno::CONNRESET)))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Without it the kernel would end the connection with a packet, and send that and the data again for minutes.
        // One that was reset is over, and nothing is lost if it refuses.
        let _ = set(&self.socket, libc::IPPROTO_TCP, libc::TCP_REPAIR, &[1]);
    }
}

fn random() -> u32 {
    RandomState::new().build_hasher().finish() as u32
}

/// A segment with its checksum and a few bytes of data, as the kernel sends them. `number` is
/// where both directions are.
fn segment(from: IpAddr, to: IpAddr, port: u16, number: u32) -> [u8; TCP_BYTES + FEW_BYTES] {
    let mut segment = [0; TCP_BYTES + FEW_BYTES];
    segment[0..2].copy_from_slice(&port.to_be_bytes());
    segment[2..4].copy_from_slice(&PORT.to_be_bytes());
    segment[4..8].copy_from_slice(&number.to_be_bytes());
    segment[8..12].copy_from_slice(&number.to_be_bytes());
    segment[12] = ((TCP_BYTES / 4) as u8) << 4;
    segment[13] = ACK | PSH;
    segment[14..16].copy_from_slice(&(WINDOW as u16).to_be_bytes());
    let sum = checksum(from, to, &segment);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    segment
}

/// The checksum of a segment with its pseudo-header (RFC 9293 §3.1, RFC 8200 §8.1).
fn checksum(from: IpAddr, to: IpAddr, segment: &[u8]) -> u16 {
    let octets = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let length = [0, TCP, 0, segment.len() as u8];
    let words = [&octets(from), &octets(to), &length[..], segment].concat();
    let sum: u32 = words.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !(((folded & 0xffff) + (folded >> 16)) as u16)
}

/// Waits for events of a socket until an instant. False: there was none.
fn await_events(socket: &OwnedFd, events: PollFlags, until: Instant) -> Result<bool, Errno> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = rustix::time::Timespec::try_from(left).unwrap_or_default();
        match poll(&mut [PollFd::new(socket, events)], Some(&left)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Sets an option of numbers.
fn set(socket: &OwnedFd, level: i32, name: i32, values: &[u32]) -> Result<(), Errno> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    set_bytes(socket, level, name, &bytes)
}

fn set_bytes(socket: &OwnedFd, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
    let length = value.len() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes, which are those of `value`, and keeps no pointer.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), length) };
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_sums_up_to_nothing_with_its_pseudo_header() {
        for (from, to) in [("10.244.1.0", "10.244.2.0"), ("fd00:244:1::", "fd00:244:2::")] {
            let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
            let mut segment = segment(from, to, 50_000, 0xfedc_ba98);
            assert_eq!(checksum(from, to, &segment), 0, "{from}");
            segment[21] ^= 1;
            assert_ne!(checksum(from, to, &segment), 0, "{from}");
        }
    }
}
