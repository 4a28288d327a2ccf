//! Profiles: settings for a purpose, each with its reason, and settings that are deliberately left out.
//!
//! A profile is a TOML file. The project's own are below `profiles` and built into the program.

use ipnet::IpNet;
use record::RequestedValue;
use serde::Deserialize;
use toml::Spanned;

use crate::{Lives, Setting, TuneError, Value, find};

/// The version of the format.
const SCHEMA: u32 = 1;

/// The project's own profiles: name and text, in display order.
pub const PROFILES: &[(&str, &str)] = &[
    ("latency", include_str!("../../../profiles/latency.toml")),
    ("throughput", include_str!("../../../profiles/throughput.toml")),
    ("many-connections", include_str!("../../../profiles/many-connections.toml")),
    ("wan", include_str!("../../../profiles/wan.toml")),
];

/// Settings for a purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Its purpose, in a sentence or two.
    pub about: String,
    /// Its settings, as they stand in the file.
    pub wanted: Vec<WantedSetting>,
    /// What others set for the same purpose and this does not.
    pub left_out: Vec<LeftOut>,
}

/// A setting that is wanted, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct WantedSetting {
    pub setting: Setting,
    /// True: a larger value stays. Kernels raise their defaults, and what was more once is less today.
    pub at_least: bool,
    /// For a property of routes: the destination of the only route to change.
    pub route: Option<IpNet>,
    pub why: String,
}

/// Something that is not set, and why not.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// What guides call it; it need not be a knob.
    pub what: String,
    /// The reason for leaving it out.
    pub why: String,
}

/// Why a text is no profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct ProfileError {
    /// The number of the line, from 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// The error, in words.
    pub what: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: Spanned<u32>,
    about: String,
    #[serde(default)]
    set: Vec<Entry>,
    #[serde(default)]
    left_out: Vec<LeftOut>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    knob: Spanned<String>,
    value: Spanned<RequestedValue>,
    #[serde(default)]
    at_least: bool,
    #[serde(default)]
    route: Option<IpNet>,
    #[serde(default)]
    why: String,
}

impl Profile {
    /// Parses a profile.
    ///
    /// # Errors
    /// The first error, with its place: invalid TOML, an unknown key, an unknown knob with the most similar one, a
    /// value that the knob does not accept, a knob that is set twice.
    pub fn read(text: &str) -> Result<Profile, ProfileError> {
        let at = |start: usize, what: String| located(text, start, what);
        let file: File = toml::from_str(text)
            .map_err(|error| at(error.span().map_or(0, |span| span.start), error.message().to_owned()))?;
        if *file.schema.get_ref() != SCHEMA {
            let what =
                format!("the profile has schema {}, this hostgap knows {SCHEMA}", file.schema.get_ref());
            return Err(at(file.schema.span().start, what));
        }
        let mut wanted: Vec<WantedSetting> = Vec::new();
        for entry in file.set {
            let place = entry.knob.span().start;
            let knob = entry.knob.into_inner();
            let setting = Setting::named(&knob, entry.value.get_ref()).map_err(|error| {
                let place =
                    if let TuneError::Value { .. } = error { entry.value.span().start } else { place };
                at(place, error.to_string())
            })?;
            if wanted.iter().any(|other| other.setting.knob == setting.knob) {
                return Err(at(place, format!("{} is set twice", setting.knob.id)));
            }
            wanted.push(WantedSetting {
                setting,
                at_least: entry.at_least,
                route: entry.route,
                why: entry.why,
            });
        }
        Ok(Profile { about: file.about, wanted, left_out: file.left_out })
    }
}

impl Setting {
    /// Parses a value for the knob with this name.
    ///
    /// # Errors
    /// The knob does not exist, is gone, or does not accept the value.
    pub fn named(knob: &str, value: &RequestedValue) -> Result<Setting, TuneError> {
        match find(knob) {
            Some(knob) => Setting::read(knob, value),
            None => Err(TuneError::Unknown { knob: knob.to_owned(), nearest: crate::setting::nearest(knob) }),
        }
    }
}

