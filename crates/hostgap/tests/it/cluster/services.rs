//! Services of pods whose packets miss kube-proxy's rules, led by the agents of `deploy/services`, which also let the
//! programs of pods use their tunnels.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Child;

use cluster::{AGENT_IMAGE, Agents, IMAGE, NODES, Node};
use datapath::ATTACHES;
use linux::features;
use serde_json::{Value, json};

use super::race;
use super::{
    AGENTS, Load, PATIENCE, Pods, client, no_request_is_lost, nothing_is_repaired, of_each_agent, roll_out,
};
use crate::sandbox::{HOSTGAP, text, until_within};

/// How often a Service is called to meet all of its endpoints: with two of them, one is missed once in 2^39 times.
const CALLS: usize = 40;
/// What a call prints that has no answer.
const LOST: &str = "lost";

#[test]
fn services_are_led_where_kube_proxy_is_missed() {
    if let Err(unmet) = features::services() {
        return testkit::skip(&unmet.to_string());
    }
    let Some(pods) = Pods::new() else { return };
    let before = NODES.map(|node| {
        // A node that has registered is complete.
        pods.cluster.pod_prefixes(node).unwrap();
        pods.state(node)
    });
    let agents = Agents { hostgap: Path::new(HOSTGAP), attach: "ebpf", backend: "vxlan", services: true };
    let on_node = AgentOfNode::begin(&pods, agents);
    pods.cluster.connect_by_agents(agents).unwrap();
    on_node.end(&pods);
    for name in ["web", "empty"] {
        pods.apply(&service(name));
    }
    for node in NODES {
        pods.apply(&server(node));
        pods.apply(&client(&format!("client-{}", node.name), node));
    }
    pods.kubectl(&["wait", "--for=condition=Ready", "--timeout=15m", "pod", "--all"]);
    let all = NODES.map(server_name);
    await_endpoints(&pods, &all);
    calls_without_endpoints_are_refused(&pods);
    ports_of_nodes_are_led(&pods, &all);
    addresses_outside_are_led(&pods, &all);
    programs_use_the_tunnels(&pods);
    race::race_leaves_nothing(&pods);

    // One load for each family, each from another node, with a connection for each request.
    let loads = NODES.into_iter().zip(addresses(&pods, "web")).map(|(node, address)| Load {
        node,
        url: format!("http://{address}:8080/"),
        options: &["--rate", "100", "--no-keepalive"],
    });
    no_request_is_lost(&pods, &loads.collect::<Vec<_>>(), || {
        roll_out_renews_programs(&pods);
        kill_agents(&pods);
        // It answers yet, so that a call that is still led there succeeds, and says so.
        pods.kubectl(&["label", "pod", &all[1], "app-"]);
        await_endpoints(&pods, &all[..1]);
        pods.kubectl(&["label", "pod", &all[1], "app=web"]);
        await_endpoints(&pods, &all);
    });

    take_all_back(&pods, &before);
    for attach in ["macvlan", "ptp"] {
        if let Some(why) = why_not(attach) {
            testkit::skip(&why);
            continue;
        }
        calls_are_led_with(&pods, attach);
        take_all_back(&pods, &before);
    }
}

/// Why this kernel has not what an attach needs.
fn why_not(attach: &str) -> Option<String> {
    let path = ATTACHES.iter().find(|path| path.name == attach).unwrap();
    path.unmet(&features::probe().unwrap()).first().map(ToString::to_string)
}

/// Pods with another attach meet all endpoints.
#[track_caller]
fn calls_are_led_with(pods: &Pods, attach: &str) {
    let agents = Agents { hostgap: Path::new(HOSTGAP), attach, backend: "host-gw", services: true };
    pods.cluster.connect_by_agents(agents).unwrap();
    for node in NODES {
        pods.apply(&server(node));
        pods.apply(&client(&format!("client-{}", node.name), node));
    }
    pods.kubectl(&["wait", "--for=condition=Ready", "--timeout=15m", "pod", "--all"]);
    await_endpoints(pods, &NODES.map(server_name));
}

