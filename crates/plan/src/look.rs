//! Whether a step is so. Nothing is changed, and the kernel is asked: neither the journal nor a pin is believed.

use std::fmt;

use crate::error::StepError;
use crate::listing::Listing;
use crate::{Kernel, Place, Placed};

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
    /// The namespace in which it changed.
    pub place: Place,
    /// What changed, in words: "link hgp1 is gone".
    pub what: String,
}

/// Looks at one step. Of a [`crate::Step::AddNftTable`] only the name is compared: its rules
/// may have changed.
///
/// Undo asks this too, except of what has an identity that outlives a name: a link (its index), a namespace (its
/// cookie) and pinned programs. There the journal says more than the step: whether it is the very one that was made.
///
/// # Errors
/// The kernel does not answer, or the step's namespace is not there.
pub fn look(placed: &Placed, kernel: &mut Kernel) -> Result<Look, StepError> {
    placed.step.effect().look(kernel, &placed.place, &Listing::default())
}

impl Look {
    pub(crate) fn otherwise(found: impl Into<String>) -> Look {
        Look::Otherwise { found: found.into() }
    }

    /// What is there or not, and cannot be otherwise.
    pub(crate) fn whether(is_there: bool) -> Look {
        if is_there { Look::So } else { Look::Absent }
    }

    /// How the entries of a pod stand, of which some may be another's.
    pub(crate) fn of_pod(all_ours: Option<bool>) -> Look {
        match all_ours {
            None => Look::Absent,
            Some(all) => Look::of(all, || "another pod's, in part".to_owned()),
        }
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
            Look::Absent => placed.step.effect().gone(),
            Look::Otherwise { found } => placed.step.effect().changed(&found),
        };
        Some(Change { place: placed.place.clone(), what })
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}
