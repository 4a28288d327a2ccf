//! The description of a tuning that is stored beside its steps, for `status` and `keep`.

use linux::{Login, NetnsName};
use plan::OpenTransaction;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use tune::Scope;

use crate::{Device, HostError, Proposal, WantedText};

/// What was set, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The namespace; `None` for the one in which the tuning was applied.
    pub netns: Option<NetnsName>,
    /// The link, where one is known.
    pub device: Option<Device>,
    /// What fits into one profile: it is for one link, with one value for each knob.
    pub settings: Vec<WantedText>,
    /// The other settings, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_kept: Vec<NotKept>,
    /// The newest login before the tuning; within, `None` if the kernel does not count logins. `None` for settings that
    /// cannot cut off a login.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "noted")]
    newest_login: Option<Option<u32>>,
}

/// A setting that cannot be kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotKept {
    /// The knob and its value.
    #[serde(flatten)]
    pub setting: WantedText,
    /// Why it does not fit, in words.
    #[serde(rename = "not_kept")]
    pub why: String,
}

impl Description {
    /// What a proposal sets, or finds set.
    pub fn of(proposal: &Proposal) -> Description {
        let changes = proposal.changes.iter().map(|change| &change.wanted);
        Description {
            netns: proposal.host.netns.clone(),
            device: proposal.host.device.clone(),
            settings: changes.chain(&proposal.already).map(WantedText::from).collect(),
            not_kept: Vec::new(),
            newest_login: None,
        }
    }

    /// The description of a tuning that stands.
    ///
    /// # Errors
    /// [`HostError::Description`]: [`OpenTransaction::about`] is not what [`Description::about`] made.
    pub fn read(standing: &OpenTransaction) -> Result<Description, HostError> {
        Deserialize::deserialize(&standing.about).map_err(HostError::Description)
    }

    /// The description of a tuning that stands, if a proposal can be added to it.
    ///
    /// # Errors
    /// [`HostError::BadRequest`]: the proposal is for another namespace, or has a limit that the tuning's watcher does
    /// not hold. Others: those of [`Description::read`].
    pub fn read_to_extend(standing: &OpenTransaction, proposal: &Proposal) -> Result<Description, HostError> {
        let stands = Description::read(standing)?;
        let wanted = &proposal.host.netns;
        if stands.netns != *wanted {
            let name = |netns: &Option<NetnsName>| {
                netns.as_ref().map_or("this host".to_owned(), |name| format!("namespace {name}"))
            };
            let (stands, wanted) = (name(&stands.netns), name(wanted));
            return Err(HostError::BadRequest(format!(
                "tuning {} is of {stands}, not of {wanted}",
                standing.id
            )));
        }
        match proposal.cpu_latency_us() {
            Some(limit_us) if standing.cpu_latency_us != Some(limit_us) => {
                Err(HostError::BadRequest(format!(
                    "a limit of {limit_us} µs on the latency of CPUs cannot be added to the active tuning {}: \
                 `hostgap tune rollback` comes first",
                    standing.id
                )))
            }
            Some(_) | None => Ok(stands),
        }
    }

    /// The description as [`OpenTransaction::about`], from which [`Description::read`] makes it again.
    pub fn about(&self) -> Value {
        serde_json::to_value(self).expect("all keys are texts")
    }

    /// Merges the description of an addition into this one. The later value counts, and of links of the same name the
    /// present one. What does not fit into one profile is listed apart, with the reason.
    pub fn add(&mut self, added: Description) {
        let link = added.device.as_ref().map(|device| device.name.as_str());
        let is_same_link = self.device.as_ref().map(|device| device.name.as_str()) == link;
        for setting in added.settings {
            let stood = self.settings.iter_mut().find(|other| other.knob == setting.knob);
            let why = match stood {
                _ if !is_same_link && is_of_link(&setting) => {
                    format!("it is for link {}, and the profile for another", link.unwrap_or("none"))
                }
                Some(other) if other.route == setting.route => {
                    *other = setting;
                    continue;
                }
                Some(_) => "the profile has it for other routes".to_owned(),
                None => {
                    self.settings.push(setting);
                    continue;
                }
            };
            self.not_kept.push(NotKept { setting, why });
        }
        if is_same_link {
            self.device = added.device;
        }
    }

    /// Records the newest login: the one that confirms must be newer. Only for settings of the machine itself; those of
    /// a namespace cannot cut off a login.
    pub fn note_logins(&mut self) {
        self.newest_login = Some(Login::newest().map(|login| login.0));
    }

    /// Whether this process belongs to a login from before the tuning. It may still work when a
    /// new login is impossible.
    pub fn is_old_login(&self) -> bool {
        let known = Login::own().zip(self.newest_login.flatten());
        known.is_some_and(|(own, newest)| own.0 <= newest)
    }
}

/// A field that is there, even if it is null.
fn noted<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::deserialize(from).map(Some)
}

