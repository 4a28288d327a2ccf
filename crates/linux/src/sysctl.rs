//! Kernel parameters under `/proc/sys`.
//!
//! Those of a network namespace are the ones of the namespace in which the calling thread is: call within
//! [`Netns::run`](crate::Netns::run).

mod configured;

pub use configured::{Assignment, Configured};

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::PathBuf;

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
        // A namespace has a thousand parameters, and the size of each file reads as 0: it is not asked for.
        let mut text = String::with_capacity(VALUE_LEN);
        let file = File::open(self.root.join(key.as_str()));
        match file.and_then(|file| file.take(u64::MAX).read_to_string(&mut text)) {
            Ok(_) => Ok(Some(text.trim_end_matches('\n').to_owned())),
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
        let is_directory = self.root.join(first.as_str()).is_dir();
        let mut pending = vec![(first, is_directory)];
        while let Some((key, is_directory)) = pending.pop() {
            if is_directory {
                let entries = fs::read_dir(self.root.join(key.as_str()));
                for entry in entries.attempt(|| format!("list sysctl {key}"))?.flatten() {
                    let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                    let name = entry.file_name().into_string().ok();
                    let key = name.and_then(|name| Key::new(format!("{key}/{name}")).ok());
                    pending.extend(key.map(|key| (key, is_directory)));
                }
            } else if let Ok(Some(value)) = self.read(&key) {
                found.insert(key, value);
            }
        }
        Ok(found)
    }
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
    fn what_is_missing_is_none_and_is_not_made() {
        let directory = tempfile::tempdir().unwrap();
        let tree = SysctlTree::at(directory.path());
        assert_eq!(tree.read(&key("net/nothing")).unwrap(), None);
        let error = tree.write(&key("nothing"), "1").unwrap_err();
        assert!(error.is(libc::ENOENT));
        assert_eq!(error.to_string(), "set sysctl nothing to \"1\": no such file or directory");
    }
}
