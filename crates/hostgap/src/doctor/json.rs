//! A diagnosis as JSON; docs/json.md describes the fields.

use doctor::{Check, Diagnosis, Finding, Severity};
use serde_json::{Value, json};

pub(super) fn diagnosis(diagnosis: &Diagnosis) -> Value {
    let of = |severity| diagnosis.findings.iter().filter(|finding| finding.seen.severity == severity).count();
    json!({
        "schema": 1,
        "kernel": diagnosis.kernel,
        "boot_id": Some(&diagnosis.boot_id).filter(|id| !id.is_empty()),
        "netns": diagnosis.netns,
        "window_s": diagnosis.seconds,
        "warnings": of(Severity::Warning),
        "findings": diagnosis.findings.iter().map(finding).collect::<Vec<_>>(),
        "unseen": diagnosis.unseen,
        "not_judged": diagnosis.blind,
    })
}

fn finding(finding: &Finding) -> Value {
    let (check, seen) = (finding.check, &finding.seen);
    let subject = Some(&seen.subject).filter(|subject| !subject.is_empty());
    json!({
        "code": check.code,
        "severity": seen.severity,
        "title": check.title,
        "subject": subject,
        "device": finding.device,
        "impact": seen.impact,
        "evidence": seen.evidence,
        "why": check.why,
        "remedy": finding.remedy(),
        "proposals": seen.proposals,
        "verify": check.verify,
        "because_of": finding.because_of,
    })
}

pub(super) fn check(check: &'static Check) -> Value {
    json!({
        "code": check.code,
        "title": check.title,
        "why": check.why,
        "remedy": check.remedy,
        "knobs": check.knobs,
        "verify": check.verify,
        "follows": check.follows,
        "source": check.source,
    })
}
