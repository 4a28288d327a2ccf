//! The list of data paths, and what can be asked of each.

use std::fmt;
use std::net::SocketAddr;

use linux::features::{Facts, Feature, Unmet};
use plan::Plan;

use crate::attach::{
    BRIDGE, DOCKER as DOCKER_BRIDGE, EBPF, EBPF_POLICIES, EBPF_ROUTED, EBPF_SOCKMAP, EBPF_TUNNEL, ELSEWHERE,
};
use crate::attach::{
    HOST as NODE_ITSELF, HOST_DEVICE, IPVLAN_L2, IPVLAN_L3, IPVLAN_L3S, MACVLAN as MACVLAN_LINK, NETKIT, OVS,
    OVS_AF_XDP, OVS_DPDK, OVS_TUNNEL, PASTA, PTP, SLIRP4NETNS,
};
use crate::check::mtu_min;
use crate::trace::{PacketDirection, Traces};
use crate::transport::vxlan::VXLAN;
use crate::transport::{DIRECT, IPSEC, ONLINK, OVS_GENEVE, OVS_VXLAN, VPC, VXLAN_METADATA, WIREGUARD};
use crate::{
    AntiSpoofing, Attach, End, Family, Limits, NodeSpec, Peer, Pod, Protocol, SocketRole, SpecError, Talk,
    Trace, Transport, With, limit,
};

/// A way from one pod to another, made of an attach and a transport.
pub struct DataPath {
    /// The name by which users call it.
    pub name: &'static str,
    /// The known set-up that it stands for.
    pub stands_for: &'static str,
    /// How a pod reaches its node.
    pub attach: &'static dyn Attach,
    /// How nodes reach each other's pods.
    pub transport: &'static dyn Transport,
    /// Where clients find what a pod serves.
    pub reach: Reach,
    /// What must lie between the nodes.
    pub between: Between,
    /// Whether it is among "all data paths".
    pub enters: Enters,
}

/// Whether a data path races where none is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enters {
    /// It takes part where no data path is named.
    Always,
    /// Only by name: it is for a special case, and elsewhere the same as another or dearer for what is not asked for.
    Named,
}

/// Where clients find what a pod serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// At the node's address: the pod shares the node's namespace.
    Node,
    /// At a port of the node that leads to the pod's ([`Pod::published`]).
    PublishedPort,
    /// At the pod's own address.
    Pod,
}

/// What lies between the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Between {
    /// One Ethernet: nodes are neighbours.
    Wire,
    /// A router with a table that the transport writes ([`NodeSpec::router`]).
    Router,
}

