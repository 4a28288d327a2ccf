//! All checks on a window, and the order of what they found.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::{Finding, Severity, Window, all};

/// What was found, and what could not be looked at.
#[derive(Debug)]
pub struct Diagnosis {
    /// Warnings first, causes before their consequences, then by impact.
    pub findings: Vec<Finding>,
    /// What could not be seen, and why.
    pub unseen: Vec<String>,
    /// Between the two looks.
    pub seconds: f64,
    /// Which kernel (`uname -r`).
    pub kernel: String,
}

/// Runs every check.
pub fn diagnose(window: &Window<'_>) -> Diagnosis {
    let mut findings: Vec<Finding> = Vec::new();
    for check in all() {
        let found = (check.run)(window);
        findings.extend(found.into_iter().map(|seen| Finding { check, seen, because_of: Vec::new() }));
    }
    let warnings: BTreeSet<&str> =
        findings.iter().filter(|finding| finding.is_warning()).map(|finding| finding.check.code).collect();
    for finding in &mut findings {
        let causes = finding.check.follows.iter().filter(|code| warnings.contains(*code));
        finding.because_of = causes.copied().collect();
    }
    // Impacts are no integers, and none is infinite or not a number (Seen sees to that).
    let thousandths = |finding: &Finding| -> i64 { (finding.seen.impact * 1000.0) as i64 };
    findings.sort_by_key(|finding| {
        (
            Reverse(finding.seen.severity),
            !finding.because_of.is_empty(),
            Reverse(thousandths(finding)),
            finding.check.code,
        )
    });
    let mut unseen = window.after.unseen.clone();
    unseen.extend(window.before.unseen.iter().filter(|text| !window.after.unseen.contains(text)).cloned());
    Diagnosis { findings, unseen, seconds: window.seconds(), kernel: window.after.kernel.clone() }
}

impl Finding {
    /// Whether it is a warning.
    pub fn is_warning(&self) -> bool {
        self.seen.severity == Severity::Warning
    }
}
