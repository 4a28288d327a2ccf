//! What a node is to have: a pure function of the node, the network's configuration and the leases.

mod clashes;
mod cloud;
mod encrypted;
mod flannel_tunnel;
mod leaving;
mod narrow;
mod nets;
mod offload;
mod programs;
mod services;
mod shared_ends;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use datapath::{Addresses, Family, Prefixes, TunnelKey};
use ipnet::IpNet;
use linux::{IfName, Mac, PublicKey};
use plan::{Plan, Step};

pub(crate) use self::cloud::wish;
pub(crate) use self::flannel_tunnel::FLANNEL_PART;
use self::nets::Nets;
pub use self::programs::PROGRAMS_PART;
pub(crate) use self::services::leads;
pub use self::services::{SERVICES_PART, ServicesPlace, is_of_service, service_part_of};
use crate::backend::BackendKind;
use crate::cloud::View;
use crate::lease::{Announcement, Lease, Snapshot, TunnelData, VxlanEnd};
use crate::network::NetworkConfig;
use crate::offload::{Offload, OffloadFault, Tunnel};

/// The part of the node itself: what all peers' parts rest on. Its name comes before theirs.
pub const NODE_PART: &str = "node";
/// The part that keeps pods from writing packets of the tunnels: one of its own, so that a node of an older agent gets
/// it without a change of what stands.
const PORT_GUARD_PART: &str = "port-guard";
/// How the names of peers' parts begin.
const PEER_PART: &str = "peer-";
/// The most bytes of a part's name, which is that of a file with endings.
const PART_BYTES_MAX: usize = 200;
/// The space of Ethernet addresses that are made of IPv4 addresses: the agents' ends of tunnels.
const MAC_SPACE: u8 = 0x68;

/// The node as the agent finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The link to other nodes.
    pub wire: IfName,
    /// Its MTU in bytes.
    pub wire_mtu: u32,
    /// The node's addresses there.
    pub underlay: Addresses,
    /// The prefixes of that link: a node whose address is in one is a neighbour.
    pub subnets: Vec<IpNet>,
    /// The numbers of which the names of its tunnel devices are made, one for each family of pods: IPv4, IPv6.
    pub numbers: [u16; 2],
    /// What the ways to other nodes' addresses carry, in bytes of an IP packet, as far as that is known.
    pub path_mtus: BTreeMap<IpAddr, u32>,
    /// Whether what its tunnels leave to the card arrives, by their links, as far as that is known.
    pub offloads: BTreeMap<IfName, Offload>,
    /// The programs that forward packets of its pods, by the name of their folder; `None`: the kernel does it, or they
    /// are not to be seen.
    pub programs: Option<String>,
    /// Where calls of Services are led to backends; `None`: nowhere, something else translates their addresses.
    pub services: Option<ServicesPlace>,
    /// The key of its end of tunnels, where the network's are encrypted.
    pub tunnel_key: Option<TunnelKey>,
    /// What is known of the cloud's route tables, where the network has them.
    pub cloud: View,
    /// Whether the network's backend has changed so lately that other nodes may not have followed.
    pub others_may_lag: bool,
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

/// What the node is to have for another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DesiredPeer {
    /// The way to it is made.
    Reached {
        /// What it has announced of itself.
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

impl Undecided {
    /// Where Services are to be led, it is not known which.
    pub(crate) const SERVICES: Undecided = Undecided::Unsaid("Services there are");
}

/// The name of the unit's part that leads packets to this peer.
pub fn part_of(peer: &str) -> String {
    part_named(PEER_PART, peer)
}

/// Whether a part is a peer's.
pub(crate) fn is_of_peer(part: &str) -> bool {
    part.starts_with(PEER_PART)
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

/// What the node says of itself to the others. `standing` is what it has, by parts.
pub fn announcement(node: &Node, network: &NetworkConfig, standing: &BTreeMap<String, Plan>) -> Announcement {
    let data = |family| match BackendKind::find(&network.backend.kind)? {
        BackendKind::Vxlan => {
            let found = flannel_tunnel::tunnel(standing, family, &network.backend).and_then(|link| link.mac);
            let mac = found.unwrap_or_else(|| tunnel_mac(&node.underlay));
            Some(TunnelData::Vxlan(VxlanEnd { vni: Some(network.backend.vni), mac }))
        }
        // Both tunnels have one key, as flannel's have.
        BackendKind::WireGuard => node.tunnel_key.as_ref().map(|key| TunnelData::WireGuard(key.public)),
        BackendKind::HostGw | BackendKind::AwsVpc => None,
    };
    let of = |family| {
        let has = network.networks.iter().any(|one| Family::of(one.prefix.addr()) == family);
        if has { data(family) } else { None }
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
    let nets = Nets::of(node, network, &snapshot.own, standing)?;
    let mut desired = Desired { mtu: nets.mtu()?, ..Desired::default() };
    let mut node_plan = nets.node_plan()?;
    flannel_tunnel::remember(&mut node_plan, standing);
    desired.offload_faults = offload::switch_off(&mut node_plan, &node.offloads, standing.get(NODE_PART));
    let clashing = clashes::find(&snapshot.others);
    for (name, lease) in &snapshot.others {
        let planned = match (lease, clashing.get(name)) {
            (Err(why), _) | (Ok(_), Some(why)) => Err(why.clone()),
            (Ok(lease), None) => nets.peer_plan(name, lease).map(|(plan, by)| (plan, lease.clone(), by)),
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
    encrypted::hold_once(&mut desired.parts, standing, network);
    desired.tunnels = offload::to_try(&node_plan, &desired.offload_faults, &snapshot.own, &desired.peers);
    if let Some(plan) = node.programs.as_deref().and_then(|programs| programs::plan(programs, &node_plan)) {
        desired.parts.insert(PROGRAMS_PART.to_owned(), plan);
    }
    desired.parts.insert(NODE_PART.to_owned(), node_plan);
    desired.parts.extend(nets.port_guard().map(|plan| (PORT_GUARD_PART.to_owned(), plan)));
    let stays = refused_that_stand(&desired, &snapshot.own, standing);
    nets.keep_tunnels(&stays, &mut desired, standing);
    desired.parts.extend(stays);
    shared_ends::hold_once(&mut desired.parts, standing);
    if let Some(place) = &node.services {
        let services = snapshot.services.as_ref();
        desired.parts.extend(services::parts(place, &node.underlay, services, standing));
    }
    Ok(desired)
}

/// What stands of nodes that are refused, so long as no other node has its prefixes or its key now.
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
    let steps = desired.parts.values().flat_map(|plan| &plan.steps);
    let taken_keys: BTreeSet<PublicKey> = steps
        .filter_map(|placed| match &placed.step {
            Step::AddWireGuardPeer(peer) => Some(peer.key),
            _ => None,
        })
        .collect();
    let is_taken = |dst: IpNet| taken.iter().any(|net| net.contains(&dst) || dst.contains(net));
    let is_free = |plan: &Plan| {
        plan.steps.iter().all(|placed| match &placed.step {
            Step::ReplaceRoute(route) => !is_taken(route.dst.trunc()),
            Step::AddWireGuardPeer(peer) => !taken_keys.contains(&peer.key),
            _ => true,
        })
    };
    let stands = |part: String| standing.get(&part).map(|plan| (part, plan.clone()));
    refused.into_iter().filter_map(stands).filter(|(_, plan)| is_free(plan)).collect()
}

#[cfg(test)]
mod tests;
