//! What is either there or not: addresses, routes, neighbours, forwarding entries.

use ipnet::IpNet;
use linux::netlink::{EncapInfo, NextHop, RouteInfo};
use linux::{Encap, FdbEntry, IfName, Mac, Neighbour, Route};

use super::{Effect, MovedBack, Past, UndoOutcome, absent, existing_index};
use crate::entry::{After, Before, Undone};
use crate::error::StepError;
use crate::kernel::OpenNetns;
use crate::lack::{Lack, LackedPart};
use crate::listing::Listing;
use crate::look::StepState;
use crate::preview::Preview;
use crate::show::{Tool, word};
use crate::{Kernel, Place, Step};

/// Something that is made and removed as a whole.
pub(super) trait Object {
    /// The link on which it hangs, and with which it goes.
    fn dev(&self) -> Option<&IfName> {
        None
    }

    /// Whether it is there. `index` is that of its link, or 0.
    fn look(&self, opened: &OpenNetns, listing: &Listing, index: u32) -> Result<StepState, StepError>;

    fn add(&self, opened: &OpenNetns, index: u32) -> Result<(), StepError>;

    fn remove(&self, opened: &OpenNetns, index: u32) -> Result<(), StepError>;

    /// Whether what the kernel has acknowledged is looked at again: it may have made something else of it.
    fn is_read_back(&self) -> bool {
        true
    }

    /// Waits for a process that apply started, that outlived it, and that may still add it.
    fn settle(&self, _opened: &OpenNetns) -> Result<(), StepError> {
        Ok(())
    }

    /// Whether what is there is all that an add came to which was interrupted.
    fn is_begun(&self, _opened: &OpenNetns, _index: u32) -> Result<bool, StepError> {
        Ok(false)
    }

    /// Whether an inventory of the namespace shows it.
    fn is_listed(&self) -> bool {
        true
    }

    /// As [`Effect::slot`], for what has properties that it may change in its place.
    fn slot(&self) -> String {
        self.command(&Place::Host)
    }

    /// Whether it is made of what an earlier step made, with other properties or none, by adding it once more.
    fn adapts(&self, _earlier: &Step) -> bool {
        false
    }

    /// As [`Step::lack`].
    fn lack(&self) -> Option<Lack> {
        None
    }

    /// As [`Effect::distinction`].
    fn distinction(&self) -> String {
        String::new()
    }

    /// As a phrase, with the link where there may be others without.
    fn subject(&self) -> String;

    /// What a person would type to make it.
    fn command(&self, place: &Place) -> String;

    /// What a person would type to remove what is in its way.
    fn removal(&self, place: &Place) -> String;
}

/// The step that makes an object.
pub(super) struct Adds<O>(pub(super) O);

impl<O: Object> Effect for Adds<O> {
    fn before(&self, kernel: &mut Kernel, place: &Place) -> Result<Before, StepError> {
        let Adds(object) = self;
        let index = self.index(kernel, place)?;
        let opened = kernel.at(place)?;
        let what = match object.look(opened, &Listing::of_run(), index)? {
            StepState::Absent => return Ok(Before::Absent),
            StepState::So => "the same".to_owned(),
            StepState::Otherwise { found } => found,
        };
        let remedy = format!("remove it if it is not needed: {}", object.removal(place));
        Err(StepError::Exists { what, remedy })
    }

    fn act(&self, kernel: &mut Kernel, place: &Place, _: &Before) -> Result<(), StepError> {
        let index = self.index(kernel, place)?;
        self.0.add(kernel.at(place)?, index)
    }

    fn after(&self, kernel: &mut Kernel, place: &Place, _: &Before) -> Result<After, StepError> {
        if !self.0.is_read_back() {
            return Ok(After::AsPlanned);
        }
        let index = self.index(kernel, place)?;
        let opened = kernel.at(place)?;
        let found = match self.0.look(opened, &Listing::of_run(), index)? {
            StepState::So => return Ok(After::AsPlanned),
            StepState::Otherwise { found } => found,
            StepState::Absent => "nothing".to_owned(),
        };
        Err(StepError::NotTaken { wanted: self.0.command(place), found })
    }

