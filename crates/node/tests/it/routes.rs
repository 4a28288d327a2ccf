//! Routes that a configuration gives containers (`ipam.routes`).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use linux::netlink::{Netlink, RouteInfo};
use serde_json::{Value, json};
use testkit::shell;

use crate::attachments::can_run;
use crate::scene::{Scene, address, check_failure, conf, of_each_attach, with};

/// A configuration in both families with routes, and without a default route of its own.
fn routed(attach: &str, routes: Value) -> Value {
    let mut conf = with(conf(attach), "default_route", json!(false));
    conf["ipam"]["routes"] = routes;
    conf
}

/// The routes of a container in the main table to a destination, by their metrics.
fn routes_to(scene: &Scene, container: &str, dst: &str) -> Vec<RouteInfo> {
    let all = Netlink::open_in(&scene.world.open(container)).unwrap().routes().unwrap();
    let dst = dst.parse().unwrap();
    all.into_iter().filter(|route| route.table == RouteInfo::MAIN && route.dst == dst).collect()
}

/// Machines that the far end of the wire has behind it.
fn behind_the_wire(scene: &Scene) {
    let far = scene.world.name("far");
    let _ = shell(&format!(
        "ip -n {far} link set lo up; ip -n {far} addr add 198.51.100.1/32 dev lo
         ip -n {far} addr add 2001:db8:ffff::1/128 dev lo"
    ));
}

/// An attach makes them, finds one that is gone, and takes them away.
#[track_caller]
fn check(name: &str) {
    let Some(scene) = Scene::new() else { return };
    if can_run(name) {
        let _ = scene.container("a");
        let conf = routed(
            name,
            json!([
                { "dst": "198.51.100.0/24", "mtu": 1300 }, { "dst": "198.51.100.0/24", "priority": 70 },
                { "dst": "2001:db8:ffff::/48", "priority": 50 },
            ]),
        );
        let result = scene.add("a", &conf);
        let said = |dst: &str, key: &str, value: u32| {
            let routes = result["routes"].as_array().unwrap();
            assert!(routes.iter().any(|one| one["dst"] == dst && one[key] == value), "{name}: {routes:?}");
        };
        said("198.51.100.0/24", "mtu", 1300);
        said("198.51.100.0/24", "priority", 70);
        said("2001:db8:ffff::/48", "priority", 50);
        let v4 = routes_to(&scene, "a", "198.51.100.0/24");
        assert_eq!(v4.len(), 2, "{name}: {v4:?}");
        assert_eq!((v4[0].mtu, v4[0].metric, v4[1].mtu, v4[1].metric), (Some(1300), None, None, Some(70)));
        assert_eq!(routes_to(&scene, "a", "2001:db8:ffff::/48")[0].metric, Some(50), "{name}");
        assert!(routes_to(&scene, "a", "0.0.0.0/0").is_empty(), "{name}");
        let checked = with(conf.clone(), "prevResult", result);
        scene.succeed("CHECK", "a", &checked);
        let _ = shell(&format!("ip -n {} route del 198.51.100.0/24 metric 70", scene.world.name("a")));
        scene.fail("CHECK", "a", &checked, 101, "198.51.100.0/24");
        scene.succeed("DEL", "a", &conf);
        assert!(routes_to(&scene, "a", "198.51.100.0/24").is_empty(), "{name}");
    }
}

of_each_attach!(check);

#[test]
fn a_container_reaches_what_its_routes_lead_to() {
    let Some(scene) = Scene::new() else { return };
    behind_the_wire(&scene);
    for attach in ["bridge", "ptp"] {
        let _ = scene.container(attach);
        let routes = json!([{ "dst": "198.51.100.0/24" }, { "dst": "::/0" }]);
        let mut conf = with(routed(attach, routes), "masquerade", json!(true));
        conf["name"] = attach.into();
        scene.add(attach, &conf);
        scene.assert_reaches(attach, "198.51.100.1");
        scene.assert_reaches(attach, "2001:db8:ffff::1");
        assert!(routes_to(&scene, attach, "0.0.0.0/0").is_empty(), "{attach}");
        scene.succeed("DEL", attach, &conf);
    }
}

