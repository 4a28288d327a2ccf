//! A plan there and back: applied up to a fault, then undone from its journal's file.

use plan::{Fault, Journal, Kernel, Plan, apply, undo};

/// Applies a plan up to a fault, runs `between`, and undoes it from the file.
pub(crate) fn there_and_back(plan: &Plan, fault: Fault, between: impl FnOnce()) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let mut journal = Journal::create(&path).unwrap();
    let mut kernel = Kernel::new().unwrap();
    kernel.inject(fault);
    let applied = apply(plan, &mut journal, &mut kernel);
    assert_eq!(applied.is_ok(), fault == Fault::None, "{applied:?}");
    between();
    drop(journal);
    let mut journal = Journal::open(&path).unwrap();
    let results = undo(&mut journal, &mut Kernel::new().unwrap());
    assert!(results.iter().all(|(_, undone)| undone.is_final()), "{results:?}");
    assert!(journal.is_undone());
}
