//! The book: the units that stand on this machine, each with the journals that take it back.
//!
//! A unit is what is made and taken back together: the topology of a race, the network of a node, a pod's attachment.
//! Units of a kind lie in a directory of their own, `/run/hostgap/<kind>/<id>`, with their journals and whatever else
//! their owner keeps there. The file `owner` in it names the process that holds the unit, and `hold` is locked for as
//! long as it does; the kernel drops that lock however the process dies. So a unit that is not locked is a dead
//! owner's, unless the file says that it was left standing on purpose.
//!
//! Each unit is taken back by its own journals, without any other. A unit is begun, looked at and removed under one
//! short lock of its book, so that none is seen half-made; while it is built or taken back only its own
//! lock is held, and processes work on different units at the same time.
//!
//! `/run` is memory: after a restart of the machine nothing is left of it, neither here nor in the kernel.

mod error;
mod keeper;
mod unit;

use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use error::BookError;
pub use keeper::{Keeper, Kept};
pub use unit::{TakenBackJournal, Unit};

use crate::lock;

/// Where the book of each kind lies.
const ROOT: &str = "/run/hostgap";
/// Locked while units come, go or are looked at.
const GUARD: &str = "claim.lock";
/// How the names of locks in the directory of a book end.
const LOCK: &str = ".lock";
/// The file of a unit's directory that says whose it is. Everybody may read it.
const OWNER: &str = "owner";
/// The file of a unit's directory that is locked while its owner lives. Only root may open it: whoever can read a file
/// can lock it, and no attachment of a container would ever be taken back. Units of earlier versions have none, and
/// lock the other one.
const HOLD: &str = "hold";
/// The most bytes of an id, so that names can be made of it.
const ID_BYTES_MAX: usize = 128;
/// A child that a dead owner had just forked holds the lock, too, until it has loaded its program.
const FORK_WAIT: lock::LockWait =
    lock::LockWait { patience: Some(Duration::from_millis(200)), pause: Duration::from_millis(2) };

/// The units of one kind.
#[derive(Debug, Clone)]
pub struct Book {
    root: PathBuf,
}

/// A unit as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundUnit {
    /// The name of its directory.
    pub id: String,
    /// The process that holds it, or held it last; 0 if that process died before it could say so.
    pub pid: u32,
    /// Whether a living process holds it, and if not, why it is there.
    pub state: UnitState,
    /// What its owner noted about it when it left it standing.
    pub note: Option<String>,
}

/// Whether a living process holds a unit, and if not, why it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnitState {
    /// A living process holds it.
    Alive,
    /// Its owner ended and left it standing on purpose.
    Standing,
    /// Its owner ended without taking it back.
    Dead,
}

/// The content of `<unit>/owner`.
#[derive(Debug, Serialize, Deserialize)]
struct Owner {
    pid: u32,
    /// The note of an owner that left the unit standing.
    standing: Option<String>,
}

impl Book {
    /// The book of a kind on this machine, `/run/hostgap/<kind>`.
    pub fn of_kind(kind: &str) -> Book {
        Book::at(Path::new(ROOT).join(kind))
    }

    /// A book in another directory. It is made with its first unit.
    pub fn at(root: impl Into<PathBuf>) -> Book {
        Book { root: root.into() }
    }

    /// The directory of all its units.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Begins a unit under an id that no other has: four hexadecimal digits.
    ///
    /// # Errors
    /// Its directory cannot be made.
    pub fn begin(&self) -> Result<Unit, BookError> {
        loop {
            match self.begin_as(&fresh_id()) {
                Err(BookError::Exists { .. }) => {}
                begun => return begun,
            }
        }
    }

    /// Whether an id is of the form that [`Book::begin`] gives.
    pub fn is_given(id: &str) -> bool {
        id.len() == 4 && id.bytes().all(|sign| sign.is_ascii_digit() || (b'a'..=b'f').contains(&sign))
    }

    /// Begins a unit under an id of the caller's, say a container's: up to 128 letters, digits, `-`, `_` and `.`, not
    /// beginning with a dot.
    ///
    /// # Errors
    /// [`BookError::BadId`], [`BookError::Exists`], or its directory cannot be made.
    pub fn begin_as(&self, id: &str) -> Result<Unit, BookError> {
        if !is_id(id) {
            return Err(BookError::BadId { id: id.to_owned() });
        }
        fs::create_dir_all(&self.root).map_err(BookError::file("create", &self.root))?;
        let _guard = self.guard()?;
        let dir = self.root.join(id);
        match fs::create_dir(&dir) {
            Ok(()) => Unit::begin(self, id, &dir),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(BookError::Exists { path: dir }),
            Err(error) => Err(BookError::file("create", &dir)(error)),
        }
    }

    /// Takes over a unit that no living process holds: to change it, or to take it back. A unit that was left standing
    /// counts as such again when it is dropped.
    ///
    /// # Errors
    /// [`BookError::Unknown`], [`BookError::Held`], or its files cannot be read.
    pub fn take_over(&self, id: &str) -> Result<Unit, BookError> {
        Ok(self.take_over_if(id, |_| true)?.expect("every state is accepted"))
    }

    /// Takes over a unit whose owner died; `None` if it was left standing.
    ///
    /// # Errors
    /// As of [`Book::take_over`].
    pub fn take_over_dead(&self, id: &str) -> Result<Option<Unit>, BookError> {
        self.take_over_if(id, |state| state == UnitState::Dead)
    }

