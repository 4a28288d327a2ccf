//! IPsec as the kernel has it (xfrm): security associations, and the policies that say which packets have to take one.
//!
//! Of all that xfrm can do this is what encrypts a pod network: ESP (RFC 4303) in tunnel mode with AES-128-GCM and its
//! full tag of 16 bytes (RFC 4106).

use std::fmt;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::error::Attempt;
use crate::{Error, NameError, Result, secret};

/// Bytes of a key: 16 of AES-128, and 4 of salt, which begin each nonce (RFC 4106 §8.1).
pub(crate) const KEY_BYTES: usize = 20;
/// Smaller numbers are reserved (RFC 4303 §2.1).
const SPI_MIN: u32 = 256;

/// The two ends of a tunnel in one direction: between what addresses packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EspTunnel {
    /// The outer source, of the family of the destination.
    pub src: IpAddr,
    /// The outer destination: where the tunnel ends.
    pub dst: IpAddr,
    /// What the policies and the associations of a network have in common, so that a policy takes none of another's.
    pub reqid: u32,
}

/// By what the receiver of a packet finds the association (Security Parameters Index): 256 or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Spi(u32);

/// A security association: what packets of a tunnel are encrypted with, in one direction. It is known by its
/// destination and its number. Its key is not part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct XfrmState {
    /// Where it begins and ends.
    pub tunnel: EspTunnel,
    /// The SPI by which its receiver finds it.
    pub spi: Spi,
}

/// Which packets have to go by a tunnel. It is known by all but the tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct XfrmPolicy {
    /// At which point of their way they are looked at.
    pub direction: XfrmDirection,
    /// The source prefix of the packets.
    pub src: IpNet,
    /// Where they go, in the same family.
    pub dst: IpNet,
    /// The tunnel that is to wrap them, or from which they must have come.
    pub tunnel: EspTunnel,
}

/// Where a policy looks at packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum XfrmDirection {
    /// What the machine itself receives.
    In,
    /// What leaves the machine, its own or forwarded.
    Out,
    /// What it forwards, after it came in.
    #[serde(rename = "fwd")]
    Forward,
}

/// The key of an association. It is in no text and in no file but [`EspKey::keep`]'s.
#[derive(Clone, PartialEq, Eq)]
pub struct EspKey([u8; KEY_BYTES]);

impl EspKey {
    /// A new one. It serves one association alone: two that had the same could use a nonce twice, and AES-GCM with a
    /// nonce that was used hides nothing (RFC 4106 §2).
    ///
    /// # Errors
    /// The kernel has no random numbers to give.
    pub fn generate() -> Result<EspKey> {
        Ok(EspKey(secret::random("a key")?))
    }

    /// The key in a file of [`EspKey::keep`].
    ///
    /// # Errors
    /// The file cannot be read, or holds something else. The error does not repeat what it holds.
    pub fn read(path: &Path) -> Result<EspKey> {
        let attempted = || format!("read the key in {}", path.display());
        let text = fs::read_to_string(path).attempt(attempted)?;
        decoded(text.trim()).map(EspKey).ok_or_else(|| {
            Error::invalid(attempted(), "it has no key: one is 0x and 40 hexadecimal digits, for 20 bytes")
        })
    }

    /// Writes it to a file that root alone can read, as `ip xfrm` takes it. A file of the name gives way.
    ///
    /// # Errors
    /// The file cannot be written beside its name, or not be renamed.
    pub fn keep(&self, path: &Path) -> Result<()> {
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        secret::keep(path, &format!("0x{digits}"), "a key")
    }

    /// As the kernel takes it.
    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

fn decoded(text: &str) -> Option<[u8; KEY_BYTES]> {
    let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 2 * KEY_BYTES)?;
    let mut key = [0; KEY_BYTES];
    for (byte, pair) in key.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = u8::try_from(digit(0)? << 4 | digit(1)?).ok()?;
    }
    Some(key)
}

impl fmt::Debug for EspKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EspKey")
    }
}

impl Spi {
    /// A number that hardly any other association has.
    ///
    /// # Errors
    /// The kernel has no random numbers to give.
    pub fn generate() -> Result<Spi> {
        let number = u32::from_ne_bytes(secret::random("the number of an association")?);
        Ok(Spi(number.max(SPI_MIN)))
    }
}

impl TryFrom<u32> for Spi {
    type Error = NameError;

    fn try_from(number: u32) -> std::result::Result<Spi, NameError> {
        if number < SPI_MIN {
            let kind = "number of a security association";
            return Err(NameError { kind, text: number.to_string(), why: "those below 256 are reserved" });
        }
        Ok(Spi(number))
    }
}

impl From<Spi> for u32 {
    fn from(spi: Spi) -> u32 {
        spi.0
    }
}

impl fmt::Display for Spi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

impl XfrmDirection {
    /// As `ip xfrm` calls it.
    pub fn name(self) -> &'static str {
        match self {
            XfrmDirection::In => "in",
            XfrmDirection::Out => "out",
            XfrmDirection::Forward => "fwd",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_kept_and_shown_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let key = EspKey::generate().unwrap();
        key.keep(&file).unwrap();
        assert_eq!(EspKey::read(&file).unwrap(), key);
        assert_eq!(fs::read_to_string(&file).unwrap().len(), 2 + 40 + 1);
        assert_eq!(format!("{key:?}"), "EspKey");
        assert_ne!(EspKey::generate().unwrap(), key);
    }

    #[track_caller]
    fn check_no_key(text: &str) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        fs::write(&file, text).unwrap();
        let error = EspKey::read(&file).unwrap_err().to_string();
        assert!(error.contains("it has no key") && !error.contains("abcd"), "{error}");
    }

    #[test]
    fn a_file_without_a_key_is_refused_and_not_repeated() {
        check_no_key("");
        check_no_key("abcd");
        check_no_key(&format!("0x{}", "abcd".repeat(9)));
        check_no_key(&format!("0x{}", "abcd".repeat(11)));
        check_no_key(&format!("0xg{}", "abcd".repeat(10).split_off(1)));
        check_no_key(&format!("0xé{}", "abcd".repeat(10).split_off(2)));
        check_no_key(&"abcd".repeat(10));
    }

    #[test]
    fn reserved_numbers_are_refused() {
        assert_eq!(Spi::try_from(256).unwrap().to_string(), "0x00000100");
        let error = Spi::try_from(255).unwrap_err().to_string();
        assert!(error.contains("those below 256 are reserved"), "{error}");
        assert!(serde_json::from_str::<Spi>("255").is_err());
        assert_eq!(serde_json::to_string(&Spi::try_from(4096).unwrap()).unwrap(), "4096");
    }
}
