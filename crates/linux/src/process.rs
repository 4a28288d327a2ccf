//! Starts programs so that none is left behind, and checks what this process itself may do.

mod in_namespaces;
mod open_files;
mod signals;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal};
use rustix::thread::{CapabilitySet, UnshareFlags};

use crate::cgroup::{self, Cgroup};
use crate::cpu::{self, Scheduling};
use crate::error::Attempt;
use crate::view::{self, View};
use crate::{CpuSet, Error, Netns, Result};

pub use in_namespaces::kill_in;
pub use open_files::{allow_open_files, open_files_max, raise_open_files};
pub use signals::ignores;

/// A program to be started: what, where, and how it ends.
#[derive(Debug)]
pub struct Spawn {
    /// The executable: a path, or a name that is looked up in `PATH`.
    pub program: PathBuf,
    /// The arguments, without the program's own name.
    pub args: Vec<String>,
    /// Variables added to the environment, which is inherited unless [`Spawn::clean_env`] is set.
    pub env: Vec<(String, String)>,
    /// The network namespace; `None`: the caller's.
    pub netns: Option<Netns>,
    /// The control group; `None`: the caller's.
    pub cgroup: Option<Cgroup>,
    /// The CPUs on which it may run; `None`: as the caller.
    pub cpus: Option<CpuSet>,
    /// The scheduling policy of its threads.
    pub scheduling: Scheduling,
    /// The file for its standard input; `None`: `/dev/null`.
    pub input: Option<PathBuf>,
    /// The file to which both its outputs are appended; `None`: `/dev/null`.
    pub log: Option<PathBuf>,
    /// The file that its standard output is written to instead, from the beginning.
    pub output: Option<PathBuf>,
    /// What it sees of the machine's files; `None`: all, as the caller does. With [`Spawn::new_pid_namespace`] it also
    /// gets a `/proc` that fits.
    pub view: Option<View>,
    /// It sees the files that the caller sees, but for a `/sys` of its network namespace and, with
    /// [`Spawn::new_pid_namespace`], a `/proc` that fits. A [`Spawn::view`] has both already.
    pub fresh_kernel_files: bool,
    /// Its environment is [`Spawn::env`] alone.
    pub clean_env: bool,
    /// Makes it process 1 of a new PID namespace: when it ends, the kernel kills all its descendants. Process 1
    /// receives only SIGKILL and the signals for which it has a handler.
    pub new_pid_namespace: bool,
    /// The kernel kills it when this process ends, however that happens.
    pub die_with_parent: bool,
}

/// A started program. When dropped it is killed and waited for, unless it was [detached](Child::detach).
#[derive(Debug)]
pub struct Child {
    pid: u32,
    pidfd: OwnedFd,
    name: String,
    /// Receives the exit status, once.
    ending: Receiver<io::Result<ExitStatus>>,
    ended: Option<ExitStatus>,
    /// The thread that started it and waits for it. The kernel takes the end of that thread, and not of the process,
    /// as the parent's death, so it must live as long as the child.
    keeper: Option<JoinHandle<()>>,
}

impl Spawn {
    /// The program without arguments, here, scheduled as usual, killed with this process.
    pub fn new(program: impl Into<PathBuf>) -> Spawn {
        Spawn {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            netns: None,
            cgroup: None,
            cpus: None,
            scheduling: Scheduling::Normal,
            input: None,
            log: None,
            output: None,
            view: None,
            fresh_kernel_files: false,
            clean_env: false,
            new_pid_namespace: false,
            die_with_parent: true,
        }
    }

    /// Starts it. Returns when the program has been loaded, so a missing program is an error here.
    pub fn start(self) -> Result<Child> {
        let name = self.program.display().to_string();
        let (say_started, started) = mpsc::channel();
        let (say_ended, ending) = mpsc::channel();
        let keeper = std::thread::Builder::new()
            .name("keeper".to_owned())
            .spawn(move || keep(self, &say_started, &say_ended))
            .attempt(|| format!("start {name}"))?;
        let (pid, pidfd) = started.recv().expect("the keeper says how the start went")?;
        Ok(Child { pid, pidfd, name, ending, ended: None, keeper: Some(keeper) })
    }
}

