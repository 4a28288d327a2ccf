//! Steps that units share, and other programs that use or change the same.

use linux::sysctl::Key;
use linux::{IfName, Link, LinkKind};
use plan::{Kernel, SetSysctl, Step, Survey, Undone, Unit};

use crate::share::{Scene, parameter};

/// Its units have lost their journals, and a new one wants a bridge of another MTU.
#[test]
fn what_the_gone_shared_is_not_taken_from_ports_of_another_program() {
    let Some(scene) = Scene::new() else { return };
    let bridge = |mtu| {
        let name = IfName::new("br0").unwrap();
        Step::EnsureLink(Link { name, kind: LinkKind::Bridge, mtu: Some(mtu), mac: None })
    };
    let first = scene.unit("first");
    scene.apply(&first, bridge(1500)).unwrap();
    let in_home = |command: &str| testkit::shell(&format!("ip netns exec {} ip link {command}", scene.name));
    let _ = in_home("add other0 master br0 type veth peer name other1");
    first.discard().unwrap();
    let second = scene.unit("second");
    let refused = scene.apply(&second, bridge(1400)).unwrap_err().to_string();
    assert!(refused.contains("link br0 has ports of another program: other0"), "{refused}");
    assert!(in_home("show master br0").contains("other0"));
    second.discard().unwrap();
    let _ = in_home("del other0");
    let third = scene.unit("third");
    scene.apply(&third, bridge(1400)).unwrap();
    scene.take_back(third, &Undone::Restored);
    scene.assert_unclaimed();
}

/// The kernel forgets what a router has announced when a node begins to forward, unless its link takes announcements
/// also then.
#[test]
fn forwarding_is_refused_where_an_announced_route_would_go() {
    let Some(scene) = Scene::new() else { return };
    let in_home = |command: &str| {
        let _ = testkit::shell(&format!("ip netns exec {} {command}", scene.name));
    };
    in_home("ip link add eth0 type veth peer name eth1");
    in_home("ip link set eth0 up");
    in_home("ip -6 route add default via fe80::9 dev eth0 onlink proto ra");
    let key = Key::new("net/ipv6/conf/all/forwarding").unwrap();
    let plan = scene.shared(SetSysctl { key, value: "1".to_owned() });
    let apply = |unit: &Unit, kernel: Kernel| {
        plan::apply(&plan, &mut unit.journal("a").unwrap(), &mut { kernel }).map(drop)
    };
    let keeping = || scene.kernel().keeping_announced_routes();
    let why = "the kernel would forget the route to ::/0 that a router has announced on eth0; \
               run `sysctl -w net.ipv6.conf.eth0.accept_ra=2` first";
    let first = scene.unit("first");
    let refused = apply(&first, keeping()).unwrap_err().to_string();
    assert!(refused.contains(why), "{refused}");
    first.discard().unwrap();
    // A race between machines may, and another program may turn it off meanwhile.
    let race = scene.unit("race");
    apply(&race, scene.kernel()).unwrap();
    in_home("sysctl -qw net.ipv6.conf.all.forwarding=0");
    let second = scene.unit("second");
    let refused = apply(&second, keeping()).unwrap_err().to_string();
    assert!(refused.contains(why), "{refused}");
    second.discard().unwrap();
    scene.take_back(race, &Undone::AlreadySo);
    // As programs have it that take announcements themselves, and as the remedy has it.
    for accepts in ["0", "2"] {
        in_home(&format!("sysctl -qw net.ipv6.conf.eth0.accept_ra={accepts}"));
        let unit = scene.unit("third");
        apply(&unit, keeping()).unwrap();
        scene.take_back(unit, &Undone::Restored);
    }
    scene.assert_unclaimed();
}

/// A daemon writes it again and again. The units that share it know the steps of a journal by their numbers, so that
/// none of its lines goes.
#[test]
fn a_shared_parameter_is_set_again_without_a_line() {
    let Some(scene) = Scene::new() else { return };
    let was = scene.value();
    let wanted = if was == "1" { "2" } else { "1" };
    let unit = scene.unit("first");
    let (plan, mut kernel) = (scene.shared(parameter(wanted)), scene.kernel());
    let mut journal = unit.journal("a").unwrap();
    plan::apply(&plan, &mut journal, &mut kernel).unwrap();
    let lines = journal.entries().len();
    for _ in 0..3 {
        let _ =
            testkit::shell(&format!("ip netns exec {} sysctl -qw net.ipv4.conf.all.rp_filter=0", scene.name));
        let survey = Survey::of([&plan], &mut kernel).unwrap();
        let done = plan::reconcile(&plan, &mut journal, &mut kernel, &survey).unwrap();
        assert_eq!((done.repaired.len(), scene.value().as_str()), (1, wanted));
    }
    assert_eq!(journal.entries().len(), lines);
    drop(journal);
    scene.take_back(unit, &Undone::Restored);
    assert_eq!(scene.value(), was);
    scene.assert_unclaimed();
}