/// Every data path, in display order.
pub const ALL: &[DataPath] = &[
    DataPath {
        name: "host",
        stands_for: "`--net=host`, the reference",
        attach: &NODE_ITSELF,
        transport: &ONLINK,
        reach: Reach::Node,
        between: Between::Wire,
        enters: Enters::Always,
    },
    DataPath {
        name: "docker",
        stands_for: "Docker's default: a bridge with NAT and published ports",
        attach: &DOCKER_BRIDGE,
        transport: &ONLINK,
        reach: Reach::PublishedPort,
        between: Between::Wire,
        enters: Enters::Always,
    },
    DataPath {
        reach: Reach::PublishedPort,
        enters: Enters::Named,
        ..routed(
            "pasta",
            "rootless Podman since 5.0: a pod's connections by sockets of pasta",
            &PASTA,
            &ONLINK,
        )
    },
    DataPath {
        reach: Reach::PublishedPort,
        enters: Enters::Named,
        ..routed(
            "slirp4netns",
            "rootless Podman before 5.0, rootless Docker: a pod's connections by the TCP of slirp4netns",
            &SLIRP4NETNS,
            &ONLINK,
        )
    },
    routed("bridge+direct", "flannel host-gw", &BRIDGE, &DIRECT),
    DataPath {
        between: Between::Router,
        ..routed("bridge+vpc", "flannel aws-vpc: the route table of a cloud", &BRIDGE, &VPC)
    },
    routed("bridge+vxlan", "flannel vxlan", &BRIDGE, &VXLAN),
    DataPath {
        enters: Enters::Named,
        ..routed("bridge+wireguard", "flannel wireguard", &BRIDGE, &WIREGUARD)
    },
    DataPath { enters: Enters::Named, ..routed("bridge+ipsec", "flannel ipsec", &BRIDGE, &IPSEC) },
    routed("ptp+direct", "Calico without an overlay", &PTP, &DIRECT),
    routed("ptp+vxlan", "Calico with VXLAN", &PTP, &VXLAN),
    DataPath { enters: Enters::Named, ..routed("ptp+wireguard", "Calico with WireGuard", &PTP, &WIREGUARD) },
    DataPath {
        enters: Enters::Named,
        ..routed("ptp+ipsec", "routed veth pairs with flannel ipsec", &PTP, &IPSEC)
    },
    routed("ebpf+direct", "Cilium with native routing", &EBPF, &DIRECT),
    routed("ebpf+vxlan", "Cilium with VXLAN", &EBPF_TUNNEL, &VXLAN_METADATA),
    DataPath {
        enters: Enters::Named,
        ..routed("ebpf+wireguard", "Cilium with WireGuard and legacy host routing", &EBPF_ROUTED, &WIREGUARD)
    },
    DataPath {
        enters: Enters::Named,
        ..routed("ebpf+ipsec", "Cilium with IPsec and legacy host routing", &EBPF_POLICIES, &IPSEC)
    },
    DataPath {
        enters: Enters::Named,
        ..routed(
            "ebpf+sockmap",
            "ebpf+direct with TCP cut short between pods of one node",
            &EBPF_SOCKMAP,
            &DIRECT,
        )
    },
    routed("netkit+direct", "Cilium with netkit and native routing", &NETKIT, &DIRECT),
    routed("macvlan", "macvlan on the node's wire", &MACVLAN_LINK, &ONLINK),
    routed("ipvlan-l2", "ipvlan on the node's wire, switched", &IPVLAN_L2, &ONLINK),
    routed("ipvlan-l3", "ipvlan routed, past the node's netfilter on the way in", &IPVLAN_L3, &DIRECT),
    routed("ipvlan-l3s", "ipvlan routed, through the node's netfilter", &IPVLAN_L3S, &DIRECT),
    DataPath {
        enters: Enters::Named,
        ..routed("ovs+direct", "Open vSwitch in each node, and routes between them", &OVS, &DIRECT)
    },
    DataPath {
        enters: Enters::Named,
        ..routed("ovs+vxlan", "Open vSwitch with VXLAN tunnels as ports", &OVS_TUNNEL, &OVS_VXLAN)
    },
    DataPath {
        enters: Enters::Named,
        ..routed("ovs+geneve", "Open vSwitch with GENEVE tunnels as ports", &OVS_TUNNEL, &OVS_GENEVE)
    },
    DataPath {
        enters: Enters::Named,
        ..routed(
            "ovs-afxdp+direct",
            "Open vSwitch in user space with ports of AF_XDP, and routes between nodes",
            &OVS_AF_XDP,
            &DIRECT,
        )
    },
    DataPath {
        enters: Enters::Named,
        ..routed(
            "ovs-dpdk+direct",
            "Open vSwitch with DPDK, whose threads poll, and routes between nodes",
            &OVS_DPDK,
            &DIRECT,
        )
    },
];

/// What nodes do for pods that CNI plugins join to them: flannel host-gw without its bridge. It is in no list: alone it
/// joins nothing, and a pod's address is what the plugins say.
pub const CNI: DataPath = routed("cni", "CNI plugins on routes between nodes", &ELSEWHERE, &DIRECT);

/// Each transport that an agent keeps on its node, alone: CNI plugins join the pods.
pub const BACKENDS: &[DataPath] = &[
    routed("direct", "flannel host-gw", &ELSEWHERE, &DIRECT),
    routed("vxlan", "flannel vxlan", &ELSEWHERE, &VXLAN),
    routed("wireguard", "flannel wireguard", &ELSEWHERE, &WIREGUARD),
];

