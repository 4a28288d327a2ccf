//! Published figures for the question of an experiment, and what makes them comparable with ours.
//!
//! Absolute values from other machines and years cannot agree. The relation of a candidate to the reference at one
//! load can: the published figure ÷ the one published for the reference is compared with our ratio. If a publication
//! only states which was ahead, the side of 1 on which the ratio lies is compared.

mod entry;
mod publications;

use serde::{Deserialize, Serialize};

use crate::RequestedRate;

pub(crate) use entry::expanded;
pub use publications::{PublishedFact, facts};

/// A published figure for the same question.
///
/// Without a metric it is a text to be read beside ours; with one it is compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The name of the candidate that it describes, or the data path of a candidate without a name.
    // Records of the first version have `path`, and readers of that time know no other key.
    #[serde(rename = "path", alias = "candidate")]
    pub candidate: String,
    /// The quantity measured, where the other keys do not state it: "p99 ms at 150k req/s".
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub what: String,
    /// The figure, in `unit`; absent of a direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Where it was published.
    #[serde(default)]
    pub source: String,
    /// On which side of 1 the ratio to `against` lies, where no more was published; absent of a figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// The key of the [`PublishedFact`] that supplies it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// Where in the source it stands: "slide 31".
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// The metric for the comparison; `None`: it is not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<Metric>,
    /// Whom it is divided by; absent: the reference of the race.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// The unit of the value, see [`Metric::units`]; or [`RATIO`], if the figure already is such a ratio.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// Our rate to compare it with, as written in the experiment's `rates`; absent: the closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<RequestedRate>,
    /// Our size to compare it with; absent: the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_bytes: Option<u32>,
    /// What the figure is rounded to, in its unit; absent: it is taken as exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounded_to: Option<f64>,
    /// The circumstances of the measurement: "150,000 requests/s, 30 % of the most".
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub setting: String,
    /// Why this experiment cannot test it, although it has a metric.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub not_comparable: String,
}

/// The unit of a figure that was published as a multiple of another candidate's.
pub const RATIO: &str = "ratio";

/// On which side of 1 a ratio lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Below 1: less than the other's.
    Lower,
    /// Above 1: more than the other's.
    Higher,
}

/// What a published figure is compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Metric {
    /// The median response time.
    #[serde(rename = "p50")]
    P50,
    /// 90 % of response times are at most this.
    #[serde(rename = "p90")]
    P90,
    /// The 95th percentile of response time.
    #[serde(rename = "p95")]
    P95,
    /// The 99th percentile of response time.
    #[serde(rename = "p99")]
    P99,
    /// The 99.5th percentile of response time.
    #[serde(rename = "p99.5")]
    P99_5,
    /// The 99.9th percentile of response time.
    #[serde(rename = "p99.9")]
    P99_9,
    /// The 99.99th percentile of response time.
    #[serde(rename = "p99.99")]
    P99_99,
    /// The 99.999th percentile of response time.
    #[serde(rename = "p99.999")]
    P99_999,
    /// The greatest response time.
    #[serde(rename = "max")]
    Max,
    /// The mean response time, which is compared where one was published, and is never a headline.
    #[serde(rename = "mean")]
    Mean,
    /// Answers per second, all connections together.
    #[serde(rename = "requests")]
    Requests,
    /// Bits per second that were delivered.
    #[serde(rename = "bandwidth")]
    Bandwidth,
    /// Packets per second: of `packets` those that one CPU judges, of `udp-stream` those that arrive.
    #[serde(rename = "packets")]
    Packets,
    /// The share of packets that were not delivered.
    #[serde(rename = "loss")]
    Loss,
    /// The share of the time of the server's CPUs that they spend in softirq.
    #[serde(rename = "cpu_softirq")]
    CpuSoftirq,
    /// The same of the one CPU that spends the most of its time so; takes [`crate::Experiment::by_cpu`].
    #[serde(rename = "cpu_softirq_max")]
    CpuSoftirqMax,
}

