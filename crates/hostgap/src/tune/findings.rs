//! `--from-findings`: the proposals of `hostgap doctor --json` that apply to this host now.

use std::path::Path;

use ::record::Asked;
use ::tune::{Scope, Setting, Wanted};
use ipnet::IpNet;
use linux::sysctl;
use serde::Deserialize;

use super::request::{Request, RequestArgs, Requests};
use crate::exit::BadInput;

/// The output of doctor; only the fields that matter here. All are optional, so that a file written by hand works too.
#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    boot_id: Option<String>,
    #[serde(default)]
    netns: Option<String>,
    findings: Vec<Finding>,
}

#[derive(Deserialize)]
#[serde(default)]
struct Finding {
    code: String,
    severity: String,
    title: String,
    device: Option<String>,
    because_of: Vec<String>,
    proposals: Vec<Proposed>,
}

#[derive(Deserialize)]
struct Proposed {
    knob: String,
    value: Asked,
    #[serde(default)]
    route: Option<IpNet>,
}

impl Default for Finding {
    fn default() -> Self {
        Finding {
            code: "a finding".to_owned(),
            severity: "warning".to_owned(),
            title: String::new(),
            device: None,
            because_of: Vec::new(),
            proposals: Vec::new(),
        }
    }
}

/// The settings that findings propose, the first for each knob, since findings are sorted by impact; and the proposals
/// that are left out, with the reasons.
pub(super) fn read(path: &Path, asked: &RequestArgs) -> anyhow::Result<Requests> {
    let text = crate::input::text("findings", path)?;
    let bad = |what: String| BadInput(format!("findings {}: {what}", path.display()));
    let report: serde_json::Value = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
    if !report["findings"].is_array() {
        return Err(
            bad("there is no list \"findings\"; `hostgap doctor --json` writes one".to_owned()).into()
        );
    }
    let document: Document = serde_json::from_value(report).map_err(|error| bad(error.to_string()))?;
    if let Some(why) = elsewhere(&document, asked)? {
        return Err(bad(why).into());
    }
    let mut wishes = Requests { device: device(&document, asked), ..Requests::default() };
    for finding in &document.findings {
        for proposed in &finding.proposals {
            let setting = Setting::asked(&proposed.knob, &proposed.value)
                .map_err(|error| bad(format!("{}: {error}", finding.code)))?;
            let known = |wish: &Request| wish.wanted.setting.knob == setting.knob;
            match against(finding, &setting, &document, &wishes, asked) {
                Some(why) => wishes.left_out.push((setting, format!("{}: {why}", finding.code))),
                None if wishes.wishes.iter().any(known) => {}
                None => {
                    let why = format!("{} {}", finding.code, finding.title).trim().to_owned();
                    let route = proposed.route.or(asked.route);
                    let wanted = Wanted { setting, at_least: false, route, why };
                    wishes.wishes.push(Request { wanted, is_named: false });
                }
            }
        }
    }
    Ok(wishes)
}

/// Why the findings are not about the host or namespace to be tuned.
fn elsewhere(document: &Document, asked: &RequestArgs) -> anyhow::Result<Option<String>> {
    let key = sysctl::Key::new("kernel/random/boot_id").expect("a constant key is a path");
    let here = sysctl::read(&key)?;
    if let (Some(then), Some(here)) = (&document.boot_id, here)
        && then != here.trim()
    {
        let text = "they were made on another machine, or before the last restart of this one: make them again with \
                    `hostgap doctor --json`";
        return Ok(Some(text.to_owned()));
    }
    Ok(match (&document.netns, &asked.netns) {
        (Some(theirs), ours) if Some(theirs) != ours.as_ref() => {
            Some(format!("they are about namespace {theirs}: add --netns {theirs}"))
        }
        (None, Some(ours)) if document.boot_id.is_some() => {
            Some(format!("they are not about namespace {ours}: use `hostgap doctor --netns {ours} --json`"))
        }
        _ => None,
    })
}

/// The link to be tuned: the one that was named, otherwise that of the first finding about a link.
fn device(document: &Document, asked: &RequestArgs) -> Option<String> {
    let weightiest = || {
        let mut findings = document.findings.iter().filter(|finding| is_taken(finding, asked));
        findings.find_map(|finding| finding.device.clone().filter(|_| !finding.proposals.is_empty()))
    };
    asked.dev.clone().or_else(weightiest)
}

fn is_taken(finding: &Finding, asked: &RequestArgs) -> bool {
    finding.severity == "warning" || asked.all_findings
}

/// Why a proposal is left out.
fn against(
    finding: &Finding,
    setting: &Setting,
    document: &Document,
    wishes: &Requests,
    asked: &RequestArgs,
) -> Option<String> {
    if !is_taken(finding, asked) {
        return Some("its finding is no warning; --all-findings includes it".to_owned());
    }
    let is_cause = |other: &&Finding| {
        finding.because_of.contains(&other.code) && is_taken(other, asked) && !other.proposals.is_empty()
    };
    if let Some(cause) = document.findings.iter().find(is_cause) {
        return Some(format!("probably a consequence of {}: fix that first, and diagnose again", cause.code));
    }
    let of_link = matches!(setting.knob.scope(), Some(Scope::Link | Scope::Queue));
    match (&finding.device, &wishes.device) {
        (Some(theirs), Some(ours)) if of_link && theirs != ours => {
            Some(format!("it is about link {theirs}: use --dev {theirs}"))
        }
        _ => None,
    }
}
