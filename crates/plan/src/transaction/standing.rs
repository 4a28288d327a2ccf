//! What a store says: how far a transaction is, and how the one before ended.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{TransactionError, failed, this_boot};
use crate::{Placed, Undone};

/// The version of both files.
const SCHEMA: u32 = 1;

/// A transaction that stands, or is about to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// The version of the format.
    pub schema: u32,
    /// By which people call it.
    pub id: String,
    /// The run of the kernel in which it was made: it does not outlive that.
    pub boot_id: String,
    /// Seconds since 1970.
    pub since_unix_s: u64,
    /// How far it is.
    pub phase: Phase,
    /// The limit on the latency of CPUs that the watcher holds, in microseconds, where there is to be one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_latency_us: Option<u32>,
    /// How many steps its journal has, once all are done: a journal with fewer has lost some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// What the caller wanted to remember.
    pub about: serde_json::Value,
}

/// How far a transaction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Its steps are being done.
    Applying,
    /// Done, and taken back when nobody confirms it in time.
    Unconfirmed {
        /// Until when, in nanoseconds of `CLOCK_BOOTTIME`, which goes on while the machine sleeps.
        deadline_ns: u64,
    },
    /// It stays until somebody takes it back.
    Confirmed,
    /// It stays, and more is being added to it.
    Extending {
        /// The number of the first step that is added: the journal holds those before it as they were confirmed.
        from: u64,
    },
}

/// How much of a transaction is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// All of it.
    All,
    /// What was being added: this step and those after it.
    Addition {
        /// The step's number in the journal.
        from: u64,
    },
}

/// How a transaction ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The version of the format.
    pub schema: u32,
    /// Its id; empty if that could not be read any more.
    pub id: String,
    /// Seconds since 1970.
    pub at_unix_s: u64,
    /// Why.
    pub why: Why,
    /// How many steps were taken back.
    pub steps: usize,
    /// What was left as somebody else had set it, as command and what was found.
    pub left: Vec<(String, String)>,
    /// The machine was started anew meanwhile, which took all of it back.
    pub rebooted: bool,
    /// Only what was being added to it was taken back; the rest stands.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub addition: bool,
}

/// Why a transaction was taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Somebody asked for it.
    Asked,
    /// Nobody confirmed it in time.
    Unconfirmed,
    /// Whoever applied it died before all was done.
    Died,
    /// A step failed.
    Failed,
    /// The watcher was told to end, and nobody had confirmed it.
    Unwatched,
}

impl Standing {
    pub(super) fn begin(
        cpu_latency_us: Option<u32>,
        about: serde_json::Value,
    ) -> Result<Standing, TransactionError> {
        // Long enough to tell two of one machine apart; nobody has to guess it.
        let id = format!("{:06x}", (linux::clock::now_ns() >> 10) & 0x00ff_ffff);
        let (boot_id, since_unix_s) = (this_boot()?, linux::clock::unix_s());
        Ok(Standing {
            schema: SCHEMA,
            id,
            boot_id,
            since_unix_s,
            phase: Phase::Applying,
            cpu_latency_us,
            steps: None,
            about,
        })
    }

    /// False if the machine was started anew since: nothing of it stands any more.
    pub fn is_of_this_boot(&self) -> bool {
        this_boot().is_ok_and(|boot_id| boot_id == self.boot_id)
    }

    /// How long it may still go unconfirmed, in nanoseconds; `None` if it need not be confirmed.
    pub fn left_ns(&self) -> Option<u64> {
        match self.phase {
            Phase::Unconfirmed { deadline_ns } => Some(deadline_ns.saturating_sub(linux::clock::boot_ns())),
            Phase::Applying | Phase::Confirmed | Phase::Extending { .. } => None,
        }
    }

    /// What is to be taken back if it is not asked for: what is loose.
    pub(super) fn loose(&self) -> Extent {
        match self.phase {
            Phase::Applying | Phase::Unconfirmed { .. } | Phase::Confirmed => Extent::All,
            Phase::Extending { from } => Extent::Addition { from },
        }
    }
}

impl Extent {
    /// The number of its first step.
    pub(super) fn first(self) -> u64 {
        match self {
            Extent::All => 0,
            Extent::Addition { from } => from,
        }
    }
}

impl Ended {
    pub(super) fn now(
        standing: Option<&Standing>,
        extent: Extent,
        why: Why,
        steps: &[(Placed, Undone)],
    ) -> Ended {
        let id = standing.map_or_else(String::new, |standing| standing.id.clone());
        let left = steps.iter().filter_map(|(placed, undone)| match undone {
            Undone::ChangedByOther { found } => Some((placed.commands().join("\n"), found.clone())),
            _ => None,
        });
        let rebooted = standing.is_some_and(|standing| !standing.is_of_this_boot())
            || steps.iter().any(|(_, undone)| *undone == Undone::Rebooted);
        let (left, at_unix_s) = (left.collect(), linux::clock::unix_s());
        let addition = matches!(extent, Extent::Addition { .. });
        Ended { schema: SCHEMA, id, at_unix_s, why, steps: steps.len(), left, rebooted, addition }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Applying => "not yet whole",
            Phase::Unconfirmed { .. } => "unconfirmed",
            Phase::Confirmed => "confirmed",
            Phase::Extending { .. } => "confirmed, and more is being added",
        })
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Asked => "as asked",
            Why::Unconfirmed => "since nobody confirmed it in time",
            Why::Died => "since the process that applied it died before all was done",
            Why::Failed => "since a step failed",
            Why::Unwatched => "since its watcher was told to end before anybody had confirmed it",
        })
    }
}

pub(super) fn read(path: &Path) -> Result<Option<Standing>, TransactionError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("read", path)(error)),
    };
    let damaged = |why| TransactionError::Damaged { path: path.to_owned(), why };
    let standing: Standing = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    if standing.schema != SCHEMA {
        return Err(damaged(format!("it has schema {}, this hostgap knows {SCHEMA}", standing.schema)));
    }
    Ok(Some(standing))
}

/// Under its name there is always a whole file: the old one or the new one.
pub(super) fn write(path: &Path, value: &impl Serialize) -> Result<(), TransactionError> {
    let text = serde_json::to_vec(value).expect("these types have only text keys");
    let fresh = path.with_extension("new");
    let written = File::create(&fresh).and_then(|mut file| {
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
    });
    written.map_err(|error| {
        let _ = fs::remove_file(&fresh);
        failed("write", path)(error)
    })
}
