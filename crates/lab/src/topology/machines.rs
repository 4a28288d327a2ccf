//! A topology whose nodes are two machines that are there: what each of them does of it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use datapath::{NodeSpec, PacketDirection, Pod, SocketRole, SpecError, Trace};
use linux::Route;
use plan::{Place, Plan, Step};

use super::specs::{clients_of_machines, peer};
use super::{Half, SERVER_NODE, Topology};
use super::{data_path, redirect};
use crate::side_settings::{self, is_of_route};
use crate::{ByRole, Shape};

/// What each machine does of it.
pub(super) fn plans(
    shape: &Shape,
    nodes: &ByRole<NodeSpec>,
    pods: &ByRole<Pod>,
) -> Result<ByRole<Plan>, SpecError> {
    let [client, server] = nodes.as_ref().facing();
    let half = |facing, part| {
        let mut plan = Plan::new();
        if shape.has_pod(part) {
            plan.push(&pods.of(part).place, Step::AddNetns);
        }
        plan.extend(data_path::one_node(shape, facing, (nodes, pods), None)?);
        if !shape.has_pod(part) && side_settings::of(&shape.settings, part).iter().any(is_of_route) {
            plan.extend(own_routes(shape, facing));
        }
        if part == SocketRole::Server {
            plan.extend(other_clients(shape, &nodes.server)?);
        }
        Ok(plan)
    };
    Ok(ByRole { client: half(client, SocketRole::Client)?, server: half(server, SocketRole::Server)? })
}

/// Routes from one machine to the others' addresses, for what is set at routes: those that are there lead to others,
/// too.
fn own_routes(shape: &Shape, (node, facing): (&NodeSpec, &NodeSpec)) -> Plan {
    let clients = shape.machines.iter().filter(|_| facing.id != SERVER_NODE);
    let clients = clients.flat_map(|machines| clients_of_machines(shape, machines));
    let all = clients.map(|client| client.underlay).chain([facing.underlay]);
    let to: BTreeSet<IpAddr> = all.filter_map(|underlay| underlay.of(shape.family)).collect();
    let mut plan = Plan::new();
    for address in to {
        let src = node.underlay.of(shape.family);
        plan.push(
            &node.place,
            Step::AddRoute(Route { src, ..Route::on_link(address.into(), node.wire.clone()) }),
        );
    }
    plan
}

/// What the server's machine has for the clients beside the one that the topology is of.
fn other_clients(shape: &Shape, server: &NodeSpec) -> Result<Plan, SpecError> {
    let mut plan = Plan::new();
    for client in shape.machines.iter().flat_map(|machines| clients_of_machines(shape, machines)).skip(1) {
        plan.extend(shape.path.peer_plan(server, &peer(&client, None))?);
    }
    Ok(plan)
}

/// What counters of this machine have to show, and those of the server's where that is another.
pub(super) fn divided(
    shape: &Shape,
    [mut here, far]: [Vec<Trace>; 2],
    processes: &ByRole<Place>,
) -> (Vec<Trace>, Vec<Trace>) {
    if shape.machines.is_none() {
        here.extend(far);
        here.extend(redirect::traces(shape, processes));
        return (here, Vec::new());
    }
    // A machine may forward what is none of the race's, so that its own count says nothing about packets that are not
    // to be among it.
    let is_conclusive = |trace: &Trace| trace.place != Place::Host || trace.packets != PacketDirection::None;
    let of = |traces: Vec<Trace>| traces.into_iter().filter(is_conclusive).collect();
    (of(here), of(far))
}

/// The commands for all machines.
pub(super) fn commands(here: &Topology, half: &Half) -> Vec<String> {
    let whose = |whose: &str| format!("# on the {whose}'s machine");
    let [client, there] = [here.plan.commands(), half.plan.commands()];
    if client.is_empty() && there.is_empty() {
        return Vec::new();
    }
    let others = others(&here.shape).into_iter().zip(2..);
    let others = others.flat_map(|(plan, number)| {
        std::iter::once(format!("# on the machine of client {number}")).chain(plan.commands())
    });
    let client = std::iter::once(whose("client")).chain(client).chain(others);
    client.chain([whose("server")]).chain(there).collect()
}

/// What the machines of the other clients do, as the leading one sees it.
fn others(shape: &Shape) -> Vec<Plan> {
    let Some(machines) = shape.machines.as_ref() else { return Vec::new() };
    let others = (1..machines.clients.len()).filter(|_| machines.client == 0);
    let shapes = others.map(|client| Shape { machines: Some(machines.for_client(client)), ..shape.clone() });
    // They differ in addresses, so that where the first was planned they all are.
    shapes.filter_map(|shape| Topology::plan(shape).ok()).map(|topology| topology.plan).collect()
}

#[cfg(test)]
mod tests {
    use ipnet::IpNet;
    use record::{RequestedValue, Tuning, Workload};
    use tune::Settings;

    use super::*;

    use crate::shape::{MachineLink, MachineNodes};

    fn link(host: u8) -> MachineLink {
        MachineLink {
            name: linux::IfName::new("eth0").unwrap(),
            mtu: if host == 17 { 1400 } else { 1500 },
            addresses: vec![IpAddr::from([10, 9, 0, host])],
            rx_queues: 4,
            tx_queues: 4,
            card: String::new(),
        }
    }

