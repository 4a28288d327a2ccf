//! What a specification must promise before a driver sees it.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::addresses::gateway_in;
use crate::{Addresses, Family, Network, NodeSpec, Peer, Pod, PublishedPort, SpecError};

/// The smallest MTU in bytes that IPv6 allows on a link (RFC 8200, section 5). Below it the kernel takes IPv6 off.
pub(crate) const MTU_MIN_IPV6: u32 = 1280;
/// The smallest MTU in bytes of an Ethernet link in Linux, which is that of IPv4 (`ETH_MIN_MTU`; RFC 791, section 3.2).
const MTU_MIN_IPV4: u32 = 68;
/// The largest MTU in bytes of an Ethernet link in Linux (`ETH_MAX_MTU`).
const MTU_MAX: u32 = 65535;
/// The largest network identifier of VXLAN (RFC 7348, section 4).
const VNI_MAX: u32 = (1 << 24) - 1;

/// The smallest MTU in bytes of a link for packets of these families.
pub(crate) fn mtu_min(families: &[Family]) -> u32 {
    if families.contains(&Family::V6) { MTU_MIN_IPV6 } else { MTU_MIN_IPV4 }
}

impl Network {
    fn check(&self) -> Result<(), SpecError> {
        let what = || format!("network {}", self.id);
        require(self.id > 0, what, || "ids begin at 1".to_owned())?;
        require((1..=VNI_MAX).contains(&self.vni), what, || {
            format!("a tunnel's identifier of {} is not within 1 to {VNI_MAX}", self.vni)
        })?;
        require(self.port > 0, what, || "a tunnel's port of 0 is none".to_owned())?;
        let mtu_min = mtu_min(self.prefixes.families());
        let mtu = self.mtu.unwrap_or(mtu_min);
        require((mtu_min..=MTU_MAX).contains(&mtu), what, || {
            format!("an MTU of {mtu} bytes is not within {mtu_min} to {MTU_MAX}")
        })?;
        require(!self.prefixes.families().is_empty(), what, || "it has no prefix for pods".to_owned())
    }
}

impl NodeSpec {
    /// Refuses what no data path could be built from.
    pub fn check(&self) -> Result<(), SpecError> {
        let what = || format!("node {}", self.id);
        self.network.check()?;
        require(self.id > 0, what, || "ids begin at 1".to_owned())?;
        let mtu_min = mtu_min(self.families());
        require((mtu_min..=MTU_MAX).contains(&self.wire_mtu), what, || {
            format!("an underlay MTU of {} bytes is not within {mtu_min} to {MTU_MAX}", self.wire_mtu)
        })?;
        let underlay = self.underlay.families();
        require(!underlay.is_empty(), what, || "it has no address on the underlay".to_owned())?;
        require(!self.families().is_empty(), what, || "it has no prefix for its pods".to_owned())?;
        for (at, pods) in self.pods.iter().enumerate() {
            self.check_prefix(pods)?;
            let overlap = self.pods.iter().take(at).find(|other| overlap(*other, pods));
            require(overlap.is_none(), what, || {
                format!("its pods' prefix {pods} overlaps another of its own")
            })?;
        }
        Ok(())
    }

    fn check_prefix(&self, pods: IpNet) -> Result<(), SpecError> {
        let what = || format!("node {}", self.id);
        // A gateway and a pod need room beside the network's and the broadcast address.
        let longest = pods.max_prefix_len() - 2;
        require(pods.prefix_len() <= longest, what, || {
            format!("the pods' prefix {pods} has no room for a gateway and a pod; /{longest} is the longest")
        })?;
        self.network.check_holds(pods, what)
    }

    /// Refuses an underlay inside the pods' prefixes, for attaches where these lie behind the node. Neighbours on the
    /// wire may be of the wire's own subnet.
    pub(crate) fn check_pods_apart(&self) -> Result<(), SpecError> {
        let within = |own: IpAddr| self.pods.holding(own).map(|pods| (own, pods));
        self.underlay.iter().find_map(within).map_or(Ok(()), |(own, pods)| {
            let why = format!("its underlay address {own} lies in its pods' prefix {pods}");
            Err(SpecError { what: format!("node {}", self.id), why })
        })
    }

    /// Refuses an underlay inside the network's prefixes, for transports that route by these prefixes: a route to pods
    /// would swallow the way to the node that leads there.
    pub(crate) fn check_underlay_apart(&self) -> Result<(), SpecError> {
        for own in self.underlay.iter() {
            let cluster = self.network.prefixes.holding(own);
            cluster.map_or(Ok(()), |cluster| {
                let why = format!(
                    "its underlay address {own} lies in the cluster's prefix {cluster}, which is routed"
                );
                Err(SpecError { what: format!("node {}", self.id), why })
            })?;
        }
        Ok(())
    }

    /// Refuses pods of a family that the underlay lacks, for transports that hand their packets to it as they are.
    pub(crate) fn check_underlay_has_families(&self) -> Result<(), SpecError> {
        underlay_has(self.families(), &self.underlay, || format!("node {}", self.id))
    }
}

impl Network {
    fn check_holds(&self, pods: IpNet, what: impl FnOnce() -> String) -> Result<(), SpecError> {
        let family = Family::of(pods.addr());
        let clusters = self.prefixes.only(&[family]);
        require(clusters.iter().any(|cluster| cluster.contains(&pods)), what, || {
            if clusters.families().is_empty() {
                format!("the network has no {} prefix for its pods' {pods}", family.name())
            } else {
                format!("its pods' prefix {pods} lies outside the cluster's {clusters}")
            }
        })
    }
}

