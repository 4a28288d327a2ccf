//! The node's place on the underlay: the link by which it reaches other nodes.

use std::net::{IpAddr, Ipv4Addr};

use datapath::Addresses;
use ipnet::IpNet;
use linux::IfName;
use linux::netlink::Netlink;

/// The link to other nodes, and what the node is on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Underlay {
    /// The name of the link.
    pub wire: IfName,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// The node's addresses there, the first of each family.
    pub addresses: Addresses,
    /// All of them with the lengths of their prefixes: a host whose address is in one is a neighbour.
    pub subnets: Vec<IpNet>,
}

/// The scope of an address that is valid everywhere (`RT_SCOPE_UNIVERSE`).
const UNIVERSE: u8 = 0;
/// What stands for the wire of a node without one.
const LOOPBACK: &str = "lo";
/// The MTU in bytes of pods on a node without a wire: Ethernet's.
const MTU_ALONE: u32 = 1500;

impl Underlay {
    /// The link that is named, or that of the default route; in the calling thread's namespace. Without either it is the
    /// loopback, unless a wire `is_needed`.
    ///
    /// # Errors
    /// In words: there is no such link or route, or the link has no address.
    pub fn find(named: Option<&IfName>, is_needed: bool) -> Result<Underlay, String> {
        let netlink = Netlink::open().map_err(|error| error.to_string())?;
        let link = match named {
            Some(name) if name.as_str() == LOOPBACK && !is_needed => return Ok(Underlay::alone()),
            Some(name) => netlink
                .link(name)
                .map_err(|error| error.to_string())?
                .ok_or_else(|| format!("there is no link {name}"))?,
            None => match netlink.link_of_default_route().map_err(|error| error.to_string())? {
                Some(link) => link,
                None if is_needed => return Err("there is no default route by which to find it".to_owned()),
                None => return Ok(Underlay::alone()),
            },
        };
        let addresses = netlink.addresses_of(link.index).map_err(|error| error.to_string())?;
        let usable = addresses.iter().filter(|info| info.scope == UNIVERSE && !info.tentative);
        let subnets: Vec<IpNet> = usable.map(|info| info.address).collect();
        let addresses: Addresses = subnets.iter().map(IpNet::addr).collect();
        if addresses.families().is_empty() {
            return Err(format!("link {} has no address", link.name));
        }
        Ok(Underlay { wire: link.name, mtu: link.mtu, addresses, subnets })
    }

    /// That of a node without other nodes.
    fn alone() -> Underlay {
        Underlay {
            wire: IfName::new(LOOPBACK).expect("lo is a valid name"),
            mtu: MTU_ALONE,
            addresses: [IpAddr::from(Ipv4Addr::LOCALHOST)].into_iter().collect(),
            subnets: Vec::new(),
        }
    }
}

/// A number that no other node of the network has, where nodes have IPv4 addresses of one /16: the end of the node's.
/// With IPv6 alone it is the end of that.
pub(crate) fn number(addresses: &Addresses) -> Option<u16> {
    let end = addresses.iter().next().map(|address| match address {
        IpAddr::V4(v4) => u16::from_be_bytes([v4.octets()[2], v4.octets()[3]]),
        IpAddr::V6(v6) => v6.segments()[7],
    });
    end.filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_s_number_is_the_end_of_its_address() {
        let of = |texts: &[&str]| number(&texts.iter().map(|text| text.parse().unwrap()).collect());
        assert_eq!(of(&["192.168.1.7", "fd00::9"]), Some(263));
        assert_eq!(of(&["fd00::9"]), Some(9));
        assert_eq!((of(&["10.0.0.0"]), of(&[])), (None, None));
    }
}
