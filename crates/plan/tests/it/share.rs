//! Steps that several units share.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use linux::netlink::Netlink;
use linux::sysctl::{self, Key};
use linux::{IfName, Link, LinkKind, NetnsName};
use plan::{ApplyError, Book, Fault, Journal, Kernel, Place, Plan, SetSysctl, Step, StepError, Undone, Unit};
use testkit::{World, dump, require_root};

use crate::sample::{bridge, ensured_bridge};

const KEY: &str = "net/ipv4/conf/all/rp_filter";

/// The units of a book, and a namespace that belongs to none of them.
pub(crate) struct Scene {
    world: World,
    pub(crate) name: NetnsName,
    root: tempfile::TempDir,
}

impl Scene {
    /// `None`, with the skip recorded, without root.
    pub(crate) fn new() -> Option<Scene> {
        if !require_root() {
            return None;
        }
        let world = World::new();
        world.add("home");
        let name = world.name("home");
        Some(Scene { world, name, root: tempfile::tempdir().unwrap() })
    }

    pub(crate) fn unit(&self, id: &str) -> Unit {
        Book::at(self.root.path().join("cni")).begin_as(id).unwrap()
    }

    pub(crate) fn kernel(&self) -> Kernel {
        Kernel::new().unwrap().with_claims(self.root.path().join("claims"))
    }

    pub(crate) fn shared(&self, step: impl Into<Step>) -> Plan {
        let mut plan = Plan::new();
        plan.push(&Place::Netns(self.name.clone()), Step::Share(Box::new(step.into())));
        plan
    }

    pub(crate) fn apply(&self, unit: &Unit, step: impl Into<Step>) -> Result<(), ApplyError> {
        self.apply_until(unit, step, Fault::None)
    }

    fn apply_until(&self, unit: &Unit, step: impl Into<Step>, fault: Fault) -> Result<(), ApplyError> {
        let mut kernel = self.kernel();
        kernel.inject(fault);
        plan::apply(&self.shared(step), &mut unit.journal("a").unwrap(), &mut kernel).map(drop)
    }

    #[track_caller]
    pub(crate) fn take_back(&self, unit: Unit, expected: &Undone) {
        let outcomes = unit.take_back(&mut self.kernel()).unwrap();
        let undone: Vec<&Undone> = outcomes
            .iter()
            .flat_map(|outcome| outcome.steps.as_ref().unwrap())
            .map(|(_, undone)| undone)
            .collect();
        assert_eq!(undone, [expected]);
        unit.end().unwrap();
    }

    pub(crate) fn value(&self) -> String {
        let key = Key::new(KEY).unwrap();
        let text = self.world.open("home").run(|| sysctl::read(&key)).unwrap().unwrap().unwrap();
        text.trim().to_owned()
    }

    /// Checks that no claim is left.
    #[track_caller]
    pub(crate) fn assert_unclaimed(&self) {
        let names = std::fs::read_dir(self.root.path().join("claims")).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["lock"]);
    }
}

pub(crate) fn parameter(value: &str) -> SetSysctl {
    SetSysctl { key: Key::new(KEY).unwrap(), value: value.to_owned() }
}

fn left_to(owner: &str) -> Undone {
    Undone::LeftToOthers { owners: vec![owner.to_owned()] }
}

#[test]
fn the_first_writes_and_the_last_restores() {
    let Some(scene) = Scene::new() else { return };
    let before = dump(&scene.world.open("home"));
    let was = scene.value();
    let (first, second, third) = (scene.unit("first"), scene.unit("second"), scene.unit("third"));
    for unit in [&first, &second, &third] {
        scene.apply(unit, parameter("2")).unwrap();
        assert_eq!(scene.value(), "2");
    }
    // The order does not matter: the unit that wrote the value is not the last.
    scene.take_back(first, &Undone::LeftToOthers { owners: vec!["cni/second".into(), "cni/third".into()] });
    scene.take_back(third, &left_to("cni/second"));
    assert_eq!(scene.value(), "2");
    scene.take_back(second, &Undone::Restored);
    assert_eq!(scene.value(), was);
    before.assert_same(&dump(&scene.world.open("home")), "after all");
    scene.assert_unclaimed();
}