    fn topology(path: &str, clients: u8, client: usize) -> Topology {
        let clients = (0..clients).map(|client| link(10 + client)).collect();
        let nodes = MachineNodes { clients, client, server: link(2), number: 300 };
        let shape = Shape::between_machines(datapath::find(path).unwrap(), nodes, &Workload::default());
        Topology::plan(Shape { prefix: "hg-x".to_owned(), ..shape }).unwrap()
    }

    fn pods(topology: &Topology) -> ByRole<IpNet> {
        topology.nodes.as_ref().map(|node| node.pods.iter().next().unwrap())
    }

    #[test]
    fn each_client_has_pods_and_a_node_of_its_own_and_one_has_all_of_its_half() {
        let shown = |clients: u8| -> Vec<String> {
            (0..clients.into())
                .map(|client| pods(&topology("ptp+vxlan", clients, client)).client.to_string())
                .collect()
        };
        assert_eq!(shown(1), ["198.19.44.0/25"]);
        assert_eq!(shown(3), ["198.19.44.0/27", "198.19.44.32/27", "198.19.44.64/27"]);
        assert_eq!(shown(32).last().unwrap(), "198.19.44.124/30");
        let ids = (0..3).map(|client| topology("ptp+vxlan", 3, client).nodes.client.id);
        assert_eq!(ids.collect::<Vec<_>>(), [1, 3, 4]);
        let server = topology("ptp+vxlan", 3, 2);
        assert_eq!(
            (pods(&server).server.to_string().as_str(), server.nodes.server.id),
            ("198.19.44.128/25", 2)
        );
        assert_eq!(
            topology("ptp+vxlan", 8, 0).nodes.client.wire_mtu,
            1400,
            "the narrowest way is everyone's"
        );
    }

    #[test]
    fn the_server_has_a_way_to_each_client_and_each_client_one_to_it() {
        for path in ["ptp+direct", "bridge+vxlan", "ebpf+vxlan"] {
            let leading = topology(path, 3, 0);
            let there = leading.there.as_ref().unwrap().plan.commands().join("\n");
            for client in 0..3 {
                let own = topology(path, 3, client);
                let to_client = format!("198.19.44.{}/27", 32 * client);
                assert!(there.contains(&to_client), "{path} {to_client}: {there}");
                let here = own.plan.commands().join("\n");
                assert!(
                    here.contains("198.19.44.128/25") && own.address == leading.address,
                    "{path}: {here}"
                );
                let others = (0..3).filter(|other| *other != client);
                for other in others.map(|other| format!("198.19.44.{}/27", 32 * other)) {
                    assert!(!here.contains(&other), "{path} {other}: {here}");
                }
            }
        }
        let commands = topology("ptp+direct", 3, 0).commands();
        for whose in
            ["# on the client's machine", "# on the machine of client 3", "# on the server's machine"]
        {
            assert_eq!(commands.iter().filter(|line| *line == whose).count(), 1, "{commands:?}");
        }
    }

    /// Each machine sets what is its side's, at the link that leads to the others and at routes of the race's own.
    #[test]
    fn each_machine_has_the_settings_of_its_side() {
        let value = |text: &str| RequestedValue::Text(text.to_owned());
        let of = |knobs: &[(&str, &str)]| {
            knobs.iter().map(|(knob, set)| ((*knob).to_owned(), value(set))).collect()
        };
        let tuning = Tuning {
            both: of(&[("initcwnd", "16")]),
            client: of(&[("tcp_sack", "0")]),
            server: of(&[("rps_cpus", "2-3"), ("somaxconn", "777")]),
        };
        let planned = |path: &str, clients: u8, client: usize| {
            let plain = topology(path, clients, client).shape;
            Topology::plan(Shape { settings: Settings::read(&tuning).unwrap(), ..plain }).unwrap()
        };
        let text = |plan: &Plan| plan.commands().join("\n");
        let host = planned("host", 2, 0);
        let (here, there) = (text(&host.plan), text(&host.there.as_ref().unwrap().plan));
        assert!(
            here.contains("tcp_sack") && !here.contains("somaxconn") && !here.contains("rps_cpus"),
            "{here}"
        );
        assert!(here.contains("10.9.0.2") && !here.contains("10.9.0.11"), "{here}");
        assert!(!there.contains("tcp_sack") && there.contains("somaxconn"), "{there}");
        assert_eq!(there.matches("rps_cpus").count(), 4, "a queue each: {there}");
        for client in ["10.9.0.10", "10.9.0.11"] {
            let lines: Vec<&str> = there.lines().filter(|line| line.contains(client)).collect();
            assert!(lines.len() == 2 && lines[1].contains("initcwnd 16"), "{there}");
        }
        // Pods have routes of their own.
        let pods = planned("ptp+direct", 2, 1);
        let (here, there) = (text(&pods.plan), text(&pods.there.as_ref().unwrap().plan));
        for (plan, way) in [(&here, "10.9.0.2/32"), (&there, "10.9.0.10/32")] {
            assert!(plan.contains("initcwnd 16") && !plan.contains(way), "{plan}");
        }
    }
}
