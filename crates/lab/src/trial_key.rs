//! Which trial of a record a slice is.

use serde::{Deserialize, Serialize};

/// Of whom at which load a trial is, as the record numbers both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrialKey {
    /// The candidate, as an index into [`record::Header::entrants`].
    pub(crate) entrant: usize,
    /// Index into the record's loads.
    pub(crate) load: usize,
}

impl TrialKey {
    /// Of a slice that is part of no record.
    pub(crate) const NONE: TrialKey = TrialKey { entrant: 0, load: 0 };
}
