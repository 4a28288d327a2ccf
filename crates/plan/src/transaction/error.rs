//! Why a transaction does not go on.

use std::io;
use std::path::PathBuf;

use super::{Phase, TakenBack};
use crate::{ApplyError, JournalError};

/// Why a transaction could not be begun or ended.
#[derive(Debug, thiserror::Error)]
pub enum TransactionError {
    /// A file of the store.
    #[error("{attempted} {}: {why}", path.display())]
    File {
        /// A verb: "create", "write", …
        attempted: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The error that the operating system returned.
        why: io::Error,
    },
    /// There is no room for the journal; nothing was changed.
    #[error("make room for the journal in {}: {why}; nothing was changed", path.display())]
    NoRoom {
        /// The directory of the store.
        path: PathBuf,
        /// The error that the operating system returned.
        why: io::Error,
    },
    /// Another command works on it.
    #[error("use {}: another `hostgap tune` is at work there", path.display())]
    InUse {
        /// The directory of the store.
        path: PathBuf,
    },
    /// A tuning is active.
    #[error("begin a tuning: {id} is active already, {phase}")]
    Stands {
        /// The id of the one that stands.
        id: String,
        /// How far it is.
        phase: Phase,
    },
    /// No tuning is active.
    #[error("go on: there is no tuning that could be {what}")]
    Nothing {
        /// What was to be done: "confirmed", "rolled back", "watched over".
        what: &'static str,
    },
    /// The file that says how far it is cannot be understood.
    #[error("read the tuning: {} is damaged: {why}", path.display())]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A journal cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A step; what was done before it was taken back, as `back` says.
    #[error("{why}")]
    Apply {
        /// The error of the step that failed.
        why: Box<ApplyError>,
        /// How taking back went.
        back: TakenBack,
    },
    /// A call to the kernel failed.
    #[error(transparent)]
    Kernel(#[from] linux::Error),
}

impl TransactionError {
    /// What the user can try, shown as a hint; `None`: nothing is known to help.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            TransactionError::InUse { .. } => Some("wait until it has ended"),
            TransactionError::Journal(error) => error.remedy(),
            TransactionError::File { .. }
            | TransactionError::NoRoom { .. }
            | TransactionError::Stands { .. }
            | TransactionError::Nothing { .. }
            | TransactionError::Damaged { .. }
            | TransactionError::Apply { .. }
            | TransactionError::Kernel(_) => None,
        }
    }
}
