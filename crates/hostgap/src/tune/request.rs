//! The requested settings: a profile, findings, single settings.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::record::Asked;
use ::tune::{PROFILES, Profile, Setting, Wanted};
use ipnet::IpNet;

use super::findings;
use crate::exit::BadInput;
use crate::speak;

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

/// A requested setting.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) wanted: Wanted,
    /// Named by the user: if it cannot be made, that is an error, not a reason to leave it out.
    pub(super) is_named: bool,
}

/// All requested settings.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// In the order in which they are to be made.
    pub(super) wishes: Vec<Request>,
    /// The link that the findings are about, where one is named.
    pub(super) device: Option<String>,
    /// Proposals of findings that are left out, and why.
    pub(super) left_out: Vec<(Setting, String)>,
}

impl RequestArgs {
    /// Reads it all.
    pub(super) fn wishes(&self) -> anyhow::Result<Requests> {
        let mut all = match &self.from_findings {
            Some(path) => findings::read(path, self)?,
            None => Requests { device: self.dev.clone(), ..Requests::default() },
        };
        let found = std::mem::take(&mut all.wishes);
        let wish = |wanted: Wanted, is_named| {
            let route = wanted.route.or(self.route);
            Request { wanted: Wanted { route, ..wanted }, is_named }
        };
        if let Some(profile) = &self.profile {
            read(profile)?.wanted.into_iter().for_each(|wanted| add(&mut all.wishes, wish(wanted, false)));
        }
        found.into_iter().for_each(|found| add(&mut all.wishes, found));
        for text in &self.set {
            add(&mut all.wishes, wish(single(text)?, true));
        }
        if all.wishes.is_empty() && self.profile.is_none() && self.from_findings.is_none() {
            let names: Vec<&str> = PROFILES.iter().map(|(name, _)| *name).collect();
            let text =
                format!("nothing to do: name a profile ({}), or use --set KNOB=VALUE", names.join(", "));
            return Err(BadInput(text).into());
        }
        all.wishes.sort_by_key(|wish| wish.wanted.setting.rank());
        Ok(all)
    }
}

/// `hostgap tune profiles`.
pub(super) fn profiles(name: Option<&str>) -> anyhow::Result<ExitCode> {
    for (own, _) in PROFILES.iter().filter(|(own, _)| name.is_none_or(|name| name == *own)) {
        let profile = read(own)?;
        speak::result(format_args!("{own}\n  {}", profile.about))?;
        for Wanted { setting, at_least, why, .. } in &profile.wanted {
            let least = if *at_least { "at least " } else { "" };
            speak::result(format_args!("  {} = {least}{}\n      {why}", setting.knob.id, setting.value))?;
        }
        for left_out in &profile.left_out {
            speak::result(format_args!("  not {}\n      {}", left_out.what, left_out.why))?;
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

/// A later setting of a knob replaces an earlier one.
fn add(wishes: &mut Vec<Request>, wish: Request) {
    wishes.retain(|other| other.wanted.setting.knob != wish.wanted.setting.knob);
    wishes.push(wish);
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
    ::tune::nearest_profile(name).map_or_else(String::new, |near| format!(", did you mean {near:?}?"))
}

fn single(text: &str) -> anyhow::Result<Wanted> {
    let Some((knob, value)) = text.split_once('=') else {
        return Err(BadInput(format!("--set {text}: KNOB=VALUE is expected")).into());
    };
    if plan::is_about_code(knob.trim()) {
        let text = format!(
            "--set {text}: this parameter decides which code runs, or how it is protected; hostgap never writes it"
        );
        return Err(BadInput(text).into());
    }
    let setting = Setting::asked(knob.trim(), &Asked::Text(value.to_owned()));
    let setting = setting.map_err(|error| BadInput(format!("--set {text}: {error}")))?;
    Ok(Wanted { setting, at_least: false, route: None, why: "as asked".to_owned() })
}
