//! A sweep: one race over several values of one quantity, which become its loads or its candidates.
//!
//! A sweep is a notation, not another kind of race. Sizes and rates become loads. A property of candidates (wire,
//! settings, connections) becomes a candidate for each data path and value, which knows its place on the axis. So all
//! points of a curve are interleaved, as in any race.

pub(crate) mod check;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Candidate, Delay, Experiment, RequestedRate, RequestedValue, Share, Side, Wire};

/// The quantity that is swept, and its values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// What lies on the axis.
    pub over: Over,
    /// The values, in ascending order.
    pub values: Vec<SweepValue>,
}

/// The key of an experiment that a sweep varies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Over {
    /// Sizes of bodies in bytes, [`crate::Workload::body_bytes`].
    BodyBytes,
    /// Requests per second, [`Experiment::rates`].
    Rate,
    /// A key of the candidate's wire.
    Wire(WireKey, Way),
    /// Connections of the client, [`Candidate::connections`].
    Connections,
    /// A knob of [`Candidate::tune`].
    Setting(Side, String),
}

/// The keys of a wire that can be swept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireKey {
    /// The share of packets lost, [`Wire::loss`].
    Loss,
    /// The delay of the wire, [`Wire::delay`].
    Delay,
}

/// The directions of a wire to which a value applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Way {
    /// To the server and to the client.
    Both,
    ToServer,
    ToClient,
}

/// A value as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a value of a sweep is an integer, or a text with its unit: 64, \"30%\" or \"40ms\""
)]
pub enum SweepValue {
    /// An integer without a unit.
    Number(i64),
    /// A figure with its unit.
    Text(String),
}

/// The place of a candidate in a sweep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepPosition {
    /// The name without the value, which is the name of its line.
    pub line: String,
    /// Its value, one of [`Sweep::values`].
    pub at: SweepValue,
}

/// What the figures of an axis count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AxisUnit {
    /// Bytes of a body or a packet.
    Bytes,
    /// Per cent of the reference's capacity.
    PercentOfCapacity,
    /// Requests or packets per second.
    PerSecond,
    /// Per cent of packets that are lost.
    PercentLost,
    /// Milliseconds that a packet is under way.
    Milliseconds,
    /// Connections of a candidate.
    Connections,
    /// The unit of the swept knob.
    OfTheKnob,
}

impl Sweep {
    /// The places of the values on the axis, in [`Sweep::unit`].
    ///
    /// # Errors
    ///
    /// The index of the first value that is invalid for the swept quantity, and the expected form.
    pub fn places(&self) -> Result<Vec<f64>, (usize, String)> {
        let place = |(index, value)| self.over.place(value).map_err(|why| (index, why));
        self.values.iter().enumerate().map(place).collect()
    }

    /// The unit of the places.
    pub fn unit(&self) -> AxisUnit {
        match &self.over {
            Over::BodyBytes => AxisUnit::Bytes,
            Over::Rate => match self.values.first().and_then(as_rate) {
                Some(RequestedRate::OfCapacity(_)) => AxisUnit::PercentOfCapacity,
                Some(RequestedRate::PerSecond(_)) | None => AxisUnit::PerSecond,
            },
            Over::Wire(WireKey::Loss, _) => AxisUnit::PercentLost,
            Over::Wire(WireKey::Delay, _) => AxisUnit::Milliseconds,
            Over::Connections => AxisUnit::Connections,
            Over::Setting(..) => AxisUnit::OfTheKnob,
        }
    }

    /// The rates of a sweep over rates.
    pub(crate) fn rates(&self) -> Vec<RequestedRate> {
        self.values.iter().filter_map(as_rate).collect()
    }

    /// The sizes of a sweep over sizes.
    pub(crate) fn sizes(&self) -> Vec<u32> {
        let number = |value: &SweepValue| u32::try_from(as_number(value)?).ok();
        self.values.iter().filter_map(number).collect()
    }
}

impl Over {
    /// True if the values become loads, common to all candidates; otherwise each value is a candidate for each data
    /// path.
    pub fn is_load(&self) -> bool {
        matches!(self, Over::BodyBytes | Over::Rate)
    }

