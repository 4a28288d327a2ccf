//! Kernel parameters under `/proc/sys`.
//!
//! Those of a network namespace are the ones of the namespace in which the calling thread is: call within
//! [`Netns::run`](crate::Netns::run).

mod configured;

pub use configured::{Assignment, Configured};

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{Dir, FileType, Mode, OFlags, StatVfsMountFlags, openat, statvfs};
use rustix::mount::{MountFlags, mount_remount};
use serde::{Deserialize, Serialize};

use crate::error::Attempt;
use crate::{Error, NameError, Result};

/// The key of a kernel parameter as a path below `/proc/sys`, `net/ipv4/ip_forward`. Slashes and not dots, since a
/// link's name may contain dots (`net/ipv4/conf/flannel.1/rp_filter`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(String);

/// A tree of parameters: the kernel's, or one that a test wrote.
#[derive(Debug, Clone)]
pub struct SysctlTree {
    root: PathBuf,
}

/// Bytes to read a value into; nearly all are shorter.
const VALUE_LEN: usize = 1024;

/// Reads a parameter in the calling thread's namespace; `None` if the kernel does not have it.
pub fn read(key: &Key) -> Result<Option<String>> {
    SysctlTree::kernel().read(key)
}

/// Sets a parameter in the calling thread's namespace. `ENOENT` if the kernel does not have it, `EINVAL` if it rejects
/// the value.
pub fn write(key: &Key, value: &str) -> Result<()> {
    SysctlTree::kernel().write(key, value)
}

/// Lets this process write parameters where `/proc/sys` is mounted read-only, as container runtimes have it: the mount
/// of the process's own mount namespace is made writable. Does nothing where it is. Needs `CAP_SYS_ADMIN`.
///
/// # Errors
/// The kernel or a security module (AppArmor's profile of containers) refuses.
pub fn make_writable() -> Result<()> {
    let attempted = || "make /proc/sys writable";
    let found = statvfs("/proc/sys").attempt(attempted)?;
    if !found.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Ok(());
    }
    // All flags are set anew, and these are those of a mount of /proc.
    let flags = MountFlags::BIND | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount_remount("/proc/sys", flags, c"").attempt(attempted)
}

/// Every readable parameter at or below a prefix (`net/ipv4/conf`) of the calling thread's namespace.
pub fn list(prefix: &str) -> Result<BTreeMap<Key, String>> {
    SysctlTree::kernel().list(prefix)
}

impl SysctlTree {
    /// The parameters of the running kernel, below `/proc/sys`.
    pub fn kernel() -> SysctlTree {
        SysctlTree::at("/proc/sys")
    }

    /// A tree of files in another directory.
    pub fn at(root: impl Into<PathBuf>) -> SysctlTree {
        SysctlTree { root: root.into() }
    }

    /// The value without the final newline; `None` if the parameter does not exist.
    pub fn read(&self, key: &Key) -> Result<Option<String>> {
        match File::open(self.root.join(key.as_str())).and_then(value) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).attempt(|| format!("read sysctl {key}")),
        }
    }

    /// Sets a value. Never makes a file.
    pub fn write(&self, key: &Key, value: &str) -> Result<()> {
        let attempted = || format!("set sysctl {key} to {value:?}");
        // The kernel takes a value in one write. A plain file must not keep the tail of a longer old value.
        let mut file = OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(self.root.join(key.as_str()))
            .attempt(attempted)?;
        file.write_all(format!("{value}\n").as_bytes()).attempt(attempted)
    }

    /// Every readable parameter at or below a prefix; empty if there is none. Parameters that are only written
    /// (`net/ipv4/route/flush`) or that cannot be read now are left out.
    pub fn list(&self, prefix: &str) -> Result<BTreeMap<Key, String>> {
        let first = Key::new(prefix).map_err(|error| Error::invalid("list sysctls", error.to_string()))?;
        let mut found = BTreeMap::new();
        let path = self.root.join(first.as_str());
        if path.is_dir() {
            let directory = File::open(path).attempt(|| format!("list sysctl {first}"))?;
            add_all(&mut found, &directory.into(), &first).attempt(|| format!("list sysctl {first}"))?;
        } else if let Ok(Some(value)) = self.read(&first) {
            found.insert(first, value);
        }
        Ok(found)
    }
}

