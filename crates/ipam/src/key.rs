//! To whom an address belongs.

use std::fmt;

/// Between the container and the interface in the file of an address.
const LINE_BREAK: &str = "\r\n";
/// The most bytes of an interface's name in the kernel.
const IFNAME_BYTES_MAX: usize = 15;

/// One attachment: a container, and its interface that gets the addresses.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    container: String,
    ifname: String,
}

/// What the file of an address says about whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Holder {
    /// The id of the container. Empty if `host-local` was killed between the making of the file and its writing.
    pub container: String,
    /// The interface in the container. Versions of `host-local` before 0.8.2 did not write it: such a file stands for
    /// any interface of its container.
    pub ifname: Option<String>,
}

/// The name of a container or an interface that the CNI specification does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("use {text:?} as the name of a {what}: the CNI specification does not allow it")]
pub struct KeyError {
    /// What has the name: "container" or "interface".
    pub what: &'static str,
    /// The name as it was given.
    pub text: String,
}

impl Key {
    /// The key of a container's interface.
    ///
    /// # Errors
    /// The text is none that the CNI specification allows: a container begins with a letter or digit, and goes on with
    /// those, `_`, `.` and `-`; an interface has 1 to 15 bytes without white space, `/` and `:`, and is neither `.` nor
    /// `..`. Anything else would be ambiguous in the file.
    pub fn new(container: &str, ifname: &str) -> Result<Key, KeyError> {
        if !is_name(container) {
            return Err(KeyError { what: "container", text: container.to_owned() });
        }
        if !is_ifname(ifname) {
            return Err(KeyError { what: "interface", text: ifname.to_owned() });
        }
        Ok(Key { container: container.to_owned(), ifname: ifname.to_owned() })
    }

    /// The id of the container.
    pub fn container(&self) -> &str {
        &self.container
    }

    /// The name of the interface in the container.
    pub fn ifname(&self) -> &str {
        &self.ifname
    }

    /// The content of the file of an address.
    pub(crate) fn text(&self) -> String {
        format!("{}{LINE_BREAK}{}", self.container, self.ifname)
    }
}

impl Holder {
    /// Reads the content of the file of an address. Bytes that are no text match no key.
    pub(crate) fn read(bytes: &[u8]) -> Holder {
        let text = String::from_utf8_lossy(bytes);
        match text.trim().split_once(LINE_BREAK) {
            Some((container, ifname)) => {
                Holder { container: container.to_owned(), ifname: Some(ifname.to_owned()) }
            }
            None => Holder { container: text.trim().to_owned(), ifname: None },
        }
    }

    /// Whether the address may be that of a key: a file without an interface is that of every interface.
    pub fn is(&self, key: &Key) -> bool {
        self.container == key.container && self.ifname.as_ref().is_none_or(|ifname| *ifname == key.ifname)
    }
}

/// As in messages: `c1/eth0`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.container, self.ifname)
    }
}

/// As in messages: `c1/eth0`, `c1`, or `an unknown container`.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.ifname {
            Some(ifname) => write!(f, "{}/{ifname}", self.container),
            None if self.container.is_empty() => f.write_str("an unknown container"),
            None => f.write_str(&self.container),
        }
    }
}

/// Whether a text can be the id of a container or the name of a network: both have one rule.
pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(|sign: char| sign.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

fn is_ifname(text: &str) -> bool {
    let is_forbidden = |sign: char| sign.is_whitespace() || sign.is_control() || "/:".contains(sign);
    (1..=IFNAME_BYTES_MAX).contains(&text.len())
        && ![".", ".."].contains(&text)
        && !text.contains(is_forbidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_old_files_stand_for_any_interface() {
        let key = Key::new("c1", "eth0").unwrap();
        let other = Key::new("c1", "eth1").unwrap();
        assert_eq!(key.text(), "c1\r\neth0");
        let holder = Holder::read(key.text().as_bytes());
        assert!(holder.is(&key) && !holder.is(&other), "{holder:?}");
        assert_eq!(holder.to_string(), "c1/eth0");
        let old = Holder::read(b"c1\n");
        assert!(old.is(&key) && old.is(&other) && !old.is(&Key::new("c2", "eth0").unwrap()), "{old:?}");
        assert_eq!(old.to_string(), "c1");
        assert_eq!(Holder::read(b"").to_string(), "an unknown container");
        assert!(!Holder::read(b"c1\xff").is(&key));
    }

    #[test]
    fn names_that_would_break_the_format_are_refused() {
        for container in ["", "-a", "a b", "a\r\neth0", "../a", "a/b"] {
            let error = Key::new(container, "eth0").unwrap_err().to_string();
            assert!(error.contains("container") && error.contains(&format!("{container:?}")), "{error}");
        }
        for ifname in ["", ".", "..", "a/b", "a b", "a\n", "0123456789abcdef"] {
            let error = Key::new("c1", ifname).unwrap_err().to_string();
            assert!(error.contains("interface"), "{error}");
        }
    }
}
