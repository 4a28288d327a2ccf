//! The input of a driver: nodes, pods and peers, named by ids so that a plan can be made again later and finds what
//! it made before.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use linux::{IfName, Mac, NetnsName};
use plan::Place;

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// One address of each family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// IPv4.
    pub v4: Ipv4Addr,
    /// IPv6.
    pub v6: Ipv6Addr,
}

/// One prefix of each family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidrs {
    /// IPv4.
    pub v4: Ipv4Net,
    /// IPv6.
    pub v6: Ipv6Net,
}

/// A node: the namespace that plays the host, its place on the underlay and the pods' prefixes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSpec {
    /// 1 to 65535, unique in the topology.
    pub id: u16,
    /// Where its host side is.
    pub place: Place,
    /// The link to the underlay.
    pub wire: IfName,
    /// The underlay's MTU in bytes.
    pub wire_mtu: u32,
    /// Its addresses on the underlay.
    pub underlay: Addresses,
    /// The family of outer packets, for transports that wrap.
    pub outer: Family,
    /// The prefixes from which its pods get addresses; the first host address is the node's own in it (gateway).
    pub pods: Cidrs,
    /// The prefixes that hold all nodes' pods.
    pub cluster: Cidrs,
    /// The cloud's router, where the underlay has one.
    pub router: Option<Router>,
}

/// A router between the nodes, with a route table that transports may write (as a cloud's route table is).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Router {
    /// The namespace that plays the router.
    pub place: Place,
    /// The router's link towards this node.
    pub wire: IfName,
    /// The router's addresses on that link: the node's next hop.
    pub addresses: Addresses,
}

/// A pod on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// 1 to 65535, unique on the node.
    pub id: u16,
    /// Its namespace, which exists before the driver is called.
    pub netns: NetnsName,
    /// The name of its interface.
    pub ifname: IfName,
    /// Its addresses, out of [`NodeSpec::pods`].
    pub addresses: Addresses,
    /// A port of the node that leads to a port of the pod.
    pub published: Option<PublishedPort>,
}

/// A TCP port of the node that leads to one of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishedPort {
    /// On the node.
    pub node: u16,
    /// In the pod.
    pub pod: u16,
    /// What comes in on it.
    pub protocol: Protocol,
}

/// What a port is one of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

/// Another node, as seen from one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its [`NodeSpec::id`].
    pub id: u16,
    /// Its addresses on the underlay.
    pub underlay: Addresses,
    /// The prefixes of its pods.
    pub pods: Cidrs,
}

/// A specification that no plan can be made from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct SpecError {
    /// Which part of the specification.
    pub what: String,
    /// Why it cannot be.
    pub why: String,
}

impl Family {
    /// Both, IPv4 first.
    pub const BOTH: [Family; 2] = [Family::V4, Family::V6];
}

impl Addresses {
    /// The address of a family.
    pub fn of(&self, family: Family) -> IpAddr {
        match family {
            Family::V4 => self.v4.into(),
            Family::V6 => self.v6.into(),
        }
    }

    /// Both addresses, IPv4 first.
    pub fn both(&self) -> [IpAddr; 2] {
        [self.v4.into(), self.v6.into()]
    }

    /// Both as prefixes of full length: nothing but the address itself.
    pub fn alone(&self) -> [IpNet; 2] {
        self.both().map(IpNet::from)
    }

    /// Both with the prefix lengths of a pair of prefixes.
    pub fn within(&self, cidrs: Cidrs) -> [IpNet; 2] {
        let v4 = Ipv4Net::new_assert(self.v4, cidrs.v4.prefix_len());
        let v6 = Ipv6Net::new_assert(self.v6, cidrs.v6.prefix_len());
        [v4.into(), v6.into()]
    }
}

impl Cidrs {
    /// The prefix of a family.
    pub fn of(&self, family: Family) -> IpNet {
        match family {
            Family::V4 => self.v4.trunc().into(),
            Family::V6 => self.v6.trunc().into(),
        }
    }

    /// Both prefixes without host bits, IPv4 first.
    pub fn both(&self) -> [IpNet; 2] {
        Family::BOTH.map(|family| self.of(family))
    }

    /// The first address of each prefix.
    pub fn networks(&self) -> Addresses {
        Addresses { v4: self.v4.network(), v6: self.v6.network() }
    }
}

impl NodeSpec {
    /// The node's own address in its pods' prefixes: the pods' gateway.
    pub fn gateway(&self) -> Addresses {
        let v4 = self.pods.v4.network().to_bits() + 1;
        let v6 = self.pods.v6.network().to_bits() + 1;
        Addresses { v4: Ipv4Addr::from_bits(v4), v6: Ipv6Addr::from_bits(v6) }
    }

    /// The Ethernet address of something of the node; `space` says of what (see [`Mac::from_id`]).
    pub fn mac(&self, space: u8, id: u16) -> Mac {
        Mac::from_id(space, u32::from(self.id) << 16 | u32::from(id))
    }
}
