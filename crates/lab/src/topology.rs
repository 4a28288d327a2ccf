//! Two nodes on a wire, a client pod on the first, a server pod on the second, or one of the two without its pod: as a
//! plan.

mod data_path;
mod keys;
mod machines;
mod own_stack;
mod rdma;
mod redirect;
mod specs;
mod user_nets;
mod wires;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use datapath::{End, Family, NodeSpec, Pod, SocketRole, Trace};
use linux::{IfName, NetnsName};
use plan::forwarding::Splice;
use plan::switching::OvsSwitch;
use plan::{Place, Plan, Step};

use self::keys::TunnelKeys;
use self::specs::{node, pod};
use self::wires::wan;
use crate::card_look::CardInterrupts;
use crate::cni::{Attachment, CniNetwork};
use crate::family::{any, on_underlay};
use crate::ports::{PROXIED_PORT, SERVER_PORT};
use crate::server::{self, OwnStack};
use crate::{ByRole, LabError, Shape, packets, side_settings};

const CLIENT_NODE: u16 = 1;
const SERVER_NODE: u16 = 2;

/// Where everything of a topology is, and the plan that builds it.
#[derive(Debug, Clone)]
pub struct Topology {
    /// What it was made from.
    pub shape: Shape,
    /// The nodes at the two ends of the wire. On [`record::Placement::SameNode`] the client's is the server's too, and
    /// the other has no pod ([`Shape::homes`]).
    pub nodes: ByRole<NodeSpec>,
    /// Where the client's process is: in its pod, or in its node where pods share its namespace or it has none.
    pub client: Place,
    /// Where the server's process is.
    pub server: Place,
    /// Where the client finds the server. With CNI plugins a guess until they have said what its address is.
    pub address: SocketAddr,
    /// The pods' MTU in bytes; with CNI plugins it is theirs to choose, up to this.
    pub pod_mtu_bytes: u32,
    /// All of it that is not plugins' work, in order.
    pub plan: Plan,
    /// The keys of the nodes' tunnels, where these encrypt. The plan has files for them, which are written
    /// when it is built.
    keys: Option<TunnelKeys>,
    /// What plugins do to the pods afterwards, if there are any.
    pub attachments: Option<ByRole<Attachment>>,
    /// What counters have to show of the packets between client and server.
    pub traces: Vec<Trace>,
    /// The stack of our own that the server answers on, if it does.
    own_stack: Option<OwnStack>,
    /// The interrupts of the nodes' cards, where they have any and these are up.
    pub(crate) card_interrupts: Option<CardInterrupts>,
    /// What of it is on the server's machine, where that is another.
    pub there: Option<Half>,
}

/// What of a topology is on another machine.
#[derive(Debug, Clone)]
pub struct Half {
    /// What is done there, in order.
    pub plan: Plan,
    /// What counters have to show there.
    pub traces: Vec<Trace>,
    /// The namespaces whose counters belong to it.
    pub places: Vec<Place>,
}

