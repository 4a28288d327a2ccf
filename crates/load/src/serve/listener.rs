//! The sockets on which a responder listens.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, ipproto, sockopt};

use super::{Listen, ServeError};

/// Connections that may wait to be accepted. The kernel takes the lesser of this and `net.core.somaxconn`.
const BACKLOG: i32 = 65_535;

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
    Verbs,
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
            (
                Listen::Http(_)
                | Listen::Https(_)
                | Listen::Tcp(_)
                | Listen::Udp(_)
                | Listen::Grpc(_)
                | Listen::Verbs(_),
                _,
            ) => bind_internet(listen).map_err(io::Error::from),
        };
        let socket = socket.map_err(|why| ServeError::Listen { listen: listen.clone(), why })?;
        let (speaks, shared) = match listen {
            Listen::Http(_) => (Speaks::Http, false),
            Listen::Https(_) => (Speaks::Https, false),
            Listen::HttpUnix(_) => (Speaks::HttpUnix, true),
            Listen::Tcp(_) => (Speaks::Tcp, false),
            Listen::Udp(_) => (Speaks::Udp, false),
            Listen::Grpc(_) => (Speaks::Grpc, false),
            Listen::Verbs(_) => (Speaks::Verbs, false),
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

pub(super) fn bind_unix(path: &Path) -> io::Result<OwnedFd> {
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
    pub(super) fn at(path: &Path) -> io::Result<SocketFile> {
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
