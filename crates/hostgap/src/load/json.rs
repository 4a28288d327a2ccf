//! The result of a run as JSON. docs/json.md describes each field.

use ::load::checks::{CheckResult, CheckWeight, Percentile, estimate};
use ::load::search::{RateSearchResult, TriedRate};
use ::load::slo::Slo;
use ::load::windows::{Witnessed, distinct};
use ::load::{CheckedRun, Histogram, Outcome, Overdue, Protocol, Schedule, ThreadCost};
use bpf::witness::Stall;
use serde_json::{Map, Value, json};

use super::job::Job;
use super::slo;
use super::text::{ended, wait};

/// Goes up when a field changes its meaning, its unit or its type, or is removed.
const SCHEMA: u32 = 2;

/// Times are nanoseconds; unknown values are null.
pub(super) fn run(job: &Job, ran: &CheckedRun) -> Value {
    let CheckedRun { schedule, outcome, verdict } = ran;
    let mut value = json!({
        "schema": SCHEMA,
        "url": job.url,
        "protocol": protocol(outcome.protocol),
        "connections": job.connections(),
        "keepalive": !job.is_fresh(),
        "requests": job.run.requests,
        "threads": job.pools.len(),
        "arrivals": arrivals(*schedule),
        "wait": wait(job.run.wait),
        "duration_s": outcome.duration.as_secs_f64(),
        "strict": verdict.strict,
        "valid": verdict.is_valid(),
        "complaints": verdict.complaints().map(|check| &check.text).collect::<Vec<_>>(),
        "failed_checks": verdict.failed().map(|check| check.id).collect::<Vec<_>>(),
        "checks": verdict.checks.iter().map(check_json).collect::<Vec<_>>(),
        "requested_rps": outcome.rate_per_s,
        "achieved_rps": outcome.sent_per_s(),
        "answered_rps": outcome.answered_per_s(),
        "independent_samples": verdict.independent,
        "response_ns": distribution(&outcome.response, verdict.independent),
        "service_ns": distribution(&outcome.service, verdict.independent),
        "lag_ns": distribution(&outcome.lag, verdict.independent),
        "late_ns": distribution(&outcome.late, verdict.independent),
        "witnessed": outcome.witnessed.as_ref().map(|seen| witnessed(seen, verdict.independent)),
        "wire_ns": outcome.split.as_ref().map(|split| distribution(&split.wire, verdict.independent)),
        "client_ns": outcome.split.as_ref().map(|split| distribution(&split.client, verdict.independent)),
        "generator": outcome.threads.iter().map(thread_json).collect::<Vec<_>>(),
    });
    for part in [account(outcome), connections(outcome)] {
        if let (Value::Object(all), Value::Object(part)) = (&mut value, part) {
            all.extend(part);
        }
    }
    value
}

/// The run without the machine's stalls.
fn witnessed(seen: &Witnessed, independent: Option<u64>) -> Value {
    let lengths = || seen.stalls.iter().map(Stall::length_ns);
    json!({
        "cpus": seen.cpus.to_string(),
        "intended": seen.intended,
        "left_out_ns": seen.left_out_ns,
        "stalls": distinct(&seen.stalls),
        "longest_stall_ns": lengths().max(),
        "response_ns": distribution(&seen.response, independent),
    })
}

/// The requests by outcome.
fn account(outcome: &Outcome) -> Value {
    let (missed, dropped) = (&outcome.missed, &outcome.dropped);
    let age = |age| (missed.count() > 0).then_some(age);
    json!({
        "intended": outcome.intended,
        "sent": outcome.sent,
        "sent_in_schedule": outcome.sent_in_schedule,
        "answered": outcome.answered,
        "answered_in_schedule": outcome.answered_in_schedule,
        "missed": missed.count(),
        "missed_by": {
            "unanswered": missed.unanswered,
            "expired": missed.expired,
            "lost": missed.lost,
            "unsent": missed.unsent,
        },
        "missed_age_ns": { "min": age(missed.ages.min()), "max": age(missed.ages.max()) },
        "dropped": dropped.count(),
        "dropped_by": { "answers": dropped.answers, "connections": dropped.connections, "late": dropped.late },
        "unexpected": {
            "status": outcome.unexpected.status,
            "length": outcome.unexpected.length,
            "grpc": grpc(outcome),
        },
        "strays": outcome.strays,
        "backlog_max": outcome.backlog_max,
        "overdue_ns": overdue(&outcome.overdue),
        "backlog_ns": overdue(&outcome.backlog),
    })
}

/// Failed gRPC calls by their status code.
fn grpc(outcome: &Outcome) -> Map<String, Value> {
    let codes = outcome.unexpected.grpc.iter().enumerate().filter(|(_, count)| **count > 0);
    codes.map(|(code, count)| (code.to_string(), (*count).into())).collect()
}

