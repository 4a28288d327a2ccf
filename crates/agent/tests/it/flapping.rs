//! Nodes that come and go all the time, and many that come at once, beside two whose pods talk.

use std::sync::mpsc::Receiver;
use std::time::Instant;

use agent::source::etcd::EtcdSource;
use agent::status::Status;
use linux::Mac;
use testkit::{Dump, Etcd, Talk, dump, require_root};

use crate::changes::with_pods;
use crate::keep::is_reached;
use crate::nodes::{Agent, Nodes, PATIENCE};

/// How often a node comes and goes.
const FLAPS: u32 = 200;
/// A line or two for each of its first changes and its last ones, and what an agent says in any case.
const LINES_MAX: usize = 60;

/// How many nodes come at once; `HOSTGAP_TEST_NODES` says another number, up to 3,000.
const MANY: u32 = 200;

/// Two nodes with an etcd, which has prefixes for both.
struct Stage {
    nodes: Nodes,
    etcd: Etcd,
    urls: [String; 2],
}

/// A lease's value, as flannel writes it.
fn lease(public: &str, number: u32) -> String {
    let mac = Mac::from_id(9, number);
    format!(r#"{{"PublicIP":"{public}","BackendType":"vxlan","BackendData":{{"VNI":1,"VtepMAC":"{mac}"}}}}"#)
}

impl Stage {
    fn new() -> Option<Stage> {
        let anywhere = ["--listen-client-urls", "http://0.0.0.0:2379"].map(str::to_owned);
        let mut etcd = Etcd::new(&anywhere)?;
        etcd.start();
        let nodes = Nodes::new();
        with_pods(&nodes);
        let urls = [etcd.join(&nodes.name("a"), 0), etcd.join(&nodes.name("b"), 1)];
        etcd.put("config", r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}"#);
        for number in [1, 2] {
            let reserved = format!(r#"{{"PublicIP":"192.0.2.{number}"}}"#);
            etcd.put(&format!("subnets/10.244.{number}.0-24"), &reserved);
        }
        Some(Stage { nodes, etcd, urls })
    }

    fn begin(&self, node: &str, url: &str) -> (Agent, Receiver<()>) {
        let source = EtcdSource::at(vec![url.to_owned()]);
        Agent::begin(self.nodes.world.open(node), self.nodes.settings(node), self.nodes.home(node), source)
    }

    /// Both agents, which reach each other.
    fn start(&self) -> [Agent; 2] {
        let [a, b] = [("a", &self.urls[0]), ("b", &self.urls[1])].map(|(node, url)| self.begin(node, url));
        for (_, is_ready) in [&a, &b] {
            is_ready.recv_timeout(PATIENCE).unwrap();
        }
        let [a, b] = [a.0, b.0];
        a.until("b is reached", is_reached("10.244.2.0-24", "vxlan"));
        b.until("a is reached", is_reached("10.244.1.0-24", "vxlan"));
        [a, b]
    }

    fn talk(&self) -> Talk {
        let [from, to] = ["pod-a", "pod-b"].map(|pod| self.nodes.world.open(pod));
        Talk::begin_paced(&from, &to, "10.244.2.5")
    }

    fn dumps(&self) -> [Dump; 2] {
        ["a", "b"].map(|node| dump(&self.nodes.world.open(node)))
    }
}

/// Its address is another one each time.
#[test]
fn a_node_that_comes_and_goes_disturbs_no_other() {
    if !require_root() {
        return;
    }
    let Some(stage) = Stage::new() else { return };
    let [a, b] = stage.start();
    let before = stage.dumps();
    let talk = stage.talk();
    for flap in 0..FLAPS {
        stage.etcd.put("subnets/10.244.9.0-24", &lease(&format!("192.0.2.{}", 10 + flap % 2), flap % 2));
        stage.etcd.delete("subnets/10.244.9.0-24");
    }
    // It stays at last, so that all that was before has been seen.
    stage.etcd.put("subnets/10.244.9.0-24", &lease("192.0.2.12", 2));
    for agent in [&a, &b] {
        agent.until("it is there", is_reached("10.244.9.0-24", "vxlan"));
    }
    talk.goes_on();
    stage.etcd.delete("subnets/10.244.9.0-24");
    for agent in [&a, &b] {
        let status = agent.until("it is gone", |status: &Status| status.peers.len() == 1);
        assert_eq!((status.repairs_total, status.undecided), (0, None));
        let lines = agent.log.lines();
        assert!(lines.len() < LINES_MAX, "{lines:#?}");
    }
    talk.end();
    for (before, after) in before.iter().zip(stage.dumps()) {
        before.assert_same(&after, "after a node has come and gone");
    }
}

#[test]
fn many_nodes_that_come_at_once_disturb_no_other() {
    if !require_root() {
        return;
    }
    let many = std::env::var("HOSTGAP_TEST_NODES").map_or(MANY, |number| number.parse().unwrap());
    let Some(stage) = Stage::new() else { return };
    let [a, b] = stage.start();
    let before = stage.dumps();
    let talk = stage.talk();
    let key = |number: u32| format!("subnets/10.244.{}.{}-28", 16 + number / 16, number % 16 * 16);
    let all: Vec<(String, String)> = (0..many)
        .map(|number| {
            (key(number), lease(&format!("198.18.{}.{}", number / 250, number % 250 + 1), number + 10))
        })
        .collect();
    let begun = Instant::now();
    // etcd takes 128 operations in a transaction.
    all.chunks(128).for_each(|some| stage.etcd.put_all(some));
    let all_are_reached = |status: &Status| {
        status.peers.len() == 1 + all.len() && status.peers.values().all(|peer| peer.why_not.is_none())
    };
    for agent in [&a, &b] {
        agent.until("all are there", all_are_reached);
        println!("{many} nodes after {:?}", begun.elapsed());
        let lines = agent.log.lines();
        assert!(lines.len() < LINES_MAX, "{lines:#?}");
    }
    talk.goes_on();
    for (key, _) in &all {
        stage.etcd.delete(key);
    }
    for agent in [&a, &b] {
        let status = agent.until("all are gone", |status: &Status| status.peers.len() == 1);
        assert_eq!((status.repairs_total, status.undecided), (0, None));
    }
    talk.end();
    for (before, after) in before.iter().zip(stage.dumps()) {
        before.assert_same(&after, "after many nodes have come and gone");
    }
}