    /// The place of a value on the axis, or the expected form if it is invalid.
    fn place(&self, value: &SweepValue) -> Result<f64, String> {
        let wrong = |expected: &str| Err(format!("{expected} is expected"));
        match self {
            Over::BodyBytes | Over::Connections => match as_number(value) {
                Some(number) if (0..=i64::from(u32::MAX)).contains(&number) => Ok(number as f64),
                _ => wrong("a whole number without a unit, such as 64,"),
            },
            Over::Setting(..) => match as_number(value) {
                Some(number) => Ok(number as f64),
                None => wrong(
                    "an integer, which has a place on an axis; race texts as candidates with `tune` of their own: an integer",
                ),
            },
            Over::Rate => match as_rate(value) {
                Some(RequestedRate::OfCapacity(share)) => Ok(share * 100.0),
                Some(RequestedRate::PerSecond(rate)) => Ok(rate),
                None => wrong("a rate, \"30%\", \"20k\" or 20000,"),
            },
            Over::Wire(WireKey::Loss, _) => match figure::<Share>(value) {
                Some(share) => Ok(share.billionths as f64 / 1e7),
                None => wrong("a share of packets, \"0.2%\" or \"5%\","),
            },
            Over::Wire(WireKey::Delay, _) => match figure::<Delay>(value) {
                Some(delay) => Ok(delay.ns as f64 / 1e6),
                None => wrong("a time, \"40ms\" or \"250us\","),
            },
        }
    }

    /// A candidate at a value.
    pub(crate) fn laid(&self, candidate: &Candidate, value: &SweepValue) -> Candidate {
        let line = candidate.title();
        let mut laid = candidate.clone();
        let label = match self {
            Over::BodyBytes | Over::Rate => return laid,
            Over::Wire(key, way) => {
                key.lay(*way, &mut laid, value);
                value.to_string().replace('%', " %")
            }
            Over::Connections => {
                laid.connections = as_number(value).and_then(|number| u32::try_from(number).ok());
                let plural = if *value == SweepValue::Number(1) { "" } else { "s" };
                format!("{value} connection{plural}")
            }
            Over::Setting(side, knob) => {
                let knobs = match side {
                    Side::Both => &mut laid.tune.both,
                    Side::Client => &mut laid.tune.client,
                    Side::Server => &mut laid.tune.server,
                };
                knobs.insert(knob.clone(), value.requested());
                format!("{}={value}", self.to_string().trim_start_matches("settings."))
            }
        };
        laid.name = Some(format!("{line} {label}"));
        laid.swept = Some(SweepPosition { line, at: value.clone() });
        laid
    }

    /// Whether a candidate sets the swept quantity itself.
    pub(crate) fn is_said_by(&self, candidate: &Candidate) -> bool {
        let ways = &candidate.underlay;
        match self {
            Over::BodyBytes | Over::Rate => false,
            Over::Wire(key, Way::Both) => key.is_in(ways.to_server) || key.is_in(ways.to_client),
            Over::Wire(key, Way::ToServer) => key.is_in(ways.to_server),
            Over::Wire(key, Way::ToClient) => key.is_in(ways.to_client),
            Over::Connections => candidate.connections.is_some(),
            Over::Setting(side, knob) => match side {
                Side::Both => {
                    let tune = &candidate.tune;
                    [&tune.both, &tune.client, &tune.server].iter().any(|knobs| knobs.contains_key(knob))
                }
                Side::Client => candidate.tune.client.contains_key(knob),
                Side::Server => candidate.tune.server.contains_key(knob),
            },
        }
    }
}

impl WireKey {
    fn lay(self, way: Way, candidate: &mut Candidate, value: &SweepValue) {
        let lay = |wire: &mut Option<Wire>| {
            let wire = wire.get_or_insert_default();
            match self {
                WireKey::Loss => wire.loss = figure(value),
                WireKey::Delay => wire.delay = figure(value),
            }
        };
        let ways = &mut candidate.underlay;
        match way {
            Way::Both => [&mut ways.to_server, &mut ways.to_client].into_iter().for_each(lay),
            Way::ToServer => lay(&mut ways.to_server),
            Way::ToClient => lay(&mut ways.to_client),
        }
    }

    fn is_in(self, wire: Option<Wire>) -> bool {
        wire.is_some_and(|wire| match self {
            WireKey::Loss => wire.loss.is_some(),
            WireKey::Delay => wire.delay.is_some(),
        })
    }
}

impl SweepValue {
    /// As the value of a knob.
    fn requested(&self) -> RequestedValue {
        match self {
            SweepValue::Number(number) => RequestedValue::Number(*number),
            SweepValue::Text(text) => RequestedValue::Text(text.clone()),
        }
    }
}

/// Whether two lists have the same members.
pub(crate) fn alike<T: PartialEq>(some: &[T], others: &[T]) -> bool {
    some.len() == others.len() && some.iter().all(|one| others.contains(one))
}

