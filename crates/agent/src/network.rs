//! The configuration of a network in flannel's words: `net-conf.json`, the same text in etcd and in Kubernetes.
//!
//! Keys are found whatever their case, as by flannel, whose own manual writes `Backend.Type` and whose code `vni`.

mod wireguard;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use datapath::Family;
use ipnet::IpNet;
use serde_json::{Map, Value};

pub use self::wireguard::{Mode, WireGuardConfig};
use crate::backend::BackendKind;

/// What flannel runs if the configuration names no backend.
const BACKEND_DEFAULT: &str = "udp";
/// The port of a tunnel that names none: the Linux kernel's own, older than the one that IANA assigned.
const PORT_DEFAULT: u16 = 8472;
/// An identifier of a tunnel has 24 bits.
const VNI_MAX: u32 = (1 << 24) - 1;

/// The network that nodes share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkConfig {
    /// The prefixes of all pods by family, IPv4 first, and how nodes divide them.
    pub networks: Vec<Network>,
    /// Whether rules are to be nftables (`EnableNFTables`).
    pub nftables: bool,
    /// How packets get from node to node.
    pub backend: Backend,
}

/// The pods' prefix of one family, as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// The prefix of all pods (`Network`, `IPv6Network`).
    pub prefix: IpNet,
    subnet_len: Option<u8>,
    subnet_min: Option<IpAddr>,
    subnet_max: Option<IpAddr>,
}

/// The way between nodes (`Backend`).
///
/// Keys that are unknown are no error. All nodes read the same text, flannel's among them, and an option for another
/// program must not take a node out of the network. They are listed so that the log can name them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// Its name in lower case (`Type`): `host-gw`, `vxlan`, `wireguard`, `aws-vpc`.
    pub kind: String,
    /// The identifier of the tunnel (`VNI`).
    pub vni: u32,
    /// The tunnel's UDP port (`Port`); 0 is the kernel's default.
    pub port: u16,
    /// Whether nodes on the same link send without the tunnel (`DirectRouting`).
    pub direct_routing: bool,
    /// The MTU of the nodes' link in bytes, from which that of pods follows, where it is not to be read from the link.
    pub mtu_bytes: Option<u32>,
    /// The cloud's route tables that lead to the nodes (`RouteTableID`, one or a list); none: that
    /// of each node's subnet.
    pub tables: Vec<String>,
    /// How the tunnels of `wireguard` are.
    pub wireguard: WireGuardConfig,
    /// The keys that say nothing to us, in alphabetical order.
    pub ignored: Vec<String>,
}