/// Pods and agents go, and nothing is left of them on the nodes.
#[track_caller]
fn take_all_back(pods: &Pods, before: &[String]) {
    pods.kubectl(&["delete", "pod", "--all"]);
    pods.kubectl(&["--namespace", "kube-system", "delete", "--cascade=foreground", "daemonset/hostgap"]);
    for (node, before) in NODES.into_iter().zip(before) {
        let counters = text(pods.cluster.on(node, HOSTGAP).args(["bpf", "counters", "pods-services"]));
        assert!(counters.contains("calls led to a backend"), "{counters}");
        text(pods.cluster.on(node, HOSTGAP).args(["agent", "down"]));
        text(pods.cluster.on(node, HOSTGAP).args(["cni", "uninstall"]));
        assert_eq!(&pods.state(node), before);
    }
}

/// An agent that runs on the first node itself, as a unit of systemd, before there is a DaemonSet.
struct AgentOfNode(Child);

impl AgentOfNode {
    /// Starts it, and waits until it leads Services.
    fn begin(pods: &Pods, agents: Agents<'_>) -> AgentOfNode {
        let network = json!({ "Network": "10.244.0.0/16", "EnableIPv6": true, "IPv6Network": "fd00:244::/48",
            "Backend": { "Type": agents.backend } });
        let write = format!("echo '{network}' >/run/net-conf.json");
        text(pods.cluster.on(NODES[0], "sh").args(["-c", &write]));
        let mut agent = pods.cluster.on(NODES[0], HOSTGAP);
        agent.args([
            "agent",
            "run",
            "--source=kubernetes",
            "--net-config=/run/net-conf.json",
            "--masquerade",
        ]);
        agent.args(["--services", "--services-cgroup=/run/sockets", "--node", NODES[0].name]);
        agent.arg(format!("--attach={}", agents.attach)).arg("--kubeconfig").arg(pods.cluster.kubeconfig());
        let agent = AgentOfNode(agent.spawn().unwrap());
        until_within(PATIENCE, "the node's own agent leads Services", || {
            let status = status_of_first(pods);
            status["services"]["total"].as_u64() > Some(0) && status["services"]["why_not"].is_null()
        });
        agent
    }

    /// Ends it beside the DaemonSet's, which goes on with what leads calls: it is attached once, and was never away.
    fn end(mut self, pods: &Pods) {
        let links = || {
            let list = "ls -i /run/hostgap-bpf/pods-services/link_*; find /sys/fs/bpf -name 'link_*'";
            text(pods.cluster.on(NODES[0], "sh").args(["-c", list]))
        };
        let (before, pid) = (links(), status_of_first(pods)["pid"].clone());
        text(pods.cluster.on(NODES[0], "kill").arg(pid.to_string()));
        assert!(self.0.wait().unwrap().success());
        until_within(PATIENCE, "the DaemonSet's agent takes over", || {
            let status = status_of_first(pods);
            status["running"] == true && status["pid"] != pid && status["undecided"].is_null()
        });
        assert_eq!(status_of_first(pods)["repairs_total"], 0);
        assert_eq!((links(), before.lines().count()), (before.clone(), 8));
    }
}

/// The state of the first node's agent; null before there is one.
fn status_of_first(pods: &Pods) -> Value {
    let output = pods.cluster.on(NODES[0], HOSTGAP).args(["agent", "status", "--json"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// A Service with an address of each family, with the web server that says its name at port 80, and hostgap's
/// at 8080. With the policy `Local` kube-proxy's rules do not get an answer back to a pod on ebpf that has called a
/// port of its node.
fn service(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name }, "spec": {
        "selector": { "app": name }, "ipFamilyPolicy": "RequireDualStack",
        "type": "NodePort", "externalTrafficPolicy": "Local", "externalIPs": outside(name),
        "ports": [{ "name": "name", "port": 80 }, { "name": "load", "port": 8080 }],
    } })
}

/// The addresses outside of the cluster by which a Service is called, too. No node has them.
fn outside(service: &str) -> &'static [&'static str] {
    if service == "web" { &["198.51.100.7", "2001:db8:7::7"] } else { &[] }
}

fn server_name(node: Node) -> String {
    format!("web-{}", node.name)
}