fn as_number(value: &SweepValue) -> Option<i64> {
    match value {
        SweepValue::Number(number) => Some(*number),
        SweepValue::Text(_) => None,
    }
}

fn as_rate(value: &SweepValue) -> Option<RequestedRate> {
    match value {
        SweepValue::Number(number) => RequestedRate::PerSecond(*number as f64).checked().ok(),
        SweepValue::Text(text) => text.parse().ok(),
    }
}

fn figure<T: FromStr>(value: &SweepValue) -> Option<T> {
    match value {
        SweepValue::Number(_) => None,
        SweepValue::Text(text) => text.parse().ok(),
    }
}

impl Experiment {
    /// The experiment with its sweep expanded into rates, sizes or candidates. Candidates that already have their
    /// place stay as they are, so the expansion may be repeated.
    #[must_use]
    pub fn swept(&self) -> Experiment {
        let mut laid = self.clone();
        let Some(sweep) = &self.sweep else { return laid };
        match &sweep.over {
            // If the sizes are also listed, the list gives the order in which they race: the verdict is about the
            // first size.
            Over::BodyBytes if alike(&self.workload.body_bytes, &sweep.sizes()) => {}
            Over::Rate if alike(&self.rates, &sweep.rates()) => {}
            Over::BodyBytes => laid.workload.body_bytes = sweep.sizes(),
            Over::Rate => laid.rates = sweep.rates(),
            over @ (Over::Wire(..) | Over::Connections | Over::Setting(..)) => {
                let at_all = |candidate: &Candidate| match candidate.swept {
                    Some(_) => vec![candidate.clone()],
                    None => sweep.values.iter().map(|value| over.laid(candidate, value)).collect(),
                };
                laid.candidates = self.candidates.iter().flat_map(at_all).collect();
            }
        }
        laid
    }
}

/// Wires in the order in which they are listed.
const WIRES: [(&str, Over); 6] = [
    ("loss", Over::Wire(WireKey::Loss, Way::Both)),
    ("to_server.loss", Over::Wire(WireKey::Loss, Way::ToServer)),
    ("to_client.loss", Over::Wire(WireKey::Loss, Way::ToClient)),
    ("delay", Over::Wire(WireKey::Delay, Way::Both)),
    ("to_server.delay", Over::Wire(WireKey::Delay, Way::ToServer)),
    ("to_client.delay", Over::Wire(WireKey::Delay, Way::ToClient)),
];

/// The valid values of [`Over`], for an error message.
const EXPECTED: &str =
    "`body_bytes`, `rate`, `loss`, `delay` (or one way, `to_server.loss`), `connections` or `settings.KNOB`";

impl FromStr for Over {
    type Err = String;

    fn from_str(text: &str) -> Result<Over, String> {
        let wrong = || format!("`{text}` cannot be swept: {EXPECTED} is expected");
        if let Some((_, over)) = WIRES.iter().find(|(name, _)| *name == text) {
            return Ok(over.clone());
        }
        match text {
            "body_bytes" => return Ok(Over::BodyBytes),
            "rate" => return Ok(Over::Rate),
            "connections" => return Ok(Over::Connections),
            _ => {}
        }
        let setting = text.strip_prefix("settings.").ok_or_else(wrong)?;
        let (side, knob) = match setting.split_once('.') {
            Some(("client", knob)) => (Side::Client, knob),
            Some(("server", knob)) => (Side::Server, knob),
            _ => (Side::Both, setting),
        };
        if knob.is_empty() { Err(wrong()) } else { Ok(Over::Setting(side, knob.to_owned())) }
    }
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Over::BodyBytes => f.write_str("body_bytes"),
            Over::Rate => f.write_str("rate"),
            Over::Connections => f.write_str("connections"),
            Over::Wire(..) => {
                let name = WIRES.iter().find(|(_, over)| over == self).map(|(name, _)| *name);
                f.write_str(name.expect("each key of each way is listed"))
            }
            Over::Setting(side, knob) => {
                let side = match side {
                    Side::Both => "",
                    Side::Client => "client.",
                    Side::Server => "server.",
                };
                write!(f, "settings.{side}{knob}")
            }
        }
    }
}

impl TryFrom<String> for Over {
    type Error = String;

    fn try_from(text: String) -> Result<Over, String> {
        text.parse()
    }
}

impl From<Over> for String {
    fn from(over: Over) -> String {
        over.to_string()
    }
}

impl fmt::Display for SweepValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SweepValue::Number(number) => number.fmt(f),
            SweepValue::Text(text) => f.write_str(text),
        }
    }
}
