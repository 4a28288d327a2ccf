//! A private Open vSwitch in a node, its bridges and their ports.
//!
//! The daemons read their database, and make the kernel's part: a datapath, of which a namespace has one. What they
//! would no longer take back, since they have ended, is taken from the kernel itself. Of a datapath in user space the
//! kernel has the links that stand for it and its bridges, and the programs at its ports: both outlive the daemon.

use linux::IfName;
use linux::netlink::OvsDatapaths;
use linux::ovs::{DATAPATH, FoundInterface, NewBridge, NewPort, Switch, USER_DATAPATH};

use super::object::Object;
use super::{Effect, MovedBack, Past, UndoOutcome, absent};
use crate::entry::{Before, Undone};
use crate::error::StepError;
use crate::kernel::OpenNetns;
use crate::lifetime::Lifetime;
use crate::listing::Listing;
use crate::look::StepState;
use crate::show::{inside, word};
use crate::switching::{OvsBridge, OvsDatapathType, OvsPort, OvsSwitch};
use crate::{Kernel, Place};

/// The daemons run, with a database of their own.
pub(super) struct StartOvs<'s>(pub(super) &'s OvsSwitch);

impl Effect for StartOvs<'_> {
    fn before(&self, kernel: &mut Kernel, place: &Place) -> Result<Before, StepError> {
        let switch = self.0.switch();
        if switch.exists() {
            let what = format!("the directory {}", switch.dir().display());
            let remedy = "undo the plan that made it: hostgap clean".to_owned();
            return Err(StepError::Exists { what, remedy });
        }
        for name in [DATAPATH, USER_DATAPATH] {
            if kernel.at(place)?.netlink.link(&link_name(name))?.is_some() {
                let what = format!("an Open vSwitch in {place}, the link {name}");
                let remedy =
                    "a namespace has one: use another namespace, or end it if it is not needed".to_owned();
                return Err(StepError::Exists { what, remedy });
            }
        }
        Ok(Before::Absent)
    }

    fn act(&self, kernel: &mut Kernel, place: &Place, _: &Before) -> Result<(), StepError> {
        Ok(self.0.switch().start(&kernel.at(place)?.netns, self.0.with().as_ref())?)
    }

    /// The daemons end before what they made, so that they do not make it again.
    fn undo(&self, kernel: &mut Kernel, past: &Past, _: &MovedBack) -> Result<UndoOutcome, StepError> {
        let (switch, intent) = (self.0.switch(), &past.intent);
        let was_there = switch.exists();
        switch.end()?;
        let place = &intent.placed.place;
        let is_still = intent.netns_cookie.map_or(Ok(true), |cookie| kernel.is_still(place, cookie))?;
        if was_there && is_still {
            remove_datapath(kernel.at(place)?)?;
        }
        switch.remove()?;
        Ok(if was_there { Undone::Restored } else { absent(past.after.as_ref()) }.into())
    }

    fn look(&self, _: &mut Kernel, _: &Place, _: &Listing) -> Result<StepState, StepError> {
        Ok(StepState::whether(self.0.switch().is_alive()))
    }

    /// A process would hold the namespace.
    fn lifetime(&self) -> Lifetime<'_> {
        Lifetime::Outside
    }

    fn identity(&self) -> String {
        self.subject()
    }

    fn subject(&self) -> String {
        format!("the Open vSwitch of {}", self.0.node)
    }

    fn gone(&self) -> String {
        format!("a daemon of {} has ended", self.subject())
    }

    fn commands(&self, place: &Place) -> Vec<String> {
        self.0.switch().commands(self.0.with().as_ref(), |command| inside(place, command))
    }

    fn removal(&self, _: &Place) -> Option<String> {
        Some(self.0.removal())
    }
}

/// A bridge, and the link that it is.
impl Object for &OvsBridge {
    fn look(&self, opened: &OpenNetns, listing: &Listing, _: u32) -> Result<StepState, StepError> {
        let found = listing.link(opened, &self.name)?;
        Ok(found.map_or(StepState::Absent, |found| {
            let kind = found.kind.as_deref().unwrap_or("hardware");
            StepState::of(kind == self.datapath.link_kind(), || format!("a {kind} link"))
        }))
    }

    fn add(&self, _: &OpenNetns, _: u32) -> Result<(), StepError> {
        let OvsBridge { name, mac, mtu, datapath, .. } = self;
        let new = NewBridge { name, mac: *mac, mtu: *mtu, datapath: datapath.name() };
        Ok(self.switch().database()?.add_bridge(new)?)
    }

    fn remove(&self, opened: &OpenNetns, _: u32) -> Result<(), StepError> {
        if self.switch().is_alive() {
            return Ok(self.switch().database()?.remove_bridge(&self.name)?);
        }
        match self.datapath {
            OvsDatapathType::System => Ok(OvsDatapaths::open_in(&opened.netns)?.port_del(&self.name)?),
            OvsDatapathType::Netdev | OvsDatapathType::Dpdk => remove_link(opened, &self.name),
        }
    }

    fn subject(&self) -> String {
        format!("bridge {}", self.name)
    }

    fn command(&self, _: &Place) -> String {
        let OvsBridge { name, mac, mtu, datapath, .. } = self;
        let name = word(name);
        let by = match datapath {
            OvsDatapathType::System => String::new(),
            OvsDatapathType::Netdev | OvsDatapathType::Dpdk => format!(" datapath_type={}", datapath.name()),
        };
        let set = format!("set bridge {name} other-config:hwaddr='\"{mac}\"'{by}");
        vsctl(&self.node, &format!("add-br {name} -- {set} -- set interface {name} mtu_request={mtu}"))
    }

