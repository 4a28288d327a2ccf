//! The installed plugin under kubelets: pods of two nodes that reach each other, errors that `kubectl` shows,
//! and nothing that stays. The programs are those of `HOSTGAP_KUBERNETES`, `HOSTGAP_ETCD` and
//! `HOSTGAP_CONTAINERD`, parts of `PATH`.

mod fake;
mod race;
mod services;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use cluster::{AGENT_IMAGE, Agents, CalledBy, IMAGE, NODES, Node, OwnedCluster, Programs};
use serde_json::{Value, json};

use crate::sandbox::{HOSTGAP, Sandbox, sandbox, stderr, stdout, text, until_within};

/// For what a daemon does by itself some time later.
const PATIENCE: Duration = Duration::from_secs(600);

/// A cluster whose nodes have the plugin.
struct Pods {
    cluster: OwnedCluster,
    _sandbox: Sandbox,
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
        let sandbox = sandbox();
        let group = format!("hgt-cluster-{}", std::process::id());
        let cluster = OwnedCluster::start(programs, sandbox.out(), &group).unwrap();
        Some(Pods { cluster, _sandbox: sandbox })
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

    /// What a network may leave on a node: links, addresses, routes, rules, files of addresses that are in use, and
    /// programs. The folder of the agents' volume is the kubelet's.
    fn state(&self, node: Node) -> String {
        let script = "ip -br link; ip -br addr; ip route; ip -6 route; nft list tables | grep ' hg-' || true;
            find /var/lib -type f -path '*/cni/*' -regex '.*/[0-9a-f.:]+'; find /sys/fs/bpf /run/hostgap-bpf -mindepth 1 -not -path /sys/fs/bpf/hostgap || true";
        text(self.cluster.on(node, "sh").args(["-ec", script]))
    }

    /// What a pod reads from a web server; `None` if it does not answer within two seconds.
    fn ask(&self, client: &str, address: &str, port: u16) -> Option<String> {
        let ask = format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 {address} {port}");
        let output = self.cluster.kubectl().args(["exec", client, "--", "sh", "-c", &ask]).output().unwrap();
        output.status.success().then(|| stdout(&output))
    }

    /// Waits until each node has its web server. Until a node that is ready has lost its taint, a DaemonSet wants none
    /// there and counts as rolled out.
    fn await_servers(&self) {
        let all = format!("--for=jsonpath={{.status.numberReady}}={}", NODES.len());
        self.kubectl(&["wait", &all, "--timeout=15m", "daemonset/web"]);
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
        pods.await_servers();
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

/// Pods call each other by address, Service and name, and Kubernetes' own conformance tests of pods and ports pass;
/// neither knows anything of this plugin and its agents. Afterwards the agents are replaced and taken away while a pod
/// talks to another node's.
#[test]
fn kubernetes_own_tests_pass_on_agents() {
    let Some(pods) = Pods::new() else { return };
    let agents = Agents { hostgap: Path::new(HOSTGAP), attach: "ptp", backend: "vxlan", services: false };
    pods.cluster.connect_by_agents(agents).unwrap();
    pods.cluster.serve_names().unwrap();
    for by in CalledBy::ALL {
        // Each of four pods calls all four, by TCP and by UDP.
        assert_eq!(pods.cluster.probe(by).unwrap(), 32, "by {by}");
    }
    let communication = "Pods should function for (intra-pod|node-pod) communication: (http|udp) ";
    let ports = "same hostPort but different hostIP and protocol";
    let focus = format!(
        "--ginkgo.focus=sig-network.*({communication}|{ports}|Proxy version v1 A set of valid).*Conformance"
    );
    assert_eq!(pods.cluster.e2e(&[focus]).unwrap(), 7);
    pods.apply(&web());
    pods.apply(&client("client-node-1", NODES[0]));
    pods.apply(&client("client-node-2", NODES[1]));
    pods.await_servers();
    pods.kubectl(&["wait", "--for=condition=Ready", "--timeout=15m", "pod", "--all"]);
    start(&pods, "server", NODES[1], &["serve", "--listen", "0.0.0.0:8080"]);
    let server = pods.kubectl(&["get", "pod", "server", "--output=jsonpath={.status.podIP}"]);
    let load = Load { node: NODES[0], url: format!("http://{server}:8080/"), options: &["--rate", "500"] };
    no_request_is_lost(&pods, &[load], || {
        roll_out(&pods);
        assert_eq!(agents_with(&pods, "KUBERNETES_SERVICE_HOST=10.96.0.1"), NODES.len());
        // From here on agents reach the API server without kube-proxy.
        pods.apply(&json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "kubernetes-services-endpoint", "namespace": "kube-system" },
            "data": { "KUBERNETES_SERVICE_HOST": "192.0.2.1", "KUBERNETES_SERVICE_PORT": "6443" } }));
        roll_out(&pods);
        assert_eq!(agents_with(&pods, "KUBERNETES_SERVICE_HOST=192.0.2.1"), NODES.len());
        a_rollout_in_vain_stops(&pods);
        let gone = ["--namespace", "kube-system", "delete", "--cascade=foreground", "daemonset/hostgap"];
        pods.kubectl(&gone);
        every_pair(&pods, "without agents");
    });
    pods.cluster.apply_agents().unwrap();
    every_pair(&pods, "with agents again");
    each_agent_checks(&pods);
    the_nodes_are_given_back(&pods);
}

