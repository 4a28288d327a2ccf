//! What the wire between the nodes does to packets beside carrying them: `delay = "40ms"`, `loss = "0.2%"`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::decimal;
use crate::experiment_error::{ExperimentError, out_of_range};

/// What happens to packets in one direction. `None` means the behaviour of a plain wire: no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Wire {
    /// How long a packet is under way; a round trip takes it twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Delay>,
    /// By how much the delay is longer or shorter, evenly spread. Packets overtake each other then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Delay>,
    /// The share of packets that are lost, independently of each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Share>,
    /// The share of packets that are not delayed and overtake those before them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Share>,
    /// What it carries, with Ethernet headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitRate>,
    /// What the sending node's own link puts on it, with Ethernet headers: the line rate of its card. What waits for it
    /// waits in the node, where its queueing discipline manages it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line_rate: Option<BitRate>,
    /// False: packets are segmented before they enter it, so that each segment is lost independently.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gso: Option<bool>,
}

/// What of the wire is otherwise for one candidate alone, by direction: `underlay.to_client = { loss = "0%" }`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ways {
    /// What the way to the server does otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_server: Option<Wire>,
    /// What the way to the client does otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_client: Option<Wire>,
}

/// A time: `40ms`, `1.5ms`, `250us`, `2s`. To the nanosecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Delay {
    /// The delay in nanoseconds.
    pub ns: u64,
}

/// A share of packets: `0.2%`. To a billionth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Share {
    pub billionths: u64,
}

/// A rate of bits: `100mbit`, `2.5gbit`, `512kbit`. Decimal units, to the bit, as `tc` has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct BitRate {
    /// The rate in bits per second.
    pub bits_per_s: u64,
}

/// A text that is no figure of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct FigureError {
    /// The text that was rejected.
    pub text: String,
    /// What it should be, with examples.
    pub expected: &'static str,
}

/// Units with the power of ten of the smallest.
const TIMES: &[(&str, u32)] = &[("s", 9), ("ms", 6), ("us", 3), ("ns", 0)];
const SHARES: &[(&str, u32)] = &[("%", 7)];
const RATES: &[(&str, u32)] = &[("gbit", 9), ("mbit", 6), ("kbit", 3), ("bit", 0)];

/// The longest delay: above what any wire on earth takes, and short enough for a TCP connection to be made.
const DELAY_MAX: Delay = Delay { ns: 2_000_000_000 };
/// The greatest loss with which TCP still answers within a race's patience.
const LOSS_MAX: Share = Share { billionths: 500_000_000 };
const CERTAIN: Share = Share { billionths: 1_000_000_000 };
/// The least rate: a packet of 1500 bytes then takes 190 ms.
const RATE_MIN: BitRate = BitRate { bits_per_s: 64_000 };
/// The greatest rate: beyond any network card, so that a unit typed twice is found out.
const RATE_MAX: BitRate = BitRate { bits_per_s: 1_000_000_000_000 };

impl Wire {
    /// Whether packets are delayed, lost or held back. Segmenting alone needs no device in between. Jitter and
    /// reordering have no effect without a delay.
    pub fn is_shaped(&self) -> bool {
        self.delay.is_some_and(|delay| delay.ns > 0)
            || self.loss.is_some_and(|loss| loss.billionths > 0)
            || self.rate.is_some()
    }

    /// This wire, with unset properties taken from the other.
    #[must_use]
    pub fn or(self, other: Wire) -> Wire {
        Wire {
            delay: self.delay.or(other.delay),
            jitter: self.jitter.or(other.jitter),
            loss: self.loss.or(other.loss),
            reorder: self.reorder.or(other.reorder),
            rate: self.rate.or(other.rate),
            line_rate: self.line_rate.or(other.line_rate),
            gso: self.gso.or(other.gso),
        }
    }

    /// Its keys as lines of an experiment file.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("texts and a switch can be written")
    }

    /// Checks the ranges; `table` is where it stands in the file.
    pub(crate) fn validate(&self, table: &str) -> Result<(), ExperimentError> {
        let fault = |key: &str, value: &dyn fmt::Display, why: String| {
            Err(out_of_range(&format!("{table}.{key}"), value, why))
        };
        let delay = self.delay.unwrap_or_default();
        if delay > DELAY_MAX {
            return fault("delay", &delay, format!("up to {DELAY_MAX} is possible"));
        }
        if let Some(jitter) = self.jitter
            && jitter > delay
        {
            return fault("jitter", &jitter, format!("at most the delay, {delay}, can be taken off it"));
        }
        if let Some(loss) = self.loss
            && loss > LOSS_MAX
        {
            return fault("loss", &loss, format!("up to {LOSS_MAX} is possible, beyond it TCP gives up"));
        }
        if let Some(reorder) = self.reorder {
            if reorder > CERTAIN {
                return fault("reorder", &reorder, format!("up to {CERTAIN} is possible"));
            }
            if reorder.billionths > 0 && delay.ns == 0 {
                return fault(
                    "reorder",
                    &reorder,
                    "without `delay` no packet waits that it could overtake".into(),
                );
            }
        }
        for (key, rate) in [("rate", self.rate), ("line_rate", self.line_rate)] {
            if let Some(rate) = rate
                && !(RATE_MIN..=RATE_MAX).contains(&rate)
            {
                return fault(key, &rate, format!("{RATE_MIN} to {RATE_MAX} is expected"));
            }
        }
        Ok(())
    }

    /// Its lowest bit rate, if it has one.
    pub fn narrowest(&self) -> Option<BitRate> {
        self.rate.into_iter().chain(self.line_rate).min()
    }
}

