//! A journal's objects are brought to what a plan says: at first, when the plan changes, and when another program has
//! changed them. The way back leads to what was there before all of that.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::path::Path;

use linux::{FdbEntry, Link, LinkKind, Mac, Neighbour, Route, Vxlan};
use plan::{
    ApplyError, Entry, Fault, Journal, Kernel, Plan, Reconciled, SetLinkUp, Step, Survey, Undone, reconcile,
};
use testkit::{require_root, shell};

use crate::sample::{ifname, ip, net, sysctl_step};
use crate::scene::Scene;

/// What another node's pods take: IPv4 and IPv6 by a tunnel.
pub(crate) fn peer(remote: &str, mac: u32) -> Vec<Step> {
    let (dev, mac) = (ifname("hgvx.1"), Mac::from_id(4, mac));
    let known = |address| Neighbour { dev: dev.clone(), ip: ip(address), mac: Some(mac) };
    let route = |dst, via| Route { onlink: true, ..Route::via(net(dst), ip(via), dev.clone()) };
    vec![
        Step::ReplaceNeighbour(known("10.244.2.0")),
        Step::ReplaceNeighbour(known("fe80::2")),
        Step::ReplaceFdb(FdbEntry { dev: dev.clone(), mac, dst: ip(remote) }),
        Step::ReplaceRoute(route("10.244.2.0/24", "10.244.2.0")),
        Step::ReplaceRoute(route("fd00:2::/64", "fe80::2")),
    ]
}

pub(crate) fn tunnel(vni: u32) -> Vec<Step> {
    tunnel_of_mtu(vni, 1350)
}

pub(crate) fn tunnel_of_mtu(vni: u32, mtu: u32) -> Vec<Step> {
    let kind = LinkKind::Vxlan(Vxlan {
        vni,
        parent: ifname("own0"),
        local: ip("192.0.2.1"),
        port: 8472,
        learning: false,
    });
    let mac = Some(Mac::from_id(4, 1));
    vec![
        Step::AddLink(Link { name: ifname("hgvx.1"), kind, mtu: Some(mtu), mac }),
        sysctl_step("net/ipv6/conf/hgvx.1/accept_dad", "0"),
        SetLinkUp { link: ifname("hgvx.1") }.into(),
        Step::AddAddress { link: ifname("hgvx.1"), address: net("10.244.1.0/32") },
    ]
}

/// What another program has of the same places.
pub(crate) const FOREIGN: &str = "
ip -n HOME route add 10.244.2.0/24 proto 77 metric 0 nexthop via 192.0.2.2 weight 3 nexthop via 192.0.2.9
ip -n HOME -6 route add fd00:2::/64 via 2001:db8::2 proto 78 initcwnd 12 mtu 1280";

/// Reconciles as a process would that begins with the journal at this path.
pub(crate) fn reconciled(path: &Path, plan: &Plan, fault: Fault) -> Result<Reconciled, ApplyError> {
    let mut journal = match path.exists() {
        true => Journal::open(path).unwrap(),
        false => Journal::create(path).unwrap(),
    };
    let mut kernel = Kernel::new().unwrap();
    let survey = Survey::of([plan], &mut kernel).unwrap();
    kernel.inject(fault);
    reconcile(plan, &mut journal, &mut kernel, &survey)
}

/// Brings it to the plan, and checks that another call finds nothing to do.
#[track_caller]
pub(crate) fn brought_to(path: &Path, plan: &Plan) -> Reconciled {
    let done = reconciled(path, plan, Fault::None).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(reconciled(path, plan, Fault::None).unwrap(), Reconciled::default());
    done
}

impl Scene {
    pub(crate) fn at(&self, command: &str) -> String {
        shell(&command.replace("HOME", self.sample.home.as_str()))
    }

    pub(crate) fn plan_of(&self, steps: impl IntoIterator<Item = Step>) -> Plan {
        let mut plan = Plan::new();
        for step in steps {
            plan.push(&self.sample.home(), step);
        }
        plan
    }

    fn reconciled(&self, plan: &Plan, fault: Fault) -> Result<Reconciled, ApplyError> {
        reconciled(&self.path(), plan, fault)
    }

