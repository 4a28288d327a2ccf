//! The directory of a network, in the format of `host-local`, while its lock is held.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{Dir, FileType, FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::{Errno, read, retry_on_intr};

use crate::{Holder, IpamError, Key};

/// Locked by `host-local` as well.
const LOCK: &str = "lock";
/// The beginning of the name of a hint to where the next search begins. The index of the range set follows.
const LAST_RESERVED: &str = "last_reserved_ip.";
/// A file that is being written. One name is enough, since only the holder of the lock writes. It is no address, so
/// that `host-local` never takes it for one.
const FRESH: &str = ".hostgap-new";
/// The file that says which addresses were released in this boot, and when.
const RELEASED: &str = ".hostgap-released";
/// More than the longest content: a container's id has 64 bytes, an interface's name 15.
const CONTENT_BYTES: usize = 1024;
/// The most bytes of an address as text.
const ADDRESS_BYTES_MAX: u64 = 45;

/// A directory, and the lock on it, which goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// For listing, for opening what is in it, and for making it durable.
    file: File,
    /// None is needed to look at a directory in which no one ever changed anything.
    _lock: Option<File>,
}

/// All reservations in a network's directory.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// The addresses that are taken, with their owners.
    pub(crate) reserved: BTreeMap<IpAddr, Holder>,
    /// Files that cannot be read. Their addresses are taken, by an unknown holder.
    pub(crate) unread: Vec<IpamError>,
}

impl Directory {
    /// Makes it if it is not there, and waits for the lock.
    pub(crate) fn make(path: &Path) -> Result<Directory, IpamError> {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(path);
        made.map_err(IpamError::file("create", path))?;
        Directory::lock(path)
    }

    /// Waits for the lock; `None` if there is no directory.
    pub(crate) fn lock_if_there(path: &Path) -> Result<Option<Directory>, IpamError> {
        if is_there(path)? { Directory::lock(path).map(Some) } else { Ok(None) }
    }

    /// Waits until no process changes it, and keeps others from changing it; `None` if there is no directory. It needs
    /// no right to write.
    pub(crate) fn look(path: &Path) -> Result<Option<Directory>, IpamError> {
        if !is_there(path)? {
            return Ok(None);
        }
        let lock = match File::open(path.join(LOCK)) {
            Ok(lock) => Some(locked(lock, FlockOperation::LockShared, path)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(IpamError::file("open", &path.join(LOCK))(error)),
        };
        Directory::open(path, lock).map(Some)
    }

    fn lock(path: &Path) -> Result<Directory, IpamError> {
        let name = path.join(LOCK);
        let lock =
            OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(&name);
        let lock =
            locked(lock.map_err(IpamError::file("open", &name))?, FlockOperation::LockExclusive, path)?;
        let directory = Directory::open(path, Some(lock))?;
        // What a killed process left. It may even hold a key, which host-local would find in it.
        directory.remove_fresh()?;
        Ok(directory)
    }

    fn open(path: &Path, lock: Option<File>) -> Result<Directory, IpamError> {
        let file = File::open(path).map_err(IpamError::file("open", path))?;
        Ok(Directory { path: path.to_owned(), file, _lock: lock })
    }

    /// The path of an address's file. `host-local` uses the same texts for both families (RFC 5952).
    pub(crate) fn path_of(&self, address: IpAddr) -> PathBuf {
        self.path.join(address.to_string())
    }

    /// The addresses that have a file.
    pub(crate) fn names(&self) -> Result<BTreeSet<IpAddr>, IpamError> {
        let fail = |errno: Errno| IpamError::file("list", &self.path)(errno);
        let mut names = BTreeSet::new();
        for entry in Dir::read_from(&self.file).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            // host-local steps over directories, whatever their name.
            if entry.file_type() != FileType::Directory {
                names.extend(address_of(entry.file_name()));
            }
        }
        Ok(names)
    }

    /// Reads all addresses. `host-local` does so at each call, too: a file per address has no other index.
    pub(crate) fn list(&self) -> Result<Listing, IpamError> {
        let mut listing = Listing { reserved: BTreeMap::new(), unread: Vec::new() };
        for address in self.names()? {
            match self.holder(address) {
                Ok(Some(holder)) => {
                    listing.reserved.insert(address, holder);
                }
                // A program that does not use the lock has released it.
                Ok(None) => {}
                Err(error) => listing.unread.push(error),
            }
        }
        Ok(listing)
    }

