//! Network namespaces: the only place in the project that calls `setns`.
//!
//! A thread is in a namespace only inside [`Netns::run`], or for the whole of its life if it was started for that.
//! Named namespaces are those of `ip netns`: files under `/run/netns` onto which a namespace is bound.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::mount::UnmountFlags;
use rustix::thread::LinkNameSpaceType;

use crate::error::Attempt;
use crate::{Error, NetnsName, NetnsPath, NetnsRef, Result};

/// The error of `setns` for a descriptor that is not a network namespace.
const NO_NAMESPACE: rustix::io::Errno = rustix::io::Errno::INVAL;

/// Where `ip netns` and programs that follow it keep named namespaces.
pub(crate) const DIRECTORY: &str = "/run/netns";

/// The calling thread's namespace. Not `/proc/self`, which is that of the process's first thread.
pub(crate) const OWN: &str = "/proc/thread-self/ns/net";

/// An open network namespace; it lives at least as long as this does.
#[derive(Debug)]
pub struct Netns {
    fd: OwnedFd,
    found: Option<NetnsRef>,
}

impl Netns {
    /// The calling thread's namespace.
    pub fn current() -> Result<Netns> {
        let fd = File::open(OWN).attempt(|| "open the current network namespace")?.into();
        Ok(Netns { fd, found: None })
    }

    /// Opens a named namespace. `ENOENT` if the name does not exist.
    pub fn open(name: &NetnsName) -> Result<Netns> {
        let fd = File::open(path(name)).attempt(|| format!("open namespace {name}"))?.into();
        Ok(Netns { fd, found: Some(name.clone().into()) })
    }

    /// Opens the namespace at a path.
    ///
    /// # Errors
    /// The path does not exist or is not a network namespace: an error for which [`is_gone`] is true.
    pub fn open_path(path: &NetnsPath) -> Result<Netns> {
        let attempted = || format!("open the network namespace {path}");
        // Without NONBLOCK, opening a FIFO would wait for a writer.
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
        let file = options.open(path.as_ref() as &Path).attempt(attempted)?;
        let netns = Netns { fd: file.into(), found: Some(path.clone().into()) };
        // When a bind mount is removed, its mount point remains as an empty file, which `setns` refuses.
        netns.run(|| ())?;
        Ok(netns)
    }

    /// The namespace of a name or a path.
    ///
    /// # Errors
    /// As for [`Netns::open`] and [`Netns::open_path`].
    pub fn find(found: &NetnsRef) -> Result<Netns> {
        match found {
            NetnsRef::Name(name) => Netns::open(name),
            NetnsRef::Path(path) => Netns::open_path(path),
        }
    }

    /// The name by which it was opened.
    pub fn name(&self) -> Option<&NetnsName> {
        match &self.found {
            Some(NetnsRef::Name(name)) => Some(name),
            Some(NetnsRef::Path(_)) | None => None,
        }
    }

    /// The identity of a namespace (`net:[4026531840]`), as long as it stands: the next one may get the number of
    /// one that is gone.
    pub fn inode(&self) -> Result<u64> {
        let stat = rustix::fs::fstat(&self.fd).attempt(|| format!("identify {}", self.describe()))?;
        Ok(stat.st_ino)
    }

    /// Another descriptor of the same namespace.
    pub fn try_clone(&self) -> Result<Netns> {
        let fd = self.fd.try_clone().attempt(|| format!("duplicate {}", self.describe()))?;
        Ok(Netns { fd, found: self.found.clone() })
    }

    /// Runs the closure with the calling thread in this namespace, and moves the thread back afterwards, also when the
    /// closure panics. Sockets, processes and threads that the closure starts stay in this namespace.
    ///
    /// Calls may be nested on one thread. If the thread cannot move back, the process aborts, because the rest of its
    /// work would run in the wrong network. That happens only if privileges are dropped in the meantime.
    pub fn run<T>(&self, inside: impl FnOnce() -> T) -> Result<T> {
        let to = Netns::current()?;
        self.enter()?;
        let back = WayBack { to };
        let value = inside();
        drop(back);
        Ok(value)
    }

