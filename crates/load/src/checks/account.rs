//! What became of the requests: an account without noise.

use super::cause::{LEFT_OPEN, Shares, Shortage, generator, is_left_open};
use super::phrases::{connections, fault, time, unexpected};
use super::{CheckResult, CheckWeight};
use crate::{Outcome, Protocol, Schedule};

/// How far the achieved rate may be from the requested one: what the best generators reach.
const RATE_ERROR_MAX: f64 = 1e-4;
/// The least share of the requests that is answered as expected.
const ANSWERED_MIN: f64 = 0.999;

/// Whether requests were sent at the requested rate: those sent before the schedule's end, against those due.
///
/// The last of the random instants may lie arbitrarily close to the end, and a request sent a microsecond later is not
/// slow; so one may be missing then.
pub(super) fn rate(outcome: &Outcome, schedule: &Schedule) -> CheckResult {
    let (rate_per_s, spare) = match schedule {
        Schedule::Constant { rate_per_s } => (*rate_per_s, 0),
        Schedule::Poisson { rate_per_s, .. } => (*rate_per_s, 1),
        Schedule::Saturate => {
            return CheckResult::unjudged("rate", CheckWeight::Truth, "no rate was asked for: a closed loop");
        }
    };
    if outcome.intended == 0 {
        return CheckResult::unjudged(
            "rate",
            CheckWeight::Truth,
            "the schedule ended before the first request was due",
        );
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
    if outcome.dropped.count() > 0 {
        text += &format!(" ({} were dropped)", outcome.dropped.count());
    }
    let shares = Shares::of_unsent(outcome);
    let (cause, shares) = (shares.cause(), shares.figures());
    CheckResult::passed("rate", CheckWeight::Truth, text)
        .unless(
            missing.saturating_sub(spare) as f64 <= RATE_ERROR_MAX * outcome.intended as f64,
            &cause.explained(outcome),
        )
        .figures(&[
            ("requested_rps", rate_per_s),
            ("achieved_rps", outcome.sent_per_s()),
            ("error_share", error),
            ("limit_share", RATE_ERROR_MAX),
        ])
        .figures(if missing > 0 { &shares } else { &[] })
}

/// Whether the requests were answered, and as expected.
pub(super) fn answered(outcome: &Outcome) -> CheckResult {
    if outcome.intended == 0 {
        return CheckResult::unjudged("answered", CheckWeight::Truth, "nothing was asked");
    }
    let share = outcome.answered as f64 / outcome.intended as f64;
    let text = format!(
        "of {} requests {} were answered as expected{}",
        outcome.intended,
        outcome.answered,
        fates(outcome)
    );
    CheckResult::passed("answered", CheckWeight::Truth, text)
        .unless(
            share >= ANSWERED_MIN,
            &format!(
                "that is less than 99.9 %, and the percentiles leave the others out; {}",
                unanswered(outcome)
            ),
        )
        .figures(&[("answered_share", share), ("limit_share", ANSWERED_MIN)])
}

/// What became of the requests that were not answered as expected.
fn fates(outcome: &Outcome) -> String {
    let missed = &outcome.missed;
    let noun = connections(outcome);
    let some = |count: u64, what: &str| (count > 0).then(|| format!("{count} {what}"));
    let silent = match outcome.silent {
        0 => String::new(),
        count => format!(" ({count} {noun} never had one)"),
    };
    let fates = [
        some(missed.unanswered, "had no answer when waiting ended").map(|text| text + &silent),
        some(missed.expired, "had none within --request-timeout"),
        some(missed.lost, &format!("were lost with their {noun}")),
        unexpected(outcome),
        some(missed.unsent, "were never sent"),
        some(outcome.dropped.count(), "were dropped"),
    ];
    fates.into_iter().flatten().fold(String::new(), |text, fate| text + ", " + &fate)
}

/// What to do about the most frequent reason for which requests were not answered as expected.
fn unanswered(outcome: &Outcome) -> String {
    let missed = &outcome.missed;
    let mut silent = missed.unanswered + missed.expired;
    let mut lost = missed.lost;
    let mut unsent = missed.unsent + outcome.dropped.count();
    match Shares::of_unsent(outcome).cause() {
        // If no answer is outstanding at the end, the awaited ones were lost.
        Shortage::Answers if silent > 0 || lost == 0 => silent += std::mem::take(&mut unsent),
        Shortage::Answers | Shortage::Connections => lost += std::mem::take(&mut unsent),
        Shortage::Generator => {}
    }
    let most = silent.max(lost).max(unsent).max(outcome.unexpected.count());
    let protocol = outcome.protocol;
    if most == outcome.unexpected.count() {
        let option = match protocol {
            Protocol::Grpc => {
                return "see the server's own log; the code is that of gRPC's outcome, or HTTP's status"
                    .to_owned();
            }
            Protocol::Http => "--expect-status and --expect-body say",
            Protocol::Stream | Protocol::Datagrams => "--response-bytes says",
        };
        return format!("see what the server answers; {option} what is expected");
    }
    if most == lost {
        if missed.lost > 0 && outcome.faults.count() == 0 {
            return "the server closes connections on which more requests are open; have fewer on one (--pipeline)"
                .to_owned();
        }
        return broken(outcome).to_owned();
    }
    if most == unsent {
        return generator(outcome).to_owned();
    }
    match protocol {
        Protocol::Http | Protocol::Grpc => "the server does not answer, or not in time",
        Protocol::Stream => "the server does not answer, or not in time, or with less than --response-bytes",
        Protocol::Datagrams => "they or their answers were lost on the way, or the server does not answer",
    }
    .to_owned()
}

/// Whether all connections held.
pub(super) fn errors(outcome: &Outcome) -> CheckResult {
    let count = outcome.faults.count();
    let noun = connections(outcome);
    let mut text = match count {
        0 => format!("no {noun} failed"),
        count => format!("{noun} failed {count} times"),
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
    if let Some(first) = &outcome.first_fault {
        let why = fault(outcome, &first.fault);
        text += &format!(", the first {} after the start: {why}", time(first.after.as_nanos() as f64));
    }
    CheckResult::passed("errors", CheckWeight::Truth, text)
        .unless(count == 0, broken(outcome))
        .figures(&[("count", count as f64)])
}

/// What the most frequent kind of error means, and if there is none, why there are too few connections nevertheless.
fn broken(outcome: &Outcome) -> &'static str {
    let faults = &outcome.faults;
    let ended = faults.reset + faults.closed;
    let garbled = faults.malformed + faults.unasked;
    let most = [faults.refused, ended, garbled, faults.timeout, faults.tls, faults.other].into_iter().max();
    match most {
        Some(0) if is_left_open(outcome) => LEFT_OPEN,
        // They neither came about nor failed.
        Some(0) | None => "the server took no new connections, so see how many it takes",
        Some(most) if most == faults.refused => {
            "nothing listened there any more: the server ended, or closed its port"
        }
        Some(most) if most == ended => {
            "the server ended connections, or something between it and here did; see the server's own log"
        }
        Some(most) if most == garbled && outcome.protocol == Protocol::Stream => {
            "the server sends more than it was asked for; --response-bytes says how much that is"
        }
        Some(most) if most == garbled => {
            "the bytes received are no answer in this protocol; check the server's protocol"
        }
        Some(most) if most == faults.timeout => "the server did not answer in time; see the server's own log",
        Some(_) => "see the server's own log",
    }
}

/// A share below the whole, exact enough to be seen.
fn percent_off(share: f64) -> String {
    format!("{:.4} % off", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::super::made::{RATE_PER_S, good};
    use std::time::Duration;

    use super::*;
    use crate::{ConnectionError, ConnectionErrors, Dropped, FirstConnectionError, Overdue, Short};

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
        assert!(sent(20_000, 100, &CONSTANT, false).contains("the generator was kept from running"));
        let mut outcome = Outcome { sent_in_schedule: 100, ..good() };
        outcome.short = Short { waiting: 64, ..Short::default() };
        outcome.backlog = Overdue { total_ns: 1_000, answers_ns: 990, connections_ns: 0 };
        let text = rate(&outcome, &CONSTANT).text;
        assert!(text.contains("no connection was free, all 64 waited for answers"), "{text}");
        assert!(!text.contains("generator"), "{text}");
        outcome.short = Short { broken: 60, connecting: 4, ..Short::default() };
        outcome.backlog = Overdue { total_ns: 1_000, answers_ns: 0, connections_ns: 990 };
        let text = rate(&outcome, &CONSTANT).text;
        assert!(text.contains("60 of 64 had broken") && text.contains("the server was gone"), "{text}");
    }

    #[test]
    fn requests_that_were_dropped_for_want_of_a_connection_are_not_the_generators_fault() {
        let mut outcome = good();
        outcome.dropped = Dropped { answers: 19_000, connections: 0, late: 0 };
        outcome.sent_in_schedule = outcome.intended - 19_000;
        outcome.short = Short { waiting: 64, ..Short::default() };
        let check = rate(&outcome, &CONSTANT);
        assert!(check.text.contains("(19000 were dropped): no connection was free"), "{}", check.text);
        let share = |name| check.figures.iter().find(|(figure, _)| *figure == name).map(|(_, share)| *share);
        assert_eq!((share("answers_share"), share("generator_share")), (Some(1.0), Some(0.0)));
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
        assert!(text.contains("--expect-status"), "{text}");
    }

    #[test]
    fn each_fate_is_counted_and_the_most_frequent_one_is_explained() {
        #[track_caller]
        fn check(change: impl FnOnce(&mut Outcome), parts: &[&str]) {
            let mut outcome = good();
            outcome.answered = 0;
            change(&mut outcome);
            let text = answered_of(&outcome).1;
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
        check(
            |outcome| (outcome.missed.unanswered, outcome.silent) = (20_000, 3),
            &["20000 had no answer when waiting ended (3 connections never had one)", "does not answer"],
        );
        check(|outcome| outcome.missed.expired = 20_000, &["within --request-timeout", "does not answer"]);
        check(
            |outcome| {
                (outcome.missed.lost, outcome.missed.unsent) = (19_000, 1_000);
                outcome.faults.reset = 8;
            },
            &["19000 were lost with their connections, 1000 were never sent", "own log"],
        );
        check(|outcome| outcome.missed.lost = 20_000, &["20000 were lost", "(--pipeline)"]);
        check(|outcome| outcome.missed.unsent = 20_000, &["20000 were never sent", "the generator was kept"]);
        check(
            |outcome| {
                outcome.missed.unsent = 20_000;
                outcome.sent_in_schedule = 0;
                outcome.backlog = Overdue { total_ns: 9, answers_ns: 9, connections_ns: 0 };
            },
            &["20000 were never sent", "the server does not answer"],
        );
        check(
            |outcome| {
                (outcome.missed.lost, outcome.missed.unsent) = (1_000, 19_000);
                outcome.sent_in_schedule = 1_000;
                outcome.backlog = Overdue { total_ns: 9, answers_ns: 9, connections_ns: 0 };
                outcome.faults.reset = 1_000;
            },
            &["19000 were never sent", "the server ended connections"],
        );
        check(
            |outcome| {
                outcome.dropped = Dropped { answers: 0, connections: 20_000, late: 0 };
                outcome.faults = ConnectionErrors { refused: 500, reset: 8, ..ConnectionErrors::default() };
            },
            &["20000 were dropped", "nothing listened"],
        );
    }

    #[test]
    fn datagrams_have_neither_status_nor_connection() {
        let mut outcome = Outcome { protocol: Protocol::Datagrams, answered: 0, ..good() };
        outcome.unexpected.length = 15_000;
        outcome.unexpected.first = Some((200, 12));
        (outcome.missed.expired, outcome.missed.lost) = (4_000, 1_000);
        outcome.faults.refused = 7;
        let fault = ConnectionError::System(111);
        outcome.first_fault = Some(FirstConnectionError { fault, after: Duration::from_millis(12) });
        let texts =
            [answered_of(&outcome).1, errors(&outcome).text, errors(&good()).text.replace("connection", "")];
        let text = texts[..2].join("; ");
        assert!(
            !text.contains("status") && !text.contains("connection") && !text.contains("Connection"),
            "{text}"
        );
        assert!(text.contains("15000 had an answer of another size, the first of 12 bytes"), "{text}");
        assert!(text.contains("sockets failed 7 times (7 refused), the first 12.0 ms after"), "{text}");
        outcome.unexpected = crate::Unexpected::default();
        outcome.missed.expired = 19_000;
        assert!(answered_of(&outcome).1.contains("lost on the way"), "{}", answered_of(&outcome).1);
        outcome.faults = ConnectionErrors::default();
        outcome.first_fault = None;
        assert_eq!(errors(&outcome).text, "no sockets failed");
    }

    fn answered_of(outcome: &Outcome) -> (Option<bool>, String) {
        let check = answered(outcome);
        (check.passed, check.text)
    }

    #[test]
    fn errors_are_reported_by_kind() {
        assert_eq!(errors(&good()).passed, Some(true));
        let first =
            FirstConnectionError { fault: ConnectionError::Closed, after: Duration::from_millis(2_500) };
        let outcome = Outcome {
            first_fault: Some(first),
            faults: ConnectionErrors { closed: 2, reset: 1, ..ConnectionErrors::default() },
            ..good()
        };
        let check = errors(&outcome);
        assert_eq!((check.kind, check.passed), (CheckWeight::Truth, Some(false)));
        let text = "connections failed 3 times (1 reset, 2 closed), the first 2.50 s after the start: ";
        assert!(
            check.text.starts_with(text) && check.text.contains("the server ended connections"),
            "{}",
            check.text
        );
    }

    #[test]
    fn the_most_frequent_error_is_explained() {
        let kind = |faults: ConnectionErrors| broken(&Outcome { faults, ..good() });
        let none = ConnectionErrors::default();
        assert!(kind(ConnectionErrors { refused: 90, reset: 8, ..none }).contains("nothing listened"));
        assert!(
            kind(ConnectionErrors { refused: 8, reset: 5, closed: 5, ..none }).contains("ended connections")
        );
        assert!(
            kind(ConnectionErrors { malformed: 5, unasked: 5, closed: 9, ..none })
                .contains("no answer in this protocol")
        );
        assert!(kind(ConnectionErrors { timeout: 5, ..none }).contains("did not answer in time"));
        assert!(kind(ConnectionErrors { other: 5, ..none }).contains("own log"));
        let longer =
            Outcome { faults: ConnectionErrors { unasked: 5, ..none }, protocol: Protocol::Stream, ..good() };
        assert!(broken(&longer).contains("--response-bytes"));
        assert!(kind(none).contains("took no new connections"));
    }
}
