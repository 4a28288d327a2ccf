//! Services by the calls of sockets: the programs, their place at a control group, and where calls are led.

use std::path::{Path, PathBuf};

use bpf::services::{self, FoundService};
use bpf::{AddressCall, pins};

use super::program::{of_another_version, pinned, refuse_loaded, unload, unpin};
use super::{Effect, MovedBack, Past, UndoOutcome, absent, mistaken};
use crate::entry::{Before, Displaced, Undone};
use crate::error::StepError;
use crate::forwarding::{Service, ServiceAttachment, ServiceEntry, ServicePrograms};
use crate::lifetime::Lifetime;
use crate::listing::Listing;
use crate::look::StepState;
use crate::show::quoted;
use crate::{Kernel, Place, Step};

/// Replaces the programs of a node, where they are another build's, by those of this one while sockets call: each
/// call meets an old program or a new one, and Services stay. Nothing is written down, and nothing undoes it: the
/// undo of the steps that loaded and attached the old programs is that of the new ones too. `None` if the node has
/// none, or this build's.
///
/// # Errors
/// As for [`services::replace`], or it cannot be found out of which build they are.
pub fn renew_services(programs: &ServicePrograms) -> Result<Option<services::Replaced>, StepError> {
    let folder = programs.folder();
    if !services::is_loaded(&folder) || services::are_of_this_build(&folder)? {
        return Ok(None);
    }
    Ok(Some(services::replace(&folder)?))
}

/// Whether a node's programs are where this process sees them. Those of an agent in a container are in a bpffs that
/// another container may lack.
pub fn has_services(programs: &ServicePrograms) -> bool {
    services::is_loaded(&programs.folder())
}

/// Whether programs lead calls at a control group, of whatever node, also where this process does not see what they are
/// pinned by.
///
/// # Errors
/// There is no such control group, or this user may not ask.
pub fn leads_services(cgroup: &Path) -> Result<bool, StepError> {
    Ok(services::are_at(cgroup)?)
}

/// Loads the programs that lead the calls of sockets, and pins them.
pub(super) struct LoadServices<'s>(pub(super) &'s ServicePrograms);

impl Effect for LoadServices<'_> {
    fn before(&self, _: &mut Kernel, _: &Place) -> Result<Before, StepError> {
        refuse_loaded(&self.0.node)
    }

    fn act(&self, _: &mut Kernel, _: &Place, _: &Before) -> Result<(), StepError> {
        let folder = self.0.folder();
        Ok(pinned(&folder, || services::load(&folder).map(drop))?)
    }

    fn undo(&self, _: &mut Kernel, past: &Past, _: &MovedBack) -> Result<UndoOutcome, StepError> {
        unpin(&self.0.node, past)
    }

    fn look(&self, _: &mut Kernel, _: &Place, _: &Listing) -> Result<StepState, StepError> {
        let folder = self.0.folder();
        if !services::is_loaded(&folder) {
            return Ok(StepState::Absent);
        }
        Ok(StepState::of(services::is_of_this_format(&folder)?, of_another_version))
    }

    fn lifetime(&self) -> Lifetime<'_> {
        Lifetime::Outside
    }

    fn identity(&self) -> String {
        self.subject()
    }

    fn subject(&self) -> String {
        format!("the bpffs with the services of {}", self.0.node)
    }

    fn commands(&self, _: &Place) -> Vec<String> {
        vec![format!("hostgap bpf services {}", quoted(&self.0.node))]
    }

    fn removal(&self, _: &Place) -> Option<String> {
        Some(unload(&self.0.node))
    }
}

/// These programs at a control group.
pub(super) struct AttachServices<'s>(pub(super) &'s ServiceAttachment);

impl Effect for AttachServices<'_> {
    fn before(&self, _: &mut Kernel, _: &Place) -> Result<Before, StepError> {
        if services::is_attached(&self.0.folder()) {
            let what = format!("the services of {} at a control group", self.0.node);
            let remedy = format!("if they are not needed: hostgap bpf unload {}", self.0.node);
            return Err(StepError::Exists { what, remedy });
        }
        Ok(Before::Absent)
    }

    fn act(&self, _: &mut Kernel, _: &Place, _: &Before) -> Result<(), StepError> {
        Ok(services::attach(&self.0.folder(), &self.0.cgroup)?)
    }

    /// A control group has another path in a container than on its machine: where the programs are at the group of this
    /// path already, there is nothing to do, and no call is missed.
    fn adapts(&self, _: &mut Kernel, _: &Place, earlier: &Step) -> Result<bool, StepError> {
        let is_of_same = matches!(earlier, Step::AttachServices(earlier) if earlier.node == self.0.node);
        Ok(is_of_same && self.0.cgroup.exists() && self.missing()?.is_empty())
    }

    fn adapt(&self, _: &mut Kernel, _: &Place) -> Result<(), StepError> {
        Ok(())
    }

    fn undo(&self, _: &mut Kernel, past: &Past, _: &MovedBack) -> Result<UndoOutcome, StepError> {
        let folder = self.0.folder();
        if !services::is_attached(&folder) {
            return Ok(absent(past.after.as_ref()).into());
        }
        services::detach(&folder)?;
        Ok(Undone::Restored.into())
    }

    fn look(&self, _: &mut Kernel, _: &Place, _: &Listing) -> Result<StepState, StepError> {
        if !self.0.cgroup.exists() {
            return Ok(StepState::Absent);
        }
        let missing = self.missing()?;
        if missing.len() == AddressCall::ALL.len() {
            return Ok(StepState::Absent);
        }
        Ok(StepState::of(missing.is_empty(), || format!("without {}", missing.join(", "))))
    }

    fn lifetime(&self) -> Lifetime<'_> {
        Lifetime::Outside
    }

    fn identity(&self) -> String {
        format!("the services of {} at a control group", self.0.node)
    }

    fn subject(&self) -> String {
        format!("the services of {} at control group {}", self.0.node, self.0.cgroup.display())
    }

    fn gone(&self) -> String {
        format!("the services of {} are no longer at control group {}", self.0.node, self.0.cgroup.display())
    }

    fn changed(&self, found: &str) -> String {
        format!("{} are now {found}", self.subject())
    }

    fn commands(&self, _: &Place) -> Vec<String> {
        let ServiceAttachment { node, cgroup } = self.0;
        vec![format!("hostgap bpf services {} --attach {}", quoted(node), quoted(&cgroup.to_string_lossy()))]
    }
}

