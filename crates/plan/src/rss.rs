//! What a card is to hash received flows by, and in which words that is said.

use std::fmt;

use linux::ethtool::{FlowType, HashFields, HashKey};
use serde::{Deserialize, Serialize};

/// The word for a key by which both directions of a connection have the same hash.
const SYMMETRIC: &str = "symmetric";

/// One thing that decides how a card hashes received flows (RSS), as it is or as it is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RssHash {
    /// The fields that are hashed.
    Fields {
        /// The kind of flows to which the fields apply.
        flow: FlowType,
        /// The header fields that enter the hash.
        fields: HashFields,
    },
    /// These bytes as the key.
    Key(HashKey),
    /// The symmetric key of whatever length the card has. It is asked for; what a card has is a [`RssHash::Key`].
    SymmetricKey,
}

impl RssHash {
    /// Reads flow types with the letters of their fields, `udp4 sdfn udp6 sdfn`, as ethtool(8) has them; each flow type
    /// once. `None` for anything else.
    pub fn fields_of(text: &str) -> Option<Vec<RssHash>> {
        let mut words = text.split_ascii_whitespace();
        let mut all: Vec<RssHash> = Vec::new();
        while let Some(name) = words.next() {
            let hash = RssHash::Fields {
                flow: FlowType::of_name(name)?,
                fields: HashFields::of_letters(words.next()?)?,
            };
            if all.iter().any(|other| other.is_about_what(&hash)) {
                return None;
            }
            all.push(hash);
        }
        (!all.is_empty()).then_some(all)
    }

    /// Reads a key, `6d:5a:…` as ethtool(8) has it, or `symmetric`. `None` for anything else.
    pub fn key_of(text: &str) -> Option<RssHash> {
        if text == SYMMETRIC { Some(RssHash::SymmetricKey) } else { text.parse().ok().map(RssHash::Key) }
    }

    /// Whether two of one card are about the same thing, whatever they make of it.
    pub(crate) fn is_about_what(&self, other: &RssHash) -> bool {
        match (self, other) {
            (RssHash::Fields { flow, .. }, RssHash::Fields { flow: other, .. }) => flow == other,
            (RssHash::Fields { .. }, _) | (_, RssHash::Fields { .. }) => false,
            (RssHash::Key(_) | RssHash::SymmetricKey, RssHash::Key(_) | RssHash::SymmetricKey) => true,
        }
    }

    /// What it is about, as a phrase to which a link's name can be added.
    pub(crate) fn subject(&self) -> String {
        match self {
            RssHash::Fields { flow, .. } => format!("the hash fields of {flow}"),
            RssHash::Key(_) | RssHash::SymmetricKey => "the hash key".to_owned(),
        }
    }
}

impl fmt::Display for RssHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RssHash::Fields { flow, fields } => write!(f, "{flow} {fields}"),
            RssHash::Key(key) => key.fmt(f),
            RssHash::SymmetricKey => f.write_str(SYMMETRIC),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Option<Vec<String>> {
        RssHash::fields_of(text).map(|all| all.iter().map(ToString::to_string).collect())
    }

    fn key(text: &str) -> RssHash {
        RssHash::key_of(text).unwrap()
    }

    #[test]
    fn flow_types_and_letters_are_read_in_pairs() {
        assert_eq!(fields("udp4 nfds").unwrap(), ["udp4 sdfn"]);
        assert_eq!(fields(" udp4  sdfn\tudp6 sd ").unwrap(), ["udp4 sdfn", "udp6 sd"]);
        for bad in ["", "udp4", "sdfn", "udp4 sdfn udp6", "udp4 sd udp4 sdfn", "udp4 r", "udp5 sd", "udp4,sd"]
        {
            assert_eq!(fields(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_flow_type_is_one_thing_and_the_key_another() {
        let of = |text: &str| RssHash::fields_of(text).unwrap().remove(0);
        assert!(of("udp4 sd").is_about_what(&of("udp4 sdfn")));
        assert!(!of("udp4 sd").is_about_what(&of("udp6 sd")));
        assert!(!of("udp4 sd").is_about_what(&key("6d:5a")) && !key("6d:5a").is_about_what(&of("udp4 sd")));
        assert!(key("symmetric").is_about_what(&key("01:02")));
    }

    /// A journal is read by later processes.
    #[test]
    fn a_journal_holds_words() {
        let text = |hash: &RssHash| serde_json::to_string(hash).unwrap();
        let udp = RssHash::fields_of("udp4 sdfn").unwrap().remove(0);
        assert_eq!(text(&udp), r#"{"fields":{"flow":"udp4","fields":240}}"#);
        assert_eq!(text(&key("6d:5a")), r#"{"key":"6d:5a"}"#);
        assert_eq!(text(&key("symmetric")), r#""symmetric_key""#);
        for hash in [udp, key("6d:5a"), key("symmetric")] {
            assert_eq!(serde_json::from_str::<RssHash>(&text(&hash)).unwrap(), hash);
        }
    }
}