/// Each attach alone, for nodes on which another program makes the routes to other nodes' pods, or none does.
pub const ATTACHES: &[DataPath] = &[
    routed("bridge", "bridge with flannel's rules", &BRIDGE, &ONLINK),
    routed("ptp", "Calico's routed veth pair", &PTP, &ONLINK),
    routed("ebpf", "Cilium's veth pair with programs", &EBPF, &ONLINK),
    routed("netkit", "Cilium's netkit pair with programs", &NETKIT, &ONLINK),
    routed("macvlan", "macvlan on the node's wire", &MACVLAN_LINK, &ONLINK),
    routed("ipvlan-l2", "ipvlan on the node's wire, switched", &IPVLAN_L2, &ONLINK),
    routed("ipvlan-l3", "ipvlan routed, past the node's netfilter on the way in", &IPVLAN_L3, &ONLINK),
    routed("ipvlan-l3s", "ipvlan routed, through the node's netfilter", &IPVLAN_L3S, &ONLINK),
];

/// A device of the node handed to each pod. It is in no list: which device it is is said for each pod.
pub const DEVICE: DataPath =
    routed("host-device", "a card or a virtual function in the pod", &HOST_DEVICE, &ONLINK);

/// A path on which pods are reached at their own addresses over one wire.
const fn routed(
    name: &'static str,
    stands_for: &'static str,
    attach: &'static dyn Attach,
    transport: &'static dyn Transport,
) -> DataPath {
    let (reach, between, enters) = (Reach::Pod, Between::Wire, Enters::Always);
    DataPath { name, stands_for, attach, transport, reach, between, enters }
}

impl fmt::Debug for DataPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DataPath({})", self.name)
    }
}

/// The data path of a name.
pub fn find(name: &str) -> Option<&'static DataPath> {
    ALL.iter().find(|path| path.name == name)
}

impl DataPath {
    /// What it needs of the machine, each once.
    pub fn needs(&self) -> Vec<Feature> {
        let mut needs = [self.attach.needs(), self.transport.needs()].concat();
        needs.sort_unstable();
        needs.dedup();
        needs
    }

    /// What this machine lacks for it; empty: it can run here.
    pub fn unmet(&self, facts: &Facts) -> Vec<Unmet> {
        facts.unmet(&self.needs())
    }

    /// The pods' MTU in bytes: the network's, or the underlay's less what the transport adds to a packet.
    pub fn pod_mtu(&self, node: &NodeSpec) -> Result<u32, SpecError> {
        if let Some(most) = self.attach.relay_mtu() {
            return self.network_mtu(node, most);
        }
        let overhead = self.transport.overhead_bytes(node.outer, node.wire_mtu);
        let least = mtu_min(node.families());
        let most = node.wire_mtu.checked_sub(overhead).filter(|mtu| *mtu >= least).ok_or_else(|| SpecError {
            what: format!("node {}", node.id),
            why: format!(
                "an underlay MTU of {} bytes less {overhead} for {} leaves pods less than the {least} that a link needs",
                node.wire_mtu, self.name
            ),
        })?;
        self.network_mtu(node, most)
    }

    /// The MTU that the network says, or the most that there can be.
    fn network_mtu(&self, node: &NodeSpec, most: u32) -> Result<u32, SpecError> {
        match node.network.mtu {
            Some(mtu) if mtu > most => Err(SpecError {
                what: format!("network {}", node.network.id),
                why: format!("its MTU of {mtu} bytes is above the {most} that {} leaves to pods", self.name),
            }),
            mtu => Ok(mtu.unwrap_or(most)),
        }
    }

    /// What is done once on a node.
    pub fn node_plan(&self, node: &NodeSpec) -> Result<Plan, SpecError> {
        self.check_node(node)?;
        let mut plan = self.attach.node(node, self.pod_mtu(node)?)?;
        plan.extend(self.transport.node(node)?);
        Ok(plan)
    }

