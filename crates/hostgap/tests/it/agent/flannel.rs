//! Nodes of flanneld itself beside nodes of the agent, over one etcd: their pods reach each other, and a node
//! becomes the agent's and flanneld's again while they talk. Pods of flannel's are made by the plugins to which
//! flannel's own leaves that.

use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use agent::status::{PeerStatus, Status};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::{Etcd, Talk, require_root, shell, skip};

use super::migrate::{CONFLIST, RUN};
use super::{Nodes, PATIENCE, Running, text, until};

/// The directory with the CNI project's plugins.
const PLUGINS: &str = "/usr/lib/cni";

/// An etcd with a network's configuration, and two nodes that can run flanneld or the agent.
struct Mixed {
    nodes: Nodes,
    etcd: Etcd,
    flanneld: PathBuf,
    urls: [String; 2],
}

impl Mixed {
    /// `None`: something is not there, and the test is recorded as skipped.
    fn new(backend: &str) -> Option<Mixed> {
        if !require_root() {
            return None;
        }
        let Some(directory) = std::env::var_os("HOSTGAP_FLANNEL").filter(|directory| !directory.is_empty())
        else {
            skip("it needs flanneld; HOSTGAP_FLANNEL=$(scripts/build-flannel) names its directory");
            return None;
        };
        let mut etcd = Etcd::new(&["--listen-client-urls=http://0.0.0.0:2379".to_owned()])?;
        let mut nodes = Nodes::new("vxlan");
        nodes.network = "cbr0";
        etcd.start();
        let direct = backend.ends_with("DirectRouting");
        let backend = json!({ "Type": backend.split(' ').next(), "DirectRouting": direct });
        let network = json!({
            "Network": "10.5.0.0/16", "EnableIPv6": true, "IPv6Network": "fd00:5::/56",
            "EnableNFTables": true, "Backend": backend,
        });
        etcd.put("config", &network.to_string());
        let urls = [("a", 0_u8), ("b", 1)].map(|(node, number)| {
            let name = nodes.world.name(node);
            let own = number + 1;
            shell(&format!(
                "ip netns exec {name} sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
                 ip -n {name} address add 2001:db8::{own}/64 dev wire nodad"
            ));
            etcd.join(&name, number)
        });
        nodes.sources = urls.clone().map(|url| format!("etcd:{url}"));
        Some(Mixed { nodes, etcd, flanneld: PathBuf::from(directory).join("flanneld"), urls })
    }

    /// Starts flanneld on a node, and waits until it has said what the node's pods get.
    fn start_flanneld(&self, node: &str) -> Running {
        let log = self.nodes.path(node).join("flanneld.log");
        let file = std::fs::File::create(&log).unwrap();
        let url = &self.urls[usize::from(node == "b")];
        let subnet_env = self.nodes.path(node).join("subnet.env").display().to_string();
        let args = [
            "--etcd-endpoints",
            url,
            "--iface",
            "wire",
            "--ip-masq",
            "--subnet-file",
            &subnet_env,
            "-v",
            "2",
        ];
        let mut command = self.nodes.program(node, self.flanneld.to_str().unwrap(), &args);
        let child = command.stdout(Stdio::null()).stderr(file).spawn().unwrap();
        let running = Running { child, log: log.clone() };
        until("flanneld is ready", &running, || {
            std::fs::read_to_string(&log).is_ok_and(|log| log.contains("flannel is ready"))
        });
        running
    }

    /// What flanneld says in its environment file, by the name after `FLANNEL_`.
    fn environment(&self, node: &str, name: &str) -> String {
        let file = std::fs::read_to_string(self.nodes.path(node).join("subnet.env")).unwrap();
        let line = file.lines().find_map(|line| line.strip_prefix(&format!("FLANNEL_{name}=")));
        line.unwrap_or_else(|| panic!("{name} is not in {file}")).to_owned()
    }

    /// The prefixes of a node's pods.
    fn prefixes(&self, node: &str) -> [String; 2] {
        ["SUBNET", "IPV6_SUBNET"].map(|name| {
            let gateway: ipnet::IpNet = self.environment(node, name).parse().unwrap();
            gateway.trunc().to_string()
        })
    }

