//! Whether a step is so. Nothing is changed, and the kernel is asked: neither the journal nor a pin is believed.

use std::fmt;

use crate::error::StepError;
use crate::listing::Listing;
use crate::{Kernel, Place, Placed};

/// How what a step would make stands now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepState {
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
pub struct Drift {
    /// The namespace in which it changed.
    pub place: Place,
    /// What changed, in words: "link hgp1 is gone".
    pub what: String,
}

/// Looks at one step. Of a [`crate::Step::AddNftTable`] only the name is compared: its rules
/// may have changed.
///
/// Undo asks this too, except of what has an identity that outlives a name: a link (its index), a namespace (its
/// cookie) and pinned programs. There the journal says more than the step: whether it is the very one that was made. Of
/// a register ([`crate::Step::Set`]) it asks twice, for the step as the journal has it and for the way back from it.
///
/// # Errors
/// The kernel does not answer, or the step's namespace is not there.
pub fn look(placed: &Placed, kernel: &mut Kernel) -> Result<StepState, StepError> {
    placed.step.effect().look(kernel, &placed.place, &Listing::default())
}

impl StepState {
    pub(crate) fn otherwise(found: impl Into<String>) -> StepState {
        StepState::Otherwise { found: found.into() }
    }

    /// What is there or not, and cannot be otherwise.
    pub(crate) fn whether(is_there: bool) -> StepState {
        if is_there { StepState::So } else { StepState::Absent }
    }

    /// How the entries of a pod stand, of which some may be another's.
    pub(crate) fn of_pod(all_ours: Option<bool>) -> StepState {
        match all_ours {
            None => StepState::Absent,
            Some(all) => StepState::of(all, || "another pod's, in part".to_owned()),
        }
    }

    /// [`StepState::So`] if it is, else what was found instead.
    pub(crate) fn of(is_so: bool, found: impl FnOnce() -> String) -> StepState {
        if is_so { StepState::So } else { StepState::otherwise(found()) }
    }
}

impl Drift {
    /// `None` if the step is so.
    pub(crate) fn of(placed: &Placed, look: StepState) -> Option<Drift> {
        let what = match look {
            StepState::So => return None,
            StepState::Absent => placed.step.effect().gone(),
            StepState::Otherwise { found } => placed.step.effect().changed(&found),
        };
        Some(Drift { place: placed.place.clone(), what })
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}
