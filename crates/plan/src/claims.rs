//! What several units share: a kernel parameter, a bridge, a set of programs.
//!
//! A step that is shared ([`crate::Step::Share`]) is done by the first unit that wants it, found done by the later
//! ones, and taken back by the last that leaves. The units that share it are listed in a claim, next to the state that
//! the first one found. A unit is named by its journal, so one whose journal is gone wants nothing any more.
//!
//! The claims of one network namespace are one file, called by the namespace's cookie, under `/run/hostgap/claims`. One
//! lock is held while a shared step is done or taken back: a claim means that the step is done, unless the process
//! that did it has died of it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::entry::{After, Before};
use crate::error::StepError;
use crate::kernel::Kernel;
use crate::lifetime::Lifetime;
use crate::owner::Owner;
use crate::sealed::{self, Unsealed};
use crate::{Step, lock};

/// The version of the format.
const VERSION: u32 = 1;
const LOCK: &str = "lock";

/// The claims of one namespace, which no other process changes meanwhile.
pub(crate) struct Claims {
    directory: PathBuf,
    path: PathBuf,
    file: ClaimsFile,
    lock: File,
}

#[derive(Debug, Serialize, Deserialize)]
struct ClaimsFile {
    schema: u32,
    /// By what they are about.
    claims: BTreeMap<String, Claim>,
}

/// A step that units share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    /// The step, without a place: one namespace may have several names.
    pub(crate) step: Step,
    /// What the first unit found; `None`: it was so already, and nothing was done.
    pub(crate) before: Option<Before>,
    /// What was read back; `None`: it may have happened or not.
    pub(crate) after: Option<After>,
    /// The units that share it, first come first.
    pub(crate) owners: Vec<Owner>,
}

impl Claims {
    /// Waits until no other process is about to change a claim.
    pub(crate) fn lock(directory: &Path, cookie: u64) -> Result<Claims, StepError> {
        let lock = exclusive(directory)?;
        let path = path_of(directory, cookie);
        let file = ClaimsFile::read(&path)?;
        Ok(Claims { directory: directory.to_owned(), path, file, lock })
    }

    /// The claim on what a step is about. Of its owners only those are in it that still have a journal.
    pub(crate) fn on(&self, step: &Step) -> Option<Claim> {
        let mut claim = self.file.claims.get(&key(step))?.clone();
        claim.owners.retain(|owner| owner.journal.exists());
        Some(claim)
    }

    /// Writes a claim in place of the one on the same thing. The first one of a namespace also takes away what was
    /// shared in namespaces that are gone: no other process does it for units that were killed and lost their journals.
    pub(crate) fn put(&mut self, claim: Claim) -> Result<(), StepError> {
        let is_first = self.file.claims.is_empty();
        self.file.claims.insert(key(&claim.step), claim);
        self.write()?;
        if is_first {
            // What cannot be looked at now harms no unit, and stays for the next, or for `hostgap
            // clean`, which names it.
            drop(remove_stale_under(&self.lock, &self.directory));
        }
        Ok(())
    }

    /// Its last unit has left.
    pub(crate) fn remove(&mut self, step: &Step) -> Result<(), StepError> {
        self.file.claims.remove(&key(step));
        self.write()
    }

    fn write(&self) -> Result<(), StepError> {
        let written = match self.file.claims.is_empty() {
            true => fs::remove_file(&self.path).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            }),
            false => sealed::write(&self.path, &self.file).or_else(|error| match error.kind() {
                // Where more claims fitted, there is room for fewer: a unit that gives one up needs none.
                io::ErrorKind::StorageFull => sealed::write_over(&self.path, &self.file).map_err(|_| error),
                _ => Err(error),
            }),
        };
        written.map_err(unusable("write", &self.path))
    }
}

