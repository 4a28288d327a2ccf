//! Apply fails after every step and dies after every line of the journal, and so does undo. Then undo runs to
//! its end from the file, and everything must be as before.

use plan::{ApplyError, Fault, Journal, Kernel, Plan, Undone, undo};
use testkit::{World, require_root};

use crate::sample::Sample;
use crate::scene::Scene;

/// Outside programs check one ending in this many. The process itself checks all.
pub(crate) const JUDGED_EVERY: usize = 8;
/// How many worlds there are at the same time.
const WORLDS: usize = 4;

#[track_caller]
fn undo_to_the_end(scene: &Scene, when: &str) {
    let (results, journal) = scene.undo();
    let failed: Vec<_> = results.iter().filter(|(_, outcome)| !is_regular(outcome)).collect();
    assert!(failed.is_empty(), "{when}: {failed:?}");
    assert!(journal.is_undone(), "{when}");
    scene.assert_as_before_quick(when);
}

/// Nothing else uses these namespaces, so no step may report a change by others. `Gone` is for objects in a
/// namespace whose removal an interrupted undo had already recorded.
fn is_regular(outcome: &Undone) -> bool {
    match outcome {
        Undone::Restored | Undone::AlreadySo | Undone::Gone => true,
        Undone::ChangedByOther { .. }
        | Undone::LeftToOthers { .. }
        | Undone::Rebooted
        | Undone::Failed { .. } => false,
    }
}

/// Runs the sample with each fault. What takes long is the kernel, which takes links and namespaces away only when no
/// CPU uses them any more, so several prepared worlds have a share of the faults each.
fn check(faults: impl Iterator<Item = Fault>) {
    let faults: Vec<Fault> = faults.collect();
    in_worlds(|first| check_in_one(faults.iter().skip(first).step_by(WORLDS)));
}

/// Calls this in as many threads as there are worlds, with the numbers from 0.
fn in_worlds(check: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        let check = &check;
        (0..WORLDS).for_each(|first| drop(scope.spawn(move || check(first))));
    });
}

/// The same in one prepared world.
fn check_in_one<'a>(faults: impl Iterator<Item = &'a Fault>) {
    let scene = Scene::new();
    let plan = scene.sample.plan();
    for (number, fault) in faults.enumerate() {
        let when = format!("with {fault:?}");
        let result = scene.apply(&plan, *fault);
        assert!(matches!(result, Err(ApplyError::Injected { .. })), "{when}: {result:?}");
        undo_to_the_end(&scene, &when);
        if number % JUDGED_EVERY == 0 {
            scene.assert_as_before(&when);
        }
    }
    scene.assert_as_before("at the end");
}

fn steps() -> usize {
    Sample::of(&World::new()).plan().steps.len()
}

#[test]
fn apply_may_fail_before_any_step() {
    if require_root() {
        check((0..steps()).step_by(5).map(Fault::BeforeStep));
    }
}

#[test]
fn apply_may_fail_after_any_step() {
    if require_root() {
        check((0..steps()).map(Fault::AfterStep));
    }
}

#[test]
fn apply_may_die_after_any_line() {
    if require_root() {
        // The lines are the header, then an intent and a result for each step. Dying after the header equals
        // dying after the first intent, because nothing happens between them.
        check((2..=1 + 2 * steps()).map(Fault::DeadAfterLine));
    }
}

#[test]
fn undo_may_die_after_any_line() {
    if !require_root() {
        return;
    }
    in_worlds(|first| {
        let scene = Scene::new();
        let plan = scene.sample.plan();
        let dead_after =
            (1 + first..).step_by(WORLDS).find(|dead_after| undo_dies(&scene, &plan, *dead_after));
        assert!(dead_after > Some(10), "undo wrote only {dead_after:?} lines");
    });
}

/// Undo dies after so many lines of its own, and a second one comes to the end. Whether the first one
/// had done so already.
fn undo_dies(scene: &Scene, plan: &Plan, dead_after: usize) -> bool {
    let lines = scene.apply(plan, Fault::None).expect("the plan applies");
    let mut journal = Journal::open(&scene.path()).expect("the journal is whole");
    let mut kernel = Kernel::new().expect("a kernel");
    kernel.inject(Fault::DeadAfterLine(lines + dead_after));
    undo(&mut journal, &mut kernel);
    let is_undone = journal.is_undone();
    drop((journal, kernel));
    let when = format!("when undo died after its line {dead_after}");
    undo_to_the_end(scene, &when);
    if is_undone || (dead_after / WORLDS).is_multiple_of(JUDGED_EVERY) {
        scene.assert_as_before(&when);
    }
    is_undone
}
