//! A network of a pod in user mode: a process in a node's namespace that has a tap link in the pod's, takes what the
//! pod sends there, and sends it anew by sockets of its own. Rootless containers have theirs by pasta or slirp4netns.
//!
//! The process makes the link, and takes it along when it ends. What is to be configured at the link, addresses and
//! routes, is left to others. The process is known by its command line, which names a directory of ours.

mod hostfwd;
mod setup;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use self::setup::{ForwardedPort, PortProtocol, UserNet, UserNetProgram};
use crate::daemon::{self, Daemons};
use crate::error::Attempt;
use crate::process::{Child, Spawn};
use crate::{Error, Netns, Result, folder, program, tun};

/// Where the directories are. It goes with the last of them.
const TOP: &str = "/run/hostgap-user-net";
/// How long a program may take until it serves: on an emulated machine it takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two looks at a program that is about to serve.
const PAUSE: Duration = Duration::from_millis(5);
/// The beginnings of the arguments by which the processes are known.
const MARKS: [&str; 2] = ["--pid=", "--api-socket="];

/// The directory of such a network, whose process may run or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserNetDir {
    dir: PathBuf,
}

/// Whether pasta can run here; else what is missing, and what has it.
pub(crate) fn find_pasta() -> std::result::Result<(), String> {
    program::find("pasta", "passt").and_then(|_| tun::find())
}

/// Whether slirp4netns can run here; else what is missing, and what has it.
pub(crate) fn find_slirp4netns() -> std::result::Result<(), String> {
    program::find("slirp4netns", "slirp4netns").and_then(|_| tun::find())
}

/// The names of all networks that have a directory.
///
/// # Errors
/// The directories cannot be listed.
pub fn names() -> Result<Vec<String>> {
    folder::names(Path::new(TOP))
}

impl UserNetDir {
    /// That of a name, which is a single part of a path.
    pub fn named(name: &str) -> UserNetDir {
        UserNetDir { dir: Path::new(TOP).join(name) }
    }

    /// Where its files are.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Whether it is there.
    pub fn exists(&self) -> bool {
        self.dir.exists()
    }

    /// Ends the process, and waits for its end. The link goes with it. None is no error.
    ///
    /// # Errors
    /// It cannot be killed, or does not end.
    pub fn end(&self) -> Result<()> {
        MARKS.iter().try_for_each(|mark| Daemons::with(format!("{mark}{}/", self.dir.display())).end())
    }

    /// Removes the directory. None is no error.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self) -> Result<()> {
        folder::remove(&self.dir)
    }
}

impl UserNet {
    /// Its directory.
    pub fn dir(&self) -> UserNetDir {
        UserNetDir::named(&self.name)
    }

    /// Whether its process runs.
    pub fn is_alive(&self) -> bool {
        daemon::is_alive(&self.dir().dir.join(setup::PID), &self.mark())
    }

    /// Starts the process in a node's namespace. Returns when the link is there and ports are led to the pod. It lives
    /// on when this process ends.
    ///
    /// # Errors
    /// The directory exists, the program is not installed, or it does not start; with its own words.
    pub fn start(&self, node: &Netns) -> Result<()> {
        let UserNetDir { dir } = self.dir();
        folder::create(&dir).attempt(|| format!("create {}", dir.display()))?;
        let private = fs::Permissions::from_mode(0o700);
        fs::set_permissions(&dir, private).attempt(|| format!("protect {}", dir.display()))?;
        let attempted = || format!("start {} in {}", self.program.name(), node.describe());
        let program = program::find(self.program.name(), self.program.package())
            .map_err(|why| Error::new(attempted(), io::Error::other(why)))?;
        let log = dir.join(setup::LOG);
        let mut child = Spawn {
            args: self.args(),
            netns: Some(node.try_clone()?),
            log: Some(log.clone()),
            cpus: self.cpus.clone(),
            scheduling: self.scheduling,
            die_with_parent: false,
            ..Spawn::new(program)
        }
        .start()?;
        let served = match self.program {
            UserNetProgram::Pasta { .. } => in_background(&mut child)?,
            UserNetProgram::Slirp4netns { .. } => self.serves(&mut child)?,
        };
        match served {
            Ok(()) => {
                child.detach();
                self.ports.iter().try_for_each(|port| hostfwd::add(self, *port))
            }
            Err(why) => {
                let said = fs::read_to_string(&log).unwrap_or_default();
                let said = said.lines().last().map_or(String::new(), |line| format!(": {line}"));
                Err(Error::new(attempted(), io::Error::other(format!("{why}{said}"))))
            }
        }
    }

    /// What writes no file with its number gets one, and is ready when its socket answers.
    fn serves(&self, child: &mut Child) -> Result<std::result::Result<(), String>> {
        let file = self.dir().dir.join(setup::PID);
        fs::write(&file, child.pid().to_string()).attempt(|| format!("write {}", file.display()))?;
        let deadline = Instant::now() + PATIENCE;
        while hostfwd::connect(self).is_err() {
            if let Some(status) = child.wait_for(PAUSE)? {
                return Ok(Err(format!("it ended ({status})")));
            }
            if Instant::now() > deadline {
                return Ok(Err(late()));
            }
        }
        Ok(Ok(()))
    }
}

/// What goes on in the background has begun to serve when the process that was started ends.
fn in_background(child: &mut Child) -> Result<std::result::Result<(), String>> {
    Ok(match child.wait_for(PATIENCE)? {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(format!("it ended ({status})")),
        None => Err(late()),
    })
}

fn late() -> String {
    format!("it does not serve within {} s", PATIENCE.as_secs())
}
