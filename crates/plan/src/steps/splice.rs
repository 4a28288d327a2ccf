//! The short cut of TCP between pods of one node: its control group, its programs, its pods.

use bpf::splice;

use super::program::unload;
use super::{Effect, MovedBack, Past, UndoOutcome, absent};
use crate::entry::{After, Before, Undone};
use crate::error::StepError;
use crate::forwarding::{Member, Splice};
use crate::lifetime::Lifetime;
use crate::listing::Listing;
use crate::look::StepState;
use crate::show::{joined, ours, quoted};
use crate::{Kernel, Place};

/// A node's control group.
pub(super) struct AddCgroup<'s>(pub(super) &'s Splice);

impl Effect for AddCgroup<'_> {
    fn before(&self, _: &mut Kernel, _: &Place) -> Result<Before, StepError> {
        let cgroup = self.0.cgroup()?;
        let what = format!("control group {}", cgroup.path().display());
        absent_or(cgroup.exists(), what, "if it is not needed, end what runs in it and remove the directory")
    }

    fn act(&self, _: &mut Kernel, _: &Place, _: &Before) -> Result<(), StepError> {
        Ok(self.0.cgroup()?.create()?)
    }

    fn undo(&self, _: &mut Kernel, past: &Past, _: &MovedBack) -> Result<UndoOutcome, StepError> {
        let cgroup = self.0.cgroup()?;
        put_away(cgroup.exists(), past.after.as_ref(), || cgroup.remove())
    }

    fn look(&self, _: &mut Kernel, _: &Place, _: &Listing) -> Result<StepState, StepError> {
        Ok(StepState::whether(self.0.cgroup()?.exists()))
    }

    fn lifetime(&self) -> Lifetime<'_> {
        Lifetime::Outside
    }

    fn identity(&self) -> String {
        self.subject()
    }

    fn subject(&self) -> String {
        format!("the control group of {}", self.0.node)
    }

    fn commands(&self, _: &Place) -> Vec<String> {
        vec![format!("mkdir -p {}", self.0.shell_path())]
    }

    fn removal(&self, _: &Place) -> Option<String> {
        Some(format!("rmdir {}", self.0.shell_path()))
    }
}

/// The programs that splice, pinned.
pub(super) struct LoadSplice<'s>(pub(super) &'s Splice);

impl Effect for LoadSplice<'_> {
    fn before(&self, _: &mut Kernel, _: &Place) -> Result<Before, StepError> {
        let node = &self.0.node;
        let remedy = format!("if it is not needed: hostgap bpf unload {node}");
        absent_or(splice::is_loaded(&self.0.folder()), self.subject(), &remedy)
    }

    fn act(&self, _: &mut Kernel, _: &Place, _: &Before) -> Result<(), StepError> {
        Ok(splice::load(&self.0.folder())?)
    }

    fn undo(&self, _: &mut Kernel, past: &Past, _: &MovedBack) -> Result<UndoOutcome, StepError> {
        let folder = self.0.folder();
        let is_loaded = splice::is_loaded(&folder);
        if !is_loaded {
            // A process that was killed in this step may have left the folder, with nothing in it.
            splice::remove(&folder)?;
        }
        put_away(is_loaded, past.after.as_ref(), || splice::remove(&folder))
    }

    fn look(&self, _: &mut Kernel, _: &Place, _: &Listing) -> Result<StepState, StepError> {
        Ok(StepState::whether(splice::is_loaded(&self.0.folder())))
    }

    fn lifetime(&self) -> Lifetime<'_> {
        Lifetime::Outside
    }

    fn identity(&self) -> String {
        self.subject()
    }

    fn subject(&self) -> String {
        format!("the splice of {}", self.0.node)
    }

    fn commands(&self, _: &Place) -> Vec<String> {
        vec![format!("hostgap bpf splice {}", quoted(&self.0.node))]
    }

    fn removal(&self, _: &Place) -> Option<String> {
        Some(unload(&self.0.node))
    }
}

/// These programs at the node's control group.
pub(super) struct AttachSplice<'s>(pub(super) &'s Splice);