    /// What is done for one pod, on its node and in its namespace. The namespace exists already.
    pub fn pod_plan(&self, node: &NodeSpec, pod: &Pod) -> Result<Plan, SpecError> {
        self.check_node(node)?;
        pod.check(node)?;
        if self.attach.leads_out() {
            pod.check_is_not_gateway(node)?;
        }
        self.check_published(node, pod)?;
        self.check_mac(node, pod)?;
        self.check_vhost_user(node, pod)?;
        let mtu = self.pod_mtu(node)?;
        let mut plan = self.attach.pod(node, pod, mtu)?;
        plan.extend(limit::plan(self.attach, node, pod, mtu)?);
        Ok(plan)
    }

    /// The beginning of [`DataPath::pod_plan`] for a pod that has no address yet and asks for one on the wire
    /// ([`Attach::can_ask_wire`]). Its steps are among those of the whole plan, which the rest of them completes.
    ///
    /// # Errors
    /// The wire's MTU is too small, or the pod lacks what its interface is made of.
    pub fn interface_plan(&self, node: &NodeSpec, pod: &Pod) -> Result<Plan, SpecError> {
        self.check_mac(node, pod)?;
        self.attach.interface(node, pod, self.pod_mtu(node)?)
    }

    fn check_node(&self, node: &NodeSpec) -> Result<(), SpecError> {
        node.check()?;
        self.check_anti_spoofing(node)?;
        self.check_host_link(node)?;
        if self.attach.leads_out() { node.check_pods_apart() } else { Ok(()) }
    }

    /// Refuses a check of what pods send where nothing on the node could make it.
    fn check_anti_spoofing(&self, node: &NodeSpec) -> Result<(), SpecError> {
        if node.network.anti_spoofing.is_some() && self.attach.anti_spoofing() == AntiSpoofing::Never {
            return Err(SpecError {
                what: format!("network {}", node.network.id),
                why: format!(
                    "the addresses of what its pods send are to be checked, and the attach {} of {} has no place for that",
                    self.attach.name(),
                    self.name
                ),
            });
        }
        Ok(())
    }

    /// Refuses a link of the node's own where it would be of no use.
    fn check_host_link(&self, node: &NodeSpec) -> Result<(), SpecError> {
        if node.network.host_link && !self.attach.takes_host_link() {
            return Err(SpecError {
                what: format!("network {}", node.network.id),
                why: format!(
                    "its nodes are to have a link beside their pods', which the attach {} of {} has no use for",
                    self.attach.name(),
                    self.name
                ),
            });
        }
        Ok(())
    }

    /// Refuses ports that its attach could not publish, and those by which nobody could call the pod.
    fn check_published(&self, node: &NodeSpec, pod: &Pod) -> Result<(), SpecError> {
        for port in &pod.published {
            let families = port.address.map_or(pod.addresses.families().to_vec(), |at| vec![Family::of(at)]);
            let refusals: Vec<_> =
                families.iter().filter_map(|family| self.attach.refuses_callers(*family)).collect();
            if let Some(why) = refusals.first().filter(|_| refusals.len() == families.len()) {
                return Err(SpecError {
                    what: format!("pod {} of node {}", pod.id, node.id),
                    why: format!("it publishes port {}, and {why}", port.node),
                });
            }
        }
        match pod.published.first() {
            Some(port) if !self.attach.publishes_ports() => Err(SpecError {
                what: format!("pod {} of node {}", pod.id, node.id),
                why: format!(
                    "it publishes port {}, and the attach {} of {} publishes no ports",
                    port.node,
                    self.attach.name(),
                    self.name
                ),
            }),
            _ => Ok(()),
        }
    }

    /// Refuses a program in a pod's place where there is no switch that shares memory with it, and what is done at a
    /// pod's link.
    fn check_vhost_user(&self, node: &NodeSpec, pod: &Pod) -> Result<(), SpecError> {
        let refused = |why: String| SpecError { what: format!("pod {} of node {}", pod.id, node.id), why };
        if pod.vhost_user && !self.attach.takes_vhost_user() {
            let attach = self.attach.name();
            return Err(refused(format!(
                "a program is to share memory with a switch, and the attach {attach} of {} has none that does",
                self.name
            )));
        }
        if pod.vhost_user && (pod.mac.is_some() || pod.limits != Limits::default()) {
            return Err(refused(
                "a program has its place, and there is no link whose rate or address could be set".to_owned(),
            ));
        }
        Ok(())
    }

