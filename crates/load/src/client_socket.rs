//! The socket of a connection, of any kind.

use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use linux::stamps::Stamp;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, ipproto, sockopt};

use crate::grpc::calls::Calls;
use crate::poller::{Poller, Tag};
use crate::socket::{receive, send};
use crate::target::{Ask, Target};
use crate::tls::Session;
use crate::verbs::{self, Verbs};
use crate::{Address, ConnectionError, VerbsTarget};

/// A socket that is connected or connecting.
#[derive(Debug)]
pub(crate) struct ClientSocket {
    socket: Socket,
    tls: Option<Session>,
    /// HTTP/2 and the gRPC calls over it.
    calls: Option<Box<Calls>>,
    /// Messages by RDMA verbs, agreed on over the socket.
    verbs: Option<Box<Verbs>>,
    /// True while the kernel is still connecting.
    connecting: bool,
    ready: bool,
    /// When the last bytes came, by the kernel's stamp; `None` in here: there was none. `None`: stamps are not wanted.
    came: Option<Option<Stamp>>,
}

/// A socket, which the library for HTTP/2 has to own too.
#[derive(Debug)]
enum Socket {
    Own(OwnedFd),
    Shared(Arc<OwnedFd>),
}

impl Deref for Socket {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        match self {
            Socket::Own(socket) => socket,
            Socket::Shared(socket) => socket,
        }
    }
}

/// What a read gave.
pub(crate) enum Received {
    Bytes(usize),
    Empty,
    End,
}

impl ClientSocket {
    /// The port that the kernel has chosen for this end.
    pub(crate) fn local_port(&self) -> Option<u16> {
        let address = rustix::net::getsockname(&*self.socket).ok()?;
        Some(SocketAddr::try_from(address).ok()?.port())
    }

    /// Starts a connection without waiting for it. Its socket is registered once, edge-triggered, for both directions:
    /// so a request costs one `send` and one `recv` and no `epoll_ctl`, but a reader must read until it is empty.
    pub(crate) fn open(
        target: &Target,
        stamps: bool,
        poller: &Poller,
        tag: Tag,
    ) -> Result<ClientSocket, ConnectionError> {
        let socket = socket(&target.address)?;
        if stamps {
            linux::stamps::enable(socket.as_fd()).map_err(|error| error_fault(&error.source))?;
        }
        let connecting = match connect(&socket, &target.address) {
            Ok(()) => false,
            Err(Errno::INPROGRESS) => true,
            // On a Unix socket, connecting fails at once if the queue of connections is full.
            Err(errno) => return Err(errno.into()),
        };
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        poller.add(&socket, tag, interest)?;
        let tls = target.tls.as_ref().map(Session::new).transpose()?;
        let verbs = verbs(target)?;
        if let Some(verbs) = &verbs {
            poller.add(&verbs.connection, tag, EventFlags::IN | EventFlags::ET)?;
        }
        let (socket, calls) = match (&target.ask, &target.address) {
            (Ask::Grpc { .. }, address) => {
                let socket = Arc::new(socket);
                let calls = Calls::new(Arc::clone(&socket), &address.to_string())?;
                (Socket::Shared(socket), Some(Box::new(calls)))
            }
            (Ask::Http(_) | Ask::Raw(_), _) => (Socket::Own(socket), None),
        };
        let came = stamps.then_some(None);
        Ok(ClientSocket { socket, tls, calls, verbs, connecting, ready: false, came })
    }

    /// Goes on with connecting. True when requests can be sent.
    pub(crate) fn progress(&mut self) -> Result<bool, ConnectionError> {
        if self.ready {
            return Ok(true);
        }
        if self.connecting {
            sockopt::socket_error(&*self.socket)??;
            // An event may have come before the connection was made: only the peer's name proves that there is one.
            if rustix::net::getpeername(&*self.socket).is_err() {
                return Ok(false);
            }
            self.connecting = false;
        }
        self.ready = match (&mut self.tls, &mut self.calls, &mut self.verbs) {
            (None, None, None) => true,
            (Some(session), ..) => session.handshake(&self.socket)?,
            (None, Some(calls), _) => calls.greet()?,
            (None, None, Some(verbs)) => verbs.agree(&self.socket)?,
        };
        Ok(self.ready)
    }

