//! From which addresses pods get theirs.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;

/// A range as a configuration gives it, with the keys of `host-local`: `{"subnet": "10.1.0.0/16", "rangeStart":
/// "10.1.2.0"}`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The subnet, without host bits. Its length is that of the pods' addresses.
    pub subnet: IpNet,
    /// The first address; by default the one after the subnet's own.
    #[serde(rename = "rangeStart")]
    pub start: Option<IpAddr>,
    /// The last address; by default the last of the subnet, in IPv4 the one before the broadcast address.
    #[serde(rename = "rangeEnd")]
    pub end: Option<IpAddr>,
    /// The pods' gateway, which is not given to any; by default the address after the subnet's own.
    pub gateway: Option<IpAddr>,
}

/// Checked range sets. A pod gets one address from each: dual stack is two sets. The ranges of a set are used in their
/// order.
///
/// As JSON it is the `ranges` of `host-local`: `[[{"subnet": "10.1.0.0/16"}], [{"subnet": "fd00::/64"}]]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<Vec<Range>>")]
pub struct RangeSets {
    sets: Vec<RangeSet>,
    /// Those of all ranges: none is given to a pod, not even from another range.
    gateways: BTreeSet<IpAddr>,
}

/// Ranges of which a pod gets one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RangeSet {
    pub(crate) spans: Vec<Span>,
}

/// A range with its defaults filled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// The first address that a pod may get. Never that of the subnet.
    pub(crate) first: IpAddr,
    /// The last one. Never an IPv4 broadcast address.
    pub(crate) last: IpAddr,
    pub(crate) gateway: IpAddr,
    pub(crate) prefix_len: u8,
}

/// Why ranges cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// There is no range set, or one without a range.
    #[error("take addresses from {0}: there is no range in it")]
    Empty(String),
    /// A subnet without room for a gateway and a pod.
    #[error("take addresses from subnet {0}: it is too small; it needs two bits for hosts")]
    TooSmall(IpNet),
    /// An IPv4 subnet that is written as an IPv6 one, whose addresses have two spellings.
    #[error("take addresses from subnet {0}: it is IPv4 written as IPv6")]
    Mapped(IpNet),
    /// A subnet that is given by the address of a host.
    #[error("take addresses from subnet {subnet}: it has host bits set; the network is {network}")]
    HostBits {
        /// The subnet as it was given.
        subnet: IpNet,
        /// What it was likely meant to be.
        network: IpNet,
    },
    /// An address outside its subnet.
    #[error("use {address} as {key}: it is outside the subnet {subnet}")]
    Outside {
        /// The key of the configuration: "rangeStart", "rangeEnd" or "gateway".
        key: &'static str,
        /// The address that lies outside.
        address: IpAddr,
        /// The subnet of the same range.
        subnet: IpNet,
    },
    /// A range that ends before it begins, or has only the network's own or the broadcast address.
    #[error("take addresses from {start} to {end}: there is none for a pod")]
    NoAddress {
        /// The first address that was to be taken.
        start: IpAddr,
        /// The last address that was to be taken.
        end: IpAddr,
    },
    /// A set of both families, from which a pod would get one or the other.
    #[error("take addresses from range set {set}: {first} and {other} are of two families; make it two sets")]
    TwoFamilies {
        /// The index of the range set, from 0.
        set: usize,
        /// The first range of the set, which decides the family.
        first: String,
        /// The one that does not fit.
        other: String,
    },
    /// An address in two ranges.
    #[error("take addresses from {first} and {other}: they overlap")]
    Overlap {
        /// The range that comes first.
        first: String,
        /// One that shares addresses with it.
        other: String,
    },
}

impl RangeSets {
    /// Checks range sets and fills in what was left to its default.
    ///
    /// # Errors
    /// A [`RangeError`], which names the wrong value.
    pub fn new(sets: &[Vec<Range>]) -> Result<RangeSets, RangeError> {
        if sets.is_empty() {
            return Err(RangeError::Empty("no range set".to_owned()));
        }
        let checked = sets.iter().enumerate().map(|(index, ranges)| RangeSet::new(index, ranges));
        let sets = checked.collect::<Result<Vec<_>, _>>()?;
        let spans: Vec<&Span> = sets.iter().flat_map(|set| &set.spans).collect();
        for (index, first) in spans.iter().enumerate() {
            if let Some(other) = spans[index + 1..].iter().find(|other| first.overlaps(other)) {
                return Err(RangeError::Overlap { first: first.to_string(), other: other.to_string() });
            }
        }
        let gateways = spans.iter().map(|span| span.gateway).collect();
        Ok(RangeSets { sets, gateways })
    }