/// Without agents, the program that they left on each node takes back what they made, but for what pods
/// that are attached need.
#[track_caller]
fn the_nodes_are_given_back(pods: &Pods) {
    pods.kubectl(&["--namespace", "kube-system", "delete", "--cascade=foreground", "daemonset/hostgap"]);
    for node in NODES {
        let on = |script: &str| text(pods.cluster.on(node, "sh").args(["-ec", script]));
        on("cd /opt/cni/bin && ./hostgap-cli agent down && ./hostgap-cli cni uninstall");
        assert_eq!(on("ip link show type vxlan; ls /etc/cni/net.d"), "");
        let left = on("ls /opt/cni/bin | grep hostgap; ls -A /run/hostgap/agent-status");
        assert_eq!(left, "hostgap\nhostgap-cli\n");
    }
}

/// The pod of each agent finds that its node reaches the other one, in both families.
#[track_caller]
fn each_agent_checks(pods: &Pods) {
    let names = "--output=jsonpath={.items[*].metadata.name}";
    let names = pods.kubectl(&["--namespace", "kube-system", "get", "pods", AGENTS, names]);
    assert_eq!(names.split_whitespace().count(), NODES.len(), "{names}");
    for name in names.split_whitespace() {
        let check = ["--namespace", "kube-system", "exec", name, "--", "hostgap", "agent", "check"];
        let output = pods.cluster.kubectl().args(check).output().unwrap();
        let said = stdout(&output);
        assert!(output.status.success(), "{said} {}", stderr(&output));
        assert!(said.contains("1 of 1 nodes are reached") && said.matches(" tunnel ").count() == 2, "{said}");
    }
}

const AGENTS: &str = "--selector=app.kubernetes.io/name=hostgap";

/// How often the pods of agents have written a text; 0 if one of them begins or goes just now, so that it has no log.
fn written(pods: &Pods, what: &str) -> usize {
    let logs = ["--namespace", "kube-system", "logs", AGENTS, "--tail=-1"];
    let output = pods.cluster.kubectl().args(logs).output().unwrap();
    if output.status.success() { stdout(&output).matches(what).count() } else { 0 }
}

/// Kubernetes replaces each agent by one that waited for it, and none of them finds anything to repair.
#[track_caller]
fn roll_out(pods: &Pods) {
    pods.kubectl(&["--namespace", "kube-system", "rollout", "restart", "daemonset/hostgap"]);
    pods.cluster.wait_for_agents().unwrap();
    for line in ["waiting until it ends", "ready: this agent could take", "the node is in the network"] {
        until_within(PATIENCE, &format!("each agent says {line:?}"), || written(pods, line) == NODES.len());
    }
    nothing_is_repaired(pods);
}

/// The agents that run now have found everything as it should be.
#[track_caller]
fn nothing_is_repaired(pods: &Pods) {
    for node in NODES {
        let status = text(pods.cluster.on(node, HOSTGAP).args(["agent", "status", "--json"]));
        let status: Value = serde_json::from_str(&status).unwrap();
        assert_eq!((&status["running"], &status["repairs_total"]), (&json!(true), &json!(0)), "{status:#}");
    }
}

