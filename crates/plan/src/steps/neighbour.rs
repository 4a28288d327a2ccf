//! Neighbours of links, and forwarding entries of bridges and tunnels.

use linux::{FdbEntry, IfName, Mac, Neighbour};

use super::object::Object;
use crate::Place;
use crate::error::StepError;
use crate::kernel::OpenNetns;
use crate::lack::{Lack, LackedPart};
use crate::listing::Listing;
use crate::look::StepState;
use crate::show::{Tool, word};

impl Object for &Neighbour {
    fn dev(&self) -> Option<&IfName> {
        Some(&self.dev)
    }

    /// A proxy entry and an entry of the table proper live side by side; what the kernel has learnt by itself is a
    /// cache and gives way.
    fn look(&self, opened: &OpenNetns, listing: &Listing, index: u32) -> Result<StepState, StepError> {
        let is_proxy = self.mac.is_none();
        let found = listing.neighbour(opened, index, self.ip, is_proxy)?;
        let Some(entry) = found.filter(|entry| is_proxy || entry.permanent) else {
            return Ok(StepState::Absent);
        };
        Ok(StepState::of(is_proxy || entry.mac == self.mac, || {
            let mac = entry.mac.map_or_else(|| "no address".to_owned(), |mac| mac.to_string());
            format!("neighbour {} with {mac}", entry.ip)
        }))
    }

    fn add(&self, opened: &OpenNetns, _: u32) -> Result<(), StepError> {
        Ok(opened.netlink.neighbour_add(self)?)
    }

    fn remove(&self, opened: &OpenNetns, _: u32) -> Result<(), StepError> {
        Ok(opened.netlink.neighbour_del(self)?)
    }

    /// A proxy entry answers for pods on their own link, and leads nowhere.
    fn lack(&self) -> Option<Lack> {
        let words = format!("{} has no permanent neighbour {} at {}", self.dev, self.ip, self.mac?);
        Some(Lack { part: LackedPart::Neighbour, address: Some(self.ip), words })
    }

    fn distinction(&self) -> String {
        if self.mac.is_none() { "proxy".to_owned() } else { String::new() }
    }

    fn subject(&self) -> String {
        format!("neighbour {} of link {}", self.ip, self.dev)
    }

    fn command(&self, place: &Place) -> String {
        neighbour_command(self, "add", place)
    }

    fn removal(&self, place: &Place) -> String {
        let proxy = if self.mac.is_none() { "proxy " } else { "" };
        Tool("ip", place).run(&format!("neighbour del {proxy}{} dev {}", self.ip, self.dev))
    }
}

impl Object for &FdbEntry {
    fn dev(&self) -> Option<&IfName> {
        Some(&self.dev)
    }

    fn look(&self, opened: &OpenNetns, listing: &Listing, index: u32) -> Result<StepState, StepError> {
        let of_mac = listing.fdb_of(opened, index, self)?;
        if of_mac.iter().any(|entry| entry.dst == Some(self.dst)) {
            return Ok(StepState::So);
        }
        // The all-zero address has an entry for each remote.
        let is_rival = self.mac != Mac([0; 6]);
        let other = of_mac.iter().filter(|entry| is_rival && entry.permanent).find_map(|entry| entry.dst);
        let words = |dst| StepState::otherwise(format!("an entry for {} to {dst}", self.mac));
        Ok(other.map_or(StepState::Absent, words))
    }

    fn add(&self, opened: &OpenNetns, _: u32) -> Result<(), StepError> {
        Ok(opened.netlink.fdb_add(self)?)
    }

    fn remove(&self, opened: &OpenNetns, _: u32) -> Result<(), StepError> {
        Ok(opened.netlink.fdb_del(self)?)
    }

    fn lack(&self) -> Option<Lack> {
        let FdbEntry { dev, mac, dst } = self;
        let words = format!("{dev} has no forwarding entry (fdb) of {mac} to {dst}");
        Some(Lack { part: LackedPart::ForwardingEntry, address: Some(*dst), words })
    }

    /// The all-zero address may have an entry for each remote.
    fn distinction(&self) -> String {
        self.dst.to_string()
    }

    fn subject(&self) -> String {
        format!("the forwarding entry for {} of link {}", self.mac, self.dev)
    }

    /// `append` and not `add`: the all-zero address may have one entry for each remote.
    fn command(&self, place: &Place) -> String {
        fdb_command(self, "append", place)
    }

    fn removal(&self, place: &Place) -> String {
        Tool("bridge", place).run(&format!("fdb del {} dev {}", self.mac, self.dev))
    }
}

/// What a person would type to add or replace a neighbour.
pub(super) fn neighbour_command(neighbour: &Neighbour, verb: &str, place: &Place) -> String {
    let (ip, dev) = (neighbour.ip, word(&neighbour.dev));
    Tool("ip", place).run(&match neighbour.mac {
        Some(mac) => format!("neighbour {verb} {ip} lladdr {mac} dev {dev} nud permanent"),
        None => format!("neighbour {verb} proxy {ip} dev {dev}"),
    })
}

/// What a person would type to append or replace a forwarding entry.
pub(super) fn fdb_command(entry: &FdbEntry, verb: &str, place: &Place) -> String {
    let FdbEntry { dev, mac, dst } = entry;
    Tool("bridge", place).run(&format!("fdb {verb} {mac} dev {} dst {dst} self permanent", word(dev)))
}
