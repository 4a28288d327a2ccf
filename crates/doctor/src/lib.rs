//! Finds what a host does wrong with its packets: findings with evidence, from two snapshots of the machine.
//!
//! A [`Snapshot`] holds all values that are read, once. Two of them form a [`Window`], which turns counters into
//! growth. A [`Check`] is a row of [`TABLE`]: a code, the texts for readers, and a pure function from a window to its
//! results. [`diagnose`] runs all rows and sorts the findings, causes before consequences. This crate does not print
//! and does not change the machine.
//!
//! A new finding is a row and a function in the file of its family below `table`, and its planted fault in
//! `tests/it/faults`.

mod answers;
mod collected;
mod diagnose;
mod examined_netns;
mod finding;
mod rate;
mod snapshot;
mod sysctls;
mod table;
mod window;

pub use answers::{KernelAnswers, PortsTaken};
pub use collected::{Taken, collect, destination, open};
pub use diagnose::{Diagnosis, diagnose};
pub use examined_netns::ExaminedNetns;
pub use finding::{Check, CheckGroup, Evidence, Finding, KnobProposal, Observation, Severity};
pub use snapshot::{MachineFacts, Snapshot};
pub use table::{TABLE, all, find};
pub use window::{Connection, Window};

use std::path::PathBuf;

/// Why there is no diagnosis.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The kernel did not answer.
    #[error(transparent)]
    Linux(#[from] linux::Error),
    /// A file of a collected tree could not be written.
    #[error("{0}")]
    Unwritten(linux::Error),
    /// A file of a collected tree could not be read.
    #[error("{0}")]
    Unread(linux::Error),
    /// A file of a collected tree has invalid contents.
    #[error("read {}: it is no part of a collected tree: {why}", path.display())]
    Tree {
        /// The file's path below the tree.
        path: PathBuf,
        /// The reason why it is invalid.
        why: String,
    },
    /// There is something where a tree is to be written.
    #[error("write a collected tree: {} {what}", path.display())]
    Occupied {
        /// The path that the user named.
        path: PathBuf,
        /// Its state, in words: "is not empty".
        what: &'static str,
    },
}

impl DoctorError {
    /// What the user can try, shown as a hint; `None`: nothing is known to help.
    pub fn remedy(&self) -> Option<&'static str> {
        matches!(self, DoctorError::Occupied { .. }).then_some("give the tree a directory of its own")
    }
}
