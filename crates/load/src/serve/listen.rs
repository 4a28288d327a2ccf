//! Where a responder listens.

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, ipproto, sockopt};

use super::ServeError;

/// Connections that may wait to be accepted. The kernel takes the lesser of this and `net.core.somaxconn`.
const BACKLOG: i32 = 65_535;

/// An address and the protocol spoken there. Port 0 selects a free one; an IPv6 address accepts only IPv6.
///
/// As text: `ADDRESS:PORT` or `http:ADDRESS:PORT`, `https:ADDRESS:PORT`, `unix:PATH`, `tcp:ADDRESS:PORT`,
/// `udp:ADDRESS:PORT`, `grpc:ADDRESS:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// HTTP/1.1 over TCP.
    Http(SocketAddr),
    /// HTTP/1.1 over TLS.
    Https(SocketAddr),
    /// HTTP/1.1 over a Unix stream socket.
    HttpUnix(PathBuf),
    /// Requests and responses over TCP without content ([`super::Raw`]).
    Tcp(SocketAddr),
    /// The same over UDP.
    Udp(SocketAddr),
    /// gRPC over HTTP/2 in the clear.
    Grpc(SocketAddr),
}

/// A text that names no place to listen at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no place to listen: ADDRESS:PORT, https:ADDRESS:PORT, unix:PATH, tcp:ADDRESS:PORT, \
     udp:ADDRESS:PORT or grpc:ADDRESS:PORT is expected, the address in digits"
)]
pub struct NoListen(String);

impl Listen {
    /// Its Internet address; a Unix socket has none.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Listen::Http(address)
            | Listen::Https(address)
            | Listen::Tcp(address)
            | Listen::Udp(address)
            | Listen::Grpc(address) => Some(*address),
            Listen::HttpUnix(_) => None,
        }
    }

    /// Whether it is something else than HTTP that is spoken there.
    pub(super) fn is_raw(&self) -> bool {
        match self {
            Listen::Tcp(_) | Listen::Udp(_) | Listen::Grpc(_) => true,
            Listen::Http(_) | Listen::Https(_) | Listen::HttpUnix(_) => false,
        }
    }

    fn address_mut(&mut self) -> Option<&mut SocketAddr> {
        match self {
            Listen::Http(address)
            | Listen::Https(address)
            | Listen::Tcp(address)
            | Listen::Udp(address)
            | Listen::Grpc(address) => Some(address),
            Listen::HttpUnix(_) => None,
        }
    }
}

impl FromStr for Listen {
    type Err = NoListen;

    fn from_str(text: &str) -> Result<Listen, NoListen> {
        let bad = || NoListen(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(bad()) } else { Ok(Listen::HttpUnix(path.into())) };
        }
        let (kind, address) = ["http", "https", "tcp", "udp", "grpc"]
            .into_iter()
            .find_map(|kind| Some((kind, text.strip_prefix(kind)?.strip_prefix(':')?)))
            .unwrap_or(("http", text));
        let address = address.parse().map_err(|_| bad())?;
        Ok(match kind {
            "https" => Listen::Https(address),
            "tcp" => Listen::Tcp(address),
            "udp" => Listen::Udp(address),
            "grpc" => Listen::Grpc(address),
            _ => Listen::Http(address),
        })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Http(address) => write!(f, "{address}"),
            Listen::Https(address) => write!(f, "https:{address}"),
            Listen::HttpUnix(path) => write!(f, "unix:{}", path.display()),
            Listen::Tcp(address) => write!(f, "tcp:{address}"),
            Listen::Udp(address) => write!(f, "udp:{address}"),
            Listen::Grpc(address) => write!(f, "grpc:{address}"),
        }
    }
}

/// A socket of one thread.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    pub(super) speaks: Speaks,
    /// Other threads accept from the same queue. Each takes one connection at a time, or the first to wake would have
    /// all that came together.
    pub(super) shared: bool,
}

/// What comes in on a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaks {
    Http,
    HttpUnix,
    Https,
    Tcp,
    Udp,
    Grpc,
}

