//! Nodes and pods of a topology, as the data path's driver gets them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use datapath::{
    Addresses, Between, Limits, Network, NodeSpec, Peer, Pod, Prefixes, PublishedPort, Reach, Router,
    SocketRole, TunnelKey,
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use linux::PublicKey;
use plan::Place;

use super::keys::{TunnelKeys, file};
use super::{CLIENT_NODE, SERVER_NODE, ifname, name};
use crate::Shape;
use crate::shape::MachineNodes;

/// 192.168.100.n/24 on one wire; with a router between the nodes each has a subnet of its own, as in a cloud.
fn underlay(shape: &Shape, node: u16, routed: bool) -> (Addresses, Addresses) {
    let n = u8::try_from(node).expect("the lab has two nodes");
    let at = |subnet: u8, host: u8| {
        let v4 = Ipv4Addr::new(192, 168, 100 + subnet, host);
        let v6 = Ipv6Addr::new(0xfd00, 0x100 + u16::from(subnet), 0, 0, 0, 0, 0, host.into());
        Addresses::both(v4, v6).only(shape.families)
    };
    if routed { (at(n, 2), at(n, 1)) } else { (at(0, n), at(0, 0)) }
}

pub(super) fn node(shape: &Shape, id: u16, key: Option<PublicKey>) -> NodeSpec {
    if let Some(machines) = &shape.machines {
        return of_machine(shape, machines, (id != SERVER_NODE).then_some(machines.client));
    }
    let routed = shape.path.between == Between::Router;
    let (own, router) = underlay(shape, id, routed);
    let n = u8::try_from(id).expect("the lab has two nodes");
    let polled = shape.poll_cpus();
    NodeSpec {
        id,
        place: Place::Netns(name(shape, &format!("n{id}"))),
        wire: ifname("eth0"),
        wire_mtu: shape.mtu_bytes,
        underlay: own,
        outer: shape.family,
        pods: prefixes(
            shape,
            Ipv4Net::new_assert(Ipv4Addr::new(10, 244, n, 0), 24),
            Ipv6Net::new_assert(Ipv6Addr::new(0xfd00, 0x244, 0, id, 0, 0, 0, 0), 64),
        ),
        network: network(shape),
        tunnel_mac: None,
        tunnel_key: key.map(|public| TunnelKey { file: file(id), public }),
        router: routed.then(|| Router {
            place: Place::Netns(name(shape, "router")),
            wire: ifname(&format!("eth{id}")),
            addresses: router,
        }),
        poll_cpus: if id == SERVER_NODE { polled.server } else { polled.client },
    }
}

/// The nodes of the clients' machines: that of the topology itself, then the others.
pub(super) fn clients_of_machines(shape: &Shape, machines: &MachineNodes) -> Vec<NodeSpec> {
    let mut nodes: Vec<NodeSpec> =
        (0..machines.clients.len()).map(|client| of_machine(shape, machines, Some(client))).collect();
    nodes.swap(0, machines.client);
    nodes
}

/// A machine as a node: its own namespace, its link, and a network of the race's own. It is a
/// client's, or the server's.
///
/// Networks of pods are in 198.18.0.0/15 and 2001:2::/48, which are for benchmarks (RFC 2544, RFC 5180), so that they
/// are not those of a cluster that the machines belong to. The upper half is the server's, the lower one the
/// clients', in equal parts.
fn of_machine(shape: &Shape, machines: &MachineNodes, client: Option<usize>) -> NodeSpec {
    let [high, low] = machines.number.to_be_bytes();
    let v4 = u32::from_be_bytes([198, 18 + high, low, 0]);
    let v6 = u128::from_be_bytes([0x20, 0x01, 0, 2, 0, 0, high, low, 0, 0, 0, 0, 0, 0, 0, 0]);
    let of = |v4: u32, v4_length, v6: u128, v6_length| {
        prefixes(shape, Ipv4Net::new_assert(v4.into(), v4_length), Ipv6Net::new_assert(v6.into(), v6_length))
    };
    let (id, end, pods) = match client {
        None => (SERVER_NODE, &machines.server, of(v4 + 128, 25, v6 + (1 << 63), 65)),
        Some(client) => {
            let bits = machines.client_bits();
            let at = u32::try_from(client).expect("there are few clients");
            let pods =
                of(v4 + (at << (7 - bits)), 25 + bits, v6 + (u128::from(at) << (63 - bits)), 65 + bits);
            (client_node(client), &machines.clients[client], pods)
        }
    };
    let number = machines.network();
    NodeSpec {
        id,
        place: Place::Host,
        wire: end.name.clone(),
        wire_mtu: shape.mtu_bytes,
        underlay: end.addresses.iter().copied().collect(),
        outer: shape.family,
        pods,
        network: Network {
            id: number,
            vni: number.into(),
            // Of its own: a tunnel in external mode takes the packets of all identifiers.
            port: machines.tunnel_port(),
            prefixes: of(v4, 24, v6, 64),
            ..network(shape)
        },
        tunnel_mac: None,
        tunnel_key: None,
        router: None,
        poll_cpus: linux::CpuSet::default(),
    }
}

