//! What a topology is made from: plain data, which everything that plans, builds or measures one may use.

mod card_wire;
mod machine_nodes;
mod rdma_wire;

use std::sync::Arc;

use datapath::{DataPath, Family, NodeSpec, Protocol, Reach, SocketRole};
use linux::CpuSet;
use linux::features::Feature;
use record::{Flood, PacketFilter, Placement, Proxies, Side, Stack, StackKind, Workload};

pub use self::card_wire::CardWire;
pub use self::machine_nodes::{MachineLink, MachineNodes};
pub use self::rdma_wire::RdmaWire;
use crate::cni::CniNetwork;
use crate::family::family;
use crate::ports::{PUBLISHED_PORT, SERVER_PORT};
use crate::protocol::protocol;
use crate::{ByRole, NodeCpus, Wires};

/// What a topology is made from.
#[derive(Debug, Clone)]
pub struct Shape {
    /// The beginning of all its namespaces' names.
    pub prefix: String,
    /// The data path under the pods; [`datapath::CNI`] where plugins join them.
    pub path: &'static DataPath,
    /// The plugins that do, if any.
    pub cni: Option<Arc<CniNetwork>>,
    /// Bytes of a packet on the wire without the Ethernet header.
    pub mtu_bytes: u32,
    /// The CPUs on which each node's threads run.
    pub cpus: NodeCpus,
    /// CPUs that are neither node's, for threads of switches that poll.
    pub spare: CpuSet,
    /// The family in which clients call and in which transports wrap.
    pub family: Family,
    /// The families of nodes and pods.
    pub families: &'static [Family],
    /// The receiving node's CPUs work on received packets, and not the sender's.
    pub steered: bool,
    /// Whether the server's pod is on the second node or beside the client's.
    pub placement: Placement,
    /// Which side has a pod, where the data path has pods. The other's process is in its node's own namespace.
    pub in_container: Side,
    /// The cards at the ends of the wire; `None`: a veth pair.
    pub cards: Option<CardWire>,
    /// What the wire does to packets beside carrying them.
    pub wires: Wires,
    /// What is set otherwise than the kernel has it.
    pub settings: tune::Settings,
    /// Proxies beside client and server.
    pub proxies: Proxies,
    /// What the server answers on.
    pub stack: Stack,
    /// The wire of RDMA devices, where messages go by verbs.
    pub rdma: Option<RdmaWire>,
    /// What becomes of frames at the server's node, in a race of packets or of a flood.
    pub filter: Option<PacketFilter>,
    /// Junk that arrives there meanwhile, if there is a filter.
    pub flood: Option<Flood>,
    /// What clients call by, where a port of it is published.
    pub protocol: Protocol,
    /// The machines that are its nodes; `None`: they are namespaces of this one, which are made.
    pub machines: Option<MachineNodes>,
}

impl Shape {
    /// A data path between two machines as they are; without CPUs, and without a prefix of names.
    pub(crate) fn between_machines(
        path: &'static DataPath,
        machines: MachineNodes,
        workload: &Workload,
    ) -> Shape {
        Shape {
            prefix: String::new(),
            path,
            cni: None,
            mtu_bytes: machines.mtu_bytes(),
            cpus: NodeCpus { client: CpuSet::default(), server: CpuSet::default() },
            spare: CpuSet::default(),
            family: family(workload.ipv6),
            // The other is not touched: forwarding it could cost a machine its default route.
            families: if workload.ipv6 { &[Family::V6] } else { &[Family::V4] },
            steered: false,
            placement: Placement::TwoNodes,
            in_container: Side::Both,
            cards: None,
            wires: Wires::default(),
            settings: tune::Settings::default(),
            proxies: Proxies::default(),
            stack: Stack::default(),
            rdma: None,
            filter: None,
            flood: None,
            protocol: protocol(workload.kind),
            machines: Some(machines),
        }
    }

    /// The queues of a side's end of the wire: those of its card, or of the machine that it is; a veth has one.
    pub(crate) fn nic(&self, part: SocketRole) -> tune::Nic {
        if let Some(machines) = &self.machines {
            let link = machines.end(part);
            return tune::Nic { rx: link.rx_queues, tx: link.tx_queues, ..tune::Nic::default() };
        }
        self.cards.as_ref().map_or_else(tune::Nic::default, |cards| cards.nic.clone())
    }

    /// The port on which the server answers. On a machine that is shared each topology has another.
    pub(crate) fn server_port(&self) -> u16 {
        match &self.machines {
            Some(machines) if self.path.reach == Reach::Node => machines.port(),
            _ => SERVER_PORT,
        }
    }

    /// The port of the node that leads to it, for data paths that publish ports.
    pub(crate) fn published_port(&self) -> u16 {
        self.machines.as_ref().map_or(PUBLISHED_PORT, MachineNodes::port)
    }

    /// The node of the client's process and of the server's.
    pub fn homes<'a>(&self, nodes: &'a ByRole<NodeSpec>) -> ByRole<&'a NodeSpec> {
        let server = match self.placement {
            Placement::TwoNodes => &nodes.server,
            Placement::SameNode => &nodes.client,
        };
        ByRole { client: &nodes.client, server }
    }

    /// The CPU on which each node's switch polls, if it does.
    pub(crate) fn poll_cpus(&self) -> ByRole<CpuSet> {
        self.cpus.polled(&self.spare, self.placement)
    }

    /// The CPUs whose time is a node's: those of its threads, and the one on which its switch polls.
    pub(crate) fn counted_cpus(&self, threads: &NodeCpus) -> NodeCpus {
        match self.path.needs().contains(&Feature::OpenVSwitchDpdk) {
            true => threads.with(&self.poll_cpus()),
            false => threads.clone(),
        }
    }

    /// Whether a side's server has a pod's port of a switch to itself, in place of a link.
    pub(crate) fn is_vhost_user(&self, part: SocketRole) -> bool {
        part == SocketRole::Server && self.stack.kind == StackKind::VhostUser
    }

    /// Whether a side is in a pod of its own.
    pub(crate) fn has_pod(&self, part: SocketRole) -> bool {
        self.path.reach != Reach::Node && self.is_in_container(part)
    }

    /// Whether a side is in a container, which on some data paths shares its node's network.
    pub(crate) fn is_in_container(&self, part: SocketRole) -> bool {
        match part {
            SocketRole::Client => self.in_container.has_client(),
            SocketRole::Server => self.in_container.has_server(),
        }
    }
}
