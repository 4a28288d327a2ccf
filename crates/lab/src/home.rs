//! Where a running race keeps what it must not lose, and how the remains of dead ones are found and removed.
//!
//! Each race, and each topology that was left standing, is a unit of the lab's book ([`plan::Book`]): a directory
//! `/run/hostgap/lab/<id>` with its journals and its servers' files. Its namespaces are called `hg-<id>-…`, and its
//! programs, its switches and its pods' user-mode networks are under such names, so that all are found even if a
//! journal is damaged. Ids are all of one length: none begins with another, and so no name of one owner looks like that
//! of another.

mod sweep;

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use linux::ovs::{self, Switch};
use linux::user_net::{self, UserNetDir};
use linux::{NetnsName, netns};
use plan::{Book, BookError, FoundUnit, Kernel, Unit, UnitState, lock};
use serde::Serialize;

use self::sweep::{detach, failures_of, kill_in, namespaces_of};
use crate::LabError;

/// Locked by the race that measures.
const RACE_LOCK: &str = "race.lock";
/// For the end of another race, however long it takes.
const RACE_WAIT: lock::LockWait = lock::LockWait { patience: None, pause: Duration::from_millis(100) };
/// For another process that cleans up an owner.
const CLEANING_WAIT: lock::LockWait =
    lock::LockWait { patience: Some(Duration::from_secs(60)), pause: Duration::from_millis(10) };

/// The lab's part of this machine.
#[derive(Debug, Clone)]
pub struct Home {
    book: Book,
}

/// What a dead owner, or one left standing, has on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remains {
    /// The id in the names of its namespaces and of its directory.
    pub id: String,
    /// Its process, dead unless `state` says otherwise.
    pub pid: u32,
    /// Whether its process lives, has left it standing on purpose, or is dead.
    pub state: UnitState,
    /// What stands, for topologies that were left standing: the data path's name.
    pub standing: Option<String>,
    /// The namespaces that are left of it.
    pub namespaces: Vec<NetnsName>,
}

/// What cleaning up did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cleaned {
    /// The id of the owner that was cleaned up after.
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

impl Home {
    /// The machine's own: `/run/hostgap/lab`. Other kinds of units lie beside it.
    pub fn of_this_machine() -> Home {
        Home { book: Book::of_kind("lab") }
    }

    /// Another directory, for tests.
    pub fn at(root: impl Into<PathBuf>) -> Home {
        Home { book: Book::at(root) }
    }

    /// Begins a unit, which this process owns until it ends.
    pub fn claim(&self) -> Result<Unit, LabError> {
        Ok(self.book.begin()?)
    }

    /// Takes the lock that lets one race at a time measure on this machine. If another process holds it,
    /// `waiting` is called once with that process, and the call waits until the lock is free or `stop` returns
    /// true, which is `None`.
    pub fn exclusive(
        &self,
        mut waiting: impl FnMut(u32),
        stop: impl Fn() -> bool,
    ) -> Result<Option<File>, LabError> {
        let root = self.book.path();
        fs::create_dir_all(root).map_err(LabError::file("create", root))?;
        let path = root.join(RACE_LOCK);
        let mut announced = false;
        RACE_WAIT.until(stop, || {
            if let Some(lock) = lock::try_exclusive(&path).map_err(LabError::file("lock", &path))? {
                // Of one width and in one write: a process that waits never reads an empty file or half a number.
                let holder = format!("{:<10}", std::process::id());
                lock.write_all_at(holder.as_bytes(), 0).map_err(LabError::file("write", &path))?;
                return Ok(Some(lock));
            }
            if !announced {
                let mut holder = String::new();
                let read = File::open(&path).and_then(|mut file| file.read_to_string(&mut holder));
                read.map_err(LabError::file("read", &path))?;
                waiting(holder.trim().parse().unwrap_or(0));
                announced = true;
            }
            Ok(None)
        })
    }

    /// Everything that any owner has here.
    ///
    /// # Errors
    /// The directory or the namespaces cannot be listed.
    pub fn remains(&self) -> Result<Vec<Remains>, LabError> {
        let found = self.book.units()?.into_iter().filter(|found| Book::is_given(&found.id));
        let remains = found.map(|FoundUnit { id, pid, state, note }| {
            let namespaces = namespaces_of(&id)?;
            Ok(Remains { id, pid, state, standing: note, namespaces })
        });
        remains.collect()
    }

