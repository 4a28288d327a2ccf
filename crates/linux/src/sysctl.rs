//! Kernel parameters under `/proc/sys`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::NameError;

/// The key of a kernel parameter as a path below `/proc/sys`, `net/ipv4/ip_forward`. Slashes and not dots, since a
/// link's name may contain dots (`net/ipv4/conf/flannel.1/rp_filter`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(String);

impl Key {
    /// Checks that the text is a relative path without `.` and `..`.
    pub fn new(text: impl Into<String>) -> Result<Key, NameError> {
        let text = text.into();
        let sound = !text.is_empty() && text.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
        if sound {
            Ok(Key(text))
        } else {
            Err(NameError { kind: "sysctl key", text, why: "a path such as net/ipv4/ip_forward is expected" })
        }
    }

    /// The path below `/proc/sys`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Key {
    type Error = NameError;
    fn try_from(text: String) -> Result<Key, NameError> {
        Key::new(text)
    }
}

impl From<Key> for String {
    fn from(key: Key) -> String {
        key.0
    }
}
