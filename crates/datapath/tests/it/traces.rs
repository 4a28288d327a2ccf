//! The traces that prove which path packets took: the path's packets pass every counter, on both sides.

use datapath::{
    ALL, CNI, DataPath, End, NodeSpec, PacketCounter, PacketDirection, Pod, Protocol, SocketRole, Trace,
};
use linux::{IfName, LinkKind};
use plan::switching::OvsPort;
use plan::{Place, Plan, Step};

use crate::specs::{Shape, peer};

/// Client and server on two nodes or on one, with the traces of their packets.
pub(crate) struct Case {
    path: &'static DataPath,
    nodes: [NodeSpec; 2],
    /// The index of each pod's node.
    homes: [usize; 2],
    pods: [Pod; 2],
}

impl Case {
    pub(crate) fn new(path: &'static DataPath, same_node: bool) -> Case {
        let shape = Shape::new("hg", path);
        let nodes = [shape.node(1), shape.node(2)];
        let homes = if same_node { [0, 0] } else { [0, 1] };
        let server = if same_node { 2 } else { 1 };
        let pods = [shape.pod(&nodes[0], 1), shape.pod(&nodes[homes[1]], server)];
        Case { path, nodes, homes, pods }
    }

    pub(crate) fn traces(&self, protocol: Protocol) -> Vec<Trace> {
        let [client, server] =
            [0, 1].map(|at| End { node: &self.nodes[self.homes[at]], pod: Some(&self.pods[at]) });
        self.path.traces(client, server, protocol).concat()
    }

    /// The name of a place for readers, as seen from the client's side of the wire.
    pub(crate) fn called(&self, place: &Place) -> &'static str {
        if *place == self.nodes[0].place {
            "node"
        } else if *place == self.pods[0].place {
            "pod"
        } else if self.nodes[0].router.as_ref().is_some_and(|router| *place == router.place) {
            "router"
        } else {
            ""
        }
    }

    /// Everything that the path makes for these two.
    fn plan(&self) -> Plan {
        let mut plan = Plan::new();
        for (here, there) in [(0, 1), (1, 0)] {
            plan.extend(self.path.node_plan(&self.nodes[here]).expect("a sound node"));
            for at in [0, 1].into_iter().filter(|at| self.homes[*at] == here) {
                plan.extend(self.path.pod_plan(&self.nodes[here], &self.pods[at]).expect("a sound pod"));
            }
            plan.extend(
                self.path.peer_plan(&self.nodes[here], &peer(&self.nodes[there])).expect("a sound peer"),
            );
        }
        plan
    }

    /// The links that exist after the plan: those it makes, the wires and the loopbacks.
    fn links(&self) -> Vec<(Place, IfName)> {
        let mut links: Vec<(Place, IfName)> = Vec::new();
        for node in &self.nodes {
            links.push((node.place.clone(), node.wire.clone()));
            links.push((node.place.clone(), IfName::new("lo").expect("a sound name")));
            links.extend(node.router.iter().map(|router| (router.place.clone(), router.wire.clone())));
        }
        for placed in self.plan().steps {
            match placed.step {
                Step::AddLink(link) => {
                    if let LinkKind::Veth { peer } | LinkKind::Netkit { peer } = &link.kind {
                        let there = peer.netns.clone().expect("a pod's end is born in the pod");
                        links.push((there.into(), peer.name.clone()));
                    }
                    links.push((placed.place, link.name));
                }
                Step::MoveLink { to, name, .. } => links.push((to, name)),
                Step::AddOvsBridge(bridge) => links.push((placed.place, bridge.name)),
                Step::StartUserNet(net) => links.push((net.pod.into(), net.link)),
                Step::AddOvsPort(OvsPort { tunnel: Some(tunnel), .. }) => {
                    links.push((placed.place, tunnel.kind.device(tunnel.port)));
                }
                _ => {}
            }
        }
        links
    }
}

fn link(counter: &PacketCounter) -> Option<&IfName> {
    match counter {
        PacketCounter::Received(link) | PacketCounter::Sent(link) => Some(link),
        PacketCounter::Forwarded | PacketCounter::Delivered | PacketCounter::Spliced(_) => None,
    }
}

#[test]
fn both_directions_are_counted_at_links_that_the_path_has() {
    for path in ALL {
        for same_node in [false, true] {
            let case = Case::new(path, same_node);
            let links = case.links();
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                let traces = case.traces(protocol);
                for trace in &traces {
                    let known = link(&trace.counter)
                        .is_none_or(|link| links.contains(&(trace.place.clone(), link.clone())));
                    assert!(known, "{}: {trace:?}", path.name);
                }
                for wanted in [PacketDirection::Requests, PacketDirection::Answers] {
                    let shown = |trace: &Trace| [wanted, PacketDirection::Both].contains(&trace.packets);
                    assert!(traces.iter().any(shown), "{} {same_node} {protocol:?}: {wanted:?}", path.name);
                }
            }
        }
    }
}

