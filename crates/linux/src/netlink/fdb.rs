//! Forwarding entries: where a tunnel device sends the frames for an Ethernet address, and what bridges learnt.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};
use serde::Serialize;

use super::Netlink;
use crate::{FdbEntry, Mac, Result};

/// A forwarding entry as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FdbInfo {
    /// The link: the tunnel device, or the bridge port behind which the address is.
    pub index: u32,
    /// The inner destination; all zeros stands for every address without an entry.
    pub mac: Mac,
    /// The outer destination, where the link is a tunnel device.
    pub dst: Option<IpAddr>,
    /// The bridge that holds the entry, where it is a bridge's.
    pub master: Option<u32>,
    /// The VLAN, where the entry is of one.
    pub vlan: Option<u16>,
    /// True if it was configured or is an address of the link itself; false if it was learnt and will expire.
    pub permanent: bool,
}

impl Netlink {
    /// Makes a permanent entry of a tunnel device. `EEXIST` if the address already has one. The all-zero address,
    /// which stands for every frame without an entry of its own, may have one entry for each remote.
    pub fn fdb_add(&self, entry: &FdbEntry) -> Result<()> {
        let index = self.index_of(&entry.dev)?;
        let message = message(entry, index);
        let attempted = format!("add {}", describe(entry));
        if entry.mac != Mac([0; 6]) {
            return self.change(Message::NewNeighbour(message), NLM_F_CREATE | NLM_F_EXCL, attempted);
        }
        // To append the same remote twice is no error to the kernel (`vxlan_fdb_append`), and makes one entry.
        if self.holds(entry, index)? {
            return Err(self.error(attempted, std::io::Error::from_raw_os_error(libc::EEXIST)));
        }
        self.change(Message::NewNeighbour(message), NLM_F_CREATE | NLM_F_APPEND, attempted)
    }

    /// Makes a permanent entry of a tunnel device, in the place of the one that the address has. Not for the all-zero
    /// address, which may have several.
    pub fn fdb_replace(&self, entry: &FdbEntry) -> Result<()> {
        let index = self.index_of(&entry.dev)?;
        let attempted = format!("replace {}", describe(entry));
        self.change(Message::NewNeighbour(message(entry, index)), NLM_F_CREATE | NLM_F_REPLACE, attempted)
    }

    /// Deletes an entry of a tunnel device. `ENOENT` if there is none for that address with that remote.
    pub fn fdb_del(&self, entry: &FdbEntry) -> Result<()> {
        let index = self.index_of(&entry.dev)?;
        let attempted = format!("delete {}", describe(entry));
        // If the address has another remote, the kernel deletes nothing and reports no error (`__vxlan_fdb_delete`).
        if !self.holds(entry, index)? {
            return Err(self.error(attempted, std::io::Error::from_raw_os_error(libc::ENOENT)));
        }
        self.change(Message::DelNeighbour(message(entry, index)), 0, attempted)
    }

    /// Every forwarding entry of the namespace, by link and address.
    pub fn fdb(&self) -> Result<Vec<FdbInfo>> {
        let mut question = NeighbourMessage::default();
        question.header.family = AddressFamily::Bridge;
        let answers = self.dump(&Message::GetNeighbour(question), "list forwarding entries")?;
        let mut entries: Vec<FdbInfo> = answers.iter().filter_map(read).collect();
        entries.sort_by_key(|entry| (entry.index, entry.mac, entry.master, entry.vlan, entry.dst));
        Ok(entries)
    }

    /// The entries of a tunnel device for the address of `entry`. The kernel returns only the first remote of an
    /// address (Linux 5.0); for further ones it must list all entries of all links.
    pub fn fdb_of(&self, entry: &FdbEntry, index: u32) -> Result<Vec<FdbInfo>> {
        let mut question = message(entry, index);
        question.header.state = NeighbourState::None;
        question.attributes.retain(|attribute| !matches!(attribute, NeighbourAttribute::Destination(_)));
        let first = match self.get(Message::GetNeighbour(question)) {
            Ok(answer) => read(&answer),
            Err(error) => {
                let error = self.error(format!("look at the {}", describe(entry)), error);
                match error.errno() {
                    Some(libc::ENOENT) => return Ok(Vec::new()),
                    // Of links that are no tunnel devices.
                    Some(libc::EOPNOTSUPP) => None,
                    _ => return Err(error),
                }
            }
        };
        match first.filter(|first| first.dst == Some(entry.dst)) {
            Some(first) => Ok(vec![first]),
            None => {
                let is_one = |info: &FdbInfo| info.index == index && info.mac == entry.mac;
                Ok(self.fdb()?.into_iter().filter(is_one).collect())
            }
        }
    }

    fn holds(&self, entry: &FdbEntry, index: u32) -> Result<bool> {
        Ok(self.fdb_of(entry, index)?.iter().any(|info| info.dst == Some(entry.dst)))
    }
}

fn message(entry: &FdbEntry, index: u32) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Bridge;
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    // The device's own table, not that of a bridge of which it may be a port.
    message.header.flags = NeighbourFlags::Own;
    message.attributes.push(NeighbourAttribute::LinkLayerAddress(entry.mac.0.to_vec()));
    message.attributes.push(NeighbourAttribute::Destination(entry.dst.into()));
    message
}

fn describe(entry: &FdbEntry) -> String {
    format!("forwarding entry {} to {} on link {}", entry.mac, entry.dst, entry.dev)
}

/// The states of configured entries. A bridge's static entries have `NUD_NOARP`. Those that `bridge fdb` makes of a
/// tunnel device also have `NUD_PERMANENT`; that combination is not a [`NeighbourState`].
const PERMANENT: u16 = 0x80 | 0x40;

fn read(answer: &Message) -> Option<FdbInfo> {
    let Message::NewNeighbour(message) = answer else { return None };
    let mut entry = FdbInfo {
        index: message.header.ifindex,
        mac: Mac([0; 6]),
        dst: None,
        master: None,
        vlan: None,
        permanent: u16::from(message.header.state) & PERMANENT != 0,
    };
    let mut mac = None;
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.as_slice().try_into().ok().map(Mac),
            NeighbourAttribute::Destination(address) => entry.dst = ip(address),
            NeighbourAttribute::Controller(index) => entry.master = Some(*index),
            NeighbourAttribute::Vlan(vlan) => entry.vlan = Some(*vlan),
            _ => {}
        }
    }
    entry.mac = mac?;
    Some(entry)
}

/// An outer address comes without its family, so its length decides.
fn ip(address: &NeighbourAddress) -> Option<IpAddr> {
    match address {
        NeighbourAddress::Inet(address) => Some((*address).into()),
        NeighbourAddress::Inet6(address) => Some((*address).into()),
        NeighbourAddress::Other(bytes) => match bytes.len() {
            4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.as_slice()).ok()?).into()),
            16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?).into()),
            _ => None,
        },
        _ => None,
    }
}
