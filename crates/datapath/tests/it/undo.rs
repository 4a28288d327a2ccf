//! Undo after an error in any step brings back every namespace as it was.

use datapath::{DataPath, Family};
use plan::Fault;

use crate::pair::Pair;
use crate::paths::for_each_path;

for_each_path!(comes_back_after_any_error);

fn comes_back_after_any_error(path: &'static DataPath) {
    let mut pair = Pair::new(path, Family::V4);
    let (names, plan) = (pair.one_node(), pair.one_node_plan());
    let before = pair.dump(&names);
    for step in 0..plan.steps.len() {
        for fault in [Fault::BeforeStep(step), Fault::AfterStep(step)] {
            let mut journal = pair.journal();
            let applied = pair.apply(&plan, &mut journal, fault);
            assert!(applied.is_err(), "{fault:?} did not happen");
            pair.undo(&mut journal);
            pair.assert_as(&names, &before, &format!("after {fault:?}: {:?}", plan.steps[step]));
        }
    }
}
