//! What two candidates are compared by.

use std::fmt;
use std::str::FromStr;

use crate::Measure;
use crate::spelling::{did_you_mean, nearest};

/// A percentile of response time, or throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Statistic {
    P50,
    P90,
    P99,
    P99_9,
    P99_99,
    P99_999,
    /// p99 of a typical slice: the mean of the middle half of the slices' p99.
    TypicalP99,
    /// Answers per second, or the volume carried.
    Throughput,
}

/// A text that names no statistic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a statistic: p50, p90, p99, p99.9, p99.99, p99.999, typical-p99 or throughput is expected{}", did_you_mean(.nearest.as_ref()))]
pub struct StatisticError {
    /// The text that was rejected.
    pub text: String,
    /// The name that is nearest to it.
    pub nearest: Option<String>,
}

impl Statistic {
    /// In the order of their discriminants, by which they are found.
    pub const ALL: [Statistic; 8] = [
        Statistic::P50,
        Statistic::P90,
        Statistic::P99,
        Statistic::P99_9,
        Statistic::P99_99,
        Statistic::P99_999,
        Statistic::TypicalP99,
        Statistic::Throughput,
    ];

    /// As it is written in an experiment.
    pub fn name(self) -> &'static str {
        match self {
            Statistic::P50 => "p50",
            Statistic::P90 => "p90",
            Statistic::P99 => "p99",
            Statistic::P99_9 => "p99.9",
            Statistic::P99_99 => "p99.99",
            Statistic::P99_999 => "p99.999",
            Statistic::TypicalP99 => "typical-p99",
            Statistic::Throughput => "throughput",
        }
    }

    /// As it is called in a report: throughput by its unit.
    pub fn label(self, measure: Measure) -> &'static str {
        match self {
            Statistic::Throughput => measure.unit(),
            Statistic::TypicalP99 => "typical p99",
            Statistic::P50
            | Statistic::P90
            | Statistic::P99
            | Statistic::P99_9
            | Statistic::P99_99
            | Statistic::P99_999 => self.name(),
        }
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Statistic {
    type Err = StatisticError;

    /// Throughput is also known by its units.
    fn from_str(text: &str) -> Result<Statistic, StatisticError> {
        let units =
            [Measure::Latency, Measure::Bandwidth, Measure::Packets, Measure::Frames].map(Measure::unit);
        if units.contains(&text) {
            return Ok(Statistic::Throughput);
        }
        let named = |one: &Statistic| [one.name(), one.label(Measure::Latency)].contains(&text);
        Statistic::ALL.into_iter().find(named).ok_or_else(|| StatisticError {
            text: text.to_owned(),
            nearest: nearest(text, &Statistic::ALL.map(Statistic::name)).map(|name| (*name).to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for statistic in Statistic::ALL {
            assert_eq!(statistic.to_string().parse(), Ok(statistic));
            assert_eq!(Statistic::ALL[statistic as usize], statistic);
            assert_eq!(statistic.label(Measure::Latency).parse(), Ok(statistic));
        }
        assert_eq!("packets/s".parse(), Ok(Statistic::Throughput));
        let error = "p99,9".parse::<Statistic>().unwrap_err().to_string();
        assert!(error.contains("did you mean p99.9?"), "{error}");
    }
}
