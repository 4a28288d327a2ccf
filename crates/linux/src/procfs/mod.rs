//! Readers of `/proc`. A reader takes its root directory, so that tests can supply a fake one.
//!
//! The files of `net/` belong to the calling thread's namespace: read them within [`Netns::run`](crate::Netns::run). A
//! missing file is `None`; a file that cannot be parsed is an error that names the line.

mod interrupts;
mod machine;
mod net;
mod routes;
mod stat;
mod tables;
mod task;
mod threads;
mod udp;

pub use interrupts::{Interrupt, PerCpu};
pub use machine::LoadAverage;
pub use net::{Counters, LinkCounters, SoftnetCpu};
pub use routes::Route;
pub use stat::{CpuTicks, Stat};
pub use tables::{PacketTap, Pressure};
pub use task::Task;
pub use threads::{ThreadAccount, ThreadTimes};
pub use udp::UdpSocket;

use std::io;
use std::path::PathBuf;

use crate::{Error, Files, Result};

/// A `/proc`: the kernel's, or one that a test wrote.
#[derive(Debug, Clone)]
pub struct Procfs {
    files: Files,
}

impl Procfs {
    /// The files of the running kernel, below `/proc`.
    pub fn kernel() -> Procfs {
        Procfs::at("/proc")
    }

    /// A tree of files in another directory.
    pub fn at(root: impl Into<PathBuf>) -> Procfs {
        Procfs { files: Files::default().mounted("proc", root) }
    }

    /// What lies below `proc` among these files.
    pub fn of(files: &Files) -> Procfs {
        Procfs { files: files.clone() }
    }

    /// A file's text; `None` if there is no such file.
    fn read(&self, file: &str) -> Result<Option<String>> {
        self.files.read(&format!("proc/{file}"))
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
        format!("read {}", self.files.shown(&format!("proc/{file}")))
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
