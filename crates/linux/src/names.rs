//! Names and addresses with their kernel limits: what cannot be a name does not become a value.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a text is not a name of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid {kind}: {why}")]
pub struct NameError {
    /// What it should have been: "interface name", "MAC address", …
    pub kind: &'static str,
    /// The text that was rejected.
    pub text: String,
    /// The rule that it breaks.
    pub why: &'static str,
}

/// The name of a link: 1–15 bytes, no `/`, no white space, not `.` or `..`, no `:`
/// (`dev_valid_name` in net/core/dev.c).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IfName(String);

/// The name of a network namespace under `/run/netns`, as `ip netns` lists it: 1–64 bytes of `[A-Za-z0-9._-]`, not
/// starting with `.` or `-`. This is narrower than the rules for file names, so that it can be printed and pasted into
/// a shell without quotes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NetnsName(String);

/// The path of a network namespace that has no name under `/run/netns`: `/proc/PID/ns/net`, or a file of a container
/// runtime onto which one is bound. Absolute, without `..`, and UTF-8, as `CNI_NETNS` is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NetnsPath(String);

/// How a network namespace is found. In files it is one text: no name has a slash, and every path begins with one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum NetnsRef {
    /// By its name under `/run/netns`.
    Name(NetnsName),
    /// By the path of a file that represents it.
    Path(NetnsPath),
}

/// An Ethernet address, in the order of transmission.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

impl IfName {
    /// The longest name in bytes (`IFNAMSIZ` less the final NUL).
    pub const MAX_BYTES: usize = 15;