/// An agent that could not take over is not ready, so that the present ones stay.
#[track_caller]
fn a_rollout_in_vain_stops(pods: &Pods) {
    let ready = || {
        let list = pods.kubectl(&["--namespace", "kube-system", "get", "pods", AGENTS, "--output=json"]);
        let list: Value = serde_json::from_str(&list).unwrap();
        let is_ready = |pod: &&Value| pod["status"]["containerStatuses"][0]["ready"] == true;
        let pods = list["items"].as_array().unwrap().iter().filter(is_ready);
        pods.map(|pod| pod["metadata"]["name"].to_string()).collect::<BTreeSet<_>>()
    };
    let before = ready();
    let wire =
        r#"[{ "op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--wire=none" }]"#;
    let patch = ["--namespace", "kube-system", "patch", "daemonset/hostgap", "--type=json", "--patch", wire];
    pods.kubectl(&patch);
    until_within(PATIENCE, "the new agent says why it could not", || {
        written(pods, "there is no link none") > 0
    });
    assert_eq!((ready(), before.len()), (before.clone(), NODES.len()));
    pods.kubectl(&["--namespace", "kube-system", "rollout", "undo", "daemonset/hostgap"]);
    pods.cluster.wait_for_agents().unwrap();
    assert_eq!(ready(), before);
}

/// How many processes of agents have a variable in their environment.
#[track_caller]
fn agents_with(pods: &Pods, variable: &str) -> usize {
    let variables = of_each_agent(pods, "tr '\\0' '\\n' <$process/environ");
    variables.lines().filter(|line| *line == variable).count()
}

/// What a script prints for `$process`, the directory of each agent's process. All nodes are in one PID namespace. The
/// pattern does not match the script's own command line.
#[track_caller]
fn of_each_agent(pods: &Pods, script: &str) -> String {
    let script = format!(
        "for process in /proc/[0-9]*; do
            tr '\\0' ' ' <$process/cmdline | grep -q 'hostgap agent [r]un ' || continue
            {script}
        done 2>/dev/null"
    );
    text(pods.cluster.on(NODES[0], "sh").args(["-c", &script]))
}

/// Starts a pod with this program.
#[track_caller]
fn start(pods: &Pods, name: &str, node: Node, args: &[&str]) {
    pods.apply(&json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": {
        "nodeName": node.name, "restartPolicy": "Never", "automountServiceAccountToken": false,
        "containers": [{ "name": name, "image": AGENT_IMAGE, "imagePullPolicy": "Never", "args": args }],
    } }));
    pods.kubectl(&["wait", "--for=condition=Ready", "--timeout=15m", &format!("pod/{name}")]);
}

/// Requests at a constant rate from a pod on a node.
struct Load<'a> {
    node: Node,
    url: String,
    options: &'a [&'a str],
}

/// Sends requests while something is done. All are answered.
#[track_caller]
fn no_request_is_lost(pods: &Pods, loads: &[Load<'_>], done: impl FnOnce()) {
    let endless = ["--duration", "1h", "--warmup", "0s", "--connections", "8", "--json"];
    let mut running = Vec::new();
    for Load { node, url, options } in loads {
        let name = format!("load-{}", node.name);
        start(pods, &name, *node, &[&["load", url], *options, &endless].concat());
        let mut log = pods.cluster.kubectl();
        log.args(["logs", "--follow", &format!("pod/{name}")]).stdout(Stdio::piped());
        running.push((name, log.spawn().unwrap()));
    }
    done();
    for ((name, log), load) in running.into_iter().zip(loads) {
        // It is asked to end, and says what became of all requests.
        pods.kubectl(&["delete", "pod", &name]);
        let log = stdout(&log.wait_with_output().unwrap());
        let json = &log[log.find('{').unwrap_or_else(|| panic!("no result: {log}"))..];
        let result = serde_json::Deserializer::from_str(json).into_iter::<Value>().next();
        let result = result.unwrap().unwrap_or_else(|error| panic!("{error}: {log}"));
        let lost = ["/connection_errors", "/missed", "/unexpected/status", "/unexpected/length"];
        let keeps = !load.options.contains(&"--no-keepalive");
        for lost in lost.into_iter().chain(keeps.then_some("/reconnects")) {
            assert_eq!(result.pointer(lost), Some(&0.into()), "{lost} of {name}: {result:#}");
        }
        assert!(result["answered"].as_u64().unwrap() > 0, "{result:#}");
    }
}