/// The number of a client's node among the machines: 1 is the leading one, and 2 the server's.
fn client_node(client: usize) -> u16 {
    match u16::try_from(client).expect("there are few clients") {
        0 => CLIENT_NODE,
        others => SERVER_NODE + others,
    }
}

/// The network of the pods, with flannel's identifier and its port; VXLAN's is Linux's from before IANA gave 4789.
pub(super) fn network(shape: &Shape) -> Network {
    Network {
        id: 1,
        prefixes: prefixes(
            shape,
            Ipv4Net::new_assert(Ipv4Addr::new(10, 244, 0, 0), 16),
            Ipv6Net::new_assert(Ipv6Addr::new(0xfd00, 0x244, 0, 0, 0, 0, 0, 0), 48),
        ),
        vni: 1,
        port: shape.path.transport.usual_port(),
        mtu: None,
        masquerade: shape.path.attach.usually_masquerades(),
        // The set-ups that the paths stand for have no such check, and it would cost the path its instructions.
        anti_spoofing: None,
        bridge: None,
        tunnel: None,
        isolates_pods: false,
        // Pods of a race call each other by their own addresses, or by published ports.
        services: false,
        refuses_routers: false,
        host_link: false,
    }
}

pub(super) fn prefixes(shape: &Shape, v4: Ipv4Net, v6: Ipv6Net) -> Prefixes {
    [IpNet::from(v4), IpNet::from(v6)].into_iter().collect::<Prefixes>().only(shape.families)
}

pub(super) fn pod(shape: &Shape, node: &NodeSpec, part: SocketRole) -> Pod {
    let netns = match part {
        SocketRole::Client => name(shape, "client"),
        SocketRole::Server => name(shape, "server"),
    };
    // The second of its node is the server beside its client.
    let on_node = if part == SocketRole::Server && node.id == CLIENT_NODE { 2 } else { 1 };
    // A machine has pods of several networks, whose links are named by their numbers.
    let id = shape.machines.as_ref().map_or(on_node, |_| node.network.id);
    Pod {
        id,
        place: Place::Netns(netns),
        ifname: ifname("eth0"),
        addresses: node.pods.iter().map(|net| pod_address(net, on_node)).collect(),
        mac: None,
        default_route: true,
        gateways: Addresses::default(),
        routes: Vec::new(),
        published: if part == SocketRole::Server && shape.path.reach == Reach::PublishedPort {
            vec![published(shape)]
        } else {
            Vec::new()
        },
        limits: Limits::default(),
        device: None,
        vhost_user: shape.is_vhost_user(part),
    }
}

/// The first addresses are the network's and the gateway's.
fn pod_address(net: IpNet, id: u16) -> IpAddr {
    match net {
        IpNet::V4(v4) => Ipv4Addr::from_bits(v4.network().to_bits() + 1 + u32::from(id)).into(),
        IpNet::V6(v6) => Ipv6Addr::from_bits(v6.network().to_bits() + 1 + u128::from(id)).into(),
    }
}

pub(super) fn peer(node: &NodeSpec, keys: Option<&TunnelKeys>) -> Peer {
    Peer {
        id: node.id,
        underlay: node.underlay,
        pods: node.pods.clone(),
        tunnel_mac: None,
        tunnel_key: node.tunnel_key.as_ref().map(|key| key.public),
        associations: keys.and_then(|keys| keys.associations_with(node.id)),
    }
}

fn published(shape: &Shape) -> PublishedPort {
    let (node, pod) = (shape.published_port(), shape.server_port());
    PublishedPort { node, address: None, pod, protocol: shape.protocol }
}
