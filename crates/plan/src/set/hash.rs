//! What a network card hashes received flows by: their fields, and the key.

use linux::IfName;
use linux::ethtool::HashKey;
use serde::{Deserialize, Serialize};

use super::register::{At, Register};
use crate::error::StepError;
use crate::lifetime::Lifetime;
use crate::show::{inside, word};
use crate::{Place, RssHash};

/// Let a card hash received flows by other fields, or with another key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetRssHash {
    /// The link of the card.
    pub link: IfName,
    /// The fields that are hashed, or the key.
    pub hash: RssHash,
}

impl Register for SetRssHash {
    type Value = RssHash;
    type Along = ();

    fn read(&self, at: &At<'_>) -> Result<Option<RssHash>, StepError> {
        let ethtool = at.opened.ethtool()?;
        Ok(match &self.hash {
            RssHash::Fields { flow, .. } => ethtool
                .read_hash_fields(at.name(), *flow)?
                .map(|fields| RssHash::Fields { flow: *flow, fields }),
            RssHash::Key(_) | RssHash::SymmetricKey => ethtool.read_hash_key(at.name())?.map(RssHash::Key),
        })
    }

    fn write(&self, at: &At<'_>, hash: &RssHash) -> Result<(), StepError> {
        let ethtool = at.opened.ethtool()?;
        match hash {
            RssHash::Fields { flow, fields } => ethtool.write_hash_fields(at.name(), *flow, *fields)?,
            RssHash::Key(key) => ethtool.write_hash_key(at.name(), key)?,
            RssHash::SymmetricKey => return Err(StepError::Refused { why: self.not_symmetric(hash) }),
        }
        Ok(())
    }

    fn wanted(&self, was: &RssHash) -> RssHash {
        match (&self.hash, was) {
            (RssHash::SymmetricKey, RssHash::Key(key)) => {
                HashKey::symmetric(key.len()).map_or(RssHash::SymmetricKey, RssHash::Key)
            }
            (wanted, _) => wanted.clone(),
        }
    }

    fn admits(&self, value: &RssHash) -> bool {
        self.hash.is_about_what(value)
    }

    fn subject(&self) -> String {
        format!("{} of link {}", self.hash.subject(), self.link)
    }

    /// A symmetric key is called so where it was asked for.
    fn words(&self, value: &RssHash) -> String {
        if self.is_met(value) { self.hash.to_string() } else { value.to_string() }
    }

    /// A symmetric key has the length of the card's own, so that one is written over pair by pair.
    fn command(&self, place: &Place) -> String {
        let link = word(&self.link);
        let ethtool = |arguments: &str| inside(place, &format!("ethtool {arguments}"));
        match &self.hash {
            RssHash::Fields { .. } => ethtool(&format!("-N {link} rx-flow-hash {}", self.hash)),
            RssHash::Key(key) => ethtool(&format!("-X {link} hkey {key}")),
            RssHash::SymmetricKey => {
                let own = ethtool(&format!("-x {link}"));
                let over = "sed -n '/^RSS hash key/{n;s/..:../6d:5a/g;p;}'";
                ethtool(&format!("-X {link} hkey $({own} | {over})"))
            }
        }
    }

    fn refusal(&self, _: &At<'_>, was: &RssHash) -> Result<Option<String>, StepError> {
        Ok(self.refused_by(was))
    }

    /// A card survives its namespace.
    fn lifetime(&self) -> Lifetime<'_> {
        Lifetime::Machine
    }

    fn missing(&self) -> StepError {
        let what = match &self.hash {
            RssHash::Fields { flow, .. } => format!("hash fields of {flow}"),
            RssHash::Key(_) | RssHash::SymmetricKey => "hash key".to_owned(),
        };
        StepError::Refused { why: format!("{} has no {what}", self.link) }
    }
}

impl SetRssHash {
    /// Why a card that has `was` cannot be given it: what it could not be given back, or a key of another length.
    fn refused_by(&self, was: &RssHash) -> Option<String> {
        let SetRssHash { link, hash } = self;
        match (hash, was) {
            // Drivers take some fields or none of a flow type, but hardly one takes none again.
            (RssHash::Fields { flow, .. }, RssHash::Fields { fields, .. }) if fields.is_empty() => {
                Some(format!("{link} hashes {flow} by no field, and that state could not be restored"))
            }
            (RssHash::Key(wanted), RssHash::Key(was)) if wanted.len() != was.len() => {
                let (wanted, own) = (wanted.len(), was.len());
                Some(format!("the hash key of {link} has {own} bytes, the requested key has {wanted}"))
            }
            (RssHash::SymmetricKey, RssHash::Key(key)) if HashKey::symmetric(key.len()).is_none() => {
                Some(self.not_symmetric(was))
            }
            _ => None,
        }
    }

    fn not_symmetric(&self, was: &RssHash) -> String {
        let bytes = if let RssHash::Key(key) = was { key.len() } else { 0 };
        let link = &self.link;
        format!("the hash key of {link} has {bytes} bytes, and a symmetric one has an even number of them")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(hash: RssHash) -> SetRssHash {
        SetRssHash { link: IfName::new("eth0").unwrap(), hash }
    }

    #[track_caller]
    fn check(wanted: RssHash, was: &RssHash, why: Option<&str>) {
        assert_eq!(set(wanted).refused_by(was).as_deref(), why);
    }

    fn key(text: &str) -> RssHash {
        RssHash::key_of(text).unwrap()
    }

    #[test]
    fn a_key_of_another_length_is_refused_with_both_lengths() {
        check(key("01:02:03"), &key("00:00:00"), None);
        check(
            key("01:02"),
            &key("00:00:00"),
            Some("the hash key of eth0 has 3 bytes, the requested key has 2"),
        );
        check(key("symmetric"), &key("00:00"), None);
        check(
            key("symmetric"),
            &key("00:00:00"),
            Some("the hash key of eth0 has 3 bytes, and a symmetric one has an even number of them"),
        );
    }

    #[test]
    fn what_could_not_be_given_back_is_not_taken() {
        let fields = |text: &str| RssHash::fields_of(text).unwrap().remove(0);
        check(fields("udp4 sdfn"), &fields("udp4 sd"), None);
        let none: RssHash = serde_json::from_str(r#"{"fields":{"flow":"udp4","fields":0}}"#).unwrap();
        let why = "eth0 hashes udp4 by no field, and that state could not be restored";
        check(fields("udp4 sdfn"), &none, Some(why));
    }

    #[test]
    fn a_symmetric_key_is_met_by_the_bytes_of_any_even_length() {
        let is_met = |asked: &str, found: &str| set(key(asked)).is_met(&key(found));
        assert!(is_met("symmetric", "6d:5a:6d:5a") && is_met("symmetric", "6d:5a"));
        assert!(!is_met("symmetric", "6d:5a:6d") && !is_met("symmetric", "5a:6d"));
        assert!(is_met("6d:5a", "6D:5A") && !is_met("6d:5a", "6d:5b"));
    }
}