    #[track_caller]
    fn reconcile(&self, plan: &Plan) -> Reconciled {
        brought_to(&self.path(), plan)
    }
}

#[test]
fn what_is_there_gives_way_and_is_put_back_as_it_was() {
    if !require_root() {
        return;
    }
    let scene = Scene::with(FOREIGN);
    let on_wire = |dst, via| Step::ReplaceRoute(Route::via(net(dst), ip(via), ifname("own0")));
    let own = FdbEntry { dev: ifname("hgvx.1"), mac: Mac::from_id(4, 9), dst: ip("192.0.2.8") };
    let known = |mac| Neighbour { dev: ifname("own0"), ip: ip("192.0.2.9"), mac: Some(Mac::from_id(9, mac)) };
    let steps = [
        on_wire("10.244.2.0/24", "192.0.2.2"),
        on_wire("fd00:2::/64", "2001:db8::7"),
        on_wire("10.244.9.0/24", "192.0.2.7"),
        Step::ReplaceNeighbour(known(1)),
        Step::AddFdb(own.clone()),
        Step::ReplaceFdb(FdbEntry { dst: ip("192.0.2.7"), ..own }),
    ];
    let plan = scene.plan_of(tunnel(1).into_iter().chain(steps));
    scene.apply(&plan, Fault::None).unwrap();
    let routes = scene.at("ip -n HOME route; ip -n HOME -6 route; bridge -n HOME fdb show dev hgvx.1");
    for line in ["10.244.2.0/24 via 192.0.2.2 dev own0", "fd00:2::/64 via 2001:db8::7", "dst 192.0.2.7"] {
        assert!(routes.contains(line), "{routes}");
    }
    assert!(!routes.contains("nexthop") && !routes.contains("192.0.2.8"), "{routes}");
    scene.undo();
    scene.assert_as_before("after undo");
    for line in 2..=1 + 2 * plan.steps.len() {
        scene.apply(&plan, Fault::DeadAfterLine(line)).unwrap_err();
        scene.undo();
        scene.assert_as_before_quick(&format!("dead after line {line}"));
    }
}

