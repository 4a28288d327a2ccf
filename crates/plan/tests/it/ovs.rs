//! A private Open vSwitch. Many machines lack it, so it is not part of the sample.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use linux::features::{Feature, probe};
use linux::ovs::{DATAPATH, Switch};
use linux::{Mac, Netlink, Netns};
use plan::switching::{OvsBridge, OvsPort, OvsSwitch, OvsTunnel, OvsTunnelKind};
use plan::{Fault, Kernel, Made, Place, Plan, SetLinkUp, Step, Undone};
use testkit::require_root;

use crate::sample::{ifname, ip, veth};
use crate::scene::Scene;

/// A switch with a bridge that has a link and a tunnel as ports.
fn plan(home: &Place, node: &str) -> Plan {
    let (node, bridge) = (node.to_owned(), ifname("hgbr7"));
    let tunnel = OvsTunnel {
        kind: OvsTunnelKind::Vxlan,
        vni: 7,
        port: 4789,
        local: ip("192.0.2.1"),
        remote: ip("192.0.2.2"),
    };
    let port = |name: &str, tunnel| {
        let (node, bridge) = (node.clone(), bridge.clone());
        Step::AddOvsPort(OvsPort { node, bridge, name: ifname(name), tunnel })
    };
    let mut plan = Plan::new();
    plan.push(home, Step::StartOvs(OvsSwitch { node: node.clone() }));
    let (name, mac) = (bridge.clone(), Mac::from_id(1, 7));
    plan.push(home, Step::AddOvsBridge(OvsBridge { node: node.clone(), name, mac, mtu: 1400 }));
    plan.push(home, SetLinkUp { link: bridge.clone() });
    plan.push(home, veth("hgp7", "hgq7", None));
    plan.push(home, port("hgp7", None));
    plan.push(home, port("hgtn7", Some(tunnel)));
    plan
}

/// Whether this machine lacks Open vSwitch. If so, the skip is recorded.
fn is_missing() -> bool {
    let why = probe().expect("a namespace can be made").missing.remove(&Feature::OpenVSwitch);
    if let Some(why) = &why {
        testkit::skip(&format!("no Open vSwitch: {why}"));
    }
    why.is_some()
}

/// The name of a scene's switch, which is in no other test.
fn node(scene: &Scene) -> String {
    scene.world.name("home").to_string()
}

/// Kills a daemon of the scene's switch, as it would end by a fault of its own.
fn kill(scene: &Scene, daemon: &str) {
    let file = Switch::named(&node(scene)).dir().join(format!("{daemon}.pid"));
    testkit::shell(&format!("kill -9 $(cat {})", file.display()));
}

/// The links of a namespace that have to do with a switch.
fn links(netns: &Netns) -> Vec<String> {
    let names =
        Netlink::open_in(netns).unwrap().links().unwrap().into_iter().map(|link| link.name.to_string());
    names.filter(|name| name == DATAPATH || name.starts_with("hg") || name.contains("_sys_")).collect()
}

#[test]
fn commands_keep_to_a_database_of_their_own() {
    let commands = plan(&Place::Host, "n1-1").commands();
    let database = "--db=unix:/run/hostgap-ovs/n1-1/db.sock";
    let expected = [
        format!("ovs-vsctl {database} add-port hgbr7 hgp7"),
        format!(
            "ovs-vsctl {database} add-port hgbr7 hgtn7 -- set interface hgtn7 type=vxlan options:dst_port='\"4789\"' \
             options:key='\"7\"' options:local_ip='\"192.0.2.1\"' options:remote_ip='\"192.0.2.2\"' -- set port hgtn7 \
             protected=true"
        ),
    ];
    assert_eq!(commands[commands.len() - 2..], expected);
    assert!(
        commands
            .iter()
            .filter(|line| line.starts_with("ovs"))
            .all(|line| line.contains("/run/hostgap-ovs/n1-1"))
    );
}

