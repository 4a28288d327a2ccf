//! What can go wrong between a command and its run on another kernel.

use std::path::PathBuf;
use std::time::Duration;

/// Why a guest could not be prepared, or a command could not be run in it.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Error {
    /// A file of the cache or of a run.
    #[error("{attempt} {}: {why}", path.display())]
    File {
        /// The verb: what was attempted.
        attempt: &'static str,
        /// The file of the failed operation.
        path: PathBuf,
        /// The operating system's error.
        why: std::io::Error,
    },
    /// Neither `HOSTGAP_CACHE` nor `HOME` is set.
    #[error("choose a cache folder: neither HOSTGAP_CACHE nor HOME is set")]
    NoCache,
    /// The cache's file system is too small for what would be fetched.
    #[error(
        "fetch into {}: {} MiB are free there, and kernel and QEMU take up to {} MiB",
        path.display(), free_bytes >> 20, needed_bytes >> 20
    )]
    Space {
        path: PathBuf,
        /// What an ordinary user could still write there.
        free_bytes: u64,
        /// What a fetch may take.
        needed_bytes: u64,
    },
    /// The machine runs a release whose packages are not supported.
    #[error("use packages of this machine: it is {found}, and kernel and QEMU come from {needed}")]
    Unsupported {
        /// The distribution and architecture of the machine.
        found: String,
        /// What it would have to be.
        needed: &'static str,
    },
    /// A program of the host is missing.
    #[error("start {program}: {why}; it is part of Debian's package {package}")]
    Program {
        /// The program's name or path.
        program: String,
        /// The Debian package that has it.
        package: &'static str,
        /// Why it could not be started.
        why: std::io::Error,
    },
    /// A helper program ran and failed.
    #[error("{attempt}: {program} ended with {status}: {stderr}")]
    Failed {
        /// The failed step, to follow "could not".
        attempt: String,
        /// The name of the program that failed.
        program: String,
        /// Its exit status, in words.
        status: String,
        /// The end of what it wrote to stderr.
        stderr: String,
    },
    /// Packages were fetched, but what we came for is not inside.
    #[error("find {what} in the packages {packages}")]
    Absent {
        /// The file looked for.
        what: String,
        /// The folders of the packages searched.
        packages: String,
    },
    /// A name that stands for no kernel.
    #[error("find kernel {name:?}: {known}")]
    Unknown {
        name: String,
        /// The known names, in words.
        known: String,
    },
    /// A folder does not hold a kernel's modules.
    #[error("use the modules in {}: {reason}", path.display())]
    Modules {
        /// The folder that was named.
        path: PathBuf,
        /// Why it cannot be used.
        reason: String,
    },
    /// The kernel image is not one we can unpack.
    #[error("unpack kernel {}: {reason}", path.display())]
    Kernel {
        /// The path of the image.
        path: PathBuf,
        /// Why it cannot be unpacked.
        reason: String,
    },
    /// There is no network namespace for the guest's network card.
    #[error(transparent)]
    Nic(linux::Error),
    /// The emulator failed, which is no fault of the guest: another run may well come to its end.
    #[error("run the command in a guest: the emulator {how}; end of the guest's console:\n{console}")]
    Emulator {
        /// What it did, to follow its name.
        how: String,
        /// The end of the guest's console and of QEMU's own messages.
        console: String,
        /// What the command had written to stdout until then.
        stdout: Vec<u8>,
    },
    /// The guest ended without saying how the command ended: a panic, or virtiofsd died.
    #[error(
        "run the command in a guest: the guest died before its command ended; end of its console:\n{console}"
    )]
    Died {
        /// The end of the guest's console and of QEMU's own messages.
        console: String,
        /// What the command had written to stdout until then.
        stdout: Vec<u8>,
    },
    /// The time limit was reached.
    #[error("run the command in a guest: the guest was ended after {} s; end of its console:\n{console}", limit.as_secs())]
    TimedOut {
        /// The limit on the whole run.
        limit: Duration,
        /// The end of the guest's console and of QEMU's own messages.
        console: String,
        /// What the command had written to stdout until then.
        stdout: Vec<u8>,
    },
    /// The guest wrote no output for too long.
    #[error("run the command in a guest: the guest was ended after {} s without a word; end of its console:\n{console}", limit.as_secs())]
    Silent {
        /// The limit on silence.
        limit: Duration,
        /// The end of the guest's console and of QEMU's own messages.
        console: String,
        /// What the command had written to stdout until then.
        stdout: Vec<u8>,
    },
    /// The watcher asked it to end.
    #[error("run the command in a guest: the guest was ended as asked")]
    Stopped {
        /// What the command had written to stdout until then.
        stdout: Vec<u8>,
    },
    /// The command wrote more than its limit.
    #[error(
        "run the command in a guest: the guest was ended because its command wrote more than {limit_bytes} bytes"
    )]
    TooMuchOutput {
        /// The limit on stdout and stderr.
        limit_bytes: u64,
        /// What the command had written to stdout until then.
        stdout: Vec<u8>,
    },
}

impl Error {
    /// What the user can try, shown as a hint; `None`: nothing is known to help.
    pub fn remedy(&self) -> Option<&'static str> {
        matches!(self, Self::Nic(_)).then_some("run it as root (sudo): a guest's network card needs that")
    }

    /// Makes the closure for `map_err` of a failed file operation.
    pub(crate) fn file<E: Into<std::io::Error>>(
        attempt: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Self {
        move |why| Self::File { attempt, path: path.into(), why: why.into() }
    }
}
