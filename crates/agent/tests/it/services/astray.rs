//! Calls of the API server's own Service that are led to where nothing answers, those of the agent among them.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use agent::lease::Snapshot;
use bpf::services::{Protocol, Service, ServiceAddress};
use linux::{Cgroup, Netns, NetnsPath, cgroup};
use serde_json::json;
use testkit::run;
use tokio::sync::watch;

use super::{Node, PORT, ScriptedSource, socket, source};
use crate::control::Scene;
use crate::kubernetes::with_pods;
use crate::nodes::{Agent, PATIENCE};

/// This process in a control group. When this is dropped it is where it was before, so that the group can be removed.
struct Inside(PathBuf);

impl Inside {
    fn enter(group: &Cgroup) -> Inside {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let before = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap();
        let before = cgroup::hierarchy().unwrap().join(before).join("cgroup.procs");
        std::fs::write(group.path().join("cgroup.procs"), "0").unwrap();
        Inside(before)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        std::fs::write(&self.0, "0").unwrap();
    }
}

/// As where the only node of a control plane has got another address while no agent ran.
#[test]
fn calls_of_an_api_server_that_are_led_astray_are_left_to_the_node() {
    let Some(scene) = Scene::new() else { return };
    scene.give_rights_for_services();
    let netns = NetnsPath::new(scene.plane.network().to_str().unwrap()).unwrap();
    let Some(node) = Node::new(Some(Netns::open_path(&netns).unwrap())) else { return };
    let network = json!({ "Network": "10.0.0.0/8", "Backend": { "Type": "host-gw" } });
    scene.create(PORT, &[with_pods("own", &["10.1.2.0/24"])]);
    scene.set_network(&network);
    let at = ServiceAddress { address: [10, 96, 0, 1].into(), port: 443, protocol: Protocol::Tcp };
    let astray = Service { at, affinity_s: 0, backends: [socket("192.0.2.1:9")].into() };
    let (say, mut receiver) = watch::channel(Snapshot::default());
    say.send_replace(Snapshot {
        network: Some(network),
        own: ["10.1.2.0/24".parse::<ipnet::IpNet>().unwrap()].into_iter().collect(),
        services: Some([("default/kubernetes".to_owned(), Arc::new(vec![astray]))].into()),
        ..Snapshot::default()
    });
    receiver.mark_changed();
    let mut before = node.start(ScriptedSource(receiver));
    node.until_found(&at, "192.0.2.1:9");
    before.stop().unwrap();

    let source = source(&scene);
    let kubeconfig = source.kubeconfig.clone().unwrap();
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    std::fs::write(&kubeconfig, text.replace("https://192.0.2.1:6443", "https://10.96.0.1:443")).unwrap();
    // As kube-proxy has it, which has heard of the new address.
    run(&node.netns, "ip", &["route", "add", "10.96.0.0/16", "dev", "lo"]);
    let rules = "add table ip proxy
        add chain ip proxy out { type nat hook output priority -100; }
        add rule ip proxy out ip daddr 10.96.0.1 tcp dport 443 dnat to 192.0.2.1:6443";
    run(&node.netns, "nft", &[&rules.replace('\n', ";")]);
    // There is a way now, but not for who is led astray, as the agent is.
    let own = socket("10.96.0.1:443");
    node.netns.run(|| TcpStream::connect_timeout(&own, PATIENCE)).unwrap().unwrap();
    assert_eq!(node.call(own).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let _inside = Inside::enter(&node.cgroup);
    let netns = node.netns.try_clone().unwrap();
    let (mut agent, is_ready) = Agent::begin(netns, node.settings(), node.home(), source);
    agent.until("astray", |status| {
        status.source_unreachable.as_ref().is_some_and(|why| why.contains("Connection refused"))
    });
    node.until_found(&at, "192.0.2.1:6443");
    is_ready.recv_timeout(PATIENCE).unwrap();
    agent.until("watched", |status| status.source_unreachable.is_none());
    agent.stop().unwrap();
}
