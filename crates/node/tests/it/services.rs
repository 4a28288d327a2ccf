//! Services by another program's rules on the node, as kube-proxy has them: a container calls
//! itself and its neighbours.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::net::SocketAddr;
use std::path::Path;

use serde_json::json;
use testkit::{shell, skip};

use crate::scene::{Scene, address, conf, with, works};

const SERVICES: [&str; 2] = ["10.96.0.10:80", "[fd00:96::10]:80"];

impl Scene {
    /// Leads the Services to a container, with kube-proxy's mark for calls that come back to their caller.
    fn lead_services_to(&self, v4: &str, v6: &str) {
        let node = self.world.name("node");
        let table = |family: &str, word: &str, service: &str, to: &str, end: &str| {
            format!(
                "table {family} proxy {{
                     chain services {{
                         type nat hook prerouting priority -100;
                         {word} daddr {service} tcp dport 80 dnat to {to}
                     }}
                     chain back {{
                         type nat hook postrouting priority 100;
                         {word} saddr {end} {word} daddr {end} masquerade
                     }}
                 }}\n"
            )
        };
        let rules = table("ip", "ip", "10.96.0.10", &format!("{v4}:80"), v4)
            + &table("ip6", "ip6", "fd00:96::10", &format!("[{v6}]:80"), v6);
        let _ = shell(&format!("ip netns exec {node} nft -f - <<'EOF'\n{rules}EOF"));
    }

    fn has_bridge_netfilter(&self) -> bool {
        self.world.open("node").run(|| Path::new("/proc/sys/net/bridge").exists()).unwrap()
    }

    /// Whether bridges let netfilter see what passes from port to port.
    fn let_netfilter_see_bridges(&self, yes: bool) {
        let keys = "net.bridge.bridge-nf-call-iptables net.bridge.bridge-nf-call-ip6tables";
        if !yes && !self.has_bridge_netfilter() {
            return;
        }
        let node = self.world.name("node");
        let value = u8::from(yes);
        let _ = shell(&format!("for key in {keys}; do ip netns exec {node} sysctl -qw $key={value}; done"));
    }
}

/// Each container calls a Service of the first one, which is itself or a neighbour.
#[track_caller]
fn check(attach: &str, masquerade: bool, of_bridges: &[bool]) {
    let Some(scene) = Scene::new() else { return };
    if of_bridges.contains(&true) && !scene.has_bridge_netfilter() {
        return skip("br_netfilter is not there");
    }
    let conf = with(conf(attach), "masquerade", json!(masquerade));
    for name in ["a", "b"] {
        let _ = scene.container(name);
    }
    let a = scene.add("a", &conf);
    scene.add("b", &conf);
    scene.lead_services_to(&address(&a, 0), &address(&a, 1));
    for seen in of_bridges {
        scene.let_netfilter_see_bridges(*seen);
        for (client, service) in ["a", "b"].into_iter().flat_map(|client| SERVICES.map(|to| (client, to))) {
            scene.exchange("a", client, service.parse::<SocketAddr>().unwrap());
        }
    }
}

#[test]
fn containers_of_a_bridge_call_themselves_and_neighbours() {
    check("bridge", true, &[false, true]);
}

#[test]
fn without_masquerade_bridges_are_to_let_netfilter_see_them() {
    check("bridge", false, &[true]);
}

#[test]
fn containers_of_ptp_call_themselves_and_neighbours() {
    check("ptp", true, &[false]);
}

/// What flannel writes for the CNI project's bridge.
#[test]
fn flannels_delegate_is_followed() {
    let Some(scene) = Scene::new() else { return };
    let _ = scene.container("a");
    let conf = json!({
        "cniVersion": "1.0.0", "name": "pods", "type": "bridge", "bridge": "cni0",
        "hairpinMode": true, "isDefaultGateway": true, "ipMasq": false, "mtu": 1450,
        "ipam": { "type": "host-local", "subnet": "10.1.2.0/24", "dataDir": "/run/addresses" },
    });
    works(scene.call_named("bridge", "ADD", "a", &conf));
    works(scene.call_named("bridge", "DEL", "a", &conf));
}
