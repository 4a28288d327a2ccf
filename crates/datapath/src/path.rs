//! What can be asked of a data path.

mod checks;
mod list;

use std::fmt;
use std::net::SocketAddr;

use linux::features::{Facts, Feature, Unmet};
use plan::Plan;

pub use self::list::{ALL, ATTACHES, BACKENDS, CNI, DEVICE};
use crate::check::mtu_min;
use crate::trace::{PacketDirection, Traces};
use crate::{
    Attach, End, Family, NodeSpec, Peer, Pod, Protocol, SocketRole, SpecError, Talk, Trace, Transport, With,
    limit,
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
