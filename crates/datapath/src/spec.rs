//! The input of a driver: networks, nodes, pods and peers, named by ids so that a plan can be made again later and
//! finds what it made before.

use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use linux::{CpuSet, IfName, Mac, PublicKey, Spi};
use plan::{Place, SetFunction};

use crate::addresses::gateway_in;
use crate::{Addresses, Family, Prefixes};

/// A network of pods over all nodes. Several can stand on a node at the same time; what stands for one there is named
/// by its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// 1 to 65535, unique among the networks of a node and the same on all nodes.
    pub id: u16,
    /// The prefixes that hold all nodes' pods.
    pub prefixes: Prefixes,
    /// The identifier of its tunnels, 1 to 2²⁴ − 1.
    pub vni: u32,
    /// The UDP port of its tunnels.
    pub port: u16,
    /// The pods' MTU in bytes, where it is to be less than the underlay allows.
    pub mtu: Option<u32>,
    /// Whether what pods send out of the network gets the node's address.
    pub masquerade: bool,
    /// Present: a pod's packets are dropped where they have other addresses than its own, for attaches that leave it to
    /// the network ([`crate::AntiSpoofing::Optional`]).
    pub anti_spoofing: Option<GuardHook>,
    /// The name of its bridge on a node, for attaches that have one; `None`: one that is made of its id.
    pub bridge: Option<IfName>,
    /// The name of its tunnel device on a node, where another program has made one that is to be used: what it is
    /// differs in nothing but the name. `None`: the transport makes one whose name is made of the id.
    pub tunnel: Option<IfName>,
    /// Whether its pods on a node do not reach each other by the bridge, for attaches that have one.
    pub isolates_pods: bool,
    /// Whether its pods are to reach themselves and their neighbours where another program translates what they call on
    /// the node, as kube-proxy does with Services, for attaches that have a bridge. With others they do anyway.
    pub services: bool,
    /// Whether a node takes no router advertisement from its pods, for attaches that leave it to the network
    /// ([`crate::AntiSpoofing::Optional`]). The node's kernel has IPv6 then, whether pods have it or not.
    pub refuses_routers: bool,
    /// Whether a node has a link of its own on its wire beside its pods', so that it and they reach each other, for
    /// attaches whose links hang there ([`crate::Attach::takes_host_link`]). With others they do anyway.
    pub host_link: bool,
}

/// Where packets of a pod meet the check of their addresses, on a kernel that has both. It is the ingress of the node's
/// end of the pod's link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardHook {
    /// A filter of a `clsact` qdisc: there within a fraction of a millisecond. The link has one such qdisc.
    Filter,
    /// tcx, which leaves the ingress qdisc to other programs. The program is there after a grace period of RCU.
    Tcx,
}

/// A node: the namespace that plays the host, its place on the underlay and its part of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct NodeSpec {
    /// 1 to 65535, unique in the network.
    pub id: u16,
    /// Where its host side is.
    pub place: Place,
    /// The link to the underlay.
    pub wire: IfName,
    /// The underlay's MTU in bytes.
    pub wire_mtu: u32,
    /// The node's addresses on the wire, between which tunnels lead and to which other nodes' routes point.
    pub underlay: Addresses,
    /// The family of outer packets, for transports that wrap.
    pub outer: Family,
    /// The prefixes from which its pods get addresses. The first host address of each is the node's
    /// own in it (gateway).
    pub pods: Prefixes,
    pub network: Network,
    /// The Ethernet address of its tunnel's end; `None`: one that is derived from its id.
    pub tunnel_mac: Option<Mac>,
    /// The key of its tunnels' end, for transports that encrypt.
    pub tunnel_key: Option<TunnelKey>,
    /// The cloud's router, where the underlay has one.
    pub router: Option<Router>,
    /// The CPUs of a switch's threads that look for frames without sleeping, for the attach that has one; none: one
    /// CPU, of the switch's own choice.
    pub poll_cpus: CpuSet,
}

/// What a node's encrypted tunnels are known by. The private key is in a file of the node, and nowhere else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelKey {
    /// The file, as [`linux::PrivateKey::keep`] writes it.
    pub file: PathBuf,
    /// The public key that belongs to it.
    pub public: PublicKey,
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

