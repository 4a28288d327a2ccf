//! A topology whose nodes are two machines that are there: what each of them does of it.

use datapath::{NodeSpec, PacketDirection, Pod, SocketRole, SpecError, Trace};
use ipnet::{Ipv4Net, Ipv6Net};
use plan::{Place, Plan, Step};

use super::specs::{network, prefixes};
use super::{SERVER_NODE, data_path, redirect};
use crate::remote::MachineNodes;
use crate::{Shape, Sides};

/// A machine as a node: its own namespace, its link, and a network of the race's own.
///
/// Networks of pods are in 198.18.0.0/15 and 2001:2::/48, which are for benchmarks (RFC 2544, RFC 5180), so that they are
/// not those of a cluster that the machines belong to.
pub(super) fn node(shape: &Shape, machines: &MachineNodes, id: u16) -> NodeSpec {
    let is_server = id == SERVER_NODE;
    let end = if is_server { &machines.server } else { &machines.client };
    let [high, low] = machines.number.to_be_bytes();
    let v4 = u32::from_be_bytes([198, 18 + high, low, 0]);
    let v6 = u128::from_be_bytes([0x20, 0x01, 0, 2, 0, 0, high, low, 0, 0, 0, 0, 0, 0, 0, 0]);
    let (half4, half6) = if is_server { (128, 1 << 63) } else { (0, 0) };
    let of = |v4: u32, v4_length, v6: u128, v6_length| {
        prefixes(shape, Ipv4Net::new_assert(v4.into(), v4_length), Ipv6Net::new_assert(v6.into(), v6_length))
    };
    let number = machines.network();
    NodeSpec {
        id,
        place: Place::Host,
        wire: end.name.clone(),
        wire_mtu: shape.mtu_bytes,
        underlay: end.addresses.iter().copied().collect(),
        outer: shape.family,
        pods: of(v4 + half4, 25, v6 + half6, 65),
        network: datapath::Network {
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
    }
}

/// What each machine does of it.
pub(super) fn plans(
    shape: &Shape,
    nodes: &Sides<NodeSpec>,
    pods: &Sides<Pod>,
) -> Result<Sides<Plan>, SpecError> {
    let [client, server] = nodes.as_ref().facing();
    let half = |facing, part| {
        let mut plan = Plan::new();
        if shape.has_pod(part) {
            plan.push(&pods.of(part).place, Step::AddNetns);
        }
        plan.extend(data_path::one_node(shape, facing, (nodes, pods), None)?);
        Ok(plan)
    };
    Ok(Sides { client: half(client, SocketRole::Client)?, server: half(server, SocketRole::Server)? })
}

/// What counters of this machine have to show, and those of the server's where that is another.
pub(super) fn divided(
    shape: &Shape,
    [mut here, far]: [Vec<Trace>; 2],
    processes: &Sides<Place>,
) -> (Vec<Trace>, Vec<Trace>) {
    if shape.machines.is_none() {
        here.extend(far);
        here.extend(redirect::traces(shape, processes));
        return (here, Vec::new());
    }
    // A machine may forward what is none of the race's, so that its own count says nothing about packets that are not to be
    // among it.
    let is_conclusive = |trace: &Trace| trace.place != Place::Host || trace.packets != PacketDirection::None;
    let of = |traces: Vec<Trace>| traces.into_iter().filter(is_conclusive).collect();
    (of(here), of(far))
}

/// The commands for both machines.
pub(super) fn commands(here: &Plan, there: &Plan) -> Vec<String> {
    let whose = |whose: &str| format!("# on the {whose}'s machine");
    let [here, there] = [here.commands(), there.commands()];
    if here.is_empty() && there.is_empty() {
        return Vec::new();
    }
    std::iter::once(whose("client")).chain(here).chain([whose("server")]).chain(there).collect()
}