    fn take_over_if(&self, id: &str, fits: impl Fn(UnitState) -> bool) -> Result<Option<Unit>, BookError> {
        let _guard = if self.root.exists() { Some(self.guard()?) } else { None };
        let dir = self.root.join(id);
        if !(is_id(id) && is_unit(&dir)?) {
            return Err(BookError::Unknown { id: id.to_owned(), book: self.root.clone() });
        }
        let found = self.look(id)?;
        match found.state {
            UnitState::Alive => Err(BookError::Held { path: dir, pid: found.pid }),
            state if fits(state) => Unit::take_over(self, id, dir, found.note).map(Some),
            UnitState::Standing | UnitState::Dead => Ok(None),
        }
    }

    /// All units, in the order of their ids. Needs no privilege.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn units(&self) -> Result<Vec<FoundUnit>, BookError> {
        let Some(_guard) = self.onlooker()? else { return Ok(Vec::new()) };
        self.sorted()?.0.iter().map(|id| self.look(id)).collect()
    }

    /// One unit; `None` if there is none of that id. Needs no privilege.
    ///
    /// # Errors
    /// Its files cannot be read.
    pub fn find(&self, id: &str) -> Result<Option<FoundUnit>, BookError> {
        let Some(_guard) = self.onlooker()? else { return Ok(None) };
        let is_there = is_id(id) && is_unit(&self.root.join(id))?;
        is_there.then(|| self.look(id)).transpose()
    }

    /// What lies in the directory and is no unit: nothing here takes it away.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn strangers(&self) -> Result<Vec<PathBuf>, BookError> {
        let Some(_guard) = self.onlooker()? else { return Ok(Vec::new()) };
        Ok(self.sorted()?.1)
    }

    /// The lock under which units come and go.
    fn guard(&self) -> Result<File, BookError> {
        let path = self.root.join(GUARD);
        lock::exclusive(&path).map_err(BookError::file("lock", &path))
    }

    /// The same for those that only look; `None` if there never was a unit. Whoever may not take the lock looks without
    /// it, and may see a unit half-made.
    fn onlooker(&self) -> Result<Option<Option<File>>, BookError> {
        let path = self.root.join(GUARD);
        match lock::shared(&path) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(Some(None)),
            taken => Ok(taken.map_err(BookError::file("lock", &path))?.map(Some)),
        }
    }

    /// The ids of units, and the paths of all else but for locks.
    fn sorted(&self) -> Result<(Vec<String>, Vec<PathBuf>), BookError> {
        let (mut ids, mut others) = (Vec::new(), Vec::new());
        for path in entries(&self.root)? {
            match path.file_name().and_then(|name| name.to_str()) {
                Some(name) if is_id(name) && is_unit(&path)? => ids.push(name.to_owned()),
                Some(name) if name.ends_with(LOCK) && path.is_file() => {}
                _ => others.push(path),
            }
        }
        ids.sort();
        others.sort();
        Ok((ids, others))
    }

    fn look(&self, id: &str) -> Result<FoundUnit, BookError> {
        let path = self.root.join(id).join(OWNER);
        let mut owner = Owner { pid: 0, standing: None };
        let mut state = UnitState::Dead;
        // A directory without the file is one whose owner died between the two.
        if let Ok(mut file) = File::open(&path) {
            // A damaged one says nothing, as little as one that is not there; the others are to be found beside it.
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map_err(BookError::file("read", &path))?;
            owner = serde_json::from_slice(&bytes).unwrap_or(owner);
            let is_held = match File::open(self.root.join(id).join(HOLD)) {
                Ok(hold) => is_held(&hold, owner.pid),
                Err(error) if error.kind() == ErrorKind::PermissionDenied => lives(owner.pid),
                Err(_) => is_held(&file, owner.pid),
            };
            if is_held {
                state = UnitState::Alive;
            } else if owner.standing.is_some() {
                state = UnitState::Standing;
            }
        }
        Ok(FoundUnit { id: id.to_owned(), pid: owner.pid, state, note: owner.standing })
    }
}

/// Whether there is a process of this number.
fn lives(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Whether a process holds the owner's lock. Where the owner is gone, the lock is given a moment to go as well.
fn is_held(file: &File, pid: u32) -> bool {
    let known = FORK_WAIT.until(
        || false,
        || match (lock::is_held(file), lives(pid)) {
            (true, false) => Ok::<_, Infallible>(None),
            (held, _) => Ok(Some(held)),
        },
    );
    let Ok(known) = known;
    known.unwrap_or(true)
}

fn is_id(id: &str) -> bool {
    let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=ID_BYTES_MAX).contains(&id.len())
        && id.bytes().all(is_sign)
        && !id.starts_with('.')
        && !id.ends_with(LOCK)
}

/// A directory that says whose it is; or an empty one, whose owner died between the two.
fn is_unit(path: &Path) -> Result<bool, BookError> {
    // A link would lead out of here.
    if !path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        return Ok(false);
    }
    Ok(path.join(OWNER).is_file() || entries(path)?.is_empty())
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, BookError> {
    let list = fs::read_dir(dir).map_err(BookError::file("list", dir))?;
    let paths = list.map(|entry| Ok(entry.map_err(BookError::file("list", dir))?.path()));
    paths.collect()
}

/// Four hexadecimal digits from the clock and the process; [`Book::begin`] tries again if they are taken.
fn fresh_id() -> String {
    let now = linux::clock::now_ns() ^ u64::from(std::process::id()).rotate_left(32);
    format!("{:04x}", (now.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16)
}
