//! WireGuard's keys, and what a device knows of another.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::error::Attempt;
use crate::{Error, IfName, NameError, Result, secret};

/// Bytes of a key (`WG_KEY_LEN`).
pub(crate) const KEY_BYTES: usize = 32;

/// What a device is known by: the point of Curve25519 that belongs to its private key. In files 44 characters of
/// base64, as `wg` has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey(pub [u8; KEY_BYTES]);

/// A secret number. It is in no text and in no file but [`PrivateKey::keep`]'s.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey([u8; KEY_BYTES]);

/// Another end, as a device knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireGuardPeer {
    /// The device that knows it.
    pub dev: IfName,
    /// The public key by which it is known.
    pub key: PublicKey,
    /// Where packets for it are sent until it is heard from elsewhere.
    pub endpoint: SocketAddr,
    /// The addresses that its packets may come from; packets to these go to it. A prefix belongs to one
    /// peer of a device.
    pub allowed: Vec<IpNet>,
    /// After how many silent seconds it is sent an empty packet, which keeps an address translator's entry; 0: never.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub keepalive_s: u16,
}

fn is_zero(seconds: &u16) -> bool {
    *seconds == 0
}

impl PrivateKey {
    /// A new one.
    ///
    /// # Errors
    /// The kernel has no random numbers to give.
    pub fn generate() -> Result<PrivateKey> {
        Ok(PrivateKey(secret::random("a key")?))
    }

    /// The key that belongs to it.
    pub fn public(&self) -> PublicKey {
        PublicKey(x25519_dalek::x25519(self.0, x25519_dalek::X25519_BASEPOINT_BYTES))
    }

    /// The key in a file of [`PrivateKey::keep`] or of `wg genkey`.
    ///
    /// # Errors
    /// The file cannot be read, or holds something else. The error does not repeat what it holds.
    pub fn read(path: &Path) -> Result<PrivateKey> {
        let attempted = || format!("read the private key in {}", path.display());
        let text = fs::read_to_string(path).attempt(attempted)?;
        let bytes = decoded(text.trim()).ok_or_else(|| {
            Error::invalid(attempted(), "it has no key: one is 32 bytes in 44 characters of base64")
        })?;
        Ok(PrivateKey(bytes))
    }

    /// Writes it to a file that root alone can read (mode 0600), whole or not at all. A file of the name gives way.
    ///
    /// # Errors
    /// The file cannot be written beside its name, or not be renamed.
    pub fn keep(&self, path: &Path) -> Result<()> {
        secret::keep(path, &STANDARD.encode(self.0), "a private key")
    }

    /// As the kernel takes it.
    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey(of {})", self.public())
    }
}

impl FromStr for PublicKey {
    type Err = NameError;

    fn from_str(text: &str) -> std::result::Result<PublicKey, NameError> {
        let why = "it must be 32 bytes, in 44 characters of base64";
        let refused = |why| NameError { kind: "public key of WireGuard", text: text.to_owned(), why };
        let bytes = decoded(text).ok_or_else(|| refused(why))?;
        if bytes == [0; KEY_BYTES] {
            return Err(refused("no device has the key zero"));
        }
        Ok(PublicKey(bytes))
    }
}

fn decoded(text: &str) -> Option<[u8; KEY_BYTES]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

impl TryFrom<String> for PublicKey {
    type Error = NameError;

    fn try_from(text: String) -> std::result::Result<PublicKey, NameError> {
        text.parse()
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> String {
        key.to_string()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7748, section 6.1: the private and the public key of Alice, in base64.
    const PRIVATE: &str = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=";
    const PUBLIC: &str = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";

    #[test]
    fn a_private_key_has_the_public_key_of_the_rfc() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        fs::write(&file, format!("{PRIVATE}\n")).unwrap();
        assert_eq!(PrivateKey::read(&file).unwrap().public().to_string(), PUBLIC);
    }

    #[test]
    fn a_key_is_kept_and_shown_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let key = PrivateKey::generate().unwrap();
        key.keep(&file).unwrap();
        assert_eq!(PrivateKey::read(&file).unwrap(), key);
        let secret = fs::read_to_string(&file).unwrap();
        assert!(!format!("{key:?}").contains(secret.trim()));
        assert_ne!(PrivateKey::generate().unwrap().public(), key.public());
    }

    #[test]
    fn a_file_without_a_key_is_refused_and_not_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        fs::write(&file, "c2VjcmV0").unwrap();
        let error = PrivateKey::read(&file).unwrap_err().to_string();
        assert!(error.contains("it has no key") && !error.contains("c2VjcmV0"), "{error}");
    }

    #[track_caller]
    fn check_refused(text: &str, why: &str) {
        let error = text.parse::<PublicKey>().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn what_is_no_public_key_is_refused() {
        assert_eq!(PUBLIC.parse::<PublicKey>().unwrap().to_string(), PUBLIC);
        check_refused("", "44 characters");
        check_refused(&PUBLIC[1..], "44 characters");
        check_refused("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "the key zero");
    }
}
