//! Requests that every kernel accepts by `SIOCETHTOOL`, but by netlink only recently or never.

use std::os::fd::AsRawFd;

use super::Ethtool;
use crate::IfName;

impl Ethtool {
    /// Sends one request about a link. The kernel reads and writes `words`: the structure of the command in its first
    /// word, followed by as many entries or bytes as the header states.
    pub(super) fn ioctl(&self, link: &IfName, words: &mut [u32]) -> std::io::Result<()> {
        let mut name = [0; libc::IFNAMSIZ];
        for (to, from) in name.iter_mut().zip(link.as_str().bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        let data = words.as_mut_ptr().cast::<libc::c_char>();
        let request =
            libc::ifreq { ifr_name: name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: data } };
        // SAFETY: the descriptor is a socket that is open for the length of the call. `request` is a whole `ifreq`
        // with a name that ends with NUL (an `IfName` has at most 15 bytes), and its data points to `words`. The
        // kernel reads and writes no further than the header and its counts state, and all callers make `words` that
        // long. No structure here needs more alignment than a word: the kernel copies them byte by byte.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL, &raw const request) };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }
}
