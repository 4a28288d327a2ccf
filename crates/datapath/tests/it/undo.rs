//! Undo after an error in any step brings back every namespace as it was.

use datapath::{DataPath, Family};
use plan::{ApplyError, Fault};

use crate::pair::Pair;
use crate::paths::for_each_path;

for_each_path!(comes_back_after_any_error);

/// It is in no list, as it joins no pods by itself.
#[test]
fn cni() {
    if testkit::require_root() {
        comes_back_after_any_error(&datapath::CNI);
    }
}

/// The namespaces are compared once, after the last step, since a dump is dear on an emulated kernel. Nothing left
/// behind by an earlier step can hide until then: what an `Add…` step made makes the next apply stop before its fault,
/// as it refuses what is there already, and what a `Set…` step changed becomes the old value of all later ones.
fn comes_back_after_any_error(path: &'static DataPath) {
    let mut pair = Pair::new(path, Family::V4);
    let (names, plan) = (pair.one_node(), pair.one_node_plan());
    let before = pair.dump(&names);
    for (step, placed) in plan.steps.iter().enumerate() {
        // The change is made and nothing says so yet: the hardest place to come back from.
        let mut journal = pair.journal();
        let applied = pair.apply(&plan, &mut journal, Fault::AfterStep(step));
        let injected = matches!(applied, Err(ApplyError::Injected { .. }));
        assert!(injected, "step {step}, {placed:?}, was not the one to fail: {applied:?}");
        for (placed, outcome) in pair.undo(&mut journal) {
            assert!(outcome.is_final(), "{placed:?} after an error in step {step}: {outcome:?}");
        }
    }
    pair.assert_as(&names, &before, "after all");
}
