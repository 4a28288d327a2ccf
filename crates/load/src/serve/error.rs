//! Why a responder could not do its work. What goes wrong with a peer is counted in [`super::Served`].

use std::error::Error;
use std::io;

use super::Listen;

/// Why a responder could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The configuration contradicts itself, or a figure is out of range.
    #[error("serve like this: {0}")]
    Config(String),
    /// The address cannot be served.
    #[error("listen on {listen}: {why}")]
    Listen {
        /// The address and protocol.
        listen: Listen,
        /// The error of the system call.
        why: io::Error,
    },
    /// There is no certificate, or no key that belongs to it.
    #[error("{attempted}: {why}")]
    Certificate {
        /// What was attempted, and with which file.
        attempted: String,
        /// The reason of the file system or of the TLS library.
        why: Box<dyn Error + Send + Sync>,
    },
    /// A CPU or timers of the wanted precision could not be had.
    #[error(transparent)]
    Linux(#[from] linux::Error),
    /// A system call failed that has no reason to.
    #[error("{attempted}: {why}")]
    System {
        /// The purpose of the call, to follow "could not".
        attempted: &'static str,
        /// The error of the system call.
        why: io::Error,
    },
}

/// For `map_err`: names the purpose of a failed system call.
pub(super) fn system<E: Into<io::Error>>(attempted: &'static str) -> impl FnOnce(E) -> ServeError {
    move |why| ServeError::System { attempted, why: why.into() }
}
