//! Where a running race keeps what it must not lose, and how the remains of dead ones are found and removed.
//!
//! Each owner (a race, a topology that was left standing) has a directory `/run/hostgap/lab/<id>` with its journals and
//! its servers' files; its namespaces are called `hg-<id>-…`. The owner holds a lock on `<dir>/owner` for as long as
//! it lives, and the kernel drops that lock however the owner dies. So a directory whose lock can be taken is a dead
//! owner's, unless it is marked as left standing on purpose. What is not called as an owner's directory is, or has
//! other content than one that died early, belongs to another program, and is left alone. `/run` is memory: after a
//! reboot nothing is left to clean, neither here nor in the kernel.

mod sweep;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use linux::{NetnsName, netns};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use self::sweep::{detach, journals, kill_in, namespaces_of, undo};
use crate::LabError;

/// The directory of all owners of this machine.
#[derive(Debug, Clone)]
pub struct Home {
    root: PathBuf,
}

/// A directory of our own under [`Home`], and the lock that says that we live.
#[derive(Debug)]
pub struct Claim {
    id: String,
    dir: PathBuf,
    owner: File,
    /// The directory outlives the claim on purpose, or is gone already.
    settled: bool,
}

/// What a dead owner, or one left standing, has on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Remains {
    pub id: String,
    /// Its process, dead unless `state` says otherwise.
    pub pid: u32,
    /// Whether it lives.
    pub state: State,
    /// What stands, for topologies that were left standing: the data path's name.
    pub standing: Option<String>,
    pub namespaces: Vec<NetnsName>,
}

/// Whether an owner lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its lock is held.
    Alive,
    /// It ended and left its topology on purpose.
    Standing,
    /// It ended without cleaning up.
    Dead,
}

/// What cleaning up did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cleaned {
    /// The owner's id.
    pub id: String,
    /// Processes that were killed in its namespaces.
    pub processes: u32,
    /// Steps that were undone.
    pub steps: u32,
    /// Namespaces that were deleted.
    pub namespaces: u32,
    /// What could not be undone, in words.
    pub failures: Vec<String>,
}

/// The content of `<dir>/owner`.
#[derive(Debug, Serialize, Deserialize)]
struct Owner {
    pid: u32,
    standing: Option<String>,
}

impl Home {
    /// The machine's own: `/run/hostgap/lab`. Beside it others of hostgap may keep what is theirs.
    pub fn of_this_machine() -> Home {
        Home::at("/run/hostgap/lab")
    }

    /// Another directory, for tests.
    pub fn at(root: impl Into<PathBuf>) -> Home {
        Home { root: root.into() }
    }

    /// Makes a directory of our own and locks it.
    pub fn claim(&self) -> Result<Claim, LabError> {
        fs::create_dir_all(&self.root).map_err(LabError::file("create", &self.root))?;
        let _guard = self.lock(CLAIM_LOCK, Lock::Wait)?;
        loop {
            let id = fresh_id();
            let dir = self.root.join(&id);
            match fs::create_dir(&dir) {
                Ok(()) => return Claim::new(id, dir),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(LabError::file("create", &dir)(error)),
            }
        }
    }

