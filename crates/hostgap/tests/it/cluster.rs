//! The installed plugin under kubelets: pods of two nodes that reach each other, errors that `kubectl` shows, and nothing
//! that stays. The programs are those of `HOSTGAP_KUBERNETES`, `HOSTGAP_ETCD` and `HOSTGAP_CONTAINERD`, parts of `PATH`.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use cluster::{IMAGE, NODES, Node, OwnedCluster, Programs};
use serde_json::{Value, json};

use crate::turn::{HOSTGAP, Turn, stderr, stdout, text, turn, until_within};

/// For what a daemon does by itself some time later.
const PATIENCE: Duration = Duration::from_secs(600);

/// A cluster whose nodes have the plugin.
struct Pods {
    cluster: OwnedCluster,
    _turn: Turn,
}

impl Pods {
    /// `None`, and a skip that is counted, if the environment does not say where the programs are.
    fn new() -> Option<Pods> {
        let absent = |script| Err(anyhow::anyhow!("a cluster needs what {script} prints"));
        let programs = match Programs::from_env(absent) {
            Ok(programs) => programs,
            Err(error) => {
                testkit::skip(&error.to_string());
                return None;
            }
        };
        let turn = turn();
        let group = format!("hgt-cluster-{}", std::process::id());
        let cluster = OwnedCluster::start(programs, turn.out(), &group).unwrap();
        Some(Pods { cluster, _turn: turn })
    }

    #[track_caller]
    fn kubectl(&self, args: &[&str]) -> String {
        text(self.cluster.kubectl().args(args))
    }

    #[track_caller]
    fn apply(&self, object: &Value) {
        let mut kubectl = self.cluster.kubectl();
        let mut kubectl = kubectl.args(["apply", "--filename", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        kubectl.stdin.take().unwrap().write_all(object.to_string().as_bytes()).unwrap();
        assert!(kubectl.wait().unwrap().success());
    }

    /// What a network may leave on a node: links, addresses, routes, rules, and files of addresses that are in use.
    fn state(&self, node: Node) -> String {
        let script = "ip -br link; ip -br addr; ip route; ip -6 route; nft list tables | grep ' hg-' || true;
            find /var/lib -type f -path '*/cni/*' -regex '.*/[0-9a-f.:]+'";
        text(self.cluster.on(node, "sh").args(["-ec", script]))
    }

    /// What a pod reads from a web server; `None` if it does not answer within two seconds.
    fn ask(&self, client: &str, address: &str, port: u16) -> Option<String> {
        let ask = format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 {address} {port}");
        let output = self.cluster.kubectl().args(["exec", client, "--", "sh", "-c", &ask]).output().unwrap();
        output.status.success().then(|| stdout(&output))
    }

    /// Waits until a pod reads a text from a web server. A Service is there when the node's kube-proxy knows it.
    #[track_caller]
    fn await_answer(&self, client: &str, address: &str, port: u16, text: &str) {
        until_within(PATIENCE, &format!("{client} reads {text:?} from {address} port {port}"), || {
            self.ask(client, address, port).is_some_and(|answer| answer.contains(text))
        });
    }
}

/// A pod with a web server on each node, at a port of the node too, and a Service before them.
fn web() -> Value {
    let serve = "cat /etc/hostname >/www/index.html; exec httpd -f -p 80 -h /www";
    json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "web" }, "spec": {
            "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } }, "spec": {
                "terminationGracePeriodSeconds": 1,
                "automountServiceAccountToken": false,
                "containers": [{
                    "name": "web", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", serve],
                    "ports": [{ "containerPort": 80, "hostPort": 8080 }],
                }],
            } },
        } },
        { "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" }, "spec": {
            "selector": { "app": "web" }, "ports": [{ "port": 80 }],
            "ipFamilyPolicy": "RequireDualStack",
        } },
    ] })
}

fn client(name: &str, node: Node) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": {
        "nodeName": node.name, "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
        "containers": [{ "name": "client", "image": IMAGE, "imagePullPolicy": "Never" }],
    } })
}

#[test]
fn pods_of_two_nodes_reach_each_other_and_leave_nothing() {
    let Some(pods) = Pods::new() else { return };
    for attach in ["ptp", "bridge"] {
        pods.cluster.connect(Path::new(HOSTGAP), attach).unwrap();
        let before = NODES.map(|node| pods.state(node));
        pods.apply(&web());
        for node in NODES {
            pods.apply(&client(&format!("client-{}", node.name), node));
        }
        pods.kubectl(&["rollout", "status", "daemonset/web", "--timeout=15m"]);
        pods.kubectl(&["wait", "--for=condition=Ready", "--timeout=15m", "pod", "--all"]);
        every_pair(&pods, attach);

        pods.kubectl(&["delete", "--cascade=foreground", "daemonset/web", "service/web"]);
        pods.kubectl(&["delete", "pod", "--all"]);
        for (node, before) in NODES.into_iter().zip(before) {
            text(pods.cluster.on(node, HOSTGAP).args(["cni", "uninstall"]));
            assert_eq!(pods.state(node), before, "{attach}");
        }
    }
}

