//! A private Open vSwitch in a node, its bridges and their ports.
//!
//! The daemons read their database, and make the kernel's part: a datapath, of which a namespace has one. What they
//! would no longer take back, since they have ended, is taken from the kernel itself.

use linux::IfName;
use linux::netlink::OvsDatapaths;
use linux::ovs::{DATAPATH, FoundInterface, NewBridge, NewPort};

use super::object::Object;
use super::{Effect, MovedBack, Past, UndoOutcome, absent};
use crate::entry::{Before, Undone};
use crate::error::StepError;
use crate::kernel::OpenNetns;
use crate::lifetime::Lifetime;
use crate::listing::Listing;
use crate::look::StepState;
use crate::show::{inside, word};
use crate::switching::{OvsBridge, OvsPort, OvsSwitch};
use crate::{Kernel, Place};

/// The kind of the link that a bridge is.
const KIND: &str = "openvswitch";

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
        if kernel.at(place)?.netlink.link(&datapath())?.is_some() {
            let what = format!("an Open vSwitch in {place}, the link {DATAPATH}");
            let remedy =
                "a namespace has one: use another namespace, or end it if it is not needed".to_owned();
            return Err(StepError::Exists { what, remedy });
        }
        Ok(Before::Absent)
    }

    fn act(&self, kernel: &mut Kernel, place: &Place, _: &Before) -> Result<(), StepError> {
        Ok(self.0.switch().start(&kernel.at(place)?.netns)?)
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
        self.0.switch().commands(|command| inside(place, command))
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
            StepState::of(kind == KIND, || format!("a {kind} link"))
        }))
    }

    fn add(&self, _: &OpenNetns, _: u32) -> Result<(), StepError> {
        let OvsBridge { name, mac, mtu, .. } = self;
        Ok(self.switch().database()?.add_bridge(NewBridge { name, mac: *mac, mtu: *mtu })?)
    }

    fn remove(&self, opened: &OpenNetns, _: u32) -> Result<(), StepError> {
        if self.switch().is_alive() {
            return Ok(self.switch().database()?.remove_bridge(&self.name)?);
        }
        Ok(OvsDatapaths::open_in(&opened.netns)?.port_del(&self.name)?)
    }

    fn subject(&self) -> String {
        format!("bridge {}", self.name)
    }

    fn command(&self, _: &Place) -> String {
        let OvsBridge { name, mac, mtu, .. } = self;
        let name = word(name);
        let set = format!("set bridge {name} other-config:hwaddr='\"{mac}\"'");
        vsctl(&self.node, &format!("add-br {name} -- {set} -- set interface {name} mtu_request={mtu}"))
    }

    fn removal(&self, _: &Place) -> String {
        vsctl(&self.node, &format!("del-br {}", word(&self.name)))
    }
}

/// A link or a tunnel as a port of a bridge.
impl Object for &OvsPort {
    /// The kernel says whether packets enter the switch, and the database where they go.
    fn look(&self, opened: &OpenNetns, listing: &Listing, _: u32) -> Result<StepState, StepError> {
        let of_datapath = listing.link(opened, &datapath())?.map(|datapath| datapath.index);
        let device = listing.link(opened, &self.device())?;
        if of_datapath.is_none() || device.is_none_or(|device| device.master != of_datapath) {
            return Ok(StepState::Absent);
        }
        if !self.switch().is_alive() {
            return Ok(StepState::So);
        }
        let found = self.switch().database()?.interface(&self.name)?;
        Ok(found
            .map_or(StepState::Absent, |found| StepState::of(found == self.interface(), || another(&found))))
    }

    fn add(&self, _: &OpenNetns, _: u32) -> Result<(), StepError> {
        let FoundInterface { kind, options, .. } = &self.interface();
        let port = NewPort { bridge: &self.bridge, name: &self.name, kind, options };
        Ok(self.switch().database()?.add_port(port)?)
    }

    fn remove(&self, opened: &OpenNetns, _: u32) -> Result<(), StepError> {
        if self.switch().is_alive() {
            return Ok(self.switch().database()?.remove_port(&self.bridge, &self.name)?);
        }
        match opened.netlink.link(&self.device())?.filter(|_| self.tunnel.is_some()) {
            Some(device) => Ok(opened.netlink.link_del(device.index)?),
            None => Ok(OvsDatapaths::open_in(&opened.netns)?.port_del(&self.device())?),
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
            command +=
                &format!(" -- set interface {name} type={kind}{options} -- set port {name} protected=true");
        }
        vsctl(&self.node, &command)
    }

    fn removal(&self, _: &Place) -> String {
        vsctl(&self.node, &format!("del-port {} {}", word(&self.bridge), word(&self.name)))
    }
}

/// Takes away what the daemons have made in the kernel: the links of tunnels, and the datapath with the links of bridges.
fn remove_datapath(opened: &OpenNetns) -> Result<(), StepError> {
    let links = opened.netlink.links()?;
    let Some(of_datapath) = links.iter().find(|link| link.name == datapath()).map(|link| link.index) else {
        return Ok(());
    };
    let tunnel = |kind: Option<&str>| matches!(kind, Some("vxlan" | "geneve"));
    for link in links.iter().filter(|link| link.master == Some(of_datapath) && tunnel(link.kind.as_deref())) {
        opened.netlink.link_del(link.index)?;
    }
    Ok(OvsDatapaths::open_in(&opened.netns)?.datapath_del(&datapath())?)
}

fn datapath() -> IfName {
    IfName::new(DATAPATH).expect("it is the name of a link")
}

fn another(FoundInterface { kind, options, error }: &FoundInterface) -> String {
    let error = error.as_ref().map_or(String::new(), |error| format!(" ({error})"));
    let kind = if kind.is_empty() { "link" } else { kind };
    format!("a port of another {kind} {options:?}{error}")
}

fn vsctl(node: &str, arguments: &str) -> String {
    let switch = OvsSwitch { node: node.to_owned() }.switch();
    format!("ovs-vsctl --db={} {arguments}", switch.remote())
}