impl Topology {
    /// Makes the plan. Nothing is changed.
    pub fn plan(shape: Shape) -> Result<Topology, LabError> {
        let shape = side_settings::with_its_mtu(shape)?;
        if !shape.families.contains(&shape.family) {
            return Err(LabError::NoIpv6);
        }
        let keys = TunnelKeys::make(&shape)?;
        let public = keys.as_ref().and_then(TunnelKeys::public);
        let nodes = ByRole {
            client: node(&shape, CLIENT_NODE, public.as_ref().map(|public| public.client)),
            server: node(&shape, SERVER_NODE, public.as_ref().map(|public| public.server)),
        };
        let homes = shape.homes(&nodes);
        let pods = ByRole::make(|part| pod(&shape, homes.of(part), part));
        let path = shape.path;
        let pod_mtu_bytes = path.pod_mtu(&nodes.client)?;

        let processes = ByRole::make(|part| match shape.has_pod(part) {
            true => pods.of(part).place.clone(),
            false => homes.of(part).place.clone(),
        });
        let (mut plan, mut there) = match &shape.machines {
            None => (on_one_machine(&shape, &nodes, &pods, keys.as_ref())?, None),
            Some(_) => {
                let ByRole { client, server } = machines::plans(&shape, &nodes, &pods)?;
                (client, Some(server))
            }
        };
        // After everything that they act on, and before the first socket.
        let sites = ByRole::make(|part| (*homes.of(part), pods.of(part), processes.of(part)));
        side_settings::extend(&shape, &sites, &mut plan, there.as_mut())?;
        redirect::plan(&shape, &processes, &mut plan);
        user_nets::place(&pods, &shape.cpus, &mut plan);
        let address = match shape.is_in_container(SocketRole::Server) {
            true => path.address_of(homes.server, &pods.server, shape.family, shape.server_port())?,
            false => SocketAddr::new(on_underlay(homes.server, shape.family), SERVER_PORT),
        };
        let attach = |network: &Arc<CniNetwork>| {
            let whose = ByRole { client: "the client's pod", server: "the server's pod" };
            let of = |part| Attachment::plan(network, homes.of(part), pods.of(part), whose.of(part));
            ByRole::make(of)
        };
        let attachments = shape.cni.as_ref().map(attach);
        let ends = ByRole::make(|part| End {
            node: homes.of(part),
            pod: shape.is_in_container(part).then_some(pods.of(part)),
        });
        let all = path.traces(ends.client, ends.server, shape.protocol);
        let (mut traces, far) = machines::divided(&shape, all, &processes);
        traces.extend(own_stack::traces(&shape, homes.server));
        if let Some(wire) = shape.rdma {
            traces = rdma::traces(wire);
        }
        let places = distinct([&nodes.server.place, &processes.server]);
        let there = there.map(|plan| Half { plan, traces: far, places });
        let own_stack = own_stack::of(&shape, homes.server, &pods.server, pod_mtu_bytes);
        let ByRole { client, server } = processes;
        Ok(Topology {
            client,
            server,
            address,
            pod_mtu_bytes,
            plan,
            keys,
            attachments,
            traces,
            own_stack,
            card_interrupts: None,
            there,
            nodes,
            shape,
        })
    }

    /// What the client calls: the server, or the port that leads into the client's proxy.
    pub fn called(&self) -> SocketAddr {
        match self.shape.proxies.client {
            Some(_) => SocketAddr::new(self.address.ip(), PROXIED_PORT),
            None => self.address,
        }
    }

    /// The stack of our own that the server answers on, if it does.
    pub(crate) fn own_stack(&self) -> Option<OwnStack> {
        self.own_stack.clone()
    }

    /// The addresses at which its server listens: all of its namespace, or those that no link has.
    pub fn listens_at(&self) -> Vec<IpAddr> {
        match &self.own_stack {
            Some(OwnStack::VhostUser { addresses, .. }) => addresses.clone(),
            None | Some(OwnStack::AfXdp { .. }) => Family::BOTH.map(any).to_vec(),
        }
    }

    /// The arguments of `hostgap serve` by which it answers as this topology's server does.
    pub fn stack_arguments(&self) -> Vec<String> {
        server::stack_args(self.own_stack.as_ref(), self.shape.stack.wait)
    }

    /// The switches between client and server whose threads poll, unless they rest.
    pub(crate) fn polling_switches(&self) -> Vec<&OvsSwitch> {
        let homes = self.shape.homes(&self.nodes);
        let is_home = |place: &Place| homes.both().iter().any(|home| home.place == *place);
        let steps = self.plan.steps.iter().filter(|placed| is_home(&placed.place));
        let polling = steps.filter_map(|placed| match &placed.step {
            Step::StartOvs(switch) if switch.dpdk.is_some() => Some(switch),
            _ => None,
        });
        polling.collect()
    }

    /// The commands that a person would type to build the same, in order.
    pub fn commands(&self) -> Vec<String> {
        let here = match &self.there {
            None => self.plan.commands(),
            Some(half) => machines::commands(self, half),
        };
        let plugins =
            self.attachments.iter().flat_map(|pods| pods.as_ref().both()).flat_map(Attachment::commands);
        let placed = match self.card_interrupts {
            None => side_settings::interrupts_in_words(&self.shape.settings),
            Some(_) => Vec::new(),
        };
        here.into_iter().chain(placed).chain(plugins).collect()
    }

