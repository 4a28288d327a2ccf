//! What a specification must promise before a driver sees it.

use std::net::IpAddr;

use ipnet::IpNet;
use plan::Place;

use crate::{Family, NodeSpec, Peer, Pod, SpecError};

/// The smallest MTU in bytes that IPv6 allows on a link (RFC 8200, section 5). Below it the kernel takes IPv6 off.
pub(crate) const MTU_MIN: u32 = 1280;
/// The largest MTU in bytes of an Ethernet link in Linux (`ETH_MAX_MTU`).
const MTU_MAX: u32 = 65535;
/// The longest prefixes that hold a gateway and a pod beside the network's and the broadcast address.
const PODS_PREFIX_MAX: [u8; 2] = [30, 126];

impl NodeSpec {
    /// Refuses what no data path could be built from.
    pub fn check(&self) -> Result<(), SpecError> {
        let what = || format!("node {}", self.id);
        require(self.id > 0, what, || "ids begin at 1".to_owned())?;
        require((MTU_MIN..=MTU_MAX).contains(&self.wire_mtu), what, || {
            format!("an underlay MTU of {} bytes is not within {MTU_MIN} to {MTU_MAX}", self.wire_mtu)
        })?;
        for (family, longest) in Family::BOTH.into_iter().zip(PODS_PREFIX_MAX) {
            let (pods, cluster) = (self.pods.of(family), self.cluster.of(family));
            require(pods.prefix_len() <= longest, what, || {
                format!(
                    "the pods' prefix {pods} has no room for a gateway and a pod; /{longest} is the longest"
                )
            })?;
            require(cluster.contains(&pods), what, || {
                format!("the pods' prefix {pods} lies outside the cluster's {cluster}")
            })?;
            let own = self.underlay.of(family);
            require(!pods.contains(&own), what, || {
                format!("its underlay address {own} lies in its pods' prefix {pods}")
            })?;
        }
        Ok(())
    }

    /// Refuses an underlay inside the cluster's prefixes, for transports that route by these prefixes: a route to pods
    /// would swallow the way to the node that leads there.
    pub(crate) fn check_underlay_apart(&self) -> Result<(), SpecError> {
        for family in Family::BOTH {
            let (own, cluster) = (self.underlay.of(family), self.cluster.of(family));
            require(
                !cluster.contains(&own),
                || format!("node {}", self.id),
                || {
                    format!(
                        "its underlay address {own} lies in the cluster's prefix {cluster}, which is routed"
                    )
                },
            )?;
        }
        Ok(())
    }
}

impl Pod {
    /// Refuses a pod that cannot be on the node.
    pub fn check(&self, node: &NodeSpec) -> Result<(), SpecError> {
        let what = || format!("pod {} of node {}", self.id, node.id);
        require(self.id > 0, what, || "ids begin at 1".to_owned())?;
        require(self.ifname.as_str() != "lo", what, || "its interface cannot be called lo".to_owned())?;
        require(node.place != Place::Netns(self.netns.clone()), what, || {
            format!("its namespace {} is the node's own", self.netns)
        })?;
        for family in Family::BOTH {
            let (address, pods) = (self.addresses.of(family), node.pods.of(family));
            require(pods.contains(&address), what, || {
                format!("its address {address} lies outside the node's prefix {pods}")
            })?;
            require(!is_reserved(address, pods, node.gateway().of(family)), what, || {
                format!(
                    "its address {address} is the network's, the gateway's or the broadcast address of {pods}"
                )
            })?;
        }
        let ports = self.published.iter().all(|port| port.node > 0 && port.pod > 0);
        require(ports, what, || "a published port of 0 is none".to_owned())
    }
}

impl Peer {
    /// Refuses a peer that cannot stand beside the node.
    pub fn check(&self, node: &NodeSpec) -> Result<(), SpecError> {
        let what = || format!("peer {} of node {}", self.id, node.id);
        require(self.id > 0, what, || "ids begin at 1".to_owned())?;
        require(self.id != node.id, what, || "it has the node's own id".to_owned())?;
        for family in Family::BOTH {
            let (theirs, ours) = (self.pods.of(family), node.pods.of(family));
            let cluster = node.cluster.of(family);
            require(cluster.contains(&theirs), what, || {
                format!("its pods' prefix {theirs} lies outside the cluster's {cluster}")
            })?;
            require(!theirs.contains(&ours) && !ours.contains(&theirs), what, || {
                format!("its pods' prefix {theirs} overlaps the node's {ours}")
            })?;
            let underlay = self.underlay.of(family);
            require(underlay != node.underlay.of(family), what, || {
                format!("its underlay address {underlay} is the node's own")
            })?;
        }
        Ok(())
    }
}

/// True for the addresses of a prefix that no pod may have. IPv6 has no broadcast address, but its first address
/// belongs to all routers (RFC 4291, section 2.6.1).
fn is_reserved(address: IpAddr, pods: IpNet, gateway: IpAddr) -> bool {
    let broadcast = matches!(pods, IpNet::V4(net) if IpAddr::V4(net.broadcast()) == address);
    address == pods.network() || address == gateway || broadcast
}

fn require(
    holds: bool,
    what: impl FnOnce() -> String,
    why: impl FnOnce() -> String,
) -> Result<(), SpecError> {
    if holds { Ok(()) } else { Err(SpecError { what: what(), why: why() }) }
}