impl AttachServices<'_> {
    /// The calls that meet none of the programs at the control group.
    fn missing(&self) -> Result<Vec<&'static str>, StepError> {
        let met = services::met(&self.0.folder(), &self.0.cgroup)?;
        let missing = AddressCall::ALL.iter().filter(|call| !met.contains(call));
        Ok(missing.map(|call| call.name()).collect())
    }
}

/// Where calls of a Service are led.
pub(super) struct ReplaceService<'s>(pub(super) &'s ServiceEntry);

impl Effect for ReplaceService<'_> {
    fn before(&self, _: &mut Kernel, _: &Place) -> Result<Before, StepError> {
        let found = services::find(&self.0.folder(), &self.0.service.at)?;
        Ok(found.map_or(Before::Absent, |found| Before::Displaced(Displaced::Service(found.service))))
    }

    fn act(&self, _: &mut Kernel, _: &Place, _: &Before) -> Result<(), StepError> {
        Ok(services::set(&self.0.folder(), &self.0.service)?)
    }

    fn act_on_free(&self, _: &mut Kernel, _: &Place) -> Result<(), StepError> {
        Ok(services::add(&self.0.folder(), &self.0.service)?)
    }

    fn undo(&self, _: &mut Kernel, past: &Past, _: &MovedBack) -> Result<UndoOutcome, StepError> {
        let displaced = displaced(&past.intent.before)?;
        let (folder, at) = (self.0.folder(), &self.0.service.at);
        let Some(found) = self.found(&Listing::default())? else {
            if services::is_loaded(&folder) {
                // A process that was killed may have left backends without an entry.
                services::remove(&folder, at)?;
            }
            return Ok(absent(past.after.as_ref()).into());
        };
        match displaced {
            Some(displaced) if found.is_whole && found.service == *displaced => {
                return Ok(Undone::AlreadySo.into());
            }
            _ if !self.is_ours(&found) => {
                return Ok(Undone::ChangedByOther { found: found.to_string() }.into());
            }
            Some(displaced) => services::set(&folder, displaced)?,
            None => services::remove(&folder, at)?,
        }
        Ok(Undone::Restored.into())
    }

    fn look(&self, _: &mut Kernel, _: &Place, listing: &Listing) -> Result<StepState, StepError> {
        Ok(match self.found(listing)? {
            None => StepState::Absent,
            Some(found) => StepState::of(self.is_as_planned(&found), || found.to_string()),
        })
    }

    fn admits_before(&self, before: &Before) -> bool {
        displaced(before).is_ok()
    }

    fn lifetime(&self) -> Lifetime<'_> {
        Lifetime::Outside
    }

    fn identity(&self) -> String {
        self.subject()
    }

    fn takes_over(&self) -> bool {
        true
    }

    fn subject(&self) -> String {
        format!("service {} of {}", self.0.service.at, self.0.node)
    }

    fn commands(&self, _: &Place) -> Vec<String> {
        let ServiceEntry { node, service: Service { at, affinity_s, backends } } = self.0;
        let affinity = if *affinity_s > 0 { format!(" --affinity {affinity_s}") } else { String::new() };
        let backends: String =
            backends.iter().map(|backend| format!(" {}", quoted(&backend.to_string()))).collect();
        vec![format!("hostgap bpf service{affinity} {} {}{backends}", quoted(node), quoted(&at.to_string()))]
    }
}

impl ReplaceService<'_> {
    fn found(&self, listing: &Listing) -> Result<Option<FoundService>, StepError> {
        Ok(listing.service(&self.0.folder(), &self.0.service.at)?)
    }

    fn is_as_planned(&self, found: &FoundService) -> bool {
        found.is_whole && found.service == self.0.service
    }

    /// Whether the step has made it, or an undo of it that was killed has left it so: an entry
    /// is last without backends.
    fn is_ours(&self, found: &FoundService) -> bool {
        let Service { affinity_s, backends, .. } = &found.service;
        self.is_as_planned(found) || (*affinity_s == 0 && backends.is_empty())
    }
}

fn displaced(before: &Before) -> Result<Option<&Service>, StepError> {
    match before {
        Before::Absent => Ok(None),
        Before::Displaced(Displaced::Service(service)) => Ok(Some(service)),
        other => Err(mistaken(other)),
    }
}

impl ServicePrograms {
    /// Where they are pinned.
    fn folder(&self) -> PathBuf {
        pins::folder(&self.node)
    }
}

impl ServiceAttachment {
    fn folder(&self) -> PathBuf {
        pins::folder(&self.node)
    }
}

impl ServiceEntry {
    fn folder(&self) -> PathBuf {
        pins::folder(&self.node)
    }
}