    /// Waits until flanneld on one node has its ways to the prefixes of the other one, by a link.
    #[track_caller]
    fn until_flanneld_reaches(
        &self,
        node: &str,
        prefixes: &[String; 2],
        links: [&str; 2],
        flanneld: &Running,
    ) {
        let name = self.nodes.world.name(node);
        for (prefix, link) in prefixes.iter().zip(links) {
            let family = if prefix.contains(':') { "-6" } else { "-4" };
            until(&format!("a way to {prefix} by {link}"), flanneld, || {
                shell(&format!("ip -n {name} {family} route show {prefix}")).contains(&format!("dev {link}"))
            });
        }
    }

    /// Attaches a pod as flannel's plugin does: it calls the plugin `bridge` with what its environment file says.
    fn attach(&self, node: &str, pod: &str) -> [IpAddr; 2] {
        self.nodes.world.add(pod);
        let mtu: u32 = self.environment(node, "MTU").parse().unwrap();
        let [v4, v6] = self.prefixes(node);
        let conf = json!({
            "cniVersion": "0.3.1", "name": "cbr0", "type": "bridge", "mtu": mtu, "ipMasq": false, "isGateway": true,
            "hairpinMode": true, "isDefaultGateway": true,
            "ipam": { "type": "host-local", "ranges": [[{ "subnet": v4 }], [{ "subnet": v6 }]],
                      "routes": [{ "dst": self.environment(node, "NETWORK") },
                                 { "dst": self.environment(node, "IPV6_NETWORK") }] },
        });
        let mut command = self.nodes.program(node, &format!("{PLUGINS}/bridge"), &[]);
        command.env("CNI_COMMAND", "ADD").env("CNI_CONTAINERID", pod).env("CNI_IFNAME", "eth0");
        command.env("CNI_NETNS", format!("/run/netns/{}", self.nodes.world.name(pod)));
        command.env("CNI_PATH", PLUGINS);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(conf.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stdout));
        // Until it knows that its address is nobody else's, a bridge does not ask for its neighbours by IPv6.
        let name = self.nodes.world.name(node);
        let begun = Instant::now();
        while !shell(&format!("ip -n {name} -6 address show tentative")).is_empty() {
            assert!(begun.elapsed() < PATIENCE, "an address stays tentative");
            std::thread::sleep(Duration::from_millis(10));
        }
        addresses(&text(&output.stdout))
    }

    /// Starts the agent, and waits until it reaches the other node as expected.
    #[track_caller]
    fn start_agent(&self, node: &str, by: &str) -> Running {
        let agent = self.nodes.start_with(node, "log", &RUN);
        until(&format!("the other node is reached by {by}"), &agent, || {
            let by = ["ipv4", "ipv6"].map(|family| (family.to_owned(), by.to_owned())).into();
            self.status(node).is_some_and(|status| {
                let is_reached = |peer: &PeerStatus| peer.why_not.is_none() && peer.by == by;
                status.pid == agent.pid() && status.peers.len() == 1 && status.peers.values().all(is_reached)
            })
        });
        agent
    }

    /// What the node's agent says of itself, as soon as it has.
    fn status(&self, node: &str) -> Option<Status> {
        Status::read(&Status::path(&self.nodes.path(node).join("status"), self.nodes.network)).ok()
    }

    /// How often the node's agent has mended something.
    fn repairs(&self, node: &str) -> u64 {
        self.status(node).expect("an agent has run").repairs_total
    }

    /// What a node has written of itself into etcd.
    fn lease(&self, prefixes: &[String; 2]) -> Value {
        let (value, _) = self.etcd.get(&key(prefixes)).expect("the node has a lease");
        serde_json::from_str(&value).unwrap()
    }

    /// Whether both pods and both nodes reach each other.
    #[track_caller]
    fn assert_all_reach(&self, pods: &[(&str, [IpAddr; 2])]) {
        for (from, _) in pods {
            for (_, to) in pods.iter().filter(|(to, _)| to != from) {
                to.iter().for_each(|to| self.nodes.assert_reaches(from, *to));
            }
        }
        for node in ["a", "b"] {
            pods.iter().flat_map(|(_, to)| to).for_each(|to| self.nodes.assert_reaches(node, *to));
        }
    }
}