impl ClaimsFile {
    /// The claims in a file. There are none if there is no file.
    fn read(path: &Path) -> Result<ClaimsFile, StepError> {
        let file = sealed::read(path, VERSION).map_err(|error| match error {
            Unsealed::File(source) => unusable("read", path)(source),
            Unsealed::Damaged(why) => StepError::Refused {
                why: format!(
                    "the list of claims {} is damaged: {why}; if you delete it, shared values are not restored",
                    path.display()
                ),
            },
        })?;
        Ok(file.unwrap_or(ClaimsFile { schema: VERSION, claims: BTreeMap::new() }))
    }

    /// Whether no unit needs the file any more, once its namespace is gone: no unit that has a claim has a journal,
    /// and what was shared went with the namespace.
    fn is_stale(&self) -> bool {
        self.claims.values().all(|claim| {
            let is_owned = claim.owners.iter().any(|owner| owner.journal.exists());
            !is_owned && claim.step.effect().lifetime() != Lifetime::Outside
        })
    }
}

/// Removes the claims on namespaces that no longer exist, where every unit that shared something lost its journal
/// before it could give up its claims, as the first claim on another namespace does too. Returns the files that were
/// removed.
///
/// # Errors
/// The namespaces cannot be listed, or a file cannot be read or removed. A damaged file is an error too.
pub fn remove_stale_claims(kernel: &Kernel) -> Result<Vec<PathBuf>, StepError> {
    let directory = &kernel.claims;
    // No directory is made where there is none.
    if claimed(directory)?.is_empty() {
        return Ok(Vec::new());
    }
    remove_stale_under(&exclusive(directory)?, directory)
}

/// The same under the lock of the directory. Namespaces are listed only if a file seems to be stale: that takes a look
/// at every thread of the machine.
fn remove_stale_under(_lock: &File, directory: &Path) -> Result<Vec<PathBuf>, StepError> {
    let files = claimed(directory)?.into_iter().map(|cookie| {
        let path = path_of(directory, cookie);
        (cookie, ClaimsFile::read(&path), path)
    });
    let suspects: Vec<_> =
        files.filter(|(_, file, _)| file.as_ref().map_or(true, ClaimsFile::is_stale)).collect();
    if suspects.is_empty() {
        return Ok(Vec::new());
    }
    // Listed after the files: a namespace made in between has no claims among them.
    let visible = linux::visible_cookies()?;
    let mut removed = Vec::new();
    for (_, file, path) in suspects.into_iter().filter(|(cookie, ..)| !visible.contains(cookie)) {
        file?;
        fs::remove_file(&path).map_err(unusable("remove", &path))?;
        removed.push(path);
    }
    Ok(removed)
}

/// Waits for the lock of all claims.
fn exclusive(directory: &Path) -> Result<File, StepError> {
    // Only root may hold its lock: a process that can read a file can lock it.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(unusable("create", directory))?;
    let path = directory.join(LOCK);
    lock::exclusive(&path).map_err(unusable("lock", &path))
}

/// The namespaces on which there are claims, by their cookies.
fn claimed(directory: &Path) -> Result<Vec<u64>, StepError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(unusable("list", directory))?,
    };
    let cookie_of = |name: &OsStr| name.to_str()?.strip_suffix(".json")?.parse().ok();
    Ok(entries.flatten().filter_map(|entry| cookie_of(&entry.file_name())).collect())
}

fn path_of(directory: &Path, cookie: u64) -> PathBuf {
    directory.join(format!("{cookie}.json"))
}

/// What a step is about: two steps that exclude each other have the same text. It stands in files, so it is made of the
/// names that they have there.
fn key(step: &Step) -> String {
    let json = serde_json::to_value(step).expect("a step has only text keys");
    let (kind, fields) = match json.as_object().and_then(|object| object.iter().next()) {
        Some((kind, fields)) => (kind.clone(), fields.clone()),
        None => (json.to_string(), Value::Null),
    };
    let link = ["link", "dev"].iter().find_map(|name| fields.get(name)).and_then(Value::as_str);
    let effect = step.effect();
    format!("{kind} {} {} {}", link.unwrap_or_default(), effect.subject(), effect.distinction())
}

fn unusable(attempted: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StepError {
    move |why| StepError::File { attempted, path: path.to_owned(), why }
}
