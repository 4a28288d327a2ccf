//! The wires between the nodes, with the nodes' addresses on them.

use datapath::{Addresses, Family, NodeSpec};
use ipnet::IpNet;
use linux::ethtool::{NicFeature, NicParameter};
use linux::{IfName, Link, LinkKind, Qdisc, Route, VethPeer, sysctl};
use plan::{
    Place, Plan, Queue, SetLinkMaster, SetLinkMtu, SetLinkUp, SetNic, SetQueueCpus, SetRootQdisc, SetSysctl,
    Step,
};

use super::{ifname, name};
use crate::shape::CardWire;
use crate::{ByRole, Shape};

/// The namespace of the bridge in the middle of a wire that is longer or worse than one of this machine.
pub(super) fn wan(shape: &Shape) -> Place {
    Place::Netns(name(shape, "wan"))
}

/// One veth pair between the nodes, or one from each node to the router or bridge between them. A veth hands a packet
/// to the backlog of the CPU that sent it; RPS on each node's end steers it on to that node's CPUs, so that a node pays
/// for its own receive path as a machine of its own would.
pub(super) fn wires(shape: &Shape, nodes: &ByRole<NodeSpec>, plan: &mut Plan) {
    let ByRole { client, server } = nodes;
    if let (Some(near), Some(far)) = (&client.router, &server.router) {
        wire(shape, (&client.place, &client.wire), (&near.place, &near.wire), plan);
        wire(shape, (&server.place, &server.wire), (&far.place, &far.wire), plan);
        for (node, router, other) in [(client, near, server), (server, far, client)] {
            address(&router.place, &router.wire, router.addresses, plan);
            address(&node.place, &node.wire, node.underlay, plan);
            // A cloud's instance has a default route; here the way to the other node's subnet is enough of it.
            for (dst, via) in subnets(other.underlay).zip(router.addresses.iter()) {
                plan.push(&node.place, Step::AddRoute(Route::via(dst, via, node.wire.clone())));
            }
        }
        for family in shape.families {
            let key = match family {
                Family::V4 => "net/ipv4/ip_forward",
                Family::V6 => "net/ipv6/conf/all/forwarding",
            };
            let key = sysctl::Key::new(key).expect("a constant key is a path");
            plan.push(&near.place, SetSysctl { key, value: "1".to_owned() });
        }
        let ends = ByRole { client: near, server: far };
        worsen(shape, ends.map(|router| (&router.place, &router.wire)), plan);
    } else {
        match &shape.cards {
            Some(cards) => between_cards(shape, cards, nodes, plan),
            None if shape.wires.is_shaped() => long_wire(shape, nodes, plan),
            None => wire(shape, (&client.place, &client.wire), (&server.place, &server.wire), plan),
        }
        for node in [client, server] {
            address(&node.place, &node.wire, node.underlay, plan);
        }
    }
    let ways = [(client, shape.wires.to_server), (server, shape.wires.to_client)];
    for (node, way) in ways {
        if way.gso == Some(false) {
            // As for a card that cannot cut packets: the kernel does it last of all, for a socket of the node as for a
            // pod. A limit on the segments of a packet (`gso_max_segs`) would let the node's sockets alone send each
            // segment through the whole stack.
            for feature in [NicFeature::TsoIpv4, NicFeature::TsoIpv6] {
                let (link, parameter) = (node.wire.clone(), NicParameter::Feature(feature));
                plan.push(&node.place, SetNic { link, parameter, value: 0 });
            }
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

/// Gives each node a card of this machine. They are joined already.
fn between_cards(shape: &Shape, cards: &CardWire, nodes: &ByRole<NodeSpec>, plan: &mut Plan) {
    for (card, node) in [(&cards.ends.client, &nodes.client), (&cards.ends.server, &nodes.server)] {
        let (to, name) = (node.place.clone(), node.wire.clone());
        plan.push(&Place::Host, Step::MoveLink { link: card.clone(), to, name });
        plan.push(&node.place, SetLinkMtu { link: node.wire.clone(), mtu: shape.mtu_bytes });
        if cards.interrupts_at_once {
            let (link, parameter) = (node.wire.clone(), NicParameter::CoalesceRxUsecs);
            plan.push(&node.place, SetNic { link, parameter, value: 0 });
        }
        bring_up(shape, &node.place, &node.wire, plan);
    }
}

/// A wire through a bridge whose ports delay what they send towards a node. On the nodes' own ends netem would be part
/// of the sender's host: TCP holds back what it would add to a full queue of its own host.
fn long_wire(shape: &Shape, nodes: &ByRole<NodeSpec>, plan: &mut Plan) {
    let (wan, bridge) = (wan(shape), ifname("br0"));
    // No process runs here; without an address the bridge sends nothing by itself.
    if shape.families.contains(&Family::V6) {
        let key = sysctl::Key::new("net/ipv6/conf/all/disable_ipv6").expect("a constant key is a path");
        plan.push(&wan, SetSysctl { key, value: "1".to_owned() });
    }
    let mtu = Some(shape.mtu_bytes);
    plan.push(&wan, Step::AddLink(Link { name: bridge.clone(), kind: LinkKind::Bridge, mtu, mac: None }));
    let ports = nodes.as_ref().map(|node| ifname(&format!("eth{}", node.id)));
    for (node, port) in [(&nodes.client, &ports.client), (&nodes.server, &ports.server)] {
        wire(shape, (&node.place, &node.wire), (&wan, port), plan);
        plan.push(&wan, SetLinkMaster { link: port.clone(), master: bridge.clone() });
    }
    plan.push(&wan, SetLinkUp { link: bridge });
    worsen(shape, ports.as_ref().map(|port| (&wan, port)), plan);
}

/// Lets the last link towards the server and the last towards the client do what the wire does.
fn worsen(shape: &Shape, ends: ByRole<(&Place, &IfName)>, plan: &mut Plan) {
    let netem = shape.wires.netem(shape.mtu_bytes);
    for ((place, link), netem) in [(ends.server, netem.server), (ends.client, netem.client)] {
        if let Some(netem) = netem {
            plan.push(place, SetRootQdisc { link: link.clone(), qdisc: Qdisc::Netem(netem) });
        }
    }
}

fn wire(shape: &Shape, near: (&Place, &IfName), far: (&Place, &IfName), plan: &mut Plan) {
    let mtu = Some(shape.mtu_bytes);
    let peer = VethPeer { name: far.1.clone(), netns: far.0.netns(), mtu, mac: None };
    plan.push(
        near.0,
        Step::AddLink(Link { name: near.1.clone(), kind: LinkKind::Veth { peer }, mtu, mac: None }),
    );
    for (place, link) in [near, far] {
        bring_up(shape, place, link, plan);
    }
}

/// Without the parameter the link-local address, from which forwarded IPv6 resolves neighbours, is tentative for a
/// second or two while the kernel probes for duplicates on a wire that has none.
fn bring_up(shape: &Shape, place: &Place, link: &IfName, plan: &mut Plan) {
    if shape.families.contains(&Family::V6) {
        let key = format!("net/ipv6/conf/{link}/accept_dad");
        let key = sysctl::Key::new(key).expect("an interface name is one part of a path");
        plan.push(place, SetSysctl { key, value: "0".to_owned() });
    }
    plan.push(place, SetLinkUp { link: link.clone() });
}

/// Addresses with the lengths of the underlay's subnets, IPv4 first.
fn with_length(addresses: Addresses) -> impl Iterator<Item = IpNet> {
    addresses.iter().map(|address| {
        let length = if address.is_ipv4() { 24 } else { 64 };
        IpNet::new(address, length).expect("both lengths are sound")
    })
}

fn subnets(addresses: Addresses) -> impl Iterator<Item = IpNet> {
    with_length(addresses).map(|net| net.trunc())
}

fn address(place: &Place, link: &IfName, addresses: Addresses, plan: &mut Plan) {
    for address in with_length(addresses) {
        plan.push(place, Step::AddAddress { link: link.clone(), address });
    }
}
