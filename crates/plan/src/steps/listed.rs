//! What the maps of a node's programs list, each by a link: pods, tunnels and uplinks.

use std::fmt::Debug;
use std::path::Path;

use bpf::{forward, pins};
use linux::IfName;

use super::{Effect, MovedBack, Past, UndoOutcome, absent, ethernet_index, existing_index, mistaken};
use crate::entry::{Before, Undone};
use crate::error::StepError;
use crate::forwarding::{Endpoint, Tunnel, Uplink};
use crate::listing::Listing;
use crate::look::StepState;
use crate::show::{joined, ours, word};
use crate::{Kernel, Place};

/// Something that the programs know by the index of a link.
pub(super) trait Listed: Debug {
    /// The node: the name of its programs' folder.
    fn node(&self) -> &str;

    fn link(&self) -> &IfName;

    /// The index of that link.
    fn index(&self, kernel: &mut Kernel, place: &Place) -> Result<u32, StepError> {
        existing_index(kernel, place, self.link())
    }

    /// How it stands in the maps of a folder.
    fn find(&self, folder: &Path, index: u32) -> linux::Result<StepState>;

    fn add(&self, folder: &Path, index: u32) -> linux::Result<()>;

    fn remove(&self, folder: &Path, index: u32) -> linux::Result<()>;

    /// Brings in order what a process may have left that died when it added or removed it: it does not stand in the
    /// maps.
    fn settle(&self, _folder: &Path, _index: u32) -> linux::Result<()> {
        Ok(())
    }

    /// What is in its way if it is listed already.
    fn taken(&self) -> String;

    /// As a phrase, which "in the maps of" a node follows.
    fn phrase(&self) -> String;

    /// The command of `hostgap bpf`, and what follows the node's name.
    fn command(&self) -> (&'static str, String);
}

/// The step that lists it.
pub(super) struct Lists<'s, L>(pub(super) &'s L);

impl<L: Listed> Effect for Lists<'_, L> {
    fn before(&self, kernel: &mut Kernel, place: &Place) -> Result<Before, StepError> {
        let index = self.0.index(kernel, place)?;
        if self.0.find(&pins::folder(self.0.node()), index)? != StepState::Absent {
            let remedy = "undo the plan that added it".to_owned();
            return Err(StepError::Exists { what: self.0.taken(), remedy });
        }
        Ok(Before::Unlisted { index })
    }

    fn act(&self, _: &mut Kernel, _: &Place, before: &Before) -> Result<(), StepError> {
        Ok(self.0.add(&pins::folder(self.0.node()), unlisted(before)?)?)
    }

    fn undo(&self, _: &mut Kernel, past: &Past, _: &MovedBack) -> Result<UndoOutcome, StepError> {
        let index = unlisted(&past.intent.before)?;
        if self.found(index)? == StepState::Absent {
            if self.has_maps() {
                self.0.settle(&pins::folder(self.0.node()), index)?;
            }
            return Ok(absent(past.after.as_ref()).into());
        }
        self.0.remove(&pins::folder(self.0.node()), index)?;
        Ok(Undone::Restored.into())
    }

    fn look(&self, kernel: &mut Kernel, place: &Place, listing: &Listing) -> Result<StepState, StepError> {
        let index = listing.index(kernel.at(place)?, self.0.link())?;
        index.map_or(Ok(StepState::Absent), |index| self.found(index))
    }

    fn admits_before(&self, before: &Before) -> bool {
        unlisted(before).is_ok()
    }

    fn identity(&self) -> String {
        format!("{:?}", self.0)
    }

    fn subject(&self) -> String {
        format!("{} in the maps of {}", self.0.phrase(), self.0.node())
    }

    fn commands(&self, place: &Place) -> Vec<String> {
        let (command, operands) = self.0.command();
        vec![ours(place, command, self.0.node(), &operands)]
    }
}

impl<L: Listed> Lists<'_, L> {
    /// How it stands with the link of this index. Where no program is pinned there are no maps to ask.
    fn found(&self, index: u32) -> Result<StepState, StepError> {
        if !self.has_maps() {
            return Ok(StepState::Absent);
        }
        Ok(self.0.find(&pins::folder(self.0.node()), index)?)
    }

    fn has_maps(&self) -> bool {
        let folder = pins::folder(self.0.node());
        forward::Program::FORWARD.iter().any(|program| program.pin(&folder).exists())
    }
}