#[test]
fn who_wants_another_value_is_refused_by_name() {
    let Some(scene) = Scene::new() else { return };
    let (first, second) = (scene.unit("first"), scene.unit("second"));
    scene.apply(&first, parameter("2")).unwrap();
    let error = scene.apply(&second, parameter("1")).unwrap_err();
    let ApplyError::Step { why: why @ StepError::Shared { .. }, .. } = &error else { panic!("{error}") };
    let text = why.to_string();
    assert!(text.contains("shared by cni/first") && text.contains("rp_filter=2"), "{text}");
    assert_eq!(scene.value(), "2");
    second.discard().unwrap();
    scene.take_back(first, &Undone::Restored);
    scene.assert_unclaimed();
}

#[test]
fn a_value_that_is_so_already_is_not_written_and_not_restored() {
    let Some(scene) = Scene::new() else { return };
    let was = scene.value();
    let (first, second) = (scene.unit("first"), scene.unit("second"));
    scene.apply(&first, parameter(&was)).unwrap();
    // The first unit needs this value, so the second is refused.
    let other = if was == "1" { "2" } else { "1" };
    assert!(scene.apply(&second, parameter(other)).is_err());
    scene.take_back(first, &Undone::AlreadySo);
    second.discard().unwrap();
    let second = scene.unit("second");
    scene.apply(&second, parameter(other)).unwrap();
    scene.take_back(second, &Undone::Restored);
    assert_eq!(scene.value(), was);
    scene.assert_unclaimed();
}

#[test]
fn a_bridge_goes_with_the_last_that_uses_it() {
    let Some(scene) = Scene::new() else { return };
    let bridge = || {
        Step::AddLink(Link {
            name: IfName::new("br0").unwrap(),
            kind: LinkKind::Bridge,
            mtu: None,
            mac: None,
        })
    };
    let is_there = || {
        let netlink = Netlink::open_in(&scene.world.open("home")).unwrap();
        netlink.link(&IfName::new("br0").unwrap()).unwrap().is_some()
    };
    let (first, second) = (scene.unit("first"), scene.unit("second"));
    scene.apply(&first, bridge()).unwrap();
    scene.apply(&second, bridge()).unwrap();
    scene.take_back(first, &left_to("cni/second"));
    assert!(is_there());
    scene.take_back(second, &Undone::Restored);
    assert!(!is_there());
    // A bridge that another program made cannot be shared.
    let _ = testkit::shell(&format!("ip netns exec {} ip link add br0 type bridge", scene.name));
    let third = scene.unit("third");
    let error = scene.apply(&third, bridge()).unwrap_err().to_string();
    assert!(error.contains("is there already"), "{error}");
    third.discard().unwrap();
    assert!(is_there());
    scene.assert_unclaimed();
}

/// The last that uses a bridge leaves it to ports that another program gave it, and takes it back when they are gone.
#[test]
fn a_shared_bridge_is_not_taken_from_ports_of_another_program() {
    let Some(scene) = Scene::new() else { return };
    let link =
        |name: &str| Link { name: IfName::new(name).unwrap(), kind: LinkKind::Bridge, mtu: None, mac: None };
    let in_home = |command: &str| {
        let _ = testkit::shell(&format!("ip netns exec {} ip link {command}", scene.name));
    };
    let (first, second) = (scene.unit("first"), scene.unit("second"));
    scene.apply(&first, Step::EnsureLink(link("br0"))).unwrap();
    scene.apply(&second, Step::EnsureLink(link("br0"))).unwrap();
    in_home("add other0 master br0 type veth peer name other1");
    scene.take_back(first, &left_to("cni/second"));
    let why =
        "link br0 has ports of another program: other0; nothing is undone before they are gone".to_owned();
    let refused = second.take_back(&mut scene.kernel()).unwrap();
    let refused = refused[0].steps.as_ref().unwrap();
    assert_eq!(refused.iter().map(|(_, undone)| undone).collect::<Vec<_>>(), [&Undone::Failed { why }]);
    in_home("del other0");
    scene.take_back(second, &Undone::Restored);
    // One that was there is left to all its users.
    in_home("add br1 type bridge");
    in_home("add other0 master br1 type veth peer name other1");
    let before = dump(&scene.world.open("home"));
    let third = scene.unit("third");
    scene.apply(&third, Step::EnsureLink(link("br1"))).unwrap();
    // Another unit that wants another bridge of this name gets the name of the unit that has it.
    let fourth = scene.unit("fourth");
    let other = Link { mtu: Some(1400), ..link("br1") };
    let error = scene.apply(&fourth, Step::EnsureLink(other)).unwrap_err().to_string();
    assert!(error.contains("link br1 is shared by cni/third"), "{error}");
    fourth.discard().unwrap();
    scene.take_back(third, &Undone::AlreadySo);
    before.assert_same(&dump(&scene.world.open("home")), "after all");
    scene.assert_unclaimed();
}

