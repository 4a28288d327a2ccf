//! The versions of the specification, and what differs between them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A version whose results have a list of addresses; before 0.3.0 there was one of each family. The oldest is the
/// least. What differs between them beside this is in fields that a runtime hands on as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum Version {
    /// Results of several interfaces and addresses, and plugins in chains.
    V0_3_0,
    /// Corrects the text of 0.3.0.
    V0_3_1,
    /// Adds CHECK, and hands the result of ADD to DEL.
    V0_4_0,
    /// Takes the family (`version`) out of an address, and the single plugin out of the configuration.
    V1_0_0,
    /// Adds GC, STATUS and `cniVersions`.
    V1_1_0,
}

/// A text that is none of the versions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}; {list} are understood", list = Version::list())]
pub struct UnknownVersion(pub String);

impl Version {
    /// All of them, the oldest first.
    pub const ALL: [Version; 5] =
        [Version::V0_3_0, Version::V0_3_1, Version::V0_4_0, Version::V1_0_0, Version::V1_1_0];

    /// As it stands in a `cniVersion`.
    pub fn as_str(self) -> &'static str {
        match self {
            Version::V0_3_0 => "0.3.0",
            Version::V0_3_1 => "0.3.1",
            Version::V0_4_0 => "0.4.0",
            Version::V1_0_0 => "1.0.0",
            Version::V1_1_0 => "1.1.0",
        }
    }

    /// Whether DEL gets the result of ADD (section 3, "Deleting an attachment").
    pub fn hands_result_to_del(self) -> bool {
        self >= Version::V0_4_0
    }

    /// All of them, for a message.
    pub(crate) fn list() -> String {
        Version::ALL.map(Version::as_str).join(", ")
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Version {
    type Err = UnknownVersion;

    fn from_str(text: &str) -> Result<Version, UnknownVersion> {
        let known = Version::ALL.into_iter().find(|version| version.as_str() == text);
        known.ok_or_else(|| UnknownVersion(text.to_owned()))
    }
}

impl TryFrom<String> for Version {
    type Error = UnknownVersion;

    fn try_from(text: String) -> Result<Version, UnknownVersion> {
        text.parse()
    }
}

impl From<Version> for &'static str {
    fn from(version: Version) -> &'static str {
        version.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_as_it_is_written() {
        for version in Version::ALL {
            assert_eq!(version.to_string().parse(), Ok(version));
            let json = serde_json::to_string(&version).unwrap();
            assert_eq!(json, format!("{:?}", version.as_str()));
            assert_eq!(serde_json::from_str::<Version>(&json).unwrap(), version);
        }
        let error = "0.2.0".parse::<Version>().unwrap_err().to_string();
        assert_eq!(error, "\"0.2.0\"; 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0 are understood");
    }

    #[test]
    fn del_gets_the_result_since_0_4_0() {
        let with = Version::ALL.map(Version::hands_result_to_del);
        assert_eq!(with, [false, false, true, true, true]);
    }
}
