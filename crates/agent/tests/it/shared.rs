//! Agents that share a network in a real etcd.

use std::net::{TcpListener, TcpStream};

use agent::source::etcd::EtcdSource;
use agent::status::Status;
use serde_json::json;
use testkit::{Etcd, shell};

use crate::nodes::{Agent, Nodes, PATIENCE};
use crate::scene::with_bare_etcd;

/// Joins etcd to both nodes by links of its own. Its members' addresses there.
fn join(etcd: &Etcd, nodes: &Nodes) -> [(&'static str, EtcdSource); 2] {
    [("a", 0), ("b", 1)]
        .map(|(node, number)| (node, EtcdSource::at(vec![etcd.join(&nodes.name(node), number)])))
}

/// Gives a node an address of its pods; their prefix, and the address.
fn pod(nodes: &Nodes, node: &str, agent: &Agent) -> (String, String) {
    let prefix = agent.until("it has a prefix", |status| !status.pods.is_empty()).pods.remove(0);
    let pod = format!("{}.9", prefix.strip_suffix(".0/24").unwrap());
    shell(&format!("ip -n {} address add {pod}/32 dev lo", nodes.name(node)));
    (prefix, pod)
}

#[track_caller]
fn connect(nodes: &Nodes, pod: &str) {
    let listener = nodes.world.open("b").run(|| TcpListener::bind((pod, 0)).unwrap()).unwrap();
    let to = listener.local_addr().unwrap();
    nodes.world.open("a").run(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap().unwrap();
    listener.accept().unwrap();
}

fn reaches(count: usize) -> impl Fn(&Status) -> bool {
    move |status| status.peers.len() == count && status.peers.values().all(|peer| peer.why_not.is_none())
}

#[test]
fn nodes_find_each_other_in_etcd_and_go_on_without_it() {
    with_bare_etcd(&["--listen-client-urls=http://0.0.0.0:2379".to_owned()], async |etcd| {
        let nodes = Nodes::new();
        etcd.put("config", &json!({ "Network": "10.5.0.0/16", "Backend": { "Type": "vxlan" } }).to_string());
        let [a, b] = join(etcd, &nodes).map(|(node, source)| nodes.start_with(node, source));
        for agent in [&a, &b] {
            agent.until("one other node", reaches(1));
        }
        let (prefix, at_b) = pod(&nodes, "b", &b);
        connect(&nodes, &at_b);
        // A node as flannel writes it.
        let mac = "b2:11:22:33:44:55";
        let data = json!({ "VNI": 1, "VtepMAC": mac });
        let value = json!({ "PublicIP": "192.0.2.3", "BackendType": "vxlan", "BackendData": data });
        etcd.put("subnets/10.5.255.0-24", &value.to_string());
        a.until("flannel's node", reaches(2));
        let entries = shell(&format!("bridge -n {} fdb show | grep {mac}", nodes.name("a")));
        assert!(entries.contains("dst 192.0.2.3"), "{entries}");
        etcd.kill();
        a.until("etcd is away", |status| status.source_unreachable.is_some());
        connect(&nodes, &at_b);
        shell(&format!("ip -n {} route del {prefix}", nodes.name("a")));
        a.until("the route is back", |status| status.repairs_total == 1);
        connect(&nodes, &at_b);
        etcd.start();
        a.until("etcd is back", |status| status.source_unreachable.is_none());
        etcd.delete("subnets/10.5.255.0-24");
        a.until("it is gone", reaches(1));
        connect(&nodes, &at_b);
    });
}