/// The file of a Unix socket, which would outlive it.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// The sockets of one thread. A port that the first thread was given is noted, and so is the port of the others too.
/// There is no `SO_REUSEPORT` between Unix sockets, so the others have the first thread's.
pub(super) fn listeners(
    places: &mut [Listen],
    first: Option<&[Listener]>,
    files: &mut Vec<SocketFile>,
) -> Result<Vec<Listener>, ServeError> {
    let mut listeners = Vec::new();
    for (index, listen) in places.iter_mut().enumerate() {
        let socket = match (&*listen, first) {
            (Listen::HttpUnix(_), Some(first)) => first[index].socket.try_clone(),
            (Listen::HttpUnix(path), None) => bind_unix(path).and_then(|socket| {
                files.push(SocketFile::at(path)?);
                Ok(socket)
            }),
            (Listen::Http(_) | Listen::Https(_) | Listen::Tcp(_) | Listen::Udp(_) | Listen::Grpc(_), _) => {
                bind_internet(listen).map_err(io::Error::from)
            }
        };
        let socket = socket.map_err(|why| ServeError::Listen { listen: listen.clone(), why })?;
        let (speaks, shared) = match listen {
            Listen::Http(_) => (Speaks::Http, false),
            Listen::Https(_) => (Speaks::Https, false),
            Listen::HttpUnix(_) => (Speaks::HttpUnix, true),
            Listen::Tcp(_) => (Speaks::Tcp, false),
            Listen::Udp(_) => (Speaks::Udp, false),
            Listen::Grpc(_) => (Speaks::Grpc, false),
        };
        listeners.push(Listener { socket, speaks, shared });
    }
    Ok(listeners)
}

fn bind_internet(listen: &mut Listen) -> Result<OwnedFd, Errno> {
    let stream = !matches!(listen, Listen::Udp(_));
    let address = listen.address_mut().expect("only a Unix socket has no address");
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let (kind, protocol) =
        if stream { (SocketType::STREAM, ipproto::TCP) } else { (SocketType::DGRAM, ipproto::UDP) };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, kind, flags, Some(protocol))?;
    if stream {
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    sockopt::set_socket_reuseport(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &*address)?;
    if stream {
        rustix::net::listen(&socket, BACKLOG)?;
    }
    *address = rustix::net::getsockname(&socket).and_then(SocketAddr::try_from)?;
    Ok(socket)
}

fn bind_unix(path: &Path) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let socket = unix_socket()?;
    match rustix::net::bind(&socket, &address) {
        Err(Errno::ADDRINUSE) if is_stale(path, &address)? => {
            fs::remove_file(path)?;
            rustix::net::bind(&socket, &address)?;
        }
        bound => bound?,
    }
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Whether the file is a socket whose owner has ended. Connecting to any other kind of file is refused in the same
/// way.
fn is_stale(path: &Path, address: &SocketAddrUnix) -> io::Result<bool> {
    let refused = rustix::net::connect(&unix_socket()?, address) == Err(Errno::CONNREFUSED);
    Ok(refused && fs::symlink_metadata(path)?.file_type().is_socket())
}

fn unix_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

impl SocketFile {
    fn at(path: &Path) -> io::Result<SocketFile> {
        let file = fs::symlink_metadata(path)?;
        Ok(SocketFile { path: path.to_owned(), device: file.dev(), inode: file.ino() })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another program may have put another file there meanwhile.
        let ours = |file: fs::Metadata| (file.dev(), file.ino()) == (self.device, self.inode);
        if fs::symlink_metadata(&self.path).is_ok_and(ours) {
            // There is no caller left to report the error to.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_what_is_typed() {
        let v4 = "127.0.0.1:80".parse().unwrap();
        let v6 = "[::1]:443".parse().unwrap();
        for (text, expected) in [
            ("127.0.0.1:80", Listen::Http(v4)),
            ("https:[::1]:443", Listen::Https(v6)),
            ("unix:/run/a b", Listen::HttpUnix("/run/a b".into())),
            ("tcp:[::1]:443", Listen::Tcp(v6)),
            ("udp:127.0.0.1:80", Listen::Udp(v4)),
            ("grpc:127.0.0.1:80", Listen::Grpc(v4)),
        ] {
            let listen: Listen = text.parse().unwrap();
            assert_eq!((&listen, listen.to_string().as_str()), (&expected, text));
        }
        assert_eq!("http:127.0.0.1:80".parse(), Ok(Listen::Http(v4)));
    }

    #[test]
    fn what_is_no_place_says_what_would_be() {
        for text in ["", "nowhere", "unix:", "tcp:", "tcp:80", "sctp:127.0.0.1:80", "localhost:80", "::1:80x"]
        {
            let error = text.parse::<Listen>().expect_err(text).to_string();
            assert!(error.starts_with(&format!("`{text}` ")) && error.contains("unix:PATH"), "{error}");
        }
    }
}
