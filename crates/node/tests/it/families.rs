//! Networks of one family. Nodes have addresses of that family alone, and where it is IPv4 the kernel may have
//! been started with `ipv6.disable=1`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::net::{IpAddr, SocketAddr};

use datapath::Family;
use serde_json::{Value, json};
use testkit::shell;

use crate::attachments::{can_run, reach_each_other};
use crate::guarded::first_to_arrive;
use crate::limits::{assert_limited, bandwidth, transfer};
use crate::scene::{Scene, address, conf, with};

/// What one family has in a scene.
struct Alone {
    family: Family,
    subnet: &'static str,
    /// An address of the subnet that no container has, with its prefix length and whatever else `ip` is to be told.
    foreign: &'static str,
    node: &'static str,
    far: &'static str,
}

const V4: Alone = Alone {
    family: Family::V4,
    subnet: "10.244.1.0/24",
    foreign: "10.244.1.99/32 dev eth0",
    node: "192.0.2.1",
    far: "192.0.2.2",
};
const V6: Alone = Alone {
    family: Family::V6,
    subnet: "fd00:244:0:1::/64",
    foreign: "fd00:244:0:1::99/128 dev eth0 nodad preferred_lft 0",
    node: "2001:db8::1",
    far: "2001:db8::2",
};

/// A network of the family.
fn conf_of(attach: &str, alone: &Alone) -> Value {
    let ipam = json!({ "type": "hostgap", "ranges": [[{ "subnet": alone.subnet }]] });
    with(conf(attach), "ipam", ipam)
}

/// Every verb, and all that a container may ask for: it publishes a port, is held to rates, and sends from
/// its own address alone.
#[track_caller]
fn check(attach: &str, alone: &Alone) {
    let Some(scene) = Scene::of(&[alone.family]) else { return };
    if !can_run(attach) {
        return;
    }
    for name in ["first", "a", "b"] {
        let _ = scene.container(name);
    }
    let (untouched, conf) = (scene.dump(), with(conf_of(attach, alone), "masquerade", json!(true)));
    let call = |verb: &str, conf: &Value| scene.call_with(&[("CNI_COMMAND", verb)], conf);
    assert!(call("STATUS", &conf).is_success, "{:?}", call("STATUS", &conf));
    scene.add("first", &conf);
    let before = scene.dump();
    let mut asked = json!({ "bandwidth": bandwidth(&["ingress", "egress"]) });
    // Programs lead packets past the rules that would translate them.
    let publishes = attach != "ebpf";
    if publishes {
        asked["portMappings"] = json!([{ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" }]);
    }
    let asking = with(conf.clone(), "runtimeConfig", asked);
    let (a, b) = (scene.add("a", &asking), scene.add("b", &conf));
    assert_eq!([&a, &b].map(|result| result["ips"].as_array().unwrap().len()), [1, 1], "{a} {b}");
    let [of_a, of_b] = [&a, &b].map(|result| address(result, 0));
    for (from, to) in [("a", &*of_b), ("b", &of_a), ("a", alone.node), ("a", alone.far), ("b", alone.far)] {
        scene.assert_reaches(from, to);
    }
    for client in ["far", "node", "b"].into_iter().filter(|_| publishes) {
        scene.exchange("a", client, SocketAddr::new(alone.node.parse().unwrap(), 8080));
    }
    assert_limited(transfer(&scene, "a", "b", &of_b), "sent");
    assert_limited(transfer(&scene, "b", "a", &of_a), "received");
    for (name, conf, result) in [("a", &asking, &a), ("b", &conf, &b)] {
        scene.succeed("CHECK", name, &with(conf.clone(), "prevResult", result.clone()));
    }
    let _ = shell(&format!("ip -n {} addr add {}", scene.world.name("a"), alone.foreign));
    let to: IpAddr = of_b.parse().unwrap();
    assert_eq!(first_to_arrive(&scene, to), b"own");
    scene.succeed("DEL", "a", &asking);
    let valid = json!([{ "containerID": "first", "ifname": "eth0" }]);
    let collected = call("GC", &with(conf.clone(), "cni.dev/valid-attachments", valid));
    assert!(collected.is_success, "{collected:?}");
    assert_eq!(scene.reserved("pods"), 1, "GC takes b back");
    before.assert_same(&scene.dump(), "after DEL and GC");
    scene.succeed("DEL", "first", &conf);
    assert_eq!(scene.remove_unused().removed, ["pods"]);
    untouched.assert_same(&scene.dump(), "without the network");
}

/// Of an attach that leads packets past the node's own rules: its containers reach each other.
#[track_caller]
fn check_alone(attach: &str, alone: &Alone) {
    reach_each_other(attach, &[alone.family], &conf_of(attach, alone));
}

/// A test of each attach, named after it, in one family.
macro_rules! of_family {
    ($name:ident, $alone:ident) => {
        mod $name {
            #[test]
            fn bridge() {
                super::check("bridge", &super::$alone);
            }

            #[test]
            fn ptp() {
                super::check("ptp", &super::$alone);
            }

            #[test]
            fn ebpf() {
                super::check("ebpf", &super::$alone);
            }

            #[test]
            fn netkit() {
                super::check_alone("netkit", &super::$alone);
            }

            #[test]
            fn macvlan() {
                super::check_alone("macvlan", &super::$alone);
            }

            #[test]
            fn ipvlan_l2() {
                super::check_alone("ipvlan-l2", &super::$alone);
            }

            #[test]
            fn ipvlan_l3() {
                super::check_alone("ipvlan-l3", &super::$alone);
            }

            #[test]
            fn ipvlan_l3s() {
                super::check_alone("ipvlan-l3s", &super::$alone);
            }
        }
    };
}

of_family!(ipv4_alone, V4);
of_family!(ipv6_alone, V6);
