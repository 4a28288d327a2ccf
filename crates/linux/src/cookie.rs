//! Cookies by which the kernel distinguishes network namespaces for as long as it runs.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::error::Attempt;
use crate::{Netns, Result};

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

fn cookie_of(socket: &OwnedFd) -> std::io::Result<u64> {
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