/// Whenever a unit dies, the next one finds the step done or does it, and the last one restores the value
/// that the first one found.
#[test]
fn a_unit_that_dies_is_no_owner_for_long() {
    for fault in [Fault::BeforeStep(0), Fault::InClaim, Fault::AfterStep(0), Fault::DeadAfterLine(3)] {
        let Some(scene) = Scene::new() else { return };
        let was = scene.value();
        let dead = scene.unit("dead");
        scene.apply_until(&dead, parameter("2"), fault).unwrap_err();
        let second = scene.unit("second");
        scene.apply(&second, parameter("2")).unwrap();
        assert_eq!(scene.value(), "2", "{fault:?}");
        let outcome = dead.take_back(&mut scene.kernel()).unwrap();
        assert!(outcome.iter().all(|journal| journal.steps.is_ok()), "{outcome:?}");
        dead.end().unwrap();
        assert_eq!(scene.value(), "2", "{fault:?}");
        scene.take_back(second, &Undone::Restored);
        assert_eq!(scene.value(), was, "{fault:?}");
        scene.assert_unclaimed();
    }
}

/// The last unit has restored the value, and dies before it gives up its claim.
#[test]
fn an_undo_that_dies_is_no_change_by_somebody_else() {
    let Some(scene) = Scene::new() else { return };
    let was = scene.value();
    let (first, second) = (scene.unit("first"), scene.unit("second"));
    scene.apply(&first, parameter("2")).unwrap();
    let key = KEY.replace('/', ".");
    let _ = testkit::shell(&format!("ip netns exec {} sysctl -qw {key}={was}", scene.name));
    scene.apply(&second, parameter("2")).unwrap();
    assert_eq!(scene.value(), "2");
    scene.take_back(first, &left_to("cni/second"));
    scene.take_back(second, &Undone::Restored);
    assert_eq!(scene.value(), was);
    scene.assert_unclaimed();
}

/// The same namespace is the host's for one unit and has a name for another.
#[test]
fn one_namespace_may_have_two_names() {
    let Some(scene) = Scene::new() else { return };
    let was = scene.value();
    let (named, inside) = (scene.unit("named"), scene.unit("inside"));
    scene.apply(&named, parameter("2")).unwrap();
    let within = |work: &mut dyn FnMut(&mut Kernel)| {
        scene.world.open("home").run(|| work(&mut scene.kernel())).unwrap();
    };
    let mut plan = Plan::new();
    plan.push(&Place::Host, Step::Share(Box::new(parameter("2").into())));
    within(&mut |kernel| {
        plan::apply(&plan, &mut inside.journal("a").unwrap(), kernel).unwrap();
    });
    scene.take_back(named, &left_to("cni/inside"));
    // From outside, the host's namespace is another one, and its value must not be written.
    let outcomes = inside.take_back(&mut scene.kernel()).unwrap();
    let (_, undone) = &outcomes[0].steps.as_ref().unwrap()[0];
    assert!(
        matches!(undone, Undone::Failed { why } if why.contains("another network namespace")),
        "{undone:?}"
    );
    within(&mut |kernel| {
        inside.take_back(kernel).unwrap();
    });
    inside.end().unwrap();
    assert_eq!(scene.value(), was);
    scene.assert_unclaimed();
}

/// An addition to a tuning may share a value that the tuning already shares.
#[test]
fn a_unit_that_shares_twice_gives_up_twice() {
    let Some(scene) = Scene::new() else { return };
    let was = scene.value();
    let (twice, once) = (scene.unit("twice"), scene.unit("once"));
    let mut plan = scene.shared(parameter("2"));
    plan.extend(plan.clone());
    plan::apply(&plan, &mut twice.journal("a").unwrap(), &mut scene.kernel()).unwrap();
    scene.apply(&once, parameter("2")).unwrap();
    let outcomes = twice.take_back(&mut scene.kernel()).unwrap();
    let undone: Vec<&Undone> = outcomes[0].steps.as_ref().unwrap().iter().map(|(_, undone)| undone).collect();
    let both = Undone::LeftToOthers { owners: vec!["cni/once".into(), "cni/twice".into()] };
    assert_eq!(undone, [&both, &left_to("cni/once")]);
    twice.end().unwrap();
    scene.take_back(once, &Undone::Restored);
    assert_eq!(scene.value(), was);
    scene.assert_unclaimed();
}

