//! RDMA devices that the kernel makes of a link, by its own software.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{IfName, NameError};

/// The name of an RDMA device: 1–63 bytes, printable, no `/`, no `%`, no white space, not `.` or
/// `..`. It names a directory of sysfs, and the kernel takes `%` for a number that it is to
/// choose (`nldev_newlink` in drivers/infiniband/core/nldev.c).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RdmaName(String);

/// A device of software RoCE (`rdma_rxe`): RDMA over Converged Ethernet, version 2, whose packets the kernel makes
/// itself and sends as UDP by a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RdmaLink {
    /// Its name, of which a machine has one.
    pub name: RdmaName,
    /// The link by which its packets go. The device ends with it.
    pub link: IfName,
}

impl RdmaName {
    /// The longest name in bytes (`IB_DEVICE_NAME_MAX` less the final NUL).
    pub const MAX_BYTES: usize = 63;

    /// Checks the rules above.
    pub fn new(text: impl Into<String>) -> Result<RdmaName, NameError> {
        let text = text.into();
        let bad = |text, why| Err(NameError { kind: "name of an RDMA device", text, why });
        if text.is_empty() || text.len() > Self::MAX_BYTES {
            return bad(text, "it must have 1 to 63 bytes");
        }
        if text == "." || text == ".." {
            return bad(text, "it names a directory");
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic() && !b"/%".contains(&byte)) {
            return bad(text, "it must be printable ASCII without `/`, `%` and white space");
        }
        Ok(RdmaName(text))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RdmaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for RdmaName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<RdmaName, NameError> {
        RdmaName::new(text)
    }
}

impl TryFrom<String> for RdmaName {
    type Error = NameError;

    fn try_from(text: String) -> Result<RdmaName, NameError> {
        RdmaName::new(text)
    }
}

impl From<RdmaName> for String {
    fn from(name: RdmaName) -> String {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_the_kernel_takes() {
        for sound in ["rxe0", "mlx5_0", "a", "hgr0-rdma", &"x".repeat(63)] {
            assert_eq!(RdmaName::new(sound).unwrap().to_string(), sound);
        }
        for bad in ["", ".", "..", "a/b", "rxe%d", "a b", "a\n", "grün", &"x".repeat(64)] {
            RdmaName::new(bad).expect_err(bad);
        }
        let read: Result<RdmaName, _> = serde_json::from_str("\"../x\"");
        assert!(read.unwrap_err().to_string().contains("name of an RDMA device"));
    }
}