    /// How many sets there are, and so how many addresses a pod gets.
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// The index of the set in whose ranges an address is.
    pub fn set_of(&self, address: IpAddr) -> Option<usize> {
        self.sets.iter().position(|set| set.span_of(address).is_some())
    }

    pub(crate) fn sets(&self) -> &[RangeSet] {
        &self.sets
    }

    pub(crate) fn gateways(&self) -> &BTreeSet<IpAddr> {
        &self.gateways
    }
}

impl TryFrom<Vec<Vec<Range>>> for RangeSets {
    type Error = RangeError;

    fn try_from(sets: Vec<Vec<Range>>) -> Result<RangeSets, RangeError> {
        RangeSets::new(&sets)
    }
}

impl RangeSet {
    fn new(set: usize, ranges: &[Range]) -> Result<RangeSet, RangeError> {
        let spans = ranges.iter().map(Span::new).collect::<Result<Vec<_>, _>>()?;
        let Some(first) = spans.first() else { return Err(RangeError::Empty(format!("range set {set}"))) };
        match spans.iter().find(|span| span.first.is_ipv4() != first.first.is_ipv4()) {
            Some(other) => {
                Err(RangeError::TwoFamilies { set, first: first.to_string(), other: other.to_string() })
            }
            None => Ok(RangeSet { spans }),
        }
    }

    pub(crate) fn span_of(&self, address: IpAddr) -> Option<&Span> {
        self.spans.iter().find(|span| span.contains(address))
    }
}

impl Span {
    fn new(range: &Range) -> Result<Span, RangeError> {
        let subnet = range.subnet;
        if subnet.addr() != subnet.addr().to_canonical() {
            return Err(RangeError::Mapped(subnet));
        }
        if subnet.prefix_len() > subnet.max_prefix_len() - 2 {
            return Err(RangeError::TooSmall(subnet));
        }
        if subnet != subnet.trunc() {
            return Err(RangeError::HostBits { subnet, network: subnet.trunc() });
        }
        let second = next(subnet.network()).expect("a subnet with two bits for hosts has four addresses");
        // The last address of an IPv6 subnet is one as any other.
        let usable_end = match subnet {
            IpNet::V4(subnet) => subnet.hosts().next_back().map_or(second, IpAddr::V4),
            IpNet::V6(subnet) => subnet.broadcast().into(),
        };
        let inside = |key, given: Option<IpAddr>, default| match given.map(|address| address.to_canonical()) {
            Some(address) if !subnet.contains(&address) => Err(RangeError::Outside { key, address, subnet }),
            given => Ok(given.unwrap_or(default)),
        };
        let start = inside("rangeStart", range.start, second)?;
        let end = inside("rangeEnd", range.end, usable_end)?;
        let gateway = inside("gateway", range.gateway, second)?;
        // host-local takes a range that begins with the subnet's own address, and gives it to a pod that no one can
        // reach then. The range is accepted here as well; these addresses are left out.
        let (first, last) = (start.max(second), end.min(usable_end));
        if start > end || first > last {
            return Err(RangeError::NoAddress { start, end });
        }
        Ok(Span { first, last, gateway, prefix_len: subnet.prefix_len() })
    }

    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.first.is_ipv4() == address.is_ipv4() && (self.first..=self.last).contains(&address)
    }

    fn overlaps(&self, other: &Span) -> bool {
        self.first.is_ipv4() == other.first.is_ipv4() && self.first <= other.last && other.first <= self.last
    }

    /// How many addresses there are, gateways among them. There is no overflow, since no subnet's own address is in it.
    pub(crate) fn size(&self) -> u128 {
        bits(self.last) - bits(self.first) + 1
    }
}

/// As `host-local` writes ranges in its messages: `10.1.0.1-10.1.255.254`.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// All ranges, with a comma between two.
impl fmt::Display for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, &self.spans)
    }
}

/// All ranges of all sets, with a comma between two.
impl fmt::Display for RangeSets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, &self.sets)
    }
}

/// The address after another, of the same family; `None` after the last.
pub(crate) fn next(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(address) => address.to_bits().checked_add(1).map(|bits| IpAddr::V4(bits.into())),
        IpAddr::V6(address) => address.to_bits().checked_add(1).map(|bits| IpAddr::V6(bits.into())),
    }
}

