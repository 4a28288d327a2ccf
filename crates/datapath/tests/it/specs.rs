//! Specifications of two nodes, for all tests of the crate.

use std::net::{Ipv4Addr, Ipv6Addr};

use datapath::{
    Addresses, Between, Cidrs, DataPath, Family, NodeSpec, Peer, Pod, Protocol, PublishedPort, Router,
};
use ipnet::{Ipv4Net, Ipv6Net};
use linux::{IfName, NetnsName};
use plan::Place;

/// The port on which pods serve in the tests.
pub(crate) const POD_PORT: u16 = 80;
/// The prefix length of the underlay's subnets.
pub(crate) const UNDERLAY_PREFIX: (u8, u8) = (24, 64);

/// How the two nodes of a test are made.
#[derive(Clone)]
pub(crate) struct Shape {
    /// The beginning of all namespaces' names.
    pub(crate) prefix: String,
    /// The path under test.
    pub(crate) path: &'static DataPath,
    /// The family of outer packets.
    pub(crate) outer: Family,
    /// The underlay's MTU in bytes.
    pub(crate) mtu: u32,
}

impl Shape {
    /// The namespace of a part.
    pub(crate) fn netns(&self, part: &str) -> NetnsName {
        NetnsName::new(format!("{}-{part}", self.prefix)).expect("a sound name")
    }

    /// Node 1 or 2. Its wire has the name that pods give their interface, as on many machines.
    pub(crate) fn node(&self, id: u8) -> NodeSpec {
        let routed = self.path.between == Between::Router;
        let subnet = if routed { id } else { 0 };
        NodeSpec {
            id: id.into(),
            place: Place::Netns(self.netns(&format!("n{id}"))),
            wire: ifname("eth0"),
            wire_mtu: self.mtu,
            underlay: underlay(subnet, id),
            outer: self.outer,
            pods: Cidrs {
                v4: Ipv4Net::new_assert(Ipv4Addr::new(10, 244, id, 0), 24),
                v6: Ipv6Net::new_assert(Ipv6Addr::new(0xfd00, 0x244, 0, id.into(), 0, 0, 0, 0), 64),
            },
            cluster: Cidrs {
                v4: Ipv4Net::new_assert(Ipv4Addr::new(10, 244, 0, 0), 16),
                v6: Ipv6Net::new_assert(Ipv6Addr::new(0xfd00, 0x244, 0, 0, 0, 0, 0, 0), 48),
            },
            router: routed.then(|| Router {
                place: Place::Netns(self.netns("r")),
                wire: ifname(&format!("eth{id}")),
                addresses: underlay(subnet, 254),
            }),
        }
    }

    /// A pod of a node; the first publishes a port.
    pub(crate) fn pod(&self, node: &NodeSpec, id: u8) -> Pod {
        Pod {
            id: id.into(),
            netns: self.netns(&format!("n{}p{id}", node.id)),
            ifname: ifname("eth0"),
            addresses: Addresses {
                v4: Ipv4Addr::from_bits(node.pods.v4.network().to_bits() + 1 + u32::from(id)),
                v6: Ipv6Addr::from_bits(node.pods.v6.network().to_bits() + 1 + u128::from(id)),
            },
            published: (id == 1).then_some(PublishedPort {
                node: 8080,
                pod: POD_PORT,
                protocol: Protocol::Tcp,
            }),
        }
    }
}

/// A node as its peers know it.
pub(crate) fn peer(node: &NodeSpec) -> Peer {
    Peer { id: node.id, underlay: node.underlay, pods: node.pods }
}

fn underlay(subnet: u8, host: u8) -> Addresses {
    Addresses {
        v4: Ipv4Addr::new(192, 168, 100 + subnet, host),
        v6: Ipv6Addr::new(0xfd00, 0x100, 0, subnet.into(), 0, 0, 0, host.into()),
    }
}

fn ifname(text: &str) -> IfName {
    IfName::new(text).expect("a sound name")
}
