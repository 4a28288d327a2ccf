//! What a node is to have: a pure function of the node, the network's configuration and the leases.

mod clashes;
mod cloud;
mod offload;
mod programs;
mod services;

use std::collections::BTreeMap;
use std::net::IpAddr;

use datapath::{Addresses, BACKENDS, DataPath, Family, Network, NodeSpec, Peer, Prefixes};
use ipnet::IpNet;
use linux::{IfName, Mac};
use plan::{Place, Plan, Step};

pub(crate) use self::cloud::wish;
pub use self::programs::PROGRAMS_PART;
pub use self::services::{SERVICES_PART, ServicesPlace, is_of_service, service_part_of};
use crate::cloud::View;
use crate::lease::{Announcement, Lease, Snapshot, TunnelData};
use crate::network::NetworkConfig;
use crate::offload::{Offload, OffloadFault, Tunnel};

/// The part of the node itself: what all peers' parts rest on. Its name comes before theirs.
pub const NODE_PART: &str = "node";
/// How the names of peers' parts begin.
const PEER_PART: &str = "peer-";
/// The most bytes of a part's name, which is that of a file with endings.
const PART_BYTES_MAX: usize = 200;
/// The space of Ethernet addresses that are made of IPv4 addresses: the agents' ends of tunnels.
const MAC_SPACE: u8 = 0x68;
/// flannel's names of the transports.
pub(crate) const HOST_GW: &str = "host-gw";
pub(crate) const VXLAN: &str = "vxlan";
pub(crate) const AWS_VPC: &str = "aws-vpc";

/// The node as the agent finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The link to other nodes.
    pub wire: IfName,
    /// Its MTU in bytes.
    pub wire_mtu: u32,
    /// The node's addresses there.
    pub underlay: Addresses,
    /// The prefixes of that link: whoever is in one is a neighbour.
    pub subnets: Vec<IpNet>,
    /// The numbers of which the names of its tunnel devices are made, one for each family of pods: IPv4, IPv6.
    pub numbers: [u16; 2],
    /// What the ways to other nodes' addresses carry, in bytes of an IP packet, as far as that is known.
    pub path_mtus: BTreeMap<IpAddr, u32>,
    /// Whether what its tunnels leave to the card arrives, by their links, as far as that is known.
    pub offloads: BTreeMap<IfName, Offload>,
    /// The programs that forward packets of its pods, by the name of their folder; `None`: the kernel does it, or they are
    /// not to be seen.
    pub programs: Option<String>,
    /// Where calls of Services are led to backends; `None`: nowhere, something else translates their addresses.
    pub services: Option<ServicesPlace>,
    /// What is known of the cloud's route tables, where the network has them.
    pub cloud: View,
}

/// What the node is to have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Desired {
    /// Plans by the names of their parts; see [`plan::Keeper`].
    pub parts: BTreeMap<String, Plan>,
    /// The other nodes by the source's names for them.
    pub peers: BTreeMap<String, DesiredPeer>,
    /// The pods' MTU in bytes: what every way leaves that carries as much as the nodes' link.
    pub mtu: u32,
    /// The other nodes' addresses, with the most bytes that the way to each could carry.
    pub targets: BTreeMap<IpAddr, u32>,
    /// The tunnels of which nothing is switched off, by their links, with whom to ask through each.
    pub tunnels: BTreeMap<IfName, Tunnel>,
    /// What is switched off at the other tunnels.
    pub offload_faults: BTreeMap<IfName, OffloadFault>,
}

/// Another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DesiredPeer {
    /// It is reached.
    Reached {
        /// Its lease.
        lease: Lease,
        /// By which transport ([`datapath::BACKENDS`], or `aws-vpc`), for each family of pods.
        by: BTreeMap<Family, &'static str>,
        /// What the way there carries, in bytes of an IP packet; `None`: the node does not say.
        path_mtu: Option<u32>,
    },
    /// It is not, and why. What stands for it from before stays: its pods may be well.
    Refused(String),
}

/// Why nothing can be said of what the node is to have. It keeps what it has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Undecided {
    /// The source has not said enough yet.
    #[error("the lease source has not said yet which {0}")]
    Unsaid(&'static str),
    /// The source has no prefixes for this node.
    #[error("this node has no prefix for pods: {0}")]
    Missing(String),
    /// The network's configuration cannot be followed.
    #[error("{0}")]
    Network(String),
    /// The node cannot be in this network.
    #[error("{0}")]
    Node(String),
}

