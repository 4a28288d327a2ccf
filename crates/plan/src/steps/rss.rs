//! What a network card hashes received flows by: their fields, and the key.

use linux::IfName;
use linux::ethtool::HashKey;

use super::{MovedBack, Past, by_index, existing, taken};
use crate::entry::{After, Before, Intent, Undone};
use crate::error::StepError;
use crate::{Kernel, Place, Placed, RssHash};

/// Refuses what the card does not have or cannot be given back, and a key of another length than its own.
pub(super) fn before(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    wanted: &RssHash,
) -> Result<Before, StepError> {
    let index = existing(kernel, place, link)?.index;
    let was = read(kernel, place, link, wanted)?;
    match refusal(link, wanted, &was) {
        Some(why) => Err(StepError::Refused { why }),
        None => Ok(Before::RssHash { index, was }),
    }
}

pub(super) fn act(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    wanted: &RssHash,
    before: &Before,
) -> Result<(), StepError> {
    let Before::RssHash { was, .. } = before else { unreachable!("before made another state") };
    // Some drivers stop and start the link even if nothing changes.
    if wanted.is_met_by(was) {
        return Ok(());
    }
    write(kernel, place, link, wanted)
}

pub(super) fn after(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    wanted: &RssHash,
) -> Result<After, StepError> {
    Ok(After::RssHash { is: read(kernel, place, link, wanted)? })
}

pub(super) fn verify(wanted: &RssHash, found: &RssHash) -> Result<(), StepError> {
    if wanted.is_met_by(found) { Ok(()) } else { taken(wanted, found, ToString::to_string) }
}

pub(super) fn undo(
    kernel: &mut Kernel,
    past: &Past,
    wanted: &RssHash,
    moved: &MovedBack,
) -> Result<Undone, StepError> {
    let Intent { placed: Placed { place, .. }, before, .. } = &past.intent;
    let Before::RssHash { index, was } = before else { unreachable!("before made another state") };
    let link = by_index(&kernel.at(place)?.netlink, moved.now(place, *index))?;
    let Some(link) = link.map(|link| link.name) else { return Ok(Undone::Gone) };
    let now = read(kernel, place, &link, wanted)?;
    let is_ours = match &past.after {
        Some(After::RssHash { is }) => now == *is,
        _ => wanted.is_met_by(&now),
    };
    if now == *was {
        Ok(Undone::AlreadySo)
    } else if is_ours {
        write(kernel, place, &link, was)?;
        Ok(Undone::Restored)
    } else {
        Ok(Undone::ChangedByOther { found: now.to_string() })
    }
}

/// What the card has of the kind of `about`.
fn read(kernel: &mut Kernel, place: &Place, link: &IfName, about: &RssHash) -> Result<RssHash, StepError> {
    let ethtool = kernel.at(place)?.ethtool()?;
    let found = match about {
        RssHash::Fields { flow, .. } => ethtool
            .read_hash_fields(link, *flow)?
            .map(|fields| RssHash::Fields { flow: *flow, fields })
            .ok_or_else(|| format!("{link} has no hash fields of {flow}")),
        RssHash::Key(_) | RssHash::SymmetricKey => {
            let key = ethtool.read_hash_key(link)?.map(RssHash::Key);
            key.ok_or_else(|| format!("{link} has no hash key"))
        }
    };
    found.map_err(|why| StepError::Refused { why })
}

fn write(kernel: &mut Kernel, place: &Place, link: &IfName, hash: &RssHash) -> Result<(), StepError> {
    let ethtool = kernel.at(place)?.ethtool()?;
    match hash {
        RssHash::Fields { flow, fields } => ethtool.write_hash_fields(link, *flow, *fields)?,
        RssHash::Key(key) => ethtool.write_hash_key(link, key)?,
        RssHash::SymmetricKey => {
            let length = ethtool.read_hash_key(link)?.map_or(0, |key| key.len());
            let key = HashKey::symmetric(length)
                .ok_or_else(|| StepError::Refused { why: not_symmetric(link, length) })?;
            ethtool.write_hash_key(link, &key)?;
        }
    }
    Ok(())
}

/// Why a card that has `was` cannot be given `wanted`.
fn refusal(link: &IfName, wanted: &RssHash, was: &RssHash) -> Option<String> {
    match (wanted, was) {
        // Drivers take some fields or none of a flow type, but hardly one takes none again.
        (RssHash::Fields { flow, .. }, RssHash::Fields { fields, .. }) if fields.is_empty() => {
            Some(format!("{link} hashes {flow} by no field, and it could not be told so again"))
        }
        (RssHash::Key(wanted), RssHash::Key(was)) if wanted.len() != was.len() => {
            let (wanted, own) = (wanted.len(), was.len());
            Some(format!("the hash key of {link} has {own} bytes, and this one has {wanted}"))
        }
        (RssHash::SymmetricKey, RssHash::Key(was)) if HashKey::symmetric(was.len()).is_none() => {
            Some(not_symmetric(link, was.len()))
        }
        _ => None,
    }
}

fn not_symmetric(link: &IfName, length: usize) -> String {
    format!("the hash key of {link} has {length} bytes, and a symmetric one has an even number of them")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(wanted: &RssHash, was: &RssHash, why: Option<&str>) {
        assert_eq!(refusal(&IfName::new("eth0").unwrap(), wanted, was).as_deref(), why);
    }

    fn key(text: &str) -> RssHash {
        RssHash::key_of(text).unwrap()
    }

    #[test]
    fn a_key_of_another_length_is_refused_with_both_lengths() {
        check(&key("01:02:03"), &key("00:00:00"), None);
        check(&key("01:02"), &key("00:00:00"), Some("the hash key of eth0 has 3 bytes, and this one has 2"));
        check(&key("symmetric"), &key("00:00"), None);
        check(
            &key("symmetric"),
            &key("00:00:00"),
            Some("the hash key of eth0 has 3 bytes, and a symmetric one has an even number of them"),
        );
    }

    #[test]
    fn what_could_not_be_given_back_is_not_taken() {
        let fields = |text: &str| RssHash::fields_of(text).unwrap().remove(0);
        check(&fields("udp4 sdfn"), &fields("udp4 sd"), None);
        let none: RssHash = serde_json::from_str(r#"{"fields":{"flow":"udp4","fields":0}}"#).unwrap();
        let why = "eth0 hashes udp4 by no field, and it could not be told so again";
        check(&fields("udp4 sdfn"), &none, Some(why));
    }

    #[test]
    fn what_the_card_made_of_it_is_compared() {
        assert!(verify(&key("symmetric"), &key("6d:5a:6d:5a")).is_ok());
        let error = verify(&key("01:02"), &key("00:00")).unwrap_err().to_string();
        assert!(error.contains("01:02") && error.contains("00:00"), "{error}");
    }
}
