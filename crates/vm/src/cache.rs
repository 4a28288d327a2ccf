//! The folder for downloads: outside any checkout, kept between runs, safe for several processes at once.
//!
//! Every entry appears by rename from a staging folder, so a reader sees it whole or not at all. Writers take the lock
//! first, so that two of them do not download the same hundred megabytes twice. What appears is on the disk: after a
//! loss of power an entry would otherwise be there with empty files, and nobody looks into it again.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::{Error, Result};

/// With both kernels, QEMU and the lists of packages a cache holds 700 MiB; packages lie there packed, too,
/// while they are unpacked.
const FETCH_BYTES: u64 = 1 << 30;

/// A folder of downloaded and unpacked packages.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

/// Holds the cache's lock until dropped.
#[must_use]
pub(crate) struct Lock {
    _file: File,
}

/// A folder that is either renamed into its place or removed.
pub(crate) struct Staging {
    path: PathBuf,
}

impl Cache {
    /// Opens `$HOSTGAP_CACHE`, or `~/.cache/hostgap`.
    ///
    /// # Errors
    /// If neither `HOSTGAP_CACHE` nor `HOME` is set, or the folder cannot be made.
    pub fn open() -> Result<Self> {
        let named = std::env::var_os("HOSTGAP_CACHE").filter(|folder| !folder.is_empty()).map(PathBuf::from);
        let usual = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/hostgap"));
        Self::at(named.or_else(usual).ok_or(Error::NoCache)?)
    }

    /// Opens, and makes if needed, the cache at `root`.
    ///
    /// # Errors
    /// If the folder cannot be made.
    pub fn at(root: impl Into<PathBuf>) -> Result<Self> {
        let root = root.into();
        fs::create_dir_all(&root).map_err(Error::file("make", &root))?;
        // Absolute, because the guest and apt use it from other working directories.
        let root = fs::canonicalize(&root).map_err(Error::file("resolve", &root))?;
        Ok(Self { root })
    }

    /// Where the cache is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// An error if the file system has too little room for a fetch. Without this check apt, out of space, would retry
    /// endlessly.
    pub(crate) fn has_room(&self) -> Result<()> {
        let found = rustix::fs::statvfs(&self.root).map_err(Error::file("look at", &self.root))?;
        let free_bytes = found.f_bavail.saturating_mul(found.f_frsize);
        if free_bytes >= FETCH_BYTES {
            return Ok(());
        }
        Err(Error::Space { path: self.root.clone(), free_bytes, needed_bytes: FETCH_BYTES })
    }

    /// A folder inside, made if needed.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.root.join(name);
        fs::create_dir_all(&path).map_err(Error::file("make", &path))?;
        Ok(path)
    }

    /// Waits for the lock called `name`.
    pub(crate) fn lock(&self, name: &str) -> Result<Lock> {
        let path = self.root.join(name).with_extension("lock");
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(Error::file("open", &path))?;
        flock(&file, FlockOperation::LockExclusive).map_err(Error::file("lock", &path))?;
        Ok(Lock { _file: file })
    }

    /// Makes an empty folder on the cache's own file system, to be filled and then published.
    pub(crate) fn stage(&self) -> Result<Staging> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let folder = self.folder("staging")?;
        remove_abandoned(&folder);
        loop {
            let name = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let path = folder.join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Staging { path }),
                // Another process with our number: it runs in another PID namespace, or was killed before cleaning up.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::file("make", &path)(error)),
            }
        }
    }

    /// Brings to the disk what programs have written into the cache's file system, before an entry vouches for it.
    pub(crate) fn settle(&self) -> Result<()> {
        let root = File::open(&self.root).map_err(Error::file("open", &self.root))?;
        rustix::fs::syncfs(root).map_err(Error::file("sync", &self.root))
    }

    /// Writes a file by rename, so that readers see it whole or not at all.
    pub(crate) fn write(&self, path: &Path, content: &[u8]) -> Result<()> {
        let staging = self.stage()?;
        let draft = staging.path.join("content");
        let written = File::create(&draft).and_then(|mut file| {
            file.write_all(content)?;
            file.sync_all()
        });
        written.map_err(Error::file("write", &draft))?;
        fs::rename(&draft, path).map_err(Error::file("publish", path))
    }
}

impl Staging {
    /// The folder to fill.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the subfolder `name` to `place`; an existing `place` has equal contents and stays.
    pub(crate) fn publish(&self, name: &str, place: &Path) -> Result<()> {
        match fs::rename(self.path.join(name), place) {
            Err(_) if place.is_dir() => Ok(()),
            result => result.map_err(Error::file("publish", place)),
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // A folder that cannot be removed now is removed as abandoned later.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the leftovers of killed processes: no staging takes a day.
fn remove_abandoned(folder: &Path) {
    const AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        if modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > AGE_MAX)) {
            // Another process may be removing it too; the next run retries.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_folder_is_whole_and_staging_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("a/b")).unwrap();
        let place = cache.folder("deb").unwrap().join("x_1");
        let staged = {
            let staging = cache.stage().unwrap();
            fs::create_dir(staging.path().join("x")).unwrap();
            fs::write(staging.path().join("x/file"), "1").unwrap();
            staging.publish("x", &place).unwrap();
            staging.path().to_owned()
        };
        assert_eq!(fs::read_to_string(place.join("file")).unwrap(), "1");
        assert!(!staged.exists());
    }

    #[test]
    fn second_publisher_keeps_what_the_first_published() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        let place = folder.path().join("place");
        for content in ["first", "second"] {
            let staging = cache.stage().unwrap();
            fs::create_dir(staging.path().join("x")).unwrap();
            fs::write(staging.path().join("x/file"), content).unwrap();
            staging.publish("x", &place).unwrap();
        }
        assert_eq!(fs::read_to_string(place.join("file")).unwrap(), "first");
    }

    #[test]
    fn lock_excludes() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        let held = cache.lock("fetch").unwrap();
        let file = File::open(folder.path().join("fetch.lock")).unwrap();
        assert!(flock(&file, FlockOperation::NonBlockingLockExclusive).is_err());
        drop(held);
        assert!(flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok());
    }
}
