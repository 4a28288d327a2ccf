//! The check of what pods send where the kernel forwards: its program, and the pods' addresses.

use bpf::{guard, pins};

use super::program::{of_another_version, pinned, refuse_loaded, unload, unpin};
use super::{Effect, MovedBack, Past, UndoOutcome, absent, existing_index, mistaken};
use crate::entry::{Before, Undone};
use crate::error::StepError;
use crate::forwarding::{Guard, Guarded};
use crate::lifetime::Lifetime;
use crate::listing::Listing;
use crate::look::StepState;
use crate::show::{joined, netns_operand, ours, quoted, word};
use crate::{Kernel, Place};

/// Replaces the guard of a node by that of this version while pods send: each frame meets the old one or the new one,
/// and pods and counters stay. Filters are replaced at the links of `place`. Nothing is written down, and nothing
/// undoes it: the undo of the steps that loaded and attached the old one is that of the new one too.
///
/// # Errors
/// As for [`guard::replace`].
pub fn replace_guard(kernel: &mut Kernel, place: &Place, of: &Guard) -> Result<guard::Replaced, StepError> {
    Ok(kernel.at(place)?.netns.run(|| guard::replace(&of.folder()))??)
}

/// Does what [`replace_guard`] does where a node's guard is another build's. `None`: it is this one's,
/// and nothing is changed.
///
/// # Errors
/// As of [`replace_guard`], or it cannot be found out of which build it is.
pub fn renew_guard(
    kernel: &mut Kernel,
    place: &Place,
    of: &Guard,
) -> Result<Option<guard::Replaced>, StepError> {
    if guard::is_of_this_build(&of.folder())? {
        return Ok(None);
    }
    replace_guard(kernel, place, of).map(Some)
}

/// The program of a network on a node, pinned.
pub(super) struct LoadGuard<'s>(pub(super) &'s Guard);

impl Effect for LoadGuard<'_> {
    fn before(&self, _: &mut Kernel, _: &Place) -> Result<Before, StepError> {
        refuse_loaded(&self.0.node)
    }

    fn act(&self, _: &mut Kernel, _: &Place, _: &Before) -> Result<(), StepError> {
        let folder = pins::folder(&self.0.node);
        Ok(pinned(&folder, || guard::load(&folder).map(drop))?)
    }

    fn undo(&self, _: &mut Kernel, past: &Past, _: &MovedBack) -> Result<UndoOutcome, StepError> {
        unpin(&self.0.node, past)
    }

    fn renew(&self, kernel: &mut Kernel, place: &Place) -> Result<bool, StepError> {
        replace_guard(kernel, place, self.0).map(|_| true)
    }

    fn look(&self, _: &mut Kernel, _: &Place, _: &Listing) -> Result<StepState, StepError> {
        let folder = pins::folder(&self.0.node);
        if !guard::is_loaded(&folder) {
            return Ok(StepState::Absent);
        }
        Ok(StepState::of(guard::is_of_this_format(&folder)?, of_another_version))
    }

    fn lifetime(&self) -> Lifetime<'_> {
        Lifetime::Outside
    }

    fn identity(&self) -> String {
        self.subject()
    }

    fn subject(&self) -> String {
        format!("the guard of {}", self.0.node)
    }

    fn commands(&self, _: &Place) -> Vec<String> {
        vec![format!("hostgap bpf guard {}", quoted(&self.0.node))]
    }

    fn removal(&self, _: &Place) -> Option<String> {
        Some(unload(&self.0.node))
    }
}

/// An interface of a pod in the guard's maps.
pub(super) struct AddGuarded<'s>(pub(super) &'s Guarded);

impl Effect for AddGuarded<'_> {
    fn before(&self, kernel: &mut Kernel, place: &Place) -> Result<Before, StepError> {
        let container = kernel.at(&self.0.pod)?.cookie;
        let index = existing_index(kernel, place, &self.0.link)?;
        if guard::has(&pins::folder(&self.0.node), &self.entry(index, container))?.is_some() {
            let what = format!("a pod at link {}, or one of its addresses", self.0.link);
            return Err(StepError::Exists { what, remedy: "undo the plan that added it".to_owned() });
        }
        Ok(Before::Unguarded { index, container })
    }

    fn act(&self, _: &mut Kernel, _: &Place, before: &Before) -> Result<(), StepError> {
        let (index, container) = unguarded(before)?;
        Ok(guard::add(&pins::folder(&self.0.node), &self.entry(index, container))?)
    }

    /// The pod's namespace may be gone; the journal has its cookie.
    fn undo(&self, _: &mut Kernel, past: &Past, _: &MovedBack) -> Result<UndoOutcome, StepError> {
        let (index, container) = unguarded(&past.intent.before)?;
        if self.found(index, container)? == StepState::Absent {
            return Ok(absent(past.after.as_ref()).into());
        }
        guard::remove(&pins::folder(&self.0.node), &self.entry(index, container))?;
        Ok(Undone::Restored.into())
    }

    fn look(&self, kernel: &mut Kernel, place: &Place, listing: &Listing) -> Result<StepState, StepError> {
        let container = kernel.at(&self.0.pod)?.cookie;
        let index = listing.index(kernel.at(place)?, &self.0.link)?;
        index.map_or(Ok(StepState::Absent), |index| self.found(index, container))
    }

    fn admits_before(&self, before: &Before) -> bool {
        unguarded(before).is_ok()
    }

    fn identity(&self) -> String {
        format!("{:?}", self.0)
    }

    fn subject(&self) -> String {
        format!("the entry for the pod at link {} in the guard of {}", self.0.link, self.0.node)
    }

    fn commands(&self, place: &Place) -> Vec<String> {
        let Guarded { node, link, pod, mac, addresses } = self.0;
        let arguments = format!("{} {} {mac} {}", word(link), netns_operand(pod), joined(addresses));
        vec![ours(place, "guarded", node, &arguments)]
    }
}

impl AddGuarded<'_> {
    fn entry(&self, link: u32, container: u64) -> guard::Guarded {
        guard::Guarded { link, container, mac: self.0.mac, addresses: self.0.addresses.clone() }
    }

    /// How the entries of a container's interface behind the link with this index stand.
    fn found(&self, link: u32, container: u64) -> Result<StepState, StepError> {
        let folder = pins::folder(&self.0.node);
        if !guard::is_loaded(&folder) {
            return Ok(StepState::Absent);
        }
        Ok(StepState::of_pod(guard::has(&folder, &self.entry(link, container))?))
    }
}

/// The index of the link and the cookie of the container of which the entries will speak.
fn unguarded(before: &Before) -> Result<(u32, u64), StepError> {
    if let Before::Unguarded { index, container } = before {
        Ok((*index, *container))
    } else {
        Err(mistaken(before))
    }
}
