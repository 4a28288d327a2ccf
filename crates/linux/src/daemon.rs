//! Processes that live on when their starter ends, known by an argument that names a directory of ours.
//!
//! A number of a process could have been given to another one meanwhile, and a name is every such program's.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::error::Attempt;
use crate::{Error, Result};

/// How long a killed process may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The processes with an argument that begins so, and no other process has one.
pub(crate) struct Daemons {
    argument: String,
}

/// Whether the process whose number a file has is alive and has this argument.
pub(crate) fn is_alive(pid_file: &Path, argument: &str) -> bool {
    let written = fs::read_to_string(pid_file);
    let pid = written.ok().and_then(|text| text.trim().parse().ok());
    pid.is_some_and(|pid| has_argument(pid, |found| found == argument.as_bytes()))
}

impl Daemons {
    pub(crate) fn with(argument: String) -> Daemons {
        Daemons { argument }
    }

    /// Kills them, and what is about to become one of them.
    pub(crate) fn end(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let pids = self.pids()?;
            let Some(first) = pids.first() else { return Ok(()) };
            if Instant::now() > deadline {
                let why = format!("it has not ended within {} s", PATIENCE.as_secs());
                let why = std::io::Error::new(std::io::ErrorKind::TimedOut, why);
                return Err(Error::new(format!("kill process {first}"), why));
            }
            pids.into_iter().try_for_each(|pid| self.kill(pid))?;
        }
    }

    fn pids(&self) -> Result<Vec<u32>> {
        let attempted = || "list processes";
        let mut pids = Vec::new();
        for entry in fs::read_dir("/proc").attempt(attempted)? {
            let name = entry.attempt(attempted)?.file_name();
            let pid = name.to_str().and_then(|name| name.parse().ok());
            pids.extend(pid.filter(|pid| self.owns(*pid)));
        }
        Ok(pids)
    }

    fn owns(&self, pid: u32) -> bool {
        has_argument(pid, |argument| argument.starts_with(self.argument.as_bytes()))
    }

    /// The process is held before it is looked at again: its number may have been given to another one meanwhile.
    fn kill(&self, pid: u32) -> Result<()> {
        let attempted = || format!("kill process {pid}");
        let held = Pid::from_raw(pid.cast_signed()).ok_or(rustix::io::Errno::SRCH);
        match held.and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty())) {
            Ok(pidfd) if self.owns(pid) => kill_held(&pidfd).attempt(attempted),
            Ok(_) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(errno) => Err(errno).attempt(attempted),
        }
    }
}

/// Kills a process and waits until it has ended.
fn kill_held(pidfd: &OwnedFd) -> rustix::io::Result<()> {
    match rustix::process::pidfd_send_signal(pidfd, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(errno) => return Err(errno),
    }
    let patience = PATIENCE.try_into().expect("seconds fit");
    poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&patience)).map(drop)
}

fn has_argument(pid: u32, is: impl Fn(&[u8]) -> bool) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).any(is)
}
