//! A link is moved to another namespace and comes back: by undo, or with the kernel, when that namespace ends.
//!
//! What comes with the kernel is hardware. It has the name, the MTU and the Ethernet address that it had in there, and
//! is known again by its device. By then another container may have it: undo takes nothing from that.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use linux::netlink::LinkInfo;
use linux::sysfs::NetSysfs;
use linux::{IfName, sysctl};
use rustix::io::Errno;

use super::{describe, refuse_taken};
use crate::entry::{After, Before, Hardware, Undone};
use crate::error::StepError;
use crate::kernel::{OpenNetns, device_taken};
use crate::lifetime::Lifetime;
use crate::listing::Listing;
use crate::look::StepState;
use crate::show::{Tool, netns_operand, word};
use crate::steps::{Effect, MovedBack, Past, UndoOutcome, existing, existing_index, mistaken};
use crate::{Kernel, Place};

/// A link is moved to another namespace.
pub(crate) struct MoveLink<'s> {
    pub(crate) link: &'s IfName,
    pub(crate) to: &'s Place,
    pub(crate) name: &'s IfName,
}

impl Effect for MoveLink<'_> {
    /// A move takes a link down and drops its addresses, routes and its place in a bridge. What would be lost that way
    /// is not the step's to lose, so only a link that is down and bare is moved.
    fn before(&self, kernel: &mut Kernel, place: &Place) -> Result<Before, StepError> {
        let MoveLink { link, to, name } = self;
        let found = existing(kernel, place, link)?;
        refuse_taken(kernel, to, name)?;
        let here = kernel.at(place)?;
        let has_address = !here.netlink.addresses_of(found.index)?.is_empty();
        let obstacle = match (&found, has_address) {
            (LinkInfo { up: true, .. }, _) => Some("it is up"),
            (LinkInfo { master: Some(_), .. }, _) => Some("it is a port of a bridge"),
            (_, true) => Some("it has addresses"),
            (_, false) => None,
        };
        if let Some(obstacle) = obstacle {
            let why = format!("link {link} cannot be moved while {obstacle}: a move would lose that state");
            return Err(StepError::Refused { why });
        }
        let parameters = here.netns.run(|| own_parameters(link))??;
        let sysfs = here.sysfs()?;
        let device = found.kind.is_none().then(|| sysfs.bus_address(link)).flatten();
        // In its own namespace it is only renamed.
        let hardware = (device.is_some() && *to != place)
            .then(|| Box::new(Hardware { port: sysfs.device_port(link), mtu: found.mtu, mac: found.mac }));
        let to_cookie = Some(kernel.at(to)?.cookie);
        Ok(Before::Placed { index: found.index, kind: found.kind, parameters, to_cookie, device, hardware })
    }

    fn act(&self, kernel: &mut Kernel, place: &Place, before: &Before) -> Result<(), StepError> {
        let Before::Placed { index, .. } = before else { return Err(mistaken(before)) };
        let there = kernel.at(self.to)?.netns.try_clone()?;
        Ok(kernel.at(place)?.netlink.link_move(*index, &there, self.name)?)
    }

    fn after(&self, kernel: &mut Kernel, _: &Place, _: &Before) -> Result<After, StepError> {
        Ok(After::Link { index: existing_index(kernel, self.to, self.name)? })
    }

    fn undo(&self, kernel: &mut Kernel, past: &Past, moved: &MovedBack) -> Result<UndoOutcome, StepError> {
        let MoveLink { link, to, name } = self;
        let (place, before) = (&past.intent.placed.place, &past.intent.before);
        let Before::Placed { kind, parameters, to_cookie, device, hardware, .. } = before else {
            return Err(mistaken(before));
        };
        // The namespace may be gone, and its name or path lead to another.
        let there = kernel.find(to)?.filter(|there| to_cookie.is_none_or(|cookie| cookie == there.cookie));
        let there = match (there, &past.after) {
            (None, _) => None,
            (Some(there), Some(After::Link { index })) => there.netlink.link_at(moved.now(to, *index))?,
            (Some(there), _) => there.netlink.link(name)?,
        };
        // What is in there may have another link of that number by now.
        let is_it = |at: &OpenNetns, found: &LinkInfo| -> Result<bool, StepError> {
            Ok(found.kind == *kind && is_of_device(at, found, device.as_deref(), hardware.as_deref())?)
        };
        let there = match there {
            Some(found) if is_it(kernel.at(to)?, &found)? => Some(found),
            _ => None,
        };
        let came_alone = there.is_none();
        if let Some(there) = there {
            move_back(kernel, (to, there.index), (place, link))?;
        } else if let Some(device) = device
            && let Some(others) = rename_back(kernel.at(place)?, device, hardware.as_deref(), link)?
        {
            return Ok(Undone::ChangedByOther { found: others }.into());
        }
        let here = kernel.at(place)?;
        // Another card may have its name by now.
        let back = match here.netlink.link(link)? {
            Some(found) if is_it(here, &found)? => found,
            _ => return Ok(Undone::Gone.into()),
        };
        // Before the parameters, of which some may not be more than the MTU.
        let put_back = hardware.as_ref().map_or(Ok(PutBack::Nothing), |of| of.put_back(here, &back))?;
        // It may have come back without us, perhaps by an undo that was interrupted after the move, with the
        // namespace's defaults. Whoever uses it by now has not asked for those.
        match came_alone {
            true => here.netns.run(|| restore_defaults(link, parameters))??,
            false => here.netns.run(|| write_parameters(parameters))??,
        }
        let undone = match (put_back, came_alone) {
            (PutBack::InUse, _) => {
                Undone::ChangedByOther { found: format!("{}, which is up", describe(&back)) }
            }
            (PutBack::Refused(why), _) => {
                let found = here.netlink.link_at(back.index)?.unwrap_or(back.clone());
                Undone::ChangedByOther {
                    found: format!("{}, which could not be as before: {why}", describe(&found)),
                }
            }
            (PutBack::Nothing, true) => Undone::AlreadySo,
            (PutBack::Written, _) | (PutBack::Nothing, false) => Undone::Restored,
        };
        Ok(UndoOutcome { undone, index: Some(back.index) })
    }

    fn brings(&self) -> Option<(&Place, &IfName)> {
        Some((self.to, self.name))
    }

    fn look(&self, kernel: &mut Kernel, _: &Place, _: &Listing) -> Result<StepState, StepError> {
        let found = kernel.at(self.to)?.netlink.link(self.name)?;
        Ok(if found.is_some() { StepState::So } else { StepState::Absent })
    }

    fn admits_before(&self, before: &Before) -> bool {
        matches!(before, Before::Placed { .. })
    }

    fn admits_after(&self, after: &After) -> bool {
        matches!(after, After::Link { .. })
    }

    fn lifetime(&self) -> Lifetime<'_> {
        match self.to {
            Place::Netns(to) => Lifetime::Both(to),
            Place::Host | Place::Path(_) => Lifetime::Machine,
        }
    }

    fn identity(&self) -> String {
        format!("{} moved to {} as {}", self.link, self.to, self.name)
    }

    fn subject(&self) -> String {
        format!("link {}", self.name)
    }

    fn commands(&self, place: &Place) -> Vec<String> {
        let (link, to, name) = (word(self.link), netns_operand(self.to), word(self.name));
        vec![Tool("ip", place).run(&format!("link set dev {link} netns {to} name {name}"))]
    }
}

