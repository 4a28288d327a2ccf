//! Many containers on a node: they come and go in any order, several at a time, and calls of the plugin are killed.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Child, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;
use stats::Random;

use crate::sandbox::{HOSTGAP, PLUGIN, Sandbox, check, sandbox, stdout, text};

/// How many containers there are; [`MORE`] in the environment says another number.
const PODS: usize = 60;
const MORE: &str = "HOSTGAP_TEST_PODS";
const WORKERS: usize = 4;
/// One call in five is killed, within the time that it takes.
const KILLED: u64 = 5;
const CALL_US: u64 = 30_000;

/// Every second container has a port of the node of its own, every third one may receive and send at a rate, so that
/// some have both and some neither.
fn conf(pod: usize) -> String {
    let mut asked = serde_json::Map::new();
    if let Some(port) = port(pod) {
        let ports = json!([{ "hostPort": port, "containerPort": 80, "protocol": "tcp" }]);
        asked.insert("portMappings".to_owned(), ports);
    }
    if is_limited(pod) {
        let (rate, burst) = (40_000_000, 160_000);
        let limits =
            json!({ "ingressRate": rate, "ingressBurst": burst, "egressRate": rate, "egressBurst": burst });
        asked.insert("bandwidth".to_owned(), limits);
    }
    json!({
        "cniVersion": "1.1.0", "name": "many", "type": "hostgap", "attach": "bridge", "wire": "wire0",
        "masquerade": true, "ipam": { "type": "hostgap", "ranges": [[{ "subnet": "10.9.0.0/16" }]] },
        "runtimeConfig": asked,
    })
    .to_string()
}

/// The port of the node that a container has.
fn port(pod: usize) -> Option<usize> {
    pod.is_multiple_of(2).then_some(20_000 + pod)
}

fn is_limited(pod: usize) -> bool {
    pod.is_multiple_of(3)
}

/// A node with a wire, and containers p0, p1, …
struct Node {
    sandbox: Sandbox,
    pods: usize,
    kills: AtomicU32,
}

impl Node {
    fn new() -> Node {
        let sandbox = sandbox();
        let pods = std::env::var(MORE).map_or(PODS, |text| text.parse().unwrap());
        // The sandbox has a `/var/lib` of its own for leases, and a bpffs: one that is mounted under `ip netns exec`
        // goes with the call.
        let script = format!(
            "ip netns add node; ip -n node link add wire0 type veth peer name wire1
             ip -n node addr add 192.0.2.1/24 dev wire0; ip -n node link set wire0 up
             mount -t tmpfs none /var/lib; mkdir /run/hostgap-bpf; mount -t bpf none /run/hostgap-bpf
             for pod in $(seq 0 {}); do ip netns add p$pod; done",
            pods - 1
        );
        text(sandbox.command("sh").args(["-ec", &script]));
        Node { sandbox, pods, kills: AtomicU32::new(0) }
    }

    fn start(&self, verb: &str, pod: usize) -> Child {
        let mut command = self.sandbox.command("ip");
        command.args(["netns", "exec", "node", "env", "CNI_IFNAME=eth0"]);
        command.args([format!("CNI_COMMAND={verb}"), format!("CNI_CONTAINERID=p{pod}")]);
        command.args([&format!("CNI_NETNS=/run/netns/p{pod}"), PLUGIN]);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        // It may have been killed already.
        let _ = child.stdin.take().unwrap().write_all(conf(pod).as_bytes());
        child
    }

    fn call(&self, verb: &str, pod: usize) -> Output {
        self.start(verb, pod).wait_with_output().unwrap()
    }

    /// A call that may be killed. Whether it came to its end.
    fn maybe_killed(&self, verb: &str, pod: usize, random: &mut Random) -> bool {
        if random.below(KILLED) > 0 {
            let output = self.call(verb, pod);
            assert!(output.status.success(), "{verb} p{pod}: {}", stdout(&output));
            return true;
        }
        let mut child = self.start(verb, pod);
        thread::sleep(Duration::from_micros(random.below(CALL_US)));
        child.kill().unwrap();
        let ended = child.wait().unwrap().success();
        self.kills.fetch_add(u32::from(!ended), Ordering::Relaxed);
        ended
    }

