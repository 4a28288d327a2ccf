//! Connections of which one end is established and the other is not.

use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Lets a listener's end of a connection come into being with the first bytes that the caller sends, and no earlier
/// (`TCP_DEFER_ACCEPT`). The caller's end is there as ever.
///
/// # Panics
/// If the kernel refuses.
pub fn defer(listener: &TcpListener, at_most: Duration) {
    let seconds = libc::c_int::try_from(at_most.as_secs()).expect("a test takes seconds");
    // SAFETY: the descriptor is open, and the value is as long as is said and outlives the call.
    let result = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            libc::socklen_t::try_from(size_of_val(&seconds)).expect("four bytes"),
        )
    };
    assert_eq!(result, 0, "TCP_DEFER_ACCEPT: {}", io::Error::last_os_error());
}
