//! What became of the requests: an account without noise.

use super::{Check, Kind};
use crate::{Outcome, Schedule};

/// How far the achieved rate may be from the requested one: what the best generators reach.
const RATE_ERROR_MAX: f64 = 1e-4;
/// The least share of the requests that is answered as expected.
const ANSWERED_MIN: f64 = 0.999;

/// Whether requests were sent at the rate that was asked for: those sent before the schedule's end, against those due.
///
/// The last of the random instants may lie as near to the end as it likes, and a request that is sent a microsecond
/// after it is not slow; so one may be missing then.
pub(super) fn rate(outcome: &Outcome, schedule: &Schedule) -> Check {
    let (rate_per_s, spare) = match schedule {
        Schedule::Constant { rate_per_s } => (*rate_per_s, 0),
        Schedule::Poisson { rate_per_s, .. } => (*rate_per_s, 1),
        Schedule::Saturate => {
            return Check::unjudged("rate", Kind::Truth, "no rate was asked for, as many as go were sent");
        }
    };
    if outcome.intended == 0 {
        return Check::unjudged("rate", Kind::Truth, "the schedule ended before the first request was due");
    }
    let missing = outcome.intended.abs_diff(outcome.sent_in_schedule);
    let error = missing as f64 / outcome.intended as f64;
    let mut text = format!(
        "of {} requests that were due {} were sent in time, {:.2}/s",
        outcome.intended,
        outcome.sent_in_schedule,
        outcome.sent_per_s()
    );
    if missing > 0 {
        text += &format!(", which is {} of the {rate_per_s}/s asked", percent_off(error));
    }
    if outcome.dropped > 0 {
        text += &format!(" ({} were dropped, no connection was free)", outcome.dropped);
    }
    let remedy = if blames_connections(outcome) {
        "requests waited for a free connection: the server, the path or the generator cannot do this rate; more \
         connections help if each answer takes long"
    } else {
        "the generator is at its end; more threads and CPUs, or a lower rate"
    };
    Check::passed("rate", Kind::Truth, text)
        .unless(missing.saturating_sub(spare) as f64 <= RATE_ERROR_MAX * outcome.intended as f64, remedy)
        .figures(&[
            ("requested_rps", rate_per_s),
            ("achieved_rps", outcome.sent_per_s()),
            ("error_share", error),
            ("limit_share", RATE_ERROR_MAX),
        ])
}

/// Whether the requests were answered, and as expected.
pub(super) fn answered(outcome: &Outcome) -> Check {
    if outcome.intended == 0 {
        return Check::unjudged("answered", Kind::Truth, "nothing was asked");
    }
    let share = outcome.answered as f64 / outcome.intended as f64;
    let mut text = format!("of {} requests {} were answered as expected", outcome.intended, outcome.answered);
    let missed = outcome.missed.count();
    if missed > 0 {
        text += &format!(", {missed} had no answer when waiting ended");
    }
    if let Some((status, body_bytes)) = outcome.unexpected.first {
        let count = outcome.unexpected.count();
        text += &format!(
            ", {count} were answered otherwise, the first with status {status} and {body_bytes} bytes"
        );
    }
    Check::passed("answered", Kind::Truth, text)
        .unless(
            share >= ANSWERED_MIN,
            "that is less than 99.9 %, and the percentiles leave the others out; lower the rate, or mend the \
             server",
        )
        .figures(&[("answered_share", share), ("limit_share", ANSWERED_MIN)])
}

/// Whether all connections held.
pub(super) fn errors(outcome: &Outcome) -> Check {
    let count = outcome.faults.count();
    let mut text = match count {
        0 => "no connection broke".to_owned(),
        count => format!("{count} connections broke"),
    };
    let kinds: Vec<String> = outcome
        .faults
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    if !kinds.is_empty() {
        text += &format!(" ({})", kinds.join(", "));
    }
    if let Some(fault) = &outcome.first_fault {
        text += &format!(", the first because: {fault}");
    }
    Check::passed("errors", Kind::Truth, text)
        .unless(count == 0, "what was open on them is lost; see the server's own log")
        .figures(&[("count", count as f64)])
}