    /// What one of several runtimes at once does with its containers; those that are attached at the end.
    fn work(&self, pods: &[usize], random: &mut Random) -> BTreeSet<usize> {
        let mut attached = BTreeSet::new();
        for pod in pods {
            // A runtime takes back what failed, and may try again.
            while !self.maybe_killed("ADD", *pod, random) {
                while !self.maybe_killed("DEL", *pod, random) {}
            }
            attached.insert(*pod);
            if random.below(2) == 0 {
                let nth = random.below(attached.len() as u64) as usize;
                let leaves = *attached.iter().nth(nth).unwrap();
                // One that is killed is left to whoever comes last.
                let _ended = self.maybe_killed("DEL", leaves, random);
                attached.remove(&leaves);
            }
        }
        attached
    }

    /// Fails unless a container has its address, its port and its buckets, of the node as `rules` and `qdiscs` say.
    #[track_caller]
    fn assert_attached(&self, pod: usize, rules: &str, qdiscs: &str) {
        let name = format!("p{pod}");
        let pod_has =
            |script: &[&str]| text(self.sandbox.command("ip").args(["netns", "exec", &name]).args(script));
        let links = pod_has(&["ip", "-br", "addr", "show", "eth0"]);
        let address = links.split_whitespace().find(|word| word.starts_with("10.9.")).expect("its address");
        let (address, _) = address.split_once('/').unwrap();
        if let Some(port) = port(pod) {
            let to = format!("tcp . {port} : {address} . 80");
            assert!(rules.contains(&to), "{name}: {to} is not in {rules}");
        }
        if is_limited(pod) {
            assert!(pod_has(&["tc", "qdisc", "show", "dev", "eth0"]).contains("qdisc tbf"), "{name}");
            let link = pod_has(&["ip", "-o", "link", "show", "eth0"]);
            let index = link.split_once("@if").unwrap().1.split(':').next().unwrap();
            let node_end = text(self.sandbox.command("ip").args(["-n", "node", "-o", "link"]));
            let node_end =
                node_end.lines().find_map(|line| line.strip_prefix(&format!("{index}: "))).unwrap();
            let node_end = node_end.split(['@', ':']).next().unwrap();
            assert!(
                qdiscs
                    .lines()
                    .any(|line| line.contains("qdisc tbf") && line.contains(&format!(" dev {node_end} "))),
                "{name}: {node_end} in {qdiscs}"
            );
        }
    }

    /// The links, queueing disciplines, addresses, routes, rules and parameters of the node.
    fn state(&self) -> String {
        let script = "ip -n node -o -d link | sed 's/ promiscuity.*//'; tc -n node qdisc; ip -n node -o addr; ip -n node route show table all
             ip netns exec node nft list ruleset; ip netns exec node cat /proc/sys/net/ipv4/ip_forward
             find /var/lib/cni/networks -name '10.*'; ls /run/hostgap/cni-attachments | grep -v lock$; ls /run/hostgap-bpf; true";
        text(self.sandbox.command("sh").args(["-c", script]))
    }
}

#[test]
fn containers_come_and_go_while_calls_are_killed() {
    let node = Node::new();
    let untouched = node.state();
    let mut pods: Vec<usize> = (0..node.pods).collect();
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut random = Random::from_seed(seed);
    random.shuffle(&mut pods);
    let seeds: Vec<u64> = (0..WORKERS).map(|_| random.below(u64::MAX)).collect();
    thread::scope(|scope| {
        let working: Vec<_> = pods
            .chunks(node.pods.div_ceil(WORKERS))
            .zip(seeds)
            .map(|(pods, seed)| {
                let node = &node;
                scope.spawn(move || node.work(pods, &mut Random::from_seed(seed)))
            })
            .collect();
        let attached: Vec<_> = working.into_iter().map(|worker| worker.join().unwrap()).collect();
        let of_node = |command: &str| text(node.sandbox.command("sh").args(["-c", command]));
        let rules = of_node("ip netns exec node nft list ruleset");
        let qdiscs = of_node("tc -n node qdisc");
        for pod in attached.into_iter().flatten() {
            node.assert_attached(pod, &rules, &qdiscs);
        }
    });
    random.shuffle(&mut pods);
    for pod in &pods {
        check(&node.call("DEL", *pod), 0, "");
    }
    check(
        &node.sandbox.command("ip").args(["netns", "exec", "node", HOSTGAP, "clean"]).output().unwrap(),
        0,
        "",
    );
    println!("{} containers, {} calls killed", node.pods, node.kills.load(Ordering::Relaxed));
    assert_eq!(node.state(), untouched);
}
