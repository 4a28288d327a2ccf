//! Apply, then undo: everything is as it was.

use plan::{Journal, Kernel, Undone, apply, undo};
use testkit::{Dump, World, dump, require_root};

use crate::sample::Sample;

/// The state of both namespaces that are there before the plan.
pub(crate) fn state(world: &World) -> [Dump; 2] {
    ["home", "away"].map(|short| dump(&world.open(short)))
}

#[track_caller]
pub(crate) fn assert_as_before(world: &World, before: &[Dump; 2], when: &str) {
    for (before, after) in before.iter().zip(&state(world)) {
        before.assert_same(after, when);
    }
    assert_eq!(world.existing().len(), 2, "{when}, there are namespaces {:?}", world.existing());
}

#[test]
fn undo_brings_everything_back() {
    if !require_root() {
        return;
    }
    let world = World::new();
    let sample = Sample::of(&world);
    sample.furnish();
    let before = state(&world);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let plan = sample.plan();

    let mut journal = Journal::create(&path).unwrap();
    let mut kernel = Kernel::new().unwrap();
    let applied = apply(&plan, &mut journal, &mut kernel).unwrap();
    assert_eq!(applied.seqs, 0..plan.steps.len() as u64);
    assert!(!before[0].diff(&state(&world)[0]).is_empty(), "the plan changes something");

    // From the file, as another process would.
    drop((journal, kernel));
    let mut journal = Journal::open(&path).unwrap();
    let results = undo(&mut journal, &mut Kernel::new().unwrap());
    let undone: Vec<_> = results.iter().map(|(placed, _)| placed).rev().collect();
    assert_eq!(undone, plan.steps.iter().collect::<Vec<_>>(), "backwards, and all of them");
    let odd: Vec<_> = results.iter().filter(|(_, outcome)| *outcome != Undone::Restored).collect();
    assert!(odd.is_empty(), "{odd:?}");
    assert_as_before(&world, &before, "after undo");

    assert!(journal.is_undone());
    assert_eq!(undo(&mut journal, &mut Kernel::new().unwrap()), [], "a second undo has nothing to do");
    assert_as_before(&world, &before, "after a second undo");
}

#[test]
fn a_journal_serves_several_plans() {
    if !require_root() {
        return;
    }
    let world = World::new();
    let sample = Sample::of(&world);
    sample.furnish();
    let before = state(&world);
    let directory = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(&directory.path().join("journal")).unwrap();
    let mut kernel = Kernel::new().unwrap();
    for _ in 0..2 {
        let mut first = sample.plan();
        let second = plan::Plan { steps: first.steps.split_off(9) };
        apply(&first, &mut journal, &mut kernel).unwrap();
        apply(&second, &mut journal, &mut kernel).unwrap();
        let results = undo(&mut journal, &mut kernel);
        assert!(results.iter().all(|(_, outcome)| *outcome == Undone::Restored), "{results:?}");
        assert_as_before(&world, &before, "after undo of two plans");
    }
}
