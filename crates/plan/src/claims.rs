//! What several units share: a kernel parameter, a bridge, a set of programs.
//!
//! A step that is shared ([`crate::Step::Share`]) is done by the first unit that wants it, found done by the later ones,
//! and taken back by the last that leaves. Who wants it stands in a claim, next to the state that the first one found.
//! A unit is named by its journal, so one whose journal is gone wants nothing any more.
//!
//! The claims of one network namespace are one file, called by the namespace's cookie, under `/run/hostgap/claims`. One
//! lock is held while a shared step is done or taken back: whoever finds a claim finds the step done, unless the process
//! that did it has died of it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::entry::{After, Before};
use crate::error::StepError;
use crate::sealed::{self, Unsealed};
use crate::{Placed, Step, lock};

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
    /// The step, and where the first unit did it.
    pub(crate) placed: Placed,
    /// What the first unit found; `None`: it was so already, and nothing was done.
    pub(crate) before: Option<Before>,
    /// What was read back; `None`: it may have happened or not.
    pub(crate) after: Option<After>,
    /// The journals of the units that want it.
    pub(crate) owners: Vec<PathBuf>,
}

impl Claims {
    /// Waits until no other process is about to change a claim.
    pub(crate) fn lock(directory: &Path, cookie: u64) -> Result<Claims, StepError> {
        fs::create_dir_all(directory).map_err(unusable("create", directory))?;
        let path = directory.join(LOCK);
        let lock = lock::exclusive(&path).map_err(unusable("lock", &path))?;
        let path = directory.join(format!("{cookie}.json"));
        let file = sealed::read(&path, VERSION).map_err(|error| match error {
            Unsealed::File(source) => unusable("read", &path)(source),
            Unsealed::Damaged(why) => StepError::Refused {
                why: format!("{} says who shares what, and is damaged: {why}", path.display()),
            },
        })?;
        let file = file.unwrap_or(ClaimsFile { schema: VERSION, claims: BTreeMap::new() });
        Ok(Claims { path, file, _lock: lock })
    }

    /// The claim on what a step is about. Of its owners only those are in it that still have a journal.
    pub(crate) fn on(&self, step: &Step) -> Option<Claim> {
        let mut claim = self.file.claims.get(&key(step))?.clone();
        claim.owners.retain(|owner| owner.exists());
        Some(claim)
    }

    pub(crate) fn put(&mut self, claim: Claim) -> Result<(), StepError> {
        self.file.claims.insert(key(&claim.placed.step), claim);
        self.write()
    }

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

/// What a step is about, as a text that steps of one kind about one thing have in common. It stands in files, so it is
/// made of the names that they have there.
fn key(step: &Step) -> String {
    let kind = match serde_json::to_value(step) {
        Ok(serde_json::Value::Object(object)) => object.keys().next().cloned().unwrap_or_default(),
        Ok(other) => other.to_string(),
        Err(error) => error.to_string(),
    };
    format!("{kind}: {}", step.effect().subject())
}

fn unusable(attempted: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StepError {
    move |error| StepError::Refused { why: format!("could not {attempted} {}: {error}", path.display()) }
}
