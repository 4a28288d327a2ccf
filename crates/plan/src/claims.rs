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

use crate::entry::{After, Before, Owner};
use crate::error::StepError;
use crate::lifetime::Lifetime;
use crate::sealed::{self, Unsealed};
use crate::{Step, lock};

/// Where the claims of this machine are.
pub(crate) const DIRECTORY: &str = "/run/hostgap/claims";
/// The version of the format.
const VERSION: u32 = 1;
const LOCK: &str = "lock";

/// The claims of one namespace, which no other process changes meanwhile.
pub(crate) struct Claims {
    path: PathBuf,
    file: ClaimsFile,
    _lock: File,
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
        // Only root may hold its lock: a process that can read a file can lock it.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(unusable("create", directory))?;
        let path = directory.join(LOCK);
        let lock = lock::exclusive(&path).map_err(unusable("lock", &path))?;
        let path = directory.join(format!("{cookie}.json"));
        let file = sealed::read(&path, VERSION).map_err(|error| match error {
            Unsealed::File(source) => unusable("read", &path)(source),
            Unsealed::Damaged(why) => StepError::Refused {
                why: format!(
                    "{} says who shares what, and is damaged: {why}; without the file, what was shared stays as it is",
                    path.display()
                ),
            },
        })?;
        let file = file.unwrap_or(ClaimsFile { schema: VERSION, claims: BTreeMap::new() });
        Ok(Claims { path, file, _lock: lock })
    }

    /// Whether taking away the file takes nothing from anybody: no unit that has a claim has a journal, and what was
    /// shared went with the namespace.
    fn is_stale(&self) -> bool {
        self.file.claims.values().all(|claim| {
            let is_owned = claim.owners.iter().any(|owner| owner.journal.exists());
            !is_owned && claim.step.effect().lifetime() != Lifetime::Outside
        })
    }

    /// The claim on what a step is about. Of its owners only those are in it that still have a journal.
    pub(crate) fn on(&self, step: &Step) -> Option<Claim> {
        let mut claim = self.file.claims.get(&key(step))?.clone();
        claim.owners.retain(|owner| owner.journal.exists());
        Some(claim)
    }

    /// Writes a claim in place of the one on the same thing.
    pub(crate) fn put(&mut self, claim: Claim) -> Result<(), StepError> {
        self.file.claims.insert(key(&claim.step), claim);
        self.write()
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
            false => sealed::write(&self.path, &self.file),
        };
        written.map_err(unusable("write", &self.path))
    }
}

/// Removes the claims on namespaces that no longer exist, where every unit that shared something lost its journal before
/// it could give up its claims. Returns the files that were removed.
///
/// # Errors
/// The namespaces cannot be listed, or a file cannot be read or removed. A damaged file is an error too.
pub(crate) fn remove_stale(directory: &Path) -> Result<Vec<PathBuf>, StepError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(unusable("list", directory))?,
    };
    let cookie_of = |name: &OsStr| name.to_str()?.strip_suffix(".json")?.parse::<u64>().ok();
    let claimed: Vec<u64> = entries.flatten().filter_map(|entry| cookie_of(&entry.file_name())).collect();
    // Listed after the files: a namespace made in between has no claims among them.
    let visible = linux::visible_cookies()?;
    let mut removed = Vec::new();
    for cookie in claimed.into_iter().filter(|cookie| !visible.contains(cookie)) {
        let claims = Claims::lock(directory, cookie)?;
        if claims.is_stale() {
            fs::remove_file(&claims.path).map_err(unusable("remove", &claims.path))?;
            removed.push(claims.path);
        }
    }
    Ok(removed)
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
    let more = match step {
        // The all-zero address may have an entry for each remote.
        Step::AddFdb(entry) => entry.dst.to_string(),
        Step::AddNeighbour(neighbour) if neighbour.mac.is_none() => "proxy".to_owned(),
        _ => String::new(),
    };
    format!("{kind} {} {} {more}", link.unwrap_or_default(), step.effect().subject())
}

fn unusable(attempted: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StepError {
    move |error| StepError::Refused { why: format!("could not {attempted} {}: {error}", path.display()) }
}
