//! What can be wrong with a record.

use std::io;
use std::path::PathBuf;

use crate::SCHEMA;

/// Why a record could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file cannot be read.
    #[error("read record {}: {why}", path.display())]
    Unread {
        /// The path that could not be read.
        path: PathBuf,
        /// The operating system's error.
        why: io::Error,
    },
    /// The file cannot be written.
    #[error("{doing} {}: {why}", path.display())]
    Io {
        /// What was attempted: "create record", "append to record".
        doing: &'static str,
        /// The path that could not be written.
        path: PathBuf,
        /// The operating system's error.
        why: io::Error,
    },
    /// A line has no readable JSON form, for example because a rate is not a number.
    #[error("write a line of record {}: {why}", path.display())]
    Unwritable {
        /// The path of the record.
        path: PathBuf,
        /// The reason of the JSON encoder.
        why: serde_json::Error,
    },
    /// The file has not even one whole line.
    #[error("find a race in {}: {why}", path.display())]
    Empty {
        /// The path that was given.
        path: PathBuf,
        /// The actual content, in words.
        why: &'static str,
    },
    /// A line other than the last is damaged, so the lines after it may not belong to this race.
    #[error("read record {}: line {line} is damaged: {why}", path.display())]
    Damaged {
        /// The path of the record.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// The kind of damage, in words.
        why: &'static str,
    },
    /// The file has a newer format.
    #[error(
        "read {}: hostgap {hostgap} wrote it in schema {found}, and this hostgap reads schema {SCHEMA}",
        path.display()
    )]
    Newer {
        /// The path of the record.
        path: PathBuf,
        /// The schema version in the file.
        found: u32,
        /// The version of hostgap that wrote it.
        hostgap: String,
    },
    /// A line is intact, but this version does not know its form; often a later version added a field.
    #[error("read record {}: line {line}, written by hostgap {hostgap}: {why}", path.display())]
    Unknown {
        /// The path of the record.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// The version of hostgap that wrote it.
        hostgap: String,
        /// The reason of the JSON parser.
        why: serde_json::Error,
    },
    /// It is neither a race's file nor a whole one of a search.
    #[error("find a search in {}: {why}", path.display())]
    NoSearch {
        /// The path of the record.
        path: PathBuf,
        /// The inconsistency, in words.
        why: String,
    },
    /// The lines do not belong together.
    #[error("read record {}: line {line} does not fit: {why}", path.display())]
    Inconsistent {
        /// The path of the record.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// The inconsistency, in words.
        why: String,
    },
}

impl RecordError {
    /// What the user can try, shown as a hint; `None`: nothing is known to help.
    pub fn remedy(&self) -> Option<&'static str> {
        matches!(self, RecordError::Newer { .. }).then_some("use a newer hostgap")
    }
}
