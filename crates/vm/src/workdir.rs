//! The folder of one run: sockets, console, output. Removed with its owner, and if that was killed, by the next run.

use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, flock};

use crate::{Cache, Error, Result};

const PREFIX: &str = "hgvm-";

/// A folder that lives as long as this value; a lock on it shows that its owner is alive.
pub(crate) struct Workdir {
    path: PathBuf,
    _owned: File,
}

impl Workdir {
    /// Makes a folder below `parent`, which is short: the path of a Unix socket has 107 bytes at most.
    pub(crate) fn create(cache: &Cache, parent: &Path) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Between its creation and its locking a folder looks abandoned, so this lock keeps other processes out.
        let _lock = cache.lock("runs")?;
        remove_abandoned(parent);
        let path = loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => break path,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::file("make", &path)(error)),
            }
        };
        let owned = File::open(&path).map_err(Error::file("open", &path))?;
        flock(&owned, FlockOperation::NonBlockingLockExclusive).map_err(Error::file("lock", &path))?;
        Ok(Self { path, _owned: owned })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file into the folder, executable.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::write(&path, content).map_err(Error::file("write", &path))?;
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&path, mode).map_err(Error::file("make executable", &path))?;
        Ok(path)
    }
}

impl Drop for Workdir {
    fn drop(&mut self) {
        // If it cannot be removed, the next run finds it unlocked and removes it.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the folders whose owner has ended.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            let unowned = File::open(entry.path())
                .is_ok_and(|folder| flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok());
            if unowned {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abandoned_folders_go_and_owned_ones_stay() {
        let parent = tempfile::tempdir().unwrap();
        let cache = Cache::at(parent.path().join("cache")).unwrap();
        let abandoned = parent.path().join("hgvm-1-0");
        fs::create_dir(&abandoned).unwrap();
        let mine = Workdir::create(&cache, parent.path()).unwrap();
        let other = Workdir::create(&cache, parent.path()).unwrap();
        assert!(!abandoned.exists());
        assert!(mine.path().exists() && other.path().exists() && mine.path() != other.path());
        let path = mine.path().to_owned();
        drop(mine);
        assert!(!path.exists() && other.path().exists());
    }
}
