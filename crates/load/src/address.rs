//! The address of a server.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::{VerbsTarget, plain};

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// The address and port of a TCP socket.
    Tcp(SocketAddr),
    /// A stream socket in the file system.
    Unix(PathBuf),
    /// The address and port of a UDP socket.
    Udp(SocketAddr),
    /// Messages by RDMA verbs.
    Verbs(VerbsTarget),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix(path) => f.write_str(&plain(&path.display().to_string())),
            Address::Udp(address) => write!(f, "UDP {address}"),
            Address::Verbs(VerbsTarget { address, device, .. }) => {
                write!(f, "{address} by RDMA device {}", device.name())
            }
        }
    }
}
