//! The proposals of `hostgap doctor --json`, and which of them apply to this host now.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use linux::sysctl;
use record::Asked;
use serde::Deserialize;
use tune::{Scope, Setting, WantedSetting};

use crate::{HostError, Request, Wish, Wishes};

/// The output of a diagnosis, read from a file.
#[derive(Debug)]
pub struct Findings {
    /// The file from which they were read, for messages.
    path: PathBuf,
    document: Document,
}

/// The output of doctor; only the fields that matter here. All are optional, so that a file written by hand works too.
#[derive(Debug, Deserialize)]
struct Document {
    #[serde(default)]
    boot_id: Option<String>,
    #[serde(default)]
    netns: Option<String>,
    findings: Vec<Finding>,
}

#[derive(Debug, Deserialize)]
#[serde(default)]
struct Finding {
    code: String,
    severity: String,
    title: String,
    device: Option<String>,
    because_of: Vec<String>,
    proposals: Vec<Proposed>,
}

#[derive(Debug, Deserialize)]
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

impl Findings {
    /// Reads what was in the file at `path`.
    ///
    /// # Errors
    /// [`HostError::Asked`]: the text is not what `hostgap doctor --json` writes.
    pub fn parse(path: &Path, text: &str) -> Result<Findings, HostError> {
        let bad = |error: serde_json::Error| bad(path, &error);
        let report: serde_json::Value = serde_json::from_str(text).map_err(bad)?;
        if !report["findings"].is_array() {
            return Err(self::bad(
                path,
                &"there is no list \"findings\"; `hostgap doctor --json` writes one",
            ));
        }
        let document = serde_json::from_value(report).map_err(bad)?;
        Ok(Findings { path: path.to_owned(), document })
    }

    /// The settings that findings propose, the first for each knob, since findings are sorted by impact; and the
    /// proposals that are left out, with the reasons.
    pub(crate) fn wishes(&self, request: &Request) -> Result<Wishes, HostError> {
        let document = &self.document;
        if let Some(why) = elsewhere(document, request)? {
            return Err(bad(&self.path, &why));
        }
        let mut wishes = Wishes { device: device(document, request), ..Wishes::default() };
        for finding in &document.findings {
            for proposed in &finding.proposals {
                let setting = Setting::asked(&proposed.knob, &proposed.value)
                    .map_err(|error| bad(&self.path, &format_args!("{}: {error}", finding.code)))?;
                let known = |wish: &Wish| wish.wanted.setting.knob == setting.knob;
                match against(finding, &setting, document, &wishes, request) {
                    Some(why) => wishes.left_out.push((setting, format!("{}: {why}", finding.code))),
                    None if wishes.wishes.iter().any(known) => {}
                    None => {
                        let why = format!("{} {}", finding.code, finding.title).trim().to_owned();
                        let route = proposed.route.or(request.route);
                        let wanted = WantedSetting { setting, at_least: false, route, why };
                        wishes.wishes.push(Wish { wanted, is_named: false });
                    }
                }
            }
        }
        Ok(wishes)
    }
}

fn bad(path: &Path, what: &dyn Display) -> HostError {
    HostError::Asked(format!("findings {}: {what}", path.display()))
}

/// Why the findings are not about the host or namespace to be tuned.
fn elsewhere(document: &Document, request: &Request) -> Result<Option<String>, linux::Error> {
    let key = sysctl::Key::new("kernel/random/boot_id").expect("a constant key is a path");
    let here = sysctl::read(&key)?;
    if let (Some(then), Some(here)) = (&document.boot_id, here)
        && then != here.trim()
    {
        let text = "they were made on another machine, or before the last restart of this one: make them again with \
                    `hostgap doctor --json`";
        return Ok(Some(text.to_owned()));
    }
    Ok(match (&document.netns, &request.netns) {
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
fn device(document: &Document, request: &Request) -> Option<String> {
    let weightiest = || {
        let mut findings = document.findings.iter().filter(|finding| is_taken(finding, request));
        findings.find_map(|finding| finding.device.clone().filter(|_| !finding.proposals.is_empty()))
    };
    request.device.clone().or_else(weightiest)
}

fn is_taken(finding: &Finding, request: &Request) -> bool {
    finding.severity == "warning" || request.all_findings
}

/// Why a proposal is left out.
fn against(
    finding: &Finding,
    setting: &Setting,
    document: &Document,
    wishes: &Wishes,
    request: &Request,
) -> Option<String> {
    if !is_taken(finding, request) {
        return Some("its finding is no warning; --all-findings includes it".to_owned());
    }
    let is_cause = |other: &&Finding| {
        finding.because_of.contains(&other.code) && is_taken(other, request) && !other.proposals.is_empty()
    };
    if let Some(cause) = document.findings.iter().find(is_cause) {
        return Some(format!(
            "probably caused by {}: fix that first, then run `hostgap doctor` again",
            cause.code
        ));
    }
    let of_link = matches!(setting.knob.scope(), Some(Scope::Link | Scope::Queue));
    match (&finding.device, &wishes.device) {
        (Some(theirs), Some(ours)) if of_link && theirs != ours => {
            Some(format!("it is about link {theirs}: use --dev {theirs}"))
        }
        _ => None,
    }
}
