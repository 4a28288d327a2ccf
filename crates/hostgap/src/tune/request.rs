//! The requested settings as they are typed, and the list of profiles.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::record::RequestedValue;
use ::tune::{PROFILES, Profile, Setting, WantedSetting};
use host::{Findings, Proposal, TuningRequest};
use ipnet::IpNet;

use crate::exit::{BadInput, Unprivileged};
use crate::output;

#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct RequestArgs {
    /// A profile: latency, throughput, many-connections, wan, or a file of your own (docs/tune.md).
    pub(super) profile: Option<String>,
    /// A single setting, which takes precedence over findings and profile; may be given several times.
    #[arg(long, value_name = "KNOB=VALUE")]
    pub(super) set: Vec<String>,
    /// The settings that `hostgap doctor --json` proposes for its warnings.
    #[arg(long, value_name = "FILE")]
    pub(super) from_findings: Option<PathBuf>,
    /// With --from-findings, also those proposed by findings that are no warnings.
    #[arg(long, requires = "from_findings")]
    pub(super) all_findings: bool,
    /// The link to the network [default: that of the default route].
    #[arg(long, value_name = "LINK")]
    pub(super) dev: Option<String>,
    /// Set properties of routes only on the route to this destination, for example 10.0.0.0/8 [default: on all routes
    /// over the link, but rto_min never on the default route].
    #[arg(long, value_name = "CIDR")]
    pub(super) route: Option<IpNet>,
    /// A named network namespace instead of this one.
    #[arg(long, value_name = "NAME")]
    pub(super) netns: Option<String>,
}

impl RequestArgs {
    /// The same with profile and findings read.
    pub(super) fn request(&self) -> anyhow::Result<TuningRequest> {
        let findings = self.from_findings.as_ref().map(|path| -> anyhow::Result<Findings> {
            Ok(Findings::parse(path, &crate::input::text("findings", path)?)?)
        });
        Ok(TuningRequest {
            findings: findings.transpose()?,
            all_findings: self.all_findings,
            profile: self.profile.as_deref().map(read).transpose()?,
            set: self.set.iter().map(|text| single(text)).collect::<Result<_, _>>()?,
            device: self.dev.clone(),
            route: self.route,
            netns: self.netns.clone(),
        })
    }

    /// What the request would change here.
    pub(super) fn proposal(&self) -> anyhow::Result<Proposal> {
        linux::process::require_network_admin().map_err(Unprivileged::to_see_queues)?;
        Ok(Proposal::of(&self.request()?)?)
    }
}

pub(super) fn profiles(name: Option<&str>) -> anyhow::Result<ExitCode> {
    for (own, _) in PROFILES.iter().filter(|(own, _)| name.is_none_or(|name| name == *own)) {
        let profile = read(own)?;
        output::result(format_args!("{own}\n  {}", profile.about))?;
        for WantedSetting { setting, at_least, why, .. } in &profile.wanted {
            let least = if *at_least { "at least " } else { "" };
            output::result(format_args!("  {} = {least}{}\n      {why}", setting.knob.id, setting.value))?;
        }
        for left_out in &profile.left_out {
            output::result(format_args!("  not {}\n      {}", left_out.what, left_out.why))?;
        }
    }
    match name.filter(|name| !PROFILES.iter().any(|(own, _)| own == name)) {
        Some(name) => {
            let text = format!("there is no profile {name:?} of hostgap's own{}", did_you_mean(name));
            Err(BadInput(text).into())
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

fn read(name: &str) -> anyhow::Result<Profile> {
    if let Some((_, text)) = PROFILES.iter().find(|(own, _)| *own == name) {
        return Ok(Profile::read(text).expect("a test reads every profile of ours"));
    }
    let path = Path::new(name);
    if !path.exists() {
        let names: Vec<&str> = PROFILES.iter().map(|(name, _)| *name).collect();
        let (hint, names) = (did_you_mean(name), names.join(", "));
        let text = format!("there is no profile and no file {name:?}{hint}; hostgap's own are {names}");
        return Err(BadInput(text).into());
    }
    let text = crate::input::text("profile", path)?;
    Profile::read(&text).map_err(|error| BadInput(format!("profile {name}, {error}")).into())
}

fn did_you_mean(name: &str) -> String {
    record::did_you_mean(::tune::nearest_profile(name).map(|near| format!("{near:?}")))
}

fn single(text: &str) -> anyhow::Result<WantedSetting> {
    let Some((knob, value)) = text.split_once('=') else {
        return Err(BadInput(format!("--set {text}: KNOB=VALUE is expected")).into());
    };
    if plan::is_about_code(knob.trim()) {
        let text = format!(
            "--set {text}: this parameter decides which code runs, or how it is protected; hostgap never writes it"
        );
        return Err(BadInput(text).into());
    }
    let setting = Setting::named(knob.trim(), &RequestedValue::Text(value.to_owned()));
    let setting = setting.map_err(|error| BadInput(format!("--set {text}: {error}")))?;
    Ok(WantedSetting { setting, at_least: false, route: None, why: "as asked".to_owned() })
}
