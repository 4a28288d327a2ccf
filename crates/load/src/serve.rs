//! A responder: the same answer for everybody, as fast as one thread a CPU can give it.
//!
//! It stands in for nginx where that is not installed, and its answers look like nginx's for a static file: a head of
//! about 250 bytes, so that a body of 100 bytes is about 350 bytes on the wire. `/` has the default size, `/N` has N
//! bytes up to [`BODY_BYTES_MAX`], all else is not found.
//!
//! Each thread has a listening socket of its own on the same address (`SO_REUSEPORT`), and nothing is shared but the
//! flag that ends it.

mod answers;
mod date;
mod peer;
mod request;
mod responder;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use linux::{CpuSet, cpu};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

pub use answers::BODY_BYTES_MAX;

use crate::LoadError;
use responder::Responder;

/// Connections that may wait to be accepted. The kernel takes the lesser of this and `net.core.somaxconn`.
const BACKLOG: i32 = 65_535;

/// How a responder is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where to listen. Port 0 takes a free one; an IPv6 address takes IPv6 alone.
    pub listen: Vec<SocketAddr>,
    /// Bytes of the body of `/`, up to [`BODY_BYTES_MAX`].
    pub body_bytes: u32,
    /// One pinned thread for each of these; empty: one thread, anywhere.
    pub cpus: CpuSet,
}

/// A responder that listens, in the namespace of the thread that bound it. Connections wait until it runs.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<SocketAddr>,
    body_bytes: u32,
    /// Of each thread.
    places: Vec<(Option<CpuSet>, Vec<OwnedFd>)>,
}

/// What a responder did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Served {
    /// Connections accepted.
    pub connections: u64,
    /// Requests answered with 200.
    pub answered: u64,
    /// Requests answered otherwise.
    pub refused: u64,
}

impl Server {
    /// Takes the addresses.
    ///
    /// # Errors
    /// If there is no address, one is taken or not this machine's, or the body is too large.
    pub fn bind(config: &Config) -> Result<Server, LoadError> {
        if config.body_bytes > BODY_BYTES_MAX {
            return Err(LoadError::Shape("a body of at most 1048576 bytes is possible"));
        }
        if config.listen.is_empty() {
            return Err(LoadError::Shape("an address to listen on is needed"));
        }
        let mut addresses = config.listen.clone();
        let mut places = Vec::new();
        let mut cpus: Vec<_> = config.cpus.iter().map(|cpu| Some(CpuSet::from_iter([cpu]))).collect();
        if cpus.is_empty() {
            cpus.push(None);
        }
        for cpus in cpus {
            // A port that the first thread's socket was given is the port of the others too.
            let listeners = addresses.iter_mut().map(listen).collect::<Result<_, _>>()?;
            places.push((cpus, listeners));
        }
        Ok(Server { addresses, body_bytes: config.body_bytes, places })
    }

    /// Where it listens, with the ports that were taken, in the order of the configuration.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Answers until the flag is set, which is looked at every 50 ms.
    ///
    /// # Errors
    /// If a thread cannot have its CPU, or the kernel refuses an epoll. Then all threads end.
    pub fn run(&self, stop: &AtomicBool) -> Result<Served, LoadError> {
        let failed = AtomicBool::new(false);
        let ends = || stop.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed);
        thread::scope(|scope| {
            let (failed, ends) = (&failed, &ends);
            let mut threads = Vec::new();
            for (cpus, listeners) in &self.places {
                threads.push(scope.spawn(move || {
                    let served = self.thread(cpus.as_ref(), listeners, ends);
                    failed.fetch_or(served.is_err(), Ordering::Relaxed);
                    served
                }));
            }
            threads.into_iter().try_fold(Served::default(), |total, thread| {
                let served = thread.join().expect("a thread of the responder does not panic")?;
                Ok(total.plus(served))
            })
        })
    }

    fn thread(
        &self,
        cpus: Option<&CpuSet>,
        listeners: &[OwnedFd],
        ends: &(dyn Fn() -> bool + Sync),
    ) -> Result<Served, LoadError> {
        if let Some(cpus) = cpus {
            cpu::pin_current_thread(cpus)?;
        }
        Responder::new(listeners, self.body_bytes)?.run(ends)
    }
}

impl Served {
    fn plus(self, other: Served) -> Served {
        Served {
            connections: self.connections + other.connections,
            answered: self.answered + other.answered,
            refused: self.refused + other.refused,
        }
    }
}

/// Listens, and notes the port that it was given.
fn listen(address: &mut SocketAddr) -> Result<OwnedFd, LoadError> {
    let refused = |errno: Errno| LoadError::Listen { address: *address, source: io::Error::from(errno) };
    let socket = listening_socket(*address).map_err(refused)?;
    *address = rustix::net::getsockname(&socket).and_then(SocketAddr::try_from).map_err(refused)?;
    Ok(socket)
}

fn listening_socket(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}
