//! A wanted setting as files of ours have it.

use ipnet::IpNet;
use record::RequestedValue;
use serde::{Deserialize, Serialize};
use tune::{Setting, WantedSetting};

use crate::HostError;

/// A wanted setting in words: in a stored plan, beside a tuning's steps, and in the profile that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct WantedText {
    pub knob: String,
    /// The value as the knob reads and shows it.
    pub value: String,
    /// Whether a larger value stays.
    #[serde(default)]
    pub at_least: bool,
    /// For a property of routes: the destination whose route alone is meant.
    #[serde(default)]
    pub route: Option<IpNet>,
    /// The reason that its source gave.
    pub why: String,
}

impl From<&WantedSetting> for WantedText {
    fn from(WantedSetting { setting, at_least, route, why }: &WantedSetting) -> WantedText {
        let (knob, value) = (setting.knob.id.to_owned(), setting.value.to_string());
        WantedText { knob, value, at_least: *at_least, route: *route, why: why.clone() }
    }
}

impl WantedText {
    /// The setting.
    ///
    /// # Errors
    /// [`HostError::BadRequest`]: there is no such knob, or it does not take the value.
    pub fn read(&self) -> Result<WantedSetting, HostError> {
        let setting = Setting::named(&self.knob, &RequestedValue::Text(self.value.clone()))
            .map_err(|error| HostError::BadRequest(error.to_string()))?;
        Ok(WantedSetting { setting, at_least: self.at_least, route: self.route, why: self.why.clone() })
    }
}