    fn removal(&self, _: &Place) -> String {
        vsctl(&self.node, &format!("del-br {}", word(&self.name)))
    }
}

/// A link or a tunnel as a port of a bridge.
impl Object for &OvsPort {
    /// The kernel says whether packets enter the switch, and the database where they go. Of a program's port the kernel
    /// knows nothing.
    fn look(&self, opened: &OpenNetns, listing: &Listing, _: u32) -> Result<StepState, StepError> {
        let device = listing.link(opened, &self.device())?;
        let enters = match self.datapath {
            OvsDatapathType::System => {
                let of_datapath = listing.link(opened, &link_name(DATAPATH))?.map(|datapath| datapath.index);
                of_datapath.is_some() && device.is_some_and(|device| device.master == of_datapath)
            }
            _ if self.vhost_user => true,
            OvsDatapathType::Netdev | OvsDatapathType::Dpdk => {
                device.is_some_and(|device| device.xdp.is_some())
            }
        };
        if !enters {
            return Ok(StepState::Absent);
        }
        if !self.switch().is_alive() {
            return Ok(StepState::So);
        }
        let asked = self.switch().database().and_then(|mut database| database.interface(&self.name));
        let found = match asked {
            // It ended while it was asked.
            Err(_) if !self.switch().is_alive() => return Ok(StepState::So),
            found => found?,
        };
        Ok(found
            .map_or(StepState::Absent, |found| StepState::of(found == self.interface(), || another(&found))))
    }

    fn add(&self, _: &OpenNetns, _: u32) -> Result<(), StepError> {
        let FoundInterface { kind, options, .. } = &self.interface();
        let protected = self.tunnel.is_some();
        let port = NewPort { bridge: &self.bridge, name: &self.name, kind, options, protected };
        Ok(self.switch().database()?.add_port(port)?)
    }

    /// The daemon would take the program off the link by libxdp, which makes a directory for locks, `/run/xdp`, that
    /// stays. What it finds without a program it leaves.
    fn remove(&self, opened: &OpenNetns, _: u32) -> Result<(), StepError> {
        let device = opened.netlink.link(&self.device())?;
        if let (Some(device), OvsDatapathType::Netdev | OvsDatapathType::Dpdk) = (&device, self.datapath) {
            opened.netlink.link_clear_xdp(device.index)?;
        }
        if self.switch().is_alive() {
            return Ok(self.switch().database()?.remove_port(&self.bridge, &self.name)?);
        }
        match (device, self.datapath) {
            (Some(device), OvsDatapathType::System) if self.tunnel.is_some() => {
                Ok(opened.netlink.link_del(device.index)?)
            }
            (_, OvsDatapathType::System) => {
                Ok(OvsDatapaths::open_in(&opened.netns)?.port_del(&self.device())?)
            }
            (_, OvsDatapathType::Netdev | OvsDatapathType::Dpdk) => Ok(()),
        }
    }

    fn is_listed(&self) -> bool {
        false
    }

    fn subject(&self) -> String {
        format!("port {} of {}", self.name, self.bridge)
    }

    fn command(&self, _: &Place) -> String {
        let (bridge, name) = (word(&self.bridge), word(&self.name));
        let FoundInterface { kind, options, .. } = self.interface();
        let mut command = format!("add-port {bridge} {name}");
        if !kind.is_empty() {
            let options = options.iter().map(|(key, value)| format!(" options:{key}='\"{value}\"'"));
            let options: String = options.collect();
            command += &format!(" -- set interface {name} type={kind}{options}");
        }
        if self.tunnel.is_some() {
            command += &format!(" -- set port {name} protected=true");
        }
        vsctl(&self.node, &command)
    }

    fn removal(&self, _: &Place) -> String {
        vsctl(&self.node, &format!("del-port {} {}", word(&self.bridge), word(&self.name)))
    }
}

/// Takes away what the daemons have made in the kernel: the links of tunnels, and the datapath with the links of
/// bridges; the link that stands for a datapath in user space.
fn remove_datapath(opened: &OpenNetns) -> Result<(), StepError> {
    remove_link(opened, &link_name(USER_DATAPATH))?;
    let links = opened.netlink.links()?;
    let of_datapath = links.iter().find(|link| link.name.as_str() == DATAPATH).map(|link| link.index);
    let Some(of_datapath) = of_datapath else {
        return Ok(());
    };
    let tunnel = |kind: Option<&str>| matches!(kind, Some("vxlan" | "geneve"));
    for link in links.iter().filter(|link| link.master == Some(of_datapath) && tunnel(link.kind.as_deref())) {
        opened.netlink.link_del(link.index)?;
    }
    Ok(OvsDatapaths::open_in(&opened.netns)?.datapath_del(&link_name(DATAPATH))?)
}

fn remove_link(opened: &OpenNetns, name: &IfName) -> Result<(), StepError> {
    let found = opened.netlink.link(name)?;
    Ok(found.map_or(Ok(()), |link| opened.netlink.link_del(link.index))?)
}

fn link_name(name: &str) -> IfName {
    IfName::new(name).expect("what stands for a datapath has the name of a link")
}

fn another(FoundInterface { kind, options, error }: &FoundInterface) -> String {
    let error = error.as_ref().map_or(String::new(), |error| format!(" ({error})"));
    let kind = if kind.is_empty() { "link" } else { kind };
    format!("a port of another {kind} {options:?}{error}")
}

fn vsctl(node: &str, arguments: &str) -> String {
    let switch = Switch::named(node);
    format!("ovs-vsctl --db={} {arguments}", switch.remote())
}
