//! The folder of one run: sockets, console, output. Removed with its owner, and if that was killed, by the next run.

use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};

use crate::{Error, Result};

/// A folder that lives as long as this value; a lock on it shows that its owner is alive.
pub struct Workdir {
    path: PathBuf,
    _owned: File,
}

impl Workdir {
    /// Makes a folder `KIND-PID-NUMBER` below `parent`, and removes those of that kind whose owner has ended. Both are
    /// short: the path of a Unix socket has 107 bytes at most.
    ///
    /// # Errors
    /// [`Error::File`]: it cannot be made there.
    pub fn create(parent: &Path, kind: &str) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        remove_abandoned(parent, kind);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("{kind}-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                // Between its creation and its locking a folder looks abandoned: then the next one it is.
                Ok(()) => {
                    if let Some(owned) = take(&path).map_err(Error::file("lock", &path))? {
                        return Ok(Self { path, _owned: owned });
                    }
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::file("make", &path)(error)),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
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
fn remove_abandoned(parent: &Path, kind: &str) {
    let is_of_kind = |name: &str| name.strip_prefix(kind).is_some_and(|rest| rest.starts_with('-'));
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if is_of_kind(&entry.file_name().to_string_lossy()) {
            // Locked until it is gone, so that nobody takes what is being removed.
            if let Ok(Some(_taken)) = take(&entry.path()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Locks the folder at `path`; `None` if another process has it, or has removed it meanwhile. In a directory for all
/// anybody may have put something else there: to open a pipe would take until somebody writes.
fn take(path: &Path) -> std::io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let attempt = || {
        let folder = File::from(openat(CWD, path, flags, Mode::empty())?);
        flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
        let (opened, there) = (folder.metadata()?, fs::symlink_metadata(path)?);
        Ok(((opened.dev(), opened.ino()) == (there.dev(), there.ino())).then_some(folder))
    };
    attempt().or_else(|error: std::io::Error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::WouldBlock => Ok(None),
        _ => Err(error),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::mkfifoat;

    use super::*;

    #[test]
    fn abandoned_folders_go_and_owned_ones_stay() {
        let parent = tempfile::tempdir().unwrap();
        let abandoned = parent.path().join("hgvm-1-0");
        fs::create_dir(&abandoned).unwrap();
        let mine = Workdir::create(parent.path(), "hgvm").unwrap();
        let other = Workdir::create(parent.path(), "hgvm").unwrap();
        assert!(!abandoned.exists());
        assert!(mine.path().exists() && other.path().exists() && mine.path() != other.path());
        let path = mine.path().to_owned();
        drop(mine);
        assert!(!path.exists() && other.path().exists());
    }

    /// As any user may leave in `/tmp`. To open the pipe for reading would never end.
    #[test]
    fn what_is_no_folder_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let (pipe, link) = (parent.path().join("hgvm-1"), parent.path().join("hgvm-2"));
        mkfifoat(CWD, &pipe, Mode::RUSR).unwrap();
        let elsewhere = parent.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        symlink(&elsewhere, &link).unwrap();
        let mine = Workdir::create(parent.path(), "hgvm").unwrap();
        let stays = [&pipe, &link, &elsewhere].map(|path| fs::symlink_metadata(path).is_ok());
        assert!(mine.path().is_dir() && stays == [true; 3], "{stays:?}");
    }

    #[test]
    fn nobody_takes_a_folder_that_another_is_about_to_lock() {
        let parent = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..300 {
                        let mine = Workdir::create(parent.path(), "hgvm").unwrap();
                        mine.write("file", b"1").unwrap();
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