fn server(node: Node) -> Value {
    let says_name = "cat /etc/hostname >/www/index.html; exec httpd -f -p 80 -h /www";
    let serve = ["serve", "--listen", "0.0.0.0:8080", "--listen", "[::]:8080"];
    json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": server_name(node), "labels": { "app": "web" } },
        "spec": {
            "nodeName": node.name, "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
            "containers": [
                { "name": "name", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", says_name] },
                { "name": "load", "image": AGENT_IMAGE, "imagePullPolicy": "Never", "args": serve,
                    "startupProbe": { "tcpSocket": { "port": 8080 }, "periodSeconds": 1, "failureThreshold": 600 } },
            ],
        } })
}

/// A Service's addresses as they are in a URL: IPv4, IPv6.
#[track_caller]
fn addresses(pods: &Pods, service: &str) -> Vec<String> {
    let service = pods.kubectl(&["get", "service", service, "--output=jsonpath={.spec.clusterIPs[*]}"]);
    let addresses: Vec<String> = service
        .split_whitespace()
        .map(|address| if address.contains(':') { format!("[{address}]") } else { address.to_owned() })
        .collect();
    assert_eq!(addresses.len(), 2, "{service}");
    addresses
}

/// What the answers say, one call after the other; none after one that was lost.
fn calls(pods: &Pods, client: &str, address: &str, port: u16) -> BTreeSet<String> {
    let address = address.trim_matches(['[', ']']);
    let script = format!(
        "for call in $(seq {CALLS}); do
             answer=$(printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {address} {port}) || {{ echo {LOST}; break; }}
             echo \"$answer\" | tail -n 1
         done"
    );
    let said = pods.kubectl(&["exec", client, "--", "sh", "-c", &script]);
    assert!(said.lines().count() == CALLS || said.ends_with(&format!("{LOST}\n")), "{said}");
    said.lines().map(str::to_owned).collect()
}

/// Waits until each node's client meets these endpoints and no other by each of the Service's addresses.
#[track_caller]
fn await_endpoints(pods: &Pods, servers: &[String]) {
    for node in NODES {
        for address in addresses(pods, "web") {
            await_calls(pods, &format!("client-{}", node.name), &address, 80, servers);
        }
    }
}

/// Waits until all of a client's calls meet these endpoints and no other. Until an agent knows of a
/// Service, calls of it are lost.
#[track_caller]
fn await_calls(pods: &Pods, client: &str, address: &str, port: u16, servers: &[String]) {
    let wanted: BTreeSet<String> = servers.iter().cloned().collect();
    until_within(PATIENCE, &format!("{client} is led to {wanted:?} by {address} port {port}"), || {
        calls(pods, client, address, port) == wanted
    });
}

/// The agents' programs refuse the calls of a Service without endpoints, so that no call waits.
#[track_caller]
fn calls_without_endpoints_are_refused(pods: &Pods) {
    for node in NODES {
        let refused = || {
            let counters = ["bpf", "counters", "pods-services", "--json"];
            let counters = text(pods.cluster.on(node, HOSTGAP).args(counters));
            let counters: Value = serde_json::from_str(&counters).unwrap();
            counters["nodes"][0]["calls"]["refused"].as_u64().unwrap()
        };
        for address in addresses(pods, "empty") {
            until_within(PATIENCE, &format!("{} refuses a call of {address}", node.name), || {
                let before = refused();
                let calls = calls(pods, &format!("client-{}", node.name), &address, 80);
                assert_eq!(calls, BTreeSet::from([LOST.to_owned()]), "{address}");
                refused() - before == 1
            });
        }
    }
}

/// A pod, and one with the node's own network, are led to all endpoints by the port of their node.
#[track_caller]
fn ports_of_nodes_are_led(pods: &Pods, servers: &[String]) {
    let port = pods.kubectl(&["get", "service", "web", "--output=jsonpath={.spec.ports[0].nodePort}"]);
    let port: u16 = port.parse().unwrap();
    for node in NODES {
        let on_host = format!("host-{}", node.name);
        let mut pod = client(&on_host, node);
        pod["spec"]["hostNetwork"] = json!(true);
        pods.apply(&pod);
        pods.kubectl(&["wait", "--for=condition=Ready", "--timeout=15m", &format!("pod/{on_host}")]);
        for client in [format!("client-{}", node.name), on_host] {
            for address in [node.ipv4, node.ipv6] {
                await_calls(pods, &client, address, port, servers);
            }
        }
    }
}

