//! What can go wrong before or around a run. What goes wrong *in* a run is counted in its outcome.

use std::io;
use std::time::Duration;

use crate::schedule::RateError;
use crate::target::Address;

/// Why a generator or responder could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The target cannot be asked.
    #[error("no request can be made with {what} {text:?}: {why}")]
    Target {
        /// The part of the request: "host", "path" and so on.
        what: &'static str,
        /// The invalid text.
        text: String,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// The rate is out of range.
    #[error(transparent)]
    Rate(#[from] RateError),
    /// A run needs a client with at least one connection for each thread, and CPUs for all threads or for none.
    #[error("a run cannot have this shape: {0}")]
    Shape(&'static str),
    /// Busy waiting was requested where it would stop the load instead of making it precise.
    #[error("the generator cannot spin here: {0}; wait hybrid instead")]
    Spin(&'static str),
    /// TLS cannot be spoken as asked.
    #[error("TLS with {name} is not possible: {why}")]
    Tls {
        /// The server's name in its certificate.
        name: String,
        /// The reason, in words.
        why: String,
    },
    /// The process may not have as many open files as it needs sockets.
    #[error(
        "a socket for each of {wanted} connections is more than the {limit} files that this process may have open; \
         `ulimit -n` and the service manager's LimitNOFILE raise that"
    )]
    Files {
        /// Connections of this thread.
        wanted: usize,
        /// Open files that are allowed.
        limit: u64,
    },
    /// A connection was refused or reset.
    #[error("could not connect to {address}")]
    Connect {
        /// The address of the server.
        address: Address,
        /// The error of the system call.
        source: io::Error,
    },
    /// Connections were not there in time.
    #[error("could not connect to {address}: {connected} of {wanted} connections are there after {} ms", waited.as_millis())]
    ConnectTimeout {
        /// The address of the server.
        address: Address,
        /// Connections that are there.
        connected: usize,
        /// The number of connections requested.
        wanted: usize,
        /// How long it was waited.
        waited: Duration,
    },
    /// Some objects were not fetched.
    #[error("could not fetch all of {wanted} objects from {address}, {objects} are there: {why}")]
    Download {
        /// The address of the server.
        address: Address,
        /// Objects of this thread's clients that came whole.
        objects: u64,
        /// Objects that they were to fetch.
        wanted: u64,
        /// What happened to the next.
        why: String,
    },
    /// A namespace, a CPU or a scheduling class could not be had.
    #[error(transparent)]
    Linux(#[from] linux::Error),
    /// A system call failed that has no reason to.
    #[error("could not {attempted}")]
    System {
        /// The purpose of the call, to follow "could not".
        attempted: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
}

/// For `map_err`: names the purpose of a failed system call.
pub(crate) fn system<E: Into<io::Error>>(attempted: &'static str) -> impl FnOnce(E) -> LoadError {
    move |source| LoadError::System { attempted, source: source.into() }
}