/// The connections: errors, reconnects and handshakes.
fn connections(outcome: &Outcome) -> Value {
    let first = outcome.first_fault.as_ref();
    let errors = outcome.faults.iter().map(|(kind, count)| (kind.to_owned(), count.into()));
    json!({
        "errors": errors.collect::<Map<_, _>>(),
        "connection_errors": outcome.faults.count(),
        "first_error": first.map(|first| {
            json!({ "after_s": first.after.as_secs_f64(), "text": first.fault.to_string() })
        }),
        "reconnects": outcome.reconnects,
        "handshakes": { "full": outcome.handshakes.full, "resumed": outcome.handshakes.resumed },
        "grown": outcome.grown,
        "silent": outcome.silent,
    })
}

/// Several rates, one run each.
pub(super) fn sweep(job: &Job, runs: &[CheckedRun]) -> Value {
    json!({ "schema": SCHEMA, "runs": runs.iter().map(|ran| run(job, ran)).collect::<Vec<_>>() })
}

/// The highest rate with its run, and what was tried on the way.
pub(super) fn found(job: &Job, slo: &Slo, found: &RateSearchResult) -> Value {
    let tried = |tried: &TriedRate| json!({ "rate_rps": tried.rate_per_s, "broken": tried.broken.as_ref().map(slo::why) });
    let best = found.best.as_ref();
    json!({
        "schema": SCHEMA,
        "slo": slo::words(slo),
        "max_rps": best.and_then(|ran| ran.schedule.rate_per_s()),
        "tried": found.tried.iter().map(tried).collect::<Vec<_>>(),
        "run": best.map(|ran| run(job, ran)),
        "ended": ended(found),
    })
}

fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Http => "http",
        Protocol::Stream => "stream",
        Protocol::Datagrams => "udp",
        Protocol::Grpc => "grpc",
    }
}

fn overdue(overdue: &Overdue) -> Value {
    json!({
        "total": overdue.total_ns,
        "answers": overdue.answers_ns,
        "connections": overdue.connections_ns,
    })
}

fn arrivals(schedule: Schedule) -> Option<&'static str> {
    match schedule {
        Schedule::Constant { .. } => Some("constant"),
        Schedule::Poisson { .. } => Some("poisson"),
        Schedule::Saturate => None,
    }
}

/// Percentiles, each null with too few samples, and beside them their intervals.
fn distribution(times: &Histogram<u64>, independent: Option<u64>) -> Value {
    let mut map = Map::new();
    let mut intervals = Map::new();
    map.insert("count".to_owned(), times.len().into());
    for percentile in Percentile::LADDER {
        let name = percentile.label().replace('.', "_");
        let estimate = estimate(times, *percentile, independent);
        let interval = estimate.and_then(|estimate| estimate.interval_ns);
        intervals.insert(name.clone(), interval.map(|(low, high)| vec![low, high]).into());
        map.insert(name, estimate.map(|estimate| estimate.value_ns).into());
    }
    map.insert("max".to_owned(), (!times.is_empty()).then(|| times.max()).into());
    map.insert("interval".to_owned(), intervals.into());
    map.into()
}

fn check_json(check: &CheckResult) -> Value {
    let kind = match check.kind {
        CheckWeight::Truth => "truth",
        CheckWeight::Doubt => "doubt",
    };
    let figures: Map<String, Value> =
        check.figures.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
    json!({ "id": check.id, "kind": kind, "passed": check.passed, "text": check.text, "figures": figures })
}

fn thread_json(thread: &ThreadCost) -> Value {
    json!({
        "cpus": thread.cpus.as_ref().map(ToString::to_string),
        "cpu_ns": thread.cpu_ns,
        "spun_ns": thread.spun_ns,
        "spun_alone_ns": thread.spun_alone_ns,
        "wall_ns": thread.wall_ns,
        "voluntary_switches": thread.voluntary_switches,
        "involuntary_switches": thread.involuntary_switches,
        "run_queue_ns": thread.run_queue_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_null() {
        let mut times = Histogram::new_with_bounds(1, 1_000_000, 3).unwrap();
        let empty = distribution(&times, Some(1_000));
        assert_eq!((&empty["count"], &empty["p50"], &empty["max"]), (&0.into(), &Value::Null, &Value::Null));
        times.record_n(100, 1_000).unwrap();
        let some = distribution(&times, Some(1_000));
        assert_eq!((&some["p99"], &some["p99_9"]), (&100.into(), &Value::Null));
        // With so few samples the percentile has a value, but no upper rank for an interval.
        assert_eq!(
            (&some["interval"]["p50"], &some["interval"]["p99_9"]),
            (&json!([100, 100]), &Value::Null)
        );
        let unsure = distribution(&times, None);
        assert_eq!((&unsure["p50"], &unsure["interval"]["p50"]), (&100.into(), &Value::Null));
    }

    #[test]
    fn figures_beyond_numbers_are_null() {
        let check = CheckResult {
            id: "x",
            kind: CheckWeight::Doubt,
            passed: None,
            text: String::new(),
            figures: vec![("share", f64::INFINITY), ("count", 2.0)],
        };
        let value = check_json(&check);
        assert_eq!(value["figures"], json!({ "share": null, "count": 2.0 }));
        assert_eq!((&value["kind"], &value["passed"]), (&"doubt".into(), &Value::Null));
    }
}
