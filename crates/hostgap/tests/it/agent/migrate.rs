//! A node that flannel has made becomes the agent's while its pods talk to those of a node that stays
//! flannel's, and flannel's again.

use std::process::{Command, Output};

use serde_json::Value;
use testkit::{Dump, Talk, dump, require_root, shell};

use super::pods::address;
use super::{Nodes, Running, is_file, text};

/// The Ethernet addresses of flannel's ends of the tunnel, which it makes up.
const MACS: [&str; 2] = ["b2:11:22:33:44:01", "b2:11:22:33:44:02"];
pub(super) const CONFLIST: &str = r#"{ "name": "cbr0", "cniVersion": "0.3.1", "plugins": [
    { "type": "flannel", "delegate": { "hairpinMode": true, "isDefaultGateway": true } },
    { "type": "portmap", "capabilities": { "portMappings": true } } ] }"#;
pub(super) const RUN: [&str; 3] = ["--wire", "wire", "--masquerade"];

impl Nodes {
    /// Two nodes as flanneld, its plugin and host-local leave them, with a pod each: 10.244.1.5 and 10.244.2.5.
    fn of_flannel(backend: &str) -> Nodes {
        let mut nodes = Nodes::new(backend);
        nodes.network = "cbr0";
        let node = |(at, name): (usize, &str)| {
            let number = at + 1;
            format!(
                "[[node]]\nname = \"{name}\"\npublic = [\"192.0.2.{number}\"]\npods = [\"10.244.{number}.0/24\"]\n\
                 mac = \"{}\"\n",
                MACS[at]
            )
        };
        let leases =
            format!("[network]\nNetwork = \"10.244.0.0/16\"\nBackend = {{ Type = \"{backend}\" }}\n");
        std::fs::write(nodes.path("nodes.toml"), leases + &node((0, "a")) + &node((1, "b"))).unwrap();
        for (name, [own, other]) in [("a", [1, 2]), ("b", [2, 1])] {
            nodes.world.add(&format!("pod-{name}"));
            nodes.shape(name, own);
            if backend == "vxlan" {
                nodes.join_by_tunnel(name, own, other);
            } else {
                let node = nodes.world.name(name);
                shell(&format!("ip -n {node} route add 10.244.{other}.0/24 via 192.0.2.{other} dev wire"));
            }
        }
        nodes.write_files(if backend == "vxlan" { 1450 } else { 1500 });
        nodes
    }

