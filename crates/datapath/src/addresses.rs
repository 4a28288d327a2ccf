//! Addresses and prefixes of one family or both.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The version of the Internet Protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Family {
    V4,
    V6,
}

/// An IPv4 address, an IPv6 address, or one of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Addresses {
    pub v4: Option<Ipv4Addr>,
    pub v6: Option<Ipv6Addr>,
}

/// Prefixes, any number of each family, without host bits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prefixes(Vec<IpNet>);

impl Family {
    /// IPv4 first, as in all texts.
    pub const BOTH: [Family; 2] = [Family::V4, Family::V6];

    /// The family of an address; one of IPv6 that stands for one of IPv4 (`::ffff:0:0/96`) is of IPv6.
    pub fn of(address: IpAddr) -> Family {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// The name for texts: "IPv4" or "IPv6".
    pub fn name(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    /// Those of which there is something, IPv4 first.
    fn those(v4: bool, v6: bool) -> &'static [Family] {
        match (v4, v6) {
            (true, true) => &Family::BOTH,
            (true, false) => &[Family::V4],
            (false, true) => &[Family::V6],
            (false, false) => &[],
        }
    }
}

impl Addresses {
    /// One address of each family.
    pub fn both(v4: Ipv4Addr, v6: Ipv6Addr) -> Addresses {
        Addresses { v4: Some(v4), v6: Some(v6) }
    }

    /// The address of this family; `None` if there is none.
    pub fn of(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::V4 => self.v4.map(IpAddr::from),
            Family::V6 => self.v6.map(IpAddr::from),
        }
    }

    /// The addresses, IPv4 first.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let v6 = self.v6.map(IpAddr::from);
        self.v4.map(IpAddr::from).into_iter().chain(v6)
    }

    /// The families of which there is an address.
    pub fn families(&self) -> &'static [Family] {
        Family::those(self.v4.is_some(), self.v6.is_some())
    }

    /// As prefixes of full length: nothing but the address itself.
    pub fn alone(&self) -> impl Iterator<Item = IpNet> + use<> {
        self.iter().map(IpNet::from)
    }

    /// The addresses of these families.
    #[must_use]
    pub fn only(&self, families: &[Family]) -> Addresses {
        let has = |family| families.contains(&family);
        Addresses { v4: self.v4.filter(|_| has(Family::V4)), v6: self.v6.filter(|_| has(Family::V6)) }
    }
}

impl FromIterator<IpAddr> for Addresses {
    /// Of several addresses of a family the first counts.
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addresses: I) -> Addresses {
        addresses.into_iter().fold(Addresses::default(), |found, address| match address {
            IpAddr::V4(v4) => Addresses { v4: found.v4.or(Some(v4)), ..found },
            IpAddr::V6(v6) => Addresses { v6: found.v6.or(Some(v6)), ..found },
        })
    }
}

impl Prefixes {
    /// The default routes' destinations in some families.
    pub fn everywhere(families: &[Family]) -> Prefixes {
        let all = |family: &Family| match family {
            Family::V4 => IpNet::from(Ipv4Net::default()),
            Family::V6 => IpNet::from(Ipv6Net::default()),
        };
        families.iter().map(all).collect()
    }

    /// The prefixes in their order.
    pub fn iter(&self) -> impl Iterator<Item = IpNet> + '_ {
        self.0.iter().copied()
    }

    /// The prefixes of a family in their order.
    pub fn of(&self, family: Family) -> impl Iterator<Item = IpNet> + '_ {
        self.iter().filter(move |net| Family::of(net.addr()) == family)
    }

    /// The prefixes of these families.
    #[must_use]
    pub fn only(&self, families: &[Family]) -> Prefixes {
        self.iter().filter(|net| families.contains(&Family::of(net.addr()))).collect()
    }

    /// The families of which there is a prefix.
    pub fn families(&self) -> &'static [Family] {
        let has = |family| self.of(family).next().is_some();
        Family::those(has(Family::V4), has(Family::V6))
    }

    /// The prefix in which an address lies, the longest if there are several.
    pub fn holding(&self, address: IpAddr) -> Option<IpNet> {
        self.iter().filter(|net| net.contains(&address)).max_by_key(IpNet::prefix_len)
    }

    /// The first address of each family's first prefix.
    pub fn networks(&self) -> Addresses {
        self.iter().map(|net| net.network()).collect()
    }
}

impl fmt::Display for Prefixes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.iter().map(|net| net.to_string()).collect();
        f.write_str(&texts.join(", "))
    }
}

impl FromIterator<IpNet> for Prefixes {
    fn from_iter<I: IntoIterator<Item = IpNet>>(nets: I) -> Prefixes {
        Prefixes(nets.into_iter().map(|net| net.trunc()).collect())
    }
}

/// The first address of a prefix behind the network's own: the node's, and its pods' gateway.
pub fn gateway_in(net: IpNet) -> IpAddr {
    match net {
        IpNet::V4(v4) => Ipv4Addr::from_bits(v4.network().to_bits() + 1).into(),
        IpNet::V6(v6) => Ipv6Addr::from_bits(v6.network().to_bits() + 1).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes(texts: &[&str]) -> Prefixes {
        texts.iter().map(|text| text.parse::<IpNet>().expect("a sound prefix")).collect()
    }

    #[test]
    fn families_are_those_of_the_prefixes() {
        assert_eq!(prefixes(&["fd00::/64", "10.0.0.0/8"]).families(), Family::BOTH);
        assert_eq!(prefixes(&["fd00::/64"]).families(), [Family::V6]);
        assert_eq!(prefixes(&[]).families(), []);
    }

    #[test]
    fn an_address_lies_in_the_longest_prefix() {
        let prefixes = prefixes(&["10.0.0.0/8", "10.1.0.9/16", "fd00::/64"]);
        let holding = |address: &str| prefixes.holding(address.parse().unwrap()).map(|net| net.to_string());
        assert_eq!(holding("10.1.2.3").unwrap(), "10.1.0.0/16");
        assert_eq!(holding("10.2.2.3").unwrap(), "10.0.0.0/8");
        assert_eq!(holding("11.0.0.1"), None);
    }

    #[test]
    fn the_first_address_of_a_family_counts() {
        let texts = ["10.0.0.1", "fd00::1", "10.0.0.2"];
        let addresses: Addresses = texts.iter().map(|text| text.parse::<IpAddr>().unwrap()).collect();
        let both = Addresses::both("10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap());
        assert_eq!(addresses, both);
        assert_eq!(addresses.only(&[Family::V6]).iter().count(), 1);
    }
}