/// An interface of a pod on a node. A pod in several networks has one of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// 1 to 65535, unique on the node, over all its networks.
    pub id: u16,
    /// The pod's namespace, which exists before the driver is called.
    pub place: Place,
    /// The name of the interface, unique in the pod.
    pub ifname: IfName,
    /// Its addresses, out of [`NodeSpec::pods`].
    pub addresses: Addresses,
    /// Its Ethernet address; `None`: one that is derived from the ids.
    pub mac: Option<Mac>,
    /// Whether the pod's default routes go by this interface. Otherwise only routes to the network do.
    pub default_route: bool,
    /// By which neighbours on the wire they go where the interface does not lead out by itself
    /// ([`crate::Attach::leads_out`]). A family without one has no default route there; other attaches ignore them.
    pub gateways: Addresses,
    /// What else it reaches by this interface. One to the destination of a route that it would have
    /// anyway takes its place.
    pub routes: Vec<PodRoute>,
    /// Ports of the node that lead to ports of the pod.
    pub published: Vec<PublishedPort>,
    /// What it may send and receive by this interface.
    pub limits: Limits,
    /// The link of the node that becomes its interface, for the attach that hands one over.
    pub device: Option<Device>,
    /// Whether a program has its place at the node's switch, with a TCP/IP stack of its own: the pod has no link, and
    /// the switch shares memory with what listens at [`crate::vhost_user_socket`]. For the attach that can
    /// ([`crate::Attach::takes_vhost_user`]).
    pub vhost_user: bool,
}

/// A link of the node that is a pod's for as long as the pod has it: a card, or a virtual function of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its name in the node.
    pub link: IfName,
    /// The rules of the card's switch for it, where it is a virtual function.
    pub rules: Option<SetFunction>,
}

/// A route that a pod has beside those of its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodRoute {
    /// The destinations that the route is for; a prefix of length 0 makes it the default route.
    pub dst: IpNet,
    /// The neighbour by which it leads there, for attaches whose pods have some ([`crate::Attach::has_neighbours`]);
    /// `None`: the way of the interface's other routes.
    pub via: Option<IpAddr>,
    /// The path MTU in bytes; `None`: the interface's.
    pub mtu: Option<u32>,
    /// Order among routes to the same destination, lowest first; `None`: the kernel's default.
    pub metric: Option<u32>,
}

impl Pod {
    /// Whether a route of its own takes the place of the usual one to a destination.
    pub(crate) fn replaces_route(&self, usual: IpNet) -> bool {
        self.routes.iter().any(|own| own.metric.is_none() && own.dst.trunc() == usual)
    }

    /// Whether a route of its own leads everywhere in a family by the interface's usual way.
    fn leads_everywhere(&self, family: Family) -> bool {
        let is_default =
            |own: &PodRoute| own.dst.prefix_len() == 0 && own.via.is_none() && own.metric.is_none();
        self.routes.iter().any(|own| is_default(own) && Family::of(own.dst.addr()) == family)
    }
}

/// What a pod may send and receive; `None`: as much as goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Limits {
    pub send: Option<RateLimit>,
    pub receive: Option<RateLimit>,
}

/// A rate that is exceeded for a moment at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Bytes a second, more than 0; packets are counted with their Ethernet header.
    pub rate_bytes_per_s: u64,
    /// Bytes that pass at once after a pause: at least a packet with its header.
    pub burst_bytes: u32,
}

/// A port of the node that leads to one of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishedPort {
    /// The number of the port on the node.
    pub node: u16,
    /// The address of the node on which it is. `0.0.0.0` and `::` are all addresses of their family, and `None` those
    /// of the families that the pod has.
    pub address: Option<IpAddr>,
    /// The number of the port in the pod.
    pub pod: u16,
    /// What comes in on it.
    pub protocol: Protocol,
}

/// What a port is one of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Protocol {
    #[default]
    Tcp,
    Udp,
}

/// Another node, as seen from one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Peer {
    pub id: u16,
    /// The node's addresses on the wire, between which tunnels lead and to which other nodes' routes point.
    pub underlay: Addresses,
    /// The prefixes of its pods.
    pub pods: Prefixes,
    /// The Ethernet address of its tunnel's end; `None`: the one that a node of ours has by its id.
    pub tunnel_mac: Option<Mac>,
    /// The public key of its tunnels' end, for transports that encrypt.
    pub tunnel_key: Option<PublicKey>,
    /// What is sent to it and comes from it is encrypted with, for transports that agree on keys pair by pair.
    pub associations: Option<TunnelAssociations>,
}

