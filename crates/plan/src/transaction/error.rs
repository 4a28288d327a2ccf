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
        /// "create", "write", …
        attempted: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        why: io::Error,
    },
    /// There is no room for the journal; nothing was changed.
    #[error("make room for the journal in {}: {why}; nothing was changed", path.display())]
    NoRoom {
        /// The store.
        path: PathBuf,
        /// The system's reason.
        why: io::Error,
    },
    /// Another command works on it.
    #[error("use {}: another `hostgap tune` is at work there", path.display())]
    InUse {
        /// The store.
        path: PathBuf,
    },
    /// A tuning is active.
    #[error("begin a tuning: {id} is active already, {phase}")]
    Stands {
        /// Its id.
        id: String,
        /// How far it is.
        phase: Phase,
    },
    /// No tuning is active.
    #[error("go on: there is no tuning that could be {what}")]
    Nothing {
        /// "confirmed", "rolled back".
        what: &'static str,
    },
    /// The file that says how far it is cannot be understood.
    #[error("read the tuning: {} is damaged: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A step; what was done before it was taken back, as `back` says.
    #[error("{why}")]
    Apply {
        /// Why apply stopped.
        why: Box<ApplyError>,
        /// How taking back went.
        back: TakenBack,
    },
    /// The kernel.
    #[error(transparent)]
    Kernel(#[from] linux::Error),
}

impl TransactionError {
    /// What to try.
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
