//! The network of a pod in user mode: a process in the node's namespace, and a link that it makes in the pod's.

use linux::{IfName, UserNet};

use super::{Effect, MovedBack, Past, UndoOutcome, absent};
use crate::entry::{Before, Undone};
use crate::error::StepError;
use crate::lifetime::Lifetime;
use crate::listing::Listing;
use crate::look::StepState;
use crate::show::inside;
use crate::{Kernel, Place};

/// The process runs, and the link is there.
pub(super) struct StartUserNet<'s>(pub(super) &'s UserNet);

impl Effect for StartUserNet<'_> {
    /// A link of its name would be taken over by the process, if it is one of kind tun. pasta brings up the pod's
    /// loopback, which keeps its addresses when it is down again.
    fn before(&self, kernel: &mut Kernel, _: &Place) -> Result<Before, StepError> {
        let UserNet { link, pod, .. } = self.0;
        let dir = self.0.dir();
        if dir.exists() {
            let what = format!("the directory {}", dir.path().display());
            let remedy = "undo the plan that made it: hostgap clean".to_owned();
            return Err(StepError::Exists { what, remedy });
        }
        let pod = Place::from(pod.clone());
        if kernel.at(&pod)?.netlink.link(link)?.is_some() {
            let what = format!("link {link} in {pod}");
            let remedy =
                format!("remove it if it is not needed: {}", inside(&pod, &format!("ip link del {link}")));
            return Err(StepError::Exists { what, remedy });
        }
        let loopback = IfName::new("lo").expect("lo is a valid name");
        if kernel.at(&pod)?.netlink.link(&loopback)?.is_none_or(|loopback| !loopback.up) {
            let remedy = inside(&pod, "ip link set dev lo up");
            let why =
                format!("the loopback of {pod} is down, and undo could not leave it as it is: {remedy}");
            return Err(StepError::Refused { why });
        }
        Ok(Before::Absent)
    }

    fn act(&self, kernel: &mut Kernel, place: &Place, _: &Before) -> Result<(), StepError> {
        Ok(self.0.start(&kernel.at(place)?.netns)?)
    }

    /// The link goes with the process, which is found by its directory alone.
    fn undo(&self, _: &mut Kernel, past: &Past, _: &MovedBack) -> Result<UndoOutcome, StepError> {
        let dir = self.0.dir();
        let was_there = dir.exists();
        dir.end()?;
        dir.remove()?;
        Ok(if was_there { Undone::Restored } else { absent(past.after.as_ref()) }.into())
    }

    fn look(&self, _: &mut Kernel, _: &Place, _: &Listing) -> Result<StepState, StepError> {
        Ok(StepState::whether(self.0.is_alive()))
    }

    /// A process would hold the namespace.
    fn lifetime(&self) -> Lifetime<'_> {
        Lifetime::Outside
    }

    fn identity(&self) -> String {
        format!("the user-mode network {}", self.0.name)
    }

    fn subject(&self) -> String {
        format!("the process {} of {}", self.0.program.name(), self.0.name)
    }

    fn gone(&self) -> String {
        format!("{} has ended", self.subject())
    }

    fn commands(&self, place: &Place) -> Vec<String> {
        self.0.commands(|command| inside(place, command))
    }

    fn removal(&self, _: &Place) -> Option<String> {
        Some(self.0.removal())
    }
}