/// Units with how many of the base unit each is.
type Units = &'static [(&'static str, f64)];

/// Units of time, in nanoseconds.
const TIMES: Units = &[("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
/// Base: one a second.
const COUNTS: Units = &[("requests/s", 1.0)];
/// Base: a packet a second.
const PACKETS: Units = &[("packets/s", 1.0), ("Mpps", 1e6)];
/// Base: a bit a second.
const BITS: Units = &[("Mbit/s", 1e6), ("Gbit/s", 1e9)];
/// Units of shares, as parts of the whole.
const SHARES: Units = &[("%", 0.01)];

impl Metric {
    /// Its name, as in the experiment file, and its units with how many of the base unit each is. Base units are those
    /// of the record: nanoseconds, one a second, bits a second, shares from 0 to 1.
    fn row(self) -> (&'static str, Units) {
        match self {
            Metric::P50 => ("p50", TIMES),
            Metric::P90 => ("p90", TIMES),
            Metric::P95 => ("p95", TIMES),
            Metric::P99 => ("p99", TIMES),
            Metric::P99_5 => ("p99.5", TIMES),
            Metric::P99_9 => ("p99.9", TIMES),
            Metric::P99_99 => ("p99.99", TIMES),
            Metric::P99_999 => ("p99.999", TIMES),
            Metric::Max => ("max", TIMES),
            Metric::Mean => ("mean", TIMES),
            Metric::Requests => ("requests", COUNTS),
            Metric::Bandwidth => ("bandwidth", BITS),
            Metric::Packets => ("packets", PACKETS),
            Metric::Loss => ("loss", SHARES),
            Metric::CpuSoftirq => ("cpu_softirq", SHARES),
            Metric::CpuSoftirqMax => ("cpu_softirq_max", SHARES),
        }
    }

    /// Its name, as in the experiment file.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// The valid units of such a figure, each as a multiple of the record's base unit.
    pub fn units(self) -> &'static [(&'static str, f64)] {
        self.row().1
    }
}

impl Published {
    /// Whether the figure is a multiple of another candidate's already.
    pub fn is_ratio(&self) -> bool {
        self.unit == RATIO
    }

    /// The figure's unit as a multiple of the record's base unit; `None` without a metric or with an invalid unit.
    pub fn scale(&self) -> Option<f64> {
        let units = self.metric?.units();
        units.iter().find(|(unit, _)| *unit == self.unit).map(|(_, scale)| *scale)
    }