/// The part of a peer.
pub fn part_of(peer: &str) -> String {
    part_named(PEER_PART, peer)
}

/// The part of something of the source's. Its names have signs that names of files had better not have.
fn part_named(prefix: &str, name: &str) -> String {
    let mut part = prefix.to_owned();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' => part.push(char::from(byte)),
            _ => part += &format!("%{byte:02x}"),
        }
    }
    if part.len() > PART_BYTES_MAX {
        // What is cut off is in the sum.
        part.truncate(PART_BYTES_MAX - 9);
        part += &format!("-{:08x}", crc32fast::hash(name.as_bytes()));
    }
    part
}

/// The Ethernet address of a node's end of tunnels. It follows from the node's address, so that it is the same after a
/// restart, and another on every node.
pub fn tunnel_mac(underlay: &Addresses) -> Mac {
    let id = match underlay.iter().next() {
        Some(IpAddr::V4(v4)) => v4.to_bits(),
        // Of all octets: nodes may differ in any of them.
        Some(IpAddr::V6(v6)) => crc32fast::hash(&v6.octets()),
        None => 0,
    };
    Mac::from_id(MAC_SPACE, id)
}

/// What the node says of itself to the others.
pub fn announcement(node: &Node, network: &NetworkConfig) -> Announcement {
    let data = TunnelData { vni: Some(network.backend.vni), mac: tunnel_mac(&node.underlay) };
    let of = |family| {
        let has = network.networks.iter().any(|one| Family::of(one.prefix.addr()) == family);
        (has && network.backend.kind == VXLAN).then_some(data)
    };
    Announcement {
        public: node.underlay,
        backend: network.backend.kind.clone(),
        data: of(Family::V4),
        data_v6: of(Family::V6),
    }
}

/// What the node is to have. `standing` is what it has, by parts.
///
/// # Errors
/// The source has not said enough, or what it says cannot be.
pub fn desired(
    node: &Node,
    network: &NetworkConfig,
    snapshot: &Snapshot,
    standing: &BTreeMap<String, Plan>,
) -> Result<Desired, Undecided> {
    if let (true, Some(why)) = (snapshot.own.families().is_empty(), &snapshot.own_missing) {
        return Err(Undecided::Missing(why.clone()));
    }
    let nets = Nets::of(node, network, &snapshot.own)?;
    let mut desired = Desired { mtu: nets.mtu()?, ..Desired::default() };
    let mut node_plan = nets.node_plan()?;
    desired.offload_faults = offload::switch_off(&mut node_plan, &node.offloads, standing.get(NODE_PART));
    let clashing = clashes::find(&snapshot.others);
    for (name, lease) in &snapshot.others {
        let planned = match (lease, clashing.get(name)) {
            (Err(why), _) | (Ok(_), Some(why)) => Err(why.clone()),
            (Ok(lease), None) => nets.peer_plan(lease).map(|(plan, by)| (plan, lease.clone(), by)),
        };
        let part = part_of(name);
        let peer = match planned {
            Ok((plan, lease, by)) => {
                if !plan.steps.is_empty() {
                    desired.parts.insert(part, plan);
                }
                let ways = nets.ways(&lease);
                let path_mtu = ways.iter().filter_map(|way| node.path_mtus.get(way).copied()).min();
                desired.targets.extend(ways.into_iter().map(|way| (way, node.wire_mtu)));
                DesiredPeer::Reached { lease, by, path_mtu }
            }
            Err(why) => DesiredPeer::Refused(why),
        };
        desired.peers.insert(name.clone(), peer);
    }
    desired.tunnels = offload::to_try(&node_plan, &desired.offload_faults, &snapshot.own, &desired.peers);
    if let Some(plan) = node.programs.as_deref().and_then(|programs| programs::plan(programs, &node_plan)) {
        desired.parts.insert(PROGRAMS_PART.to_owned(), plan);
    }
    desired.parts.insert(NODE_PART.to_owned(), node_plan);
    let stays = refused_that_stand(&desired, &snapshot.own, standing);
    nets.keep_tunnels_of(&stays, &mut desired, standing);
    desired.parts.extend(stays);
    if let Some(place) = &node.services {
        let services = snapshot.services.as_ref();
        desired.parts.extend(services::parts(place, &node.underlay, services, standing));
    }
    Ok(desired)
}

