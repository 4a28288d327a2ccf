//! More steps are added to a standing transaction, and the process that adds them dies after any line of the
//! journal.

use linux::sysfs::LinkAttribute;
use plan::{
    Fault, Kernel, Phase, Plan, SetLinkAttribute, SetLinkMtu, Step, Store, TakenBack, TransactionError,
    Undone, Why, apply,
};
use testkit::{Dump, dump, require_root};

use crate::sample::{ifname, sysctl_step};
use crate::scene::Scene;

/// A scene with a confirmed transaction, and the state of `home` at that time.
struct Stage {
    scene: Scene,
    store: Store,
    stood: Dump,
}

fn plan_of(scene: &Scene, steps: &[Step]) -> Plan {
    let mut plan = Plan::new();
    steps.iter().for_each(|step| plan.push(&scene.sample.home(), step.clone()));
    plan
}

/// Applies and confirms a transaction with two parameters. The addition raises one of them and leaves the
/// other.
fn begin(scene: &Scene, store: &Store) {
    let plan =
        plan_of(scene, &[sysctl_step("net/core/somaxconn", "8192"), sysctl_step("net/ipv4/tcp_ecn", "1")]);
    let held = store.hold().expect("no other process holds it");
    let (standing, journal) = held.begin(&plan, None, serde_json::Value::Null).expect("nothing stands");
    let mut kernel = Kernel::new().expect("the kernel can be opened");
    held.apply(&standing, &plan, journal, &mut kernel).expect("the steps can be done");
    held.await_confirmation(standing, None).expect("the store can be written");
}

impl Stage {
    fn new() -> Stage {
        let scene = Scene::with("ip -n HOME link add more0 type bridge");
        let store = Store::at(scene.directory.path());
        begin(&scene, &store);
        let stood = dump(&scene.world.open("home"));
        Stage { scene, store, stood }
    }

    fn begin(&self) {
        begin(&self.scene, &self.store);
    }

    fn addition(&self) -> Plan {
        let attribute = LinkAttribute::TxQueueLen;
        let steps = [
            sysctl_step("net/core/somaxconn", "16384"),
            Step::from(SetLinkMtu { link: ifname("more0"), mtu: 1400 }),
            Step::from(SetLinkAttribute { link: ifname("more0"), attribute, value: 77 }),
        ];
        plan_of(&self.scene, &steps)
    }

    /// Adds steps and dies after a line. Returns how many lines the journal has then.
    fn die_adding(&self, fault: Fault) -> usize {
        let held = self.store.hold().expect("no other process holds it");
        let plan = self.addition();
        let (_, mut journal) = held.extend(&plan).expect("something stands");
        let mut kernel = Kernel::new().expect("the kernel can be opened");
        kernel.inject(fault);
        let _ = apply(&plan, &mut journal, &mut kernel);
        journal.entries().len()
    }

    fn take_back(&self, why: Why, fault: Fault) -> TakenBack {
        let mut kernel = Kernel::new().expect("the kernel can be opened");
        kernel.inject(fault);
        let held = self.store.hold().expect("no other process holds it");
        held.take_back(&mut kernel, why).expect("the journal is sound")
    }

    #[track_caller]
    fn assert_stands(&self, when: &str) {
        self.stood.assert_same(&dump(&self.scene.world.open("home")), when);
        let phase = self.store.standing().expect("the store is sound").map(|standing| standing.phase);
        assert_eq!(phase, Some(Phase::Confirmed), "{when}");
        let last = self.store.last().expect("the store is sound");
        assert!(last.addition, "{when}: {last:?}");
    }

    /// Checks that the transaction's own rollback leaves nothing of it.
    #[track_caller]
    fn end(&self, when: &str) {
        let back = self.take_back(Why::Asked, Fault::None);
        assert!(back.is_whole, "{when}: {back:?}");
        self.scene.assert_as_before(when);
        assert_eq!(self.store.standing().expect("the store is sound"), None, "{when}");
        assert!(!self.store.last().expect("the store is sound").addition, "{when}");
    }
}

/// The lines of the transaction (a header, two for each of two steps), and with those of the addition's three
/// steps.
const STOOD: usize = 5;
const WHOLE: usize = STOOD + 6;

#[test]
fn a_death_while_adding_takes_back_the_addition_alone() {
    if !require_root() {
        return;
    }
    let stage = Stage::new();
    for line in STOOD + 1..=WHOLE {
        let when = format!("dead after line {line}");
        assert_eq!(stage.die_adding(Fault::DeadAfterLine(line)), line);
        let refused = stage.store.hold().unwrap().extend(&stage.addition()).unwrap_err();
        assert!(matches!(refused, TransactionError::Stands { phase: Phase::Extending { .. }, .. }));
        let back = stage.take_back(Why::Died, Fault::None);
        assert!(back.is_whole && back.steps.len() == (line - STOOD).div_ceil(2), "{when}: {back:?}");
        stage.assert_stands(&when);
        // The same journal undoes the rest. The steps that are already undone are skipped.
        stage.end(&when);
        stage.begin();
    }
    stage.end("at the end");
}

#[test]
fn a_death_while_taking_back_an_addition_is_gone_on_with() {
    if !require_root() {
        return;
    }
    let stage = Stage::new();
    for undone in 1..=2 {
        let when = format!("dead after {undone} of three steps");
        let lines = stage.die_adding(Fault::None);
        assert!(!stage.take_back(Why::Died, Fault::DeadAfterLine(lines + undone)).is_whole, "{when}");
        assert_eq!(stage.take_back(Why::Died, Fault::None).steps.len(), 3 - undone, "{when}");
        stage.assert_stands(&when);
        stage.end(&when);
        stage.begin();
    }
    stage.end("at the end");
}

/// On request everything is undone, even in the middle of an addition.
#[test]
fn an_addition_that_died_is_taken_back_on_request() {
    if !require_root() {
        return;
    }
    let stage = Stage::new();
    stage.die_adding(Fault::DeadAfterLine(STOOD + 3));
    stage.end("asked for in the middle");
}

#[test]
fn an_addition_goes_back_by_way_of_what_was_between() {
    if !require_root() {
        return;
    }
    let stage = Stage::new();
    let home = &stage.scene.sample.home;
    testkit::shell(&format!("ip netns exec {home} sh -c 'echo 100 >/proc/sys/net/core/somaxconn'"));
    stage.die_adding(Fault::None);
    let back = stage.take_back(Why::Asked, Fault::None);
    let parameter = |(placed, outcome): &(plan::Placed, Undone)| {
        placed.commands()[0].contains("somaxconn").then(|| outcome.clone())
    };
    let outcomes: Vec<_> = back.steps.iter().filter_map(parameter).collect();
    assert_eq!(outcomes, [Undone::Restored, Undone::ChangedByOther { found: "100".to_owned() }]);
}
