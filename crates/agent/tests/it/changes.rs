//! The network's backend changes while pods talk. Nodes follow one after the other, as in Kubernetes, where a ConfigMap
//! reaches each at a time of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent::lease::{Announcement, Lease, Snapshot};
use agent::source::LeaseSource;
use agent::status::Status;
use datapath::Prefixes;
use linux::features::{Feature, probe};
use serde_json::{Value, json};
use testkit::{Talk, dump, require_root, shell, skip};
use tokio::sync::watch;

use crate::keep::{A, B, is_reached, take_back};
use crate::nodes::{Agent, Nodes};

const NODES: [(&str, &str, &str); 2] = [A, B];

/// What the nodes say of themselves, and the network that each is given.
#[derive(Debug, Clone, Default)]
struct Board(Arc<watch::Sender<Posted>>);

#[derive(Debug, Default)]
struct Posted {
    networks: BTreeMap<String, Value>,
    said: BTreeMap<String, Announcement>,
}

/// The board as a node reads it.
struct Reader {
    board: Board,
    node: String,
}

impl Board {
    fn post(&self, node: &str, backend: &Value) {
        let network = json!({ "Network": "10.244.0.0/16", "EnableIPv6": true, "IPv6Network": "fd00:244::/56",
            "Backend": backend });
        self.0.send_modify(|posted| drop(posted.networks.insert(node.to_owned(), network)));
    }
}

impl Posted {
    fn snapshot(&self, node: &str) -> Snapshot {
        let pods = |name: &str| -> Prefixes {
            let (_, _, pods) = NODES.into_iter().find(|(node, ..)| *node == name).unwrap();
            pods.split(' ').map(|net| net.parse::<ipnet::IpNet>().unwrap()).collect()
        };
        let others = self.said.iter().filter(|(name, _)| *name != node);
        let lease = |said: &Announcement, name: &str| Ok(Lease { pods: pods(name), node: said.clone() });
        Snapshot {
            network: self.networks.get(node).cloned(),
            own: pods(node),
            others: others.map(|(name, said)| (name.clone(), lease(said, name))).collect(),
            ..Snapshot::default()
        }
    }
}

impl LeaseSource for Reader {
    fn start(self, mut own: watch::Receiver<Option<Announcement>>) -> watch::Receiver<Snapshot> {
        let Reader { board, node } = self;
        let mut posted = board.0.subscribe();
        let (sender, receiver) = watch::channel(Snapshot::default());
        tokio::spawn(async move {
            loop {
                sender.send_replace(posted.borrow_and_update().snapshot(&node));
                tokio::select! {
                    () = sender.closed() => return,
                    Ok(()) = posted.changed() => {}
                    Ok(()) = own.changed() => {
                        let Some(said) = own.borrow_and_update().clone() else { continue };
                        board.0.send_modify(|posted| drop(posted.said.insert(node.clone(), said)));
                    }
                }
            }
        });
        receiver
    }
}

/// Gives each node a pod, `pod-a` and `pod-b`.
pub(crate) fn with_pods(nodes: &Nodes) {
    for (node, number) in [("a", 1), ("b", 2)] {
        nodes.world.add(&format!("pod-{node}"));
        let [name, pod] = [nodes.name(node), nodes.world.name(&format!("pod-{node}"))];
        shell(&format!(
            "ip -n {name} link add pod type veth peer name eth0 netns {pod}
             ip -n {name} link set pod up; ip -n {pod} link set eth0 mtu 1400 up; ip -n {pod} link set lo up
             ip -n {name} address add 10.244.{number}.1/24 dev pod
             ip -n {name} address add fd00:244:0:{number}::1/64 dev pod nodad
             ip -n {pod} address add 10.244.{number}.5/24 dev eth0
             ip -n {pod} address add fd00:244:0:{number}::5/64 dev eth0 nodad
             ip -n {pod} route add default via 10.244.{number}.1
             ip -n {pod} route add default via fd00:244:0:{number}::1"
        ));
    }
}

/// Changes the backend from one to the next while pods talk: at one node, and then at the other one. Not a datagram is
/// lost, and no connection breaks.
#[track_caller]
fn nothing_is_lost(backends: &[(Value, &'static str)]) {
    let nodes = Nodes::new();
    with_pods(&nodes);
    let before = ["a", "b"].map(|node| dump(&nodes.world.open(node)));
    let board = Board::default();
    let [first, changes @ ..] = backends else { panic!("there is no backend") };
    NODES.iter().for_each(|(node, ..)| board.post(node, &first.0));
    let agents = ["a", "b"].map(|node| {
        let source = Reader { board: board.clone(), node: node.to_owned() };
        (node, nodes.start_with(node, source))
    });
    await_ways(&agents, first.1);
    let [from, to] = ["pod-a", "pod-b"].map(|pod| nodes.world.open(pod));
    let talks = ["10.244.2.5", "fd00:244:0:2::5"].map(|address| Talk::begin(&from, &to, address));
    let they_go_on = || talks.iter().for_each(Talk::goes_on);
    for (change, (backend, by)) in changes.iter().enumerate() {
        they_go_on();
        let [earlier, later] = [change % 2, 1 - change % 2].map(|at| &agents[at]);
        board.post(earlier.0, backend);
        let kind = backend["Type"].as_str();
        earlier.1.until("it has changed", |status| status.backend.as_deref() == kind);
        they_go_on();
        board.post(later.0, backend);
        await_ways(&agents, by);
    }
    they_go_on();
    talks.into_iter().for_each(Talk::end);
    for (_, mut agent) in agents {
        let status = Status::read(&agent.status).unwrap();
        assert_eq!(status.repairs_total, 0, "{status:#?}");
        agent.stop().unwrap();
    }
    take_back(&nodes, &before);
}

#[track_caller]
fn await_ways(agents: &[(&str, Agent); 2], by: &'static str) {
    for (node, agent) in agents {
        agent.until(by, is_reached(if *node == "a" { "b" } else { "a" }, by));
    }
}

fn vxlan() -> (Value, &'static str) {
    (json!({ "Type": "vxlan" }), "vxlan")
}

fn host_gw() -> (Value, &'static str) {
    (json!({ "Type": "host-gw" }), "direct")
}

#[test]
fn nothing_is_lost_between_tunnels_and_routes() {
    if !require_root() {
        return;
    }
    let direct_routing = || (json!({ "Type": "vxlan", "DirectRouting": true }), "direct");
    nothing_is_lost(&[vxlan(), host_gw(), vxlan(), direct_routing(), host_gw(), vxlan()]);
}

#[test]
fn nothing_is_lost_between_encrypted_tunnels_and_others() {
    if !require_root() {
        return;
    }
    if let Some(why) = probe().unwrap().missing.remove(&Feature::WireGuard) {
        return skip(&format!("no wireguard: {why}"));
    }
    let wireguard = || (json!({ "Type": "wireguard" }), "wireguard");
    nothing_is_lost(&[vxlan(), wireguard(), vxlan()]);
}
