//! Rates of requests and their text: `30%` of the reference's capacity, `20k`, `1.5M`, `20000` a second.

use std::fmt;
use std::str::FromStr;

use serde::de::{Error, Visitor};

/// A rate as it is asked for, before the capacity is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RequestedRate {
    /// Requests per second, 1 to 10 million.
    PerSecond(f64),
    /// A share of the reference's capacity, above 0 and at most 1.
    OfCapacity(f64),
}

/// A text or a number that is no rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a rate: {why}")]
pub struct RateParseError {
    /// The text that was rejected.
    pub text: String,
    /// The rule that the text breaks.
    pub why: &'static str,
}

impl RequestedRate {
    /// The greatest rate allowed, in requests per second: far above the capacity of one machine, so that a unit typed
    /// twice is detected.
    pub const MAX_PER_SECOND: f64 = 10_000_000.0;

    /// Checks that the figure is within the allowed range.
    pub fn checked(self) -> Result<RequestedRate, RateParseError> {
        let (valid, why) = match self {
            RequestedRate::PerSecond(rate) => (
                (1.0..=RequestedRate::MAX_PER_SECOND).contains(&rate),
                "1 to 10 million requests per second are possible",
            ),
            RequestedRate::OfCapacity(share) => {
                (share > 0.0 && share <= 1.0, "a share of capacity is above 0% and at most 100%")
            }
        };
        if valid { Ok(self) } else { Err(RateParseError { text: self.to_string(), why }) }
    }
}

impl FromStr for RequestedRate {
    type Err = RateParseError;

    fn from_str(text: &str) -> Result<RequestedRate, RateParseError> {
        let trimmed = text.trim();
        let (figure, unit) = trimmed.split_at(trimmed.trim_end_matches(['%', 'k', 'K', 'm', 'M']).len());
        let bad = || RateParseError { text: text.to_owned(), why: "30%, 20k, 1.5M or 20000 is expected" };
        // `f64` would accept "inf", "nan" and "1e4" too, none of which is a valid rate.
        if figure.is_empty() || !figure.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(bad());
        }
        let figure: f64 = figure.parse().map_err(|_| bad())?;
        let rate = match unit {
            "" => RequestedRate::PerSecond(figure),
            "k" | "K" => RequestedRate::PerSecond(figure * 1e3),
            "m" | "M" => RequestedRate::PerSecond(figure * 1e6),
            "%" => RequestedRate::OfCapacity(figure / 100.0),
            _ => return Err(bad()),
        };
        rate.checked().map_err(|error| RateParseError { text: text.to_owned(), ..error })
    }
}

impl fmt::Display for RequestedRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestedRate::PerSecond(rate) => write!(f, "{rate}"),
            RequestedRate::OfCapacity(share) => write!(f, "{}%", percent(*share)),
        }
    }
}

/// The shortest text of a percentage that is read back as the same share: 0.07 × 100 is not 7 in binary. Every share
/// that came from a text has one.
pub(crate) fn percent(share: f64) -> String {
    (0..=17)
        .map(|digits| format!("{:.digits$}", share * 100.0))
        .find(|text| text.parse::<f64>().is_ok_and(|percent| percent / 100.0 == share))
        .unwrap_or_else(|| (share * 100.0).to_string())
}

impl serde::Serialize for RequestedRate {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            RequestedRate::PerSecond(rate) => serializer.serialize_f64(*rate),
            RequestedRate::OfCapacity(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> serde::Deserialize<'de> for RequestedRate {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<RequestedRate, D::Error> {
        deserializer.deserialize_any(TextOrNumber)
    }
}

/// Takes `"30%"` as well as `20000`.
struct TextOrNumber;

impl Visitor<'_> for TextOrNumber {
    type Value = RequestedRate;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rate: \"30%\", \"20k\" or 20000")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<RequestedRate, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_f64<E: Error>(self, rate: f64) -> Result<RequestedRate, E> {
        RequestedRate::PerSecond(rate).checked().map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, rate: u64) -> Result<RequestedRate, E> {
        self.visit_f64(rate as f64)
    }

    fn visit_i64<E: Error>(self, rate: i64) -> Result<RequestedRate, E> {
        self.visit_f64(rate as f64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: RequestedRate) {
        assert_eq!(text.parse(), Ok(expected), "{text}");
        let json = serde_json::to_string(&expected).unwrap();
        assert_eq!(serde_json::from_str::<RequestedRate>(&json).unwrap(), expected, "{json}");
    }

    #[test]
    fn texts_and_numbers_are_rates() {
        check("30%", RequestedRate::OfCapacity(0.3));
        check("7%", RequestedRate::OfCapacity(0.07));
        check("12.5%", RequestedRate::OfCapacity(0.125));
        check("100%", RequestedRate::OfCapacity(1.0));
        check("20k", RequestedRate::PerSecond(20_000.0));
        check("1.5M", RequestedRate::PerSecond(1_500_000.0));
        check(" 20000 ", RequestedRate::PerSecond(20_000.0));
        assert_eq!(
            serde_json::from_str::<RequestedRate>("20000").unwrap(),
            RequestedRate::PerSecond(20_000.0)
        );
        assert_eq!(RequestedRate::OfCapacity(0.07).to_string(), "7%");
        assert_eq!(RequestedRate::PerSecond(20_000.0).to_string(), "20000");
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in
            ["", "%", "k", "0", "0%", "101%", "-5", "nan", "inf", "1e4", "20 req", "5%%", "1.2.3", "11M"]
        {
            assert!(text.parse::<RequestedRate>().is_err(), "{text:?}");
        }
        for json in ["0", "-1", "0.5", "1e9", "true", "null"] {
            assert!(serde_json::from_str::<RequestedRate>(json).is_err(), "{json}");
        }
    }

    proptest! {
        #[test]
        fn printed_is_read_back(millionths in 1_u32..=1_000_000, rate in 1_u32..10_000_000) {
            let share: RequestedRate = format!("{}%", f64::from(millionths) / 1e4).parse().unwrap();
            prop_assert_eq!(share.to_string().parse::<RequestedRate>(), Ok(share));
            let rate = RequestedRate::PerSecond(f64::from(rate));
            prop_assert_eq!(rate.to_string().parse::<RequestedRate>(), Ok(rate));
        }
    }
}
