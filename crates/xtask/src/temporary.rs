//! Folders for the temporary files of tests. What a test leaves goes with it, and what a killed run leaves goes with
//! the next one.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use vm::Workdir;

/// The folder of a run, with one in it for each test.
pub(crate) struct TemporaryFolders {
    run: Workdir,
    next: AtomicUsize,
}

/// The folder of a test, which is removed with this value.
pub(crate) struct TemporaryFolder(PathBuf);

impl TemporaryFolders {
    /// Makes the folder of a run. Its name is short: the path of a Unix socket has 107 bytes at most.
    pub(crate) fn new() -> Result<TemporaryFolders> {
        let run = Workdir::create(&std::env::temp_dir(), "hgt")?;
        // Some tests start programs that are not root's.
        fs::set_permissions(run.path(), Permissions::from_mode(0o711))
            .with_context(|| format!("could not open {} to others", run.path().display()))?;
        Ok(TemporaryFolders { run, next: AtomicUsize::new(0) })
    }

    pub(crate) fn make(&self) -> Result<TemporaryFolder> {
        let path = self.run.path().join(self.next.fetch_add(1, Ordering::Relaxed).to_string());
        fs::create_dir(&path).with_context(|| format!("could not make {}", path.display()))?;
        Ok(TemporaryFolder(path))
    }
}

impl TemporaryFolder {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // What a process of the test still holds goes with the folder of the run.
        let _ = fs::remove_dir_all(&self.0);
    }
}