/// What the typed commands make is what `apply` takes for its own.
#[test]
fn typed_commands_and_apply_do_the_same() {
    if !require_root() || is_missing() {
        return;
    }
    let scene = Scene::new();
    let plan = plan(&scene.sample.home(), &node(&scene));
    testkit::shell(&plan.commands().join("\n"));
    let (made, changes) = Made::of(&plan, &mut Kernel::new().unwrap()).unwrap();
    assert!(changes.is_empty(), "{changes:?}");
    assert_eq!(made.changed(&mut Kernel::new().unwrap()).unwrap(), None);
    let error = scene.apply(&plan, Fault::None).unwrap_err().to_string();
    assert!(error.contains("/run/hostgap-ovs/"), "{error}");
}

#[test]
fn a_namespace_with_a_switch_is_left_alone() {
    if !require_root() || is_missing() {
        return;
    }
    let scene = Scene::new();
    // As a distribution starts one, under another directory.
    let dir = scene.directory.path().display().to_string();
    let home = scene.world.open("home");
    let foreign = plan(&scene.sample.home(), &node(&scene)).commands().join("\n");
    testkit::shell(&foreign.replace(&format!("/run/hostgap-ovs/{}", node(&scene)), &dir));
    let before = links(&home);
    assert!(before.iter().any(|name| name == DATAPATH), "{before:?}");
    let error = scene.apply(&plan(&scene.sample.home(), &node(&scene)), Fault::None).unwrap_err().to_string();
    assert!(error.contains("the link ovs-system is there already"), "{error}");
    let (results, _) = scene.undo();
    assert!(results.is_empty(), "{results:?}");
    assert_eq!(links(&home), before);
    let shown = testkit::shell(&format!("ovs-vsctl --timeout=10 --db=unix:{dir}/db.sock list-ports hgbr7"));
    assert_eq!(shown, "hgp7\nhgtn7\n", "it serves");
}

/// Whichever daemon ends, it is noticed, and undo leaves nothing in the kernel.
#[test]
fn a_dead_daemon_is_noticed_and_leaves_nothing() {
    if !require_root() || is_missing() {
        return;
    }
    for daemon in ["ovs-vswitchd", "ovsdb-server"] {
        let scene = Scene::new();
        let plan = plan(&scene.sample.home(), &node(&scene));
        scene.apply(&plan, Fault::None).unwrap();
        let mut kernel = Kernel::new().unwrap();
        let (made, changes) = Made::of(&plan, &mut kernel).unwrap();
        assert!(changes.is_empty(), "{changes:?}");
        assert_eq!(made.changed(&mut kernel).unwrap(), None);
        kill(&scene, daemon);
        let what = loop {
            if let Some(drift) = made.changed(&mut kernel).unwrap() {
                break drift.what;
            }
        };
        assert_eq!(what, format!("a daemon of the Open vSwitch of {} has ended", node(&scene)));
        // The kernel's part goes on by itself.
        assert!(links(&scene.world.open("home")).contains(&DATAPATH.to_owned()));
        drop((made, kernel));
        let (results, journal) = scene.undo();
        assert!(journal.is_undone(), "{results:?}");
        assert!(results.iter().all(|(_, undone)| *undone == Undone::Restored), "{results:?}");
        assert!(!Switch::named(&node(&scene)).exists());
        scene.assert_as_before(&format!("after undo without {daemon}"));
    }
}

/// A process that was killed while it started the daemons has not written down that it did.
#[test]
fn undo_finds_daemons_of_which_the_journal_does_not_know() {
    if !require_root() || is_missing() {
        return;
    }
    let scene = Scene::new();
    let plan = plan(&scene.sample.home(), &node(&scene));
    assert!(scene.apply(&plan, Fault::AfterStep(0)).is_err());
    assert!(Switch::named(&node(&scene)).is_alive());
    let (results, _) = scene.undo();
    assert!(results.iter().all(|(_, undone)| *undone == Undone::Restored), "{results:?}");
    assert!(!Switch::named(&node(&scene)).exists());
    scene.assert_as_before("after undo");
}