/// True if requests were sent late mostly because no connection was free, which is not the generator's doing.
pub(super) fn blames_connections(outcome: &Outcome) -> bool {
    let p99 = |times: &hdrhistogram::Histogram<u64>| times.value_at_quantile(0.99);
    p99(&outcome.lag) > 2 * p99(&outcome.late)
}

/// A share below the whole, exact enough to be seen.
fn percent_off(share: f64) -> String {
    format!("{:.4} % off", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::super::made::{RATE_PER_S, good};
    use super::*;
    use crate::{Fault, Faults};

    const CONSTANT: Schedule = Schedule::Constant { rate_per_s: RATE_PER_S };
    const POISSON: Schedule = Schedule::Poisson { rate_per_s: RATE_PER_S, seed: 1 };

    #[track_caller]
    fn sent(intended: u64, sent_in_schedule: u64, schedule: &Schedule, passed: bool) -> String {
        let outcome = Outcome { intended, sent_in_schedule, ..good() };
        let check = rate(&outcome, schedule);
        assert_eq!(check.passed, Some(passed), "{check:?}");
        check.text
    }

    #[test]
    fn a_rate_is_kept_to_one_in_ten_thousand() {
        sent(20_000, 20_000, &CONSTANT, true);
        sent(20_000, 19_998, &CONSTANT, true);
        assert!(sent(20_000, 19_997, &CONSTANT, false).contains("0.0150 % off"));
        sent(500, 499, &CONSTANT, false);
        // Too many are as wrong as too few.
        sent(20_000, 20_010, &CONSTANT, false);
    }

    #[test]
    fn the_last_random_instant_may_lie_at_the_very_end() {
        sent(500, 499, &POISSON, true);
        sent(500, 498, &POISSON, false);
    }

    #[test]
    fn saturating_has_no_rate() {
        assert_eq!(rate(&good(), &Schedule::Saturate).passed, None);
    }

    #[test]
    fn it_says_who_did_not_keep_up() {
        assert!(sent(20_000, 100, &CONSTANT, false).contains("the generator is at its end"));
        let mut outcome = Outcome { sent_in_schedule: 100, dropped: 7, ..good() };
        outcome.lag.record_n(1_000_000, 20_000).unwrap();
        let text = rate(&outcome, &CONSTANT).text;
        assert!(text.contains("waited for a free connection") && text.contains("7 were dropped"), "{text}");
    }

    #[test]
    fn answers_are_counted() {
        let good = good();
        let at = |answered| answered_of(&Outcome { answered, ..good.clone() });
        assert_eq!(at(good.intended).0, Some(true));
        assert_eq!(at(good.intended - good.intended / 1_000).0, Some(true));
        assert_eq!(at(good.intended - good.intended / 1_000 - 1).0, Some(false));
        let mut outcome = Outcome { answered: 0, ..good.clone() };
        outcome.unexpected.status = outcome.intended;
        outcome.unexpected.first = Some((503, 12));
        let (passed, text) = answered_of(&outcome);
        assert!(passed == Some(false) && text.contains("status 503 and 12 bytes"), "{text}");
    }

    fn answered_of(outcome: &Outcome) -> (Option<bool>, String) {
        let check = answered(outcome);
        (check.passed, check.text)
    }

    #[test]
    fn errors_are_told_by_kind() {
        assert_eq!(errors(&good()).passed, Some(true));
        let outcome = Outcome {
            first_fault: Some(Fault::Closed),
            faults: Faults { closed: 2, reset: 1, ..Faults::default() },
            ..good()
        };
        let check = errors(&outcome);
        assert_eq!((check.kind, check.passed), (Kind::Truth, Some(false)));
        assert!(
            check.text.starts_with("3 connections broke (1 reset, 2 closed), the first"),
            "{}",
            check.text
        );
    }
}
