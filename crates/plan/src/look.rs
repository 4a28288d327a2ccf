//! Whether a step is so. Nothing is changed, and the kernel is asked: neither the journal nor a pin is believed.

use std::fmt;

use crate::error::StepError;
use crate::listing::Listing;
use crate::{Kernel, Place, Placed, subject};

/// How what a step would make stands now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// As the step says.
    So,
    /// Something else stands in its place, or it has other properties.
    Otherwise {
        /// What is there, in words.
        found: String,
    },
    /// Nothing of it is there.
    Absent,
}

/// What is no longer as a step made it, or as it was found beside the steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Where.
    pub place: Place,
    /// What changed, in words: "link hgp1 is gone".
    pub what: String,
}

/// Looks at one step. Of a [`crate::Step::AddNftTable`] it tells whether the table is there, not whether its rules are
/// still those of the step.
///
/// # Errors
/// The kernel does not answer, or the step's namespace is not there.
pub fn look(placed: &Placed, kernel: &mut Kernel) -> Result<Look, StepError> {
    crate::steps::look(kernel, &Listing::default(), placed)
}

impl Look {
    pub(crate) fn otherwise(found: impl Into<String>) -> Look {
        Look::Otherwise { found: found.into() }
    }

    /// [`Look::So`] if it is, else what was found instead.
    pub(crate) fn of(is_so: bool, found: impl FnOnce() -> String) -> Look {
        if is_so { Look::So } else { Look::otherwise(found()) }
    }
}

impl Change {
    /// `None` if the step is so.
    pub(crate) fn of(placed: &Placed, look: Look) -> Option<Change> {
        let what = match look {
            Look::So => return None,
            Look::Absent => subject::gone(&placed.step),
            Look::Otherwise { found } => subject::now(&placed.step, &found),
        };
        Some(Change { place: placed.place.clone(), what })
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}
