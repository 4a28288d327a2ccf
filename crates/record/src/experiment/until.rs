//! When a race ends for what it sees: `±3%` of a statistic at every candidate, or a verdict.

use std::fmt;
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::experiment_error::{out_of_range, within};
use crate::rate::percent;
use crate::{Experiment, ExperimentError, Measure, Statistic, StatisticError};

/// How well every candidate's ratio to the reference is to be known, unless a difference is found before. As text
/// `3%`, `±3%`, `p99.9:10%`, `req/s:1%`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Until {
    /// Of which statistic; `None`: at each load of the one that decides first there.
    pub statistic: Option<Statistic>,
    /// Half of the interval's width, as a share: 0.03 is ±3 %.
    pub half_width: f64,
}

/// A text that is no end of a race.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum UntilError {
    /// The part before the colon.
    #[error(transparent)]
    Statistic(#[from] StatisticError),
    /// The precision, behind the statistic and its colon.
    #[error("`{text}` is not a precision: {why}")]
    HalfWidth {
        /// The text that was rejected.
        text: String,
        /// The rule that the text breaks.
        why: &'static str,
    },
}

impl Until {
    /// Seconds that a race may take if its experiment does not say.
    pub const BUDGET_S: u32 = 360;

    /// The half-width in the logarithm, as intervals have it.
    pub fn half_width_ln(&self) -> f64 {
        self.half_width.ln_1p()
    }

    /// The statistic that is to be known at a load; `None` if the load does not have the one that was named.
    pub fn statistic_at(&self, closed: bool) -> Option<Statistic> {
        match (self.statistic, closed) {
            (None, true) | (Some(Statistic::Throughput), true) => Some(Statistic::Throughput),
            (None, false) => Some(Statistic::P99),
            (Some(Statistic::Throughput), false) | (Some(_), true) => None,
            (named, false) => named,
        }
    }
}

impl FromStr for Until {
    type Err = UntilError;

    fn from_str(text: &str) -> Result<Until, UntilError> {
        let (statistic, width) = match text.trim().split_once(':') {
            Some((name, width)) => (Some(name.trim().parse()?), width.trim()),
            None => (None, text.trim()),
        };
        let bad = |why| UntilError::HalfWidth { text: text.to_owned(), why };
        let expected = "3%, ±3%, p50:2% or p99.9:10% is expected";
        let figure = width.strip_prefix('±').or_else(|| width.strip_prefix("+-")).unwrap_or(width);
        let figure = figure.trim().strip_suffix('%').ok_or_else(|| bad(expected))?.trim_end();
        // `f64` would accept "inf", "nan" and "1e4" too.
        if figure.is_empty() || !figure.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(bad(expected));
        }
        let half_width = figure.parse::<f64>().map_err(|_| bad(expected))? / 100.0;
        if !(0.001..=1.0).contains(&half_width) {
            return Err(bad("0.1% to 100% is expected; no race of hours knows a tail better"));
        }
        Ok(Until { statistic, half_width })
    }
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(statistic) = self.statistic {
            write!(f, "{statistic}:")?;
        }
        write!(f, "{}%", percent(self.half_width))
    }
}

impl Serialize for Until {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Until {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Until, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl Experiment {
    /// Seconds that a race with `until` may take from its first build on.
    pub fn budget_s(&self) -> u32 {
        self.budget_s.unwrap_or(Until::BUDGET_S)
    }

    /// The rounds of a build where the number of builds is not known before the race.
    pub fn rounds_a_build(&self) -> u32 {
        self.rounds.div_ceil(self.builds.max(1)).max(1)
    }

