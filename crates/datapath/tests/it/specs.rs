//! Specifications of two nodes, for all tests of the crate.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use datapath::{
    Addresses, Association, Between, DEVICE, DataPath, Device, Family, Limits, Network, NodeSpec, Peer, Pod,
    Prefixes, Protocol, PublishedPort, Reach, Router, TunnelAssociations, TunnelKey,
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use linux::features::Feature;
use linux::{IfName, NetnsName};
use plan::Place;

pub(crate) const POD_PORT: u16 = 80;
/// The prefix length of the underlay's subnets.
pub(crate) const UNDERLAY_PREFIX: (u8, u8) = (24, 64);

/// The private and the public key of each node: those of Alice and Bob in RFC 7748, section 6.1.
const KEYS: [(&str, &str); 2] = [
    ("dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=", "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="),
    ("XasIfmJKikt54X+Lg4AO5m87sSkmGLb9HC+LJ/+I4Os=", "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08="),
];

#[derive(Clone)]
pub(crate) struct Shape {
    /// The prefix of the namespaces' names.
    pub(crate) prefix: String,
    pub(crate) path: &'static DataPath,
    /// The family of the outer packets.
    pub(crate) outer: Family,
    pub(crate) mtu: u32,
    /// The families of pods and underlay.
    pub(crate) families: &'static [Family],
}

impl Shape {
    /// Both families over IPv4, with an MTU of 1500 bytes.
    pub(crate) fn new(prefix: &str, path: &'static DataPath) -> Shape {
        Shape { prefix: prefix.to_owned(), path, outer: Family::V4, mtu: 1500, families: &Family::BOTH }
    }

    /// The network of the pods: 10.244.0.0/16 and fd00:244::/48.
    pub(crate) fn network(&self) -> Network {
        let v4 = Ipv4Net::new_assert(Ipv4Addr::new(10, 244, 0, 0), 16);
        let v6 = Ipv6Net::new_assert(Ipv6Addr::new(0xfd00, 0x244, 0, 0, 0, 0, 0, 0), 48);
        let masquerade = self.path.attach.usually_masquerades();
        Network {
            id: 1,
            prefixes: self.prefixes(v4, v6),
            vni: 1,
            port: self.path.transport.usual_port(),
            mtu: None,
            masquerade,
            anti_spoofing: None,
            bridge: None,
            tunnel: None,
            isolates_pods: false,
            services: false,
            refuses_routers: false,
            host_link: false,
        }
    }

    /// Whether each node has a key by which others know it.
    fn has_keys(&self) -> bool {
        self.path.needs().contains(&Feature::WireGuard)
    }

    /// The files of what nodes encrypt with, and what is in them.
    pub(crate) fn keys(&self) -> Vec<(PathBuf, String)> {
        let files = [1, 2].map(|id| key_file(&self.prefix, id)).into_iter();
        let contents: Vec<String> = if self.has_keys() {
            KEYS.iter().map(|(private, _)| (*private).to_owned()).collect()
        } else if encrypts_by_pair(self.path) {
            ["11", "22"].iter().map(|byte| format!("0x{}", byte.repeat(20))).collect()
        } else {
            Vec::new()
        };
        files.zip(contents).collect()
    }

    fn prefixes(&self, v4: Ipv4Net, v6: Ipv6Net) -> Prefixes {
        [IpNet::from(v4), IpNet::from(v6)].into_iter().collect::<Prefixes>().only(self.families)
    }

    fn underlay(&self, subnet: u8, host: u8) -> Addresses {
        let v4 = Ipv4Addr::new(192, 168, 100 + subnet, host);
        let v6 = Ipv6Addr::new(0xfd00, 0x100, 0, subnet.into(), 0, 0, 0, host.into());
        Addresses::both(v4, v6).only(self.families)
    }

    pub(crate) fn netns(&self, part: &str) -> NetnsName {
        NetnsName::new(format!("{}-{part}", self.prefix)).expect("a sound name")
    }

