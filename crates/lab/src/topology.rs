//! Two nodes on a wire, a client pod on the first, a server pod on the second, or one of the two without its pod: as a
//! plan.

mod data_path;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use datapath::{
    Addresses, Between, Cidrs, DataPath, End, Family, NodeSpec, Part, Peer, Pod, Protocol, PublishedPort,
    Reach, Router, SpecError, Trace,
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use linux::{IfName, Link, LinkKind, NetnsName, Qdisc, Route, VethPeer, sysctl};
use plan::forwarding::Splice;
use plan::{
    Place, Plan, Queue, SetGsoMaxSegs, SetLinkMaster, SetLinkUp, SetQueueCpus, SetRootQdisc, SetSysctl, Step,
};
use record::{Placement, Side};

use crate::cni::{Attachment, Network};
use crate::{NodeCpus, Wires, side_settings};

/// The port on which the server answers in its pod.
pub const SERVER_PORT: u16 = 80;
/// The port of the node that leads to it, for data paths that publish ports.
pub const PUBLISHED_PORT: u16 = 8080;
const CLIENT_NODE: u16 = 1;
const SERVER_NODE: u16 = 2;

/// What a topology is made from.
#[derive(Debug, Clone)]
pub struct Shape {
    /// The beginning of all its namespaces' names.
    pub prefix: String,
    /// The data path under the pods; [`datapath::CNI`] where plugins join them.
    pub path: &'static DataPath,
    /// The plugins that do, if any.
    pub cni: Option<Arc<Network>>,
    /// Bytes of a packet on the wire without the Ethernet header.
    pub mtu_bytes: u32,
    /// The nodes' CPUs.
    pub cpus: NodeCpus,
    /// The family in which clients call and in which transports wrap.
    pub family: Family,
    /// The receiving node's CPUs work on received packets, and not the sender's.
    pub steered: bool,
    /// Whether the server's pod is on the second node or beside the client's.
    pub placement: Placement,
    /// Which side has a pod, where the data path has pods. The other's process is in its node's own namespace.
    pub in_container: Side,
    /// What the wire does to packets beside carrying them.
    pub wires: Wires,
    /// What is set otherwise than the kernel has it.
    pub settings: tune::Settings,
    /// What clients call by, where a port of it is published.
    pub protocol: Protocol,
}

/// Where everything of a topology is, and the plan that builds it.
#[derive(Debug, Clone)]
pub struct Topology {
    /// What it was made from.
    pub shape: Shape,
    /// The client's node, which on [`Placement::SameNode`] is the server's too, and the other.
    pub nodes: [NodeSpec; 2],
    /// The namespace of the client's process: its pod's, or its node's where pods share it or it has none.
    pub client: NetnsName,
    /// The namespace of the server's process.
    pub server: NetnsName,
    /// Where the client finds the server. With CNI plugins a guess until they have said what its address is.
    pub address: SocketAddr,
    /// The pods' MTU in bytes; with CNI plugins it is theirs to choose, up to this.
    pub pod_mtu_bytes: u32,
    /// All of it that is not plugins' work, in order.
    pub plan: Plan,
    /// What plugins do afterwards, the client's pod first; empty without them.
    pub attachments: Vec<Attachment>,
    /// What counters have to show of the packets between client and server.
    pub traces: Vec<Trace>,
}

impl Topology {
    /// Makes the plan. Nothing is changed.
    pub fn plan(shape: Shape) -> Result<Topology, SpecError> {
        let shape = side_settings::with_its_mtu(shape)?;
        let nodes = [node(&shape, CLIENT_NODE), node(&shape, SERVER_NODE)];
        // The node of each pod: the client's is the first.
        let homes = [
            0,
            match shape.placement {
                Placement::TwoNodes => 1,
                Placement::SameNode => 0,
            },
        ];
        let pods = [pod(&shape, &nodes[homes[0]], Part::Client), pod(&shape, &nodes[homes[1]], Part::Server)];
        let path = shape.path;
        let pod_mtu_bytes = path.pod_mtu(&nodes[0])?;

        let mut plan = Plan::new();
        namespaces(&shape, &nodes, &pods, &mut plan);
        wires(&shape, &nodes, &mut plan);
        plan.extend(data_path::plan(&shape, &nodes, &pods, homes)?);
        let [client, server] = [0, 1].map(|at| match shape.has_pod(at) {
            true => pods[at].netns.clone(),
            false => netns(&nodes[homes[at]].place),
        });
        // After everything that they act on, and before the first socket.
        let of = |at: usize, process| (&nodes[homes[at]], &pods[at], process);
        let settings = side_settings::plan(&shape, [of(0, &client), of(1, &server)], &plan)?;
        side_settings::extend(&mut plan, settings);
        let address = match shape.in_container.holds(1) {
            true => path.address_of(&nodes[homes[1]], &pods[1], shape.family, SERVER_PORT)?,
            false => SocketAddr::new(nodes[homes[1]].underlay.of(shape.family), SERVER_PORT),
        };
        let attach = |network: &Arc<Network>| {
            let whose = ["the client's pod", "the server's pod"];
            [0, 1].map(|at| Attachment::plan(network, &nodes[homes[at]], &pods[at], whose[at])).to_vec()
        };
        let attachments = shape.cni.as_ref().map(attach).unwrap_or_default();
        let [from, to] = [0, 1].map(|at| End {
            node: &nodes[homes[at]],
            pod: shape.in_container.holds(at).then_some(&pods[at]),
        });
        let traces = path.traces(from, to, shape.protocol);
        Ok(Topology { client, server, address, pod_mtu_bytes, plan, attachments, traces, nodes, shape })
    }