/// On a wire or a bridge there are other neighbours than the gateway.
#[test]
fn a_route_may_go_by_a_neighbour() {
    let Some(scene) = Scene::new() else { return };
    behind_the_wire(&scene);
    let _ = scene.container("a");
    let conf = json!({
        "cniVersion": "1.1.0", "name": "pods", "type": "hostgap", "attach": "macvlan",
        "ipam": {
            "type": "hostgap", "ranges": [[{ "subnet": "192.0.2.0/24", "rangeStart": "192.0.2.100" }]],
            "routes": [{ "dst": "198.51.100.1/32", "gw": "192.0.2.2" }],
        },
    });
    scene.add("a", &conf);
    scene.assert_reaches("a", "198.51.100.1");
    scene.succeed("DEL", "a", &conf);
    let _ = scene.container("router");
    let router = scene.add("router", &self::conf("bridge"));
    let by_router = json!([{ "dst": "198.51.100.0/24", "gw": address(&router, 0) }]);
    // One network is one for all its containers, whatever routes they have.
    let conf = routed("bridge", by_router);
    let result = scene.add("a", &conf);
    let hops = &routes_to(&scene, "a", "198.51.100.0/24")[0].next_hops;
    assert_eq!(hops[0].via.unwrap().to_string(), address(&router, 0));
    assert_ne!(result["ips"][0]["gateway"], router["ips"][0]["address"]);
    scene.succeed("DEL", "a", &conf);
}

#[test]
fn routes_that_cannot_be_are_refused_with_their_key() {
    let Some(scene) = Scene::new() else { return };
    let _ = scene.container("a");
    let before = scene.dump();
    let refused = |attach: &str, routes: Value, code: u32, says: &str| {
        scene.fail("ADD", "a", &routed(attach, routes), code, says);
    };
    let neighbour = json!([{ "dst": "10.0.0.0/8", "gw": "10.244.1.9" }]);
    refused("ptp", neighbour.clone(), 2, "`ipam.routes` has 10.0.0.0/8 by 10.244.1.9; the only neighbour");
    refused("ebpf", neighbour, 2, "the only neighbour");
    refused("ptp", json!([{ "dst": "10.0.0.0/8", "table": 7 }]), 2, "`table` 7");
    refused("ptp", json!([{ "dst": "10.0.0.0" }]), 7, "`ipam.routes` has {\"dst\":\"10.0.0.0\"}");
    refused("ptp", json!([{ "dst": "10.0.0.0/8" }, { "dst": "10.0.0.0/8" }]), 7, "two routes to 10.0.0.0/8");
    refused("ptp", json!("10.0.0.0/8"), 7, "`ipam.routes` is \"10.0.0.0/8\"");
    before.assert_same(&scene.dump(), "after refusals");
    // Only the kernel knows that no host is there.
    refused("bridge", json!([{ "dst": "10.0.0.0/8", "gw": "203.0.113.1" }]), 100, "203.0.113.1");
    assert_eq!(scene.reserved("pods"), 0);
}

/// As the CNI project's plugins: without routes a container reaches its network alone, and a default route is that of
/// the family that is named.
#[test]
fn under_another_plugin_s_name_there_are_the_routes_of_its_configuration() {
    let Some(scene) = Scene::new() else { return };
    let ranges = json!([[{ "subnet": "10.244.1.0/24" }], [{ "subnet": "fd00:244:0:1::/64" }]]);
    for (name, more) in [("ptp", json!({})), ("bridge", json!({ "isGateway": true }))] {
        let _ = scene.container(name);
        let netns = scene.netns(name);
        let call = |verb: &str, routes: &Value| {
            let mut conf = more.clone();
            conf["cniVersion"] = "1.0.0".into();
            conf["name"] = name.into();
            conf["ipam"] = json!({ "type": "host-local", "ranges": ranges, "routes": routes });
            let variables = [
                ("CNI_COMMAND", verb),
                ("CNI_CONTAINERID", name),
                ("CNI_IFNAME", "eth0"),
                ("CNI_NETNS", &netns),
            ];
            scene.call_as(name, &variables, &conf)
        };
        let none = call("ADD", &Value::Null);
        assert!(none.is_success, "{none:?}");
        assert!(routes_to(&scene, name, "0.0.0.0/0").is_empty());
        let made = none.printed.unwrap()["routes"].as_array().unwrap().len();
        // On a bridge an address brings the route to its neighbours along.
        assert_eq!(made, if name == "ptp" { 2 } else { 0 }, "{name}");
        assert!(call("DEL", &Value::Null).is_success);
        let one = json!([{ "dst": "0.0.0.0/0" }]);
        let added = call("ADD", &one);
        assert!(added.is_success, "{added:?}");
        let defaults = ["0.0.0.0/0", "::/0"].map(|dst| routes_to(&scene, name, dst).len());
        assert_eq!(defaults, [1, 0], "{name}");
        assert!(call("DEL", &one).is_success);
        let neighbour = call("ADD", &json!([{ "dst": "0.0.0.0/0", "table": 7 }]));
        check_failure(&neighbour, 2, "`table` 7");
    }
}