impl WantedSetting {
    /// The setting to make where the knob has a value now: of each number the larger, if larger ones are to stay.
    pub fn against(&self, now: &str) -> Setting {
        let mut setting = self.setting.clone();
        if !self.at_least {
            return setting;
        }
        let now: Option<Vec<u64>> = now.split_whitespace().map(|word| word.parse().ok()).collect();
        let Some(now) = now else { return setting };
        match (&mut setting.value, now.as_slice()) {
            (Value::Number(wanted), [now]) => *wanted = (*wanted).max(*now),
            (Value::Numbers(wanted), now) if wanted.len() == now.len() => {
                // A range of ports is larger the lower it begins.
                let ports = matches!(setting.lives, Lives::Sysctl("net/ipv4/ip_local_port_range"));
                for (at, (wanted, now)) in wanted.iter_mut().zip(now).enumerate() {
                    *wanted = if ports && at == 0 { (*wanted).min(*now) } else { (*wanted).max(*now) };
                }
            }
            _ => {}
        }
        setting
    }
}

/// The profile of ours that is nearest to a name in spelling, if one is near.
pub fn nearest_profile(unknown: &str) -> Option<&'static str> {
    record::nearest(unknown, PROFILES.iter().map(|(name, _)| *name))
}

fn located(text: &str, start: usize, what: String) -> ProfileError {
    let before = text.get(..start.min(text.len())).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.matches('\n').count() + 1;
    ProfileError { line, column: before[line_start..].chars().count() + 1, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_of_ours_is_one_and_explains_itself() {
        for (name, text) in PROFILES {
            let profile = Profile::read(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(profile.about.ends_with('.') && profile.wanted.len() >= 5, "{name}");
            let reasons =
                profile.wanted.iter().map(|one| &one.why).chain(profile.left_out.iter().map(|one| &one.why));
            assert!(reasons.into_iter().all(|why| why.ends_with('.')), "{name}");
            assert!(!profile.left_out.is_empty(), "{name}");
        }
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let error = Profile::read(text).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn mistakes_are_reported_with_their_place() {
        const HEAD: &str = "schema = 1\nabout = \"x\"\n[[set]]\n";
        check(
            &format!("{HEAD}knob = \"bsy_poll\"\nvalue = 1\n"),
            "line 4, column 8: there is no knob \"bsy_poll\", did you mean \"busy_poll\"?; `hostgap tune knobs` lists them",
        );
        check(
            &format!("{HEAD}knob = \"busy_poll\"\nvalue = -1\n"),
            "line 5, column 9: busy_poll cannot be \"-1\": a number from 0 to 10000 (microseconds) is expected",
        );
        check(
            &format!("{HEAD}knob = \"net.core.bsy_poll\"\nvalue = 1\n"),
            "line 4, column 8: there is no knob \"net.core.bsy_poll\", did you mean \"busy_poll\"?; `hostgap tune knobs` lists them",
        );
        check(
            "schema = 2\nabout = \"x\"\n",
            "line 1, column 10: the profile has schema 2, this hostgap knows 1",
        );
        let twice = "knob = \"busy_poll\"\nvalue = 1\n";
        check(&format!("{HEAD}{twice}[[set]]\n{twice}"), "line 7, column 8: busy_poll is set twice");
        let again = "knob = \"net.core.busy_poll\"\nvalue = 1\n";
        check(&format!("{HEAD}{twice}[[set]]\n{again}"), "line 7, column 8: busy_poll is set twice");
        let no_toml = Profile::read("schema = \n").unwrap_err();
        assert_eq!((no_toml.line, no_toml.column), (1, 10), "{no_toml}");
        let unknown = Profile::read("schema = 1\nabuot = \"x\"\n").unwrap_err();
        assert!(unknown.what.contains("abuot") && unknown.line == 2, "{unknown}");
    }

    #[test]
    fn a_profile_s_name_may_be_misspelt() {
        assert_eq!(nearest_profile("many_connections"), Some("many-connections"));
        assert_eq!(nearest_profile("latncy"), Some("latency"));
        assert_eq!(nearest_profile("quux"), None);
    }

    #[test]
    fn larger_values_stay_where_a_least_is_wanted() {
        let wanted = |knob: &str, value: &str, at_least| {
            let setting = Setting::named(knob, &RequestedValue::Text(value.to_owned())).unwrap();
            WantedSetting { setting, at_least, route: None, why: String::new() }
        };
        let rmem = wanted("tcp_rmem", "4096 131072 16777216", true);
        assert_eq!(rmem.against("4096\t131072\t33554432").value.to_string(), "4096 131072 33554432");
        assert_eq!(rmem.against("4096 87380 6291456").value.to_string(), "4096 131072 16777216");
        let ports = wanted("ip_local_port_range", "10240 60999", true);
        assert_eq!(ports.against("32768 65000").value.to_string(), "10240 65000");
        let exactly = wanted("somaxconn", "128", false);
        assert_eq!(exactly.against("4096").value.to_string(), "128");
    }
}
