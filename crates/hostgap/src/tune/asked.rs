//! What is asked for: a profile, findings, single settings.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::record::Asked;
use ::tune::{PROFILES, Profile, Setting, Wanted};
use anyhow::Context;

use crate::exit::BadInput;
use crate::speak;

#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct AskedArgs {
    /// A profile: latency, throughput, many-connections, wan, or a file of your own (docs/tune.md).
    pub(super) profile: Option<String>,
    /// A setting, which counts more than the profile's. Again for more.
    #[arg(long, value_name = "KNOB=VALUE")]
    pub(super) set: Vec<String>,
    /// What `hostgap doctor --json` proposes.
    #[arg(long, value_name = "FILE")]
    pub(super) from_findings: Option<PathBuf>,
    /// The link to the network; without it that of the default route.
    #[arg(long, value_name = "LINK")]
    pub(super) dev: Option<String>,
    /// A named network namespace instead of this one.
    #[arg(long, value_name = "NAME")]
    pub(super) netns: Option<String>,
}

/// A setting that is asked for.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) wanted: Wanted,
    /// Named by the user: that it cannot be made is an error, and no reason to leave it out.
    pub(super) is_named: bool,
}

impl AskedArgs {
    /// Everything that is asked for, in the order in which it is to be made.
    pub(super) fn wishes(&self) -> anyhow::Result<Vec<Wish>> {
        let mut wishes: Vec<Wish> = Vec::new();
        if let Some(profile) = &self.profile {
            add(&mut wishes, read(profile)?.wanted, false);
        }
        if let Some(path) = &self.from_findings {
            add(&mut wishes, findings(path)?, false);
        }
        let set: Vec<Wanted> = self.set.iter().map(|text| single(text)).collect::<anyhow::Result<_>>()?;
        add(&mut wishes, set, true);
        if wishes.is_empty() && self.profile.is_none() && self.from_findings.is_none() {
            let names: Vec<&str> = PROFILES.iter().map(|(name, _)| *name).collect();
            let text = format!("nothing is asked for: a profile ({}), or --set KNOB=VALUE", names.join(", "));
            return Err(BadInput(text).into());
        }
        wishes.sort_by_key(|wish| wish.wanted.setting.rank());
        Ok(wishes)
    }
}

/// `hostgap tune profiles`.
pub(super) fn profiles(name: Option<&str>) -> anyhow::Result<ExitCode> {
    for (own, _) in PROFILES.iter().filter(|(own, _)| name.is_none_or(|name| name == *own)) {
        let profile = read(own)?;
        speak::result(format_args!("{own}\n  {}", profile.about))?;
        for Wanted { setting, at_least, why } in &profile.wanted {
            let least = if *at_least { "at least " } else { "" };
            speak::result(format_args!("  {} = {least}{}\n      {why}", setting.knob.id, setting.value))?;
        }
        for left_out in &profile.left_out {
            speak::result(format_args!("  not {}\n      {}", left_out.what, left_out.why))?;
        }
    }
    match name.filter(|name| !PROFILES.iter().any(|(own, _)| own == name)) {
        Some(name) => Err(BadInput(format!("there is no profile {name:?} of hostgap's own")).into()),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// A later wish for a knob counts more than an earlier one.
fn add(wishes: &mut Vec<Wish>, wanted: Vec<Wanted>, is_named: bool) {
    for wanted in wanted {
        wishes.retain(|other| other.wanted.setting.knob != wanted.setting.knob);
        wishes.push(Wish { wanted, is_named });
    }
}

fn read(name: &str) -> anyhow::Result<Profile> {
    if let Some((_, text)) = PROFILES.iter().find(|(own, _)| *own == name) {
        return Ok(Profile::read(text).expect("a test reads every profile of ours"));
    }
    let path = Path::new(name);
    if !path.exists() {
        let names: Vec<&str> = PROFILES.iter().map(|(name, _)| *name).collect();
        let text =
            format!("there is no profile and no file {name:?}; hostgap's own are {}", names.join(", "));
        return Err(BadInput(text).into());
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("could not read profile {name}"))?;
    Profile::read(&text).map_err(|error| BadInput(format!("profile {name}, {error}")).into())
}

fn single(text: &str) -> anyhow::Result<Wanted> {
    let Some((knob, value)) = text.split_once('=') else {
        return Err(BadInput(format!("--set {text}: KNOB=VALUE is expected")).into());
    };
    if plan::is_about_code(knob.trim()) {
        let text = format!(
            "--set {text}: it decides which code runs, or how it is protected; hostgap never writes it"
        );
        return Err(BadInput(text).into());
    }
    let setting = Setting::asked(knob.trim(), &Asked::Text(value.to_owned()));
    let setting = setting.map_err(|error| BadInput(format!("--set {text}: {error}")))?;
    Ok(Wanted { setting, at_least: false, why: "as asked".to_owned() })
}

/// The settings that findings propose, the first for each knob: findings come by impact.
fn findings(path: &Path) -> anyhow::Result<Vec<Wanted>> {
    let text = std::fs::read(path).with_context(|| format!("could not read findings {}", path.display()))?;
    let bad = |what: String| BadInput(format!("findings {}: {what}", path.display()));
    let report: serde_json::Value = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
    let Some(findings) = report["findings"].as_array() else {
        return Err(
            bad("there is no list \"findings\"; `hostgap doctor --json` writes one".to_owned()).into()
        );
    };
    let mut wanted: Vec<Wanted> = Vec::new();
    for finding in findings {
        let code = finding["code"].as_str().unwrap_or("a finding");
        for proposal in finding["proposals"].as_array().into_iter().flatten() {
            let (Some(knob), Some(value)) = (proposal["knob"].as_str(), proposal.get("value")) else {
                return Err(bad(format!("a proposal of {code} has no knob or no value")).into());
            };
            let value: Asked = serde_json::from_value(value.clone())
                .map_err(|_| bad(format!("the value of {knob} in {code} is none")))?;
            let setting = Setting::asked(knob, &value).map_err(|error| bad(format!("{code}: {error}")))?;
            if !wanted.iter().any(|other| other.setting.knob == setting.knob) {
                let title = finding["title"].as_str().unwrap_or_default();
                let why = format!("{code} {title}").trim().to_owned();
                wanted.push(Wanted { setting, at_least: false, why });
            }
        }
    }
    Ok(wanted)
}