/// From a client on each node to each web server by its pod's addresses, by its node's port, and by the Service.
#[track_caller]
fn every_pair(pods: &Pods, attach: &str) {
    let list: Value =
        serde_json::from_str(&pods.kubectl(&["get", "pod", "--selector=app=web", "--output=json"])).unwrap();
    let service: Value =
        serde_json::from_str(&pods.kubectl(&["get", "service", "web", "--output=json"])).unwrap();
    let servers = list["items"].as_array().unwrap();
    assert_eq!(servers.len(), 2, "{attach}");
    for node in NODES {
        let client = format!("client-{}", node.name);
        for server in servers {
            let name = server["metadata"]["name"].as_str().unwrap();
            let addresses = server["status"]["podIPs"].as_array().unwrap();
            assert_eq!(addresses.len(), 2, "{attach}: {server}");
            for address in addresses {
                pods.await_answer(&client, address["ip"].as_str().unwrap(), 80, name);
            }
        }
        for address in service["spec"]["clusterIPs"].as_array().unwrap() {
            pods.await_answer(&client, address.as_str().unwrap(), 80, "web-");
        }
        for server in NODES.into_iter().flat_map(|node| [node.ipv4, node.ipv6]) {
            pods.await_answer(&client, server, 8080, "web-");
        }
    }
}

#[test]
fn kubectl_shows_what_the_plugin_says() {
    let Some(pods) = Pods::new() else { return };
    // Wrong before containerd sees it: a node is ready when containerd has read a configuration.
    pods.cluster.install(Path::new(HOSTGAP), "ptp", "/run/net.d").unwrap();
    let wrong = "sed -i 's/\"attach\": \"ptp\"/\"attach\": \"pttp\"/' /run/net.d/10-pods.conflist &&
        grep pttp /run/net.d/10-pods.conflist && cp /run/net.d/10-pods.conflist /etc/cni/net.d";
    for node in NODES {
        text(pods.cluster.on(node, "sh").args(["-ec", wrong]));
    }
    pods.cluster.wait_for_nodes().unwrap();
    pods.apply(&client("client", NODES[0]));
    let mut said = String::new();
    until_within(PATIENCE, "an event says why the pod does not start", || {
        said = pods.kubectl(&["get", "events", "--output=jsonpath={.items[*].message}"]);
        said.contains("plugin type=\"hostgap\" failed (add)")
    });
    assert!(said.contains("did you mean \"ptp\""), "{said}");
    // The kubelet tries again by itself.
    text(pods.cluster.on(NODES[0], "sed").args(["-i", "s/pttp/ptp/", "/etc/cni/net.d/10-pods.conflist"]));
    let ready = pods
        .cluster
        .kubectl()
        .args(["wait", "--for=condition=Ready", "--timeout=15m", "pod/client"])
        .output()
        .unwrap();
    assert!(ready.status.success(), "{}", stderr(&ready));
}

/// Kubernetes' own conformance tests of pods and ports, which know nothing of this plugin and its agents. Others of networks
/// need a DNS server in the cluster. Afterwards the agents are killed, and come back, while a pod talks to another node's.
#[test]
fn kubernetes_own_tests_pass_on_agents() {
    let Some(pods) = Pods::new() else { return };
    pods.cluster.connect_by_agents(Path::new(HOSTGAP), "ptp", "vxlan").unwrap();
    let communication = "Pods should function for (intra-pod|node-pod) communication: (http|udp) ";
    let ports = "same hostPort but different hostIP and protocol";
    let focus = format!(
        "--ginkgo.focus=sig-network.*({communication}|{ports}|Proxy version v1 A set of valid).*Conformance"
    );
    assert_eq!(pods.cluster.e2e(&[focus]).unwrap(), 7);
    pods.apply(&web());
    pods.apply(&client("client-node-1", NODES[0]));
    pods.apply(&client("client-node-2", NODES[1]));
    pods.kubectl(&["rollout", "status", "daemonset/web", "--timeout=15m"]);
    pods.kubectl(&["wait", "--for=condition=Ready", "--timeout=15m", "pod", "--all"]);
    for node in NODES {
        pods.cluster.kill_agent(node).unwrap();
    }
    every_pair(&pods, "without agents");
    for node in NODES {
        pods.cluster.start_agent(node, Path::new(HOSTGAP), "ptp").unwrap();
        let status = ["agent", "status", "--json"];
        until_within(PATIENCE, "its agent reaches the other node", || {
            let status = pods.cluster.on(node, HOSTGAP).args(status).output().unwrap();
            status.status.success() && stdout(&status).contains("\"running\":true")
        });
    }
    every_pair(&pods, "with agents again");
}
