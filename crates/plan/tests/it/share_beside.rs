//! Steps that units share, and other programs that use or change the same.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use linux::sysctl::Key;
use plan::{Kernel, SetSysctl, Undone, Unit};

use crate::share::Scene;

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