    /// Sends as much as the socket takes. What a TLS session is given it takes, and sends later.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<Option<usize>, ConnectionError> {
        match (&mut self.tls, &mut self.verbs) {
            (None, None) => Ok(send(&*self.socket, bytes)?),
            (Some(session), _) => session.send(&self.socket, bytes).map(|()| Some(bytes.len())),
            (None, Some(verbs)) => Ok(Some(verbs::put(&mut verbs.connection, bytes)?)),
        }
    }

    /// The socket takes bytes again.
    pub(crate) fn flush(&mut self) -> Result<(), ConnectionError> {
        self.tls.as_mut().map_or(Ok(()), |session| session.flush(&self.socket))
    }

    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> Result<Received, ConnectionError> {
        let received = match (&mut self.tls, &mut self.verbs) {
            (None, None) => self.receive_plain(buffer)?,
            (Some(session), _) => session.receive(&self.socket, buffer)?,
            (None, Some(verbs)) => verbs::take(&mut verbs.connection, &self.socket, buffer)?,
        };
        Ok(match received {
            None => Received::Empty,
            Some(0) => Received::End,
            Some(bytes) => Received::Bytes(bytes),
        })
    }

    /// The gRPC calls over HTTP/2.
    pub(crate) fn calls(&mut self) -> Result<&mut Calls, ConnectionError> {
        self.calls.as_deref_mut().ok_or(ConnectionError::Closed)
    }

    /// A datagram; one of no bytes is no end.
    pub(crate) fn receive_datagram(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, ConnectionError> {
        self.receive_plain(buffer)
    }

    fn receive_plain(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, ConnectionError> {
        let Some(came) = &mut self.came else { return Ok(receive(&*self.socket, buffer)?) };
        match linux::stamps::receive(self.socket.as_fd(), buffer) {
            Ok((bytes, stamp)) => {
                *came = stamp;
                Ok(Some(bytes))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error_fault(&error)),
        }
    }

    /// From the last packet that was sent to the last that came, by the kernel's stamps, in nanoseconds.
    pub(crate) fn wire_ns(&self) -> Option<u64> {
        self.came??.since(linux::stamps::sent(self.socket.as_fd())?)
    }

    /// Whether a session was resumed; `None` without TLS, and before the handshake is done.
    pub(crate) fn resumed(&self) -> Option<bool> {
        self.tls.as_ref()?.resumed()
    }

    /// Whether a message by RDMA verbs is there; false for anything else. It is looked for without a system call.
    pub(crate) fn has_message(&mut self) -> bool {
        // An error is one for the reader.
        self.verbs.as_mut().is_some_and(|verbs| verbs.connection.has_come().unwrap_or(true))
    }

    /// True if a read that did not fill the buffer has emptied the socket.
    pub(crate) fn short_read_empties(&self) -> bool {
        self.tls.is_none()
    }

    /// True if there are no bytes to read and the peer is still connected.
    pub(crate) fn is_quiet(&mut self) -> bool {
        if self.tls.is_some() || self.verbs.is_some() {
            // Between answers only session tickets come, and reading takes them in.
            return matches!(self.receive(&mut [0]), Ok(Received::Empty));
        }
        let mut byte = [0];
        let peeked = rustix::net::recv(&*self.socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        matches!(peeked, Err(Errno::AGAIN))
    }
}

fn error_fault(error: &io::Error) -> ConnectionError {
    error.raw_os_error().map_or(ConnectionError::Closed, ConnectionError::System)
}

/// The client's end of messages, with room for the longest.
fn verbs(target: &Target) -> Result<Option<Box<Verbs>>, ConnectionError> {
    match (&target.address, &target.ask) {
        (Address::Verbs(by), Ask::Raw(sizes)) => {
            let message_bytes = sizes.request_bytes.max(sizes.response_bytes);
            Ok(Some(Box::new(Verbs::new(by, message_bytes)?)))
        }
        _ => Ok(None),
    }
}

fn socket(address: &Address) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (family, kind, protocol) = match address {
        Address::Tcp(address) | Address::Verbs(VerbsTarget { address, .. }) => {
            (family(address), SocketType::STREAM, Some(ipproto::TCP))
        }
        Address::Udp(address) => (family(address), SocketType::DGRAM, Some(ipproto::UDP)),
        Address::Unix(_) => (AddressFamily::UNIX, SocketType::STREAM, None),
    };
    let socket = rustix::net::socket_with(family, kind, flags, protocol)?;
    if let Address::Tcp(_) | Address::Verbs(_) = address {
        sockopt::set_tcp_nodelay(&socket, true)?;
    }
    Ok(socket)
}

fn connect(socket: &OwnedFd, address: &Address) -> Result<(), Errno> {
    match address {
        Address::Tcp(address) | Address::Udp(address) | Address::Verbs(VerbsTarget { address, .. }) => {
            rustix::net::connect(socket, address)
        }
        Address::Unix(path) => rustix::net::connect(socket, &SocketAddrUnix::new(path)?),
    }
}

fn family(address: &SocketAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}
