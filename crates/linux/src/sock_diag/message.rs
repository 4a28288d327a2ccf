//! Parses `NETLINK_SOCK_DIAG` answers into sockets. Any input is accepted: a field that is cut short, or longer than
//! the data, ends the datagram or reads as zero, without a panic (`fuzz/fuzz_targets/sock_diag.rs`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};

/// A TCP socket as `struct inet_diag_msg` and its attributes describe it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct TcpSocket {
    /// Its number in the machine, never given twice.
    pub cookie: u64,
    /// Its state, `TCP_ESTABLISHED` = 1 and so on.
    pub state: u8,
    /// The local address and port.
    pub local: SocketAddr,
    pub peer: SocketAddr,
    /// Of a listener: connections that wait to be accepted. Else: bytes that wait to be read.
    pub rqueue: u32,
    /// Of a listener: how many may wait. Else: bytes that are not yet acknowledged.
    pub wqueue: u32,
    /// The user to whom it belongs.
    pub uid: u32,
    /// The congestion control's name; empty where the kernel reports none.
    pub congestion: String,
    /// TCP's own state; `None` for a listener or an ended connection.
    pub tcp: Option<TcpInfo>,
    pub memory: Option<SocketMemory>,
}

/// TCP's state of a connection (`struct tcp_info`). Times are in microseconds unless the name says otherwise; windows
/// called `cwnd` are in segments, others in bytes. All sums count from the start of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(
    missing_docs,
    reason = "the fields of struct tcp_info under the kernel's own names, without the prefix"
)]
pub struct TcpInfo {
    pub ca_state: u8,
    pub retransmits: u8,
    pub backoff: u8,
    pub app_limited: bool,
    pub rto: u32,
    pub snd_mss: u32,
    pub rcv_mss: u32,
    pub unacked: u32,
    pub lost: u32,
    pub last_data_sent_ms: u32,
    pub last_data_recv_ms: u32,
    pub pmtu: u32,
    pub rtt: u32,
    pub rttvar: u32,
    pub snd_ssthresh: u32,
    pub snd_cwnd: u32,
    pub advmss: u32,
    pub rcv_rtt: u32,
    pub rcv_space: u32,
    pub total_retrans: u32,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub segs_out: u32,
    pub segs_in: u32,
    pub notsent_bytes: u32,
    pub min_rtt: u32,
    pub data_segs_in: u32,
    pub data_segs_out: u32,
    pub delivery_rate: u64,
    pub busy_time: u64,
    pub rwnd_limited: u64,
    pub sndbuf_limited: u64,
    pub bytes_sent: u64,
    pub bytes_retrans: u64,
    pub dsack_dups: u32,
    pub reord_seen: u32,
    pub snd_wnd: u32,
    pub rcv_wnd: u32,
}

/// A socket's memory (`INET_DIAG_SKMEMINFO`), in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SocketMemory {
    /// Received and not yet read, with the kernel's own share of each packet.
    pub received: u32,
    /// What received packets may take.
    pub receive_buffer: u32,
    /// What packets to send may take.
    pub send_buffer: u32,
    /// Packets that this socket lost.
    pub drops: u32,
}

/// How a datagram ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DatagramEnd {
    /// The list goes on in the next datagram.
    Open,
    /// The list is complete.
    Complete,
    /// The kernel refused, or gave up within the list; the errno.
    Refused(i32),
}

pub(super) const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Attributes of an answer; a request selects them as `1 << (n - 1)`.
pub(super) const INET_DIAG_INFO: u16 = 2;
pub(super) const INET_DIAG_CONG: u16 = 4;
pub(super) const INET_DIAG_SKMEMINFO: u16 = 7;
/// Of `struct nlmsghdr` and of `struct inet_diag_msg`.
pub(super) const HEADER_BYTES: usize = 16;
const MESSAGE_BYTES: usize = 72;
/// `AF_INET`; any other family is IPv6.
const IPV4: u8 = 2;

/// Reads the messages of a datagram, and adds the sockets in them.
pub(crate) fn read_datagram(bytes: &[u8], sockets: &mut Vec<TcpSocket>) -> DatagramEnd {
    let mut rest = bytes;
    while rest.len() >= HEADER_BYTES {
        let length = (u32_at(rest, 0) as usize).clamp(HEADER_BYTES, rest.len());
        let kind = u16::from_ne_bytes([rest[4], rest[5]]);
        let body = &rest[HEADER_BYTES..length];
        // Both carry an errno below zero; the end of a list carries 0 where all is well.
        let errno = u32_at(body, 0).cast_signed().checked_neg().unwrap_or(i32::MAX);
        match kind {
            NLMSG_ERROR => return DatagramEnd::Refused(errno),
            NLMSG_DONE if errno > 0 => return DatagramEnd::Refused(errno),
            NLMSG_DONE => return DatagramEnd::Complete,
            SOCK_DIAG_BY_FAMILY => sockets.extend(read(body)),
            _ => {}
        }
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
    }
    DatagramEnd::Open
}

