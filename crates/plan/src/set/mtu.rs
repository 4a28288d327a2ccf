//! A link's MTU, which the links above it follow.

use std::collections::BTreeMap;

use linux::IfName;
use linux::sysctl::{self, Key};
use serde::{Deserialize, Serialize};

use super::register::{Along, At, Register, Times, Undoing};
use crate::Place;
use crate::error::StepError;
use crate::show::{Tool, word};

/// Set a link's MTU in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetLinkMtu {
    /// The name of the link.
    pub link: IfName,
    /// Bytes of a packet without the Ethernet header.
    pub mtu: u32,
}

impl Register for SetLinkMtu {
    type Value = u32;
    type Along = OtherMtus;

    fn read(&self, at: &At<'_>) -> Result<Option<u32>, StepError> {
        Ok(Some(at.link().mtu))
    }

    fn write(&self, at: &At<'_>, mtu: &u32) -> Result<(), StepError> {
        Ok(at.opened.netlink.link_set_mtu(at.link().index, *mtu)?)
    }

    fn wanted(&self, _: &u32) -> u32 {
        self.mtu
    }

    fn subject(&self) -> String {
        format!("the MTU of link {}", self.link)
    }

    fn words(&self, mtu: &u32) -> String {
        mtu.to_string()
    }

    fn command(&self, place: &Place) -> String {
        Tool("ip", place).run(&format!("link set dev {} mtu {}", word(&self.link), self.mtu))
    }

    /// More than the driver takes is refused. A link on which IPv6 has an MTU of its own is refused, too. When the
    /// link's MTU changes, the kernel overwrites that of IPv6 (`addrconf_notify` in net/ipv6/addrconf.c), and with it
    /// the routes that a router announced with it.
    fn refusal(&self, at: &At<'_>, was: &u32) -> Result<Option<String>, StepError> {
        let link = at.name();
        if let Some(most) = at.link().mtu_max.filter(|most| self.mtu > *most) {
            return Ok(Some(format!("the driver of {link} takes an MTU of {most} bytes at most")));
        }
        let key = Key::new(format!("net/ipv6/conf/{link}/mtu")).expect("a link's name is a word of a path");
        let own = at.opened.netns.run(|| sysctl::read(&key))??;
        let own = own.filter(|own| *was != self.mtu && own.trim() != was.to_string());
        Ok(own.map(|own| {
            format!(
                "IPv6 has an MTU of its own on {link}, {} ({key}, set by hand or by a router advertisement), which would be lost",
                own.trim()
            )
        }))
    }

    fn is_listed(&self) -> bool {
        true
    }
}

/// The MTUs of the links of the namespace that stand on a link, by index: they follow its MTU down. Of a bond or team
/// also those of its ports, which follow it up and down.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct OtherMtus(BTreeMap<u32, u32>);

impl Along<SetLinkMtu> for OtherMtus {
    /// What followed down does not come up with the link, whatever sets that.
    const GOES_ALONE: bool = true;

    /// The kernel is asked for these links alone: a node may have thousands.
    fn read(_: &SetLinkMtu, at: &At<'_>) -> Result<OtherMtus, StepError> {
        let sysfs = at.opened.sysfs()?;
        let mut open = sysfs.above(at.name())?;
        if matches!(at.link().kind.as_deref(), Some("bond" | "team")) {
            open.extend(sysfs.below(at.name())?);
        }
        let mut mtus = BTreeMap::new();
        while let Some(name) = open.pop() {
            let Some(link) = at.opened.netlink.link(&name)? else { continue };
            // A port of a bond has the bond above it.
            if Some(link.index) != at.index() && mtus.insert(link.index, link.mtu).is_none() {
                open.extend(sysfs.above(&name)?);
            }
        }
        Ok(OtherMtus(mtus))
    }

    fn changed_since(mut self, were: &OtherMtus) -> OtherMtus {
        self.0.retain(|index, mtu| were.0.get(index).is_some_and(|old| old != mtu));
        self
    }

    /// A link goes back unless another program has changed its MTU since. Where nothing was read back, it is unknown
    /// which links followed: those that have the step's MTU now and had another before.
    fn put_back(undoing: &Undoing<'_, SetLinkMtu>, along: &Times<'_, OtherMtus>) -> Result<bool, StepError> {
        let ours = undoing.register.mtu;
        // A write of the value that is there reaches no other link.
        if *undoing.values.was == ours {
            return Ok(false);
        }
        let netlink = &undoing.at.opened.netlink;
        let mut written = false;
        for (index, old) in &along.was.0 {
            let followed = along.left.map_or(Some(&ours), |left| left.0.get(index));
            let Some(followed) = followed.filter(|followed| *followed != old) else { continue };
            let now = netlink.link_at((undoing.index_now)(*index))?;
            if let Some(now) = now.filter(|now| now.mtu == *followed) {
                netlink.link_set_mtu(now.index, *old)?;
                written = true;
            }
        }
        Ok(written)
    }
}
