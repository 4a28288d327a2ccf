//! UDP connections as netfilter tracks them (ctnetlink): those of one family are listed, and forgotten one by one.
//!
//! Rules of address translation see the first packet of a connection only. Its entry leads all later ones, and each of
//! them renews it: a client that keeps its source port keeps its entry, whatever the rules say by now.
//!
//! Source: include/uapi/linux/netfilter/nfnetlink_conntrack.h, net/netfilter/nf_conntrack_netlink.c; the bits of a
//! filter are in net/netfilter/nf_internals.h.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Mutex;

use netlink_packet_core::NLM_F_ACK;
use netlink_sys::protocols::NETLINK_NETFILTER;

use super::generic::{Attributes, MessageBody, Packet};
use super::socket::Socket;
use crate::error::Attempt;
use crate::{Netns, Result};

/// `NFNL_SUBSYS_CTNETLINK`, in the upper byte of a message's type.
const SUBSYSTEM: u16 = 1;
/// `IPCTNL_MSG_CT_GET` and `…_DELETE`, in the lower byte.
const GET: u16 = SUBSYSTEM << 8 | 1;
const DELETE: u16 = SUBSYSTEM << 8 | 2;

/// `CTA_TUPLE_ORIG` and `…_REPLY`: the ends of the first packet and those of an answer to it.
const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
/// `CTA_ID` and `CTA_ZONE`, which distinguish connections with the same ends; an identifier may come again.
const ID: u16 = 12;
const ZONE: u16 = 18;
/// `CTA_FILTER`, with `CTA_FILTER_ORIG_FLAGS` in it: which parts of the original ends an entry must have (Linux 5.8).
const FILTER: u16 = 25;
const FILTER_ORIGINAL: u16 = 1;
/// `CTA_FILTER_F_CTA_PROTO_NUM` and `…_PROTO_DST_PORT`.
const BY_PROTOCOL: u32 = 1 << 3;
const BY_DESTINATION_PORT: u32 = 1 << 5;

/// `CTA_TUPLE_IP` and `…_PROTO`, within the ends.
const ADDRESSES: u16 = 1;
const TRANSPORT: u16 = 2;
/// `CTA_IP_V4_SRC`, `…_V4_DST`, `…_V6_SRC`, `…_V6_DST`.
const SOURCE_V4: u16 = 1;
const DESTINATION_V4: u16 = 2;
const SOURCE_V6: u16 = 3;
const DESTINATION_V6: u16 = 4;
/// `CTA_PROTO_NUM`, `…_SRC_PORT`, `…_DST_PORT`; ports are in network order.
const PROTOCOL: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;

const UDP: u8 = libc::IPPROTO_UDP as u8;
/// Bytes of `struct nfgenmsg`: family, version 0, and a resource of 16 bits.
const HEADER_BYTES: usize = 4;

/// A netfilter socket of one namespace.
#[derive(Debug)]
pub struct Conntrack {
    /// `None`: the kernel has no netfilter.
    socket: Option<Mutex<Socket>>,
    place: String,
}

/// A UDP connection as netfilter tracks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackedUdp {
    /// Where its first packet went to.
    pub to: SocketAddr,
    /// Where its answers come from: the same, or what that destination was translated to.
    pub answered_from: SocketAddr,
    /// The attributes by which the kernel finds it again.
    key: Vec<u8>,
}

impl Conntrack {
    /// A socket of the given namespace.
    pub fn open_in(netns: &Netns) -> Result<Conntrack> {
        let place = netns.describe();
        let attempted = || format!("open a netfilter socket in {place}");
        let socket = match netns.run(|| Socket::open(NETLINK_NETFILTER))?.attempt(attempted) {
            Err(error) if error.is(libc::EPROTONOSUPPORT) => None,
            socket => Some(Mutex::new(socket?)),
        };
        Ok(Conntrack { socket, place })
    }

