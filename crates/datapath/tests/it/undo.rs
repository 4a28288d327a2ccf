//! After an error in any step, undo restores every namespace.

use datapath::{DataPath, Family};
use plan::{ApplyError, Fault};

use crate::pair::Pair;
use crate::paths::{for_each_path, runnable_guarded};

for_each_path!(comes_back_after_any_error);

/// No list contains it, because it does not join pods by itself.
#[test]
fn cni() {
    if testkit::require_root() {
        comes_back_after_any_error(&datapath::CNI);
    }
}

/// Nor this one, because it joins pods to whatever their devices are plugged into.
#[test]
fn host_device() {
    if testkit::require_root() {
        comes_back_after_any_error(&datapath::DEVICE);
    }
}

#[test]
fn bridge_guarded() {
    if let Some(path) = runnable_guarded("bridge+direct") {
        comes_back(Pair::new(path, Family::V4).guarded());
    }
}

#[test]
fn ptp_guarded() {
    if let Some(path) = runnable_guarded("ptp+direct") {
        comes_back(Pair::new(path, Family::V4).guarded());
    }
}

fn comes_back_after_any_error(path: &'static DataPath) {
    comes_back(Pair::new(path, Family::V4));
}

/// The namespaces are compared once, after the last step, because a dump is slow on an emulated kernel. A
/// leftover of an earlier step cannot hide until then. An `Add…` step refuses what already exists, so the
/// next apply would stop before its fault. The change of a `Set…` step would become the old value of all
/// later ones.
fn comes_back(mut pair: Pair) {
    let (names, plan) = (pair.one_node(), pair.one_node_plan());
    let before = pair.dump(&names);
    for (step, placed) in plan.steps.iter().enumerate() {
        // The change is made but the journal does not say so yet: the hardest place to recover from.
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
