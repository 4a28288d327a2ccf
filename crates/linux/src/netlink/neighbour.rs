//! Neighbour entries (ARP, NDP): permanent and proxy ones are made, all are listed.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::RouteType;
use serde::Serialize;

use super::{Netlink, family_of};
use crate::{Mac, Neighbour, Result};

/// A neighbour entry as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NeighbourInfo {
    /// The index of the link on which the neighbour is.
    pub index: u32,
    /// The neighbour's IP address.
    pub ip: IpAddr,
    /// Its Ethernet address, where it is known.
    pub mac: Option<Mac>,
    /// It was configured; otherwise the kernel learnt it and will forget it.
    pub permanent: bool,
    /// The node answers for the address.
    pub proxy: bool,
}

impl Netlink {
    /// Makes a permanent or a proxy entry. `EEXIST` if a configured entry exists; an entry that the kernel learnt is
    /// only a cache and is replaced.
    pub fn neighbour_add(&self, neighbour: &Neighbour) -> Result<()> {
        let index = self.index_of(&neighbour.dev)?;
        let attempted = format!("add {}", describe(neighbour));
        // The kernel takes a proxy entry twice without a word (`neigh_add`), and counts it once.
        let taken = || {
            let found = self.neighbour(index, neighbour.ip, neighbour.mac.is_none())?;
            Ok(found.is_some_and(|info| info.proxy || info.permanent))
        };
        if neighbour.mac.is_none() && taken()? {
            return Err(self.error(attempted, std::io::Error::from_raw_os_error(libc::EEXIST)));
        }
        let add = |flags| self.change(Message::NewNeighbour(message(neighbour, index)), flags, &attempted);
        match add(NLM_F_CREATE | NLM_F_EXCL) {
            Err(error) if error.is(libc::EEXIST) && !taken()? => add(NLM_F_CREATE | NLM_F_REPLACE),
            result => result,
        }
    }

    /// Has the kernel look for a neighbour as if it had a packet for it. Of an IPv4 address that is the link's own it
    /// asks the link for that address, which is how one is announced; there is no answer, and the entry goes by itself.
    pub fn neighbour_use(&self, index: u32, ip: IpAddr) -> Result<()> {
        let mut message = unicast(ip, index);
        message.header.flags = NeighbourFlags::Use;
        self.change(Message::NewNeighbour(message), NLM_F_CREATE, format!("use neighbour {ip}"))
    }

    /// Makes a permanent entry, in the place of one that is there.
    pub fn neighbour_replace(&self, neighbour: &Neighbour) -> Result<()> {
        let index = self.index_of(&neighbour.dev)?;
        let attempted = format!("replace {}", describe(neighbour));
        self.change(Message::NewNeighbour(message(neighbour, index)), NLM_F_CREATE | NLM_F_REPLACE, attempted)
    }

    /// Deletes an entry. `ENOENT` if there is none.
    pub fn neighbour_del(&self, neighbour: &Neighbour) -> Result<()> {
        let index = self.index_of(&neighbour.dev)?;
        let attempted = format!("delete {}", describe(neighbour));
        self.change(Message::DelNeighbour(message(neighbour, index)), 0, attempted)
    }

    /// The entry for an address at a link, or its proxy entry (Linux 5.0); `None` if there is none.
    pub fn neighbour(&self, index: u32, ip: IpAddr, proxy: bool) -> Result<Option<NeighbourInfo>> {
        let flags = if proxy { NeighbourFlags::Proxy } else { NeighbourFlags::empty() };
        let entry = self.neighbour_entry(index, ip, flags)?;
        Ok(entry.and_then(|entry| read(&Message::NewNeighbour(entry))))
    }

    /// Whether neighbour discovery of an address is in vain: the last look-up has failed, or has had no answer yet.
    /// False where there is no entry.
    pub fn is_unresolved(&self, index: u32, ip: IpAddr) -> Result<bool> {
        let answer = self.neighbour_entry(index, ip, NeighbourFlags::empty())?;
        let state = answer.map(|entry| entry.header.state);
        Ok(matches!(state, Some(NeighbourState::Failed | NeighbourState::Incomplete)))
    }

    fn neighbour_entry(
        &self,
        index: u32,
        ip: IpAddr,
        flags: NeighbourFlags,
    ) -> Result<Option<NeighbourMessage>> {
        let mut question = NeighbourMessage::default();
        question.header.family = family_of(ip);
        question.header.ifindex = index;
        question.header.flags = flags;
        question.attributes.push(NeighbourAttribute::Destination(ip.into()));
        match self.get(Message::GetNeighbour(question)) {
            Ok(Message::NewNeighbour(entry)) => Ok(Some(entry)),
            Ok(_) => Ok(None),
            Err(error) => {
                let error = self.error(format!("look at neighbour {ip} of link {index}"), error);
                if error.is(libc::ENOENT) { Ok(None) } else { Err(error) }
            }
        }
    }

    /// Every neighbour and proxy entry of the namespace, by link and address. Entries that need no resolution
    /// (multicast, loopback) are left out, as `ip neighbour` does.
    pub fn neighbours(&self) -> Result<Vec<NeighbourInfo>> {
        let mut proxies = NeighbourMessage::default();
        proxies.header.flags = NeighbourFlags::Proxy;
        let mut all = Vec::new();
        for question in [NeighbourMessage::default(), proxies] {
            let answers = self.dump(&Message::GetNeighbour(question), "list neighbours")?;
            all.extend(answers.iter().filter_map(read));
        }
        all.sort_by_key(|info| (info.index, info.ip, info.proxy));
        Ok(all)
    }
}

/// An entry without properties.
fn unicast(ip: IpAddr, index: u32) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family_of(ip);
    message.header.ifindex = index;
    message.header.kind = RouteType::Unicast;
    message.attributes.push(NeighbourAttribute::Destination(ip.into()));
    message
}

fn message(neighbour: &Neighbour, index: u32) -> NeighbourMessage {
    let mut message = unicast(neighbour.ip, index);
    match neighbour.mac {
        Some(mac) => {
            message.header.state = NeighbourState::Permanent;
            message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()));
        }
        None => message.header.flags = NeighbourFlags::Proxy,
    }
    message
}

fn describe(neighbour: &Neighbour) -> String {
    match neighbour.mac {
        Some(mac) => format!("neighbour {} at {mac} on link {}", neighbour.ip, neighbour.dev),
        None => format!("proxy neighbour {} on link {}", neighbour.ip, neighbour.dev),
    }
}

fn read(answer: &Message) -> Option<NeighbourInfo> {
    let Message::NewNeighbour(message) = answer else { return None };
    let header = &message.header;
    if header.state == NeighbourState::Noarp {
        return None;
    }
    let mut found = None;
    let mut mac = None;
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(address) => found = ip(address),
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.as_slice().try_into().ok().map(Mac),
            _ => {}
        }
    }
    Some(NeighbourInfo {
        index: header.ifindex,
        ip: found?,
        mac,
        permanent: header.state == NeighbourState::Permanent,
        proxy: header.flags.contains(NeighbourFlags::Proxy),
    })
}

fn ip(address: &NeighbourAddress) -> Option<IpAddr> {
    match address {
        NeighbourAddress::Inet(address) => Some((*address).into()),
        NeighbourAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}