    fn undo(&self, kernel: &mut Kernel, past: &Past, _: &MovedBack) -> Result<UndoOutcome, StepError> {
        let (Adds(object), after) = (self, past.after.as_ref());
        let opened = kernel.at(&past.intent.placed.place)?;
        let Some(index) = index_of(object, opened, &Listing::of_run())? else {
            return Ok(absent(after).into());
        };
        if after.is_none() {
            object.settle(opened)?;
        }
        Ok(match object.look(opened, &Listing::of_run(), index)? {
            StepState::So => {
                object.remove(opened, index)?;
                Undone::Restored
            }
            StepState::Otherwise { .. } if after.is_none() && object.is_begun(opened, index)? => {
                object.remove(opened, index)?;
                Undone::Restored
            }
            StepState::Otherwise { found } => Undone::ChangedByOther { found },
            StepState::Absent => absent(after),
        }
        .into())
    }

    fn look(&self, kernel: &mut Kernel, place: &Place, listing: &Listing) -> Result<StepState, StepError> {
        let opened = kernel.at(place)?;
        match index_of(&self.0, opened, listing)? {
            Some(index) => self.0.look(opened, listing, index),
            None => Ok(StepState::Absent),
        }
    }

    fn preview(&self, kernel: &mut Kernel, place: &Place) -> Result<Option<Preview>, StepError> {
        let is_so = self.look(kernel, place, &Listing::default())? == StepState::So;
        if !is_so {
            self.before(kernel, place)?;
        }
        let new = self.0.subject();
        let old = if is_so { new.clone() } else { "none".to_owned() };
        Ok(Some(Preview { old, new, index: None, is_so }))
    }

    fn is_listed(&self) -> bool {
        self.0.is_listed()
    }

    fn lack(&self) -> Option<Lack> {
        self.0.lack()
    }

    fn distinction(&self) -> String {
        self.0.distinction()
    }

    fn identity(&self) -> String {
        self.0.command(&Place::Host)
    }

    fn slot(&self) -> String {
        self.0.slot()
    }

    fn adapts(&self, _: &mut Kernel, _: &Place, earlier: &Step) -> Result<bool, StepError> {
        Ok(self.0.adapts(earlier))
    }

    fn adapt(&self, kernel: &mut Kernel, place: &Place) -> Result<(), StepError> {
        let index = self.index(kernel, place)?;
        self.0.add(kernel.at(place)?, index)
    }

    fn subject(&self) -> String {
        self.0.subject()
    }

    fn commands(&self, place: &Place) -> Vec<String> {
        vec![self.0.command(place)]
    }
}

impl<O: Object> Adds<O> {
    fn index(&self, kernel: &mut Kernel, place: &Place) -> Result<u32, StepError> {
        self.0.dev().map_or(Ok(0), |dev| existing_index(kernel, place, dev))
    }
}

/// The index of an object's link, 0 where it has none; `None` where that is not there.
fn index_of(object: &impl Object, opened: &OpenNetns, listing: &Listing) -> Result<Option<u32>, StepError> {
    match object.dev() {
        None => Ok(Some(0)),
        Some(dev) => Ok(listing.index(opened, dev)?),
    }
}

/// An address of a link.
pub(super) struct LinkAddress<'s> {
    pub(super) link: &'s IfName,
    pub(super) address: &'s IpNet,
}

impl Object for LinkAddress<'_> {
    fn dev(&self) -> Option<&IfName> {
        Some(self.link)
    }

    fn look(&self, opened: &OpenNetns, listing: &Listing, index: u32) -> Result<StepState, StepError> {
        let LinkAddress { link, address } = self;
        let of_link = listing.addresses_of(opened, index)?;
        if of_link.iter().any(|info| info.address == **address) {
            return Ok(StepState::So);
        }
        // IPv6 has an address once on a link, whatever the prefix length; IPv4 allows several.
        let is_rival = |other: &IpNet| address.addr().is_ipv6() && other.addr() == address.addr();
        let other = of_link.iter().map(|info| info.address).find(is_rival);
        Ok(other.map_or(StepState::Absent, |other| {
            StepState::otherwise(format!("address {other} on link {link}"))
        }))
    }

    fn add(&self, opened: &OpenNetns, index: u32) -> Result<(), StepError> {
        Ok(opened.netlink.address_add(index, self.address)?)
    }

    /// With the first IPv4 address of a subnet the kernel drops the later ones of the same subnet (unless
    /// `promote_secondaries` is on); those of others are put back.
    fn remove(&self, opened: &OpenNetns, index: u32) -> Result<(), StepError> {
        let netlink = &opened.netlink;
        let before = netlink.addresses_of(index)?;
        netlink.address_del(index, self.address)?;
        let left = netlink.addresses_of(index)?;
        let lost = before.iter().map(|info| info.address).filter(|other| {
            other != self.address && other.addr().is_ipv4() && !left.iter().any(|info| info.address == *other)
        });
        for address in lost {
            netlink.address_add(index, &address)?;
        }
        Ok(())
    }

    fn lack(&self) -> Option<Lack> {
        let words = format!("{} does not have its address {}", self.link, self.address);
        Some(Lack { part: LackedPart::Device, address: Some(self.address.addr()), words })
    }

    fn subject(&self) -> String {
        format!("address {} of link {}", self.address, self.link)
    }

    fn command(&self, place: &Place) -> String {
        let nodad = if self.address.addr().is_ipv6() { " nodad" } else { "" };
        Tool("ip", place).run(&format!("address add {} dev {}{nodad}", self.address, word(self.link)))
    }

    fn removal(&self, place: &Place) -> String {
        Tool("ip", place).run(&format!("address del {} dev {}", self.address, self.link))
    }
}

