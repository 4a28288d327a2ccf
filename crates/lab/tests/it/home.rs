//! Owners that live, that died, and that left a topology standing.

use std::cell::Cell;
use std::time::{Duration, Instant};

use lab::{Home, Topology};
use linux::features::{self, Feature};
use linux::{Netns, NetnsName, netns, ovs, user_net};
use plan::switching::OvsSwitch;
use plan::{Journal, Kernel, Place, Placed, Plan, Step, UnitState};

use crate::standing::shape;

/// Waits for the owner's lock. A child that another test just forked holds it until it executes its program.
fn await_death(home: &Home) {
    let start = Instant::now();
    while home.remains().unwrap()[0].state != UnitState::Dead {
        assert!(start.elapsed() < Duration::from_secs(10), "the owner has not died");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_living_owner_is_left_alone_and_a_dead_one_is_cleaned() {
    let root = tempfile::tempdir().unwrap();
    let home = Home::at(root.path());
    let claim = home.claim().unwrap();
    let id = claim.id().to_owned();
    let inside = NetnsName::new(format!("hg-{id}-a")).unwrap();
    let mut plan = Plan::new();
    plan.push(&Place::Netns(inside.clone()), Step::AddNetns);
    let mut journal = Journal::create(&claim.dir().join("a.journal")).unwrap();
    plan::apply(&plan, &mut journal, &mut Kernel::new().unwrap()).unwrap();

    assert_eq!(home.remains().unwrap()[0].state, UnitState::Alive);
    assert_eq!(home.clean().unwrap(), []);
    assert!(netns::exists(&inside));

    // As after a kill: the locks go, the files stay, and no journal mentions this namespace.
    drop((claim, journal));
    let unjournaled = NetnsName::new(format!("hg-{id}-b")).unwrap();
    drop(Netns::create(&unjournaled).unwrap());
    await_death(&home);
    let cleaned = home.clean().unwrap();
    assert_eq!((cleaned.len(), cleaned[0].namespaces, cleaned[0].failures.len()), (1, 2, 0), "{cleaned:?}");
    assert!(!netns::exists(&inside) && !netns::exists(&unjournaled));
    assert_eq!(home.remains().unwrap(), []);
}

/// One is in the owner's journal, and the other was started by a process that was killed before it wrote so.
#[test]
fn the_switches_of_a_dead_owner_end() {
    if let Some(why) = features::probe().unwrap().missing.get(&Feature::OpenVSwitch) {
        return testkit::skip(&format!("no Open vSwitch: {why}"));
    }
    let root = tempfile::tempdir().unwrap();
    let home = Home::at(root.path());
    let claim = home.claim().unwrap();
    let id = claim.id().to_owned();
    let switch = |part: &str| Step::StartOvs(OvsSwitch { node: format!("hg-{id}-{part}-1"), dpdk: None });
    let place = |part: &str| Place::Netns(NetnsName::new(format!("hg-{id}-{part}")).unwrap());
    let mut plan = Plan::new();
    plan.push(&place("a"), Step::AddNetns);
    plan.push(&place("a"), switch("a"));
    let mut journal = Journal::create(&claim.dir().join("a.journal")).unwrap();
    let mut kernel = Kernel::new().unwrap();
    plan::apply(&plan, &mut journal, &mut kernel).unwrap();
    for step in [Step::AddNetns, switch("b")] {
        plan::by_hand(&Placed { place: place("b"), step }, &mut kernel).unwrap();
    }
    assert_eq!(ovs::switches().unwrap().len(), 2);

    drop((claim, journal, kernel));
    await_death(&home);
    let cleaned = home.clean().unwrap();
    assert!(cleaned.len() == 1 && cleaned[0].failures.is_empty(), "{cleaned:?}");
    assert_eq!((cleaned[0].processes, cleaned[0].namespaces), (4, 2), "{cleaned:?}");
    assert_eq!(ovs::switches().unwrap(), [] as [String; 0]);
    assert!(netns::list().unwrap().iter().all(|name| !name.as_str().starts_with(&format!("hg-{id}-"))));
}

/// As with switches: one is in the owner's journal, and the other was started by a process that was killed.
#[test]
fn the_processes_of_a_dead_owners_pods_end() {
    let facts = features::probe().unwrap();
    for (name, feature) in [("pasta", Feature::Pasta), ("slirp4netns", Feature::Slirp4netns)] {
        if let Some(why) = facts.missing.get(&feature) {
            testkit::skip(&format!("no {name}: {why}"));
            continue;
        }
        let root = tempfile::tempdir().unwrap();
        let home = Home::at(root.path());
        let claim = home.claim().unwrap();
        let shape = shape(datapath::find(name).unwrap(), claim.id(), false);
        let plan = Topology::plan(shape).unwrap().plan;
        let mut kernel = Kernel::new().unwrap();
        let of_client = plan.steps.iter().position(|placed| matches!(placed.step, Step::StartUserNet(_)));
        let (journaled, rest) = plan.steps.split_at(of_client.unwrap() + 1);
        let mut journal = Journal::create(&claim.dir().join("a.journal")).unwrap();
        plan::apply(&Plan { steps: journaled.to_vec() }, &mut journal, &mut kernel).unwrap();
        let of_server = rest.iter().find(|placed| matches!(placed.step, Step::StartUserNet(_)));
        plan::by_hand(of_server.unwrap(), &mut kernel).unwrap();
        assert_eq!(user_net::names().unwrap().len(), 2);

        drop((claim, journal, kernel));
        await_death(&home);
        let cleaned = home.clean().unwrap();
        assert!(cleaned.len() == 1 && cleaned[0].failures.is_empty(), "{cleaned:?}");
        assert_eq!(cleaned[0].processes, 2, "{cleaned:?}");
        assert_eq!(user_net::names().unwrap(), [] as [String; 0]);
    }
}

#[test]
fn what_is_no_owners_is_named_and_left() {
    let root = tempfile::tempdir().unwrap();
    let home = Home::at(root.path());
    assert!(home.strangers().unwrap().is_empty());
    home.claim().unwrap().end().unwrap();
    let others = ["backup/owner", "cafe/kept", "cni/state", "tune/journal"];
    for file in others {
        let path = root.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "mine").unwrap();
    }
    std::fs::write(root.path().join("note"), "mine").unwrap();
    std::fs::create_dir(root.path().join("empty")).unwrap();
    std::os::unix::fs::symlink("/", root.path().join("dead")).unwrap();
    // An owner that died before it wrote its identity.
    std::fs::create_dir(root.path().join("0bad")).unwrap();

    let cleaned = home.clean().unwrap();
    assert_eq!(cleaned.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["0bad"]);
    let named = ["backup", "cafe", "cni", "dead", "empty", "note", "tune"].map(|name| root.path().join(name));
    assert_eq!(home.strangers().unwrap(), named);
    assert!(others.iter().all(|file| root.path().join(file).is_file()));
}

#[test]
fn what_was_left_standing_is_not_cleaned_but_removed_by_name() {
    let root = tempfile::tempdir().unwrap();
    let home = Home::at(root.path());
    let claim = home.claim().unwrap();
    let id = claim.id().to_owned();
    claim.leave_standing("docker").unwrap();
    assert_eq!(home.clean().unwrap(), []);
    let remains = home.remains().unwrap();
    assert_eq!((remains[0].state, remains[0].standing.as_deref()), (UnitState::Standing, Some("docker")));
    home.remove(&id).unwrap();
    assert_eq!(home.remains().unwrap(), []);
}

#[test]
fn processes_in_a_dead_owners_namespaces_are_ended() {
    let root = tempfile::tempdir().unwrap();
    let home = Home::at(root.path());
    let claim = home.claim().unwrap();
    let name = NetnsName::new(format!("hg-{}-c", claim.id())).unwrap();
    let netns = Netns::create(&name).unwrap();
    let mut child = netns.run(|| std::process::Command::new("sleep").arg("600").spawn()).unwrap().unwrap();
    // Its journal shows that the work was not finished.
    drop((Journal::create(&claim.dir().join("c.journal")).unwrap(), claim, netns));
    await_death(&home);
    let cleaned = home.clean().unwrap();
    assert_eq!(cleaned[0].processes, 1, "{cleaned:?}");
    assert!(!child.wait().unwrap().success());
}

#[test]
fn one_race_at_a_time() {
    let root = tempfile::tempdir().unwrap();
    let home = Home::at(root.path());
    let first = home.exclusive(|_| panic!("no other race is running"), || false).unwrap();
    let waited_for = Cell::new(None);
    let second = home.exclusive(|pid| waited_for.set(Some(pid)), || waited_for.get().is_some()).unwrap();
    assert!(second.is_none(), "it was asked to stop while it waited");
    assert_eq!(waited_for.get(), Some(std::process::id()));
    drop(first);
    // A child that another test just forked may hold the descriptor a moment longer.
    assert!(home.exclusive(|_| {}, || false).unwrap().is_some());
}