impl Child {
    /// Its process id, in this process's PID namespace.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The descriptor that stands for this process and no later one of the same number; readable when it has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// How it ended; `None` while it runs.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        self.wait_for(Duration::ZERO)
    }

    /// Waits until it ends.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        match self.ended {
            Some(status) => Ok(status),
            None => {
                let status = self.ending.recv().expect("the keeper says how it ended");
                self.note(status)
            }
        }
    }

    /// Waits for a while; `None` if it still runs then.
    pub fn wait_for(&mut self, patience: Duration) -> Result<Option<ExitStatus>> {
        if self.ended.is_some() {
            return Ok(self.ended);
        }
        match self.ending.recv_timeout(patience) {
            Ok(status) => self.note(status).map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => unreachable!("the keeper says how it ended"),
        }
    }

    /// Asks it to end (SIGTERM), kills it if it has not after the time of grace, and waits.
    pub fn terminate(&mut self, grace: Duration) -> Result<ExitStatus> {
        if self.try_wait()?.is_none() {
            self.signal(Signal::TERM)?;
        }
        match self.wait_for(grace)? {
            Some(status) => Ok(status),
            None => self.kill(),
        }
    }

    /// Kills it (SIGKILL) and waits.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        if self.try_wait()?.is_none() {
            self.signal(Signal::KILL)?;
        }
        self.wait()
    }

    /// Leaves it running when this value is dropped. It also survives this process, unless it was started with
    /// [`Spawn::die_with_parent`].
    pub fn detach(mut self) {
        self.keeper = None;
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        match rustix::process::pidfd_send_signal(&self.pidfd, signal) {
            // It has ended meanwhile.
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(errno) => Err(Error::new(format!("end {} (process {})", self.name, self.pid), errno)),
        }
    }

    fn note(&mut self, status: io::Result<ExitStatus>) -> Result<ExitStatus> {
        let status = status.attempt(|| format!("wait for {} (process {})", self.name, self.pid))?;
        self.ended = Some(status);
        Ok(status)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let Some(keeper) = self.keeper.take() else { return };
        // Without privilege over the child the signal fails, and waiting could last for ever.
        if self.signal(Signal::KILL).is_ok() {
            let _ = keeper.join();
        }
    }
}

/// The name of the host (`uname -n`).
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Fails if this process lacks a privilege for work on the network, and names it: `CAP_NET_ADMIN` for links, routes
/// and rules, `CAP_SYS_ADMIN` for namespaces.
pub fn require_network_admin() -> Result<()> {
    let attempted = "look at the privileges of this process";
    let held = rustix::thread::capabilities(None).attempt(|| attempted)?.effective;
    let needed = [(CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"), (CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN")];
    let missing: Vec<&str> =
        needed.iter().filter(|(capability, _)| !held.contains(*capability)).map(|(_, name)| *name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let why = format!("this process lacks {}", missing.join(" and "));
    Err(Error::new("change the network", io::Error::new(io::ErrorKind::PermissionDenied, why)))
}

/// The body of the keeper thread: start the child, report that, wait, report the exit status.
fn keep(
    spawn: Spawn,
    say_started: &Sender<Result<(u32, OwnedFd)>>,
    say_ended: &Sender<io::Result<ExitStatus>>,
) {
    let name = spawn.program.display().to_string();
    match launch(spawn).and_then(|child| with_pidfd(child, &name)) {
        Err(error) => drop(say_started.send(Err(error))),
        Ok((mut child, pidfd)) => {
            // A detached child has no reader any more.
            let _ = say_started.send(Ok((child.id(), pidfd)));
            let _ = say_ended.send(child.wait());
        }
    }
}

/// The number cannot have been given to another process: it has not been waited for.
fn with_pidfd(mut child: std::process::Child, name: &str) -> Result<(std::process::Child, OwnedFd)> {
    let pid = Pid::from_child(&child);
    match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Ok((child, pidfd)),
        Err(errno) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(Error::new(format!("hold on to {name}"), errno))
        }
    }
}