    /// Refuses an Ethernet address of the pod's own where it has the wire's.
    fn check_mac(&self, node: &NodeSpec, pod: &Pod) -> Result<(), SpecError> {
        match pod.mac {
            Some(mac) if !self.attach.has_own_mac() => Err(SpecError {
                what: format!("pod {} of node {}", pod.id, node.id),
                why: format!(
                    "its Ethernet address is to be {mac}, and pods of {} have that of the node's wire or device, or one that a process chooses",
                    self.name
                ),
            }),
            _ => Ok(()),
        }
    }

    /// What is done on a node for each other node.
    pub fn peer_plan(&self, node: &NodeSpec, peer: &Peer) -> Result<Plan, SpecError> {
        self.check_node(node)?;
        peer.check(node)?;
        self.transport.peer(node, peer)
    }

    /// Whether a pod can have this part while the other is another node's own, in no pod.
    ///
    /// # Errors
    /// It cannot, or what they say would take a way that is not this path; why.
    pub fn alone(&self, part: SocketRole) -> Result<(), SpecError> {
        let refusals = [self.attach.refuses_nodes(part), self.transport.refuses_nodes(part)];
        let why = refusals.into_iter().flatten().next();
        why.map_or(Ok(()), |why| {
            Err(SpecError {
                what: format!("{} with the {} alone in a container", self.name, part.name()),
                why: why.to_owned(),
            })
        })
    }

    /// What is done for a node without a pod of its own, so that its own address and a pod of another node reach each
    /// other; after the other node and its pod.
    pub fn bare_plan(&self, node: &NodeSpec, peer: &Peer, pod: &Pod) -> Result<Plan, SpecError> {
        self.check_node(node)?;
        peer.check(node)?;
        let mut plan = self.attach.toward_node(pod, node, self.pod_mtu(node)?)?;
        plan.extend(self.transport.node(node)?);
        plan.extend(self.transport.peer(node, peer)?);
        Ok(plan)
    }

    /// What the packets of a client and a server leave at counters: those of the client's end, then of the server's.
    pub fn traces(&self, client: End<'_>, server: End<'_>, protocol: Protocol) -> [Vec<Trace>; 2] {
        let with = if client.node.id == server.node.id { With::Neighbour } else { With::Remote };
        [(SocketRole::Client, client), (SocketRole::Server, server)].map(|(part, End { node, pod })| {
            let mut traces = Vec::new();
            let talk = Talk { part, with, protocol };
            traces.extend(match pod {
                Some(pod) => self.attach.traces(node, pod, talk),
                None => {
                    // It is the node's own sockets that speak.
                    let mut bare = Traces::default();
                    bare.forwarded(&node.place, PacketDirection::None);
                    bare.into_list()
                }
            });
            if with == With::Remote {
                traces.extend(self.transport.traces(node, talk));
            }
            traces
        })
    }

    /// Where clients outside the node reach a port of a pod.
    ///
    /// # Errors
    /// Neither end has an address of the family, or the path reaches pods by published ports and the pod does
    /// not publish this one.
    pub fn address_of(
        &self,
        node: &NodeSpec,
        pod: &Pod,
        family: Family,
        port: u16,
    ) -> Result<SocketAddr, SpecError> {
        let what = || format!("pod {} of node {}", pod.id, node.id);
        let (addresses, port) = match self.reach {
            Reach::Node => (&node.underlay, port),
            Reach::Pod => (&pod.addresses, port),
            Reach::PublishedPort => {
                let published = pod.published.iter().find(|published| published.pod == port);
                let published = published.ok_or_else(|| SpecError {
                    what: what(),
                    why: format!("it does not publish port {port}, and {} reaches nothing else", self.name),
                })?;
                (&node.underlay, published.node)
            }
        };
        if let Some(why) = self.attach.refuses_callers(family) {
            return Err(SpecError { what: what(), why: why.to_owned() });
        }
        let address = addresses.of(family).ok_or_else(|| SpecError {
            what: what(),
            why: format!("it is not reached by {}: it has no such address", family.name()),
        })?;
        Ok((address, port).into())
    }
}
