//! What can go wrong before or around a run. What goes wrong *in* a run is counted in its outcome.

use std::io;
use std::time::Duration;

use crate::Address;
use crate::schedule::RateError;

/// Why a generator or responder could not do its work.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the names say it")]
pub enum LoadError {
    /// The target cannot be asked.
    #[error("make a request with {what} {text:?}: {why}")]
    Target {
        /// The part of the request: "host", "path" and so on.
        what: &'static str,
        text: String,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// The rate is out of range.
    #[error("run a load: {0}")]
    Rate(RateError),
    /// A run needs a client with at least one connection for each thread, and CPUs for all threads or for none.
    #[error("run a load of this shape: {0}")]
    Shape(&'static str),
    /// Busy waiting was requested where it would stop the load instead of making it precise.
    #[error("spin here: {0}")]
    Spin(&'static str),
    /// TLS cannot be spoken as asked.
    #[error("speak TLS with {name}: {why}")]
    Tls {
        /// The server's name in its certificate.
        name: String,
        /// The reason, in words.
        why: String,
    },
    /// The process may not have as many open files as it needs sockets.
    #[error("open a socket for each of {wanted} connections: this process may have {limit} files open")]
    Files {
        /// The connections that this thread was to have.
        wanted: usize,
        /// Open files that are allowed.
        limit: u64,
    },
    /// A connection was refused or reset.
    #[error("connect to {address}: {why}")]
    Connect {
        /// The address of the server.
        address: Address,
        /// The error of the system call.
        why: io::Error,
    },
    /// Connections were not there in time.
    #[error("connect to {address}: {connected} of {wanted} connections are there after {} ms", waited.as_millis())]
    ConnectTimeout {
        /// The address of the server.
        address: Address,
        /// The connections that could be opened.
        connected: usize,
        /// The number of connections requested.
        wanted: usize,
        /// How long it was waited.
        waited: Duration,
    },
    /// Some objects were not fetched.
    #[error("fetch all of {wanted} objects from {address}, {objects} are there: {why}")]
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
    #[error("{attempted}: {why}")]
    System {
        /// The purpose of the call, to follow "could not".
        attempted: &'static str,
        /// The error of the system call.
        why: io::Error,
    },
}

impl LoadError {
    /// What the user can try, shown as a hint; `None`: nothing is known to help.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            LoadError::Spin(_) => Some("wait hybrid instead"),
            LoadError::Files { .. } => {
                Some("`ulimit -n` and the service manager's LimitNOFILE raise the number of open files")
            }
            LoadError::Target { .. }
            | LoadError::Rate(_)
            | LoadError::Shape(_)
            | LoadError::Tls { .. }
            | LoadError::Connect { .. }
            | LoadError::ConnectTimeout { .. }
            | LoadError::Download { .. }
            | LoadError::Linux(_)
            | LoadError::System { .. } => None,
        }
    }
}

impl From<RateError> for LoadError {
    fn from(error: RateError) -> LoadError {
        LoadError::Rate(error)
    }
}

/// For `map_err`: names the purpose of a failed system call.
pub(crate) fn system<E: Into<io::Error>>(attempted: &'static str) -> impl FnOnce(E) -> LoadError {
    move |why| LoadError::System { attempted, why: why.into() }
}