fn is_of_link(setting: &WantedText) -> bool {
    let scope = tune::find(&setting.knob).and_then(tune::Knob::scope);
    matches!(scope, Some(Scope::Link | Scope::Queue | Scope::Route))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(knob: &str, value: &str) -> WantedText {
        let (knob, value) = (knob.to_owned(), value.to_owned());
        WantedText { knob, value, at_least: false, route: None, why: String::new() }
    }

    fn at(route: &str) -> WantedText {
        WantedText { route: Some(route.parse().unwrap()), ..setting("initcwnd", "20") }
    }

    fn about(device: &str, index: u32, settings: &[WantedText]) -> Description {
        let device = Device { name: device.to_owned(), index, mac: None, driver: None };
        let settings = settings.to_vec();
        Description { netns: None, device: Some(device), settings, not_kept: vec![], newest_login: None }
    }

    fn together(stood: &Description, added: Description) -> Description {
        let mut both = stood.clone();
        both.add(added);
        both
    }

    #[test]
    fn what_was_added_is_described_with_what_stood() {
        let stood = about("eth0", 2, &[setting("mtu", "1400"), setting("somaxconn", "1")]);
        let added = about("eth0", 7, &[setting("somaxconn", "8192"), setting("txqueuelen", "77")]);
        let all = [setting("mtu", "1400"), setting("somaxconn", "8192"), setting("txqueuelen", "77")];
        assert_eq!(together(&stood, added), about("eth0", 7, &all));
    }

    #[test]
    fn what_does_not_fit_into_one_profile_stands_apart() {
        let stood = about("eth0", 2, &[setting("mtu", "1400"), at("10.0.0.0/8")]);
        let added = about("eth1", 3, &[setting("mtu", "9000"), setting("somaxconn", "8192")]);
        let both = together(&stood, added);
        assert_eq!(both.settings, [setting("mtu", "1400"), at("10.0.0.0/8"), setting("somaxconn", "8192")]);
        assert_eq!(both.device, stood.device);
        assert!(both.not_kept.len() == 1 && both.not_kept[0].setting.value == "9000", "{both:?}");
        let both = together(&stood, about("eth0", 2, &[at("192.168.0.0/16")]));
        assert_eq!(both.settings, stood.settings);
        assert_eq!(both.not_kept[0].setting, at("192.168.0.0/16"));
    }

    /// Reads a `standing.json` and returns its description, which must be written again as it was.
    #[track_caller]
    fn check(text: &str) -> Description {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("standing.json"), text).unwrap();
        let standing = plan::Store::at(root.path()).standing().unwrap().unwrap();
        let description = Description::read(&standing).unwrap();
        assert_eq!(description.about().to_string(), standing.about.to_string());
        description
    }

    /// As written by programs that edited the description as JSON.
    #[test]
    fn older_files_are_read_and_written_as_they_were() {
        let unconfirmed = check(
            r#"{"about":{"device":{"driver":"veth","index":3,"mac":"02:00:00:00:00:09","name":"eth9"},"netns":null,"newest_login":null,"settings":[{"at_least":false,"knob":"tcp_sack","route":null,"value":"0","why":"as asked"}]},"boot_id":"3b0fc994-40a5-4480-84fc-356a9039bbf4","crc32":3123287564,"id":"bdda5b","phase":{"unconfirmed":{"deadline_ns":1807940080182}},"schema":2,"seal":{"bytes":350,"crc32":4285095625,"steps":1},"since_unix_s":1795474007}"#,
        );
        assert_eq!((unconfirmed.newest_login, unconfirmed.settings.len()), (Some(None), 1));
        let extended = check(
            r#"{"about":{"device":{"driver":"veth","index":3,"mac":"02:00:00:00:00:09","name":"eth9"},"netns":null,"newest_login":null,"not_kept":[{"at_least":false,"knob":"txqueuelen","not_kept":"it is for link eth8, and the profile for another","route":null,"value":"77","why":"as asked"}],"settings":[{"at_least":false,"knob":"tcp_sack","route":"10.10.0.0/16","value":"0","why":"as asked"},{"at_least":false,"knob":"initcwnd","route":"10.10.0.0/16","value":"20","why":"as asked"},{"at_least":false,"knob":"mtu","route":"10.10.0.0/16","value":"1400","why":"as asked"},{"at_least":true,"knob":"somaxconn","route":null,"value":"8192","why":"Because."}]},"boot_id":"3b0fc994-40a5-4480-84fc-356a9039bbf4","crc32":3964203643,"id":"b978f1","phase":"confirmed","schema":2,"seal":{"bytes":1527,"crc32":574113319,"steps":5},"since_unix_s":1795474006}"#,
        );
        assert_eq!((extended.settings.len(), extended.not_kept.len()), (4, 1));
        assert!(extended.settings[3].at_least && extended.device.is_some_and(|device| device.index == 3));
    }

    /// A namespace's tuning has no login, one of a machine where logins are counted has a number.
    #[test]
    fn logins_are_written_only_where_they_count() {
        let mut description = about("eth0", 2, &[]);
        assert!(!description.about().to_string().contains("newest_login"));
        description.newest_login = Some(Some(7));
        assert!(description.about().to_string().contains("\"newest_login\":7,"), "{description:?}");
    }
}
