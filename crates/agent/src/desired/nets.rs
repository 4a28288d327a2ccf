//! The ways of a node to the others, by the transports of [`datapath`].

use std::collections::BTreeMap;
use std::net::IpAddr;

use datapath::{Addresses, DataPath, Family, Network, NodeSpec, Peer, Prefixes};
use plan::{Place, Plan};

use super::encrypted::check_config;
use super::{Node, Undecided, flannel_tunnel, tunnel_mac};
use crate::backend::{BackendKind, DIRECT, VXLAN, transport};
use crate::lease::{Lease, TunnelData, VxlanEnd};
use crate::network::NetworkConfig;

/// The node in the network, for each family of its pods: flannel has tunnels of the pods' own family.
pub(super) struct Nets<'a> {
    pub(super) node: &'a Node,
    pub(super) network: &'a NetworkConfig,
    pub(super) kind: BackendKind,
    pub(super) specs: Vec<(Family, NodeSpec)>,
    /// What the node has, by parts.
    pub(super) standing: &'a BTreeMap<String, Plan>,
}

impl Nets<'_> {
    pub(super) fn of<'a>(
        node: &'a Node,
        network: &'a NetworkConfig,
        own: &Prefixes,
        standing: &'a BTreeMap<String, Plan>,
    ) -> Result<Nets<'a>, Undecided> {
        let backend = &network.backend;
        let unknown = || {
            let all = BackendKind::names();
            let named = &backend.kind;
            Undecided::Network(format!(
                "`Backend.Type` is {named}, and this agent has {all}; the network's configuration says which"
            ))
        };
        let kind = BackendKind::find(&backend.kind).ok_or_else(unknown)?;
        if own.families().is_empty() {
            return Err(Undecided::Unsaid("prefixes of pods are this node's"));
        }
        if kind == BackendKind::WireGuard {
            check_config(&backend.wireguard, own.families())?;
        }
        let spec = |family: Family| {
            let [v4, v6] = node.numbers;
            let prefixes = network.networks.iter().map(|one| one.prefix);
            let found = flannel_tunnel::tunnel(standing, family, backend);
            let net = Network {
                id: if family == Family::V4 { v4 } else { v6 },
                prefixes: prefixes.filter(|prefix| Family::of(prefix.addr()) == family).collect(),
                vni: backend.vni,
                port: backend.port_over(kind, family),
                mtu: None,
                masquerade: false,
                anti_spoofing: None,
                bridge: None,
                tunnel: found.map(|link| link.name.clone()),
                isolates_pods: false,
                services: false,
                refuses_routers: false,
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
                tunnel_mac: found.and_then(|link| link.mac).or_else(|| Some(tunnel_mac(&node.underlay))),
                tunnel_key: node.tunnel_key.clone(),
                router: None,
                poll_cpus: linux::CpuSet::default(),
            }
        };
        let specs: Vec<(Family, NodeSpec)> =
            own.families().iter().map(|family| (*family, spec(*family))).collect();
        for (family, _) in &specs {
            flannel_tunnel::check(flannel_tunnel::tunnel(standing, *family, backend), node)?;
        }
        Ok(Nets { node, network, kind, specs, standing })
    }

    pub(super) fn mtu(&self) -> Result<u32, Undecided> {
        let mtus = self.specs.iter().map(|(_, spec)| self.kind.path().pod_mtu(spec));
        let mtus = mtus.collect::<Result<Vec<u32>, _>>().map_err(|error| Undecided::Node(error.why))?;
        Ok(mtus.into_iter().min().unwrap_or(self.node.wire_mtu))
    }

    pub(super) fn node_plan(&self) -> Result<Plan, Undecided> {
        let mut plan = Plan::new();
        for (_, spec) in &self.specs {
            let of_family = self.kind.path().node_plan(spec).map_err(|error| Undecided::Node(error.why))?;
            // A cloud routes in place of the node. What no node could do, it cannot do either, so the plan is
            // made in any case.
            if self.kind != BackendKind::AwsVpc {
                plan.extend(of_family);
            }
        }
        Ok(plan)
    }

    /// What keeps the node's pods from writing packets of its tunnels; `None`: it has no such tunnel.
    pub(super) fn port_guard(&self) -> Option<Plan> {
        let mut plan = Plan::new();
        for (_, spec) in &self.specs {
            plan.extend(self.kind.path().transport.port_guard(spec));
        }
        (!plan.steps.is_empty()).then_some(plan)
    }

    /// The way to a peer's pods, in which routes take the place of others: the prefixes are the peer's, and no
    /// other's.
    pub(super) fn peer_plan(
        &self,
        name: &str,
        lease: &Lease,
    ) -> Result<(Plan, BTreeMap<Family, &'static str>), String> {
        let announced = &lease.node;
        if announced.backend != self.kind.name() {
            return Err(format!(
                "it has the backend {}, and the network {}",
                announced.backend,
                self.kind.name()
            ));
        }
        if self.kind == BackendKind::AwsVpc {
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
            if path.name != DIRECT {
                self.check_tunnel(data)?;
            }
            let peer = Peer {
                id: 2,
                underlay: announced.public,
                pods,
                tunnel_mac: data.and_then(TunnelData::mac),
                tunnel_key: data.and_then(TunnelData::key),
                associations: None,
            };
            let mut way = path.peer_plan(spec, &peer).map_err(|error| error.why)?;
            if let Some(address) = announced.public.of(*family) {
                self.bound(name, path, spec, address, &mut way);
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
    pub(super) fn ways(&self, lease: &Lease) -> Vec<IpAddr> {
        let families = self.specs.iter().map(|(family, _)| *family);
        let used = families.filter(|family| !lease.pods.only(&[*family]).families().is_empty());
        used.filter_map(|family| lease.node.public.of(family)).collect()
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
        match self.kind {
            BackendKind::Vxlan if !(self.network.backend.direct_routing && is_neighbour) => {
                Ok(transport(VXLAN))
            }
            BackendKind::WireGuard => Ok(self.kind.path()),
            _ if is_neighbour => Ok(transport(DIRECT)),
            kind => Err(format!(
                "{address} is not on the link {}, and {} leads to neighbours alone; vxlan and wireguard lead farther",
                self.node.wire,
                kind.name()
            )),
        }
    }

    /// Refuses an end that no way leads to.
    fn check_tunnel(&self, data: Option<TunnelData>) -> Result<(), String> {
        let vni = self.network.backend.vni;
        match (self.kind, data) {
            (BackendKind::Vxlan, None) => {
                Err("it does not say which Ethernet address its tunnel has (VtepMAC)".to_owned())
            }
            (BackendKind::WireGuard, None) => {
                Err("it does not say which public key its tunnel has (PublicKey)".to_owned())
            }
            (_, Some(TunnelData::Vxlan(VxlanEnd { vni: Some(theirs), .. }))) if theirs != vni => {
                Err(format!("its tunnel has the VNI {theirs}, and the network's is {vni}"))
            }
            _ => Ok(()),
        }
    }
}
