//! What is known of this boot alone: which addresses were released a moment ago, and whether what earlier boots left
//! behind is gone.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The content of `.hostgap-released`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Released {
    /// The id of the boot in which it was written. In another one all of it is void.
    boot_id: String,
    /// Whether the reservations of earlier boots were released.
    pub(crate) is_swept: bool,
    /// When each address was released, in milliseconds since boot.
    at_ms: BTreeMap<IpAddr, u64>,
}

impl Released {
    /// Reads it. What is of another boot, or damaged, is as if it did not exist.
    pub(crate) fn read(bytes: &[u8], boot_id: &str) -> Released {
        let known: Option<Released> = serde_json::from_slice(bytes).ok();
        known
            .filter(|released| released.boot_id == boot_id)
            .unwrap_or_else(|| Released { boot_id: boot_id.to_owned(), ..Released::default() })
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("the keys of an object are texts")
    }

    /// Notes the release of addresses, and forgets those that have rested.
    pub(crate) fn add(&mut self, addresses: &[IpAddr], since_boot: Duration, rest: Duration) {
        self.at_ms.retain(|_, at_ms| rests(*at_ms, since_boot, rest));
        self.at_ms.extend(addresses.iter().map(|address| (*address, millis(since_boot))));
    }

    /// The addresses that were released less than `rest` ago, the oldest first.
    pub(crate) fn resting(&self, since_boot: Duration, rest: Duration) -> Vec<IpAddr> {
        let mut resting: Vec<(u64, IpAddr)> = self
            .at_ms
            .iter()
            .filter(|(_, at_ms)| rests(**at_ms, since_boot, rest))
            .map(|(address, at_ms)| (*at_ms, *address))
            .collect();
        resting.sort_unstable();
        resting.into_iter().map(|(_, address)| address).collect()
    }
}

/// A time to come is none that this boot has written, so it does not count.
fn rests(at_ms: u64, since_boot: Duration, rest: Duration) -> bool {
    millis(since_boot).checked_sub(at_ms).is_some_and(|age_ms| age_ms < millis(rest))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn texts(addresses: &[IpAddr]) -> Vec<String> {
        addresses.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_address_rests_for_its_time_and_is_then_forgotten() {
        let mut released = Released::read(b"", "a");
        released.add(&["10.0.0.9".parse().unwrap()], at(100), REST);
        released.add(&["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()], at(110), REST);
        let mut read = Released::read(&released.bytes(), "a");
        assert_eq!(read, released);
        assert_eq!(texts(&read.resting(at(110), REST)), ["10.0.0.9", "10.0.0.2", "fd00::2"]);
        assert_eq!(texts(&read.resting(at(130), REST)), ["10.0.0.2", "fd00::2"]);
        read.add(&[], at(140), REST);
        assert!(read.at_ms.is_empty(), "{read:?}");
    }

    #[test]
    fn the_file_of_another_boot_or_a_damaged_one_is_ignored() {
        let mut released = Released::read(b"", "a");
        released.is_swept = true;
        released.add(&["10.0.0.9".parse().unwrap()], at(100), REST);
        let bytes = released.bytes();
        assert_eq!(Released::read(&bytes, "b"), Released { boot_id: "b".to_owned(), ..Released::default() });
        assert_eq!(Released::read(&bytes[1..], "a"), Released::read(b"", "a"));
        assert_eq!(texts(&Released::read(&bytes, "a").resting(at(99), REST)), [""; 0]);
    }
}