/// The key of a node's lease, below flannel's.
fn key(prefixes: &[String; 2]) -> String {
    format!("subnets/{}", prefixes.join("&").replace('/', "-"))
}

/// The addresses that a container got.
fn addresses(result: &str) -> [IpAddr; 2] {
    let result: Value = serde_json::from_str(result).unwrap();
    [0, 1].map(|at| {
        let address = result["ips"][at]["address"].as_str().unwrap();
        address.split_once('/').unwrap().0.parse().unwrap()
    })
}

/// The links by which flanneld leads to other nodes.
fn links(by: &str) -> [&'static str; 2] {
    if by == "vxlan" { ["flannel.1", "flannel-v6.1"] } else { ["wire", "wire"] }
}

/// Ends flanneld as its DaemonSet or unit does.
fn terminate(flanneld: &mut Running) {
    kill_process(Pid::from_child(&flanneld.child), Signal::TERM).unwrap();
    flanneld.child.wait().unwrap();
}

/// A network with the agent on one node and flanneld on the other, and a pod of each.
struct Shared {
    mixed: Mixed,
    agent: Running,
    flanneld: Running,
    pods: [[IpAddr; 2]; 2],
}

impl Shared {
    fn new(backend: &str, by: &str) -> Option<Shared> {
        let mixed = Mixed::new(backend)?;
        let flanneld = mixed.start_flanneld("b");
        let agent = mixed.start_agent("a", by);
        let conf = mixed.nodes.configuration("a", &agent);
        mixed.nodes.world.add("pod-a");
        let pod_a = addresses(&mixed.nodes.call("ADD", "a", "pod-a", &conf));
        mixed.until_flanneld_reaches("b", &mixed.prefixes("a"), links(by), &flanneld);
        let pods = [pod_a, mixed.attach("b", "pod-b")];
        Some(Shared { mixed, agent, flanneld, pods })
    }
}

#[track_caller]
fn share_a_network(backend: &str, by: &str) {
    let Some(Shared { mixed, agent, mut flanneld, pods }) = Shared::new(backend, by) else { return };
    mixed.assert_all_reach(&[("pod-a", pods[0]), ("pod-b", pods[1])]);
    // The node of flannel's leaves.
    let prefixes = mixed.prefixes("b");
    terminate(&mut flanneld);
    mixed.etcd.delete(&key(&prefixes));
    until("the node is gone", &agent, || mixed.status("a").is_some_and(|status| status.peers.is_empty()));
    let a = mixed.nodes.world.name("a");
    let [v4, v6] = prefixes;
    assert_eq!(shell(&format!("ip -n {a} route show {v4}; ip -n {a} -6 route show {v6}")), "");
    assert_eq!(mixed.repairs("a"), 0, "{:#?}", mixed.status("a"));
}

#[test]
fn nothing_is_lost_while_flanneld_and_the_agent_begin_again() {
    let Some(Shared { mixed, mut agent, mut flanneld, pods }) = Shared::new("vxlan", "vxlan") else { return };
    let [near, far] = ["pod-a", "pod-b"].map(|pod| mixed.nodes.world.open(pod));
    let talks = pods[1].map(|address| Talk::begin_paced(&near, &far, &address.to_string()));
    let they_go_on = || talks.iter().for_each(Talk::goes_on);
    they_go_on();
    agent.kill();
    they_go_on();
    let _agent = mixed.start_agent("a", "vxlan");
    they_go_on();
    terminate(&mut flanneld);
    they_go_on();
    let _flanneld = mixed.start_flanneld("b");
    they_go_on();
    talks.into_iter().for_each(Talk::end);
    assert_eq!(mixed.repairs("a"), 0, "{:#?}", mixed.status("a"));
}