    /// The commands that a person would type to build the same, in order.
    pub fn commands(&self) -> Vec<String> {
        let plugins = self.attachments.iter().flat_map(Attachment::commands);
        self.plan.commands().into_iter().chain(plugins).collect()
    }

    /// The control group of the client's node and the server's, where the data path asks that their processes be in
    /// one.
    pub fn groups(&self) -> [Option<&Splice>; 2] {
        let server = match self.shape.placement {
            Placement::TwoNodes => 1,
            Placement::SameNode => 0,
        };
        [0, server].map(|node| {
            self.plan.steps.iter().find_map(|placed| match &placed.step {
                Step::AddCgroup(splice) if placed.place == self.nodes[node].place => Some(splice),
                _ => None,
            })
        })
    }

    /// The namespaces whose counters belong to it.
    pub fn namespaces(&self) -> Vec<NetnsName> {
        let mut names = self.nodes.iter().map(|node| netns(&node.place)).collect::<Vec<_>>();
        names.extend(self.nodes[0].router.iter().map(|router| netns(&router.place)));
        names.extend([self.client.clone(), self.server.clone()]);
        names.sort();
        names.dedup();
        names
    }
}

impl Shape {
    /// Whether the client (0) or the server (1) is in a pod of its own.
    pub(crate) fn has_pod(&self, at: usize) -> bool {
        self.path.reach != Reach::Node && self.in_container.holds(at)
    }
}

/// The family in which clients call and transports wrap.
pub fn family(ipv6: bool) -> Family {
    if ipv6 { Family::V6 } else { Family::V4 }
}

fn published(protocol: Protocol) -> PublishedPort {
    PublishedPort { node: PUBLISHED_PORT, pod: SERVER_PORT, protocol }
}

fn netns(place: &Place) -> NetnsName {
    match place {
        Place::Netns(name) => name.clone(),
        Place::Host => unreachable!("the lab builds its nodes in namespaces of its own"),
    }
}

fn name(shape: &Shape, part: &str) -> NetnsName {
    NetnsName::new(format!("{}-{part}", shape.prefix))
        .expect("a prefix of ours and a short part make a valid name")
}

fn ifname(text: &str) -> IfName {
    IfName::new(text).expect("the lab's own interface names are valid")
}

/// 192.168.100.n/24 on one wire; with a router between the nodes each has a subnet of its own, as in a cloud.
fn underlay(node: u16, routed: bool) -> (Addresses, Addresses) {
    let n = u8::try_from(node).expect("the lab has two nodes");
    let at = |subnet: u8, host: u8| Addresses {
        v4: Ipv4Addr::new(192, 168, 100 + subnet, host),
        v6: Ipv6Addr::new(0xfd00, 0x100 + u16::from(subnet), 0, 0, 0, 0, 0, host.into()),
    };
    if routed { (at(n, 2), at(n, 1)) } else { (at(0, n), at(0, 0)) }
}

fn node(shape: &Shape, id: u16) -> NodeSpec {
    let routed = shape.path.between == Between::Router;
    let (own, router) = underlay(id, routed);
    let n = u8::try_from(id).expect("the lab has two nodes");
    NodeSpec {
        id,
        place: Place::Netns(name(shape, &format!("n{id}"))),
        wire: ifname("eth0"),
        wire_mtu: shape.mtu_bytes,
        underlay: own,
        outer: shape.family,
        pods: Cidrs {
            v4: Ipv4Net::new_assert(Ipv4Addr::new(10, 244, n, 0), 24),
            v6: Ipv6Net::new_assert(Ipv6Addr::new(0xfd00, 0x244, 0, id, 0, 0, 0, 0), 64),
        },
        cluster: Cidrs {
            v4: Ipv4Net::new_assert(Ipv4Addr::new(10, 244, 0, 0), 16),
            v6: Ipv6Net::new_assert(Ipv6Addr::new(0xfd00, 0x244, 0, 0, 0, 0, 0, 0), 48),
        },
        router: routed.then(|| Router {
            place: Place::Netns(name(shape, "router")),
            wire: ifname(&format!("eth{id}")),
            addresses: router,
        }),
    }
}

fn pod(shape: &Shape, node: &NodeSpec, part: Part) -> Pod {
    let netns = match part {
        Part::Client => name(shape, "client"),
        Part::Server => name(shape, "server"),
    };
    // The second of its node is the server beside its client.
    let id = if part == Part::Server && node.id == CLIENT_NODE { 2 } else { 1 };
    Pod {
        id,
        netns,
        ifname: ifname("eth0"),
        addresses: Addresses {
            v4: Ipv4Addr::from_bits(node.pods.v4.network().to_bits() + 1 + u32::from(id)),
            v6: Ipv6Addr::from_bits(node.pods.v6.network().to_bits() + 1 + u128::from(id)),
        },
        published: (part == Part::Server).then(|| published(shape.protocol)),
    }
}

fn peer(node: &NodeSpec) -> Peer {
    Peer { id: node.id, underlay: node.underlay, pods: node.pods }
}

fn namespaces(shape: &Shape, nodes: &[NodeSpec; 2], pods: &[Pod; 2], plan: &mut Plan) {
    for node in nodes {
        plan.push(&node.place, Step::AddNetns);
    }
    if let Some(router) = &nodes[0].router {
        plan.push(&router.place, Step::AddNetns);
    } else if shape.wires.is_shaped() {
        plan.push(&wan(shape), Step::AddNetns);
    }
    for (_, pod) in pods.iter().enumerate().filter(|(at, _)| shape.has_pod(*at)) {
        plan.push(&Place::Netns(pod.netns.clone()), Step::AddNetns);
    }
}

/// The namespace of the bridge in the middle of a wire that is longer or worse than one of this machine.
fn wan(shape: &Shape) -> Place {
    Place::Netns(name(shape, "wan"))
}

/// One veth pair between the nodes, or one from each node to the router or bridge between them. A veth hands a packet
/// to the backlog of the CPU that sent it; RPS on each node's end steers it on to that node's CPUs, so that a node pays
/// for its own receive path as a machine of its own would.
fn wires(shape: &Shape, nodes: &[NodeSpec; 2], plan: &mut Plan) {
    let [client, server] = nodes;
    if let (Some(near), Some(far)) = (&client.router, &server.router) {
        wire(shape, (&client.place, &client.wire), (&near.place, &near.wire), plan);
        wire(shape, (&server.place, &server.wire), (&far.place, &far.wire), plan);
        for (node, router, other) in [(client, near, server), (server, far, client)] {
            address(&router.place, &router.wire, router.addresses, plan);
            address(&node.place, &node.wire, node.underlay, plan);
            // A cloud's instance has a default route; here the way to the other node's subnet is enough of it.
            for (dst, via) in both(subnet(other.underlay), router.addresses) {
                plan.push(&node.place, Step::AddRoute(Route::via(dst, via, node.wire.clone())));
            }
        }
        for key in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
            let key = sysctl::Key::new(key).expect("a constant key is a path");
            plan.push(&near.place, SetSysctl { key, value: "1".to_owned() });
        }
        worsen(shape, [(&far.place, &far.wire), (&near.place, &near.wire)], plan);
    } else {
        if shape.wires.is_shaped() {
            long_wire(shape, nodes, plan);
        } else {
            wire(shape, (&client.place, &client.wire), (&server.place, &server.wire), plan);
        }
        for node in nodes {
            address(&node.place, &node.wire, node.underlay, plan);
        }
    }
    let ways = [(client, shape.wires.to_server), (server, shape.wires.to_client)];
    for (node, way) in ways {
        if way.gso == Some(false) {
            // Here, and not where packets are made: a pod's own packets are cut on their way out of the node too.
            plan.push(&node.place, SetGsoMaxSegs { link: node.wire.clone(), segments: 1 });
        }
        if let Some(rate) = way.line_rate {
            let line = crate::wire::line(rate, shape.mtu_bytes);
            let step =
                Step::from(SetRootQdisc { link: node.wire.clone(), qdisc: Qdisc::Tbf(Box::new(line)) });
            plan.push(&node.place, step);
        }
    }
    if !shape.steered {
        return;
    }
    for (node, cpus) in [(client, &shape.cpus.client), (server, &shape.cpus.server)] {
        let step =
            Step::from(SetQueueCpus { link: node.wire.clone(), queue: Queue::Rx(0), cpus: cpus.clone() });
        plan.push(&node.place, step);
    }
}

