//! What this process does when it gets a signal.

use std::io;

use crate::{Error, Result};

/// Whether this process ignores the signal of this number (signal(7)), as one does that nohup started, for SIGHUP, or a
/// script in the background, for SIGINT.
///
/// # Errors
/// There is no such signal.
pub fn ignores(signal: i32) -> Result<bool> {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action (null) the call changes nothing, and `action` has room for the one that it writes.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    if result != 0 {
        return Err(Error::new(format!("look at signal {signal}"), io::Error::last_os_error()));
    }
    // SAFETY: the call succeeded, so that it has written all of it.
    let action = unsafe { action.assume_init() };
    Ok(action.sa_sigaction == libc::SIG_IGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_told_from_what_is_not() {
        // Rust's standard library ignores this one from the start.
        assert!(ignores(libc::SIGPIPE).unwrap());
        assert!(!ignores(libc::SIGUSR1).unwrap());
        assert!(ignores(0).unwrap_err().to_string().contains("look at signal 0"));
    }
}
