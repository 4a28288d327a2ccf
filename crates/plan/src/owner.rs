//! Who wants something that several units share.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A step of a unit that wants something shared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The absolute path of the unit's journal.
    pub journal: PathBuf,
    /// The number of the step in it.
    pub seq: u64,
}