/// A wire through a bridge whose ports delay what they send towards a node. On the nodes' own ends netem would be part
/// of the sender's host: TCP holds back what it would add to a full queue of its own host.
fn long_wire(shape: &Shape, nodes: &[NodeSpec; 2], plan: &mut Plan) {
    let (wan, bridge) = (wan(shape), ifname("br0"));
    // No process runs here; without an address the bridge sends nothing by itself.
    let key = sysctl::Key::new("net/ipv6/conf/all/disable_ipv6").expect("a constant key is a path");
    plan.push(&wan, SetSysctl { key, value: "1".to_owned() });
    let mtu = Some(shape.mtu_bytes);
    plan.push(&wan, Step::AddLink(Link { name: bridge.clone(), kind: LinkKind::Bridge, mtu, mac: None }));
    let ports = nodes.each_ref().map(|node| ifname(&format!("eth{}", node.id)));
    for (node, port) in nodes.iter().zip(&ports) {
        wire(shape, (&node.place, &node.wire), (&wan, port), plan);
        plan.push(&wan, SetLinkMaster { link: port.clone(), master: bridge.clone() });
    }
    plan.push(&wan, SetLinkUp { link: bridge });
    let [to_client, to_server] = &ports;
    worsen(shape, [(&wan, to_server), (&wan, to_client)], plan);
}

