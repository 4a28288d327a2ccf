//! Parsing and checking of response time limits.

use std::fmt;
use std::str::FromStr;

use ::load::Outcome;

use crate::units;

/// A service level objective: percentiles of response time, each with its limit.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Slo(Vec<Limit>);

#[derive(Debug, Clone, PartialEq)]
struct Limit {
    /// In percent, as typed.
    percentile: f64,
    below_ns: u64,
}

impl Slo {
    /// The first limit that does not hold; `None`: all hold. Requests without an answer count as slower than all
    /// others.
    pub(super) fn broken(&self, outcome: &Outcome) -> Option<String> {
        if outcome.intended == 0 {
            return Some("no request was due in so short a time".to_owned());
        }
        let unanswered = outcome.intended - outcome.answered;
        self.0.iter().find_map(|limit| {
            let beyond = (outcome.intended as f64 * (1.0 - limit.percentile / 100.0)) as u64;
            if unanswered > beyond {
                let all = outcome.intended;
                return Some(format!("{unanswered} of {all} requests were not answered as expected"));
            }
            // The percentile of all intended requests, with the unanswered ones ranked last.
            let answered = outcome.answered as f64;
            let place = (outcome.intended as f64 * limit.percentile / 100.0 / answered).min(1.0);
            let seen_ns = outcome.response.value_at_quantile(place);
            (seen_ns >= limit.below_ns).then(|| format!("p{} was {}", limit.percentile, units::time(seen_ns)))
        })
    }
}

impl FromStr for Slo {
    type Err = String;

    fn from_str(text: &str) -> Result<Slo, String> {
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Slo)
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Limit, String> {
        let bad = || format!("`{text}` is not a limit: p99<2ms or p99.9<10ms is expected");
        let (percentile, time) = text.trim().split_once('<').ok_or_else(bad)?;
        let percentile = percentile.trim().strip_prefix('p').ok_or_else(bad)?.parse().map_err(|_| bad())?;
        let below = units::duration(time.trim())?;
        if !(0.0..100.0).contains(&percentile) || below.is_zero() {
            return Err(bad());
        }
        Ok(Limit { percentile, below_ns: below.as_nanos() as u64 })
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, limit) in self.0.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}p{} < {}", limit.percentile, units::time(limit.below_ns))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_without_answers_break_any_limit_and_none_at_all_meet_none() {
        let slo: Slo = "p50<1h".parse().unwrap();
        let mut outcome = ::load::Outcome::new(Some(1.0), ::load::Protocol::Http);
        assert_eq!(slo.broken(&outcome).as_deref(), Some("no request was due in so short a time"));
        (outcome.intended, outcome.sent) = (10, 10);
        assert_eq!(slo.broken(&outcome).as_deref(), Some("10 of 10 requests were not answered as expected"));
        outcome.answered = 10;
        outcome.response.record_n(1_000, 10).unwrap();
        assert_eq!(slo.broken(&outcome), None);
    }

    #[test]
    fn limits_are_read() {
        let slo: Slo = "p99<2ms, p99.9 < 10ms".parse().unwrap();
        let limit = |percentile, below_ns| Limit { percentile, below_ns };
        assert_eq!(slo, Slo(vec![limit(99.0, 2_000_000), limit(99.9, 10_000_000)]));
        for text in ["", "p99", "99<2ms", "p99<2", "p100<1s", "p99<0s", "p50<1ms,", "p99>1ms"] {
            assert!(text.parse::<Slo>().is_err(), "{text}");
        }
    }
}
