//! A helper process that cannot outlive us: own process group, death signal, killed when dropped.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::{Error, Result};

/// A running helper program such as QEMU or virtiofsd.
pub(crate) struct Process {
    child: Child,
    group: Pid,
    pidfd: OwnedFd,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts `command` with its output going to `log`.
    ///
    /// The process dies with the calling *thread* (that is the meaning of `PR_SET_PDEATHSIG` in Linux), so the caller
    /// must stay. `setpriv` sets the signal and then becomes the program, because a hook between fork and exec would
    /// need unsafe code.
    pub(crate) fn start(command: &Command, package: &'static str, log: &File) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let failed = |why| Error::Program { program: program.clone(), package, why };
        let mut wrapped = Command::new("setpriv");
        wrapped.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(name, value),
                None => wrapped.env_remove(name),
            };
        }
        wrapped.process_group(0).stdin(Stdio::null());
        wrapped.stdout(log.try_clone().map_err(failed)?).stderr(log.try_clone().map_err(failed)?);
        let mut child = wrapped.spawn().map_err(|why| Error::Program {
            program: "setpriv".into(),
            package: "util-linux",
            why,
        })?;
        let group = Pid::from_child(&child);
        match pidfd_open(group, PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Self { child, group, pidfd, ended: None }),
            Err(error) => {
                end(group, &mut child);
                Err(failed(error.into()))
            }
        }
    }

    /// Its number. It is a stranger's once [`Process::wait`] has returned a status.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits up to `patience` for the end; `None` if it still runs. With it ends what it had started.
    pub(crate) fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        if self.ended.is_none() {
            let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
            let patience = Timespec::try_from(patience).expect("fractions of a second fit");
            // An interrupted wait is a short wait; the caller loops.
            if poll(&mut fds, Some(&patience)).is_ok_and(|ready| ready > 0) {
                self.ended = end(self.group, &mut self.child);
            }
        }
        self.ended
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended.is_none() {
            end(self.group, &mut self.child);
        }
    }
}

/// Ends the group, of which a forked helper may still run when its leader has ended, and waits for the leader. In this
/// order: once that was waited for, its number, which is the group's, may be a stranger's.
fn end(group: Pid, child: &mut Child) -> Option<ExitStatus> {
    let _ = kill_process_group(group, Signal::KILL);
    child.wait().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::test_kill_process;
    use std::time::Instant;

    fn log() -> File {
        tempfile::tempfile().unwrap()
    }

    #[test]
    fn end_is_noticed_and_status_kept() {
        let mut command = Command::new("sh");
        command.args(["-c", "exit 3"]);
        let mut process = Process::start(&command, "dash", &log()).unwrap();
        let status = std::iter::repeat_with(|| process.wait(Duration::from_secs(1))).find_map(|ended| ended);
        assert_eq!(status.unwrap().code(), Some(3));
    }

    #[test]
    fn dropping_ends_the_whole_group() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & wait"]);
        let mut process = Process::start(&command, "dash", &log()).unwrap();
        let group = process.group;
        assert!(process.wait(Duration::from_millis(50)).is_none());
        drop(process);
        assert!(test_kill_process(group).is_err());
        await_empty(group);
    }

    #[test]
    fn the_group_ends_with_its_leader() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & exit 3"]);
        let mut process = Process::start(&command, "dash", &log()).unwrap();
        let status = std::iter::repeat_with(|| process.wait(Duration::from_secs(1))).find_map(|ended| ended);
        assert_eq!(status.unwrap().code(), Some(3));
        await_empty(process.group);
    }

    /// Children of a child are reaped by the process that adopts them; then the group is empty.
    fn await_empty(group: Pid) {
        let start = Instant::now();
        while kill_process_group(group, Signal::CONT).is_ok() {
            assert!(start.elapsed() < Duration::from_secs(10), "a member of the group lives");
            std::thread::yield_now();
        }
    }

    #[test]
    fn missing_program_ends_with_a_status_and_says_why() {
        use std::io::{Read, Seek};
        let mut file = log();
        let mut process = Process::start(&Command::new("/nowhere/qemu"), "qemu", &file).unwrap();
        let status = std::iter::repeat_with(|| process.wait(Duration::from_secs(1))).find_map(|ended| ended);
        assert!(!status.unwrap().success());
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert!(text.contains("/nowhere/qemu"), "{text}");
    }
}
