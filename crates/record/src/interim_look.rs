//! Looks at a race that ends for what it sees: what left, when and why.

use serde::{Deserialize, Serialize};

/// A look at all comparisons after a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterimLook {
    /// Its number, from 1. The level of its intervals depends on it.
    pub number: u32,
    /// How many builds there were.
    pub builds: u32,
    /// How many rounds there were.
    pub rounds: u32,
    /// What left; later rounds go without it.
    pub left: Vec<Left>,
}

/// A candidate that left at a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Left {
    /// The candidate, as an index into [`crate::Header::entrants`].
    pub entrant: usize,
    /// Index into the record's loads.
    pub load: usize,
    /// Why the comparison left.
    pub why: Leaving,
}

/// Why a candidate left at a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leaving {
    /// A difference to the reference was found.
    Different,
    /// The ratio to the reference is known as well as was asked.
    Precise,
    /// The statistic that was named is none of this load's, the load is past the capacity of the candidate or of the
    /// reference, or the candidate is not ranked.
    NotAsked,
    /// Undecided: the time was up, or the others were done. Only in the last look.
    Ended,
}
