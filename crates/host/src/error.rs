//! Why a host could not be looked at, or a request not be met.

use std::io;
use std::path::PathBuf;

/// Why a host could not be looked at, or a request not be met.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// What the user named is wrong: there is no such link, or a setting is impossible here.
    #[error("{0}")]
    Asked(String),
    /// A call of the kernel failed.
    #[error(transparent)]
    Linux(#[from] linux::Error),
    /// The sysfs of the link's namespace.
    #[error("could not read the link's queues")]
    Queues(#[source] linux::Error),
    /// The description of a tuning that stands.
    #[error("could not read the tuning's settings")]
    Description(#[source] serde_json::Error),
    /// The journal of a tuning that stands.
    #[error(transparent)]
    Journal(#[from] plan::JournalError),
    /// A file that keeps a tuning.
    #[error("could not {attempted} {}", path.display())]
    File {
        /// A verb: "create", "write", …
        attempted: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// What the kernel answered.
        source: io::Error,
    },
}
