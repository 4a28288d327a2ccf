//! A request for settings: a profile, findings, single settings.

use ipnet::IpNet;
use tune::{Profile, WantedSetting};

use crate::Findings;

/// What is to be set, and where.
#[derive(Debug, Default)]
pub struct TuningRequest {
    /// The profile whose settings are asked for.
    pub profile: Option<Profile>,
    /// What a diagnosis proposes; it takes precedence over the profile.
    pub findings: Option<Findings>,
    /// Whether the proposals of findings that are no warnings count too.
    pub all_findings: bool,
    /// Single settings; they take precedence over findings and profile.
    pub set: Vec<WantedSetting>,
    /// The name of the link; `None` for the one that the findings are about, or that of the default route.
    pub device: Option<String>,
    /// The only route on which properties of routes are set, unless a setting names another; `None` for all over the
    /// link.
    pub route: Option<IpNet>,
    /// The name of the namespace; `None` for the one in which this process is.
    pub netns: Option<String>,
}
