//! Each data path as the commands that one would type. A change to a driver shows as a diff of these files.

use datapath::{ALL, DEVICE, DataPath, Device, Family, Limits, Pod, RateLimit, ReceiveLimit, SocketRole};
use plan::{Plan, SetFunction};

use crate::accepted;
use crate::specs::{Shape, peer, published};

/// No list contains the last one, because it joins pods to whatever their devices are plugged into.
fn reviewed() -> impl Iterator<Item = &'static DataPath> {
    ALL.iter().chain([&DEVICE])
}

#[test]
fn plans_are_as_reviewed() {
    for path in reviewed() {
        accepted::check(&format!("tests/plans/{}.txt", path.name), &rendered(path));
    }
}

/// A kernel started with ipv6.disable=1 has no IPv6 addresses, routes or parameters. It still has nftables
/// rules for IPv6.
#[test]
fn a_node_without_ipv6_gets_none() {
    for path in reviewed() {
        let shape = Shape { families: &[Family::V4], ..Shape::new("hg", path) };
        let (node, other) = (shape.node(2), shape.node(1));
        let pod = limited(path, shape.pod(&node, 1));
        let plans = [path.node_plan(&node), path.pod_plan(&node, &pod), path.peer_plan(&node, &peer(&other))];
        for command in plans.into_iter().flat_map(|plan| plan.expect("a sound specification").commands()) {
            let is_rule = command.contains("nft -f - <<");
            assert!(
                is_rule || !(command.contains("ipv6") || command.contains("::")),
                "{}: {command}",
                path.name
            );
        }
    }
}

#[test]
fn every_reviewed_plan_belongs_to_a_path() {
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/plans")).unwrap();
    for file in files {
        let file = file.unwrap().path();
        let name = file.file_stem().unwrap().to_str().unwrap();
        assert!(reviewed().any(|path| path.name == name), "{} belongs to no data path", file.display());
    }
}

/// The plans of node 2, of its first pod and of its peer, node 1, and the plan of node 1 for a path on which
/// it has no pod.
fn rendered(path: &'static DataPath) -> String {
    let shape = Shape::new("hg", path);
    let (node, other) = (shape.node(2), shape.node(1));
    let mut text = String::new();
    section(&mut text, "node 2", &path.node_plan(&node).expect("a sound node"));
    let pod = shape.pod(&node, 1);
    let pod = Pod { device: pod.device.clone().map(in_vlan), ..pod };
    let plain = path.pod_plan(&node, &pod).expect("a sound pod");
    section(&mut text, "pod 1 of node 2", &plain);
    // The same for each transport.
    let is_limited = !matches!(path.attach.receive_limit(), ReceiveLimit::Nowhere(_));
    if is_limited && ["direct", "onlink"].contains(&path.transport.name()) {
        let mut plan = path.pod_plan(&node, &limited(path, pod.clone())).expect("a sound pod");
        plan.steps.retain(|placed| !plain.steps.contains(placed));
        section(&mut text, "what limits on pod 1 add", &plan);
    }
    if path.attach.publishes_ports() && path.transport.name() == "direct" {
        let mut plan = path.pod_plan(&node, &Pod { published: published(8080), ..pod }).expect("a sound pod");
        plan.steps.retain(|placed| !plain.steps.contains(placed));
        section(&mut text, "what published ports of pod 1 add", &plan);
    }
    section(&mut text, "peer 1 of node 2", &path.peer_plan(&node, &peer(&other)).expect("a sound peer"));
    if [SocketRole::Client, SocketRole::Server].iter().any(|part| path.alone(*part).is_ok()) {
        let bare = path.bare_plan(&other, &peer(&node), &shape.pod(&node, 1)).expect("a sound node");
        section(&mut text, "node 1 without a pod, toward pod 1 of node 2", &bare);
    }
    text
}

/// The same pod, with all limits that the path can hold it to.
fn limited(path: &DataPath, pod: Pod) -> Pod {
    let burst_bytes = path.attach.relay_mtu().map_or(20_000, |mtu| mtu + 480);
    let limit = |rate_bytes_per_s| Some(RateLimit { rate_bytes_per_s, burst_bytes });
    let receive = match path.attach.receive_limit() {
        ReceiveLimit::NodeEnd | ReceiveLimit::Pod => limit(5_000_000),
        ReceiveLimit::Nowhere(_) => None,
    };
    Pod { limits: Limits { send: limit(2_500_000), receive }, ..pod }
}

/// The same device as a virtual function that its card holds to rules.
fn in_vlan(device: Device) -> Device {
    let card = "ens1".parse().expect("a short word is a link's name");
    let rules = SetFunction { link: card, number: 1, vlan: Some(7), spoof_check: Some(true) };
    Device { rules: Some(rules), ..device }
}

fn section(text: &mut String, title: &str, plan: &Plan) {
    text.push_str(&format!("# {title}\n"));
    for command in plan.commands() {
        text.push_str(command.trim_end());
        text.push('\n');
    }
    if plan.is_empty() {
        text.push_str("# nothing to do\n");
    }
}
