//! Settings of a candidate as requested. This module does not know the knobs or their valid values.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The settings of a candidate: knobs by name, for both sides or for one.
///
/// In a file: `tune.KNOB = value`, `tune.client.KNOB = value`, `tune.server.KNOB = value`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tuning {
    /// For the client's side and for the server's.
    #[serde(flatten)]
    pub both: BTreeMap<String, RequestedValue>,
    /// For the client's side alone; these count more than those for both.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub client: BTreeMap<String, RequestedValue>,
    /// For the server's side alone, likewise.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub server: BTreeMap<String, RequestedValue>,
}

/// A value as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "the value of a knob is a string, an integer, true or false")]
pub enum RequestedValue {
    /// A switch that is on or off.
    Switch(bool),
    /// An integer without a unit.
    Number(i64),
    /// Any other value, in the knob's syntax.
    Text(String),
}

/// A setting as it was made, for the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Setting {
    pub knob: String,
    pub value: String,
    /// The side on which it is set.
    pub side: Side,
}

/// The side that has a setting or the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Side {
    /// The client's and the server's.
    #[default]
    Both,
    Client,
    Server,
}

/// The longest name that settings make by themselves, in characters: the width of a column that can be read.
const NAME_CHARS_MAX: usize = 44;

impl Tuning {
    /// True if all settings are the kernel's defaults.
    pub fn is_empty(&self) -> bool {
        self.both.is_empty() && self.client.is_empty() && self.server.is_empty()
    }

    /// The name of a candidate that was given none: `host tcp_sack=0`, or `host tuned` where that would be long.
    pub(crate) fn name_on(&self, path: &str) -> String {
        let of = |side: &'static str, knobs: &BTreeMap<String, RequestedValue>| -> Vec<String> {
            knobs.iter().map(|(knob, value)| format!(" {side}{knob}={value}")).collect()
        };
        let settings =
            [of("", &self.both), of("client.", &self.client), of("server.", &self.server)].concat().concat();
        let name = format!("{path}{settings}");
        if name.chars().count() > NAME_CHARS_MAX { format!("{path} tuned") } else { name }
    }
}

impl Side {
    /// True of both sides alike.
    pub fn is_both(&self) -> bool {
        *self == Side::Both
    }

    /// Whether it includes the client, alone or with the server.
    pub fn has_client(self) -> bool {
        match self {
            Side::Both | Side::Client => true,
            Side::Server => false,
        }
    }

    /// Whether it includes the server, alone or with the client.
    pub fn has_server(self) -> bool {
        match self {
            Side::Both | Side::Server => true,
            Side::Client => false,
        }
    }
}

impl fmt::Display for RequestedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestedValue::Switch(on) => f.write_str(if *on { "1" } else { "0" }),
            RequestedValue::Number(number) => number.fmt(f),
            RequestedValue::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Both => "both sides",
            Side::Client => "the client's side",
            Side::Server => "the server's side",
        })
    }
}
