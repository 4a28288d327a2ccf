//! What the list of links shows of a link: up or down, its bridge, segmentation.

use linux::IfName;
use serde::{Deserialize, Serialize};

use super::register::{At, Register};
use crate::Place;
use crate::error::StepError;
use crate::show::{Tool, word};

/// Bring a link up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetLinkUp {
    /// The name of the link.
    pub link: IfName,
}

impl Register for SetLinkUp {
    type Value = bool;
    type Along = ();

    fn read(&self, at: &At<'_>) -> Result<Option<bool>, StepError> {
        Ok(Some(at.link().up))
    }

    fn write(&self, at: &At<'_>, up: &bool) -> Result<(), StepError> {
        Ok(at.opened.netlink.link_set_up(at.link().index, *up)?)
    }

    fn wanted(&self, _: &bool) -> bool {
        true
    }

    fn subject(&self) -> String {
        format!("link {}", self.link)
    }

    fn words(&self, up: &bool) -> String {
        if *up { "up" } else { "down" }.to_owned()
    }

    fn command(&self, place: &Place) -> String {
        Tool("ip", place).run(&format!("link set dev {} up", word(&self.link)))
    }

    fn is_listed(&self) -> bool {
        true
    }

    fn changed(&self, found: &str) -> String {
        format!("link {} is {found}", self.link)
    }
}

/// Make a link a port of a bridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetLinkMaster {
    /// The name of the link.
    pub link: IfName,
    /// The bridge of which it becomes a port.
    pub master: IfName,
}

impl Register for SetLinkMaster {
    /// The bridge is known by its name: a bridge that was moved away and back may have another index.
    type Value = Option<IfName>;
    type Along = ();

    fn read(&self, at: &At<'_>) -> Result<Option<Option<IfName>>, StepError> {
        let Some(master) = at.link().master else { return Ok(Some(None)) };
        Ok(Some(at.listing.link_at(at.opened, master)?.map(|master| master.name)))
    }

    fn write(&self, at: &At<'_>, master: &Option<IfName>) -> Result<(), StepError> {
        let netlink = &at.opened.netlink;
        let master = master.as_ref().map(|master| netlink.index_of(master)).transpose()?;
        Ok(netlink.link_set_master(at.link().index, master)?)
    }

    fn wanted(&self, _: &Option<IfName>) -> Option<IfName> {
        Some(self.master.clone())
    }

    fn subject(&self) -> String {
        format!("the bridge of link {}", self.link)
    }

    fn words(&self, master: &Option<IfName>) -> String {
        master.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string)
    }

    fn phrase(&self, master: &Option<IfName>) -> String {
        master
            .as_ref()
            .map_or_else(|| "a port of no bridge".to_owned(), |bridge| format!("a port of {bridge}"))
    }

    fn command(&self, place: &Place) -> String {
        Tool("ip", place).run(&format!("link set dev {} master {}", word(&self.link), word(&self.master)))
    }

    /// A port of another bridge is refused: leaving it would lose the settings it has there.
    fn refusal(&self, at: &At<'_>, was: &Option<IfName>) -> Result<Option<String>, StepError> {
        if at.opened.netlink.link(&self.master)?.is_none() {
            return Err(StepError::NoLink { link: self.master.to_string() });
        }
        let other = was.as_ref().filter(|other| **other != self.master);
        let why = |other| {
            format!("link {} is a port of another bridge, {other}; take it out there first", self.link)
        };
        Ok(other.map(why))
    }

    fn is_listed(&self) -> bool {
        true
    }

    fn changed(&self, found: &str) -> String {
        format!("link {} is no longer a port of {} but of {found}", self.link, self.master)
    }
}

/// Let a link take packets of so many segments from above; more are cut on their way in. Sockets whose packets leave by
/// the link itself make no larger ones. No topology has it any more: it is for the journals of earlier versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetGsoMaxSegs {
    /// The name of the link.
    pub link: IfName,
    /// Segments, from 1, which is each packet as it will be on the wire.
    pub segments: u32,
}

impl Register for SetGsoMaxSegs {
    type Value = u32;
    type Along = ();

    fn read(&self, at: &At<'_>) -> Result<Option<u32>, StepError> {
        Ok(Some(at.link().gso_max_segs))
    }

    fn write(&self, at: &At<'_>, segments: &u32) -> Result<(), StepError> {
        Ok(at.opened.netlink.link_set_gso_max_segs(at.link().index, *segments)?)
    }

    fn wanted(&self, _: &u32) -> u32 {
        self.segments
    }

    fn subject(&self) -> String {
        format!("the limit of segments in a packet of link {}", self.link)
    }

    fn words(&self, segments: &u32) -> String {
        segments.to_string()
    }

    fn command(&self, place: &Place) -> String {
        Tool("ip", place).run(&format!("link set dev {} gso_max_segs {}", word(&self.link), self.segments))
    }

    fn is_listed(&self) -> bool {
        true
    }
}