    /// For error texts: "namespace x" or "a namespace without a name".
    pub fn describe(&self) -> String {
        self.found
            .as_ref()
            .map_or_else(|| "a namespace without a name".to_owned(), |found| format!("namespace {found}"))
    }

    /// Puts the calling thread into the namespace for good: for threads started for that.
    pub(crate) fn enter(&self) -> Result<()> {
        rustix::thread::move_into_link_name_space(self.as_fd(), Some(LinkNameSpaceType::Network))
            .attempt(|| format!("enter {}", self.describe()))
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Removes a name. The namespace itself ends when no process and no descriptor is left in it. `ENOENT` if the name
/// does not exist.
pub fn delete(name: &NetnsName) -> Result<()> {
    let path = path(name);
    let attempted = || format!("delete namespace {name}");
    match rustix::mount::unmount(&path, UnmountFlags::DETACH) {
        // A plain file without a bind mount, left by a creation that was cut short.
        Ok(()) | Err(rustix::io::Errno::INVAL) => {}
        Err(errno) => return Err(Error::new(attempted(), errno)),
    }
    fs::remove_file(&path).attempt(attempted)
}

/// Whether an error of [`Netns::open_path`] means that the namespace is gone: its process ended, or its file was
/// unmounted.
pub fn is_gone(error: &Error) -> bool {
    let gone = [NO_NAMESPACE, rustix::io::Errno::NOENT, rustix::io::Errno::SRCH];
    gone.iter().any(|errno| error.errno() == Some(errno.raw_os_error()))
}

/// True if there is a named namespace of that name.
pub fn exists(name: &NetnsName) -> bool {
    path(name).exists()
}

/// The named namespaces in alphabetical order. A file whose name is not a [`NetnsName`] is not ours and is left out.
pub fn list() -> Result<Vec<NetnsName>> {
    let entries = match fs::read_dir(DIRECTORY) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.attempt(|| format!("list {DIRECTORY}"))?,
    };
    let mut names = BTreeSet::new();
    for entry in entries {
        let entry = entry.attempt(|| format!("list {DIRECTORY}"))?;
        names.extend(entry.file_name().to_str().and_then(|text| NetnsName::new(text).ok()));
    }
    Ok(names.into_iter().collect())
}

/// The processes of which a thread is in one of the namespaces; never the calling process. Processes that end
/// meanwhile, or that may not be read, are left out.
///
/// They are found by the namespaces' [numbers](Netns::inode), which the kernel gives to others as soon as a namespace
/// is gone: hence open namespaces, not numbers.
pub fn pids_in(namespaces: &[Netns]) -> Result<Vec<u32>> {
    pids_at(&inodes_of(namespaces)?)
}

pub(crate) fn inodes_of(namespaces: &[Netns]) -> Result<BTreeSet<u64>> {
    namespaces.iter().map(Netns::inode).collect()
}

/// [`pids_in`] by the numbers of namespaces that the caller has open.
pub(crate) fn pids_at(inodes: &BTreeSet<u64>) -> Result<Vec<u32>> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").attempt(|| "list /proc")?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    Ok(pids.filter(|pid| *pid != own && has_thread_in(*pid, inodes)).collect())
}

/// Takes the thread back when dropped.
struct WayBack {
    to: Netns,
}

impl Drop for WayBack {
    fn drop(&mut self) {
        if self.to.enter().is_err() {
            std::process::abort();
        }
    }
}

pub(crate) fn path(name: &NetnsName) -> PathBuf {
    Path::new(DIRECTORY).join(name.as_str())
}

pub(crate) fn has_thread_in(pid: u32, inodes: &BTreeSet<u64>) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().any(|thread| {
        // stat follows the link, which names an inode of nsfs.
        fs::metadata(thread.path().join("ns/net")).is_ok_and(|meta| inodes.contains(&meta.ino()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_is_never_listed() {
        assert!(!pids_in(&[Netns::current().unwrap()]).unwrap().contains(&std::process::id()));
    }
}