    /// The bridge with a pod, and flannel's rules.
    fn shape(&self, name: &str, own: usize) {
        let (node, pod) = (self.world.name(name), self.world.name(&format!("pod-{name}")));
        shell(&format!(
            "ip netns exec {node} sysctl -qw net.ipv4.ip_forward=1
             ip -n {node} address del 10.244.{own}.9/32 dev lo
             ip -n {node} link add cni0 type bridge; ip -n {node} link set cni0 up
             ip -n {node} address add 10.244.{own}.1/24 dev cni0
             ip -n {node} link add vetha type veth peer name eth0 netns {pod}
             ip -n {node} link set vetha master cni0 up
             ip -n {pod} link set lo up; ip -n {pod} link set eth0 mtu 1450 up
             ip -n {pod} address add 10.244.{own}.5/24 dev eth0
             ip -n {pod} route add default via 10.244.{own}.1
             ip netns exec {node} nft 'table ip flannel-ipv4 {{
                 chain forward {{ type filter hook forward priority filter; ip saddr 10.244.0.0/16 accept; }}
                 chain postrtg {{ type nat hook postrouting priority srcnat;
                     ip saddr 10.244.0.0/16 ip daddr 10.244.0.0/16 return; ip saddr 10.244.0.0/16 masquerade; }}
             }}'"
        ));
    }

    /// In the order of flannel: neighbour, forwarding entry, route.
    fn join_by_tunnel(&self, name: &str, own: usize, other: usize) {
        let (node, [mac, far]) = (self.world.name(name), [MACS[own - 1], MACS[other - 1]]);
        shell(&format!(
            "ip -n {node} link add flannel.1 address {mac} mtu 1450 type vxlan id 1 dev wire local 192.0.2.{own} dstport 8472 nolearning
             ip -n {node} address add 10.244.{own}.0/32 dev flannel.1; ip -n {node} link set flannel.1 up
             ip -n {node} neighbour add 10.244.{other}.0 lladdr {far} dev flannel.1 nud permanent
             bridge -n {node} fdb add {far} dev flannel.1 dst 192.0.2.{other}
             ip -n {node} route add 10.244.{other}.0/24 via 10.244.{other}.0 dev flannel.1 onlink"
        ));
    }

    /// flannel's environment file, its configuration for runtimes, and the address that host-local has given.
    fn write_files(&self, mtu: u32) {
        let a = self.path("a");
        let environment = format!(
            "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU={mtu}\nFLANNEL_IPMASQ=true\n"
        );
        let addresses = a.join("lib/cni/networks/cbr0");
        std::fs::create_dir_all(&addresses).unwrap();
        std::fs::create_dir_all(a.join("net.d")).unwrap();
        std::fs::write(a.join("subnet.env"), environment).unwrap();
        std::fs::write(a.join("net.d/10-flannel.conflist"), CONFLIST).unwrap();
        std::fs::write(addresses.join("10.244.1.5"), "pod-a\r\neth0").unwrap();
        std::fs::write(addresses.join("last_reserved_ip.0"), "10.244.1.4").unwrap();
    }

    fn migrate(&self, args: &[&str]) -> Output {
        self.agent("a", "migrate").arg("flannel").args(args).output().unwrap()
    }

    #[track_caller]
    pub(super) fn migrated(&self, args: &[&str]) -> String {
        let output = self.migrate(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        text(&output.stdout)
    }

    #[track_caller]
    pub(super) fn refused(&self, args: &[&str], says: &str) {
        let output = self.migrate(args);
        assert!(!output.status.success() && text(&output.stderr).contains(says), "{args:?}: {output:?}");
    }

    /// The node was taken over as `cbr0`, and the name is `pods` unless it is given.
    #[track_caller]
    fn under_another_name_nothing_is_done(&mut self) {
        self.network = "pods";
        self.refused(
            &["--back"],
            "10-flannel.conflist.before-hostgap is what was kept or written for network cbr0",
        );
        self.refused(&["--back", "--no-install"], "is what was kept or written for network cbr0");
        self.refused(&["--no-install"], "addresses of its pods are kept under its name");
        self.refused(&[], "addresses of its pods are kept under its name");
        self.network = "cbr0";
    }

    fn talk(&self) -> Talk {
        Talk::begin_paced(&self.world.open("pod-a"), &self.world.open("pod-b"), "10.244.2.5")
    }

    pub(super) fn dumps(&self) -> [Dump; 2] {
        ["a", "b"].map(|node| dump(&self.world.open(node)))
    }

    /// A pod that comes now gets an address of its own, reaches those of flannel on both nodes, and is reached by them.
    #[track_caller]
    fn a_new_pod_reaches_all(&self, agent: &Running) -> Value {
        let conf = self.configuration("a", agent);
        self.world.add("pod-new");
        let new = address(&self.call("ADD", "a", "pod-new", &conf));
        assert!(is_file(&self.path("a").join(format!("lib/cni/networks/cbr0/{new}"))), "{new}");
        let [a, b] = ["10.244.1.5", "10.244.2.5"].map(|pod| pod.parse().unwrap());
        assert!(new != a, "{new} is given twice");
        for (from, to) in [("pod-new", a), ("pod-new", b), ("pod-a", new), ("pod-b", new), ("pod-a", b)] {
            self.assert_reaches(from, to);
        }
        conf
    }
}