/// A unit whose directory was removed by hand needs the value no longer, but the value that it found is not
/// lost.
#[test]
fn a_unit_without_a_journal_wants_nothing() {
    let Some(scene) = Scene::new() else { return };
    let was = scene.value();
    let lost = scene.unit("lost");
    scene.apply(&lost, parameter("2")).unwrap();
    lost.discard().unwrap();
    let next = scene.unit("next");
    scene.apply(&next, parameter("1")).unwrap();
    assert_eq!(scene.value(), "1");
    scene.take_back(next, &Undone::Restored);
    assert_eq!(scene.value(), was);
    scene.assert_unclaimed();
}

#[test]
fn what_somebody_else_changes_is_left_to_them() {
    let Some(scene) = Scene::new() else { return };
    let (first, second) = (scene.unit("first"), scene.unit("second"));
    scene.apply(&first, parameter("2")).unwrap();
    let _ = testkit::shell(&format!("ip netns exec {} sysctl -qw {}=1", scene.name, KEY.replace('/', ".")));
    let error = scene.apply(&second, parameter("2")).unwrap_err().to_string();
    assert!(error.contains("was changed by another program; restore it first"), "{error}");
    second.take_back(&mut scene.kernel()).unwrap();
    second.end().unwrap();
    scene.take_back(first, &Undone::ChangedByOther { found: "1".into() });
    assert_eq!(scene.value(), "1");
    scene.assert_unclaimed();
}

#[test]
fn claims_go_with_their_namespace() {
    let Some(scene) = Scene::new() else { return };
    let first = scene.unit("first");
    scene.apply(&first, parameter("2")).unwrap();
    linux::netns::delete(&scene.name).unwrap();
    scene.take_back(first, &Undone::Gone);
    scene.assert_unclaimed();
}

/// A unit is removed by hand while its namespace stands, and then the namespace goes.
#[test]
fn stale_claims_are_those_without_a_journal_on_a_namespace_that_is_gone() {
    let Some(scene) = Scene::new() else { return };
    let (lost, kept) = (scene.unit("lost"), scene.unit("kept"));
    scene.apply(&lost, parameter("2")).unwrap();
    scene.apply(&kept, parameter("2")).unwrap();
    lost.discard().unwrap();
    let remove_stale = || plan::remove_stale_claims(&scene.kernel()).unwrap();
    assert!(remove_stale().is_empty(), "the namespace has a name");
    linux::netns::delete(&scene.name).unwrap();
    assert!(remove_stale().is_empty(), "a unit has a journal, and its undo gives up the claim");
    kept.discard().unwrap();
    assert_eq!(remove_stale().len(), 1);
    assert!(remove_stale().is_empty());
    scene.assert_unclaimed();
}

/// Units that were killed, journals and all, leave a file for each of their namespaces.
#[test]
fn the_next_namespace_with_claims_takes_those_of_dead_ones_away() {
    let Some(scene) = Scene::new() else { return };
    let claims = scene.root.path().join("claims");
    let files = || std::fs::read_dir(&claims).unwrap().count() - 1;
    let (lost, kept) = (Scene::new().unwrap(), Scene::new().unwrap());
    let units = [&lost, &kept].map(|other| {
        let unit = other.unit("a");
        let mut kernel = other.kernel().with_claims(&claims);
        plan::apply(&other.shared(parameter("2")), &mut unit.journal("a").unwrap(), &mut kernel).unwrap();
        unit
    });
    let [dead, alive] = units;
    dead.discard().unwrap();
    [&lost, &kept].iter().for_each(|other| linux::netns::delete(&other.name).unwrap());
    assert_eq!(files(), 2);
    let unit = scene.unit("a");
    scene.apply(&unit, parameter("2")).unwrap();
    assert_eq!(files(), 2, "one is new, and one has a journal");
    alive.discard().unwrap();
    // A claim beside others is not the first of its namespace.
    let other = scene.unit("b");
    scene.apply(&other, parameter("2")).unwrap();
    assert_eq!(files(), 2);
    scene.take_back(other, &left_to("cni/a"));
    scene.take_back(unit, &Undone::Restored);
    scene.apply(&scene.unit("c"), parameter("2")).unwrap();
    assert_eq!(files(), 1);
}

#[test]
fn claims_without_a_journal_stay_while_their_namespace_is_used() {
    let Some(scene) = Scene::new() else { return };
    let lost = scene.unit("lost");
    scene.apply(&lost, parameter("2")).unwrap();
    lost.discard().unwrap();
    let netns = scene.world.open("home");
    linux::netns::delete(&scene.name).unwrap();
    // The value that the lost unit found is kept for the next one.
    let removed = netns.run(|| plan::remove_stale_claims(&scene.kernel()).unwrap()).unwrap();
    assert!(removed.is_empty(), "a thread is in it: {removed:?}");
    drop(netns);
    assert_eq!(plan::remove_stale_claims(&scene.kernel()).unwrap().len(), 1);
}

