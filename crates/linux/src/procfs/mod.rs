//! What `/proc` tells. A reader is built with its root, so that a test writes a fake one.
//!
//! The files of `net/` are those of the namespace in which the calling thread is: read within
//! [`Netns::run`](crate::Netns::run). A file that the kernel does not have is `None`; one that cannot be understood is
//! an error that says which line.

mod machine;
mod net;
mod stat;
mod task;
mod threads;

pub use machine::LoadAverage;
pub use net::{Counters, LinkCounters, SoftnetCpu};
pub use stat::{CpuTicks, Stat};
pub use task::Task;
pub use threads::ThreadTimes;

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::error::Attempt;
use crate::{Error, Result};

/// A `/proc`: the kernel's, or one that a test wrote.
#[derive(Debug, Clone)]
pub struct Procfs {
    root: PathBuf,
}

impl Procfs {
    /// The kernel's.
    pub fn kernel() -> Procfs {
        Procfs::at("/proc")
    }

    /// A tree of files in another directory.
    pub fn at(root: impl Into<PathBuf>) -> Procfs {
        Procfs { root: root.into() }
    }

    /// A file's text; `None` if there is no such file.
    fn read(&self, file: &str) -> Result<Option<String>> {
        match fs::read_to_string(self.root.join(file)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            // A process or thread that ends while its file is open.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
            Err(error) => Err(error).attempt(|| self.attempted(file)),
        }
    }

    /// A file that every kernel has.
    fn required(&self, file: &str) -> Result<String> {
        let missing = || Error::new(self.attempted(file), io::Error::from_raw_os_error(libc::ENOENT));
        self.read(file)?.ok_or_else(missing)
    }

    fn misread(&self, file: &str, line: &str) -> Error {
        Error::invalid(self.attempted(file), format!("line {line:?} was not understood"))
    }

    fn attempted(&self, file: &str) -> String {
        format!("read {}", self.root.join(file).display())
    }
}

/// A `/proc` that a test writes.
#[cfg(test)]
mod fake {
    use super::Procfs;

    /// The reader, and the directory that must outlive it.
    pub(super) fn proc_with(files: &[(&str, &str)]) -> (tempfile::TempDir, Procfs) {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let procfs = Procfs::at(directory.path());
        (directory, procfs)
    }
}
