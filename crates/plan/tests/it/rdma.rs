//! Devices of software RoCE. They are the machine's, so only a virtual machine makes them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use linux::netlink::RdmaDevices;
use linux::{RdmaLink, RdmaName};
use plan::{Fault, Place, Plan, Step, Undone};
use testkit::has_software_roce;

use crate::reconcile::reconciled;
use crate::sample::{ifname, veth};
use crate::scene::Scene;

fn device(name: &str, link: &str) -> RdmaLink {
    RdmaLink { name: RdmaName::new(name).unwrap(), link: ifname(link) }
}

/// A device at each end of a veth pair.
fn plan(home: &Place) -> Plan {
    let mut plan = Plan::new();
    plan.push(home, veth("hgr0", "hgr1", None));
    plan.push(home, Step::AddRdmaLink(device("hgrxe0", "hgr0")));
    plan.push(home, Step::AddRdmaLink(device("hgrxe1", "hgr1")));
    plan
}

/// What `rdma` says of the devices of a scene's namespace.
fn shown(scene: &Scene) -> String {
    let listed = testkit::run(&scene.world.open("home"), "rdma", &["link", "show"]);
    // Numbers of links go on from one to the next.
    listed
        .lines()
        .map(|line| line.split(" netdev_index").next().unwrap_or(line))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Deletes the link that carries both devices. They go a moment later.
fn delete_link(scene: &Scene) {
    testkit::run(&scene.world.open("home"), "ip", &["link", "delete", "hgr0"]);
    while !shown(scene).is_empty() {
        std::thread::yield_now();
    }
}

#[test]
fn commands_are_those_of_rdma() {
    let name = linux::NetnsName::new("hgt-x").unwrap();
    let commands = plan(&Place::Netns(name)).commands();
    assert_eq!(commands[1], "ip netns exec hgt-x rdma link add hgrxe0 type rxe netdev hgr0");
    assert_eq!(plan(&Place::Host).commands()[2], "rdma link add hgrxe1 type rxe netdev hgr1");
}

#[test]
fn undo_takes_all_of_it_wherever_apply_stopped() {
    if !has_software_roce() {
        return;
    }
    let scene = Scene::new();
    let plan = plan(&scene.sample.home());
    let lines = scene.apply(&plan, Fault::None).unwrap();
    let both = shown(&scene);
    for (device, link) in [("hgrxe0", "hgr0"), ("hgrxe1", "hgr1")] {
        assert!(
            both.contains(&format!("link {device}/1")) && both.contains(&format!("netdev {link}")),
            "{both}"
        );
    }
    let (results, _) = scene.undo();
    assert!(results.iter().all(|(_, outcome)| *outcome == Undone::Restored), "{results:?}");
    scene.assert_as_before("after undo");
    assert_eq!(shown(&scene), "");
    scene.undo_wherever_apply_stops(&plan, lines, |when| assert_eq!(shown(&scene), "", "{when}"));

    // Without its link a device is gone, and that is no error.
    scene.apply(&plan, Fault::None).unwrap();
    delete_link(&scene);
    let (results, journal) = scene.undo();
    assert!(journal.is_undone(), "{results:?}");
    assert_eq!(shown(&scene), "");
}

/// What the typed commands make is what `apply` takes for its own, and nothing of others is taken.
#[test]
fn what_is_typed_is_the_same_and_others_keep_theirs() {
    if !has_software_roce() {
        return;
    }
    let scene = Scene::new();
    let (home, plan) = (scene.world.open("home"), plan(&scene.sample.home()));
    testkit::shell(&plan.commands().join("\n"));
    let typed = shown(&scene);
    delete_link(&scene);
    scene.apply(&plan, Fault::None).unwrap();
    assert_eq!(shown(&scene), typed);
    assert!(reconciled(&scene.path(), &plan, Fault::None).unwrap().is_nothing());
    let devices = RdmaDevices::open_in(&home).unwrap();
    let ours = devices.find(&RdmaName::new("hgrxe0").unwrap()).unwrap().unwrap();
    devices.remove(&ours).unwrap();
    assert_eq!(reconciled(&scene.path(), &plan, Fault::None).unwrap().repaired.len(), 1);
    assert_eq!(shown(&scene).lines().count(), 2);

    // A foreign one has the name.
    scene.undo();
    let foreign = device("hgrxe0", "own0");
    devices.add(&foreign).unwrap();
    let error = scene.apply(&plan, Fault::None).unwrap_err().to_string();
    assert!(error.contains("RDMA device hgrxe0 on another link"), "{error}");
    assert!(error.contains("rdma link delete hgrxe0"), "{error}");
    scene.undo();
    let found = devices.find(&foreign.name).unwrap().expect("undo leaves it");
    devices.remove(&found).unwrap();
    scene.assert_as_before("after all");
}