    /// The owner of an address; `None` if it has no file.
    pub(crate) fn holder(&self, address: IpAddr) -> Result<Option<Holder>, IpamError> {
        match self.read(&address.to_string()) {
            Ok(holder) => Ok(Some(holder)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(IpamError::file("read", &self.path_of(address))(errno)),
        }
    }

    fn read(&self, name: &str) -> Result<Holder, Errno> {
        let file = openat(&self.file, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        // A regular file gives all that fits at once. What does not fit is no key.
        let mut content = [0; CONTENT_BYTES];
        let length = retry_on_intr(|| read(&file, &mut content))?;
        Ok(Holder::read(&content[..length]))
    }

    /// Makes the file of an address, whole or not at all; false if there is one. [`Directory::sync`] makes the name
    /// durable.
    pub(crate) fn reserve(&self, address: IpAddr, key: &Key) -> Result<bool, IpamError> {
        self.write_fresh(key.text().as_bytes(), Durable::Yes)?;
        // Unlike a rename it never replaces a file, even if someone does not use the lock.
        let linked = fs::hard_link(self.path.join(FRESH), self.path_of(address));
        // If it stays, the next holder of the lock removes it. The address is reserved or not by its own name.
        let _ = self.remove_fresh();
        match linked {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(IpamError::file("create", &self.path_of(address))(error)),
        }
    }

    /// Removes the file of an address. It is no error if it is gone. There is no sync: if the machine stops right after
    /// this, the address may be reserved again, and is one of an earlier boot.
    pub(crate) fn release(&self, address: IpAddr) -> Result<(), IpamError> {
        remove(&self.path_of(address))
    }

    /// Makes the names of the files durable.
    pub(crate) fn sync(&self) -> Result<(), IpamError> {
        self.file.sync_all().map_err(IpamError::file("sync", &self.path))
    }

    /// When the file of an address was written; `None` if it is gone.
    pub(crate) fn written(&self, address: IpAddr) -> Result<Option<SystemTime>, IpamError> {
        let path = self.path_of(address);
        match path.symlink_metadata().and_then(|found| found.modified()) {
            Ok(time) => Ok(Some(time)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(IpamError::file("look at", &path)(error)),
        }
    }

    /// The address that was last taken from a range set. It is only a hint, so an unreadable one is none.
    pub(crate) fn last_reserved(&self, set: usize) -> Option<IpAddr> {
        let file = File::open(self.path.join(format!("{LAST_RESERVED}{set}"))).ok()?;
        let mut text = String::new();
        file.take(ADDRESS_BYTES_MAX).read_to_string(&mut text).ok()?;
        text.parse().ok()
    }

    /// Written as `host-local` does it, without a detour: if it is torn, the search begins at the beginning.
    pub(crate) fn set_last_reserved(&self, set: usize, address: IpAddr) -> Result<(), IpamError> {
        let path = self.path.join(format!("{LAST_RESERVED}{set}"));
        fs::write(&path, address.to_string()).map_err(IpamError::file("write", &path))
    }

    /// The notes of ours; empty if there are none.
    pub(crate) fn notes(&self) -> Result<Vec<u8>, IpamError> {
        let path = self.path.join(RELEASED);
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            read => read.map_err(IpamError::file("read", &path)),
        }
    }

    /// Whether notes were ever written here, whatever has become of them.
    pub(crate) fn has_notes(&self) -> bool {
        self.path.join(RELEASED).exists()
    }

    /// There is no sync: after a restart of the machine the notes are void anyway.
    pub(crate) fn set_notes(&self, bytes: &[u8]) -> Result<(), IpamError> {
        self.write_fresh(bytes, Durable::No)?;
        let path = self.path.join(RELEASED);
        fs::rename(self.path.join(FRESH), &path).map_err(|error| {
            // It would be in the way of the next file under this lock.
            let _ = self.remove_fresh();
            IpamError::file("create", &path)(error)
        })
    }

    fn write_fresh(&self, bytes: &[u8], durable: Durable) -> Result<(), IpamError> {
        let path = self.path.join(FRESH);
        let written =
            OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path).and_then(|mut file| {
                file.write_all(bytes)?;
                if durable == Durable::Yes { file.sync_all() } else { Ok(()) }
            });
        written.map_err(|error| {
            // The next holder of the lock does it otherwise.
            let _ = self.remove_fresh();
            IpamError::file("write", &path)(error)
        })
    }

    fn remove_fresh(&self) -> Result<(), IpamError> {
        remove(&self.path.join(FRESH))
    }
}

/// Whether a file must have its content after the machine has stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Durable {
    Yes,
    No,
}

