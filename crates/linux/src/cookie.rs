//! Cookies by which the kernel distinguishes network namespaces for as long as it runs.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::error::Attempt;
use crate::sysfs::NetSysfs;
use crate::{Netns, NetnsPath, Result, mountinfo, netns};

impl Netns {
    /// The namespace's cookie (`SO_NETNS_COOKIE`, Linux 5.14). Inodes are given again as soon as a namespace has
    /// ended; a cookie never is until the machine is restarted.
    pub fn cookie(&self) -> Result<u64> {
        let attempted = || format!("read the cookie of {}", self.describe());
        // A Unix socket needs no protocol that the kernel might lack, and belongs to a namespace like any other.
        let socket =
            || rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        let socket = self.run(socket)?.attempt(attempted)?;
        cookie_of(&socket).attempt(attempted)
    }
}

/// The cookies of the network namespaces that can be found: those of threads in `/proc`, and those bound to a file of
/// this mount namespace, as every named one is. One that only an open descriptor holds is not found.
///
/// # Errors
/// `/proc` cannot be read, or the caller may not enter other namespaces.
pub fn visible_cookies() -> Result<BTreeSet<u64>> {
    let mut cookies = BTreeSet::new();
    first_visible(|netns| {
        cookies.insert(netns.cookie()?);
        Ok(false)
    })?;
    Ok(cookies)
}

/// The network namespace that has a link of a device, by the device's [address](NetSysfs::bus_address), among those
/// that [can be found](visible_cookies).
///
/// # Errors
/// As there.
pub fn netns_of_device(device: &str) -> Result<Option<Netns>> {
    first_visible(|netns| Ok(!NetSysfs::open(netns)?.links_of(device)?.is_empty()))
}

/// The first of the namespaces that can be found of which it is true. No more than one of them is open at a time.
fn first_visible(mut is_meant: impl FnMut(&Netns) -> Result<bool>) -> Result<Option<Netns>> {
    let mut known = BTreeSet::new();
    let bound = mountinfo::mounts()?.into_iter().filter(|mount| mount.kind == "nsfs");
    for path in paths_of_threads()?.into_iter().chain(bound.map(|mount| mount.point)) {
        // Threads end and names go meanwhile.
        let Ok(inode) = fs::metadata(&path).map(|metadata| metadata.ino()) else { continue };
        if known.contains(&inode) {
            continue;
        }
        let Some(path) = path.to_str().and_then(|path| NetnsPath::new(path).ok()) else { continue };
        match Netns::open_path(&path) {
            Ok(netns) if is_meant(&netns)? => return Ok(Some(netns)),
            Ok(_) => drop(known.insert(inode)),
            // It is gone, or a namespace of another kind.
            Err(error) if netns::is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Where each thread shows its namespace.
fn paths_of_threads() -> Result<Vec<PathBuf>> {
    let processes = fs::read_dir("/proc").attempt(|| "list /proc")?.flatten();
    let tasks = processes.filter_map(|process| fs::read_dir(process.path().join("task")).ok());
    Ok(tasks.flatten().flatten().map(|thread| thread.path().join("ns/net")).collect())
}

/// The cookie of a socket's namespace.
pub(crate) fn cookie_of(socket: &impl AsRawFd) -> std::io::Result<u64> {
    let mut cookie = 0_u64;
    let mut length = libc::socklen_t::try_from(size_of::<u64>()).expect("8 fits");
    // SAFETY: the descriptor is open; `cookie` and `length` are writable for the call, and `length` says how many
    // bytes `cookie` has.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(cookie) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_one_cookie() {
        let netns = Netns::current().unwrap();
        let cookie = netns.cookie().unwrap();
        assert_ne!(cookie, 0);
        assert_eq!(cookie, netns.cookie().unwrap());
    }
}
