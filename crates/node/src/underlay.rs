//! The node's place on the underlay: the link by which it reaches other nodes.

use std::net::{IpAddr, Ipv4Addr};

use datapath::Addresses;
use ipnet::IpNet;
use linux::IfName;
use linux::netlink::{AddressInfo, LinkInfo, Netlink};

/// The link to other nodes, and what the node is on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Underlay {
    /// The name of the link.
    pub wire: IfName,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// The node's addresses there, one of each family.
    pub addresses: Addresses,
    /// All of them with the lengths of their prefixes: a host whose address is in one is a neighbour.
    pub subnets: Vec<IpNet>,
}

/// Where a node was known to the others before. It stays there as long as it can: what they have made
/// for it leads there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownPlace {
    /// The name of the link.
    pub wire: IfName,
    /// The node's addresses there.
    pub addresses: Addresses,
}

/// The scope of an address that is valid everywhere (`RT_SCOPE_UNIVERSE`).
const UNIVERSE: u8 = 0;
/// Why there is no wire.
const NO_ROUTE: &str = "there is no default route by which to find it";
/// What stands for the wire of a node without one.
pub(crate) const LOOPBACK: &str = "lo";
/// The MTU in bytes of pods on a node without a wire: Ethernet's.
const MTU_ALONE: u32 = 1500;

impl Underlay {
    /// The link that is named, or that of the default route; in the calling thread's namespace. Without either, or
    /// where that of the default route has no address, it is the loopback, unless a wire `is_needed`.
    ///
    /// # Errors
    /// In words: there is no such link or route, or the link has no address.
    pub fn find(named: Option<&IfName>, is_needed: bool) -> Result<Underlay, String> {
        let netlink = Netlink::open().map_err(|error| error.to_string())?;
        match named {
            Some(name) if name.as_str() == LOOPBACK && !is_needed => Ok(Underlay::alone()),
            named => match Underlay::link(&netlink, named)? {
                Some(link) => match Underlay::on(&netlink, link, Addresses::default()) {
                    // Its lease has run out, and it may come back.
                    Err(_) if named.is_none() && !is_needed => Ok(Underlay::alone()),
                    found => found,
                },
                None if is_needed => Err(NO_ROUTE.to_owned()),
                None => Ok(Underlay::alone()),
            },
        }
    }

    /// The same for a node that others may know already. It stays on its link while that is up and has the address by
    /// which they know it, though the default route may be another one's meanwhile, unless a link is named; and it
    /// keeps each address as long as its link has it.
    ///
    /// # Errors
    /// In words: there is no such link or route, or the link has no address.
    pub fn find_again(named: Option<&IfName>, known: Option<&KnownPlace>) -> Result<Underlay, String> {
        let netlink = Netlink::open().map_err(|error| error.to_string())?;
        let before = known.map_or_else(Addresses::default, |known| known.addresses);
        if let (None, Some(known)) = (named, known)
            && let Some(link) = netlink.link(&known.wire).map_err(|error| error.to_string())?
            && link.up
            && let Ok(found) = Underlay::on(&netlink, link, before)
            && found.addresses.iter().any(|address| before.iter().any(|before| before == address))
        {
            return Ok(found);
        }
        let link = Underlay::link(&netlink, named)?.ok_or(NO_ROUTE)?;
        Underlay::on(&netlink, link, before)
    }

    /// The link that is named, or that of the default route; `None`: there is no such route.
    fn link(netlink: &Netlink, named: Option<&IfName>) -> Result<Option<LinkInfo>, String> {
        let Some(name) = named else {
            return netlink.link_of_default_route().map_err(|error| error.to_string());
        };
        let link = netlink.link(name).map_err(|error| error.to_string())?;
        link.map(Some).ok_or_else(|| format!("there is no link {name}"))
    }

