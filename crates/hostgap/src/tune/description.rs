//! The description of a tuning that is stored beside its steps, for `status` and `keep`.

use linux::Login;
use plan::Standing;
use serde_json::{Value, json};

use super::proposal::Proposal;
use super::show;

/// What was set, and where.
pub(super) fn of(proposal: &Proposal) -> Value {
    let changes = proposal.changes.iter().map(|change| &change.wanted);
    let settings: Vec<_> = changes.chain(&proposal.already).map(show::wanted).collect();
    json!({
        "netns": proposal.host.netns,
        "device": proposal.host.device,
        "settings": settings,
    })
}

/// Merges the descriptions of a tuning and of an addition to it. The later value counts, and of links of the same name
/// the present one. A profile is for one link, with one value for each knob: what does not fit into it is listed apart,
/// with the reason.
pub(super) fn together(stood: &Value, added: &Value) -> Value {
    let mut about = stood.clone();
    let is_same_link = about["device"]["name"] == added["device"]["name"];
    let [mut settings, mut apart] = ["settings", NOT_KEPT].map(|key| list(stood, key));
    for mut setting in list(added, "settings") {
        let is_this = |other: &&mut Value| other["knob"] == setting["knob"];
        match settings.iter_mut().find(is_this) {
            _ if !is_same_link && is_of_link(&setting) => {
                let link = added["device"]["name"].as_str().unwrap_or("none");
                setting["not_kept"] = format!("it is for link {link}, and the profile for another").into();
                apart.push(setting);
            }
            Some(other) if other["route"] == setting["route"] => *other = setting,
            Some(_) => {
                setting["not_kept"] = "the profile has it for other routes".into();
                apart.push(setting);
            }
            None => settings.push(setting),
        }
    }
    about["settings"] = settings.into();
    if !apart.is_empty() {
        about[NOT_KEPT] = apart.into();
    }
    if is_same_link {
        about["device"] = added["device"].clone();
    }
    about
}

/// The settings that cannot be kept, with the reasons.
pub(super) fn not_kept(standing: &Standing) -> Vec<(String, String)> {
    let text = |setting: &Value, key: &str| setting[key].as_str().unwrap_or_default().to_owned();
    let all = list(&standing.about, NOT_KEPT);
    all.iter()
        .map(|setting| {
            let what = format!("{} = {}", text(setting, "knob"), text(setting, "value"));
            (what, text(setting, "not_kept"))
        })
        .collect()
}

/// Records the newest login: the one that confirms must be newer. Only for settings of the machine itself; those of a
/// namespace cannot cut off a login.
pub(super) fn note_logins(about: &mut Value) {
    about[NEWEST_LOGIN] = json!(Login::newest().map(|login| login.0));
}

/// Whether this process belongs to a login from before the tuning. It may still work when a new login is impossible.
pub(super) fn is_old_login(standing: &Standing) -> bool {
    let known = Login::own().zip(standing.about[NEWEST_LOGIN].as_u64());
    known.is_some_and(|(own, newest)| u64::from(own.0) <= newest)
}

const NEWEST_LOGIN: &str = "newest_login";
const NOT_KEPT: &str = "not_kept";

fn list(about: &Value, key: &str) -> Vec<Value> {
    about[key].as_array().cloned().unwrap_or_default()
}

fn is_of_link(setting: &Value) -> bool {
    use ::tune::Scope;
    let scope = setting["knob"].as_str().and_then(::tune::find).and_then(::tune::Knob::scope);
    matches!(scope, Some(Scope::Link | Scope::Queue | Scope::Route))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(knob: &str, value: &str) -> Value {
        json!({ "knob": knob, "value": value, "route": null, "why": "" })
    }

    fn about(device: &str, index: u32, settings: &[Value]) -> Value {
        json!({ "netns": null, "device": { "name": device, "index": index }, "settings": settings })
    }

    #[test]
    fn what_was_added_is_told_with_what_stood() {
        let stood = about("eth0", 2, &[setting("mtu", "1400"), setting("somaxconn", "1")]);
        let added = about("eth0", 7, &[setting("somaxconn", "8192"), setting("txqueuelen", "77")]);
        let all = [setting("mtu", "1400"), setting("somaxconn", "8192"), setting("txqueuelen", "77")];
        assert_eq!(together(&stood, &added), about("eth0", 7, &all));
    }

    #[test]
    fn what_does_not_fit_into_one_profile_stands_apart() {
        let at = |route: &str| {
            let mut setting = setting("initcwnd", "20");
            setting["route"] = route.into();
            setting
        };
        let stood = about("eth0", 2, &[setting("mtu", "1400"), at("10.0.0.0/8")]);
        let added = about("eth1", 3, &[setting("mtu", "9000"), setting("somaxconn", "8192")]);
        let both = together(&stood, &added);
        let settings = [setting("mtu", "1400"), at("10.0.0.0/8"), setting("somaxconn", "8192")];
        assert_eq!(both["settings"], json!(settings));
        assert_eq!(both["device"]["name"], "eth0");
        let apart = both["not_kept"].as_array().unwrap();
        assert!(apart.len() == 1 && apart[0]["value"] == "9000", "{both}");
        let both = together(&stood, &about("eth0", 2, &[at("192.168.0.0/16")]));
        assert_eq!(both["settings"], json!([setting("mtu", "1400"), at("10.0.0.0/8")]));
        assert_eq!(both["not_kept"][0]["route"], "192.168.0.0/16");
    }
}
