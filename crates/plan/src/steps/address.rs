//! Addresses of links.

use ipnet::IpNet;
use linux::IfName;
use linux::sysctl::{self, Key};

use super::object::Object;
use crate::Place;
use crate::error::StepError;
use crate::kernel::OpenNetns;
use crate::lack::{Lack, LackedPart};
use crate::listing::Listing;
use crate::look::StepState;
use crate::show::{Tool, word};

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

    /// With the first IPv4 address of a subnet the kernel drops the later ones of the same subnet, unless
    /// `promote_secondaries` is on. It is turned on for that moment, so that those of others stay as they are. Where
    /// that cannot be written, they are put back, without their labels and times.
    fn remove(&self, opened: &OpenNetns, index: u32) -> Result<(), StepError> {
        let netlink = &opened.netlink;
        let before = netlink.addresses_of(index)?;
        let shares_subnet = |other: &IpNet| other != self.address && other.trunc() == self.address.trunc();
        let has_secondaries =
            self.address.addr().is_ipv4() && before.iter().any(|info| shares_subnet(&info.address));
        if has_secondaries {
            self.remove_alone(opened, index)?;
        } else {
            netlink.address_del(index, self.address)?;
        }
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

impl LinkAddress<'_> {
    /// Removes it while the next address of the subnet takes its place, where the kernel can be told so.
    fn remove_alone(&self, opened: &OpenNetns, index: u32) -> Result<(), StepError> {
        let key = Key::new(format!("net/ipv4/conf/{}/promote_secondaries", self.link));
        let key = key.expect("a link's name is no path");
        let set = |value: &str| opened.netns.run(|| sysctl::write(&key, value));
        let was = opened.netns.run(|| sysctl::read(&key))??;
        let is_on = was.is_some_and(|was| was.trim() == "0") && matches!(set("1"), Ok(Ok(())));
        let removed = opened.netlink.address_del(index, self.address);
        if is_on {
            set("0")??;
        }
        Ok(removed?)
    }
}
