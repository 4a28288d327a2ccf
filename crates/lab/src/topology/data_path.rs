//! The data path's part of a topology: on both nodes with both pods, or with the pod of one side alone.

use datapath::{NodeSpec, Pod, SocketRole, SpecError};
use plan::Plan;
use record::{Placement, Side};

use super::keys::TunnelKeys;
use super::specs::peer;
use crate::{ByRole, Shape};

/// What the data path does for these pods.
pub(super) fn plan(
    shape: &Shape,
    nodes: &ByRole<NodeSpec>,
    pods: &ByRole<Pod>,
    keys: Option<&TunnelKeys>,
) -> Result<Plan, SpecError> {
    let ByRole { client, server } = nodes;
    match shape.in_container {
        Side::Both => both_sides(shape, nodes, pods, keys),
        Side::Client => one_side(shape, [client, server], &pods.client, SocketRole::Client, keys),
        Side::Server => one_side(shape, [server, client], &pods.server, SocketRole::Server, keys),
    }
}

fn both_sides(
    shape: &Shape,
    nodes: &ByRole<NodeSpec>,
    pods: &ByRole<Pod>,
    keys: Option<&TunnelKeys>,
) -> Result<Plan, SpecError> {
    let mut plan = Plan::new();
    for facing in nodes.as_ref().facing() {
        plan.extend(one_node(shape, facing, (nodes, pods), keys)?);
    }
    Ok(plan)
}

/// All of it on a node: `facing` are that node and the other.
pub(super) fn one_node(
    shape: &Shape,
    (here, there): (&NodeSpec, &NodeSpec),
    (nodes, pods): (&ByRole<NodeSpec>, &ByRole<Pod>),
    keys: Option<&TunnelKeys>,
) -> Result<Plan, SpecError> {
    let path = shape.path;
    let homes = shape.homes(nodes);
    let mut plan = path.node_plan(here)?;
    let at_home = |part: &SocketRole| homes.of(*part).id == here.id;
    for part in [SocketRole::Client, SocketRole::Server].into_iter().filter(at_home) {
        plan.extend(path.pod_plan(here, pods.of(part))?);
    }
    plan.extend(path.peer_plan(here, &peer(there, keys))?);
    Ok(plan)
}