/// Reads a `struct inet_diag_msg` and its attributes; `None` if it is too short.
pub(crate) fn read(body: &[u8]) -> Option<TcpSocket> {
    if body.len() < MESSAGE_BYTES {
        return None;
    }
    let port = |at: usize| u16::from_be_bytes([body[at], body[at + 1]]);
    let mut socket = TcpSocket {
        state: body[1],
        local: SocketAddr::new(address(body[0], &body[8..24]), port(4)),
        peer: SocketAddr::new(address(body[0], &body[24..40]), port(6)),
        cookie: u64::from(u32_at(body, 44)) | u64::from(u32_at(body, 48)) << 32,
        rqueue: u32_at(body, 56),
        wqueue: u32_at(body, 60),
        uid: u32_at(body, 64),
        congestion: String::new(),
        tcp: None,
        memory: None,
    };
    let mut rest = &body[MESSAGE_BYTES..];
    while let [a, b, c, d, ..] = rest {
        let length = usize::from(u16::from_ne_bytes([*a, *b]));
        let Some(value) = rest.get(4..length) else { break };
        match u16::from_ne_bytes([*c, *d]) {
            INET_DIAG_INFO => socket.tcp = Some(TcpInfo::read(value)),
            INET_DIAG_CONG => {
                let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
                socket.congestion = String::from_utf8_lossy(name).into_owned();
            }
            INET_DIAG_SKMEMINFO => socket.memory = Some(SocketMemory::read(value)),
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(socket)
}

/// An IPv4 address in an IPv6 socket is returned as an IPv4 address.
fn address(family: u8, bytes: &[u8]) -> IpAddr {
    let all: [u8; 16] = bytes.try_into().expect("sixteen bytes are given");
    if family == IPV4 {
        return IpAddr::V4(Ipv4Addr::new(all[0], all[1], all[2], all[3]));
    }
    let address = Ipv6Addr::from(all);
    address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
}

impl TcpInfo {
    /// Offsets as in include/uapi/linux/tcp.h.
    fn read(bytes: &[u8]) -> TcpInfo {
        let byte = |at: usize| bytes.get(at).copied().unwrap_or_default();
        let word = |at: usize| u32_at(bytes, at);
        let long = |at: usize| u64_at(bytes, at);
        TcpInfo {
            ca_state: byte(1),
            retransmits: byte(2),
            backoff: byte(4),
            app_limited: byte(7) & 1 != 0,
            rto: word(8),
            snd_mss: word(16),
            rcv_mss: word(20),
            unacked: word(24),
            lost: word(32),
            last_data_sent_ms: word(44),
            last_data_recv_ms: word(52),
            pmtu: word(60),
            rtt: word(68),
            rttvar: word(72),
            snd_ssthresh: word(76),
            snd_cwnd: word(80),
            advmss: word(84),
            rcv_rtt: word(92),
            rcv_space: word(96),
            total_retrans: word(100),
            bytes_acked: long(120),
            bytes_received: long(128),
            segs_out: word(136),
            segs_in: word(140),
            notsent_bytes: word(144),
            min_rtt: word(148),
            data_segs_in: word(152),
            data_segs_out: word(156),
            delivery_rate: long(160),
            busy_time: long(168),
            rwnd_limited: long(176),
            sndbuf_limited: long(184),
            bytes_sent: long(200),
            bytes_retrans: long(208),
            dsack_dups: word(216),
            reord_seen: word(220),
            snd_wnd: word(228),
            rcv_wnd: word(232),
        }
    }
}

impl SocketMemory {
    /// The words of `SK_MEMINFO_*`, in their order.
    fn read(bytes: &[u8]) -> SocketMemory {
        SocketMemory {
            received: u32_at(bytes, 0),
            receive_buffer: u32_at(bytes, 4),
            send_buffer: u32_at(bytes, 12),
            drops: u32_at(bytes, 32),
        }
    }
}

/// Zero beyond the end, which an older kernel sets earlier.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |four| u32::from_ne_bytes(four.try_into().expect("four bytes")))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |eight| u64::from_ne_bytes(eight.try_into().expect("eight bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of a kind with a body.
    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER_BYTES + body.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn a_datagram_ends_as_the_kernel_says() {
        let read = |bytes: &[u8]| {
            let mut sockets = Vec::new();
            (read_datagram(bytes, &mut sockets), sockets.len())
        };
        let socket = message(SOCK_DIAG_BY_FAMILY, &[2; 72]);
        let done = message(NLMSG_DONE, &[0; 4]);
        let refused = |errno: i32| message(NLMSG_ERROR, &errno.to_ne_bytes());
        assert_eq!(read(&socket), (DatagramEnd::Open, 1));
        assert_eq!(read(&[&socket[..], &socket, &done, &socket].concat()), (DatagramEnd::Complete, 2));
        assert_eq!(read(&refused(-22)), (DatagramEnd::Refused(22), 0));
        // A list that ends with an error is not complete.
        assert_eq!(read(&message(NLMSG_DONE, &(-12_i32).to_ne_bytes())), (DatagramEnd::Refused(12), 0));
        // The least of all numbers has no positive one.
        assert_eq!(read(&refused(i32::MIN)), (DatagramEnd::Refused(i32::MAX), 0));
        assert_eq!(read(&socket[..40]), (DatagramEnd::Open, 0));
        assert_eq!(read(&[0; 64]), (DatagramEnd::Open, 0));
    }

    #[test]
    fn short_answers_are_filled_with_zeros() {
        let info = TcpInfo::read(&[1, 0, 3]);
        assert_eq!((info.retransmits, info.rtt, info.busy_time), (3, 0, 0));
        assert_eq!(read(&[2; 71]), None);
        assert!(read(&[2; 72]).unwrap().tcp.is_none());
        // An attribute that claims to be longer than the message.
        assert!(read(&[[2; 72].as_slice(), &[200, 0, 2, 0, 1]].concat()).unwrap().tcp.is_none());
    }
}