#[test]
fn what_cannot_be_put_back_is_refused() {
    if !require_root() {
        return;
    }
    let scene = Scene::with("ip -n HOME -6 route add fd00:3::/64 via 2001:db8::2 expires 3600");
    for (dst, via, why) in [
        ("192.0.2.0/24", "192.0.2.2", "the kernel made it for an address"),
        ("fd00:3::/64", "2001:db8::9", "it would lose its time of expiry"),
    ] {
        let route = Step::ReplaceRoute(Route::via(net(dst), ip(via), ifname("own0")));
        let refused = scene.apply(&scene.plan_of([route]), Fault::None).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn what_a_stranger_deletes_or_changes_is_back() {
    if !require_root() {
        return;
    }
    let scene = Scene::with(FOREIGN);
    let plan = scene.plan_of(tunnel(1).into_iter().chain(peer("192.0.2.2", 2)));
    let made = scene.reconcile(&plan).made.len();
    assert_eq!(made, plan.steps.len());
    let mac = Mac::from_id(4, 2);
    for (harm, says) in [
        ("ip -n HOME route del 10.244.2.0/24", "the route to 10.244.2.0/24 is gone"),
        ("ip -n HOME route replace 10.244.2.0/24 via 192.0.2.2", "by 192.0.2.2"),
        ("ip -n HOME -6 route del fd00:2::/64", "the route to fd00:2::/64 is gone"),
        ("ip -n HOME -6 route replace fd00:2::/64 via 2001:db8::2", "by 2001:db8::2"),
        ("ip -n HOME neighbour del 10.244.2.0 dev hgvx.1", "neighbour 10.244.2.0 of link hgvx.1 is gone"),
        (
            "ip -n HOME neighbour replace fe80::2 lladdr 02:00:00:00:00:77 dev hgvx.1",
            "with 02:00:00:00:00:77",
        ),
        ("bridge -n HOME fdb del MAC dev hgvx.1", "is gone"),
        ("bridge -n HOME fdb replace MAC dev hgvx.1 dst 192.0.2.77", "to 192.0.2.77"),
        ("ip -n HOME link set hgvx.1 down", "link hgvx.1 is down"),
        ("ip -n HOME address del 10.244.1.0/32 dev hgvx.1", "address 10.244.1.0/32 of link hgvx.1 is gone"),
        ("ip -n HOME link del hgvx.1", "link hgvx.1 is gone"),
        ("ip -n HOME link set hgvx.1 mtu 1280", "MTU 1280"),
        ("ip -n HOME link del hgvx.1; ip -n HOME link add hgvx.1 type bridge", ""),
    ] {
        scene.at(&harm.replace("MAC", &mac.to_string()));
        if says.is_empty() {
            // What another program has made by the name of ours is not ours to remove.
            let refused = scene.reconciled(&plan, Fault::None).unwrap_err().to_string();
            assert!(refused.contains("hgvx.1"), "{refused}");
            scene.at("ip -n HOME link del hgvx.1");
            scene.reconcile(&plan);
            continue;
        }
        let repaired = scene.reconcile(&plan).repaired;
        let words: Vec<String> = repaired.iter().map(ToString::to_string).collect();
        assert!(words.iter().any(|words| words.contains(says)), "{harm}: {words:?}");
    }
    scene.undo();
    scene.assert_as_before("after undo");
}

#[test]
fn a_changed_plan_takes_its_places_over_and_leaves_the_rest() {
    if !require_root() {
        return;
    }
    let scene = Scene::with(FOREIGN);
    let with = |vni, peer: Vec<Step>| scene.plan_of(tunnel(vni).into_iter().chain(peer));
    scene.reconcile(&with(1, peer("192.0.2.2", 2)));
    // Another address of the node, another Ethernet address of its tunnel, routes past the tunnel, and a new tunnel.
    assert_eq!(scene.reconcile(&with(1, peer("192.0.2.3", 2))).made.len(), 1);
    let done = scene.reconcile(&with(1, peer("192.0.2.3", 3)));
    assert_eq!((done.made.len(), done.removed.len()), (3, 1), "{done:?}");
    let wire = |dst, via| Step::ReplaceRoute(Route::via(net(dst), ip(via), ifname("own0")));
    let direct = [wire("10.244.2.0/24", "192.0.2.2"), wire("fd00:2::/64", "2001:db8::2")];
    let done = scene.reconcile(&scene.plan_of(direct));
    assert_eq!((done.made.len(), done.removed.len()), (2, 7), "{done:?}");
    assert!(done.removed.iter().all(|(_, undone)| matches!(undone, Undone::Restored | Undone::Gone)));
    scene.reconcile(&with(1, peer("192.0.2.2", 2)));
    let done = scene.reconcile(&with(2, peer("192.0.2.2", 2)));
    assert!(done.made.len() == 1 && done.repaired.len() == plan_len(2) - 1, "{done:?}");
    scene.reconcile(&Plan::new());
    scene.assert_as_before("after a plan of nothing");
}

fn plan_len(vni: u32) -> usize {
    tunnel(vni).len() + peer("192.0.2.2", 2).len()
}

/// No route by a tunnel goes when its MTU changes, by the plan or by a stranger.
#[test]
fn a_tunnel_gets_its_mtu_in_place() {
    if !require_root() {
        return;
    }
    let scene = Scene::with(FOREIGN);
    let of_mtu = |mtu| scene.plan_of(tunnel_of_mtu(1, mtu).into_iter().chain(peer("192.0.2.2", 2)));
    let index = || scene.at("ip -n HOME -o link show hgvx.1").split(':').next().unwrap().to_owned();
    scene.reconcile(&of_mtu(1350));
    let made = index();
    let from = Journal::open(&scene.path()).unwrap().entries().len();
    let done = scene.reconcile(&of_mtu(1300));
    assert_eq!((done.made.len(), done.repaired.len(), done.removed.len()), (1, 0, 0), "{done:?}");
    let to = Journal::open(&scene.path()).unwrap().entries().len();
    scene.at("ip -n HOME link set hgvx.1 mtu 1400");
    let done = scene.reconcile(&of_mtu(1300));
    assert_eq!((done.made.len(), done.repaired.len(), index()), (0, 1, made), "{done:?}");
    scene.undo();
    scene.assert_as_before("after undo");
    for goes_on in [true, false] {
        for line in from + 1..to {
            std::fs::remove_file(scene.path()).unwrap();
            scene.reconcile(&of_mtu(1350));
            let made = index();
            scene.reconciled(&of_mtu(1300), Fault::DeadAfterLine(line)).unwrap_err();
            if goes_on {
                scene.reconcile(&of_mtu(1300));
                assert_eq!(index(), made, "dead after line {line}");
            }
            scene.undo();
            scene.assert_as_before_quick(&format!("dead after line {line}"));
        }
    }
    // The first step of a plan is the one that adapts.
    for fault in [Fault::BeforeStep(0), Fault::AfterStep(0)] {
        for (next, stays) in [(of_mtu(1300), true), (of_mtu(1320), true), (Plan::new(), false)] {
            std::fs::remove_file(scene.path()).unwrap();
            scene.reconcile(&of_mtu(1350));
            let made = index();
            scene.reconciled(&of_mtu(1300), fault).unwrap_err();
            scene.reconcile(&next);
            assert!(!stays || index() == made, "{fault:?}");
            scene.undo();
            scene.assert_as_before_quick(&format!("{fault:?}"));
        }
    }
    // More than the wire carries: the kernel refuses it, again and again, and the tunnel stays as it was.
    std::fs::remove_file(scene.path()).unwrap();
    scene.reconcile(&of_mtu(1350));
    let made = index();
    for _ in 0..3 {
        scene.reconciled(&of_mtu(9000), Fault::None).unwrap_err();
    }
    assert_eq!(index(), made);
    assert_eq!(scene.reconciled(&of_mtu(1350), Fault::None).unwrap(), Reconciled::default());
    scene.undo();
    scene.assert_as_before("after undo");
}

#[test]
fn it_can_be_killed_anywhere() {
    if !require_root() {
        return;
    }
    let scene = Scene::with(FOREIGN);
    let with = |vni, peer: Vec<Step>| scene.plan_of(tunnel(vni).into_iter().chain(peer));
    let (first, second) = (with(1, peer("192.0.2.2", 2)), with(1, peer("192.0.2.3", 3)));
    scene.reconcile(&first);
    let from = Journal::open(&scene.path()).unwrap().entries().len();
    scene.reconcile(&second);
    let to = Journal::open(&scene.path()).unwrap().entries().len();
    assert!(to > from + 6);
    scene.undo();
    for goes_on in [true, false] {
        for line in from + 1..to {
            std::fs::remove_file(scene.path()).unwrap();
            scene.reconcile(&first);
            scene.reconciled(&second, Fault::DeadAfterLine(line)).unwrap_err();
            if goes_on {
                scene.reconcile(&second);
            }
            scene.undo();
            scene.assert_as_before_quick(&format!("dead after line {line}"));
        }
    }
}

#[test]
fn a_journal_forgets_what_is_undone() {
    if !require_root() {
        return;
    }
    let scene = Scene::with(FOREIGN);
    let plan = scene.plan_of(tunnel(1).into_iter().chain(peer("192.0.2.2", 2)));
    for _ in 0..12 {
        scene.reconcile(&plan);
        scene.at("ip -n HOME link del hgvx.1");
    }
    scene.reconcile(&plan);
    let journal = Journal::open(&scene.path()).unwrap();
    let long = journal.entries().len();
    let short = journal.forget_undone().unwrap().entries().len();
    assert!(short == 1 + 2 * plan.steps.len() && long > 5 * short, "{short} of {long}");
    assert_eq!(Journal::open(&scene.path()).unwrap().entries().len(), short);
    assert_eq!(scene.reconciled(&plan, Fault::None).unwrap(), Reconciled::default());
    scene.undo();
    scene.assert_as_before("after undo");
}

/// Dies or fails at each line and at each step of those whose places are free, which are all written
/// down before the first.
#[test]
fn steps_on_free_places_are_noted_at_once() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let first = scene.plan_of(tunnel(1));
    let plan = scene.plan_of(tunnel(1).into_iter().chain(peer("192.0.2.2", 2)));
    let (from, to) = (first.steps.len(), plan.steps.len());
    scene.reconcile(&first);
    let lines = Journal::open(&scene.path()).unwrap().entries().len();
    let dead = (lines + 1..lines + 2 * (to - from)).map(Fault::DeadAfterLine);
    let failed = (from..to).flat_map(|step| [Fault::BeforeStep(step), Fault::AfterStep(step)]);
    scene.undo();
    for fault in dead.chain(failed) {
        for goes_on in [true, false] {
            std::fs::remove_file(scene.path()).unwrap();
            scene.reconcile(&first);
            scene.reconciled(&plan, fault).unwrap_err();
            let journal = Journal::open(&scene.path()).unwrap();
            let mut outcomes = journal.entries()[lines..].iter().skip(to - from);
            assert!(!outcomes.any(|entry| matches!(entry, Entry::Intent(_))), "{fault:?}");
            drop(journal);
            if goes_on {
                scene.reconcile(&plan);
            }
            scene.undo();
            scene.assert_as_before_quick(&format!("{fault:?}"));
        }
    }
}

/// A step that was written down and not begun, because one before it failed, has made nothing.
#[test]
fn what_comes_into_the_place_of_a_step_that_was_not_begun_stays() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let plan = scene.plan_of(tunnel(1).into_iter().chain(peer("192.0.2.2", 2)));
    let of_route = plan.steps.len() - 2;
    let Step::ReplaceRoute(route) = &plan.steps[of_route].step else { panic!("it is the route over IPv4") };
    let Step::ReplaceNeighbour(gateway) = &plan.steps[tunnel(1).len()].step else { panic!("it comes first") };
    scene.reconciled(&plan, Fault::BeforeStep(of_route - 1)).unwrap_err();
    let (gateway, mac) = (gateway.ip, gateway.mac.unwrap());
    assert!(
        scene.at("ip -n HOME neigh show dev hgvx.1").contains(&format!("{gateway} lladdr {mac} PERMANENT"))
    );
    scene.at(&format!("ip -n HOME route add {} dev own0", route.dst));
    scene.undo();
    let routes = scene.at("ip -n HOME route");
    assert!(routes.contains(&format!("{} dev own0", route.dst)), "{routes}");
}