impl Object for &Route {
    fn dev(&self) -> Option<&IfName> {
        Some(&self.dev)
    }

    fn look(&self, opened: &OpenNetns, listing: &Listing, index: u32) -> Result<StepState, StepError> {
        let Some(found) = listing.rival(opened, self)? else { return Ok(StepState::Absent) };
        Ok(StepState::of(found.is(self, index), || another(&found)))
    }

    fn add(&self, opened: &OpenNetns, _: u32) -> Result<(), StepError> {
        Ok(opened.netlink.route_add(self)?)
    }

    fn remove(&self, opened: &OpenNetns, _: u32) -> Result<(), StepError> {
        Ok(opened.netlink.route_del(self)?)
    }

    fn lack(&self) -> Option<Lack> {
        let via = self.via.map(|via| format!(" via {via}")).unwrap_or_default();
        let words = format!("{} has no route to {}{via}", self.dev, self.dst.trunc());
        let route = (*self).clone();
        Some(Lack { part: LackedPart::Route(route), address: Some(self.dst.addr()), words })
    }

    fn subject(&self) -> String {
        format!("the route to {}", self.dst)
    }

    fn command(&self, place: &Place) -> String {
        route_command(self, "add", place)
    }

    fn removal(&self, place: &Place) -> String {
        let metric = self.metric.map(|metric| format!(" metric {metric}")).unwrap_or_default();
        Tool("ip", place).run(&format!("route del {}{metric}", self.dst))
    }
}

/// What a person would type to add or replace a route.
pub(super) fn route_command(route: &Route, verb: &str, place: &Place) -> String {
    let Route { dst, via, dev, onlink, src, mtu, mtu_locked, metric, encap } = route;
    let mut text = format!("route {verb} {dst}");
    if let Some(Encap { id, remote }) = encap {
        let (tunnel, checksum) = if remote.is_ipv4() { ("ip", "") } else { ("ip6", " csum") };
        text += &format!(" encap {tunnel} id {id} dst {remote}{checksum}");
    }
    if let Some(via) = via {
        let other_family = via.is_ipv6() && dst.addr().is_ipv4();
        text += &format!(" via {}{via}", if other_family { "inet6 " } else { "" });
    }
    text += &format!(" dev {}", word(dev));
    if *onlink {
        text += " onlink";
    }
    text += &metric.map(|metric| format!(" metric {metric}")).unwrap_or_default();
    text += &src.map(|src| format!(" src {src}")).unwrap_or_default();
    let lock = if *mtu_locked { "lock " } else { "" };
    text += &mtu.map(|mtu| format!(" mtu {lock}{mtu}")).unwrap_or_default();
    Tool("ip", place).run(&text)
}

fn another(route: &RouteInfo) -> String {
    let hops = route.next_hops.iter().map(way);
    format!("another route to {}{}", route.dst, hops.collect::<String>())
}

/// One way of a route, in words.
fn way(hop: &NextHop) -> String {
    let via = hop.via.map_or_else(|| " on the link".to_owned(), |via| format!(" by {via}"));
    match hop.encap {
        None => via,
        Some(EncapInfo::Tunnel(Encap { id, remote })) => format!("{via} in tunnel {id} to {remote}"),
        Some(EncapInfo::Other(kind)) => format!("{via} in an encapsulation of kind {kind}"),
    }
}

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