impl Ways {
    /// True if the wire is the experiment's.
    pub fn is_empty(&self) -> bool {
        *self == Ways::default()
    }

    /// The ways that are otherwise, with their names.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, Wire)> {
        let ways = [("to_server", self.to_server), ("to_client", self.to_client)];
        ways.into_iter().filter_map(|(name, way)| Some((name, way?)))
    }
}

impl fmt::Display for Wire {
    /// `delay 40ms, loss 0.2%, rate 100mbit`; empty for a plain wire.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wire { delay, jitter, loss, reorder, rate, line_rate, gso } = self;
        let mut parts = Vec::new();
        parts.extend(delay.map(|delay| format!("delay {delay}")));
        parts.extend(jitter.map(|jitter| format!("jitter {jitter}")));
        parts.extend(loss.map(|loss| format!("loss {loss}")));
        parts.extend(reorder.map(|reorder| format!("reorder {reorder}")));
        parts.extend(rate.map(|rate| format!("rate {rate}")));
        parts.extend(line_rate.map(|rate| format!("line rate {rate}")));
        parts.extend((*gso == Some(false)).then(|| "no GSO".to_owned()));
        f.write_str(&parts.join(", "))
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&decimal::text(self.ns, TIMES))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", decimal::in_unit(self.billionths, 7))
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&decimal::text(self.bits_per_s, RATES))
    }
}

fn figure(text: &str, units: &[(&str, u32)], expected: &'static str) -> Result<u64, FigureError> {
    decimal::parse(text, units).ok_or_else(|| FigureError { text: text.to_owned(), expected })
}

impl FromStr for Delay {
    type Err = FigureError;

    fn from_str(text: &str) -> Result<Delay, FigureError> {
        figure(text, TIMES, "a time: 40ms, 250us or 1.5s is expected").map(|ns| Delay { ns })
    }
}

impl FromStr for Share {
    type Err = FigureError;

    fn from_str(text: &str) -> Result<Share, FigureError> {
        let expected = "a share of packets: 0.2% or 5% is expected";
        figure(text, SHARES, expected).map(|billionths| Share { billionths })
    }
}

impl FromStr for BitRate {
    type Err = FigureError;

    fn from_str(text: &str) -> Result<BitRate, FigureError> {
        let expected = "a rate of bits per second: 512kbit, 100mbit or 2.5gbit is expected";
        figure(text, RATES, expected).map(|bits_per_s| BitRate { bits_per_s })
    }
}

