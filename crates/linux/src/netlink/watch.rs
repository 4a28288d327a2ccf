//! Changes in a namespace, as the kernel announces them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use ipnet::IpNet;
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::route::RouteMessage;

use super::answer::split;
use super::route::read;
use crate::{Error, Netns, Result};

/// The groups of notices (`RTNLGRP_…` in linux/rtnetlink.h): links, neighbours with forwarding entries, addresses and
/// routes of both families.
const GROUPS: [u32; 6] = [1, 3, 5, 7, 9, 11];
/// Bytes of notices that may wait to be read. A thousand routes that come at once are about 120 KiB.
const QUEUE_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of one notice: a link with many attributes has a few KiB.
const NOTICE_BYTES: usize = 64 * 1024;

/// A socket on which the kernel announces changes in the namespace in which it was opened.
#[derive(Debug)]
pub struct Watch {
    socket: netlink_sys::Socket,
    buffer: Vec<u8>,
}

/// Something that has changed. What it is now is to be asked for: the next notice may be on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A link came, went or has another property.
    Link {
        /// The index of the link.
        index: u32,
    },
    /// An address came or went.
    Address {
        /// The index of its link.
        index: u32,
    },
    /// A route came, went or leads elsewhere.
    Route {
        /// The number of the table (254 is the main one).
        table: u32,
        /// The destinations that the route is for.
        dst: IpNet,
        /// It went, and none has taken its place in the same moment.
        is_gone: bool,
    },
    /// A neighbour or a forwarding entry came, went or has another address.
    Neighbour {
        /// The index of its link.
        index: u32,
    },
    /// More changed than could be kept: anything may have.
    Anything,
}

impl Watch {
    /// Watches the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel refuses a socket.
    pub fn open() -> Result<Watch> {
        let open = || {
            let mut socket = netlink_sys::Socket::new(netlink_sys::protocols::NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.set_non_blocking(true)?;
            socket.set_rx_buf_sz(QUEUE_BYTES)?;
            for group in GROUPS {
                socket.add_membership(group)?;
            }
            Ok(socket)
        };
        let socket = open().map_err(|error: io::Error| Error::new("watch the network", error))?;
        Ok(Watch { socket, buffer: Vec::with_capacity(NOTICE_BYTES) })
    }

    /// Watches another namespace.
    ///
    /// # Errors
    /// As of [`Watch::open`], or it cannot be entered.
    pub fn open_in(netns: &Netns) -> Result<Watch> {
        netns.run(Watch::open)?
    }

    /// What has changed since the last call; nothing if the socket is not readable.
    ///
    /// # Errors
    /// The socket cannot be read.
    pub fn changes(&mut self) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        loop {
            self.buffer.clear();
            match self.socket.recv(&mut self.buffer, libc::MSG_TRUNC) {
                Ok(length) if length > self.buffer.len() => changes.push(Change::Anything),
                Ok(_) => self.read(&mut changes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(changes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => changes.push(Change::Anything),
                Err(error) => return Err(Error::new("read the kernel's notices of the network", error)),
            }
        }
    }

    /// Reads the notices of a datagram. One that is not understood may be about anything.
    fn read(&self, changes: &mut Vec<Change>) {
        let mut rest = &self.buffer[..];
        loop {
            match split(&mut rest) {
                Ok(None) => return,
                Ok(Some((_, bytes))) => match NetlinkMessage::<Message>::deserialize(bytes) {
                    Ok(message) => changes.extend(change(message.payload)),
                    Err(_) => changes.push(Change::Anything),
                },
                Err(_) => {
                    changes.push(Change::Anything);
                    return;
                }
            }
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// `None` for what is no change of those, such as a route that the kernel keeps for itself.
fn change(payload: NetlinkPayload<Message>) -> Option<Change> {
    let NetlinkPayload::InnerMessage(message) = payload else { return None };
    match message {
        Message::NewLink(link) | Message::DelLink(link) => Some(Change::Link { index: link.header.index }),
        Message::NewAddress(address) | Message::DelAddress(address) => {
            Some(Change::Address { index: address.header.index })
        }
        Message::NewNeighbour(entry) | Message::DelNeighbour(entry) => {
            Some(Change::Neighbour { index: entry.header.ifindex })
        }
        Message::NewRoute(route) => of_route(route, false),
        Message::DelRoute(route) => of_route(route, true),
        _ => None,
    }
}

fn of_route(route: RouteMessage, is_gone: bool) -> Option<Change> {
    let info = read(&Message::NewRoute(route))?;
    Some(Change::Route { table: info.table, dst: info.dst, is_gone })
}
