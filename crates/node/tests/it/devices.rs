//! Virtual functions of a card as the interfaces of containers, and what is no device.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::net::SocketAddr;

use linux::netlink::FunctionRules;
use linux::sysfs::{FunctionCard, LinkAttribute, NetSysfs};
use linux::{IfName, Netlink, Netns};
use node::Home;
use node::plugin::{Reply, call};
use plan::{Journal, Kernel, Place, Plan, SetLinkAttribute, Undone, apply, undo};
use serde_json::{Value, json};
use testkit::{card, dump, set_card_up, shell};

use crate::scene::{Scene, address, check_failure, conf, with, works};

/// The functions of a card, by number: each with its link and the address of its device.
fn functions(card: &IfName) -> Vec<(IfName, String)> {
    let sysfs = NetSysfs::open(&Netns::current().unwrap()).unwrap();
    let of_card = |link: &IfName| {
        sysfs.function_of(link).filter(|of| of.card == FunctionCard::Here(card.clone())).map(|of| of.number)
    };
    let mut found: Vec<(u32, IfName)> =
        sysfs.links().unwrap().into_iter().filter_map(|link| Some((of_card(&link)?, link))).collect();
    found.sort();
    found.into_iter().map(|(_, link)| (link.clone(), sysfs.bus_address(&link).unwrap())).collect()
}

/// A call of the plugin in the machine's first namespace, which has the cards.
fn ask(scene: &Scene, home: &Home, command: &str, container: &str, conf: &Value) -> Reply {
    let netns = scene.netns(container);
    let variable = |name: &str| match name {
        "CNI_COMMAND" => Some(command.to_owned()),
        "CNI_CONTAINERID" => Some(container.to_owned()),
        "CNI_NETNS" => Some(netns.clone()),
        "CNI_IFNAME" => Some("eth0".to_owned()),
        _ => None,
    };
    call(home, "hostgap", variable, &conf.to_string())
}

/// The attach that hands a device over, in a VLAN, whichever card the guest has.
fn device(id: &str) -> Value {
    let vlan = with(with(conf("host-device"), "vlan", json!(7)), "spoof_check", json!(false));
    with(with(vlan, "wire", json!("lo")), "runtimeConfig", json!({ "deviceID": id }))
}

#[test]
fn functions_are_made_given_to_containers_and_taken_back() {
    let (Some(card), Some(scene)) = (card("igb"), Scene::new()) else { return };
    // A guest has no udev that would load it for the functions.
    shell("modprobe igbvf");
    set_card_up(&card);
    let here = Netns::current().unwrap();
    let untouched = dump(&here);
    let directory = tempfile::tempdir().unwrap();
    let home = Home::at(directory.path().join("run"), directory.path().join("leases"));
    let mut journal = Journal::create(&directory.path().join("journal")).unwrap();
    let mut plan = Plan::new();
    let attribute = LinkAttribute::VirtualFunctions;
    plan.push(&Place::Host, SetLinkAttribute { link: card.clone(), attribute, value: 2 });
    apply(&plan, &mut journal, &mut Kernel::new().unwrap()).unwrap();
    let made = functions(&card);
    assert_eq!(made.len(), 2, "{made:?}");
    let with_functions = dump(&here);
    let netlink = Netlink::open().unwrap();
    let rules = |number| netlink.function(netlink.index_of(&card).unwrap(), number).unwrap().unwrap();
    let before = rules(0);

    let results = ["a", "b"].into_iter().zip(&made).map(|(container, (link, id))| {
        drop(scene.container(container));
        let result = works(ask(&scene, &home, "ADD", container, &device(id)));
        assert!(netlink.link(link).unwrap().is_none(), "{link} is in its container");
        result
    });
    let results: Vec<Value> = results.collect();
    for number in [0, 1] {
        assert_eq!(rules(number), FunctionRules { vlan: 7, spoof_check: false });
    }
    scene.exchange("a", "b", SocketAddr::new(address(&results[0], 0).parse().unwrap(), 80));
    scene.exchange("b", "a", SocketAddr::new(address(&results[1], 1).parse().unwrap(), 80));
    let check = with(device(&made[0].1), "prevResult", results[0].clone());
    assert!(ask(&scene, &home, "CHECK", "a", &check).is_success);
    let taken = ask(&scene, &home, "ADD", "far", &device(&made[0].1));
    check_failure(&taken, 7, "no link of this node belongs to a device of that address");

    // One container goes before it is taken back, so that the kernel brings its link back under the name of the inside.
    assert!(ask(&scene, &home, "DEL", "a", &device(&made[0].1)).is_success);
    linux::netns::delete(&scene.world.name("b")).unwrap();
    assert!(ask(&scene, &home, "DEL", "b", &device(&made[1].1)).is_success);
    assert_eq!(functions(&card), made);
    assert_eq!([rules(0), rules(1)], [before; 2]);
    assert_eq!(home.remove_unused_networks().unwrap().removed, ["pods"]);
    let mut differences = with_functions.diff(&dump(&here));
    // Interrupts have CPUs from the first time on that their card is up.
    differences.retain(|line| !line.contains(" interrupt "));
    assert_eq!(differences, [] as [String; 0], "after both were taken back");
    let undone = undo(&mut journal, &mut Kernel::new().unwrap());
    assert!(undone.iter().all(|(_, outcome)| *outcome == Undone::Restored), "{undone:?}");
    assert!(functions(&card).is_empty());
    untouched.assert_same(&dump(&here), "without functions");
}

#[test]
fn what_is_no_device_is_refused() {
    let Some(scene) = Scene::new() else { return };
    drop(scene.container("a"));
    let none = with(conf("host-device"), "wire", json!("wire0"));
    check_failure(&scene.call("ADD", "a", &none), 7, "`deviceID` is not set");
    let unknown = with(none.clone(), "deviceID", json!("0000:ff:1f.7"));
    let says = "\"0000:ff:1f.7\", and no link of this node belongs to a device of that address";
    check_failure(&scene.call("ADD", "a", &unknown), 7, says);
    let far = with(unknown, "vlan", json!(4095));
    check_failure(&scene.call("ADD", "a", &far), 7, "`vlan` is 4095");
    let other = with(conf("ptp"), "deviceID", json!("0000:00:03.0"));
    check_failure(&scene.call("ADD", "a", &other), 2, "`deviceID` is set, which is for host-device");
    let capability = with(conf("ptp"), "runtimeConfig", json!({ "deviceID": "0000:00:03.0" }));
    check_failure(&scene.call("ADD", "a", &capability), 2, "ptp takes no device of its own");
    let mac = with(none, "runtimeConfig", json!({ "deviceID": "x", "mac": "02:00:00:00:00:01" }));
    check_failure(&scene.call("ADD", "a", &mac), 2, "wire or device");
}