    /// Checks the kernel's rules for a link's name.
    pub fn new(text: impl Into<String>) -> Result<IfName, NameError> {
        let text = text.into();
        let bad = |text, why| Err(NameError { kind: "interface name", text, why });
        if text.is_empty() || text.len() > Self::MAX_BYTES {
            return bad(text, "it must have 1 to 15 bytes");
        }
        if text == "." || text == ".." {
            return bad(text, "the kernel refuses it");
        }
        if text.bytes().any(|b| b == b'/' || b == b':' || b.is_ascii_whitespace()) {
            return bad(text, "`/`, `:` and white space are not allowed");
        }
        Ok(IfName(text))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl NetnsName {
    /// Checks the rules above.
    pub fn new(text: impl Into<String>) -> Result<NetnsName, NameError> {
        let text = text.into();
        let bad = |text, why| Err(NameError { kind: "namespace name", text, why });
        if text.is_empty() || text.len() > 64 {
            return bad(text, "it must have 1 to 64 bytes");
        }
        if text.starts_with(['.', '-']) {
            return bad(text, "it must not start with `.` or `-`");
        }
        if !text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) {
            return bad(text, "only letters, digits, `.`, `_` and `-` are allowed");
        }
        Ok(NetnsName(text))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl NetnsPath {
    /// Checks the rules above; the file need not be there.
    pub fn new(text: impl Into<String>) -> Result<NetnsPath, NameError> {
        let text = text.into();
        let bad = |text, why| Err(NameError { kind: "path of a namespace", text, why });
        if !text.starts_with('/') {
            return bad(text, "it must begin with `/`");
        }
        if text.split('/').any(|part| part == "..") {
            return bad(text, "`..` is not allowed");
        }
        if text.contains('\0') {
            return bad(text, "a NUL byte is not allowed");
        }
        Ok(NetnsPath(text))
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<Path> for NetnsPath {
    fn as_ref(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl From<NetnsName> for NetnsRef {
    fn from(name: NetnsName) -> NetnsRef {
        NetnsRef::Name(name)
    }
}

impl From<NetnsPath> for NetnsRef {
    fn from(path: NetnsPath) -> NetnsRef {
        NetnsRef::Path(path)
    }
}

impl FromStr for NetnsRef {
    type Err = NameError;

    /// What has a slash is a path.
    fn from_str(text: &str) -> Result<NetnsRef, NameError> {
        if text.contains('/') { Ok(NetnsRef::Path(text.parse()?)) } else { Ok(NetnsRef::Name(text.parse()?)) }
    }
}

impl fmt::Display for NetnsRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetnsRef::Name(name) => name.fmt(f),
            NetnsRef::Path(path) => path.fmt(f),
        }
    }
}

impl Mac {
    /// A locally administered unicast address made from an id, so that a plan made again names the same one.
    /// `space` keeps the makers of addresses apart (wires, pods, tunnel ends).
    pub fn from_id(space: u8, id: u32) -> Mac {
        let [a, b, c, d] = id.to_be_bytes();
        Mac([0x02, space, a, b, c, d])
    }

    /// The IPv6 address that an interface with this address has on its link (modified EUI-64, RFC 4291 appendix A).
    pub fn link_local(self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.0;
        let mut octets = [0; 16];
        octets[..2].copy_from_slice(&[0xfe, 0x80]);
        octets[8..].copy_from_slice(&[a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
        octets.into()
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mac({self})")
    }
}

impl FromStr for Mac {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Mac, NameError> {
        let bad = || NameError {
            kind: "MAC address",
            text: text.to_owned(),
            why: "six pairs of hexadecimal digits joined by `:` are expected",
        };
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|p| p.len() == 2).ok_or_else(bad)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        if parts.next().is_some() { Err(bad()) } else { Ok(Mac(bytes)) }
    }
}

/// The conversions that every checked name has: parse, print, and (de)serialise as its text.
macro_rules! name_conversions {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<$name, NameError> {
                $name::new(text)
            }
        }
        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<$name, NameError> {
                $name::new(text)
            }
        }
        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }
    };
}

name_conversions!(IfName);
name_conversions!(NetnsName);
name_conversions!(NetnsPath);

impl TryFrom<String> for Mac {
    type Error = NameError;
    fn try_from(text: String) -> Result<Mac, NameError> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> String {
        mac.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_ifname(text: &str, valid: bool) {
        assert_eq!(IfName::new(text).is_ok(), valid, "{text:?}");
    }

    #[test]
    fn ifname_follows_dev_valid_name() {
        check_ifname("eth0", true);
        check_ifname("flannel.1", true);
        check_ifname("a23456789012345", true);
        check_ifname("a234567890123456", false);
        check_ifname("", false);
        check_ifname("..", false);
        check_ifname("a/b", false);
        check_ifname("a b", false);
        check_ifname("a:b", false);
    }

    #[test]
    fn a_link_local_address_is_made_of_the_ethernet_address() {
        let mac: Mac = "34:56:78:9a:bc:de".parse().unwrap();
        assert_eq!(mac.link_local().to_string(), "fe80::3656:78ff:fe9a:bcde");
    }

    #[test]
    fn netns_name_needs_no_quoting() {
        assert!(NetnsName::new("hg-3f2a-docker-n1").is_ok());
        assert!(NetnsName::new("../etc").is_err());
        assert!(NetnsName::new("-x").is_err());
        assert!(NetnsName::new("a b").is_err());
    }

    #[test]
    fn a_reference_is_a_name_or_a_path() {
        let read = |text: &str| serde_json::from_value::<NetnsRef>(text.into());
        assert_eq!(read("hg-x").unwrap(), NetnsName::new("hg-x").unwrap().into());
        assert_eq!(read("/proc/7/ns/net").unwrap(), NetnsPath::new("/proc/7/ns/net").unwrap().into());
        for bad in ["../x", "/run/../x", "a/b", ""] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn mac_round_trips_and_is_local_unicast() {
        let mac = Mac::from_id(3, 0x0102_0304);
        assert_eq!(mac.to_string(), "02:03:01:02:03:04");
        assert_eq!(mac.to_string().parse(), Ok(mac));
        assert!("02:03:01:02:03".parse::<Mac>().is_err());
        assert!("02:03:01:02:03:04:05".parse::<Mac>().is_err());
        assert!("2:3:1:2:3:4".parse::<Mac>().is_err());
    }
}