/// Adds what is below a directory. A namespace has a thousand parameters, and to walk the path of each from the root
/// would take twice as long as to read it.
fn add_all(found: &mut BTreeMap<Key, String>, directory: &OwnedFd, at: &Key) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        let Ok(key) = Key::new(format!("{at}/{name}")) else { continue };
        let opened = openat(directory, name, flags, Mode::empty());
        if entry.file_type() == FileType::Directory {
            add_all(found, &opened?, &key)?;
        } else if let Ok(value) = opened.map_err(io::Error::from).and_then(|file| value(file.into())) {
            found.insert(key, value);
        }
    }
    Ok(())
}

/// What a parameter holds, without the final newline. The size of its file reads as 0, so it is not asked for.
fn value(mut file: File) -> io::Result<String> {
    let mut bytes = vec![0; VALUE_LEN];
    let length = file.read(&mut bytes)?;
    bytes.truncate(length);
    // The kernel fills the buffer if there is more.
    if length == VALUE_LEN {
        file.read_to_end(&mut bytes)?;
    }
    let text = String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(text.trim_end_matches('\n').to_owned())
}

impl Key {
    /// Checks that the text is a relative path without `.` and `..`.
    pub fn new(text: impl Into<String>) -> Result<Key, NameError> {
        let text = text.into();
        let sound =
            !text.is_empty() && text.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
        if sound {
            Ok(Key(text))
        } else {
            Err(NameError { kind: "sysctl key", text, why: "a path such as net/ipv4/ip_forward is expected" })
        }
    }

    /// The path below `/proc/sys`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Key {
    type Error = NameError;
    fn try_from(text: String) -> Result<Key, NameError> {
        Key::new(text)
    }
}

impl From<Key> for String {
    fn from(key: Key) -> String {
        key.0
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    #[test]
    fn keys_stay_below_the_root() {
        assert!(Key::new("net/ipv4/conf/flannel.1/rp_filter").is_ok());
        assert!(Key::new("../etc/passwd").is_err());
        assert!(Key::new("/net").is_err());
        assert!(Key::new("net//x").is_err());
        assert!(Key::new("").is_err());
    }

    #[test]
    fn values_are_read_written_and_listed() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("net/ipv4")).unwrap();
        fs::write(directory.path().join("net/ipv4/tcp_rmem"), "4096\t131072\t6291456\n").unwrap();
        fs::write(directory.path().join("net/ipv4/ip_forward"), "0\n").unwrap();
        let tree = SysctlTree::at(directory.path());
        assert_eq!(tree.read(&key("net/ipv4/tcp_rmem")).unwrap().unwrap(), "4096\t131072\t6291456");
        tree.write(&key("net/ipv4/ip_forward"), "1").unwrap();
        let all = tree.list("net").unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all[&key("net/ipv4/ip_forward")], "1");
        assert_eq!(tree.list("net/ipv4/ip_forward").unwrap().len(), 1);
        assert!(tree.list("vm").unwrap().is_empty());
    }

    #[test]
    fn a_long_value_is_read_to_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let tree = SysctlTree::at(directory.path());
        for length in [VALUE_LEN - 1, VALUE_LEN, 3 * VALUE_LEN] {
            let value = "x".repeat(length);
            fs::write(directory.path().join("ports"), format!("{value}\n")).unwrap();
            assert_eq!(tree.read(&key("ports")).unwrap(), Some(value));
        }
    }

    #[test]
    fn what_is_missing_is_none_and_is_not_made() {
        let directory = tempfile::tempdir().unwrap();
        let tree = SysctlTree::at(directory.path());
        assert_eq!(tree.read(&key("net/nothing")).unwrap(), None);
        let error = tree.write(&key("nothing"), "1").unwrap_err();
        assert!(error.is(libc::ENOENT));
        assert_eq!(error.to_string(), "set sysctl nothing to \"1\": no such file or directory");
    }
}