    /// The control group of the client and the server, where the data path or a spliced proxy asks that their processes
    /// be in one: that of the node, or that of the namespace of the processes.
    pub fn groups(&self) -> ByRole<Option<&Splice>> {
        let homes = self.shape.homes(&self.nodes);
        let processes = ByRole { client: &self.client, server: &self.server };
        ByRole::make(|part| {
            let half = self.there.as_ref().filter(|_| part == SocketRole::Server).map(|half| &half.plan);
            half.unwrap_or(&self.plan).steps.iter().find_map(|placed| match &placed.step {
                Step::AddCgroup(splice)
                    if placed.place == homes.of(part).place || placed.place == **processes.of(part) =>
                {
                    Some(splice)
                }
                _ => None,
            })
        })
    }

    /// The names of the namespaces of the client's process and of the server's, which the lab gave them.
    pub fn processes(&self) -> ByRole<&NetnsName> {
        let named = |place| Place::name(place).expect("the lab's own namespaces have names");
        ByRole { client: &self.client, server: &self.server }.map(named)
    }

    /// The namespaces of this machine whose counters belong to it.
    pub fn places(&self) -> Vec<Place> {
        let ByRole { client, server } = self.nodes.as_ref();
        if self.there.is_some() {
            return distinct([&client.place, &self.client]);
        }
        let routers = client.router.iter().map(|router| &router.place);
        let rdma = self.shape.rdma.map(|_| &Place::Host);
        let own = [&client.place, &server.place, &self.client, &self.server];
        distinct(own.into_iter().chain(routers).chain(rdma))
    }
}

/// All of a topology whose nodes are namespaces of this machine, but settings and proxies.
fn on_one_machine(
    shape: &Shape,
    nodes: &ByRole<NodeSpec>,
    pods: &ByRole<Pod>,
    keys: Option<&TunnelKeys>,
) -> Result<Plan, LabError> {
    let mut plan = Plan::new();
    namespaces(shape, nodes, pods, &mut plan);
    if shape.filter.is_some() && shape.flood.is_none() {
        packets::silence(nodes, &mut plan);
    }
    wires::wires(shape, nodes, &mut plan);
    if let Some(wire) = shape.rdma {
        rdma::wire(shape, wire, &mut plan);
    }
    plan.extend(data_path::plan(shape, nodes, pods, keys)?);
    if shape.filter.is_some() || shape.flood.is_some() {
        packets::take_frames(&nodes.server, &mut plan);
    }
    if let Some(filter) = shape.filter {
        let port = shape.flood.map(|_| packets::JUNK_PORT);
        packets::extend(filter, port, &nodes.server, &mut plan);
    }
    Ok(plan)
}

/// Each once, in order.
fn distinct<'a>(places: impl IntoIterator<Item = &'a Place>) -> Vec<Place> {
    places.into_iter().collect::<BTreeSet<_>>().into_iter().cloned().collect()
}

fn name(shape: &Shape, part: &str) -> NetnsName {
    NetnsName::new(format!("{}-{part}", shape.prefix))
        .expect("a prefix of ours and a short part make a valid name")
}

fn ifname(text: &str) -> IfName {
    IfName::new(text).expect("the lab's own interface names are valid")
}

fn namespaces(shape: &Shape, nodes: &ByRole<NodeSpec>, pods: &ByRole<Pod>, plan: &mut Plan) {
    for node in nodes.as_ref().both() {
        plan.push(&node.place, Step::AddNetns);
    }
    if let Some(router) = &nodes.client.router {
        plan.push(&router.place, Step::AddNetns);
    } else if shape.wires.is_shaped() {
        plan.push(&wan(shape), Step::AddNetns);
    }
    for part in [SocketRole::Client, SocketRole::Server].into_iter().filter(|part| shape.has_pod(*part)) {
        plan.push(&pods.of(part).place, Step::AddNetns);
    }
}
