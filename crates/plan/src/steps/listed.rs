//! The ways to other nodes in the maps of a node's programs.

use bpf::{forward, pins};

use super::program::{is_loaded, unlisted};
use super::{Effect, MovedBack, Past, UndoOutcome, absent, existing};
use crate::entry::{Before, Undone};
use crate::error::StepError;
use crate::forwarding::{Tunnel, Uplink};
use crate::listing::Listing;
use crate::look::StepState;
use crate::show::{ours, word};
use crate::{Kernel, Place};

/// A tunnel in the maps of a node's programs.
pub(super) struct AddTunnel<'s>(pub(super) &'s Tunnel);

impl Effect for AddTunnel<'_> {
    fn before(&self, kernel: &mut Kernel, place: &Place) -> Result<Before, StepError> {
        let index = existing(kernel, place, &self.0.device)?.index;
        if forward::has_tunnel(&pins::folder(&self.0.node), &self.entry(index))? {
            let what = format!("the tunnel to {}", self.0.prefix);
            return Err(StepError::Exists { what, remedy: "undo the plan that added it".to_owned() });
        }
        Ok(Before::Unlisted { index })
    }

    fn act(&self, _: &mut Kernel, _: &Place, before: &Before) -> Result<(), StepError> {
        let entry = self.entry(unlisted(before)?);
        Ok(forward::add_tunnel(&pins::folder(&self.0.node), &entry)?)
    }

    fn undo(&self, _: &mut Kernel, past: &Past, _: &MovedBack) -> Result<UndoOutcome, StepError> {
        let index = unlisted(&past.intent.before)?;
        if self.found(index)? == StepState::Absent {
            return Ok(absent(past.after.as_ref()).into());
        }
        forward::remove_tunnel(&pins::folder(&self.0.node), &self.entry(index))?;
        Ok(Undone::Restored.into())
    }

    fn look(&self, kernel: &mut Kernel, place: &Place, listing: &Listing) -> Result<StepState, StepError> {
        let device = listing.link(kernel.at(place)?, &self.0.device)?;
        device.map_or(Ok(StepState::Absent), |device| self.found(device.index))
    }

    fn admits_before(&self, before: &Before) -> bool {
        unlisted(before).is_ok()
    }

    fn identity(&self) -> String {
        format!("{:?}", self.0)
    }

    fn subject(&self) -> String {
        format!("the entry for the tunnel to {} in the maps of {}", self.0.prefix, self.0.node)
    }

    fn commands(&self, place: &Place) -> Vec<String> {
        let Tunnel { node, prefix, device, remote } = self.0;
        vec![ours(place, "tunnel", node, &format!("{prefix} {} {remote}", word(device)))]
    }
}

impl AddTunnel<'_> {
    fn entry(&self, device: u32) -> forward::Tunnel {
        forward::Tunnel { prefix: self.0.prefix, device, remote: self.0.remote }
    }

    /// Whether the tunnel through the device with this index is there.
    fn found(&self, device: u32) -> Result<StepState, StepError> {
        let folder = pins::folder(&self.0.node);
        let is_there = is_loaded(&folder) && forward::has_tunnel(&folder, &self.entry(device))?;
        Ok(StepState::whether(is_there))
    }
}

/// A link beside the wire in the maps of a node's programs.
pub(super) struct AddUplink<'s>(pub(super) &'s Uplink);

impl Effect for AddUplink<'_> {
    fn before(&self, kernel: &mut Kernel, place: &Place) -> Result<Before, StepError> {
        let index = existing(kernel, place, &self.0.link)?.index;
        if forward::has_uplink(&pins::folder(&self.0.node), index)? {
            let what = format!("the way of the programs of {} to link {}", self.0.node, self.0.link);
            return Err(StepError::Exists { what, remedy: "undo the plan that added it".to_owned() });
        }
        Ok(Before::Unlisted { index })
    }

    fn act(&self, _: &mut Kernel, _: &Place, before: &Before) -> Result<(), StepError> {
        Ok(forward::add_uplink(&pins::folder(&self.0.node), unlisted(before)?)?)
    }

    fn undo(&self, _: &mut Kernel, past: &Past, _: &MovedBack) -> Result<UndoOutcome, StepError> {
        let index = unlisted(&past.intent.before)?;
        if self.found(index)? == StepState::Absent {
            return Ok(absent(past.after.as_ref()).into());
        }
        forward::remove_uplink(&pins::folder(&self.0.node), index)?;
        Ok(Undone::Restored.into())
    }

    fn look(&self, kernel: &mut Kernel, place: &Place, listing: &Listing) -> Result<StepState, StepError> {
        let link = listing.link(kernel.at(place)?, &self.0.link)?;
        link.map_or(Ok(StepState::Absent), |link| self.found(link.index))
    }

    fn admits_before(&self, before: &Before) -> bool {
        unlisted(before).is_ok()
    }

    fn identity(&self) -> String {
        format!("{:?}", self.0)
    }

    fn subject(&self) -> String {
        format!("the entry for the way by link {} in the maps of {}", self.0.link, self.0.node)
    }

    fn commands(&self, place: &Place) -> Vec<String> {
        let Uplink { node, link } = self.0;
        vec![ours(place, "uplink", node, word(link).as_ref())]
    }
}

impl AddUplink<'_> {
    /// Whether the link with this index is one.
    fn found(&self, link: u32) -> Result<StepState, StepError> {
        let folder = pins::folder(&self.0.node);
        Ok(StepState::whether(is_loaded(&folder) && forward::has_uplink(&folder, link)?))
    }
}