    /// Removes what dead owners left. Living owners and topologies left standing are not touched.
    ///
    /// # Errors
    /// The directory cannot be read or written. What cannot be undone is in [`Cleaned::failures`].
    pub fn clean(&self) -> Result<Vec<Cleaned>, LabError> {
        let mut cleaned = Vec::new();
        let found = self.book.units()?.into_iter();
        for dead in found.filter(|found| found.state == UnitState::Dead && Book::is_given(&found.id)) {
            if let Some(unit) = self.dead(&dead.id)? {
                cleaned.push(take_away(unit)?);
            }
        }
        Ok(cleaned)
    }

    /// Takes over what a dead owner left. Waits while another process cleans it up; `None` if nothing is left then.
    fn dead(&self, id: &str) -> Result<Option<Unit>, LabError> {
        // Of the two options, the outer one says that the waiting is over.
        let taken = CLEANING_WAIT.until(
            || false,
            || match self.book.take_over_dead(id) {
                Err(BookError::Held { .. }) => Ok(None),
                Err(BookError::Unknown { .. }) => Ok(Some(None)),
                taken => taken.map(Some),
            },
        )?;
        Ok(taken.flatten())
    }

    /// What lies here and is no owner's: nothing takes it away.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn strangers(&self) -> Result<Vec<PathBuf>, LabError> {
        let mut strangers = self.book.strangers()?;
        let units = self.book.units()?.into_iter().filter(|found| !Book::is_given(&found.id));
        strangers.extend(units.map(|found| self.book.path().join(found.id)));
        strangers.sort();
        Ok(strangers)
    }

    /// Removes one owner's things, whether it is dead or was left standing. CNI plugins of what stands are called with
    /// DEL first; one that fails then is among the failures, and everything goes nonetheless.
    ///
    /// # Errors
    /// There is no such owner, it lives, or its directory cannot be read or written.
    pub fn remove(&self, id: &str) -> Result<Cleaned, LabError> {
        let unit = self.book.take_over(id)?;
        let not_detached = detach(unit.dir())?;
        let mut cleaned = take_away(unit)?;
        cleaned.failures.extend(not_detached);
        Ok(cleaned)
    }
}

fn take_away(unit: Unit) -> Result<Cleaned, LabError> {
    let id = unit.id().to_owned();
    let names = namespaces_of(&id)?;
    let mut cleaned = Cleaned {
        id: id.clone(),
        processes: kill_in(&names)?,
        steps: 0,
        namespaces: 0,
        failures: Vec::new(),
    };
    let mut is_kept = false;
    match Kernel::new() {
        Ok(mut kernel) => {
            for journal in unit.take_back(&mut kernel)? {
                is_kept |= journal.is_kept();
                cleaned.steps += failures_of(journal, &mut cleaned.failures);
            }
        }
        Err(error) => cleaned.failures.push(error.to_string()),
    }
    // Whatever a damaged journal could not say: the names carry the owner's id.
    for name in namespaces_of(&id)? {
        if let Err(error) = netns::delete(&name) {
            cleaned.failures.push(error.to_string());
        }
    }
    for node in bpf::pins::nodes().iter().filter(|node| node.starts_with(&format!("hg-{id}-"))) {
        if let Err(error) = bpf::pins::remove(&bpf::pins::folder(node)) {
            cleaned.failures.push(error.to_string());
        }
    }
    for node in ovs::switches()?.iter().filter(|node| node.starts_with(&format!("hg-{id}-"))) {
        let switch = Switch::named(node);
        if let Err(error) = switch.end().and_then(|()| switch.remove()) {
            cleaned.failures.push(error.to_string());
        }
    }
    for name in user_net::names()?.iter().filter(|name| name.starts_with(&format!("hg-{id}-"))) {
        let dir = UserNetDir::named(name);
        if let Err(error) = dir.end().and_then(|()| dir.remove()) {
            cleaned.failures.push(error.to_string());
        }
    }
    let left = namespaces_of(&id)?.len();
    cleaned.namespaces = u32::try_from(names.len().saturating_sub(left)).unwrap_or(u32::MAX);
    // While anything of it stands, the directory is how the next try finds it.
    if left == 0 && !is_kept {
        unit.discard()?;
    }
    Ok(cleaned)
}