/// Each bridge and each tunnel device of a path counts its packets, because no other path has them. The
/// exceptions are a device that programs bypass, and the link of a switch that sends to tunnels itself.
#[test]
fn what_distinguishes_a_path_from_others_is_counted() {
    for path in ALL {
        let case = Case::new(path, false);
        let traces = case.traces(Protocol::Tcp);
        let special = |step: &Step| match step {
            Step::AddLink(link) => match link.kind {
                LinkKind::Bridge | LinkKind::Vxlan(_) | LinkKind::WireGuard => Some(link.name.clone()),
                _ => None,
            },
            Step::AddOvsBridge(bridge) if path.transport.name() == "direct" => Some(bridge.name.clone()),
            Step::AddOvsPort(OvsPort { tunnel: Some(tunnel), .. }) => Some(tunnel.kind.device(tunnel.port)),
            _ => None,
        };
        for placed in case.plan().steps {
            let Some(name) = special(&placed.step) else { continue };
            let of_it = traces
                .iter()
                .filter(|trace| trace.place == placed.place && link(&trace.counter) == Some(&name));
            let mut counted: Vec<PacketDirection> = of_it.map(|trace| trace.packets).collect();
            counted.sort_by_key(|packets| *packets as u8);
            assert_eq!(
                counted,
                [PacketDirection::Requests, PacketDirection::Answers],
                "{} {name}",
                path.name
            );
        }
        // Programs and shared links bypass the node's routing. All other paths go through it.
        let routed =
            ["bridge", "docker", "ptp", "ebpf-routed", "ebpf-policies", "ovs", "ovs-afxdp", "ovs-dpdk"]
                .contains(&path.attach.name());
        for node in &case.nodes {
            let mut routing = traces
                .iter()
                .filter(|trace| trace.place == node.place && trace.counter == PacketCounter::Forwarded);
            let expected = if routed { PacketDirection::Both } else { PacketDirection::None };
            assert!(routing.all(|trace| trace.packets == expected), "{}", path.name);
        }
    }
}

#[test]
fn a_plugins_pod_is_known_by_what_it_sends() {
    let case = Case::new(&CNI, false);
    let traces = case.traces(Protocol::Tcp);
    for (pod, packets) in case.pods.iter().zip([PacketDirection::Requests, PacketDirection::Answers]) {
        let place = pod.place.clone();
        let expected = Trace { place, counter: PacketCounter::Sent(pod.ifname.clone()), packets };
        assert!(traces.contains(&expected), "{traces:?}");
    }
}

/// The pod's side shows the same traces as with two pods. The other side has only the transport's links, and
/// forwards nothing.
#[test]
fn one_pod_alone_leaves_the_traces_of_its_own_side() {
    for path in ALL {
        let case = Case::new(path, false);
        let both = case.traces(Protocol::Tcp);
        for (at, part) in [SocketRole::Client, SocketRole::Server].into_iter().enumerate() {
            if path.alone(part).is_err() {
                continue;
            }
            let end = |of: usize| End { node: &case.nodes[of], pod: (of == at).then_some(&case.pods[of]) };
            let alone = path.traces(end(0), end(1), Protocol::Tcp).concat();
            let of_side = |traces: &[Trace], side: usize| -> Vec<Trace> {
                let places = [case.nodes[side].place.clone(), case.pods[side].place.clone()];
                traces.iter().filter(|trace| places.contains(&trace.place)).cloned().collect()
            };
            assert_eq!(of_side(&alone, at), of_side(&both, at), "{} {part:?}", path.name);
            let other = of_side(&alone, 1 - at);
            let place = case.nodes[1 - at].place.clone();
            let idle = Trace {
                place: place.clone(),
                counter: PacketCounter::Forwarded,
                packets: PacketDirection::None,
            };
            assert!(other.contains(&idle), "{} {part:?}: {other:?}", path.name);
            assert!(other.iter().all(|trace| trace.place == place), "{} {part:?}: {other:?}", path.name);
            let wire = |trace: &&Trace| link(&trace.counter) == Some(&case.nodes[1 - at].wire);
            assert_eq!(other.iter().filter(wire).count(), 2, "{} {part:?}: {other:?}", path.name);
        }
    }
}

/// For each side, a data path says whether that side can be alone in a container, and if not, why.
#[test]
fn what_cannot_be_alone_says_why() {
    let refused = |part: SocketRole| -> Vec<&str> {
        ALL.iter().filter(|path| path.alone(part).is_err()).map(|path| path.name).collect()
    };
    let programs = ["ebpf+direct", "ebpf+sockmap", "netkit+direct"];
    let switched = ["ovs+vxlan", "ovs+geneve"];
    assert_eq!(refused(SocketRole::Server), [&["host"], &programs[..], &switched[..]].concat());
    let tunnels = [
        "host",
        "bridge+vxlan",
        "bridge+wireguard",
        "bridge+ipsec",
        "ptp+vxlan",
        "ptp+wireguard",
        "ptp+ipsec",
        "ebpf+direct",
        "ebpf+vxlan",
        "ebpf+wireguard",
        "ebpf+ipsec",
    ];
    assert_eq!(refused(SocketRole::Client), [&tunnels[..], &programs[1..], &switched[..]].concat());
    let error = CNI.alone(SocketRole::Client).unwrap_err().to_string();
    assert_eq!(error, "cni with the client alone in a container: CNI plugins join the pods of both sides");
}
