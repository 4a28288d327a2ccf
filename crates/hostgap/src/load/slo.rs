//! Response time limits as they are typed and printed.

use ::load::slo::{Limit, Slo, SloMiss};

use crate::units;

/// Reads limits with commas between them: `p99<2ms,p99.9<10ms`.
pub(super) fn read(text: &str) -> Result<Slo, String> {
    text.split(',').map(limit).collect::<Result<_, _>>().map(Slo::new)
}

fn limit(text: &str) -> Result<Limit, String> {
    let bad = || format!("`{text}` is not a limit: p99<2ms or p99.9<10ms is expected");
    let (percentile, time) = text.trim().split_once('<').ok_or_else(bad)?;
    let percentile = percentile.trim().strip_prefix('p').ok_or_else(bad)?.parse().map_err(|_| bad())?;
    let below = units::duration(time.trim())?;
    Limit::new(percentile, below.as_nanos() as u64).ok_or_else(bad)
}

/// `p99 < 2.00 ms, p99.9 < 10.0 ms`.
pub(super) fn words(slo: &Slo) -> String {
    let limit = |limit: &Limit| format!("p{} < {}", limit.percentile(), units::time(limit.below_ns()));
    slo.limits().iter().map(limit).collect::<Vec<_>>().join(", ")
}

/// Why the limits did not hold.
pub(super) fn why(broken: &SloMiss) -> String {
    match broken {
        SloMiss::NothingDue => "no request was due in so short a time".to_owned(),
        SloMiss::Unanswered { unanswered, intended } => {
            format!("{unanswered} of {intended} requests were not answered as expected")
        }
        SloMiss::Slow { percentile, seen_ns } => format!("p{percentile} was {}", units::time(*seen_ns)),
        SloMiss::Unsent { unsent, intended, because } => {
            format!("{unsent} of {intended} requests could not be sent in time: {because}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_printed() {
        let slo = read("p99<2ms, p99.9 < 10ms").unwrap();
        let limit = |percentile, below_ns| Limit::new(percentile, below_ns).unwrap();
        assert_eq!(slo, Slo::new(vec![limit(99.0, 2_000_000), limit(99.9, 10_000_000)]));
        assert_eq!(words(&slo), "p99 < 2.00 ms, p99.9 < 10.0 ms");
        for text in ["", "p99", "99<2ms", "p99<2", "p100<1s", "p99<0s", "p50<1ms,", "p99>1ms"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_miss_says_which_limit_and_by_how_much() {
        assert_eq!(why(&SloMiss::Slow { percentile: 99.9, seen_ns: 5_000_000 }), "p99.9 was 5.00 ms");
        let unanswered = SloMiss::Unanswered { unanswered: 1, intended: 10 };
        assert_eq!(why(&unanswered), "1 of 10 requests were not answered as expected");
    }
}