/// Makes the keeper thread what the child shall be, since a child inherits it, and starts the child.
fn launch(spawn: Spawn) -> Result<std::process::Child> {
    let name = spawn.program.display().to_string();
    let mut command = Command::new(&spawn.program);
    if spawn.clean_env {
        command.env_clear();
    }
    command.args(&spawn.args).envs(spawn.env).stdin(input(spawn.input)?);
    let (out, err) = outputs(spawn.log)?;
    command.stdout(own_output(spawn.output)?.unwrap_or(out)).stderr(err);
    // A Ctrl-C at the terminal goes to the whole process group; the child must end only when its starter decides so.
    command.process_group(0);
    if spawn.die_with_parent {
        die_with_this_process(&mut command).attempt(|| format!("start {name}"))?;
    }
    if let Some(cgroup) = &spawn.cgroup {
        start_in(&mut command, cgroup.tasks()?);
    }
    if let Some(netns) = &spawn.netns {
        netns.enter()?;
    }
    if let Some(view) = &spawn.view {
        view.enter()?;
    } else if spawn.fresh_kernel_files {
        view::refresh_kernel_files()?;
    }
    if spawn.new_pid_namespace && (spawn.view.is_some() || spawn.fresh_kernel_files) {
        view::with_its_own_proc(&mut command);
    }
    if let Some(cpus) = &spawn.cpus {
        cpu::pin_current_thread(cpus)?;
    }
    if spawn.new_pid_namespace {
        // SAFETY: with NEWPID alone the call changes neither the table of descriptors nor anything else of this
        // process; it decides where children of this thread are born, and this thread has one.
        let unshared = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWPID) };
        unshared.attempt(|| format!("start {name} in a PID namespace"))?;
    }
    // Last, so that nothing but the start itself runs with a higher priority.
    if spawn.scheduling != Scheduling::Normal {
        cpu::set_current_thread_scheduling(spawn.scheduling)?;
    }
    command.spawn().attempt(|| format!("start {name}"))
}

fn input(path: Option<PathBuf>) -> Result<Stdio> {
    let Some(path) = path else { return Ok(Stdio::null()) };
    Ok(File::open(&path).attempt(|| format!("open {}", path.display()))?.into())
}

fn own_output(path: Option<PathBuf>) -> Result<Option<Stdio>> {
    let Some(path) = path else { return Ok(None) };
    Ok(Some(File::create(&path).attempt(|| format!("create {}", path.display()))?.into()))
}

fn outputs(log: Option<PathBuf>) -> Result<(Stdio, Stdio)> {
    let Some(path) = log else { return Ok((Stdio::null(), Stdio::null())) };
    let attempted = || format!("open {}", path.display());
    let file = OpenOptions::new().create(true).append(true).open(&path).attempt(attempted)?;
    let again = file.try_clone().attempt(attempted)?;
    Ok((file.into(), again.into()))
}

/// Makes the child enter a control group before it becomes the program.
fn start_in(command: &mut Command, tasks: File) {
    // SAFETY: between fork and exec the closure makes one system call and neither allocates nor takes a lock.
    unsafe { command.pre_exec(move || cgroup::enter(&tasks)) };
}

/// Makes the child ask for a SIGKILL at the end of the thread that starts it.
pub(crate) fn die_with_this_process(command: &mut Command) -> io::Result<()> {
    // This process could end between the fork and the request, which then would never be met. A number to compare
    // with does not help, since in a new PID namespace every outside parent is 0; this descriptor does.
    let parent = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
    let request = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        let mut poll = libc::pollfd { fd: parent.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd, for the length of the call; poll may be called between fork and exec.
        if unsafe { libc::poll(&raw mut poll, 1, 0) } == 0 {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        }
    };
    // SAFETY: between fork and exec the closure makes two system calls and neither allocates nor takes a lock.
    unsafe { command.pre_exec(request) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_an_error_at_once() {
        let error = Spawn::new("/nonexistent/program").start().unwrap_err();
        assert!(error.is(libc::ENOENT));
        assert_eq!(error.to_string(), "start /nonexistent/program: no such file or directory");
    }

    #[test]
    fn status_and_output_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let mut spawn = Spawn::new("sh");
        spawn.args = vec!["-c".to_owned(), "echo out $WORD; echo err >&2; exit 7".to_owned()];
        spawn.env = vec![("WORD".to_owned(), "word".to_owned())];
        spawn.log = Some(log.clone());
        let mut child = spawn.start().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(7));
        assert_eq!(child.wait().unwrap().code(), Some(7));
        assert_eq!(child.kill().unwrap().code(), Some(7));
        assert_eq!(std::fs::read_to_string(log).unwrap(), "out word\nerr\n");
    }

    #[test]
    fn a_dropped_child_is_dead() {
        let mut spawn = Spawn::new("sleep");
        spawn.args = vec!["60".to_owned()];
        let mut child = spawn.start().unwrap();
        let pid = child.pid();
        assert_eq!(child.try_wait().unwrap(), None);
        drop(child);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