/// What stands of nodes that are refused, so long as its prefixes are nobody else's now.
fn refused_that_stand(
    desired: &Desired,
    own: &Prefixes,
    standing: &BTreeMap<String, Plan>,
) -> BTreeMap<String, Plan> {
    let mut taken: Vec<IpNet> = own.iter().collect();
    let mut refused = Vec::new();
    for (name, peer) in &desired.peers {
        match peer {
            DesiredPeer::Reached { lease, .. } => taken.extend(lease.pods.iter()),
            DesiredPeer::Refused(_) => refused.push(part_of(name)),
        }
    }
    let is_taken = |dst: IpNet| taken.iter().any(|net| net.contains(&dst) || dst.contains(net));
    let is_free = |plan: &Plan| {
        plan.steps.iter().all(|placed| match &placed.step {
            Step::ReplaceRoute(route) => !is_taken(route.dst.trunc()),
            _ => true,
        })
    };
    let stands = |part: String| standing.get(&part).map(|plan| (part, plan.clone()));
    refused.into_iter().filter_map(stands).filter(|(_, plan)| is_free(plan)).collect()
}

/// The node in the network, for each family of its pods: flannel has tunnels of the pods' own family.
struct Nets<'a> {
    node: &'a Node,
    network: &'a NetworkConfig,
    specs: Vec<(Family, NodeSpec)>,
}