    /// Node 1 or 2. Its wire has the same name as the interface of a pod, as on many machines.
    pub(crate) fn node(&self, id: u8) -> NodeSpec {
        let routed = self.path.between == Between::Router;
        let subnet = if routed { id } else { 0 };
        NodeSpec {
            id: id.into(),
            place: Place::Netns(self.netns(&format!("n{id}"))),
            wire: ifname("eth0"),
            wire_mtu: self.mtu,
            underlay: self.underlay(subnet, id),
            outer: self.outer,
            pods: self.prefixes(
                Ipv4Net::new_assert(Ipv4Addr::new(10, 244, id, 0), 24),
                Ipv6Net::new_assert(Ipv6Addr::new(0xfd00, 0x244, 0, id.into(), 0, 0, 0, 0), 64),
            ),
            network: self.network(),
            tunnel_mac: None,
            tunnel_key: self.has_keys().then(|| TunnelKey {
                file: key_file(&self.prefix, id.into()),
                public: KEYS[usize::from(id) - 1].1.parse().expect("a sound key"),
            }),
            router: routed.then(|| Router {
                place: Place::Netns(self.netns("r")),
                wire: ifname(&format!("eth{id}")),
                addresses: self.underlay(subnet, 254),
            }),
            poll_cpus: linux::CpuSet::default(),
        }
    }

    /// A pod of a node. The first publishes a port on a path that reaches pods by ports.
    pub(crate) fn pod(&self, node: &NodeSpec, id: u8) -> Pod {
        Pod {
            id: id.into(),
            place: Place::Netns(self.netns(&format!("n{}p{id}", node.id))),
            ifname: ifname("eth0"),
            addresses: node.pods.iter().map(|net| nth(net, 1 + id)).collect(),
            mac: None,
            default_route: true,
            gateways: Addresses::default(),
            routes: Vec::new(),
            published: match self.path.reach {
                Reach::PublishedPort if id == 1 => published(8080),
                Reach::PublishedPort | Reach::Node | Reach::Pod => Vec::new(),
            },
            limits: Limits::default(),
            device: (self.path.name == DEVICE.name)
                .then(|| Device { link: ifname(&format!("device{id}")), rules: None }),
            vhost_user: false,
        }
    }
}

/// A port of a node that leads to [`POD_PORT`] of a pod, by TCP and UDP.
pub(crate) fn published(node: u16) -> Vec<PublishedPort> {
    [Protocol::Tcp, Protocol::Udp]
        .map(|protocol| PublishedPort { node, address: None, pod: POD_PORT, protocol })
        .to_vec()
}

/// A node as its peers know it.
pub(crate) fn peer(node: &NodeSpec) -> Peer {
    let tunnel_key = node.tunnel_key.as_ref().map(|key| key.public);
    let (underlay, pods) = (node.underlay, node.pods.clone());
    Peer { id: node.id, underlay, pods, tunnel_mac: None, tunnel_key, associations: Some(associations(node)) }
}

/// What its peer sends to a node by, and what it sends by. Paths that do not encrypt pair by pair ignore them.
fn associations(node: &NodeSpec) -> TunnelAssociations {
    let prefix = node.place.name().and_then(|name| name.as_str().rsplit_once('-'));
    let prefix = prefix.map_or("hg", |(prefix, _)| prefix);
    let of = |id: u16| Association {
        spi: (0x1000 * u32::from(id)).try_into().expect("a sound number"),
        key_file: key_file(prefix, id),
    };
    TunnelAssociations { send: of(if node.id == 1 { 2 } else { 1 }), receive: of(node.id) }
}

/// Whether what nodes send each other is encrypted with a key of their own.
fn encrypts_by_pair(path: &DataPath) -> bool {
    path.needs().contains(&Feature::IpSec)
}

/// What a node encrypts with.
fn key_file(prefix: &str, node: u16) -> PathBuf {
    format!("/run/{prefix}-n{node}.key").into()
}

/// The address with this number in a prefix.
pub(crate) fn nth(net: IpNet, number: u8) -> IpAddr {
    match net {
        IpNet::V4(v4) => Ipv4Addr::from_bits(v4.network().to_bits() + u32::from(number)).into(),
        IpNet::V6(v6) => Ipv6Addr::from_bits(v6.network().to_bits() + u128::from(number)).into(),
    }
}

fn ifname(text: &str) -> IfName {
    IfName::new(text).expect("a sound name")
}