#[track_caller]
fn addresses_outside_are_led(pods: &Pods, servers: &[String]) {
    for node in NODES {
        for address in outside("web") {
            await_calls(pods, &format!("client-{}", node.name), address, 80, servers);
        }
    }
}

/// The agents have attached the programs that the plugin pinned on the nodes to their tunnels. Pods of two nodes call
/// each other, and no kernel forwards a packet.
#[track_caller]
fn programs_use_the_tunnels(pods: &Pods) {
    for node in NODES {
        until_within(PATIENCE, &format!("programs use the tunnels of {}", node.name), || {
            let status = text(pods.cluster.on(node, HOSTGAP).args(["agent", "status", "--json"]));
            let status: Value = serde_json::from_str(&status).unwrap();
            status["programs"].is_object() && status["programs"]["why_not"].is_null()
        });
    }
    let before = NODES.map(|node| forwarded(pods, node));
    for [from, to] in [NODES, [NODES[1], NODES[0]]] {
        let addresses = ["get", "pod", &server_name(to), "--output=jsonpath={.status.podIPs[*].ip}"];
        let addresses = pods.kubectl(&addresses);
        assert_eq!(addresses.split_whitespace().count(), 2, "{addresses}");
        for address in addresses.split_whitespace() {
            let answers = calls(pods, &format!("client-{}", from.name), address, 80);
            assert_eq!(answers, BTreeSet::from([server_name(to)]), "{address}");
        }
    }
    assert_eq!(NODES.map(|node| forwarded(pods, node)), before);
}

/// The nodes' programs are as of a build that lacks one of them. The next agents, in containers, have them all.
#[track_caller]
fn roll_out_renews_programs(pods: &Pods) {
    let on_each = |script: &str| {
        NODES.map(|node| text(pods.cluster.on(node, "sh").args(["-c", script])).trim().to_owned())
    };
    let pins = on_each("ls /run/hostgap-bpf/host-*/from_netkit");
    on_each("rm /run/hostgap-bpf/host-*/from_netkit");
    roll_out(pods);
    assert_eq!(on_each("ls /run/hostgap-bpf/host-*/from_netkit"), pins);
}

/// Packets that a node's kernel has forwarded: IPv4, IPv6.
#[track_caller]
fn forwarded(pods: &Pods, node: Node) -> [u64; 2] {
    let snmp = text(pods.cluster.on(node, "cat").args(["/proc/net/snmp", "/proc/net/snmp6"]));
    let mut of_ip = snmp.lines().filter(|line| line.starts_with("Ip: ")).map(str::split_whitespace);
    let (names, values) = (of_ip.next().unwrap(), of_ip.next().unwrap());
    let (_, ipv4) = names.zip(values).find(|(name, _)| *name == "ForwDatagrams").unwrap();
    let ipv6 = snmp.lines().find_map(|line| line.strip_prefix("Ip6OutForwDatagrams")).unwrap();
    [ipv4, ipv6.trim()].map(|count| count.parse().unwrap())
}

/// All agents are killed at once. Kubernetes starts them again, and they find everything as it should be.
#[track_caller]
fn kill_agents(pods: &Pods) {
    let killed = of_each_agent(pods, "kill -KILL ${process#/proc/} && echo killed");
    assert_eq!(killed.lines().count(), NODES.len(), "{killed}");
    until_within(PATIENCE, "all agents are started again", || {
        let list = pods.kubectl(&["--namespace", "kube-system", "get", "pods", AGENTS, "--output=json"]);
        let list: Value = serde_json::from_str(&list).unwrap();
        let states =
            list["items"].as_array().unwrap().iter().map(|pod| &pod["status"]["containerStatuses"][0]);
        states.filter(|state| state["restartCount"].as_u64() >= Some(1) && state["ready"] == true).count()
            == NODES.len()
    });
    nothing_is_repaired(pods);
}
