//! The result as JSON; docs/json.md describes the fields.

use ::conformance::{Case, Conformance, Outcome, Report, Subject};
use serde_json::{Value, json};

pub(super) fn conformance(subject: &Subject, found: &Conformance) -> Value {
    let count = |is_so: fn(&Outcome) -> bool| super::count(found, is_so);
    json!({
        "schema": 1,
        "plugin": subject.program,
        "configuration": subject.conf,
        "supported_versions": found.supported,
        "version": found.version,
        "passed": count(|outcome| *outcome == Outcome::Passed),
        "failed": count(|outcome| matches!(outcome, Outcome::Failed(_))),
        "not_applicable": count(|outcome| matches!(outcome, Outcome::NotApplicable { .. })),
        "undecided": count(|outcome| matches!(outcome, Outcome::Undecided { .. })),
        "cases": found.reports.iter().map(report).collect::<Vec<_>>(),
    })
}

/// The document of `--list --json`: the cases without outcomes.
pub(super) fn list(cases: &[&Case]) -> Value {
    json!({ "schema": 1, "cases": cases.iter().map(|one| case(one)).collect::<Vec<_>>() })
}

fn report(report: &Report) -> Value {
    let mut value = case(report.case);
    if let Ok(Value::Object(outcome)) = serde_json::to_value(&report.outcome) {
        let fields = value.as_object_mut().expect("a case is an object");
        fields.extend(outcome);
    }
    value
}

fn case(case: &Case) -> Value {
    json!({
        "id": case.id,
        "title": case.title,
        "section": case.section,
        "sentence": case.sentence,
        "demand": case.demand,
        "since": case.since,
    })
}
