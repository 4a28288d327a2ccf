//! Why a host could not be looked at, or a request not be met.

use std::io;
use std::path::PathBuf;

/// Why a host could not be looked at, or a request not be met.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the names say it")]
pub enum HostError {
    /// What the user named is wrong: there is no such link, or a setting is impossible here.
    #[error("do what was asked: {0}")]
    BadRequest(String),
    /// A call of the kernel failed.
    #[error(transparent)]
    Linux(#[from] linux::Error),
    /// The sysfs of the link's namespace.
    #[error("read the link's queues: {0}")]
    Queues(linux::Error),
    /// The description of a tuning that stands.
    #[error("read the tuning's settings: {0}")]
    Description(serde_json::Error),
    /// The journal of a tuning that stands.
    #[error(transparent)]
    Journal(#[from] plan::JournalError),
    /// A file that keeps a tuning.
    #[error("{attempted} {}: {why}", path.display())]
    File {
        /// A verb: "create", "write", …
        attempted: &'static str,
        path: PathBuf,
        why: io::Error,
    },
}

impl HostError {
    /// What to try, where the journal knows it.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            HostError::Journal(error) => error.remedy(),
            HostError::BadRequest(_)
            | HostError::Linux(_)
            | HostError::Queues(_)
            | HostError::Description(_)
            | HostError::File { .. } => None,
        }
    }
}