    fn on(netlink: &Netlink, link: LinkInfo, known: Addresses) -> Result<Underlay, String> {
        let mut usable = netlink.addresses_by_age(link.index).map_err(|error| error.to_string())?;
        usable.retain(|info| info.scope == UNIVERSE && !info.tentative);
        let addresses = chosen(&usable, known);
        if addresses.families().is_empty() {
            return Err(format!("link {} has no address", link.name));
        }
        let subnets = usable.iter().map(|info| info.address).collect();
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

/// One address of each family of those of a link, which are in the order of their age: the one that is `known`, else
/// the one that is most likely the machine's own.
///
/// What others share or may go does not count where there is another one: an address for one host alone, as virtual
/// addresses that move between machines have it (the default of keepalived and kube-vip); one that came after another
/// one of its prefix; one from which nothing new is to be sent. A temporary one does not stay known.
fn chosen(addresses: &[AddressInfo], known: Addresses) -> Addresses {
    let rank = |info: &&AddressInfo| {
        let address = info.address.addr();
        let is_temporary = address.is_ipv6() && info.secondary;
        let is_known = known.iter().any(|known| known == address);
        let is_of_one_host = info.address.prefix_len() == info.address.max_prefix_len();
        (is_temporary, !is_known, is_of_one_host, info.secondary, info.deprecated)
    };
    let mut ranked: Vec<&AddressInfo> = addresses.iter().collect();
    ranked.sort_by_key(rank);
    ranked.into_iter().map(|info| info.address.addr()).collect()
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

    /// The choice among addresses with flags, `2` for secondary and `d` for deprecated, the oldest first.
    fn chosen_of(addresses: &[(&str, &str)], known: &[&str]) -> Vec<String> {
        let info = |(address, flags): &(&str, &str)| AddressInfo {
            index: 2,
            address: address.parse().unwrap(),
            scope: UNIVERSE,
            permanent: true,
            tentative: false,
            secondary: flags.contains('2'),
            deprecated: flags.contains('d'),
        };
        let infos: Vec<AddressInfo> = addresses.iter().map(info).collect();
        let known = known.iter().map(|text| text.parse::<IpAddr>().unwrap()).collect();
        chosen(&infos, known).iter().map(|address| address.to_string()).collect()
    }

    #[test]
    fn a_node_is_known_by_the_address_that_is_its_own() {
        let none: [&str; 0] = [];
        // A virtual address comes for a while: one host's alone, or of the same prefix.
        assert_eq!(chosen_of(&[("10.0.0.21/24", ""), ("10.0.0.10/32", "")], &none), ["10.0.0.21"]);
        assert_eq!(chosen_of(&[("10.0.0.10/32", ""), ("10.0.0.21/24", "")], &none), ["10.0.0.21"]);
        assert_eq!(chosen_of(&[("10.0.0.10/24", "2"), ("10.0.0.21/24", "")], &none), ["10.0.0.21"]);
        // Of two that are alike the older one, whatever its number.
        assert_eq!(chosen_of(&[("10.0.1.21/24", ""), ("10.0.0.10/24", "")], &none), ["10.0.1.21"]);
        // A machine of a cloud has none but such.
        assert_eq!(chosen_of(&[("10.0.0.21/32", ""), ("10.0.0.10/32", "")], &none), ["10.0.0.21"]);
        let v6 = [("fd00::1d/64", "2"), ("fd01::1/64", "d"), ("fd00::5/128", "d"), ("fd00::f/64", "")];
        assert_eq!(chosen_of(&v6, &none), ["fd00::f"]);
        assert_eq!(chosen_of(&v6[..3], &none), ["fd01::1"]);
        assert_eq!(chosen_of(&v6[..1], &none), ["fd00::1d"]);
        assert_eq!(chosen_of(&[], &none), none);
    }

    #[test]
    fn a_node_keeps_its_address_as_long_as_it_has_it() {
        let both = [("10.0.0.21/24", ""), ("10.0.0.10/32", "d"), ("fd00::1/64", ""), ("fd00::2/64", "d")];
        assert_eq!(chosen_of(&both, &["10.0.0.10", "fd00::2"]), ["10.0.0.10", "fd00::2"]);
        assert_eq!(chosen_of(&both, &["10.0.0.11", "fd00::2"]), ["10.0.0.21", "fd00::2"]);
        // The kernel gives up a temporary one after a day.
        let temporary = [("fd00::1d/64", "2"), ("fd00::2/64", "")];
        assert_eq!(chosen_of(&temporary, &["fd00::1d"]), ["fd00::2"]);
        assert_eq!(chosen_of(&temporary[..1], &["fd00::1d"]), ["fd00::1d"]);
    }

    #[test]
    fn a_node_s_number_is_the_end_of_its_address() {
        let of = |texts: &[&str]| number(&texts.iter().map(|text| text.parse().unwrap()).collect());
        assert_eq!(of(&["192.168.1.7", "fd00::9"]), Some(263));
        assert_eq!(of(&["fd00::9"]), Some(9));
        assert_eq!((of(&["10.0.0.0"]), of(&[])), (None, None));
    }
}
