//! A private Open vSwitch. Many machines lack it, so it is not part of the sample.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use linux::features::{Feature, probe};
use linux::ovs::{DATAPATH, Switch, USER_DATAPATH};
use linux::{Mac, Netlink, Netns};
use plan::switching::{OvsBridge, OvsDatapathType, OvsDpdk, OvsPort, OvsSwitch, OvsTunnel, OvsTunnelKind};
use plan::{Fault, Kernel, Made, Place, Plan, SetLinkUp, Step, Undone};
use testkit::require_root;

use crate::sample::{ifname, ip, veth};
use crate::scene::Scene;

/// A switch with a bridge that has a link as a port, and a tunnel where the kernel forwards.
fn plan(home: &Place, node: &str, datapath: OvsDatapathType) -> Plan {
    let (node, bridge) = (node.to_owned(), ifname("hgbr7"));
    let tunnel = OvsTunnel {
        kind: OvsTunnelKind::Vxlan,
        vni: 7,
        port: 4789,
        local: ip("192.0.2.1"),
        remote: ip("192.0.2.2"),
    };
    let port = |name: &str, tunnel, vhost_user| {
        let (node, bridge) = (node.clone(), bridge.clone());
        Step::AddOvsPort(OvsPort { node, bridge, name: ifname(name), datapath, tunnel, vhost_user })
    };
    let mut plan = Plan::new();
    let dpdk = (datapath == OvsDatapathType::Dpdk).then(OvsDpdk::default);
    plan.push(home, Step::StartOvs(OvsSwitch { node: node.clone(), dpdk }));
    let (name, mac) = (bridge.clone(), Mac::from_id(1, 7));
    plan.push(home, Step::AddOvsBridge(OvsBridge { node: node.clone(), name, mac, mtu: 1400, datapath }));
    plan.push(home, SetLinkUp { link: bridge.clone() });
    plan.push(home, veth("hgp7", "hgq7", None));
    plan.push(home, port("hgp7", None, false));
    if datapath == OvsDatapathType::System {
        plan.push(home, port("hgtn7", Some(tunnel), false));
    }
    if datapath == OvsDatapathType::Dpdk {
        plan.push(home, port("hgv7", None, true));
    }
    plan
}

/// Whether this machine lacks an Open vSwitch of the kind. If so, the skip is recorded.
fn is_missing(datapath: OvsDatapathType) -> bool {
    let needs: &[Feature] = match datapath {
        OvsDatapathType::System => &[Feature::OpenVSwitch],
        OvsDatapathType::Netdev => &[Feature::AfXdp, Feature::OpenVSwitchAfXdp],
        OvsDatapathType::Dpdk => &[Feature::AfXdp, Feature::OpenVSwitchAfXdp, Feature::OpenVSwitchDpdk],
    };
    let unmet = probe().expect("a namespace can be made").unmet(needs);
    if let Some(unmet) = unmet.first() {
        testkit::skip(&unmet.to_string());
    }
    !unmet.is_empty()
}

/// Defines a test for each kind of datapath.
macro_rules! for_each_datapath {
    ($check:ident: $kernel:ident, $user_space:ident, $dpdk:ident) => {
        #[test]
        fn $kernel() {
            if require_root() && !is_missing(OvsDatapathType::System) {
                $check(OvsDatapathType::System);
            }
        }

        #[test]
        fn $user_space() {
            if require_root() && !is_missing(OvsDatapathType::Netdev) {
                $check(OvsDatapathType::Netdev);
            }
        }

        #[test]
        fn $dpdk() {
            if require_root() && !is_missing(OvsDatapathType::Dpdk) {
                $check(OvsDatapathType::Dpdk);
            }
        }
    };
}

/// The name of a scene's switch, which is in no other test.
fn node(scene: &Scene) -> String {
    scene.world.name("home").to_string()
}

/// Kills a daemon of the scene's switch, as it would end by a fault of its own.
fn kill(scene: &Scene, daemon: &str) {
    signal(scene, daemon, "KILL");
}

fn signal(scene: &Scene, daemon: &str, signal: &str) {
    let file = Switch::named(&node(scene)).dir().join(format!("{daemon}.pid"));
    testkit::shell(&format!("kill -{signal} $(cat {})", file.display()));
}

/// The links of a namespace that have to do with a switch.
fn links(netns: &Netns) -> Vec<String> {
    let names =
        Netlink::open_in(netns).unwrap().links().unwrap().into_iter().map(|link| link.name.to_string());
    names
        .filter(|name| {
            [DATAPATH, USER_DATAPATH].contains(&&**name) || name.starts_with("hg") || name.contains("_sys_")
        })
        .collect()
}

#[test]
fn a_datapath_in_user_space_and_its_ports_are_named() {
    let commands = plan(&Place::Host, "n1-1", OvsDatapathType::Netdev).commands();
    let typed = |of: &str| commands.iter().find(|command| command.contains(of)).unwrap();
    assert!(typed("add-br").contains("datapath_type=netdev"), "{commands:?}");
    let database = "--db=unix:/run/hostgap-ovs/n1-1/db.sock";
    let port = "add-port hgbr7 hgp7 -- set interface hgp7 type=afxdp-nonpmd options:xdp-mode='\"native\"'";
    assert_eq!(*typed("add-port"), format!("ovs-vsctl {database} {port}"));
}