fn write_list(f: &mut fmt::Formatter<'_>, items: &[impl fmt::Display]) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        item.fmt(f)?;
    }
    Ok(())
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<RangeSets, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn check(json: &str, expected: &str) {
        let sets = read(json).unwrap();
        let gateways: Vec<_> = sets.gateways().iter().map(ToString::to_string).collect();
        assert_eq!(format!("{sets} by {}", gateways.join(", ")), expected);
    }

    #[track_caller]
    fn check_refused(json: &str, expected: &str) {
        let error = read(json).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn what_is_not_given_has_the_defaults_of_host_local() {
        check(r#"[[{"subnet":"10.1.0.0/16"}]]"#, "10.1.0.1-10.1.255.254 by 10.1.0.1");
        check(r#"[[{"subnet":"fd00::/64"}]]"#, "fd00::1-fd00::ffff:ffff:ffff:ffff by fd00::1");
        check(r#"[[{"subnet":"10.1.0.0/30","rangeEnd":"10.1.0.1"}]]"#, "10.1.0.1-10.1.0.1 by 10.1.0.1");
        let all = r#"[[{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.9","rangeEnd":"10.1.0.20","gateway":"10.1.0.254"}]]"#;
        check(all, "10.1.0.9-10.1.0.20 by 10.1.0.254");
        check(r#"[[{"subnet":"::/0"}]]"#, "::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff by ::1");
    }

    #[test]
    fn no_pod_gets_the_address_of_the_subnet_or_of_all() {
        let whole = r#"[[{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.0","rangeEnd":"10.1.0.255"}]]"#;
        check(whole, "10.1.0.1-10.1.0.254 by 10.1.0.1");
        let own = r#"[[{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.0","rangeEnd":"10.1.0.0"}]]"#;
        check_refused(own, "take addresses from 10.1.0.0 to 10.1.0.0: there is none for a pod");
    }

    #[test]
    fn a_wrong_value_is_named() {
        let refused = [
            ("[]", "no range set"),
            ("[[]]", "range set 0: there is no range"),
            (r#"[[{"subnet":"10.1.0.0/31"}]]"#, "subnet 10.1.0.0/31: it is too small"),
            (r#"[[{"subnet":"fd00::/127"}]]"#, "subnet fd00::/127: it is too small"),
            (r#"[[{"subnet":"::ffff:10.0.0.0/104"}]]"#, "IPv4 written as IPv6"),
            (
                r#"[[{"subnet":"10.1.0.1/24"}]]"#,
                "10.1.0.1/24: it has host bits set; the network is 10.1.0.0/24",
            ),
            (r#"[[{"subnet":"10.1.0.0/24","rangeStart":"10.2.0.1"}]]"#, "use 10.2.0.1 as rangeStart"),
            (r#"[[{"subnet":"10.1.0.0/24","rangeEnd":"fd00::1"}]]"#, "use fd00::1 as rangeEnd"),
            (r#"[[{"subnet":"10.1.0.0/24","gateway":"10.2.0.1"}]]"#, "use 10.2.0.1 as gateway"),
            (
                r#"[[{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.9","rangeEnd":"10.1.0.8"}]]"#,
                "from 10.1.0.9 to 10.1.0.8",
            ),
            (
                r#"[[{"subnet":"10.1.0.0/24"},{"subnet":"fd00::/64"}]]"#,
                "range set 0: 10.1.0.1-10.1.0.254 and fd00",
            ),
            (
                r#"[[{"subnet":"10.1.0.0/24"}],[{"subnet":"10.1.0.0/16"}]]"#,
                "10.1.0.1-10.1.255.254: they overlap",
            ),
            (r#"[[{"subnet":"10.1.0.0/24","range_start":"10.1.0.9"}]]"#, "unknown field `range_start`"),
        ];
        for (json, expected) in refused {
            check_refused(json, expected);
        }
    }

    #[test]
    fn an_address_is_in_one_set_at_most() {
        let sets = read(r#"[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/64"}]]"#).unwrap();
        let set_of = |address: &str| sets.set_of(address.parse().unwrap());
        assert_eq!(["10.1.0.7", "fd00::7", "10.1.1.0", "::1"].map(set_of), [Some(0), Some(1), None, None]);
        assert_eq!(sets.sets()[1].spans[0].size(), u128::from(u64::MAX));
    }
}
