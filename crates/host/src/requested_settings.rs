//! What is to be set: the settings of a request's sources, each knob once.

use ipnet::IpNet;
use linux::sysctl;
use serde::Serialize;
use tune::{PROFILES, Scope, Setting, TuneError, WantedSetting};

use crate::findings::{Document, Finding};
use crate::{Findings, HostError, TuningRequest};

/// A setting that the user, a profile or a finding asks for.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the names say it")]
pub struct RequestedSetting {
    pub wanted: WantedSetting,
    /// Named by the user: if it cannot be made, that is an error, not a reason to leave it out.
    pub is_named: bool,
}

/// All requested settings, each knob once.
#[derive(Debug, Default)]
pub struct RequestedSettings {
    /// In the order in which they are to be made.
    pub wishes: Vec<RequestedSetting>,
    /// The link, where the request or its findings name one.
    pub device: Option<String>,
    /// Proposals of findings that are left out, and why.
    pub left_out: Vec<Skipped>,
}

/// A setting that is not made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Skipped {
    pub knob: String,
    /// As it was requested; perhaps none that the knob takes.
    pub value: String,
    pub why: String,
}

impl Skipped {
    pub(crate) fn of(setting: &Setting, why: String) -> Skipped {
        Skipped { knob: setting.knob.id.to_owned(), value: setting.value.to_string(), why }
    }
}

impl TuningRequest {
    /// The settings of all sources, in the order in which they are to be made.
    ///
    /// # Errors
    /// [`HostError::BadRequest`]: nothing is requested, or the findings are about another host or name a knob that does
    /// not exist. [`HostError::Linux`]: this host's identity cannot be read.
    pub fn wishes(&self) -> Result<RequestedSettings, HostError> {
        let mut all = match &self.findings {
            Some(findings) => of_findings(findings, self)?,
            None => RequestedSettings { device: self.device.clone(), ..RequestedSettings::default() },
        };
        let found = std::mem::take(&mut all.wishes);
        let wish = |wanted: &WantedSetting, is_named| {
            let route = wanted.route.or(self.route);
            RequestedSetting { wanted: WantedSetting { route, ..wanted.clone() }, is_named }
        };
        let of_profile = self.profile.iter().flat_map(|profile| &profile.wanted);
        let of_profile = of_profile.map(|wanted| wish(wanted, false));
        let named = self.set.iter().map(|wanted| wish(wanted, true));
        for wish in of_profile.chain(found).chain(named) {
            // A later setting of a knob replaces an earlier one.
            all.wishes.retain(|other| other.wanted.setting.knob != wish.wanted.setting.knob);
            all.wishes.push(wish);
        }
        if all.wishes.is_empty() && self.profile.is_none() && self.findings.is_none() {
            let names: Vec<&str> = PROFILES.iter().map(|(name, _)| *name).collect();
            let text =
                format!("nothing to do: name a profile ({}), or use --set KNOB=VALUE", names.join(", "));
            return Err(HostError::BadRequest(text));
        }
        all.wishes.sort_by_key(|wish| wish.wanted.setting.rank());
        Ok(all)
    }
}

/// What a request's findings propose, the first for each knob, since findings are sorted by impact; and the
/// proposals that are left out, with the reasons.
fn of_findings(findings: &Findings, request: &TuningRequest) -> Result<RequestedSettings, HostError> {
    let document = &findings.document;
    if let Some(why) = elsewhere(document, request)? {
        return Err(findings.bad(&why));
    }
    let mut wishes = RequestedSettings { device: device(document, request), ..RequestedSettings::default() };
    for finding in &document.findings {
        for proposed in &finding.proposals {
            let setting = match Setting::named(&proposed.knob, &proposed.value) {
                Ok(setting) => setting,
                // A value that its knob does not take says nothing about the other proposals.
                Err(error @ (TuneError::Value { .. } | TuneError::Obsolete { .. })) => {
                    let (knob, value) = (proposed.knob.clone(), proposed.value.to_string());
                    wishes.left_out.push(Skipped { knob, value, why: format!("{}: {error}", finding.code) });
                    continue;
                }
                Err(error) => return Err(findings.bad(&format_args!("{}: {error}", finding.code))),
            };
            let route = proposed.route.or(request.route);
            let known = wishes.wishes.iter().find(|wish| wish.wanted.setting.knob == setting.knob);
            let other = known.and_then(|known| differs(&known.wanted, &setting, route));
            match against(finding, &setting, document, &wishes, request) {
                Some(why) => {
                    wishes.left_out.push(Skipped::of(&setting, format!("{}: {why}", finding.code)));
                }
                None if let Some(why) = other => {
                    wishes.left_out.push(Skipped::of(&setting, format!("{}: {why}", finding.code)));
                }
                None if known.is_some() => {}
                None => {
                    let why = format!("{} {}", finding.code, finding.title).trim().to_owned();
                    let wanted = WantedSetting { setting, at_least: false, route, why };
                    wishes.wishes.push(RequestedSetting { wanted, is_named: false });
                }
            }
        }
    }
    Ok(wishes)
}

/// Why a proposal is left out for an earlier one of the same knob, if it is not the same: a tuning sets a knob once.
fn differs(known: &WantedSetting, setting: &Setting, route: Option<IpNet>) -> Option<String> {
    if known.route != route {
        let other = route.map_or("all routes".to_owned(), |route| route.to_string());
        let first = known.route.map_or("all routes".to_owned(), |route| route.to_string());
        return Some(format!("it is for {other}, and the first of these proposals is for {first}"));
    }
    (known.setting.value != setting.value)
        .then(|| format!("the first of these proposals is {}", known.setting.value))
}

/// Why the findings are not about the host or namespace to be tuned.
fn elsewhere(document: &Document, request: &TuningRequest) -> Result<Option<String>, linux::Error> {
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
fn device(document: &Document, request: &TuningRequest) -> Option<String> {
    let weightiest = || {
        let mut findings = document.findings.iter().filter(|finding| is_taken(finding, request));
        findings.find_map(|finding| finding.device.clone().filter(|_| !finding.proposals.is_empty()))
    };
    request.device.clone().or_else(weightiest)
}

fn is_taken(finding: &Finding, request: &TuningRequest) -> bool {
    finding.severity == "warning" || request.all_findings
}

/// Why a proposal is left out.
fn against(
    finding: &Finding,
    setting: &Setting,
    document: &Document,
    wishes: &RequestedSettings,
    request: &TuningRequest,
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_value_that_its_knob_does_not_take_is_left_out_alone() {
        let text = r#"{ "findings": [
            { "code": "HG062", "proposals": [{ "knob": "somaxconn", "value": 131072 }] },
            { "code": "HG101", "proposals": [{ "knob": "tcp_mtu_probing", "value": 1 }] }
        ] }"#;
        let findings = Findings::parse(Path::new("f.json"), text).unwrap();
        let found = TuningRequest { findings: Some(findings), ..TuningRequest::default() }.wishes().unwrap();
        let knobs: Vec<_> = found.wishes.iter().map(|wish| wish.wanted.setting.knob.id).collect();
        assert_eq!(knobs, ["tcp_mtu_probing"]);
        let [left_out] = &found.left_out[..] else { panic!("{:?}", found.left_out) };
        assert_eq!((left_out.knob.as_str(), left_out.value.as_str()), ("somaxconn", "131072"));
        assert!(left_out.why.starts_with("HG062: somaxconn cannot be"), "{left_out:?}");
    }
}
