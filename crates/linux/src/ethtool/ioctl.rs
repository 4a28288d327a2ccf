//! Requests that every kernel takes by `SIOCETHTOOL`, and by netlink not at all or since recently only.

use std::os::fd::AsRawFd;

use super::Ethtool;
use crate::IfName;

impl Ethtool {
    /// Sends one request about a link. `words` is what the kernel reads and writes: the structure of the command that its
    /// first word names, with as many entries or bytes behind the head as the head says.
    pub(super) fn ioctl(&self, link: &IfName, words: &mut [u32]) -> std::io::Result<()> {
        let mut name = [0; libc::IFNAMSIZ];
        for (to, from) in name.iter_mut().zip(link.as_str().bytes()) {
            *to = from.cast_signed();
        }
        let data = words.as_mut_ptr().cast::<libc::c_char>();
        let request =
            libc::ifreq { ifr_name: name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: data } };
        // SAFETY: the descriptor is a socket that is open for the length of the call. `request` is a whole `ifreq` with a
        // name that ends with NUL (an `IfName` has at most 15 bytes), and its data points to `words`, which the kernel
        // reads and writes no further than its head and the counts in it say, and all callers make it so long. No
        // structure here needs more alignment than a word: the kernel copies them byte by byte.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL, &raw const request) };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }
}