/// They are texts in files: a bare number has no unit.
macro_rules! as_text {
    ($kind:ty) => {
        impl Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$kind, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

as_text!(Delay);
as_text!(Share);
as_text!(BitRate);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Experiment, Underlay};

    fn with(lines: &str) -> String {
        format!("schema = 1\nname = \"x\"\n{lines}")
    }

    #[track_caller]
    fn check(lines: &str, message: &str) {
        let error = Experiment::from_toml(&with(lines)).expect_err(lines);
        assert_eq!(error.to_string(), message);
    }

    #[track_caller]
    fn underlay(lines: &str) -> Underlay {
        Experiment::from_toml(&with(lines)).expect(lines).underlay
    }

    #[test]
    fn a_direction_says_otherwise_than_both() {
        let found = underlay(
            "[underlay]\ndelay = \"40ms\"\nloss = \"0.2%\"\nrate = \"100mbit\"\ngso = false\n\
             [underlay.to_server]\nloss = \"0%\"\n[underlay.to_client]\nrate = \"1gbit\"\ndelay = \"1.5ms\"",
        );
        let [to_server, to_client] = [found.to_server(), found.to_client()];
        assert_eq!(to_server.to_string(), "delay 40ms, loss 0%, rate 100mbit, no GSO");
        assert_eq!(to_client.to_string(), "delay 1500us, loss 0.2%, rate 1gbit, no GSO");
        assert!(to_server.is_shaped() && to_client.is_shaped());
        assert!(!underlay("underlay = { gso = false, loss = \"0%\" }").to_server().is_shaped());
        assert!(underlay("underlay = { delay = \"0ms\", loss = \"1%\" }").to_client().is_shaped());
    }

    /// Races on a plain wire are written as before there was another, for older readers.
    #[test]
    fn a_plain_wire_is_written_as_it_always_was() {
        let old = r#"{"mtu":1500,"steering":"auto"}"#;
        let plain: Underlay = serde_json::from_str(old).unwrap();
        assert_eq!(plain, Underlay::default());
        assert_eq!(serde_json::to_string(&plain).unwrap(), old);
    }

    #[test]
    fn a_candidate_s_wire_is_the_experiment_s_but_for_what_it_says() {
        let text = with(
            "underlay = { delay = \"40ms\", loss = \"1%\" }\n[[candidates]]\npath = \"host\"\nname = \"whole\"\n\
             underlay.to_client.loss = \"0%\"",
        );
        let experiment = Experiment::from_toml(&text).unwrap();
        let own = experiment.underlay.with(&experiment.candidates[0].underlay);
        assert_eq!(own.to_server().to_string(), "delay 40ms, loss 1%");
        assert_eq!(own.to_client().to_string(), "delay 40ms, loss 0%");
        let again = Experiment::from_toml(&toml::to_string(&experiment).unwrap()).unwrap();
        assert_eq!(again, experiment);
        let nameless = text.replace("name = \"whole\"\n", "");
        check(
            nameless.trim_start_matches("schema = 1\nname = \"x\"\n"),
            "`candidates.name` is missing: a candidate on a wire of its own needs a `name`",
        );
        check(
            "[[candidates]]\npath = \"host\"\nname = \"x\"\nunderlay.to_client.loss = \"60%\"",
            "`candidates.underlay.to_client.loss` is 60%: up to 50% is possible, beyond it TCP gives up",
        );
        check(
            "placement = \"same_node\"\n[[candidates]]\npath = \"host\"\nname = \"x\"\nunderlay.to_client.delay = \"5ms\"",
            "`candidates.underlay.to_client` is delay 5ms: with `placement = \"same_node\"` nothing crosses the wire",
        );
    }

    #[test]
    fn what_is_wrong_has_a_place_and_a_remedy() {
        check("[underlay]\ndelai = \"1ms\"", "line 4, column 1: unknown key `delai`, did you mean `delay`?");
        check(
            "[underlay.to_server]\nlos = \"1%\"",
            "line 4, column 1: unknown key `los`, did you mean `loss`?",
        );
        check(
            "underlay = { delay = \"40\" }",
            "line 3, column 22: `40` is not a time: 40ms, 250us or 1.5s is expected",
        );
        check(
            "underlay = { rate = \"100mbps\" }",
            "line 3, column 21: `100mbps` is not a rate of bits per second: 512kbit, 100mbit or 2.5gbit is expected",
        );
        check(
            "underlay = { loss = 0.2 }",
            "line 3, column 21: invalid type: floating point `0.2`, expected a string",
        );
        check("underlay = { delay = \"3s\" }", "`underlay.delay` is 3s: up to 2s is possible");
        check(
            "underlay = { delay = \"3ms\", jitter = \"4ms\" }",
            "`underlay.jitter` is 4ms: at most the delay, 3ms, can be taken off it",
        );
        check(
            "underlay = { delay = \"9ms\", to_client = { loss = \"51%\" } }",
            "`underlay.to_client.loss` is 51%: up to 50% is possible, beyond it TCP gives up",
        );
        check(
            "underlay = { reorder = \"1%\" }",
            "`underlay.reorder` is 1%: without `delay` no packet waits that it could overtake",
        );
        check("underlay = { rate = \"5kbit\" }", "`underlay.rate` is 5kbit: 64kbit to 1000gbit is expected");
        check(
            "underlay = { to_client = { line_rate = \"5kbit\" } }",
            "`underlay.to_client.line_rate` is 5kbit: 64kbit to 1000gbit is expected",
        );
        check(
            "placement = \"same_node\"\nunderlay = { delay = \"5ms\" }",
            "`underlay` is delay 5ms: with `placement = \"same_node\"` nothing crosses the wire",
        );
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_again(ns: u64, billionths in 0_u64..=1_000_000_000, bits_per_s: u64) {
            let (delay, share, rate) = (Delay { ns }, Share { billionths }, BitRate { bits_per_s });
            prop_assert_eq!(delay.to_string().parse(), Ok(delay));
            prop_assert_eq!(share.to_string().parse(), Ok(share));
            prop_assert_eq!(rate.to_string().parse(), Ok(rate));
            let wire = Wire { delay: Some(delay), loss: Some(share), rate: Some(rate), ..Wire::default() };
            let underlay = Underlay { to_client: Some(wire), ..Underlay::default() };
            let text = toml::to_string(&underlay).unwrap();
            prop_assert_eq!(toml::from_str::<Underlay>(&text).unwrap(), underlay);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9.]{0,25}[a-z%]{0,5}") {
            let _figures = (text.parse::<Delay>(), text.parse::<Share>(), text.parse::<BitRate>());
        }
    }
}