fn locked(lock: File, operation: FlockOperation, directory: &Path) -> Result<File, IpamError> {
    let taken = retry_on_intr(|| flock(&lock, operation));
    taken.map_err(IpamError::file("lock", &directory.join(LOCK)))?;
    Ok(lock)
}

fn is_there(path: &Path) -> Result<bool, IpamError> {
    path.try_exists().map_err(IpamError::file("look at", path))
}

fn remove(path: &Path) -> Result<(), IpamError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(IpamError::file("remove", path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The address that a name is. Another spelling of it would be another file, and is not ours.
fn address_of(name: &CStr) -> Option<IpAddr> {
    let text = name.to_str().ok()?;
    let address: IpAddr = text.parse().ok()?;
    (address.to_string() == text).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn names(path: &Path) -> Vec<String> {
        let entries = fs::read_dir(path).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_made_whole_and_never_replaced() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("data/n");
        assert!(
            Directory::look(&path).unwrap().is_none() && Directory::lock_if_there(&path).unwrap().is_none()
        );
        let directory = Directory::make(&path).unwrap();
        let key = Key::new("c1", "eth0").unwrap();
        assert!(directory.reserve(address("fd00::2"), &key).unwrap());
        assert!(!directory.reserve(address("fd00::2"), &Key::new("c2", "eth0").unwrap()).unwrap());
        directory.sync().unwrap();
        assert_eq!(names(&path), ["fd00::2", "lock"]);
        assert_eq!(fs::read(path.join("fd00::2")).unwrap(), b"c1\r\neth0");
        directory.release(address("fd00::2")).unwrap();
        directory.release(address("fd00::2")).unwrap();
        assert_eq!(names(&path), ["lock"]);
    }

    #[test]
    fn only_files_with_the_name_of_an_address_are_reservations() {
        let root = tempfile::tempdir().unwrap();
        let others =
            ["lock", "last_reserved_ip.0", ".hostgap-released", ".hostgap-new", "10.0.0.02", "FD00::1", "x"];
        for name in others.into_iter().chain(["10.0.0.2", "fd00::1"]) {
            fs::write(root.path().join(name), "c1\r\neth0").unwrap();
        }
        fs::create_dir(root.path().join("10.0.0.3")).unwrap();
        let listing = Directory::look(root.path()).unwrap().unwrap().list().unwrap();
        let found: Vec<String> = listing.reserved.keys().map(ToString::to_string).collect();
        assert_eq!(found, ["10.0.0.2", "fd00::1"]);
        assert!(listing.unread.is_empty());
    }

    #[test]
    fn the_next_holder_of_the_lock_removes_what_a_killed_one_was_writing() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(FRESH), "c1\r\neth0").unwrap();
        drop(Directory::look(root.path()).unwrap());
        assert_eq!(names(root.path()), [FRESH]);
        drop(Directory::make(root.path()).unwrap());
        assert_eq!(names(root.path()), ["lock"]);
    }

    #[test]
    fn a_torn_hint_is_none() {
        let root = tempfile::tempdir().unwrap();
        let directory = Directory::make(root.path()).unwrap();
        assert_eq!(directory.last_reserved(0), None);
        directory.set_last_reserved(0, address("10.0.0.2")).unwrap();
        assert_eq!(directory.last_reserved(0), Some(address("10.0.0.2")));
        fs::write(root.path().join("last_reserved_ip.0"), "10.0.").unwrap();
        assert_eq!(directory.last_reserved(0), None);
    }
}
