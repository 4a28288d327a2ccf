//! Adds, removes and lists addresses of links.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage};
use serde::Serialize;

use super::{Netlink, family_of};
use crate::Result;

/// An address of a link as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AddressInfo {
    /// The index of the link that has the address.
    pub index: u32,
    /// The address with its prefix length.
    pub address: IpNet,
    /// The scope's number (0 universe, 253 link, 254 host).
    pub scope: u8,
    /// It was configured and does not expire.
    pub permanent: bool,
    /// Duplicate address detection has not finished, so the address cannot be used yet (IPv6).
    pub tentative: bool,
    /// It came after another one of the same prefix (IPv4), or it is one that the kernel makes up and changes once a
    /// day (IPv6, RFC 8981). To the kernel both are one flag (`IFA_F_SECONDARY`, `IFA_F_TEMPORARY`).
    pub secondary: bool,
    /// Nothing new is to be sent from it (`IFA_F_DEPRECATED`).
    pub deprecated: bool,
}

impl AddressInfo {
    /// The same without what changes by itself, or with other addresses of the link.
    #[must_use]
    pub fn steady(self) -> AddressInfo {
        AddressInfo { tentative: false, secondary: false, deprecated: false, ..self }
    }
}

impl Netlink {
    /// Adds an address to a link. An IPv6 address is usable at once, without duplicate address detection. `EEXIST` if
    /// the link already has it.
    pub fn address_add(&self, index: u32, address: &IpNet) -> Result<()> {
        let mut message = message(index, address);
        if let IpNet::V6(_) = address {
            message.header.flags = AddressHeaderFlags::Nodad;
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        let attempted = format!("add address {address} to link {index}");
        self.change(Message::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL, attempted)
    }

    /// Takes an address from a link. `EADDRNOTAVAIL` if the link does not have it.
    pub fn address_del(&self, index: u32, address: &IpNet) -> Result<()> {
        let attempted = format!("delete address {address} of link {index}");
        self.change(Message::DelAddress(message(index, address)), 0, attempted)
    }

    /// Every address of the namespace, by link.
    pub fn addresses(&self) -> Result<Vec<AddressInfo>> {
        let answers = self.dump(&Message::GetAddress(AddressMessage::default()), "list addresses")?;
        Ok(sorted(&answers))
    }

    /// The addresses of one link; empty if the link does not exist.
    pub fn addresses_of(&self, index: u32) -> Result<Vec<AddressInfo>> {
        Ok(sorted(&self.answers_of(index)?))
    }

    /// The same, of each family and scope the oldest first; the later ones of a prefix come after all others (IPv4).
    ///
    /// The kernel has a link's IPv4 addresses in the order in which they came (`__inet_insert_ifa`), and puts an IPv6
    /// address before those of its scope that were there (`ipv6_link_dev_addr`).
    pub fn addresses_by_age(&self, index: u32) -> Result<Vec<AddressInfo>> {
        let all = self.answers_of(index)?.iter().filter_map(read).collect::<Vec<_>>();
        let (v4, v6): (Vec<_>, Vec<_>) = all.into_iter().partition(|info| info.address.addr().is_ipv4());
        Ok(v4.into_iter().chain(v6.into_iter().rev()).collect())
    }

    fn answers_of(&self, index: u32) -> Result<Vec<Message>> {
        let mut question = AddressMessage::default();
        question.header.index = index;
        let attempted = format!("list the addresses of link {index}");
        match self.dump_strictly(&Message::GetAddress(question), attempted) {
            Err(error) if error.is(libc::ENODEV) => Ok(Vec::new()),
            answers => answers,
        }
    }
}

fn sorted(answers: &[Message]) -> Vec<AddressInfo> {
    let mut addresses: Vec<AddressInfo> = answers.iter().filter_map(read).collect();
    addresses.sort_by_key(|info| (info.index, info.address));
    addresses
}

fn message(index: u32, address: &IpNet) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family_of(address.addr());
    message.header.prefix_len = address.prefix_len();
    message.header.index = index;
    // IPv4 has two: without a peer both are the same. IPv6 takes the local one.
    message.attributes.push(AddressAttribute::Local(address.addr()));
    message.attributes.push(AddressAttribute::Address(address.addr()));
    message
}

/// `None` for an entry that is not an IP address.
fn read(answer: &Message) -> Option<AddressInfo> {
    let Message::NewAddress(message) = answer else { return None };
    let mut local = None;
    let mut remote = None;
    let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => remote = Some(*ip),
            AddressAttribute::Flags(all) => flags = *all,
            _ => {}
        }
    }
    let ip: IpAddr = local.or(remote)?;
    Some(AddressInfo {
        index: message.header.index,
        address: IpNet::new(ip, message.header.prefix_len).ok()?,
        scope: message.header.scope.into(),
        permanent: flags.contains(AddressFlags::Permanent),
        tentative: flags.contains(AddressFlags::Tentative),
        secondary: flags.contains(AddressFlags::Secondary),
        deprecated: flags.contains(AddressFlags::Deprecated),
    })
}
