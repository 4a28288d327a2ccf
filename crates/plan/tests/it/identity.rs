//! Apply, then undo: everything is as it was.

use plan::{Journal, Kernel, Undone, apply, undo};
use testkit::require_root;

use crate::scene::Scene;

#[test]
fn undo_brings_everything_back() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let plan = scene.sample.plan();
    let mut journal = Journal::create(&scene.path()).unwrap();
    let applied = apply(&plan, &mut journal, &mut Kernel::new().unwrap()).unwrap();
    assert_eq!(applied.seqs, 0..plan.steps.len() as u64);
    assert!(scene.is_changed(), "the plan changes something");

    // From the file, as another process would read it.
    drop(journal);
    let (results, mut journal) = scene.undo();
    let undone: Vec<_> = results.iter().map(|(placed, _)| placed).rev().collect();
    assert_eq!(undone, plan.steps.iter().collect::<Vec<_>>(), "backwards, and all of them");
    let odd: Vec<_> = results.iter().filter(|(_, outcome)| *outcome != Undone::Restored).collect();
    assert!(odd.is_empty(), "{odd:?}");
    scene.assert_as_before("after undo");

    assert!(journal.is_undone());
    assert_eq!(undo(&mut journal, &mut Kernel::new().unwrap()), [], "a second undo has nothing to do");
    scene.assert_as_before("after a second undo");
}

#[test]
fn a_journal_serves_several_plans() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let mut journal = Journal::create(&scene.path()).unwrap();
    let mut kernel = Kernel::new().unwrap();
    for _ in 0..2 {
        let mut first = scene.sample.plan();
        let second = plan::Plan { steps: first.steps.split_off(9) };
        apply(&first, &mut journal, &mut kernel).unwrap();
        apply(&second, &mut journal, &mut kernel).unwrap();
        let results = undo(&mut journal, &mut kernel);
        assert!(results.iter().all(|(_, outcome)| *outcome == Undone::Restored), "{results:?}");
        scene.assert_as_before("after undo of two plans");
    }
}
