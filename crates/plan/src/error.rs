//! Why a plan was not applied, and why a journal could not be used.

use std::io;
use std::path::PathBuf;

use crate::Place;

/// Why apply stopped. What was done until then is in the journal and can be undone.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The journal could not be written, so nothing more was done.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A step could not be done.
    #[error("do {command}\nin {place}: {why}")]
    Step {
        /// The step as the command a person would type.
        command: String,
        /// The namespace in which it was done.
        place: Box<Place>,
        /// The reason why the step failed.
        why: StepError,
    },
    /// A fault was asked for; see [`crate::Fault`].
    #[error("go on: a fault was injected {at}")]
    Injected {
        /// "before step 3", "after line 7 of the journal".
        at: String,
    },
}

/// The reason why one step could not be done, or undone. It follows what was attempted.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The step makes something that is there already; nothing was touched.
    #[error("{what} is there already; {remedy}")]
    Exists {
        /// The object that was found, in words.
        what: String,
        /// What to do about it.
        remedy: String,
    },
    /// The step changes a link that is not there.
    #[error("there is no link {link}")]
    NoLink {
        /// The name that no link has.
        link: String,
    },
    /// There is no such kernel parameter.
    #[error("there is no kernel parameter {key} here; a missing kernel module or link can be the reason")]
    NoParameter {
        /// Its path below `/proc/sys`.
        key: String,
    },
    /// The step could not be undone exactly, or makes no sense here; nothing was touched.
    #[error("{why}")]
    Refused {
        /// The reason, and what to do about it.
        why: String,
    },
    /// Other units share it and want it otherwise; nothing was touched.
    #[error(
        "{what} is shared by {}, which want it otherwise ({wanted}); ask for the same, or take them back first",
        owners.join(", ")
    )]
    Shared {
        /// What is shared, as a phrase.
        what: String,
        /// The units that share it, by kind and id: `lab/3f2a`.
        owners: Vec<String>,
        /// How they have it, as commands.
        wanted: String,
    },
    /// The file that says which units share what could not be handled.
    #[error("{attempted} {path}: {why}")]
    File {
        /// A verb: "write", "lock", …
        attempted: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error that the operating system returned.
        why: io::Error,
    },
    /// The kernel took the change and made something else of it.
    #[error("the kernel set {found} instead of {wanted}")]
    NotTaken {
        /// What the step says.
        wanted: String,
        /// What was read back.
        found: String,
    },
    /// A call to the kernel failed.
    #[error(transparent)]
    Kernel(#[from] linux::Error),
}

impl StepError {
    /// True if the kernel said that there is no such file.
    pub(crate) fn is_no_file(&self) -> bool {
        matches!(self, StepError::Kernel(error) if error.errno() == Some(rustix::io::Errno::NOENT.raw_os_error()))
    }

    /// True if the kernel said that there is no such thing, though it was found just before.
    pub(crate) fn is_vanished(&self) -> bool {
        use rustix::io::Errno;
        let gone = [Errno::NODEV, Errno::NOENT, Errno::SRCH, Errno::ADDRNOTAVAIL];
        matches!(self, StepError::Kernel(error) if gone.iter().any(|errno| error.is(errno.raw_os_error())))
    }

    /// True if the kernel said that the thing is there already: then it was not this step that made it.
    pub(crate) fn is_exists(&self) -> bool {
        match self {
            StepError::Exists { .. } => true,
            StepError::Kernel(error) => error.errno() == Some(rustix::io::Errno::EXIST.raw_os_error()),
            StepError::NoLink { .. }
            | StepError::NoParameter { .. }
            | StepError::Refused { .. }
            | StepError::Shared { .. }
            | StepError::File { .. }
            | StepError::NotTaken { .. } => false,
        }
    }
}

/// Why a journal could not be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file could not be made, read or written.
    #[error("{attempted} journal {path}: {why}")]
    File {
        /// "create", "open", "read", "append to", …
        attempted: &'static str,
        /// The path of the journal.
        path: PathBuf,
        /// The error that the operating system returned.
        why: io::Error,
    },
    /// A line in the middle is damaged.
    #[error("read journal {path}: line {line} is damaged ({why}), and what it held cannot be undone from it")]
    Damaged {
        /// The path of the journal.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// There is no sound first line.
    #[error("read journal {path}: it has no sound header")]
    NoHeader {
        /// The path of the journal.
        path: PathBuf,
    },
    /// It was written by another version.
    #[error("read journal {path}: it has format {found}, and this program reads 2 to {known}")]
    Version {
        /// The path of the journal.
        path: PathBuf,
        /// The version in its header.
        found: u32,
        /// The newest that this program reads.
        known: u32,
    },
    /// Another process has it open.
    #[error("open journal {path}: it is in use, and process {pid} made it")]
    InUse {
        /// The path of the journal.
        path: PathBuf,
        /// The process that made it.
        pid: u32,
    },
    /// In which run of the kernel this is could not be read.
    #[error("read {path} for the header of a journal: {why}")]
    BootId {
        /// The file under `/proc`.
        path: PathBuf,
        /// The error that the operating system returned.
        why: io::Error,
    },
}

impl JournalError {
    /// What the user can try, shown as a hint; `None`: nothing is known to help.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            JournalError::Version { .. } => Some(
                "undo it with the version of hostgap that wrote it; a restart of the machine undoes it too",
            ),
            JournalError::InUse { .. } => Some("wait until that process, or an undo of it, has ended"),
            JournalError::File { .. }
            | JournalError::Damaged { .. }
            | JournalError::NoHeader { .. }
            | JournalError::BootId { .. } => None,
        }
    }
}