    /// Why the figure is invalid: its key, its value there, and the expected form.
    pub(crate) fn fault(&self) -> Option<(&'static str, String, String)> {
        let fault = |key, value: &dyn ToString, why: &str| Some((key, value.to_string(), why.to_owned()));
        let value = match (self.value, self.direction) {
            (Some(value), None) => value,
            // A direction has no value; 1 stands in as a valid ratio.
            (None, Some(_)) => 1.0,
            (Some(value), Some(_)) => {
                return fault("published.value", &value, "a direction has no value; write two entries");
            }
            (None, None) => {
                let why =
                    "a `value` is expected, a `direction`, or the `key` of a figure that comes with hostgap";
                return fault("published", &self.candidate, why);
            }
        };
        if self.direction.is_some() && self.metric.is_none() {
            return fault(
                "published.direction",
                &self.candidate,
                "a direction takes a `metric` to be compared by",
            );
        }
        if !value.is_finite() {
            return fault("published.value", &value, "a finite number is expected");
        }
        if self.source.is_empty() || (self.what.is_empty() && self.metric.is_none()) {
            let why = "a figure without what it is and where it was published cannot be checked";
            return fault("published", &value, why);
        }
        if self.rounded_to.is_some_and(|step| !step.is_finite() || step <= 0.0) {
            return fault(
                "published.rounded_to",
                &self.rounded_to.unwrap_or(0.0),
                "a number above 0 is expected",
            );
        }
        let metric = self.metric?;
        if value < 0.0 {
            return fault("published.value", &value, "what is compared as a ratio is not negative");
        }
        if self.direction.is_none() && self.scale().is_none() && !self.is_ratio() {
            let known: Vec<&str> = metric.units().iter().map(|(unit, _)| *unit).collect();
            let why = format!("the unit of {} is {} or {RATIO}", metric.name(), known.join(" or "));
            return fault("published.unit", &format!("`{}`", self.unit), &why);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
path = "bridge+vxlan"
metric = "p99.5"
value = 1.6
unit = "ms"
rate = "30%"
body_bytes = 100
rounded_to = 0.1
setting = "150,000 requests/s"
source = "a talk, 2015"
"#;

    #[track_caller]
    fn check(from: &str, to: &str, expected: &str) {
        let text = WHOLE.replace(from, to);
        assert!(from.is_empty() || text != WHOLE, "{from} is in the text");
        let (key, value, why) = toml::from_str::<Published>(&text).unwrap().fault().expect(&text);
        assert_eq!(format!("{key} is {value}: {why}"), expected);
    }

    #[test]
    fn a_figure_is_read_under_either_name_of_its_candidate() {
        let by_path: Published = toml::from_str(WHOLE).unwrap();
        let by_name: Published = toml::from_str(&WHOLE.replace("path", "candidate")).unwrap();
        assert_eq!(by_path, by_name);
        assert_eq!((by_path.fault(), by_path.scale()), (None, Some(1e6)));
        let again: Published = toml::from_str(&toml::to_string(&by_path).unwrap()).unwrap();
        assert_eq!(again, by_path);
    }

    /// Readers of the first version know these four keys and no other.
    #[test]
    fn a_figure_that_is_only_shown_is_written_as_it_always_was() {
        let old = r#"{"path":"docker","what":"p99 ms","value":1.5,"source":"a talk"}"#;
        let figure: Published = serde_json::from_str(old).unwrap();
        assert_eq!((figure.metric, figure.fault()), (None, None));
        assert_eq!(serde_json::to_string(&figure).unwrap(), old);
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        let ratio: Published = toml::from_str(&WHOLE.replace("\"ms\"", "\"ratio\"")).unwrap();
        assert_eq!((ratio.fault(), ratio.scale()), (None, None));
        check("value = 1.6", "value = inf", "published.value is inf: a finite number is expected");
        check(
            "value = 1.6",
            "value = -1",
            "published.value is -1: what is compared as a ratio is not negative",
        );
        check(
            "\"ms\"",
            "\"Mbit/s\"",
            "published.unit is `Mbit/s`: the unit of p99.5 is ns or us or µs or ms or s or ratio",
        );
        check(
            "unit = \"ms\"",
            "",
            "published.unit is ``: the unit of p99.5 is ns or us or µs or ms or s or ratio",
        );
        check(
            "rounded_to = 0.1",
            "rounded_to = 0",
            "published.rounded_to is 0: a number above 0 is expected",
        );
        let nothing =
            "published is 1.6: a figure without what it is and where it was published cannot be checked";
        check("a talk, 2015", "", nothing);
        check("metric = \"p99.5\"", "", nothing);
    }

    #[test]
    fn every_metric_is_called_as_it_is_written() {
        for name in ["p50", "p90", "p95", "p99", "p99.5", "p99.9", "p99.99", "p99.999", "max", "mean"] {
            let metric: Metric = serde_json::from_str(&format!("\"{name}\"")).unwrap();
            assert_eq!((metric.name(), metric.units()), (name, TIMES));
        }
        let shares = ["loss", "cpu_softirq", "cpu_softirq_max"].map(|name| (name, SHARES));
        for (name, unit) in
            [("requests", COUNTS), ("bandwidth", BITS), ("packets", PACKETS)].into_iter().chain(shares)
        {
            let metric: Metric = serde_json::from_str(&format!("\"{name}\"")).unwrap();
            assert_eq!((metric.name(), metric.units()), (name, unit));
        }
    }
}
