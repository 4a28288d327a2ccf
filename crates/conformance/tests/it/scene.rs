//! Plugins for tests, and what is found of them.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use conformance::{Case, Conformance, Defaults, Options, Outcome, Subject, run, search_path};
use testkit::{require_root, skip};

/// Where Debian's package containernetworking-plugins has them.
const DEBIANS: &str = "/usr/lib/cni";

/// A plugin of Debian; `None`, with the skip recorded, where it is not installed, or without root.
pub(crate) fn debians(name: &str) -> Option<PathBuf> {
    let path = Path::new(DEBIANS).join(name);
    if !path.exists() {
        skip(&format!("{} is not installed (containernetworking-plugins)", path.display()));
        return None;
    }
    require_root().then_some(path)
}

/// A plugin with the default configuration for its name.
pub(crate) fn subject(program: &Path) -> Subject {
    let defaults = Defaults { attach: "ptp".to_owned() };
    Subject::by_name(program, search_path(program, None), &defaults).unwrap()
}

/// A script that stands between a case and Debian's ptp, `$REAL`.
pub(crate) fn wrapped(dir: &Path, script: &str) -> Subject {
    let program = dir.join("ptp");
    std::fs::write(&program, format!("#!/bin/sh\nREAL={DEBIANS}/ptp\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    subject(&program)
}

pub(crate) fn found(subject: &Subject, cases: &[&'static Case]) -> Conformance {
    let options = Options { jobs: 2, stop: &AtomicBool::new(false) };
    let found = run(subject, cases, &options, |_| {}).unwrap();
    for report in &found.reports {
        assert!(
            !matches!(report.outcome, Outcome::Undecided { .. }),
            "{}: {:?}",
            report.case.id,
            report.outcome
        );
    }
    found
}

/// The cases that failed.
pub(crate) fn failed(found: &Conformance) -> BTreeSet<&'static str> {
    let failed = found.reports.iter().filter(|report| matches!(report.outcome, Outcome::Failed(_)));
    failed.map(|report| report.case.id).collect()
}

/// The cases that do not apply.
pub(crate) fn not_applicable(found: &Conformance) -> BTreeSet<&'static str> {
    let others =
        found.reports.iter().filter(|report| matches!(report.outcome, Outcome::NotApplicable { .. }));
    others.map(|report| report.case.id).collect()
}