#[track_caller]
fn to_the_agent_and_back(backend: &str, by: &str) {
    let mut nodes = Nodes::of_flannel(backend);
    let talk = nodes.talk();
    talk.goes_on();
    let before = nodes.dumps();
    let of_a = nodes.path("a");
    let file = |name: &str| std::fs::read_to_string(of_a.join(name)).unwrap();
    let environment = file("subnet.env");
    let said = nodes.migrated(&["--wire", "wire"]);
    assert!(
        said.contains("bridge cni0: left, with 1 pods") && said.contains("table ip flannel-ipv4"),
        "{said}"
    );
    assert!(
        said.contains("10-flannel.conflist: set aside") && said.contains("10-cbr0.conflist: written"),
        "{said}"
    );
    assert!(!is_file(&nodes.path("a").join("net.d/10-flannel.conflist")));
    let next = said.lines().find(|line| line.starts_with("next: ")).unwrap();
    for (option, place) in
        [("bin-dir", "bin"), ("conf-dir", "net.d"), ("status-dir", "status"), ("subnet-file", "subnet.env")]
    {
        let path = nodes.path("a").join(place);
        assert!(next.contains(&format!(" --{option} {}", path.display())), "{next}");
    }
    assert!(next.contains("--network cbr0 --attach ptp --masquerade --wire wire"), "{next}");
    nodes.under_another_name_nothing_is_done();
    talk.goes_on();
    let mut agent = nodes.start_with("a", "log", &RUN);
    nodes.until_reached("a", "b", &agent);
    let status = nodes.status("a");
    assert_eq!((&status["peers"]["b"]["by"]["ipv4"], &status["repairs_total"]), (&by.into(), &0.into()));
    talk.goes_on();
    let conf = nodes.a_new_pod_reaches_all(&agent);
    nodes.under_another_name_nothing_is_done();
    nodes.refused(&["--back"], "1 interfaces of containers are attached");
    nodes.call("DEL", "a", "pod-new", &conf);
    // The runtime calls our plugin for pods of flannel's, too.
    let gone = nodes.path("a").join("lib/cni/networks/cbr0/10.244.1.7");
    std::fs::write(&gone, "pod-gone\r\neth0").unwrap();
    nodes.call("DEL", "a", "pod-gone", &conf);
    assert!(!is_file(&gone));
    nodes.refused(&["--back"], "it belongs to process");
    agent.kill();
    let said = nodes.migrated(&["--back"]);
    assert!(
        said.contains("10-flannel.conflist: put back") && said.contains("10-cbr0.conflist: removed"),
        "{said}"
    );
    talk.goes_on();
    for (before, after) in before.iter().zip(nodes.dumps()) {
        before.assert_same(&after, "after it is flannel's again");
    }
    talk.end();
    assert_eq!((file("net.d/10-flannel.conflist"), file("subnet.env")), (CONFLIST.to_owned(), environment));
    let left: Vec<_> = std::fs::read_dir(nodes.path("a").join("net.d")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    nodes.refused(&["--back"], "it was not taken over on this node");
}

#[test]
fn a_node_of_flannel_s_vxlan_becomes_the_agent_s_and_flannel_s_again() {
    if require_root() {
        to_the_agent_and_back("vxlan", "vxlan");
    }
}

#[test]
fn a_node_of_flannel_s_host_gw_becomes_the_agent_s_and_flannel_s_again() {
    if require_root() {
        to_the_agent_and_back("host-gw", "direct");
    }
}

#[test]
fn a_node_is_given_back_whole_whoever_hears_of_it() {
    if !require_root() {
        return;
    }
    let nodes = Nodes::of_flannel("host-gw");
    let before = nodes.dumps();
    nodes.migrated(&[]);
    let status = nodes.path("a").join("status/cbr0.json");
    std::fs::create_dir_all(status.parent().unwrap()).unwrap();
    std::fs::write(&status, "{}").unwrap();
    let mut back = nodes.agent("a", "migrate");
    let back = back.args(["flannel", "--back"]).stdout(crate::sandbox::unheard()).output().unwrap();
    assert!(back.status.success(), "{back:?}");
    assert!(!is_file(&status), "what agents say of themselves goes with the network");
    for (before, after) in before.iter().zip(nodes.dumps()) {
        before.assert_same(&after, "after it is flannel's again");
    }
}

#[test]
fn what_is_not_to_be_taken_over_is_said_and_left() {
    if !require_root() {
        return;
    }
    let mut nodes = Nodes::of_flannel("vxlan");
    let before = nodes.dumps();
    let shown = nodes.migrated(&["--dry-run"]);
    for line in
        ["ip link show dev flannel.1", "net.ipv4.conf.cni0.proxy_arp=1", "10-flannel.conflist.before-hostgap"]
    {
        assert!(shown.contains(line), "{shown}");
    }
    nodes.refused(&["--back"], "it was not taken over on this node");
    nodes.refused(&["--attach", "bridge"], "beside flannel's, which has the node's prefix already");
    for attach in ["macvlan", "ipvlan-l3s"] {
        nodes.refused(&["--attach", attach], "flannel's nodes reach each other by tunnels");
    }
    // What the kernel lacks is known before anything is made.
    let kernel_has = |kind: &str| {
        let probed = nodes.world.name("pod-a");
        let made =
            Command::new("ip").args(["-n", probed.as_str(), "link", "add", "probe", "type", kind]).output();
        made.unwrap().status.success()
    };
    if !kernel_has("netkit") {
        nodes.refused(&["--attach", "netkit", "--dry-run"], "netkit");
        nodes.refused(&["--attach", "netkit"], "netkit");
        assert!(!is_file(&nodes.path("a").join("subnet.env.before-hostgap")));
    }
    nodes.network = "pods";
    nodes.refused(&[], "addresses of its pods are kept under its name");
    nodes.network = "cbr0";
    let flanneld = nodes.path("flanneld");
    std::fs::copy("/bin/sleep", &flanneld).unwrap();
    let mut running = Command::new("ip");
    running.args(["netns", "exec", nodes.world.name("a").as_str()]).arg(&flanneld).arg("infinity");
    let running = Running { child: running.spawn().unwrap(), log: flanneld };
    super::until("flanneld runs", &running, || {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", running.pid()));
        name.is_ok_and(|name| name.trim_end() == "flanneld")
    });
    nodes.refused(&[], &format!("while flanneld runs, as process {}", running.pid()));
    nodes.refused(&["--back"], "while flanneld runs");
    drop(running);
    let a = nodes.world.name("a");
    shell(&format!("ip -n {a} link add flannel-wg type bridge"));
    nodes.refused(&[], "flannel's device flannel-wg (bridge)");
    shell(&format!("ip -n {a} link del flannel-wg"));
    for (before, after) in before.iter().zip(nodes.dumps()) {
        before.assert_same(&after, "after all was refused");
    }
}