impl Nets<'_> {
    fn of<'a>(node: &'a Node, network: &'a NetworkConfig, own: &Prefixes) -> Result<Nets<'a>, Undecided> {
        let backend = &network.backend;
        if ![HOST_GW, VXLAN, AWS_VPC].contains(&backend.kind.as_str()) {
            let why = format!(
                "`Backend.Type` is {}, and this agent has {HOST_GW}, {VXLAN} and {AWS_VPC}; the network's configuration \
                 says which",
                backend.kind
            );
            return Err(Undecided::Network(why));
        }
        if own.families().is_empty() {
            return Err(Undecided::Unsaid("prefixes of pods are this node's"));
        }
        let spec = |family: Family| {
            let [v4, v6] = node.numbers;
            let prefixes = network.networks.iter().map(|one| one.prefix);
            let net = Network {
                id: if family == Family::V4 { v4 } else { v6 },
                prefixes: prefixes.filter(|prefix| Family::of(prefix.addr()) == family).collect(),
                vni: backend.vni,
                port: backend.port,
                mtu: None,
                masquerade: false,
                anti_spoofing: None,
                bridge: None,
                isolates_pods: false,
                host_link: false,
            };
            NodeSpec {
                // It is in no name and no packet: tunnels have Ethernet addresses of their own here.
                id: 1,
                place: Place::Host,
                wire: node.wire.clone(),
                wire_mtu: backend.mtu_bytes.map_or(node.wire_mtu, |mtu| mtu.min(node.wire_mtu)),
                underlay: node.underlay,
                outer: family,
                pods: own.only(&[family]),
                network: net,
                tunnel_mac: Some(tunnel_mac(&node.underlay)),
                tunnel_key: None,
                router: None,
            }
        };
        let specs = own.families().iter().map(|family| (*family, spec(*family))).collect();
        Ok(Nets { node, network, specs })
    }

    /// The transport of the network, which carries what has no shorter way.
    fn path(&self) -> &'static DataPath {
        backend(if self.network.backend.kind == VXLAN { VXLAN } else { "direct" })
    }

    fn mtu(&self) -> Result<u32, Undecided> {
        let mtus = self.specs.iter().map(|(_, spec)| self.path().pod_mtu(spec));
        let mtus = mtus.collect::<Result<Vec<u32>, _>>().map_err(|error| Undecided::Node(error.why))?;
        Ok(mtus.into_iter().min().unwrap_or(self.node.wire_mtu))
    }

    fn node_plan(&self) -> Result<Plan, Undecided> {
        let mut plan = Plan::new();
        if self.is_in_cloud() {
            return Ok(plan);
        }
        for (_, spec) in &self.specs {
            plan.extend(self.path().node_plan(spec).map_err(|error| Undecided::Node(error.why))?);
        }
        Ok(plan)
    }

    /// The way to a peer's pods, in which routes take the place of others: the prefixes are the peer's, and nobody
    /// else's.
    fn peer_plan(&self, lease: &Lease) -> Result<(Plan, BTreeMap<Family, &'static str>), String> {
        let announced = &lease.node;
        if announced.backend != self.network.backend.kind {
            return Err(format!(
                "it has the backend {}, and the network {}",
                announced.backend, self.network.backend.kind
            ));
        }
        if self.is_in_cloud() {
            return self.way_by_tables(lease);
        }
        let (mut plan, mut by) = (Plan::new(), BTreeMap::new());
        for (family, spec) in &self.specs {
            let pods = lease.pods.only(&[*family]);
            if pods.families().is_empty() {
                continue;
            }
            let path = self.path_to(*family, &announced.public)?;
            let data = if *family == Family::V4 { announced.data } else { announced.data_v6 };
            if path.name == VXLAN {
                self.check_tunnel(data)?;
            }
            let peer = Peer {
                id: 2,
                underlay: announced.public,
                pods,
                tunnel_mac: data.map(|data| data.mac),
                tunnel_key: None,
            };
            let mut way = path.peer_plan(spec, &peer).map_err(|error| error.why)?;
            if let Some(mtu) = self.narrower_mtu(path, spec, &announced.public) {
                way.steps.iter_mut().for_each(|placed| bound(&mut placed.step, mtu));
            }
            plan.extend(way);
            by.insert(*family, path.name);
        }
        if by.is_empty() {
            return Err(format!("it has the prefixes {}, of no family that this node has", lease.pods));
        }
        Ok((plan.replacing(), by))
    }

    /// The addresses by which a node's pods are reached.
    fn ways(&self, lease: &Lease) -> Vec<IpAddr> {
        let families = self.specs.iter().map(|(family, _)| *family);
        let used = families.filter(|family| !lease.pods.only(&[*family]).families().is_empty());
        used.filter_map(|family| lease.node.public.of(family)).collect()
    }

    /// The MTU of routes to a node's pods, where the way there carries less than the pods' links.
    fn narrower_mtu(&self, path: &DataPath, spec: &NodeSpec, public: &Addresses) -> Option<u32> {
        let carried = *self.node.path_mtus.get(&public.of(spec.outer)?)?;
        let left = carried.saturating_sub(path.transport.overhead_bytes(spec.outer));
        // IPv6 has no smaller one (RFC 8200 §5). What is larger than the way comes in fragments of the tunnel then.
        let least = if spec.outer == Family::V6 { 1280 } else { 0 };
        let mtu = left.max(least);
        (mtu < self.mtu().ok()?).then_some(mtu)
    }

    /// The network's transport, or none at all where that will do.
    fn path_to(&self, family: Family, public: &Addresses) -> Result<&'static DataPath, String> {
        let Some(address) = public.of(family) else {
            return Err(format!(
                "it has no {0} address, by which its {0} pods would be reached",
                family.name()
            ));
        };
        let is_neighbour = self.node.subnets.iter().any(|subnet| subnet.contains(&address));
        match self.network.backend.kind.as_str() {
            VXLAN if self.network.backend.direct_routing && is_neighbour => Ok(backend("direct")),
            VXLAN => Ok(backend(VXLAN)),
            _ if is_neighbour => Ok(backend("direct")),
            _ => Err(format!(
                "{address} is not on the link {}, and {HOST_GW} leads to neighbours alone; vxlan leads farther",
                self.node.wire
            )),
        }
    }

    fn check_tunnel(&self, data: Option<TunnelData>) -> Result<(), String> {
        let vni = self.network.backend.vni;
        match data {
            None => Err("it does not say which Ethernet address its tunnel has (VtepMAC)".to_owned()),
            Some(TunnelData { vni: Some(theirs), .. }) if theirs != vni => {
                Err(format!("its tunnel has the VNI {theirs}, and the network's is {vni}"))
            }
            Some(_) => Ok(()),
        }
    }
}

/// Gives a route the path MTU.
fn bound(step: &mut Step, mtu: u32) {
    if let Step::AddRoute(route) = step {
        route.mtu = Some(mtu);
    }
}

fn backend(name: &str) -> &'static DataPath {
    BACKENDS.iter().find(|path| path.name == name).expect("the names here are those of the list")
}

#[cfg(test)]
mod tests;
