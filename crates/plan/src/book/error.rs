//! What can go wrong with a book.

use std::io;
use std::path::{Path, PathBuf};

use crate::JournalError;

/// Why a unit could not be begun, found or ended.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// A file of the book could not be handled.
    #[error("{attempted} {path}: {why}")]
    File {
        /// A verb: "create", "lock", …
        attempted: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error that the operating system returned.
        why: io::Error,
    },
    /// An id of which no name can be made.
    #[error(
        "name a unit {id:?}: that takes 1 to 128 letters, digits, \"-\", \"_\" and \".\", and neither a dot at its \
         beginning nor \".lock\" at its end"
    )]
    BadId {
        /// The id as it was given.
        id: String,
    },
    /// There is a unit of that id.
    #[error("begin {path}: it is there already")]
    Exists {
        /// The directory of the unit that has it.
        path: PathBuf,
    },
    /// There is no unit of that id.
    #[error("find {id:?} in {book}: there is none")]
    Unknown {
        /// The id as it was given.
        id: String,
        /// The directory in which it was looked for.
        book: PathBuf,
    },
    /// A living process holds the unit.
    #[error("take {path}: it belongs to process {pid}, which lives")]
    Held {
        /// The directory of the unit that is held.
        path: PathBuf,
        /// The process id of its owner; 0 if that has not written it yet.
        pid: u32,
    },
    /// A unit was to end and still has a journal of steps that stand.
    #[error("end the unit: {journal} is kept, because it says what was not undone")]
    NotUndone {
        /// The path of the first such journal.
        journal: PathBuf,
    },
    /// A journal of the unit cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl BookError {
    /// What the user can try, shown as a hint; `None`: nothing is known to help.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            BookError::Exists { .. } => Some("take that unit back first"),
            BookError::Held { .. } => Some("wait until that process ends, or end it"),
            BookError::Journal(error) => error.remedy(),
            BookError::File { .. }
            | BookError::BadId { .. }
            | BookError::Unknown { .. }
            | BookError::NotUndone { .. } => None,
        }
    }

    /// An error maker for a file: `fs::read(&path).map_err(BookError::file("read", &path))`.
    pub(super) fn file(attempted: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BookError {
        let path = path.to_owned();
        move |why| BookError::File { attempted, path, why }
    }
}
