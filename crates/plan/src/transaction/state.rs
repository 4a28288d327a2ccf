//! What a store says: how far a transaction is, and how the one before ended.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Phase, TransactionError, failed, this_boot};
use crate::sealed::{self, Unsealed};
use crate::{Placed, Seal, Undone};

/// The version of both files.
const SCHEMA: u32 = 2;

/// A transaction that stands, or is about to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenTransaction {
    /// The version of the format.
    pub schema: u32,
    /// By which people call it.
    pub id: String,
    /// The run of the kernel in which it was made: it does not outlive that.
    pub boot_id: String,
    /// When it began, in seconds since 1970.
    pub since_unix_s: u64,
    /// How far it is.
    pub phase: Phase,
    /// The limit on the latency of CPUs that the watcher holds, in microseconds, where there is to be one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_latency_us: Option<u32>,
    /// What its journal was when all steps were done; before that, of its first line alone.
    pub seal: Seal,
    /// What the caller wanted to remember.
    pub about: Value,
}

/// How much of a transaction is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// Every step of the journal.
    All,
    /// What was being added: this step and those after it.
    Addition {
        /// The step's number in the journal.
        from: u64,
    },
}

/// How a transaction ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedTransaction {
    /// The version of the format.
    pub schema: u32,
    /// Its id; empty if that could not be read any more.
    pub id: String,
    /// When it ended, in seconds since 1970.
    pub at_unix_s: u64,
    /// What made it end.
    pub why: Why,
    /// How many steps were taken back.
    pub steps: usize,
    /// What was left because another program had changed it: the command, and what was found.
    pub left: Vec<(String, String)>,
    /// The machine was restarted meanwhile, which took all of it back.
    pub rebooted: bool,
    /// Only what was being added to it was taken back; the rest stands.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub addition: bool,
    /// Why these may not have been all of its steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
}

/// Why a transaction was taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// A user asked for it.
    Asked,
    /// It was not confirmed in time.
    Unconfirmed,
    /// The process that applied it died before all was done.
    Died,
    /// A step failed, and those before it were undone at once.
    Failed,
    /// The watcher was asked to stop before it was confirmed.
    Unwatched,
}

impl OpenTransaction {
    pub(super) fn begin(
        seal: Seal,
        cpu_latency_us: Option<u32>,
        about: Value,
    ) -> Result<OpenTransaction, TransactionError> {
        // Long enough that no two of one machine are the same; it is no secret.
        let id = format!("{:06x}", (linux::clock::now_ns() >> 10) & 0x00ff_ffff);
        let (boot_id, since_unix_s) = (this_boot()?, linux::clock::unix_s());
        Ok(OpenTransaction {
            schema: SCHEMA,
            id,
            boot_id,
            since_unix_s,
            phase: Phase::Applying,
            cpu_latency_us,
            seal,
            about,
        })
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

impl EndedTransaction {
    /// It went with a restart of the machine.
    pub(super) fn restarted(standing: Option<&OpenTransaction>, why: Why) -> EndedTransaction {
        EndedTransaction { rebooted: true, ..EndedTransaction::now(standing, Extent::All, why, &[], None) }
    }

    pub(super) fn now(
        standing: Option<&OpenTransaction>,
        extent: Extent,
        why: Why,
        steps: &[(Placed, Undone)],
        doubt: Option<String>,
    ) -> EndedTransaction {
        let id = standing.map_or_else(String::new, |standing| standing.id.clone());
        let left = steps.iter().filter_map(|(placed, undone)| match undone {
            Undone::ChangedByOther { found } => Some((placed.commands().join("\n"), found.clone())),
            _ => None,
        });
        let (left, at_unix_s) = (left.collect(), linux::clock::unix_s());
        let addition = matches!(extent, Extent::Addition { .. });
        EndedTransaction {
            schema: SCHEMA,
            id,
            at_unix_s,
            why,
            steps: steps.len(),
            left,
            rebooted: false,
            addition,
            doubt,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Asked => "as asked",
            Why::Unconfirmed => "since it was not confirmed in time",
            Why::Died => "since the process that applied it died before all was done",
            Why::Failed => "since a step failed",
            Why::Unwatched => "since its watcher was asked to stop before it was confirmed",
        })
    }
}

pub(super) fn read(path: &Path) -> Result<Option<OpenTransaction>, TransactionError> {
    sealed::read(path, SCHEMA).map_err(|error| match error {
        Unsealed::File(source) => failed("read", path)(source),
        Unsealed::Damaged(why) => TransactionError::Damaged { path: path.to_owned(), why },
    })
}

/// How one ended; for people, so a file that cannot be read says nothing.
pub(super) fn read_ended(path: &Path) -> Option<EndedTransaction> {
    sealed::read(path, SCHEMA).ok().flatten()
}

pub(super) fn write(path: &Path, value: &impl Serialize) -> Result<(), TransactionError> {
    sealed::write(path, value).map_err(failed("write", path))
}