impl Effect for AttachSplice<'_> {
    fn before(&self, _: &mut Kernel, _: &Place) -> Result<Before, StepError> {
        let node = &self.0.node;
        let what = format!("the splice of {node} at a control group");
        let remedy = format!("if it is not needed: hostgap bpf unload {node}");
        absent_or(splice::is_attached(&self.0.folder()), what, &remedy)
    }

    fn act(&self, _: &mut Kernel, _: &Place, _: &Before) -> Result<(), StepError> {
        Ok(splice::attach(&self.0.folder(), self.0.cgroup()?.path())?)
    }

    fn undo(&self, _: &mut Kernel, past: &Past, _: &MovedBack) -> Result<UndoOutcome, StepError> {
        let folder = self.0.folder();
        put_away(splice::is_attached(&folder), past.after.as_ref(), || splice::detach(&folder))
    }

    fn look(&self, _: &mut Kernel, _: &Place, _: &Listing) -> Result<StepState, StepError> {
        let cgroup = self.0.cgroup()?;
        Ok(StepState::whether(cgroup.exists() && splice::is_met(&self.0.folder(), cgroup.path())?))
    }

    fn lifetime(&self) -> Lifetime<'_> {
        Lifetime::Outside
    }

    fn identity(&self) -> String {
        self.subject()
    }

    fn subject(&self) -> String {
        format!("the splice of {} at its control group", self.0.node)
    }

    fn gone(&self) -> String {
        format!("the splice of {} is no longer at its control group", self.0.node)
    }

    fn commands(&self, _: &Place) -> Vec<String> {
        vec![format!("hostgap bpf splice {} --attach {}", quoted(&self.0.node), self.0.shell_path())]
    }
}

/// A pod whose sockets may be spliced; its namespace is the place.
pub(super) struct AddMember<'s>(pub(super) &'s Member);

impl Effect for AddMember<'_> {
    fn before(&self, kernel: &mut Kernel, place: &Place) -> Result<Before, StepError> {
        let cookie = kernel.at(place)?.cookie;
        let found = splice::has_member(&self.0.folder(), cookie, &self.0.addresses)?;
        let what = "a pod with one of the addresses".to_owned();
        absent_or(found.is_some(), what, "undo the plan that added it")
    }

    fn act(&self, kernel: &mut Kernel, place: &Place, _: &Before) -> Result<(), StepError> {
        let cookie = kernel.at(place)?.cookie;
        Ok(splice::add_member(&self.0.folder(), cookie, &self.0.addresses)?)
    }

    /// The namespace may be gone; the journal has the cookie by which its entries are known.
    fn undo(&self, _: &mut Kernel, past: &Past, _: &MovedBack) -> Result<UndoOutcome, StepError> {
        let Some(cookie) = past.intent.netns_cookie else {
            let why = "the journal does not say which namespace the pod has".to_owned();
            return Err(StepError::Refused { why });
        };
        let there = self.found(cookie)? != StepState::Absent;
        let remove = || splice::remove_member(&self.0.folder(), cookie, &self.0.addresses);
        put_away(there, past.after.as_ref(), remove)
    }

    fn look(&self, kernel: &mut Kernel, place: &Place, _: &Listing) -> Result<StepState, StepError> {
        let cookie = kernel.at(place)?.cookie;
        self.found(cookie)
    }

    /// A pod may go while its node and the mount of the node's pins stay.
    fn lifetime(&self) -> Lifetime<'_> {
        Lifetime::Outside
    }

    fn identity(&self) -> String {
        format!("{:?}", self.0)
    }

    fn subject(&self) -> String {
        format!("the entry for the pod in the splice of {}", self.0.node)
    }

    fn commands(&self, place: &Place) -> Vec<String> {
        vec![ours(place, "member", &self.0.node, &joined(&self.0.addresses))]
    }
}

impl AddMember<'_> {
    /// How the entries of a pod in the namespace with this cookie stand.
    fn found(&self, cookie: u64) -> Result<StepState, StepError> {
        let folder = self.0.folder();
        if !splice::is_loaded(&folder) {
            return Ok(StepState::Absent);
        }
        Ok(StepState::of_pod(splice::has_member(&folder, cookie, &self.0.addresses)?))
    }
}

fn put_away(
    there: bool,
    after: Option<&After>,
    remove: impl FnOnce() -> linux::Result<()>,
) -> Result<UndoOutcome, StepError> {
    if !there {
        return Ok(absent(after).into());
    }
    remove()?;
    Ok(Undone::Restored.into())
}

fn absent_or(there: bool, what: String, remedy: &str) -> Result<Before, StepError> {
    if there { Err(StepError::Exists { what, remedy: remedy.to_owned() }) } else { Ok(Before::Absent) }
}
