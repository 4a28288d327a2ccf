//! The program that runtimes start, by a link of another plugin's name: as `bridge` it takes that plugin's
//! configuration, and what it could not bring back as it was is on its standard error.

use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use crate::sandbox::{PLUGIN, Sandbox, sandbox, stderr, stdout, text};

/// A node, containers `a` and `b`, and the link.
struct Node {
    sandbox: Sandbox,
    program: String,
}

impl Node {
    fn new() -> Node {
        let sandbox = sandbox();
        // `/var/lib` has the addresses. A bpffs is not needed: as `bridge` it checks no senders.
        let script = "ip netns add node; ip -n node link add wire0 type veth peer name wire1
            ip -n node addr add 192.0.2.1/24 dev wire0; ip -n node link set wire0 up
            ip -n node link set wire1 up; ip -n node route add default via 192.0.2.2
            mount -t tmpfs none /var/lib; ip netns add a; ip netns add b";
        text(sandbox.command("sh").args(["-ec", script]));
        let link = sandbox.out().join("bridge");
        symlink(PLUGIN, &link).unwrap();
        Node { program: link.display().to_string(), sandbox }
    }

    fn call(&self, verb: &str, container: &str, conf: &Value) -> Output {
        let mut command = self.sandbox.command("ip");
        command.args(["netns", "exec", "node", "env", "CNI_IFNAME=eth0", "CNI_PATH=/nonexistent"]);
        command.args([format!("CNI_COMMAND={verb}"), format!("CNI_CONTAINERID={container}")]);
        command.args([&format!("CNI_NETNS=/run/netns/{container}"), &self.program]);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(conf.to_string().as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    fn on_node(&self, script: &str) -> String {
        text(self.sandbox.command("ip").args(["netns", "exec", "node", "sh", "-ec", script]))
    }
}

/// A configuration of the CNI project's `bridge`, with a port for which a parameter of the bridge is set.
fn conf() -> Value {
    json!({
        "cniVersion": "1.1.0", "name": "pods", "type": "bridge", "isDefaultGateway": true,
        "ipam": { "type": "host-local", "subnet": "10.9.0.0/24" },
        "runtimeConfig": { "portMappings": [{ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" }] },
    })
}

/// What a call that must work has printed on its two outputs.
#[track_caller]
fn works(output: &Output) -> [String; 2] {
    assert!(output.status.success(), "{output:?}");
    [stdout(output), stderr(output)]
}

/// A parameter that another program has set to a third value stays, whichever verb takes it back.
#[test]
fn a_link_called_bridge_is_that_plugin_and_says_what_it_leaves() {
    const PARAMETER: &str = "/proc/sys/net/ipv4/conf/cni0/route_localnet";
    let node = Node::new();
    let no_more = [String::new(), String::new()];
    let mut gc = conf();
    gc["cni.dev/valid-attachments"] = json!([]);
    for (container, verb, conf, value) in [("a", "DEL", conf(), "2"), ("b", "GC", gc, "3")] {
        let [result, said] = works(&node.call("ADD", container, &self::conf()));
        assert_eq!(said, "");
        let result: Value = serde_json::from_str(&result).unwrap();
        // The bridge and its address are as that plugin has them.
        let has = (&result["ips"][0]["gateway"], &result["cniVersion"]);
        assert_eq!(has, (&json!("10.9.0.1"), &json!("1.1.0")));
        assert!(node.on_node("ip -o address show dev cni0").contains("inet 10.9.0.1/24"));
        assert_eq!(node.on_node(&format!("cat {PARAMETER}")), "1\n");
        node.on_node(&format!("echo {value} >{PARAMETER}"));
        let [printed, said] = works(&node.call(verb, container, &conf));
        assert_eq!(printed, "");
        let [line] = said.lines().collect::<Vec<_>>()[..] else { panic!("{verb}: {said:?}") };
        assert!(
            line.starts_with("hostgap: ") && line.contains("net.ipv4.conf.cni0.route_localnet"),
            "{line}"
        );
        assert!(line.ends_with(&format!("left alone, changed since: {value}")), "{line}");
        assert_eq!(works(&node.call("DEL", container, &self::conf())), no_more, "it is said once");
        assert_eq!(node.on_node(&format!("cat {PARAMETER}")), format!("{value}\n"));
    }
    // What it is called by decides what it takes.
    let mut own = conf();
    own["attach"] = json!("bridge");
    let refused = node.call("ADD", "a", &own);
    assert!(!refused.status.success() && stdout(&refused).contains("unknown field `attach`"), "{refused:?}");
}
