//! Numbers in the kernel's debugfs, which is no promise of the kernel and often not mounted.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Result, number};

/// A debugfs file that holds one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DebugFile {
    /// Nanoseconds for which a task counts as warm in its CPU's cache (Linux 5.13; a parameter of the kernel before).
    SchedMigrationCost,
}

/// A debugfs: the kernel's, or one that a test wrote.
#[derive(Debug, Clone)]
pub struct Debugfs {
    root: PathBuf,
}

impl Debugfs {
    /// The kernel's, at its usual mount point.
    pub fn kernel() -> Debugfs {
        Debugfs::at("/sys/kernel/debug")
    }

    /// A tree of files in another directory.
    pub fn at(root: impl Into<PathBuf>) -> Debugfs {
        Debugfs { root: root.into() }
    }

    /// The number. `ENOENT` if debugfs is not mounted or the kernel does not have it, `EACCES` without root.
    pub fn read(&self, file: DebugFile) -> Result<u64> {
        number::read(&self.root.join(file.to_string()))
    }

    /// Sets the number. `EPERM` where the kernel is locked down.
    pub fn write(&self, file: DebugFile, value: u64) -> Result<()> {
        number::write(&self.root.join(file.to_string()), value)
    }
}

impl fmt::Display for DebugFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DebugFile::SchedMigrationCost => f.write_str("sched/migration_cost_ns"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_number_is_read_and_written_and_a_missing_one_is_not_made() {
        let directory = tempfile::tempdir().unwrap();
        let debugfs = Debugfs::at(directory.path());
        let file = DebugFile::SchedMigrationCost;
        assert!(debugfs.write(file, 1).unwrap_err().is(libc::ENOENT));
        fs::create_dir(directory.path().join("sched")).unwrap();
        fs::write(directory.path().join("sched/migration_cost_ns"), "500000\n").unwrap();
        assert_eq!(debugfs.read(file).unwrap(), 500_000);
        debugfs.write(file, 5).unwrap();
        assert_eq!(debugfs.read(file).unwrap(), 5);
    }
}
