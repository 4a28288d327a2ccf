//! How far a transaction is.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How far a transaction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Its steps are being done.
    Applying,
    /// Done, and taken back unless it is confirmed in time.
    Unconfirmed {
        /// Until when, in nanoseconds of `CLOCK_BOOTTIME`, which goes on while the machine sleeps.
        deadline_ns: u64,
    },
    /// It stays until it is taken back by `rollback`.
    Confirmed,
    /// It stays, and more is being added to it.
    Extending {
        /// The number of the first step that is added: the journal holds those before it as they were confirmed.
        from: u64,
    },
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