impl Pod {
    /// Refuses a pod that cannot be on the node.
    pub fn check(&self, node: &NodeSpec) -> Result<(), SpecError> {
        let what = || format!("pod {} of node {}", self.id, node.id);
        require(self.id > 0, what, || "ids begin at 1".to_owned())?;
        require(self.ifname.as_str() != "lo", what, || "its interface cannot be called lo".to_owned())?;
        require(node.place != self.place, what, || format!("its {} is the node's own", self.place))?;
        require(!self.addresses.families().is_empty(), what, || "it has no address".to_owned())?;
        for address in self.addresses.iter() {
            let pods = node.pods.holding(address).ok_or_else(|| {
                let prefixes = node.pods.only(&[Family::of(address)]);
                let why = if prefixes.families().is_empty() {
                    format!("its address {address} is of a family that the node's pods do not have")
                } else {
                    format!("its address {address} lies outside the node's prefix {prefixes}")
                };
                SpecError { what: what(), why }
            })?;
            require(!is_of_subnet(address, pods), what, || {
                format!("its address {address} is the network's or the broadcast address of {pods}")
            })?;
            let is_nodes = node.underlay.iter().any(|own| own == address);
            require(!is_nodes, what, || format!("its address {address} is the node's own"))?;
        }
        let ports = self.published.iter().all(|port| port.node > 0 && port.pod > 0);
        require(ports, what, || "a published port of 0 is none".to_owned())?;
        let foreign = self.published.iter().find_map(|port| {
            port.address.filter(|address| self.addresses.of(Family::of(*address)).is_none())
        });
        if let Some(address) = foreign {
            let why = format!("it publishes a port on {address}, and has no address of that family");
            return Err(SpecError { what: what(), why });
        }
        self.check_ports_differ(what)
    }

    /// Refuses the address that the node has as the gateway of a subnet, for attaches where it is one.
    pub(crate) fn check_is_not_gateway(&self, node: &NodeSpec) -> Result<(), SpecError> {
        let is_gateway =
            |address: &IpAddr| node.pods.holding(*address).is_some_and(|pods| *address == gateway_in(pods));
        self.addresses.iter().find(is_gateway).map_or(Ok(()), |address| {
            let why = format!("its address {address} is the gateway's");
            Err(SpecError { what: format!("pod {} of node {}", self.id, node.id), why })
        })
    }

    /// Refuses a port of the node that leads to two of the pod's.
    fn check_ports_differ(&self, what: impl FnOnce() -> String) -> Result<(), SpecError> {
        let of_node = |port: &PublishedPort| (port.address, port.node, port.protocol);
        let twice = self.published.iter().enumerate().find(|(at, port)| {
            self.published.iter().take(*at).any(|earlier| of_node(earlier) == of_node(port))
        });
        twice.map_or(Ok(()), |(_, port)| {
            Err(SpecError { what: what(), why: format!("it publishes port {} twice", port.node) })
        })
    }
}

impl Peer {
    /// As [`NodeSpec::check_underlay_has_families`], for those of its pods with which a node's pods can talk.
    pub(crate) fn check_underlay_has_families_of(&self, node: &NodeSpec) -> Result<(), SpecError> {
        let families = node.reachable(self).families();
        underlay_has(families, &self.underlay, || format!("peer {} of node {}", self.id, node.id))
    }

    /// Refuses a peer that cannot stand beside the node.
    pub fn check(&self, node: &NodeSpec) -> Result<(), SpecError> {
        let what = || format!("peer {} of node {}", self.id, node.id);
        require(self.id > 0, what, || "ids begin at 1".to_owned())?;
        require(self.id != node.id, what, || "it has the node's own id".to_owned())?;
        for theirs in self.pods.iter() {
            node.network.check_holds(theirs, what)?;
            let ours = node.pods.iter().find(|ours| overlap(*ours, theirs));
            ours.map_or(Ok(()), |ours| {
                let why = format!("its pods' prefix {theirs} overlaps the node's {ours}");
                Err(SpecError { what: what(), why })
            })?;
        }
        let same = self.underlay.iter().find(|address| node.underlay.iter().any(|own| own == *address));
        same.map_or(Ok(()), |address| {
            let why = format!("its underlay address {address} is the node's own");
            Err(SpecError { what: what(), why })
        })
    }
}

fn underlay_has(
    families: &[Family],
    underlay: &Addresses,
    what: impl FnOnce() -> String,
) -> Result<(), SpecError> {
    let missing = families.iter().find(|family| underlay.of(**family).is_none());
    missing.map_or(Ok(()), |family| {
        let why = format!(
            "its pods have {0}, and it has no {0} address on the underlay, by which others would reach them; a tunnel \
             needs none",
            family.name()
        );
        Err(SpecError { what: what(), why })
    })
}

fn overlap(one: IpNet, two: IpNet) -> bool {
    one.contains(&two) || two.contains(&one)
}

/// True for the addresses of a prefix that no pod may have. IPv6 has no broadcast address, but its first address
/// belongs to all routers (RFC 4291, section 2.6.1).
fn is_of_subnet(address: IpAddr, pods: IpNet) -> bool {
    let broadcast = matches!(pods, IpNet::V4(net) if IpAddr::V4(net.broadcast()) == address);
    address == pods.network() || broadcast
}

fn require(
    holds: bool,
    what: impl FnOnce() -> String,
    why: impl FnOnce() -> String,
) -> Result<(), SpecError> {
    if holds { Ok(()) } else { Err(SpecError { what: what(), why: why() }) }
}