/// Moves a link back. Who has it in there may have given it another name that something in its old place has: from
/// Linux 6.6 on it would not get there with that (`__dev_change_net_namespace`).
fn move_back(
    kernel: &mut Kernel,
    (from, index): (&Place, u32),
    (place, link): (&Place, &IfName),
) -> Result<(), StepError> {
    let here = kernel.at(place)?.netns.try_clone()?;
    match kernel.at(from)?.netlink.link_move(index, &here, link) {
        Err(error) if error.is(Errno::EXIST.raw_os_error()) => {}
        moved => return Ok(moved?),
    }
    for name in kernel.at(from)?.netlink.link_other_names(index)? {
        let is_taken = match IfName::new(&*name) {
            Ok(name) => kernel.at(place)?.netlink.link(&name)?.is_some(),
            // What is too long to be a link's own name may be another one's here.
            Err(_) => true,
        };
        if is_taken {
            kernel.at(from)?.netlink.link_other_name_del(index, &name)?;
        }
    }
    Ok(kernel.at(from)?.netlink.link_move(index, &here, link)?)
}

/// Whether hardware had to be set to what it was.
enum PutBack {
    Nothing,
    Written,
    /// The card does not take what it had. Another attempt would meet the same answer, so this is final.
    Refused(String),
    /// Another program uses it by now, and may have set it.
    InUse,
}

impl Hardware {
    /// Sets a card that has come back to what it had before it went: another MTU or Ethernet address was meant for
    /// the namespace that it comes from. The kernel brings it down on the way.
    fn put_back(&self, here: &OpenNetns, back: &LinkInfo) -> Result<PutBack, StepError> {
        let mac = self.mac.filter(|mac| back.mac != Some(*mac));
        if mac.is_none() && back.mtu == self.mtu {
            return Ok(PutBack::Nothing);
        }
        if back.up {
            return Ok(PutBack::InUse);
        }
        let mut refused = Vec::new();
        // `EADDRNOTAVAIL` is how drivers refuse an address (`igbvf_set_mac` in
        // drivers/net/ethernet/intel/igbvf/netdev.c).
        let mut note = |written: Result<(), linux::Error>| match written {
            Err(error) if error.is(Errno::NODEV.raw_os_error()) => Err(error),
            Err(error) => {
                refused.push(error.to_string());
                Ok(())
            }
            Ok(()) => Ok(()),
        };
        if back.mtu != self.mtu {
            note(here.netlink.link_set_mtu(back.index, self.mtu))?;
        }
        if let Some(mac) = mac {
            note(here.netlink.link_set_mac(back.index, mac))?;
        }
        Ok(if refused.is_empty() { PutBack::Written } else { PutBack::Refused(refused.join("; ")) })
    }
}