/// All of it on the node of the pod, and on the other node no more than leads to that pod. `part` is the pod's.
fn one_side(
    shape: &Shape,
    [node, bare]: [&NodeSpec; 2],
    pod: &Pod,
    part: SocketRole,
    keys: Option<&TunnelKeys>,
) -> Result<Plan, SpecError> {
    let path = shape.path;
    path.alone(part)?;
    if shape.placement == Placement::SameNode {
        let what = format!("{} with one side alone in a container", path.name);
        let why = "on one node the other side would be the node of the pod itself".to_owned();
        return Err(SpecError { what, why });
    }
    let mut plan = path.node_plan(node)?;
    plan.extend(path.pod_plan(node, pod)?);
    plan.extend(path.peer_plan(node, &peer(bare, keys))?);
    plan.extend(path.bare_plan(bare, &peer(node, keys), pod)?);
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use datapath::Protocol;

    use super::*;
    use crate::{LabError, NodeCpus, Topology, Wires, family};

    fn topology(path: &str, in_container: Side, placement: Placement) -> Result<Topology, LabError> {
        Topology::plan(Shape {
            prefix: "hg-x".to_owned(),
            path: datapath::find(path).expect("a known path"),
            cni: None,
            mtu_bytes: 1500,
            cpus: NodeCpus::split(&"0-1".parse().unwrap()),
            spare: linux::CpuSet::default(),
            family: family(false),
            families: &datapath::Family::BOTH,
            steered: false,
            placement,
            in_container,
            cards: None,
            wires: Wires::default(),
            settings: tune::Settings::default(),
            proxies: record::Proxies::default(),
            stack: record::Stack::default(),
            filter: None,
            rdma: None,
            flood: None,
            protocol: Protocol::Tcp,
            machines: None,
        })
    }

    /// The ends of the names of namespaces: client, server, and where the client calls.
    #[track_caller]
    fn check(path: &str, in_container: Side, expected: [&str; 3]) {
        let topology = topology(path, in_container, Placement::TwoNodes).unwrap();
        let (address, ByRole { client, server }) = (topology.address, topology.processes());
        assert_eq!([client.to_string(), server.to_string(), address.to_string()], expected, "{path}");
        // Nothing is made for a pod that is not there.
        let made: BTreeSet<String> = topology.places().iter().map(ToString::to_string).collect();
        let places: BTreeSet<String> =
            topology.plan.steps.iter().map(|step| step.place.to_string()).collect();
        assert_eq!(places, made, "{path}");
    }

    #[test]
    fn the_side_without_a_container_is_its_node() {
        check("docker", Side::Client, ["hg-x-client", "hg-x-n2", "192.168.100.2:80"]);
        check("docker", Side::Server, ["hg-x-n1", "hg-x-server", "192.168.100.2:8080"]);
        check("bridge+vxlan", Side::Server, ["hg-x-n1", "hg-x-server", "10.244.2.2:80"]);
        check("macvlan", Side::Client, ["hg-x-client", "hg-x-n2", "192.168.100.2:80"]);
        check("docker", Side::Both, ["hg-x-client", "hg-x-server", "192.168.100.2:8080"]);
    }

    #[test]
    fn a_node_without_a_pod_has_nothing_of_docker() {
        let commands = topology("docker", Side::Client, Placement::TwoNodes).unwrap().commands();
        let on =
            |node: &str| commands.iter().filter(|line| line.contains("hgbr1") && line.contains(node)).count();
        assert!(on("hg-x-n1") > 0 && on("hg-x-n2") == 0, "{}", commands.join("\n"));
        assert!(commands.iter().any(|line| line.contains("masquerade")), "{}", commands.join("\n"));
    }

    #[test]
    fn what_would_be_another_way_is_refused() {
        let refused = |path: &str, side, placement| topology(path, side, placement).unwrap_err().to_string();
        let tunnel = refused("bridge+vxlan", Side::Client, Placement::TwoNodes);
        assert_eq!(
            tunnel,
            "plan a topology: bridge+vxlan with the client alone in a container: packets of a pod to another node's own \
             address do not enter the tunnel"
        );
        let programs = refused("ebpf+direct", Side::Server, Placement::TwoNodes);
        assert!(programs.contains("takes the kernel's path"), "{programs}");
        let own = refused("docker", Side::Client, Placement::SameNode);
        assert!(own.contains("the node of the pod itself"), "{own}");
    }

    #[test]
    fn each_topology_has_keys_of_its_own_and_shows_none() {
        let make = || topology("ptp+wireguard", Side::Both, Placement::TwoNodes).unwrap();
        let public = |topology: &Topology| {
            topology.nodes.as_ref().map(|node| node.tunnel_key.clone().expect("it encrypts").public).both()
        };
        let (mut one, two) = (make(), make());
        let different: BTreeSet<_> = [&one, &two].into_iter().flat_map(public).collect();
        assert_eq!(different.len(), 4);
        let dir = tempfile::tempdir().unwrap();
        one.keep_keys(dir.path()).unwrap();
        let commands = one.commands().join("\n");
        for (file, public) in ["n1.key", "n2.key"].into_iter().zip(public(&one)) {
            let file = dir.path().join(file);
            assert_eq!(linux::PrivateKey::read(&file).unwrap().public(), public);
            let secret = std::fs::read_to_string(&file).unwrap();
            assert!(commands.contains(&format!("private-key {}", file.display())), "{commands}");
            assert!(!format!("{commands}{one:?}").contains(secret.trim()), "{commands}");
        }
    }

    #[test]
    fn each_direction_of_a_tunnel_has_a_key_of_its_own_that_both_nodes_have() {
        let make = || topology("ptp+ipsec", Side::Both, Placement::TwoNodes).unwrap();
        let (mut one, two) = (make(), make());
        let dir = tempfile::tempdir().unwrap();
        one.keep_keys(dir.path()).unwrap();
        let commands = one.commands().join("\n");
        let secrets = ["n1.key", "n2.key"].map(|file| dir.path().join(file)).map(|file| {
            linux::EspKey::read(&file).unwrap();
            let named = commands.matches(&format!("\"$(cat {})\"", file.display())).count();
            assert_eq!(named, 2, "{commands}");
            std::fs::read_to_string(file).unwrap().trim().to_owned()
        });
        assert_ne!(secrets[0], secrets[1]);
        for secret in secrets {
            assert!(!format!("{commands}{one:?}").contains(&secret), "{commands}");
        }
        let numbers = |topology: &Topology| -> BTreeSet<linux::Spi> {
            let steps = topology.plan.steps.iter();
            steps
                .filter_map(|placed| match &placed.step {
                    plan::Step::AddXfrmState { state, .. } => Some(state.spi),
                    _ => None,
                })
                .collect()
        };
        assert_eq!((numbers(&one).len(), numbers(&one).is_disjoint(&numbers(&two))), (2, true));
    }
}