#[test]
fn commands_keep_to_a_database_of_their_own() {
    let commands = plan(&Place::Host, "n1-1", OvsDatapathType::System).commands();
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

for_each_datapath!(typed_and_applied: typed_commands_and_apply_do_the_same, typed_commands_and_apply_do_the_same_in_user_space,
    typed_commands_and_apply_do_the_same_with_dpdk);

/// What the typed commands make is what `apply` takes for its own.
fn typed_and_applied(datapath: OvsDatapathType) {
    let scene = Scene::new();
    let plan = plan(&scene.sample.home(), &node(&scene), datapath);
    testkit::shell(&plan.commands().join("\n"));
    let (made, changes) = Made::of(&plan, &mut Kernel::new().unwrap()).unwrap();
    assert!(changes.is_empty(), "{changes:?}");
    assert_eq!(made.changed(&mut Kernel::new().unwrap()).unwrap(), None);
    let error = scene.apply(&plan, Fault::None).unwrap_err().to_string();
    assert!(error.contains("/run/hostgap-ovs/"), "{error}");
}

for_each_datapath!(left_alone: a_namespace_with_a_switch_is_left_alone, a_namespace_with_a_switch_in_user_space_is_left_alone,
    a_namespace_with_a_switch_with_dpdk_is_left_alone);

fn left_alone(datapath: OvsDatapathType) {
    let scene = Scene::new();
    // As a distribution starts one, under another directory.
    let dir = scene.directory.path().display().to_string();
    let home = scene.world.open("home");
    let wanted = plan(&scene.sample.home(), &node(&scene), datapath);
    let foreign = wanted.commands().join("\n");
    testkit::shell(&foreign.replace(&format!("/run/hostgap-ovs/{}", node(&scene)), &dir));
    let before = links(&home);
    let link = link_of(datapath);
    assert!(before.iter().any(|name| name == link), "{before:?}");
    let error = scene.apply(&wanted, Fault::None).unwrap_err().to_string();
    assert!(error.contains(&format!("the link {link} is there already")), "{error}");
    let (results, _) = scene.undo();
    assert!(results.is_empty(), "{results:?}");
    assert_eq!(links(&home), before);
    let shown = testkit::shell(&format!("ovs-vsctl --timeout=10 --db=unix:{dir}/db.sock list-ports hgbr7"));
    assert!(shown.starts_with("hgp7\n"), "it serves: {shown}");
}

for_each_datapath!(dead_daemon: a_dead_daemon_is_noticed_and_leaves_nothing, a_dead_daemon_that_forwarded_leaves_nothing,
    a_dead_daemon_with_dpdk_leaves_nothing);

/// Whichever daemon ends, it is noticed, and undo leaves nothing in the kernel.
fn dead_daemon(datapath: OvsDatapathType) {
    for daemon in ["ovs-vswitchd", "ovsdb-server"] {
        let scene = Scene::new();
        let plan = plan(&scene.sample.home(), &node(&scene), datapath);
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
        // The kernel's part stays by itself.
        assert!(links(&scene.world.open("home")).contains(&link_of(datapath).to_owned()));
        drop((made, kernel));
        let (results, journal) = scene.undo();
        assert!(journal.is_undone(), "{results:?}");
        assert!(results.iter().all(|(_, undone)| *undone == Undone::Restored), "{results:?}");
        assert!(!Switch::named(&node(&scene)).exists());
        scene.assert_as_before(&format!("after undo without {daemon}"));
    }
}

/// The link that stands for a datapath.
fn link_of(datapath: OvsDatapathType) -> &'static str {
    match datapath {
        OvsDatapathType::System => DATAPATH,
        OvsDatapathType::Netdev | OvsDatapathType::Dpdk => USER_DATAPATH,
    }
}

#[test]
fn changes_of_several_programs_at_a_time_are_all_waited_for() {
    if !require_root() || is_missing(OvsDatapathType::System) {
        return;
    }
    let scene = Scene::new();
    scene.apply(&plan(&scene.sample.home(), &node(&scene), OvsDatapathType::System), Fault::None).unwrap();
    let switch = Switch::named(&node(&scene));
    // Both are in the database before the daemon looks, which then has the number of the later one.
    signal(&scene, "ovs-vswitchd", "STOP");
    let (bridge, ports) = (ifname("hgbr7"), ["hgp7", "hgtn7"].map(ifname));
    let removed = std::thread::scope(|scope| {
        let removals = ports.each_ref().map(|port| {
            scope.spawn(|| {
                switch.database().unwrap().remove_port(&bridge, port).map_err(|error| error.to_string())
            })
        });
        let mut database = switch.database().unwrap();
        while ports.iter().any(|port| database.interface(port).unwrap().is_some()) {
            std::thread::yield_now();
        }
        signal(&scene, "ovs-vswitchd", "CONT");
        removals.map(|removal| removal.join().unwrap())
    });
    assert_eq!(removed, [Ok(()), Ok(())]);
}

for_each_datapath!(unknown_daemons: undo_finds_daemons_of_which_the_journal_does_not_know, undo_finds_daemons_that_forward,
    undo_finds_daemons_with_dpdk);

/// A process that was killed while it started the daemons has not written down that it did.
fn unknown_daemons(datapath: OvsDatapathType) {
    let scene = Scene::new();
    let plan = plan(&scene.sample.home(), &node(&scene), datapath);
    assert!(scene.apply(&plan, Fault::AfterStep(0)).is_err());
    assert!(Switch::named(&node(&scene)).is_alive());
    let (results, _) = scene.undo();
    assert!(results.iter().all(|(_, undone)| *undone == Undone::Restored), "{results:?}");
    assert!(!Switch::named(&node(&scene)).exists());
    scene.assert_as_before("after undo");
}