/// The security associations of a node with a peer. Both have the same two; what one sends by, the other receives by.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct TunnelAssociations {
    pub send: Association,
    pub receive: Association,
}

/// A security association, whose key is in a file of the node, and nowhere else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Association {
    /// Its number, by which packets name it.
    pub spi: Spi,
    /// The file, as [`linux::EspKey::keep`] writes it.
    pub key_file: PathBuf,
}

/// A specification that no plan can be made from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct SpecError {
    /// Which part of the specification.
    pub what: String,
    /// Why it is not possible.
    pub why: String,
}

impl NodeSpec {
    /// The families of its pods.
    pub fn families(&self) -> &'static [Family] {
        self.pods.families()
    }

    /// The node's own addresses in its pods' prefixes, with the prefixes' lengths.
    pub fn gateways(&self) -> impl Iterator<Item = IpNet> + '_ {
        self.pods
            .iter()
            .map(|net| IpNet::new(gateway_in(net), net.prefix_len()).expect("a prefix has a sound length"))
    }

    /// The node's own addresses in the prefixes in which a pod's are: the pod's gateways.
    pub fn gateways_of(&self, pod: &Pod) -> Addresses {
        let prefixes = pod.addresses.iter().filter_map(|address| self.pods.holding(address));
        prefixes.map(gateway_in).collect()
    }

    /// A pod's addresses with the lengths of the prefixes in which they lie.
    pub(crate) fn addresses_within(&self, prefixes: &Prefixes, pod: &Pod) -> Vec<IpNet> {
        let within = |address: IpAddr| {
            let length = prefixes.holding(address).map(|net| net.prefix_len());
            length.and_then(|length| IpNet::new(address, length).ok())
        };
        pod.addresses.iter().filter_map(within).collect()
    }

    /// The destinations that a pod reaches by its interface in this network, without those of its own routes.
    pub(crate) fn destinations(&self, pod: &Pod) -> Prefixes {
        let families = pod.addresses.families();
        let usual = if pod.default_route {
            Prefixes::everywhere(families)
        } else {
            self.network.prefixes.only(families)
        };
        let is_said = |net: IpNet| pod.replaces_route(net) || pod.leads_everywhere(Family::of(net.addr()));
        usual.iter().filter(|net| !is_said(*net)).collect()
    }

    /// The prefixes of another node's pods with which its own pods can talk: those of their families.
    pub(crate) fn reachable(&self, peer: &Peer) -> Prefixes {
        peer.pods.only(self.families())
    }

    /// Its end of the tunnels.
    ///
    /// # Errors
    /// It has no address of the family of outer packets.
    pub(crate) fn outer_address(&self) -> Result<IpAddr, SpecError> {
        outer_of(&self.underlay, self.outer, || format!("node {}", self.id))
    }

    /// A peer's end of the tunnels.
    ///
    /// # Errors
    /// It has no address of the family of outer packets.
    pub(crate) fn outer_address_of(&self, peer: &Peer) -> Result<IpAddr, SpecError> {
        outer_of(&peer.underlay, self.outer, || format!("peer {} of node {}", peer.id, self.id))
    }

    /// The name under which its programs for this network are pinned, and that of the control group whose sockets they
    /// splice.
    pub fn programs(&self) -> String {
        let place = match &self.place {
            Place::Host => "host".to_owned(),
            Place::Netns(name) => name.to_string(),
            Place::Path(_) => format!("node{}", self.id),
        };
        format!("{place}-{}", self.network.id)
    }

    /// The Ethernet address of something of the node; `space` says of what (see [`Mac::from_id`]).
    pub fn mac(&self, space: u8, id: u16) -> Mac {
        Mac::from_id(space, u32::from(self.id) << 16 | u32::from(id))
    }
}

fn outer_of(underlay: &Addresses, outer: Family, what: impl FnOnce() -> String) -> Result<IpAddr, SpecError> {
    underlay.of(outer).ok_or_else(|| SpecError {
        what: what(),
        why: format!("its tunnel goes over {}, and it has no such address on the underlay", outer.name()),
    })
}
