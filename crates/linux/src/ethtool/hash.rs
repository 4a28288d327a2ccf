//! What a card hashes received flows by (RSS): fields of their packets, and a key. As they are written.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Flows of a transport protocol over IPv4 or IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the protocol, and the version of IP")]
pub enum FlowType {
    Tcp4,
    Udp4,
    Sctp4,
    Tcp6,
    Udp6,
    Sctp6,
}

/// The packet fields that go into the hash, as `RXH_…` bits (include/uapi/linux/ethtool.h).
///
/// It keeps bits without a name here, so that a value that was read can be written back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HashFields(u64);

/// The key of the hash (Toeplitz), from 1 to [`HashKey::BYTES_MAX`] bytes. A card accepts only keys of its own length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HashKey(Vec<u8>);

/// A text that is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("bytes of two hexadecimal digits with colons between them are expected, as in 6d:5a:6d:5a")]
pub struct InvalidHashKey;

impl FlowType {
    /// All flow types of this enum.
    pub const ALL: [FlowType; 6] =
        [FlowType::Tcp4, FlowType::Udp4, FlowType::Sctp4, FlowType::Tcp6, FlowType::Udp6, FlowType::Sctp6];

    /// Its name in ethtool(8).
    pub fn name(self) -> &'static str {
        match self {
            FlowType::Tcp4 => "tcp4",
            FlowType::Udp4 => "udp4",
            FlowType::Sctp4 => "sctp4",
            FlowType::Tcp6 => "tcp6",
            FlowType::Udp6 => "udp6",
            FlowType::Sctp6 => "sctp6",
        }
    }

    /// The flow type that [`FlowType::name`] calls so.
    pub fn of_name(name: &str) -> Option<FlowType> {
        FlowType::ALL.into_iter().find(|flow| flow.name() == name)
    }

    /// The kernel's number for it (`TCP_V4_FLOW` and its like).
    pub(super) fn number(self) -> u32 {
        match self {
            FlowType::Tcp4 => 0x01,
            FlowType::Udp4 => 0x02,
            FlowType::Sctp4 => 0x03,
            FlowType::Tcp6 => 0x05,
            FlowType::Udp6 => 0x06,
            FlowType::Sctp6 => 0x07,
        }
    }
}

/// The letters of ethtool(8) and their bits: address of the Ethernet header, VLAN, protocol, addresses of the sender
/// and the receiver, and the two ports, which are the first two and the next two bytes of the transport header.
const LETTERS: [(char, u64); 7] =
    [('m', 1 << 1), ('v', 1 << 2), ('t', 1 << 3), ('s', 1 << 4), ('d', 1 << 5), ('f', 1 << 6), ('n', 1 << 7)];

impl HashFields {
    /// The fields for letters of ethtool(8), each at most once: `m`, `v`, `t`, `s`, `d`, `f`, `n`. `None` for other
    /// letters and for an empty text. `r`, which makes the card drop such flows, is not a field.
    pub fn of_letters(letters: &str) -> Option<HashFields> {
        let mut fields = 0;
        for letter in letters.chars() {
            let (_, bit) = LETTERS.iter().find(|(known, _)| *known == letter)?;
            if fields & bit != 0 {
                return None;
            }
            fields |= bit;
        }
        (fields != 0).then_some(HashFields(fields))
    }

    /// True if the hash uses no field: all such flows share a queue.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn of_bits(bits: u64) -> HashFields {
        HashFields(bits)
    }

    pub(super) fn bits(self) -> u64 {
        self.0
    }
}

impl HashKey {
    /// Bytes of the longest key that is believed: the kernel's own is 256 at most (`NETDEV_RSS_KEY_LEN`).
    pub const BYTES_MAX: usize = 1024;
    /// The pair of bytes that a symmetric key repeats.
    const PAIR: [u8; 2] = [0x6d, 0x5a];

    /// A key of these bytes; `None` for none and for too many.
    pub fn new(bytes: Vec<u8>) -> Option<HashKey> {
        (1..=HashKey::BYTES_MAX).contains(&bytes.len()).then_some(HashKey(bytes))
    }

