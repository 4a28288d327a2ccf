//! The end of processes in namespaces that are to go.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal};

use crate::error::Attempt;
use crate::{Error, Netns, Result, netns};

/// Kills every process of which a thread is in one of the namespaces, but never the calling one; how many there were.
/// One may start another during the search, so this repeats until none is found. An error if one is left after ten
/// seconds: a process that waits for a dead disk cannot be killed.
pub fn kill_in(namespaces: &[Netns]) -> Result<u32> {
    let inodes = &netns::inodes_of(namespaces)?;
    let deadline = Instant::now() + KILL_PATIENCE;
    let mut killed = BTreeSet::new();
    loop {
        let pids = netns::pids_at(inodes)?;
        let Some(first) = pids.first() else {
            return Ok(u32::try_from(killed.len()).expect("a machine has fewer processes"));
        };
        if Instant::now() > deadline {
            let why = format!("it has not ended within {} s", KILL_PATIENCE.as_secs());
            return Err(Error::new(
                format!("kill process {first}"),
                io::Error::new(io::ErrorKind::TimedOut, why),
            ));
        }
        for pid in pids {
            if kill_if_in(pid, inodes)? {
                killed.insert(pid);
            }
        }
        // The killed are gone from their namespace when they have ended, which takes them a moment.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// How long [`kill_in`] waits for the killed to end.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// The process is held before it is checked again: a number may have been given to another process meanwhile.
fn kill_if_in(pid: u32, inodes: &BTreeSet<u64>) -> Result<bool> {
    let attempted = || format!("kill process {pid}");
    let held = Pid::from_raw(pid.cast_signed()).ok_or(rustix::io::Errno::SRCH);
    let held = held.and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()));
    let sent = match held {
        Ok(pidfd) if netns::has_thread_in(pid, inodes) => {
            rustix::process::pidfd_send_signal(&pidfd, Signal::KILL).map(|()| true)
        }
        Ok(_) => Ok(false),
        Err(errno) => Err(errno),
    };
    match sent {
        Err(rustix::io::Errno::SRCH) => Ok(false),
        sent => sent.attempt(attempted),
    }
}
