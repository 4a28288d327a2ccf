//! The requested settings: a profile, findings, single settings.

use ipnet::IpNet;
use tune::{PROFILES, Profile, Setting, WantedSetting};

use crate::{Findings, HostError};

/// What is to be set, and where.
#[derive(Debug, Default)]
pub struct Request {
    /// Settings for a purpose.
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

/// A requested setting.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Wish {
    pub wanted: WantedSetting,
    /// Named by the user: if it cannot be made, that is an error, not a reason to leave it out.
    pub is_named: bool,
}

/// All requested settings, each knob once.
#[derive(Debug, Default)]
pub struct Wishes {
    /// In the order in which they are to be made.
    pub wishes: Vec<Wish>,
    /// The link, where the request or its findings name one.
    pub device: Option<String>,
    /// Proposals of findings that are left out, and why.
    pub left_out: Vec<(Setting, String)>,
}

impl Request {
    /// The settings of all sources, in the order in which they are to be made.
    ///
    /// # Errors
    /// [`HostError::Asked`]: nothing is requested, or the findings are about another host or propose what cannot be
    /// set. [`HostError::Linux`]: this host's identity cannot be read.
    pub fn wishes(&self) -> Result<Wishes, HostError> {
        let mut all = match &self.findings {
            Some(findings) => findings.wishes(self)?,
            None => Wishes { device: self.device.clone(), ..Wishes::default() },
        };
        let found = std::mem::take(&mut all.wishes);
        let wish = |wanted: &WantedSetting, is_named| {
            let route = wanted.route.or(self.route);
            Wish { wanted: WantedSetting { route, ..wanted.clone() }, is_named }
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
            return Err(HostError::Asked(text));
        }
        all.wishes.sort_by_key(|wish| wish.wanted.setting.rank());
        Ok(all)
    }
}
