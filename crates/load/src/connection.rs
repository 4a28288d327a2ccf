//! One permanent connection: its socket, and the request that is open on it.
//!
//! Every socket is registered once, edge-triggered, for both directions. So a request costs one `send` and one `recv`
//! and no `epoll_ctl`, and whoever reads must read until the socket is empty.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, sockopt};

use crate::response::{Malformed, Parser};

/// Why a connection broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The kernel's word: refused, reset, timed out. The number is `errno`.
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    System(i32),
    /// The peer closed without having answered.
    #[error("the server closed the connection without an answer")]
    Closed,
    /// What came was no HTTP response.
    #[error("{0}")]
    Malformed(#[from] Malformed),
    /// Bytes came that nobody had asked for.
    #[error("the server sent bytes that no request had asked for")]
    Unasked,
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Fault {
        Fault::System(errno.raw_os_error())
    }
}

/// The two instants of a request that waits for its answer, in nanoseconds of the run's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    pub(crate) intended_ns: u64,
    pub(crate) sent_ns: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Phase {
    /// There is no socket; it will be tried again.
    Down,
    Connecting,
    /// Ready for a request since the clock's reading with which its last answer was read, or with which it was made.
    Free {
        since_ns: u64,
    },
    Busy(Open),
}

#[derive(Debug)]
pub(crate) struct Connection {
    socket: Option<OwnedFd>,
    pub(crate) phase: Phase,
    pub(crate) parser: Parser,
    /// Bytes of the open request that the socket did not take yet.
    unsent: usize,
    /// Answers since the socket was made.
    pub(crate) answers: u64,
    /// True while its index stands in the queue of free connections.
    pub(crate) queued: bool,
    /// Goes up with every socket, so that an event of the one before is known as such.
    generation: u32,
}

/// What a read gave.
pub(crate) enum Received {
    Bytes(usize),
    Empty,
    End,
}

impl Connection {
    pub(crate) fn new() -> Connection {
        Connection {
            socket: None,
            phase: Phase::Down,
            parser: Parser::default(),
            unsent: 0,
            answers: 0,
            queued: false,
            generation: 0,
        }
    }

    /// Starts a new socket towards the address without waiting for it. Its first event tells what came of it.
    pub(crate) fn open(&mut self, index: u32, epoll: &OwnedFd, address: SocketAddr) -> Result<(), Errno> {
        self.close();
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno),
        }
        self.generation = self.generation.wrapping_add(1);
        let data = epoll::EventData::new_u64(u64::from(self.generation) << 32 | u64::from(index));
        let interest = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP;
        epoll::add(epoll, &socket, data, interest | epoll::EventFlags::ET)?;
        self.socket = Some(socket);
        self.phase = Phase::Connecting;
        Ok(())
    }

    /// The index of the connection that an event is for, and whether the event is its socket's.
    pub(crate) fn of_event(connections: &[Connection], event: epoll::Event) -> Option<u32> {
        let data = { event.data }.u64();
        let (generation, index) = ((data >> 32) as u32, data as u32);
        let connection = connections.get(index as usize)?;
        (connection.generation == generation && connection.socket.is_some()).then_some(index)
    }

    /// Gives the socket up, and with it what was open on it.
    pub(crate) fn close(&mut self) {
        self.socket = None;
        self.phase = Phase::Down;
        self.parser.reset();
        self.unsent = 0;
        self.answers = 0;
    }

    /// Asks whether the socket that was connecting is connected now.
    pub(crate) fn finish_connect(&self) -> Result<(), Errno> {
        sockopt::socket_error(self.socket()?)?
    }

    /// Sends a request. What the socket does not take now is sent by [`Connection::send_rest`].
    pub(crate) fn send(&mut self, request: &[u8]) -> Result<(), Errno> {
        self.unsent = request.len();
        self.send_rest(request)
    }

    pub(crate) fn send_rest(&mut self, request: &[u8]) -> Result<(), Errno> {
        while self.unsent > 0 {
            let rest = &request[request.len() - self.unsent..];
            let sent = rustix::net::send(self.socket()?, rest, SendFlags::NOSIGNAL);
            match sent {
                Ok(sent) => self.unsent -= sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<Received, Errno> {
        loop {
            match rustix::net::recv(self.socket()?, &mut *buffer, RecvFlags::empty()) {
                Ok((0, _)) => return Ok(Received::End),
                Ok((bytes, _)) => return Ok(Received::Bytes(bytes)),
                Err(Errno::AGAIN) => return Ok(Received::Empty),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// True if the connection waits for a request: established, nothing open, nothing left unread, not closed.
    pub(crate) fn is_clean(&self) -> bool {
        let mut byte = [0];
        let Ok(socket) = self.socket() else { return false };
        let peeked = rustix::net::recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        matches!(self.phase, Phase::Free { .. }) && matches!(peeked, Err(Errno::AGAIN))
    }

    fn socket(&self) -> Result<BorrowedFd<'_>, Errno> {
        self.socket.as_ref().map(AsFd::as_fd).ok_or(Errno::NOTCONN)
    }
}