/// Between the list of what there is and the step in its place another program may come.
#[test]
fn a_place_that_is_taken_meanwhile_is_given_back() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let plan = scene.plan_of(tunnel(1).into_iter().chain(peer("192.0.2.2", 2)));
    scene.reconcile(&scene.plan_of(tunnel(1)));
    let mut kernel = Kernel::new().unwrap();
    let survey = Survey::of([&plan], &mut kernel).unwrap();
    scene.at("ip -n HOME route add 10.244.2.0/24 dev own0 proto 77");
    let mut journal = Journal::open(&scene.path()).unwrap();
    let done = reconcile(&plan, &mut journal, &mut kernel, &survey).unwrap();
    assert_eq!(done.made.len(), peer("192.0.2.2", 2).len(), "{done:?}");
    drop(journal);
    assert_eq!(scene.reconcile(&plan), Reconciled::default());
    assert!(scene.at("ip -n HOME route show 10.244.2.0/24").contains("hgvx.1"));
    scene.undo();
    let back = scene.at("ip -n HOME route show 10.244.2.0/24");
    assert!(back.contains("dev own0 proto 77"), "{back}");
}

/// A process that dies has written down steps that it did not begin. What another program has made in their places
/// since is not the step's, and comes back.
#[test]
fn what_comes_into_a_place_after_a_death_is_given_back() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let plan = scene.plan_of(tunnel(1).into_iter().chain(peer("192.0.2.2", 2)));
    scene.reconcile(&scene.plan_of(tunnel(1)));
    let lines = Journal::open(&scene.path()).unwrap().entries().len();
    scene.reconciled(&plan, Fault::DeadAfterLine(lines + peer("192.0.2.2", 2).len())).unwrap_err();
    scene.at("ip -n HOME route add 10.244.2.0/24 dev own0 proto 77");
    scene.reconcile(&plan);
    assert!(scene.at("ip -n HOME route show 10.244.2.0/24").contains("hgvx.1"));
    scene.undo();
    let back = scene.at("ip -n HOME route show 10.244.2.0/24");
    assert!(back.contains("dev own0 proto 77"), "{back}");
}