#[track_caller]
fn becomes_the_agents_and_flannels_again(backend: &str, by: &str) {
    let Some(mixed) = Mixed::new(backend) else { return };
    let nodes = &mixed.nodes;
    let mut flanneld = mixed.start_flanneld("a");
    let far_flanneld = mixed.start_flanneld("b");
    let [pod_a, pod_b] = [("a", "pod-a"), ("b", "pod-b")].map(|(node, pod)| mixed.attach(node, pod));
    let prefixes = ["a", "b"].map(|node| mixed.prefixes(node));
    mixed.until_flanneld_reaches("a", &prefixes[1], links(by), &flanneld);
    mixed.until_flanneld_reaches("b", &prefixes[0], links(by), &far_flanneld);
    let conf_dir = nodes.path("a").join("net.d");
    std::fs::create_dir_all(&conf_dir).unwrap();
    std::fs::write(conf_dir.join("10-flannel.conflist"), CONFLIST).unwrap();
    let [near, far] = ["pod-a", "pod-b"].map(|pod| nodes.world.open(pod));
    let talks = pod_b.map(|address| Talk::begin_paced(&near, &far, &address.to_string()));
    let they_go_on = || talks.iter().for_each(Talk::goes_on);
    they_go_on();
    let environment = || std::fs::read_to_string(nodes.path("a").join("subnet.env")).unwrap();
    let (before, environment_before, lease) = (nodes.dumps(), environment(), mixed.lease(&prefixes[0]));
    nodes.refused(&[], &format!("while flanneld runs, as process {}", flanneld.pid()));

    terminate(&mut flanneld);
    they_go_on();
    let said = nodes.migrated(&[]);
    for line in
        ["bridge cni0: left, with 1 pods", "table ip flannel-ipv4: left", "table ip6 flannel-ipv6: left"]
    {
        assert!(said.contains(line), "{said}");
    }
    they_go_on();
    let mut agent = mixed.start_agent("a", by);
    they_go_on();
    assert_eq!(mixed.repairs("a"), 0, "{:#?}", mixed.status("a"));
    assert_eq!(mixed.lease(&prefixes[0]), lease, "the other nodes notice nothing");
    let conf = nodes.configuration("a", &agent);
    nodes.world.add("pod-new");
    let pod_new = addresses(&nodes.call("ADD", "a", "pod-new", &conf));
    mixed.assert_all_reach(&[("pod-new", pod_new), ("pod-b", pod_b)]);
    nodes.assert_reaches("pod-a", pod_new[0]);
    nodes.call("DEL", "a", "pod-new", &conf);
    agent.kill();
    they_go_on();

    nodes.migrated(&["--back"]);
    they_go_on();
    for (before, after) in before.iter().zip(nodes.dumps()) {
        before.assert_same(&after, "after it was given back");
    }
    assert_eq!(environment(), environment_before);
    let flanneld = mixed.start_flanneld("a");
    mixed.until_flanneld_reaches("a", &prefixes[1], links(by), &flanneld);
    they_go_on();
    talks.into_iter().for_each(Talk::end);
    assert_eq!((environment(), mixed.lease(&prefixes[0])), (environment_before, lease));
    for (before, after) in before.iter().zip(nodes.dumps()) {
        before.assert_same(&after, "after flanneld has begun again");
    }
    mixed.assert_all_reach(&[("pod-a", pod_a), ("pod-b", pod_b)]);
}

#[test]
fn nodes_of_flanneld_and_of_the_agent_share_vxlan() {
    share_a_network("vxlan", "vxlan");
}

#[test]
fn nodes_of_flanneld_and_of_the_agent_share_vxlan_with_direct_routing() {
    share_a_network("vxlan with DirectRouting", "direct");
}

#[test]
fn nodes_of_flanneld_and_of_the_agent_share_host_gw() {
    share_a_network("host-gw", "direct");
}

#[test]
fn a_node_of_flanneld_s_vxlan_becomes_the_agent_s_and_flanneld_s_again() {
    becomes_the_agents_and_flannels_again("vxlan", "vxlan");
}

#[test]
fn a_node_of_flanneld_s_direct_routing_becomes_the_agent_s_and_flanneld_s_again() {
    becomes_the_agents_and_flannels_again("vxlan with DirectRouting", "direct");
}

#[test]
fn a_node_of_flanneld_s_host_gw_becomes_the_agent_s_and_flanneld_s_again() {
    becomes_the_agents_and_flannels_again("host-gw", "direct");
}
