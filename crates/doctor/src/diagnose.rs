//! All checks on a window, and the order of what they found.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use linux::NetnsName;

use crate::{Finding, Severity, Window, all};

/// What was found, and what could not be read.
#[derive(Debug)]
pub struct Diagnosis {
    /// Warnings first, causes before their consequences, then by impact.
    pub findings: Vec<Finding>,
    /// What could not be seen, and why.
    pub unseen: Vec<String>,
    /// Parts of the network that could not be judged at all ([`Snapshot::blind`](crate::Snapshot::blind)). If it is
    /// not empty, the absence of warnings does not mean that all is well.
    pub blind: Vec<&'static str>,
    /// Seconds between the two snapshots.
    pub seconds: f64,
    /// The release of the kernel (`uname -r`).
    pub kernel: String,
    /// The boot of the machine that was read (`/proc/sys/kernel/random/boot_id`); empty if that file was not readable.
    pub boot_id: String,
    /// The name of the network namespace, if it was named.
    pub netns: Option<NetnsName>,
}

/// Runs every check of [`TABLE`](crate::TABLE), causes before consequences.
pub fn diagnose(window: &Window<'_>) -> Diagnosis {
    let mut findings: Vec<Finding> = Vec::new();
    let is_link = |name: &String| window.after.devices.iter().any(|device| device.name.as_str() == name);
    for check in all() {
        findings.extend((check.run)(window).into_iter().map(|seen| {
            let device = Some(seen.subject.clone()).filter(is_link);
            Finding { check, seen, device, because_of: Vec::new() }
        }));
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
    let boot_id = window.after.sysctls.get("kernel/random/boot_id").cloned().unwrap_or_default();
    let (kernel, netns) = (window.after.kernel.clone(), window.after.netns.clone());
    let mut blind = window.after.blind();
    let before = window.before.blind();
    blind.extend(before.into_iter().filter(|what| !window.after.blind().contains(what)));
    Diagnosis { findings, unseen, blind, seconds: window.seconds(), kernel, boot_id, netns }
}

impl Finding {
    /// Whether it is a warning.
    pub fn is_warning(&self) -> bool {
        self.seen.severity == Severity::Warning
    }
}