/// How long the kernel may take to end a namespace: it waits for processes that still read something of it.
const NAMESPACE_END_MAX: Duration = Duration::from_secs(10);

/// Waits for a card to come back from a namespace that ends, and gives it its name. It comes under the one that it had
/// there, or under one that the kernel makes of its number where another link has that. A device that is no more has no
/// link. Says what has taken the device, where another has it by now.
fn rename_back(
    here: &OpenNetns,
    device: &str,
    hardware: Option<&Hardware>,
    name: &IfName,
) -> Result<Option<String>, StepError> {
    let deadline = Instant::now() + NAMESPACE_END_MAX;
    let sysfs = here.sysfs()?;
    loop {
        let links = links_of(sysfs, device, hardware)?;
        if links.contains(name) {
            return Ok(None);
        }
        if let [back] = links.as_slice() {
            let index = here.netlink.index_of(back)?;
            here.netlink.link_move(index, &here.netns, name)?;
            return Ok(None);
        }
        // A card that comes back at this moment has its links, whether they are seen here yet or not.
        if !sysfs.has_links(device) && sysfs.elsewhere(device).is_none() {
            return Ok(None);
        }
        if let Some(others) = device_taken(here, device)? {
            return Ok(Some(others));
        }
        if Instant::now() > deadline {
            let here: Vec<String> = sysfs.links_of(device)?.iter().map(ToString::to_string).collect();
            let why = match here.is_empty() {
                true => {
                    format!("the link of device {device}, once {name}, is in a namespace that has not ended")
                }
                false => {
                    format!("device {device} has {}, and nothing says which was {name}", here.join(" and "))
                }
            };
            return Err(StepError::Refused { why });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a link is the one that went, by its device; true of a link that has none.
fn is_of_device(
    at: &OpenNetns,
    link: &LinkInfo,
    device: Option<&str>,
    hardware: Option<&Hardware>,
) -> Result<bool, StepError> {
    let Some(device) = device else { return Ok(true) };
    Ok(links_of(at.sysfs()?, device, hardware)?.contains(&link.name))
}

/// The links of a device that can be the one that went.
fn links_of(sysfs: &NetSysfs, device: &str, hardware: Option<&Hardware>) -> Result<Vec<IfName>, StepError> {
    let mut links = sysfs.links_of(device)?;
    links.retain(|link| hardware.is_none_or(|went| sysfs.device_port(link) == went.port));
    Ok(links)
}

/// The link's own kernel parameters, where they are not the namespace's defaults; called inside its namespace.
fn own_parameters(link: &IfName) -> Result<BTreeMap<sysctl::Key, String>, linux::Error> {
    let mut own = BTreeMap::new();
    for directory in ["net/ipv4/conf", "net/ipv6/conf", "net/ipv4/neigh", "net/ipv6/neigh"] {
        let prefix = format!("{directory}/{link}");
        let defaults = sysctl::list(&format!("{directory}/default"))?;
        let is_default = |key: &sysctl::Key, value: &String| {
            let leaf = key.as_str().strip_prefix(&prefix).expect("listed below the prefix");
            let default = sysctl::Key::new(format!("{directory}/default{leaf}"));
            default.is_ok_and(|default| defaults.get(&default) == Some(value))
        };
        own.extend(sysctl::list(&prefix)?.into_iter().filter(|(key, value)| !is_default(key, value)));
    }
    Ok(own)
}

fn write_parameters(parameters: &BTreeMap<sysctl::Key, String>) -> Result<(), linux::Error> {
    for (key, value) in parameters {
        if sysctl::read(key)?.is_some_and(|now| now != *value) {
            sysctl::write(key, value)?;
        }
    }
    Ok(())
}

/// Writes those parameters that have the namespace's defaults now.
fn restore_defaults(link: &IfName, parameters: &BTreeMap<sysctl::Key, String>) -> Result<(), linux::Error> {
    let own = own_parameters(link)?;
    let lost = parameters.iter().filter(|(key, _)| !own.contains_key(*key));
    write_parameters(&lost.map(|(key, value)| (key.clone(), value.clone())).collect())
}