/// The prefixes that nodes take for their pods from a [`Network`]: all of one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subnets {
    family: Family,
    len: u8,
    /// The addresses of the first and the last one.
    min: u128,
    max: u128,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum NetworkError {
    /// It is no JSON object.
    #[error("the network's configuration is {0}, and a JSON object is expected")]
    NoObject(Value),
    /// A value is another than it may be.
    #[error("`{key}` is {found}, and {expected} is expected")]
    #[expect(missing_docs, reason = "the names say it")]
    Unexpected { key: String, found: Value, expected: &'static str },
    /// The family is enabled and has no prefix.
    #[error("`{key}` is missing, the prefix of all pods' {family} addresses")]
    #[expect(missing_docs, reason = "the names say it")]
    NoNetwork { key: &'static str, family: &'static str },
    /// No family is enabled.
    #[error("`EnableIPv4` and `EnableIPv6` are both false")]
    NoFamily,
    /// The backend has no name.
    #[error("`Backend.Type` is missing")]
    NoBackend,
    /// The network cannot be divided so.
    #[error("`{key}` is {found}; {rule}")]
    #[expect(missing_docs, reason = "the names say it")]
    Division { key: &'static str, found: String, rule: String },
}

/// The keys of a family.
struct Keys {
    enable: &'static str,
    network: &'static str,
    len: &'static str,
    min: &'static str,
    max: &'static str,
}

const V4: Keys =
    Keys { enable: "EnableIPv4", network: "Network", len: "SubnetLen", min: "SubnetMin", max: "SubnetMax" };
const V6: Keys = Keys {
    enable: "EnableIPv6",
    network: "IPv6Network",
    len: "IPv6SubnetLen",
    min: "IPv6SubnetMin",
    max: "IPv6SubnetMax",
};

impl NetworkConfig {
    /// Reads a configuration. How it divides its prefixes among nodes is not looked at: with Kubernetes its
    /// controller does that, and `SubnetLen` and its like mean nothing.
    ///
    /// # Errors
    /// The first value that is wrong.
    pub fn parse(conf: &Value) -> Result<NetworkConfig, NetworkError> {
        let object = conf.as_object().ok_or_else(|| NetworkError::NoObject(conf.clone()))?;
        let mut networks = Vec::new();
        for (family, enabled) in [(Family::V4, true), (Family::V6, false)] {
            if flag(object, "", keys(family).enable)?.unwrap_or(enabled) {
                networks.push(Network::parse(object, family)?);
            }
        }
        if networks.is_empty() {
            return Err(NetworkError::NoFamily);
        }
        let nftables = flag(object, "", "EnableNFTables")?.unwrap_or(false);
        Ok(NetworkConfig { networks, nftables, backend: Backend::parse(object)? })
    }

    /// The prefixes that nodes take for their pods, by family.
    ///
    /// # Errors
    /// A network is too small, or `SubnetLen`, `SubnetMin` or `SubnetMax` do not fit it.
    pub fn subnets(&self) -> Result<Vec<Subnets>, NetworkError> {
        self.networks.iter().map(Network::subnets).collect()
    }
}

impl Network {
    fn parse(object: &Map<String, Value>, family: Family) -> Result<Network, NetworkError> {
        let keys = keys(family);
        let (a_prefix, an_address) = match family {
            Family::V4 => ("an IPv4 prefix such as \"10.5.0.0/16\"", "an IPv4 address"),
            Family::V6 => ("an IPv6 prefix such as \"fc00::/48\"", "an IPv6 address"),
        };
        let of_family = |net: &IpNet| Family::of(net.addr()) == family;
        let prefix = read(object, "", keys.network, a_prefix, |value| {
            value.as_str()?.parse::<IpNet>().ok().filter(of_family)
        })?;
        // flannel takes this one for a prefix that is not there.
        let prefix = prefix
            .filter(|net| net.prefix_len() > 0 || !net.addr().is_unspecified())
            .ok_or(NetworkError::NoNetwork { key: keys.network, family: family.name() })?;
        let bound = |key| {
            let bound = read(object, "", key, an_address, |value| {
                value.as_str()?.parse().ok().filter(|address| Family::of(*address) == family)
            });
            bound.map(|bound| bound.filter(|address| !address.is_unspecified()))
        };
        let len = read(object, "", keys.len, "a length of a prefix", |value| {
            u8::try_from(value.as_u64()?).ok().filter(|len| *len <= prefix.max_prefix_len())
        })?;
        Ok(Network {
            prefix: prefix.trunc(),
            subnet_len: len.filter(|len| *len > 0),
            subnet_min: bound(keys.min)?,
            subnet_max: bound(keys.max)?,
        })
    }

    fn subnets(&self) -> Result<Subnets, NetworkError> {
        let family = Family::of(self.prefix.addr());
        let keys = keys(family);
        let len = self.subnet_len()?;
        let size = 1 << (self.prefix.max_prefix_len() - len);
        let is_within = |key, address: Option<IpAddr>, otherwise: u128| {
            let Some(address) = address else { return Ok(otherwise) };
            let refuse = |rule| Err(NetworkError::Division { key, found: address.to_string(), rule });
            if !self.prefix.contains(&address) {
                return refuse(format!("it lies outside of `{}`, {}", keys.network, self.prefix));
            }
            match bits(address) % size {
                0 => Ok(bits(address)),
                _ => refuse(format!("no prefix of length {len} begins there")),
            }
        };
        // The first one is left out: an interface with its first address would have that of the whole network.
        let min = is_within(keys.min, self.subnet_min, bits(self.prefix.network()) + size)?;
        let max = is_within(keys.max, self.subnet_max, bits(self.prefix.broadcast()) - (size - 1))?;
        if min > max {
            let rule = format!("`{}` is {}, before it", keys.max, address(family, max));
            return Err(NetworkError::Division {
                key: keys.min,
                found: address(family, min).to_string(),
                rule,
            });
        }
        Ok(Subnets { family, len, min, max })
    }

    /// The length of the prefix of a node. Each needs four addresses, for a bridge and pods, and four of them must fit
    /// into the network, of which the first is not used.
    fn subnet_len(&self) -> Result<u8, NetworkError> {
        let family = Family::of(self.prefix.addr());
        let keys = keys(family);
        let (longest, usual) = match family {
            Family::V4 => (30, 24),
            Family::V6 => (126, 64),
        };
        let least = self.prefix.prefix_len().saturating_add(2);
        let Some(len) = self.subnet_len else {
            if least > longest {
                let rule = format!("it is too small: /{} is the smallest network", longest - 2);
                return Err(NetworkError::Division {
                    key: keys.network,
                    found: self.prefix.to_string(),
                    rule,
                });
            }
            return Ok(least.max(usual));
        };
        let rule = match (len > longest, len < least) {
            (true, _) => format!("{longest} is the longest"),
            (_, true) => format!("four of them must fit into `{}`, {}", keys.network, self.prefix),
            (false, false) => return Ok(len),
        };
        Err(NetworkError::Division { key: keys.len, found: len.to_string(), rule })
    }
}

impl Backend {
    /// Whether it is this one.
    pub(crate) fn is(&self, kind: BackendKind) -> bool {
        self.kind == kind.name()
    }

    /// The UDP port of its tunnel over a family.
    pub(crate) fn port_over(&self, kind: BackendKind, outer: Family) -> u16 {
        match kind {
            BackendKind::WireGuard => self.wireguard.port_over(outer),
            BackendKind::HostGw | BackendKind::Vxlan | BackendKind::AwsVpc => self.port,
        }
    }

    fn parse(object: &Map<String, Value>) -> Result<Backend, NetworkError> {
        let empty = Map::new();
        let found = read(object, "", "Backend", "an object", Value::as_object)?;
        let kind = match found {
            None => BACKEND_DEFAULT.to_owned(),
            Some(found) => read(found, "Backend.", "Type", "a text", Value::as_str)?
                .filter(|kind| !kind.is_empty())
                .ok_or(NetworkError::NoBackend)?
                .to_ascii_lowercase(),
        };
        let is_wireguard = kind == BackendKind::WireGuard.name();
        let found = found.unwrap_or(&empty);
        let number = |key, expected, max: u32| {
            let number = |value: &Value| u32::try_from(value.as_u64()?).ok().filter(|number| *number <= max);
            read(found, "Backend.", key, expected, number)
        };
        let port = number("Port", "a port from 0 to 65535", u32::from(u16::MAX))?;
        let known = ["Type", "VNI", "Port", "DirectRouting", "MTU", "RouteTableID"];
        let of_wireguard = if is_wireguard { &wireguard::KEYS[..] } else { &[] };
        let is_known =
            |key: &String| known.iter().chain(of_wireguard).any(|known| known.eq_ignore_ascii_case(key));
        Ok(Backend {
            kind,
            vni: number("VNI", "a number from 0 to 16777215", VNI_MAX)?.unwrap_or(1),
            port: port
                .and_then(|port| u16::try_from(port).ok())
                .filter(|port| *port > 0)
                .unwrap_or(PORT_DEFAULT),
            direct_routing: flag(found, "Backend.", "DirectRouting")?.unwrap_or(false),
            mtu_bytes: number("MTU", "a number of bytes", u32::MAX)?.filter(|mtu| *mtu > 0),
            tables: read(found, "Backend.", "RouteTableID", "a text or a list of texts", tables)?
                .unwrap_or_default(),
            // Another backend may have a key of the same name.
            wireguard: WireGuardConfig::parse(if is_wireguard { found } else { &empty })?,
            ignored: found.keys().filter(|key| !is_known(key)).cloned().collect(),
        })
    }
}

impl Subnets {
    /// The family of these prefixes, as of the network from which they are taken.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Whether a prefix is one of them.
    pub fn has(&self, prefix: IpNet) -> bool {
        Family::of(prefix.addr()) == self.family
            && prefix.prefix_len() == self.len
            && (self.min..=self.max).contains(&bits(prefix.network()))
    }

    /// The first of them, no more than `limit`, that overlap none of `taken`. What is taken is jumped over at once,
    /// however many of them lie in it.
    pub fn free(&self, taken: &[IpNet], limit: usize) -> Vec<IpNet> {
        let mut taken: Vec<(u128, u128)> = taken
            .iter()
            .filter(|net| Family::of(net.addr()) == self.family)
            .map(|net| (bits(net.network()), bits(net.broadcast())))
            .collect();
        taken.sort_unstable();
        let last = |first: u128| first + (self.size() - 1);
        let mut free = Vec::new();
        let mut next = Some(self.min);
        let mut taken = taken.into_iter().peekable();
        while let Some(first) = next.filter(|first| *first <= self.max && free.len() < limit) {
            // Those that end before it end before all that follow, too.
            while taken.next_if(|(_, end)| *end < first).is_some() {}
            match taken.peek() {
                Some((begin, end)) if *begin <= last(first) => {
                    next = (end | (self.size() - 1)).checked_add(1);
                }
                _ => {
                    free.extend(IpNet::new(address(self.family, first), self.len));
                    next = last(first).checked_add(1);
                }
            }
        }
        free
    }

    fn size(&self) -> u128 {
        let bits: u8 = match self.family {
            Family::V4 => 32,
            Family::V6 => 128,
        };
        1 << (bits - self.len)
    }
}

fn keys(family: Family) -> Keys {
    match family {
        Family::V4 => V4,
        Family::V6 => V6,
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn address(family: Family, bits: u128) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from_bits(u32::try_from(bits).unwrap_or(u32::MAX)).into(),
        Family::V6 => Ipv6Addr::from_bits(bits).into(),
    }
}

/// The value of a key, whatever the case of its letters. `null` is as if it were absent.
fn field<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let any_case = || object.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value);
    object.get(key).or_else(any_case).filter(|value| !value.is_null())
}

fn read<'a, T>(
    object: &'a Map<String, Value>,
    within: &str,
    key: &str,
    expected: &'static str,
    reader: impl FnOnce(&'a Value) -> Option<T>,
) -> Result<Option<T>, NetworkError> {
    let Some(found) = field(object, key) else { return Ok(None) };
    let unexpected =
        || NetworkError::Unexpected { key: format!("{within}{key}"), found: found.clone(), expected };
    reader(found).ok_or_else(unexpected).map(Some)
}

/// Names of route tables: one, or a list of them.
fn tables(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Array(list) => list.iter().map(|one| Some(one.as_str()?.to_owned())).collect(),
        one => Some(vec![one.as_str()?.to_owned()]),
    }
}

fn flag(object: &Map<String, Value>, within: &str, key: &str) -> Result<Option<bool>, NetworkError> {
    read(object, within, key, "true or false", Value::as_bool)
}

#[cfg(test)]
mod tests;
