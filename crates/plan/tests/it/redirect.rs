//! What arrives at a link is led through an ifb. Some kernels lack what that needs, so it is not part of the sample.

use linux::qdisc::Tbf;
use linux::{Link, LinkKind, Mac, NetnsName, Qdisc};
use plan::{Fault, Kernel, Place, Plan, SetLinkUp, SetRootQdisc, Step, StepState, Undone, look, preview};
use testkit::{World, dump, has_redirects, run, shell};

use crate::reconcile::reconciled;
use crate::sample::{Sample, ifname};
use crate::scene::Scene;

fn redirect() -> Step {
    Step::AddRedirect { from: ifname("free0"), to: ifname("hgi0") }
}

/// A link that was there before, and what it receives held back by an ifb's token bucket.
fn plan(home: &Place) -> Plan {
    let mut plan = Plan::new();
    let mac = Some(Mac::from_id(5, 1));
    let ifb = Link { name: ifname("hgi0"), kind: LinkKind::Ifb, mtu: Some(1400), mac };
    plan.push(home, Step::AddLink(ifb));
    let inner = Qdisc::Pfifo { limit: 78 };
    let bucket = Tbf { rate_bytes_per_s: 5_000_000, burst_bytes: 3028, inner };
    plan.push(home, SetRootQdisc { link: ifname("hgi0"), qdisc: Qdisc::Tbf(Box::new(bucket)) });
    plan.push(home, SetLinkUp { link: ifname("hgi0") });
    plan.push(home, redirect());
    plan
}

#[test]
fn commands_are_those_of_tc() {
    let commands = plan(&Place::Netns(NetnsName::new("hgt-x").unwrap())).commands();
    assert_eq!(commands[0], "ip -n hgt-x link add name hgi0 mtu 1400 address 02:05:00:00:00:01 type ifb");
    let filter =
        "filter add dev free0 ingress protocol all prio 1 u32 match u32 0 0 action mirred egress redirect";
    assert_eq!(
        commands[3],
        format!("tc -n hgt-x qdisc add dev free0 ingress && tc -n hgt-x {filter} dev hgi0")
    );
}

#[test]
fn what_is_typed_is_the_same() {
    if !has_redirects() {
        return;
    }
    let (typed, applied) = (World::new(), Scene::new());
    let by_hand = Sample::of(&typed);
    by_hand.furnish();
    shell(&plan(&by_hand.home()).commands().join("\n"));
    applied.apply(&plan(&applied.sample.home()), Fault::None).unwrap();
    let dumps = [&typed, &applied.world].map(|world| dump(&world.open("home")));
    dumps[0].assert_same(&dumps[1], "typed and applied");
}

#[test]
fn undo_takes_all_of_it_wherever_apply_stopped() {
    if !has_redirects() {
        return;
    }
    let scene = Scene::new();
    let plan = plan(&scene.sample.home());
    let lines = scene.assert_undo_takes_all(&plan);

    // Between the qdisc and its filter, when the journal has only what was to be done.
    scene.apply(&plan, Fault::DeadAfterLine(lines - 1)).unwrap_err();
    shell(&format!("tc -n {} qdisc add dev free0 ingress", scene.sample.home));
    let (results, journal) = scene.undo();
    assert!(journal.is_undone(), "{results:?}");
    scene.assert_as_before("after a power failure between qdisc and filter");
}

/// What of it somebody takes away or changes is named, and nothing of others is taken.
#[test]
fn a_change_by_another_is_seen_and_left_alone() {
    if !has_redirects() {
        return;
    }
    let scene = Scene::new();
    let (home, plan) = (scene.world.open("home"), plan(&scene.sample.home()));
    let placed = plan.steps.last().unwrap();
    let state = || look(placed, &mut Kernel::new().unwrap()).unwrap();
    let otherwise = |found: &str| StepState::Otherwise { found: found.to_owned() };
    let tc = |line: &str| run(&home, "tc", &line.split(' ').collect::<Vec<_>>());
    assert_eq!(state(), StepState::Absent);
    let new = preview(placed, &mut Kernel::new().unwrap()).unwrap().unwrap();
    assert_eq!((new.old.as_str(), new.is_so), ("none", false));
    scene.apply(&plan, Fault::None).unwrap();
    assert_eq!(state(), StepState::So);
    assert!(reconciled(&scene.path(), &plan, Fault::None).unwrap().is_nothing());

    tc("filter del dev free0 ingress");
    assert_eq!(state(), otherwise("an ingress qdisc without a filter"));
    tc("filter add dev free0 ingress protocol ip prio 1 u32 match u32 0 0 flowid 1:1");
    assert_eq!(state(), otherwise("an ingress qdisc with a filter of kind u32"));
    let (results, _) = scene.undo();
    let others = Undone::ChangedByOther { found: "an ingress qdisc with a filter of kind u32".to_owned() };
    assert_eq!(results[0].1, others);

    let refused = scene.apply(&plan, Fault::None).unwrap_err().to_string();
    assert!(refused.contains("an ingress qdisc with a filter of kind u32 is there already"), "{refused}");
    let remedy = format!("tc -n {} qdisc del dev free0 ingress", scene.sample.home);
    assert!(refused.contains(&remedy), "{refused}");
    scene.undo();
    shell(&remedy);
    scene.assert_as_before("after all");

    scene.apply(&plan, Fault::None).unwrap();
    tc("qdisc del dev free0 ingress");
    assert_eq!(state(), StepState::Absent);
    scene.undo();
    scene.apply(&plan, Fault::None).unwrap();
    run(&home, "ip", &["link", "del", "hgi0"]);
    assert_eq!(
        state(),
        otherwise("an ingress qdisc that drops everything, since the link that got it is gone")
    );
}
