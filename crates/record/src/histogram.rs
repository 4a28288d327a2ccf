//! Histograms of nanoseconds that travel as HdrHistogram V2 payloads: compressed, in base64, readable by every
//! implementation of HdrHistogram.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram as Hdr;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::de::{Error, Visitor};

use crate::payload;

/// Values at most: sums over the histograms of any file are exact.
const COUNT_MAX: u64 = 1 << 44;

/// A histogram of nanoseconds, 1 ns to 1 h with three significant digits.
///
/// Stores only the recorded bins: a full HdrHistogram of these bounds is a quarter of a megabyte, and a record has
/// thousands of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Histogram {
    /// Ascending; a value is the highest that its bin stands for.
    bins: Vec<(u64, u64)>,
}

impl Histogram {
    /// The greatest value that is recorded: one hour in nanoseconds. Greater ones count as one hour.
    pub const MAX_NS: u64 = 3_600_000_000_000;

    /// A histogram without samples.
    pub fn new() -> Histogram {
        Histogram::default()
    }

    /// The recorded values in ascending order, each with its count. A value is the highest of its bin, as in
    /// [`Hdr::value_at_quantile`].
    pub fn bins(&self) -> &[(u64, u64)] {
        &self.bins
    }

    /// How many values were recorded.
    pub fn count(&self) -> u64 {
        self.bins.iter().map(|(_, count)| count).sum()
    }

    /// Adds all values to a full histogram; what lies above its bounds becomes its greatest.
    pub fn add_to(&self, hdr: &mut Hdr<u64>) {
        for (value, count) in &self.bins {
            hdr.saturating_record_n(*value, *count);
        }
    }

    /// An empty full histogram of these bounds.
    pub fn empty_hdr() -> Hdr<u64> {
        Hdr::new_with_bounds(1, Histogram::MAX_NS, 3).expect("1 ns to 1 h in 3 digits are valid bounds")
    }

    /// The payload as base64.
    fn to_base64(&self) -> Result<String, String> {
        let mut hdr = Histogram::empty_hdr();
        self.add_to(&mut hdr);
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&hdr, &mut bytes).map_err(|error| error.to_string())?;
        Ok(STANDARD.encode(bytes))
    }

    /// Reads a payload, compressed or not.
    fn from_base64(text: &str) -> Result<Histogram, String> {
        let bytes = STANDARD.decode(text).map_err(|error| error.to_string())?;
        let plain = payload::checked(&bytes)?;
        let hdr: Hdr<u64> =
            Deserializer::new().deserialize(&mut plain.as_ref()).map_err(|error| error.to_string())?;
        match hdr.len() {
            0..=COUNT_MAX => Ok(Histogram::from(&hdr)),
            count => Err(format!("{count} values are more than any run has")),
        }
    }
}

impl AddAssign<&Histogram> for Histogram {
    fn add_assign(&mut self, other: &Histogram) {
        let mut bins: BTreeMap<u64, u64> = self.bins.drain(..).collect();
        for (value, count) in &other.bins {
            *bins.entry(*value).or_default() += count;
        }
        self.bins = bins.into_iter().collect();
    }
}

impl From<&Hdr<u64>> for Histogram {
    fn from(hdr: &Hdr<u64>) -> Histogram {
        let bins = hdr.iter_recorded().map(|bin| (bin.value_iterated_to(), bin.count_at_value())).collect();
        Histogram { bins }
    }
}

impl serde::Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::Error;
        serializer.serialize_str(&self.to_base64().map_err(S::Error::custom)?)
    }
}

impl<'de> serde::Deserialize<'de> for Histogram {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Histogram, D::Error> {
        deserializer.deserialize_str(Payload)
    }
}

/// Visits the base64 text without copying it.
struct Payload;

impl Visitor<'_> for Payload {
    type Value = Histogram;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an HdrHistogram V2 payload in base64")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Histogram, E> {
        Histogram::from_base64(text)
            .map_err(|why| E::custom(format_args!("not an HdrHistogram payload: {why}")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip(histogram: &Histogram) -> Histogram {
        serde_json::from_str(&serde_json::to_string(histogram).unwrap()).unwrap()
    }

    #[test]
    fn an_empty_one_round_trips() {
        let back = round_trip(&Histogram::new());
        assert_eq!(back, Histogram::new());
        assert_eq!((back.count(), back.bins()), (0, &[][..]));
    }

    #[test]
    fn foreign_bytes_are_refused() {
        for text in ["\"\"", "\"AAAA\"", "\"not base64\"", "7"] {
            assert!(serde_json::from_str::<Histogram>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn more_values_than_can_be_summed_are_refused() {
        let of = |count| Histogram { bins: vec![(5, count)] }.to_base64().unwrap();
        assert!(Histogram::from_base64(&of(COUNT_MAX)).is_ok());
        let why = Histogram::from_base64(&of(COUNT_MAX + 1)).unwrap_err();
        assert_eq!(why, "17592186044417 values are more than any run has");
    }

    #[test]
    fn a_payload_of_the_reference_implementation_is_read() {
        // An uncompressed V2 payload put together by hand: cookie, 7 bytes of counts, no normalising, 3 digits, 1 to
        // 3.6e12, ratio 1.0, then zigzag LEB128 "five empty bins, three times the value 5, one times 6".
        let mut bytes = vec![0x1c, 0x84, 0x93, 0x13, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 3];
        bytes.extend(1_u64.to_be_bytes());
        bytes.extend(Histogram::MAX_NS.to_be_bytes());
        bytes.extend(1.0_f64.to_be_bytes());
        bytes.extend([9, 6, 2]);
        let histogram = Histogram::from_base64(&STANDARD.encode(bytes)).unwrap();
        assert_eq!(histogram.bins(), [(5, 3), (6, 1)]);
    }

    proptest! {
        #[test]
        fn every_histogram_round_trips(values in prop::collection::vec((1_u64..=Histogram::MAX_NS, 1_u64..1_000), 0..60)) {
            let mut hdr = Histogram::empty_hdr();
            for (value, count) in values {
                hdr.record_n(value, count).unwrap();
            }
            let histogram = Histogram::from(&hdr);
            prop_assert_eq!(histogram.count(), hdr.len());
            prop_assert_eq!(&round_trip(&histogram), &histogram);
            let mut again = Histogram::empty_hdr();
            histogram.add_to(&mut again);
            prop_assert_eq!(again, hdr);
        }

        /// Bins are the same in all histograms, so that nothing is lost.
        #[test]
        fn two_merged_are_one_of_all_values(
            ours in prop::collection::vec(1_u64..=Histogram::MAX_NS, 0..40),
            theirs in prop::collection::vec(1_u64..=Histogram::MAX_NS, 0..40),
        ) {
            let of = |values: &[u64]| {
                let mut hdr = Histogram::empty_hdr();
                values.iter().for_each(|value| hdr.record(*value).unwrap());
                hdr
            };
            let mut merged = Histogram::from(&of(&ours));
            merged += &Histogram::from(&of(&theirs));
            let all = of(&[ours, theirs].concat());
            prop_assert_eq!(merged, Histogram::from(&all));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _unread = Histogram::from_base64(&STANDARD.encode(bytes));
        }
    }
}