    /// The key of this length that hashes both directions of a connection to one value. It repeats 16 bits, so that
    /// addresses and ports can be swapped. `None` for an odd length and for lengths that no key has.
    ///
    /// Source: S. Woo, K. Park, Scalable TCP Session Monitoring with Symmetric Receive-side Scaling, KAIST 2012.
    pub fn symmetric(length: usize) -> Option<HashKey> {
        let bytes = HashKey::PAIR.into_iter().cycle().take(length).collect();
        HashKey::new(bytes).filter(|_| length.is_multiple_of(HashKey::PAIR.len()))
    }

    /// The key's bytes, from 1 to [`HashKey::BYTES_MAX`] of them.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// How many bytes it has.
    #[expect(clippy::len_without_is_empty, reason = "no key is empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for FlowType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for HashFields {
    /// The letters; bits that have none here as a number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        for (letter, bit) in LETTERS {
            if self.0 & bit != 0 {
                write!(f, "{letter}")?;
            }
        }
        match self.0 & !LETTERS.iter().fold(0, |all, (_, bit)| all | bit) {
            0 => Ok(()),
            rest => write!(f, "+{rest:#x}"),
        }
    }
}

impl fmt::Display for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: Vec<String> = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        f.write_str(&bytes.join(":"))
    }
}

impl FromStr for HashKey {
    type Err = InvalidHashKey;

    fn from_str(text: &str) -> Result<HashKey, InvalidHashKey> {
        let byte = |digits: &str| {
            let sound = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            sound.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
        };
        let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
        bytes.and_then(HashKey::new).ok_or(InvalidHashKey)
    }
}

impl TryFrom<String> for HashKey {
    type Error = InvalidHashKey;

    fn try_from(text: String) -> Result<HashKey, InvalidHashKey> {
        text.parse()
    }
}

impl From<HashKey> for String {
    fn from(key: HashKey) -> String {
        key.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_fields(letters: &str, expected: Option<(u64, &str)>) {
        let found = HashFields::of_letters(letters).map(|fields| (fields.bits(), fields.to_string()));
        assert_eq!(found.as_ref().map(|(bits, text)| (*bits, text.as_str())), expected, "{letters:?}");
    }

    #[test]
    fn fields_are_read_by_their_letters_in_any_order() {
        check_fields("sdfn", Some((0xf0, "sdfn")));
        check_fields("nfds", Some((0xf0, "sdfn")));
        check_fields("sd", Some((0x30, "sd")));
        check_fields("mvt", Some((0x0e, "mvt")));
        for bad in ["", "r", "sdr", "ss", "SD", "s d", "x"] {
            check_fields(bad, None);
        }
    }

    #[test]
    fn bits_without_a_letter_are_kept_and_shown() {
        assert_eq!(HashFields::of_bits(0x130).to_string(), "sd+0x100");
        assert_eq!(HashFields::of_bits(1 << 31).to_string(), "+0x80000000");
        assert_eq!(HashFields::of_bits(0).to_string(), "none");
        assert_eq!(serde_json::to_string(&HashFields::of_bits(1 << 31)).unwrap(), "2147483648");
    }

    #[test]
    fn flow_types_have_one_name_and_one_number_each() {
        for flow in FlowType::ALL {
            assert_eq!(FlowType::of_name(flow.name()), Some(flow));
            assert_eq!(FlowType::ALL.iter().filter(|other| other.number() == flow.number()).count(), 1);
        }
        assert_eq!(FlowType::of_name("udp"), None);
    }

    #[test]
    fn keys_are_read_and_what_is_none_is_refused() {
        let read = |text: &str| text.parse::<HashKey>().map(|key| key.to_string());
        assert_eq!(read("6d:5a:00:FF").as_deref(), Ok("6d:5a:00:ff"));
        for bad in ["", "6d:", ":6d", "6d5a", "6:5a", "+6:5a", "6d:5g", "6d-5a", "symmetric"] {
            assert_eq!(read(bad), Err(InvalidHashKey), "{bad:?}");
        }
        assert!(read(&["00"; HashKey::BYTES_MAX].join(":")).is_ok());
        assert!(read(&["00"; HashKey::BYTES_MAX + 1].join(":")).is_err());
    }

    #[test]
    fn a_symmetric_key_repeats_its_pair() {
        let key = |length| HashKey::symmetric(length).map(|key| key.to_string());
        assert_eq!(key(4).as_deref(), Some("6d:5a:6d:5a"));
        assert_eq!((key(0), key(3)), (None, None));
    }
}