    /// Takes the lock that lets one race at a time measure on this machine. If another process holds it, `waiting` is
    /// called with its id, and the call waits until the lock is free or `stop` returns true.
    pub fn exclusive(
        &self,
        mut waiting: impl FnMut(u32),
        stop: impl Fn() -> bool,
    ) -> Result<Option<File>, LabError> {
        fs::create_dir_all(&self.root).map_err(LabError::file("create", &self.root))?;
        let mut told = false;
        loop {
            match self.lock(RACE_LOCK, Lock::Try) {
                Ok(mut file) => {
                    let noted = file
                        .set_len(0)
                        .and_then(|()| file.rewind())
                        .and_then(|()| write!(file, "{}", std::process::id()));
                    noted.map_err(LabError::file("write", &self.root.join(RACE_LOCK)))?;
                    return Ok(Some(file));
                }
                Err(LabError::Locked { .. }) if stop() => return Ok(None),
                Err(LabError::Locked { pid, .. }) => {
                    if !told {
                        waiting(pid);
                        told = true;
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Everything that any owner has here.
    pub fn remains(&self) -> Result<Vec<Remains>, LabError> {
        let Some(_guard) = self.onlooker()? else { return Ok(Vec::new()) };
        self.look_at_all()
    }

    /// Removes what dead owners left. Living owners and topologies left standing are not touched.
    pub fn clean(&self) -> Result<Vec<Cleaned>, LabError> {
        let Some(_guard) = self.guard()? else { return Ok(Vec::new()) };
        let dead = self.look_at_all()?.into_iter().filter(|remains| remains.state == State::Dead);
        dead.map(|remains| self.take_away(&remains.id)).collect()
    }

    /// What lies here and is no owner's: nothing takes it away.
    pub fn strangers(&self) -> Result<Vec<PathBuf>, LabError> {
        let Some(_guard) = self.onlooker()? else { return Ok(Vec::new()) };
        let (_, mut strangers) = self.sorted()?;
        strangers.retain(|path| !LOCKS.iter().any(|lock| path.ends_with(lock)));
        Ok(strangers)
    }

    /// Removes one owner's things, whether it is dead or was left up. CNI plugins of a topology that is up get their
    /// DEL first; if one fails it is among the failures, and everything is removed nonetheless.
    pub fn remove(&self, id: &str) -> Result<Cleaned, LabError> {
        let _guard = self.guard()?;
        let untold = detach(&self.root.join(id))?;
        let mut cleaned = self.take_away(id)?;
        cleaned.failures.extend(untold);
        Ok(cleaned)
    }

    fn take_away(&self, id: &str) -> Result<Cleaned, LabError> {
        let dir = self.root.join(id);
        let mut cleaned =
            Cleaned { id: id.to_owned(), processes: 0, steps: 0, namespaces: 0, failures: Vec::new() };
        let names = namespaces_of(id)?;
        cleaned.processes = kill_in(&names)?;
        for journal in journals(&dir)? {
            undo(&journal, &mut cleaned);
        }
        // In case a damaged journal lacks something: the namespaces carry the owner's id in their names.
        for name in namespaces_of(id)? {
            match netns::delete(&name) {
                Ok(()) => {}
                Err(error) => cleaned.failures.push(error.to_string()),
            }
        }
        for node in bpf::pins::nodes().iter().filter(|node| node.starts_with(&format!("hg-{id}-"))) {
            if let Err(error) = bpf::pins::remove(&bpf::pins::folder(node)) {
                cleaned.failures.push(error.to_string());
            }
        }
        let left = namespaces_of(id)?.len();
        cleaned.namespaces = (names.len() - left) as u32;
        // While anything of it stands, the directory is how the next try finds it.
        if left == 0 {
            remove(&dir)?;
        }
        Ok(cleaned)
    }

    /// The lock under which owners are added, listed and removed; `None` if there was never an owner.
    fn guard(&self) -> Result<Option<File>, LabError> {
        if self.root.exists() { self.lock(CLAIM_LOCK, Lock::Wait).map(Some) } else { Ok(None) }
    }

    /// The same for who only looks, which needs no privilege.
    fn onlooker(&self) -> Result<Option<File>, LabError> {
        let path = self.root.join(CLAIM_LOCK);
        match File::open(&path) {
            Ok(file) => {
                flock(&file, FlockOperation::LockShared)
                    .map_err(|error| LabError::file("lock", &path)(error.into()))?;
                Ok(Some(file))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(LabError::file("open", &path)(error)),
        }
    }

    fn look_at_all(&self) -> Result<Vec<Remains>, LabError> {
        self.sorted()?.0.into_iter().map(|id| self.look(&id)).collect()
    }

    /// The ids of owners, and the paths of all else.
    fn sorted(&self) -> Result<(Vec<String>, Vec<PathBuf>), LabError> {
        let (mut ids, mut others) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.root).map_err(LabError::file("list", &self.root))? {
            let path = entry.map_err(LabError::file("list", &self.root))?.path();
            match path.file_name().and_then(|name| name.to_str()) {
                Some(name) if is_id(name) && is_owners(&path)? => ids.push(name.to_owned()),
                _ => others.push(path),
            }
        }
        ids.sort();
        others.sort();
        Ok((ids, others))
    }

    fn look(&self, id: &str) -> Result<Remains, LabError> {
        let path = self.root.join(id).join(OWNER);
        let mut owner = Owner { pid: 0, standing: None };
        let mut state = State::Dead;
        // A directory without the file is one whose owner died between the two.
        if let Ok(mut file) = File::open(&path) {
            let mut text = String::new();
            file.read_to_string(&mut text).map_err(LabError::file("read", &path))?;
            owner = serde_json::from_str(&text).unwrap_or(owner);
            if is_held(&file, owner.pid) {
                state = State::Alive;
            } else if owner.standing.is_some() {
                state = State::Standing;
            }
        }
        Ok(Remains {
            id: id.to_owned(),
            pid: owner.pid,
            state,
            standing: owner.standing,
            namespaces: namespaces_of(id)?,
        })
    }

    fn lock(&self, name: &str, how: Lock) -> Result<File, LabError> {
        let path = self.root.join(name);
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(LabError::file("open", &path))?;
        let operation = match how {
            Lock::Wait => FlockOperation::LockExclusive,
            Lock::Try => FlockOperation::NonBlockingLockExclusive,
        };
        match flock(&file, operation) {
            Ok(()) => Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                file.read_to_string(&mut pid).map_err(LabError::file("read", &path))?;
                Err(LabError::Locked { path, pid: pid.trim().parse().unwrap_or(0) })
            }
            Err(error) => Err(LabError::file("lock", &path)(error.into())),
        }
    }
}

/// Whether a process holds the owner's lock. A child that a dead owner had just forked holds it too, until it has
/// loaded its program; so where the process is gone the lock is given a moment to go as well.
fn is_held(file: &File, pid: u32) -> bool {
    for _ in 0..100 {
        if flock(file, FlockOperation::NonBlockingLockShared).is_ok() {
            return false;
        }
        if Path::new("/proc").join(pid.to_string()).exists() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// Held while owners are added, removed or listed, so that no process sees an incomplete one.
const CLAIM_LOCK: &str = "claim.lock";
/// Held by the race that measures.
const RACE_LOCK: &str = "race.lock";
const LOCKS: [&str; 2] = [CLAIM_LOCK, RACE_LOCK];
/// The file of an owner's directory that says whose it is, and is locked while the owner lives.
const OWNER: &str = "owner";

/// Whether a name is made as [`fresh_id`] makes them.
fn is_id(name: &str) -> bool {
    name.len() == 4 && name.bytes().all(|sign| sign.is_ascii_digit() || (b'a'..=b'f').contains(&sign))
}

/// Removes an owner's directory; the file that makes it one goes last, so that who dies meanwhile is a dead owner
/// still.
fn remove(dir: &Path) -> Result<(), LabError> {
    for entry in fs::read_dir(dir).map_err(LabError::file("list", dir))? {
        let entry = entry.map_err(LabError::file("list", dir))?;
        let path = entry.path();
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let removed = match path.ends_with(OWNER) {
            true => Ok(()),
            false if is_dir => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
        removed.map_err(LabError::file("remove", &path))?;
    }
    fs::remove_dir_all(dir).map_err(LabError::file("remove", dir))
}

/// A directory that says whose it is; or an empty one, whose owner died between the two.
fn is_owners(path: &Path) -> Result<bool, LabError> {
    // A link would lead out of here.
    if !path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        return Ok(false);
    }
    let mut content = fs::read_dir(path).map_err(LabError::file("list", path))?;
    Ok(path.join(OWNER).is_file() || content.next().is_none())
}

#[derive(Clone, Copy)]
enum Lock {
    Wait,
    Try,
}

impl Claim {
    fn new(id: String, dir: PathBuf) -> Result<Claim, LabError> {
        let path = dir.join(OWNER);
        let owner = File::create_new(&path).map_err(LabError::file("create", &path))?;
        flock(&owner, FlockOperation::LockExclusive).map_err(|e| LabError::file("lock", &path)(e.into()))?;
        let mut claim = Claim { id, dir, owner, settled: false };
        claim.write(None)?;
        Ok(claim)
    }

    /// The id out of which names are made.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Ends the claim and lets its things stand; `what` says what stands.
    pub fn leave_standing(mut self, what: &str) -> Result<(), LabError> {
        self.settled = true;
        self.write(Some(what.to_owned()))
    }

    /// Ends the claim when everything is undone; the directory goes. A journal in it is something that could not be
    /// undone: then it stays for [`Home::clean`].
    pub fn release(mut self) -> Result<(), LabError> {
        self.settled = true;
        self.give_up()
    }

    fn give_up(&self) -> Result<(), LabError> {
        let root = self.dir.parent().expect("a claim's directory lies in its home");
        let _guard = Home::at(root).lock(CLAIM_LOCK, Lock::Wait)?;
        if let Some(journal) = journals(&self.dir)?.first() {
            let failures = format!("{} is kept", journal.display());
            return Err(LabError::NotUndone { candidate: "everything".to_owned(), failures });
        }
        remove(&self.dir)
    }

    fn write(&mut self, standing: Option<String>) -> Result<(), LabError> {
        let path = self.dir.join(OWNER);
        let text = serde_json::to_string(&Owner { pid: std::process::id(), standing })
            .expect("a number and a text can be written as JSON");
        let written = self
            .owner
            .set_len(0)
            .and_then(|()| self.owner.rewind())
            .and_then(|()| self.owner.write_all(text.as_bytes()));
        written.map_err(LabError::file("write", &path))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Reached unsettled only on an error or a panic, whose own message matters more. What could not be undone
        // keeps its journal and the directory, and the next start tries again.
        if !self.settled {
            let _ = self.give_up();
        }
    }
}

/// Four hexadecimal digits from the clock and the process; [`Home::claim`] tries again if they are taken.
fn fresh_id() -> String {
    let now = linux::clock::now_ns() ^ u64::from(std::process::id()).rotate_left(32);
    format!("{:04x}", (now.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16)
}