/// The index of the link by which something will be listed.
fn unlisted(before: &Before) -> Result<u32, StepError> {
    if let Before::Unlisted { index } = before { Ok(*index) } else { Err(mistaken(before)) }
}

impl Endpoint {
    fn entry(&self, link: u32) -> forward::Endpoint {
        let Endpoint { mac, queued, .. } = *self;
        forward::Endpoint { link, mac, addresses: self.addresses.clone(), queued }
    }
}

impl Listed for Endpoint {
    fn node(&self) -> &str {
        &self.node
    }

    fn link(&self) -> &IfName {
        &self.link
    }

    fn find(&self, folder: &Path, index: u32) -> linux::Result<StepState> {
        Ok(StepState::of_pod(forward::has_endpoint(folder, &self.entry(index))?))
    }

    fn add(&self, folder: &Path, index: u32) -> linux::Result<()> {
        forward::add_endpoint(folder, &self.entry(index))
    }

    fn remove(&self, folder: &Path, index: u32) -> linux::Result<()> {
        forward::remove_endpoint(folder, &self.entry(index))
    }

    fn taken(&self) -> String {
        format!("a pod with one of the addresses, or at link {}", self.link)
    }

    fn phrase(&self) -> String {
        format!("the entry for the pod at link {}", self.link)
    }

    fn command(&self) -> (&'static str, String) {
        let queued = if self.queued { "--queued " } else { "" };
        ("endpoint", format!("{queued}{} {} {}", word(&self.link), self.mac, joined(&self.addresses)))
    }
}

impl Tunnel {
    fn entry(&self, device: u32) -> forward::Tunnel {
        forward::Tunnel { prefix: self.prefix, device, remote: self.remote }
    }
}

impl Listed for Tunnel {
    fn node(&self) -> &str {
        &self.node
    }

    fn link(&self) -> &IfName {
        &self.device
    }

    fn find(&self, folder: &Path, index: u32) -> linux::Result<StepState> {
        Ok(StepState::whether(forward::has_tunnel(folder, &self.entry(index))?))
    }

    fn add(&self, folder: &Path, index: u32) -> linux::Result<()> {
        forward::add_tunnel(folder, &self.entry(index))
    }

    fn remove(&self, folder: &Path, index: u32) -> linux::Result<()> {
        forward::remove_tunnel(folder, &self.entry(index))
    }

    fn settle(&self, folder: &Path, index: u32) -> linux::Result<()> {
        forward::remove_tunnel(folder, &self.entry(index))
    }

    fn taken(&self) -> String {
        format!("the tunnel to {}", self.prefix)
    }

    fn phrase(&self) -> String {
        format!("the entry for the tunnel to {}", self.prefix)
    }

    fn command(&self) -> (&'static str, String) {
        ("tunnel", format!("{} {} {}", self.prefix, word(&self.device), self.remote))
    }
}

impl Listed for Uplink {
    fn node(&self) -> &str {
        &self.node
    }

    fn link(&self) -> &IfName {
        &self.link
    }

    fn index(&self, kernel: &mut Kernel, place: &Place) -> Result<u32, StepError> {
        ethernet_index(kernel, place, &self.link)
    }

    fn find(&self, folder: &Path, index: u32) -> linux::Result<StepState> {
        Ok(StepState::whether(forward::has_uplink(folder, index)?))
    }

    fn add(&self, folder: &Path, index: u32) -> linux::Result<()> {
        forward::add_uplink(folder, index)
    }

    fn remove(&self, folder: &Path, index: u32) -> linux::Result<()> {
        forward::remove_uplink(folder, index)
    }

    fn taken(&self) -> String {
        format!("the way of the programs of {} to link {}", self.node, self.link)
    }

    fn phrase(&self) -> String {
        format!("the entry for the way by link {}", self.link)
    }

    fn command(&self) -> (&'static str, String) {
        ("uplink", word(&self.link))
    }
}