    /// The UDP connections of one family, to one port if `port` names one. None in a kernel without ctnetlink.
    ///
    /// The kernel looks at its whole table, which takes milliseconds; what does not match is not copied.
    ///
    /// # Errors
    /// The user may not query netfilter.
    pub fn udp(&self, ipv6: bool, port: Option<u16>) -> Result<Vec<TrackedUdp>> {
        let Some(socket) = &self.socket else { return Ok(Vec::new()) };
        let attempted = || format!("list tracked connections of UDP in {}", self.place);
        let question = message(GET, ipv6, question(port).bytes());
        let answers = match socket.lock().expect("no exchange panics").dump(&question).attempt(attempted) {
            // Netfilter is there, and ctnetlink is not.
            Err(error) if error.is(libc::EINVAL) => return Ok(Vec::new()),
            answers => answers?,
        };
        let found = answers.iter().filter_map(|answer| read(answer.bytes.get(HEADER_BYTES..)?));
        Ok(found.filter(|found| port.is_none_or(|port| found.to.port() == port)).collect())
    }

    /// Forgets a connection, so that the rules see its next packet. False if it was gone.
    ///
    /// # Errors
    /// The user may not change netfilter.
    pub fn untrack(&self, connection: &TrackedUdp) -> Result<bool> {
        let attempted = || format!("forget the tracked connection to {} in {}", connection.to, self.place);
        let Some(socket) = &self.socket else { return Ok(false) };
        let request = message(DELETE, connection.to.is_ipv6(), &connection.key);
        let answers: io::Result<Vec<Packet>> =
            socket.lock().expect("no exchange panics").exchange(request, NLM_F_ACK);
        match answers.attempt(attempted) {
            Ok(_) => Ok(true),
            Err(error) if error.is(libc::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// What asks for UDP, and for a port of its destination.
fn question(port: Option<u16>) -> MessageBody {
    let mut transport = MessageBody::default();
    transport.put(PROTOCOL, &[UDP]);
    let mut parts = BY_PROTOCOL;
    if let Some(port) = port {
        transport.put(DESTINATION_PORT, &port.to_be_bytes());
        parts |= BY_DESTINATION_PORT;
    }
    let (mut ends, mut filter, mut question) =
        (MessageBody::default(), MessageBody::default(), MessageBody::default());
    ends.nest(TRANSPORT, &transport);
    filter.put_u32(FILTER_ORIGINAL, parts);
    question.nest(ORIGINAL, &ends);
    question.nest(FILTER, &filter);
    question
}

fn message(kind: u16, ipv6: bool, attributes: &[u8]) -> Packet {
    let family = if ipv6 { libc::NFPROTO_IPV6 } else { libc::NFPROTO_IPV4 };
    Packet { family: kind, bytes: [&[family as u8, 0, 0, 0], attributes].concat() }
}

/// `None` for a connection of another protocol, or one that is not whole.
fn read(bytes: &[u8]) -> Option<TrackedUdp> {
    let all = Attributes::of(bytes);
    let (original, reply) = (all.within(ORIGINAL), all.within(REPLY));
    if original.within(TRANSPORT).get(PROTOCOL)? != [UDP] {
        return None;
    }
    let end = |ends: Attributes<'_>, v4, v6, port| {
        let port = ends.within(TRANSPORT).get(port)?.try_into().ok()?;
        Some(SocketAddr::new(address(ends.within(ADDRESSES), v4, v6)?, u16::from_be_bytes(port)))
    };
    let mut key = MessageBody::default();
    key.put(ORIGINAL, all.get(ORIGINAL)?);
    for number in [ID, ZONE] {
        if let Some(value) = all.get(number) {
            key.put(number, value);
        }
    }
    Some(TrackedUdp {
        to: end(original, DESTINATION_V4, DESTINATION_V6, DESTINATION_PORT)?,
        answered_from: end(reply, SOURCE_V4, SOURCE_V6, SOURCE_PORT)?,
        key: key.bytes().to_vec(),
    })
}

fn address(addresses: Attributes<'_>, v4: u16, v6: u16) -> Option<IpAddr> {
    match (addresses.get(v4), addresses.get(v6)) {
        (Some(bytes), _) => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        (None, Some(bytes)) => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        (None, None) => None,
    }
}
