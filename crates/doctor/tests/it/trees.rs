//! Trees that were collected.

use doctor::{DoctorError, Place, Window, collect, diagnose, open};

#[test]
fn a_collected_tree_is_diagnosed_as_its_machine_was() {
    let place = Place::here();
    let (before, after) = (place.look().unwrap(), place.look().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    collect(&tree, &before, &after).unwrap();
    let (first, second) = open(&tree).unwrap();
    // The same in all that is read: two trees of Debug text.
    assert_eq!(format!("{first:#?}"), format!("{:#?}", before.0));
    assert_eq!(format!("{second:#?}"), format!("{:#?}", after.0));
    let there = diagnose(&Window { before: &before.0, after: &after.0 });
    let here = diagnose(&Window { before: &first, after: &second });
    assert_eq!(format!("{:?}", here.findings), format!("{:?}", there.findings));
    let error = collect(&tree, &before, &after).unwrap_err();
    assert!(matches!(error, DoctorError::Occupied(_)), "{error}");
}

#[test]
fn what_is_no_tree_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let check = |text: &str, expected: &str| {
        std::fs::write(directory.path().join("collected.json"), text).unwrap();
        let error = open(directory.path()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    assert!(open(directory.path()).unwrap_err().to_string().starts_with("read "));
    check("{", "is no part of a collected tree");
    check("{\"schema\": 9, \"before_ns\": 0, \"after_ns\": 1}", "its schema is 9");
    check("{\"schema\": 1, \"before_ns\": 0, \"after_ns\": 1}", "answers.json");
}