/// Lets the last link towards the server and the last towards the client do what the wire does.
fn worsen(shape: &Shape, ends: [(&Place, &IfName); 2], plan: &mut Plan) {
    for ((place, link), netem) in ends.into_iter().zip(shape.wires.netem(shape.mtu_bytes)) {
        if let Some(netem) = netem {
            plan.push(place, SetRootQdisc { link: link.clone(), qdisc: Qdisc::Netem(netem) });
        }
    }
}

fn wire(shape: &Shape, near: (&Place, &IfName), far: (&Place, &IfName), plan: &mut Plan) {
    let mtu = Some(shape.mtu_bytes);
    let peer = VethPeer { name: far.1.clone(), netns: Some(netns(far.0)), mtu, mac: None };
    plan.push(
        near.0,
        Step::AddLink(Link { name: near.1.clone(), kind: LinkKind::Veth { peer }, mtu, mac: None }),
    );
    for (place, link) in [near, far] {
        // Without this the link-local address, from which forwarded IPv6 resolves neighbours, is tentative for a
        // second or two while the kernel probes for duplicates on a wire that has none.
        let key = format!("net/ipv6/conf/{link}/accept_dad");
        let key = sysctl::Key::new(key).expect("an interface name is one part of a path");
        plan.push(place, SetSysctl { key, value: "0".to_owned() });
        plan.push(place, SetLinkUp { link: link.clone() });
    }
}

fn subnet(addresses: Addresses) -> Cidrs {
    Cidrs {
        v4: Ipv4Net::new_assert(addresses.v4, 24).trunc(),
        v6: Ipv6Net::new_assert(addresses.v6, 64).trunc(),
    }
}

fn both(dst: Cidrs, via: Addresses) -> [(IpNet, IpAddr); 2] {
    [(dst.v4.into(), via.v4.into()), (dst.v6.into(), via.v6.into())]
}

fn address(place: &Place, link: &IfName, addresses: Addresses, plan: &mut Plan) {
    let nets: [IpNet; 2] =
        [Ipv4Net::new_assert(addresses.v4, 24).into(), Ipv6Net::new_assert(addresses.v6, 64).into()];
    for address in nets {
        plan.push(place, Step::AddAddress { link: link.clone(), address });
    }
}