    pub(crate) fn validate_until(&self) -> Result<(), ExperimentError> {
        if let Some(budget_s) = self.budget_s {
            within("budget_s", budget_s, 1..=604_800)?;
        }
        let Some(until) = self.until else {
            let why = "it is the limit of a race with `until` (--until ±3%); without that, set `rounds`";
            return self.budget_s.map_or(Ok(()), |budget| Err(out_of_range("budget_s", budget, why)));
        };
        let measure = self.workload.kind.measure();
        if measure != Measure::Latency && until.statistic.is_some_and(|of| of != Statistic::Throughput) {
            let why = format!("this workload is compared by {}; ask for that", measure.unit());
            return Err(out_of_range("until", until, why));
        }
        if self.exact() {
            let why = "instructions are counted, and have no interval that more rounds would narrow";
            return Err(out_of_range("until", until, why));
        }
        if self.profile {
            let why = "a profile is of all candidates after the last build, and they leave before; profile in a race \
                       without `until`";
            return Err(out_of_range("until", until, why));
        }
        if self.why_late {
            let why = "late answers are looked at for all candidates after the last build, and they leave before; ask \
                       in a race without `until`";
            return Err(out_of_range("until", until, why));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, statistic: Option<Statistic>, half_width: f64, written: &str) {
        let until: Until = text.parse().expect(text);
        assert_eq!(until, Until { statistic, half_width }, "{text}");
        assert_eq!(until.to_string(), written);
    }

    #[test]
    fn a_precision_with_or_without_a_statistic() {
        check("3%", None, 0.03, "3%");
        check("±3%", None, 0.03, "3%");
        check(" +-0.5 % ", None, 0.005, "0.5%");
        check("p50:±2%", Some(Statistic::P50), 0.02, "p50:2%");
        check("p99.9:10%", Some(Statistic::P99_9), 0.1, "p99.9:10%");
        check("req/s:1%", Some(Statistic::Throughput), 0.01, "throughput:1%");
        check("Mbit/s:7%", Some(Statistic::Throughput), 0.07, "throughput:7%");
    }

    #[test]
    fn what_is_none_says_what_is_expected() {
        for (text, words) in [
            ("3", "`3` is not a precision: 3%, ±3%"),
            ("0%", "0.1% to 100%"),
            ("p99", "`p99` is not a precision"),
            ("p98:3%", "`p98` is not a statistic: p50"),
            ("1e1%", "is expected"),
            ("-3%", "is expected"),
            ("", "is expected"),
        ] {
            let error = text.parse::<Until>().expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn a_load_has_its_own_statistic_or_the_named_one() {
        let at = |text: &str| [true, false].map(|closed| text.parse::<Until>().unwrap().statistic_at(closed));
        assert_eq!(at("3%"), [Some(Statistic::Throughput), Some(Statistic::P99)]);
        assert_eq!(at("p50:3%"), [None, Some(Statistic::P50)]);
        assert_eq!(at("req/s:3%"), [Some(Statistic::Throughput), None]);
    }

    #[test]
    fn an_experiment_is_checked_as_a_whole() {
        let with = |lines: &str| Experiment::from_toml(&format!("schema = 1\nname = \"x\"\n{lines}"));
        let error = |lines: &str| with(lines).expect_err(lines).to_string();
        let experiment = with("until = \"p99.9:10%\"\nbudget_s = 90").unwrap();
        assert_eq!((experiment.budget_s(), experiment.rounds_a_build()), (90, 2));
        assert_eq!(with("until = \"3%\"").unwrap().budget_s(), 360);
        assert!(error("until = \"3\"").contains("line 3, column 9: `3` is not a precision"));
        assert!(error("budget_s = 90").contains("without that, set `rounds`"));
        assert!(error("until = \"3%\"\nbudget_s = 0").contains("`budget_s` is 0: 1 to 604800"));
        assert!(error("until = \"3%\"\nprofile = true").contains("profile in a race without"));
        assert!(error("until = \"3%\"\nwhy_late = true").contains("ask in a race without"));
        let stream = "until = \"p99:3%\"\n[workload]\nkind = \"tcp-stream\"\nbody_bytes = [1000]";
        assert!(error(stream).contains("compared by Mbit/s"), "{}", error(stream));
    }

    proptest! {
        #[test]
        fn printed_is_read_back(thousandths in 100_u32..=100_000, of in 0_usize..8) {
            let half_width = format!("{}%", f64::from(thousandths) / 1e3).parse::<Until>().unwrap().half_width;
            let until = Until { statistic: Statistic::ALL.get(of).copied(), half_width };
            prop_assert_eq!(until.to_string().parse::<Until>(), Ok(until));
        }
    }
}