#[test]
fn what_cannot_be_shared_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let mut plan = Plan::new();
    plan.push(&Place::Host, Step::Share(Box::new(Step::AddNetns)));
    let mut kernel = Kernel::new().unwrap().with_claims(root.path().join("claims"));
    let mut journal = Journal::create(&root.path().join("journal")).unwrap();
    let error = plan::apply(&plan, &mut journal, &mut kernel).unwrap_err();
    assert!(error.to_string().contains("cannot be shared"), "{error}");
    // Without a journal there is no owner to name, and the step would never be undone.
    plan.steps[0].step = Step::Share(Box::new(parameter("2").into()));
    let error = plan::by_hand(&plan.steps[0], &mut Kernel::new().unwrap()).unwrap_err();
    assert!(error.to_string().contains("only a unit with a journal"), "{error}");
}

#[test]
fn damaged_claims_are_named_and_nothing_is_done() {
    let Some(scene) = Scene::new() else { return };
    let was = scene.value();
    let first = scene.unit("first");
    let directory = scene.root.path().join("claims");
    std::fs::create_dir(&directory).unwrap();
    let cookie = scene.world.open("home").cookie().unwrap();
    std::fs::write(directory.join(format!("{cookie}.json")), r#"{"schema":1,"claims":{},"crc32":7}"#)
        .unwrap();
    let error = scene.apply(&first, parameter("2")).unwrap_err().to_string();
    assert!(
        error.contains("the list of claims ") && error.contains(" is damaged") && error.contains("checksum"),
        "{error}"
    );
    assert_eq!(scene.value(), was);
    first.discard().unwrap();
}

/// One bridge whose users were unknown kept all of a journal from being undone.
#[test]
fn a_bridge_of_which_it_is_not_known_who_uses_it_stays_and_the_rest_is_undone() {
    let Some(scene) = Scene::new() else { return };
    let was = scene.value();
    let unit = scene.unit("first");
    let (home, made) = (Place::Netns(scene.name.clone()), scene.world.place("made"));
    let mut plan = Plan::new();
    plan.push(&home, parameter("2"));
    plan.push(&made, Step::AddNetns);
    plan.push(&made, Step::Share(Box::new(ensured_bridge("br0"))));
    plan.push(&home, bridge("br1"));
    let mut journal = unit.journal("a").unwrap();
    plan::apply(&plan, &mut journal, &mut scene.kernel()).unwrap();

    let cookie = scene.world.open("made").cookie().unwrap();
    let claims = scene.root.path().join("claims").join(format!("{cookie}.json"));
    let sound = std::fs::read(&claims).unwrap();
    std::fs::write(&claims, r#"{"schema":1,"claims":{},"crc32":7}"#).unwrap();
    let why = plan::in_use(&journal, &mut scene.kernel()).unwrap_err().to_string();
    assert!(why.contains("is damaged"), "{why}");
    let outcomes = plan::undo(&mut journal, &mut scene.kernel());
    let words: Vec<String> = outcomes.iter().map(|(_, undone)| undone.to_string()).collect();
    assert_eq!(
        (outcomes[0].1.clone(), outcomes[3].1.clone()),
        (Undone::Restored, Undone::Restored),
        "{words:?}"
    );
    assert!(words[1].contains("it is not undone, because it may still be in use"), "{words:?}");
    assert!(words[2].starts_with("failed") && words[2].contains("is damaged"), "{words:?}");
    assert_eq!(scene.value(), was);
    let has = |place: &str, link: &str| {
        let netlink = Netlink::open_in(&scene.world.open(place)).unwrap();
        netlink.link(&IfName::new(link).unwrap()).unwrap().is_some()
    };
    assert_eq!((has("made", "br0"), has("home", "br1")), (true, false));
    assert!(!journal.is_undone());

    std::fs::write(&claims, sound).unwrap();
    let outcomes = plan::undo(&mut journal, &mut scene.kernel());
    assert_eq!(outcomes.len(), 2);
    assert!(outcomes.iter().all(|(_, undone)| *undone == Undone::Restored), "{outcomes:?}");
    assert!(journal.is_undone() && scene.world.existing() == [scene.name.clone()]);
}
