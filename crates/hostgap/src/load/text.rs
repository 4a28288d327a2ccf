//! The result of a run as text.

use std::fmt::Write;

use ::load::checks::{CheckWeight, Percentile, estimate};
use ::load::search::{RateSearchResult, SearchFailure};
use ::load::slo::Slo;
use ::load::windows::{Witnessed, distinct};
use ::load::{
    CheckedRun, Handshakes, Histogram, Outcome, Protocol, RunVerdict, Schedule, Split, ThreadCost, Wait,
    plain,
};

use super::job::Job;
use super::slo;
use crate::units::time;

/// Stands for an unknown value.
const NONE: &str = "–";

/// The table for stdout.
pub(super) fn table(job: &Job, ran: &CheckedRun) -> String {
    let mut text = String::new();
    lines(&mut text, job, ran).expect("writing to a string does not fail");
    text
}

/// The result of a search in one line.
pub(super) fn found(slo: &Slo, ran: &CheckedRun) -> String {
    let rate_per_s = ran.schedule.rate_per_s().unwrap_or_default();
    format!("{rate_per_s}/s is the highest rate found that meets {}\n", slo::words(slo))
}

/// Why a search found no rate; `None`: it found one, or was interrupted.
pub(super) fn ended(found: &RateSearchResult) -> Option<String> {
    let with_last = |why: &str| match found.last_broken() {
        Some(last) => format!("{why}; the last one failed: {}", slo::why(last)),
        None => why.to_owned(),
    };
    Some(match found.ended.as_ref()? {
        SearchFailure::Gone(error) => format!("the server disappeared: could not {error}"),
        SearchFailure::Dead(checks) => {
            let texts: Vec<&str> = checks.iter().map(|check| check.text.as_str()).collect();
            format!("no answer of the server was as expected: {}", texts.join("; "))
        }
        SearchFailure::NoRate => with_last("no rate of at least one request a second held"),
        SearchFailure::Unconfirmed => {
            with_last("no full-length run confirmed the rate that short ones had found")
        }
    })
}

fn lines(text: &mut String, job: &Job, ran: &CheckedRun) -> std::fmt::Result {
    let CheckedRun { outcome, verdict, .. } = ran;
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    writeln!(
        text,
        "{}: {}, {}, {} wait, {}",
        plain(&job.url),
        match job.is_fresh() {
            true => format!("a connection for each request, {} at a time", job.connections()),
            false => count(job.connections(), connection(outcome)),
        },
        count(job.pools.len(), "thread"),
        wait(job.run.wait),
        time(outcome.duration.as_nanos() as u64),
    )?;
    writeln!(text)?;
    percentile_lines(text, outcome, verdict.independent)?;
    writeln!(text)?;
    rate_line(text, ran)?;
    request_line(text, outcome)?;
    connection_lines(text, ran, job.is_fresh())?;
    outcome.split.as_ref().map_or(Ok(()), |split| split_line(text, split))?;
    outcome.witnessed.as_ref().map_or(Ok(()), |seen| stalls_line(text, outcome, seen))?;
    outcome.threads.iter().enumerate().try_for_each(|(index, thread)| thread_line(text, index, thread))?;
    check_lines(text, verdict)
}

/// The interval is shown only for the response time, the purpose of a run; the JSON has all.
fn percentile_lines(text: &mut String, outcome: &Outcome, independent: Option<u64>) -> std::fmt::Result {
    let columns = [&outcome.response, &outcome.service, &outcome.lag, &outcome.late];
    let row = |name: &str, [response, service, lag, late]: [String; 4], interval: &str| {
        format!("{name:<10}{response:>10}  {interval:<20}{service:>10}{lag:>10}{late:>10}\n")
    };
    let names = ["response", "service", "lag", "late"].map(str::to_owned);
    text.write_str(&row("", names, "95 % interval"))?;
    for percentile in Percentile::LADDER {
        let all = columns.map(|times| estimate(times, *percentile, independent));
        let interval = match all[0].map(|estimate| estimate.interval_ns) {
            Some(Some((low, high))) => format!("{} – {}", time(low), time(high)),
            Some(None) | None => String::new(),
        };
        let cells = all.map(|estimate| estimate.map_or(NONE.to_owned(), |estimate| time(estimate.value_ns)));
        text.write_str(&row(percentile.label(), cells, &interval))?;
    }
    let max = columns.map(|times| if times.is_empty() { NONE.to_owned() } else { time(times.max()) });
    text.write_str(&row("max", max, ""))
}

fn rate_line(text: &mut String, ran: &CheckedRun) -> std::fmt::Result {
    let outcome = &ran.outcome;
    let requested = match ran.schedule {
        Schedule::Constant { rate_per_s } => {
            format!("{rate_per_s}/s asked, {:.2}/s sent, ", outcome.sent_per_s())
        }
        Schedule::Poisson { rate_per_s, .. } => {
            format!("{rate_per_s}/s on average asked, {:.2}/s sent, ", outcome.sent_per_s())
        }
        Schedule::Saturate => "closed loop, ".to_owned(),
    };
    writeln!(text, "rate      {requested}{:.2}/s answered", outcome.answered_per_s())
}

fn request_line(text: &mut String, outcome: &Outcome) -> std::fmt::Result {
    let missed = &outcome.missed;
    let count = missed.count();
    write!(text, "requests  {} intended, {} answered, {count} missed", outcome.intended, outcome.answered)?;
    if count > 0 {
        let reasons = [
            (missed.unanswered, "unanswered"),
            (missed.expired, "timed out"),
            (missed.lost, "lost"),
            (missed.unsent, "never sent"),
        ];
        let reasons = reasons.iter().filter(|(count, _)| *count > 0);
        let reasons: Vec<String> = reasons.map(|(count, reason)| format!("{count} {reason}")).collect();
        let (least, most) = (time(missed.ages.min()), time(missed.ages.max()));
        write!(text, " ({}, given up when {least} to {most} old)", reasons.join(", "))?;
    }
    if outcome.dropped.count() > 0 {
        write!(text, ", {} dropped", outcome.dropped.count())?;
    }
    match outcome.protocol {
        Protocol::Http | Protocol::Grpc => {
            writeln!(text, ", {} unexpected answers", outcome.unexpected.count())
        }
        Protocol::Datagrams => writeln!(text, ", {} answers of another size", outcome.unexpected.count()),
        // In a stream each answer has the expected length.
        Protocol::Stream => writeln!(text),
    }
}

fn connection_lines(text: &mut String, ran: &CheckedRun, is_fresh: bool) -> std::fmt::Result {
    let outcome = &ran.outcome;
    if outcome.strays > 0 {
        writeln!(text, "datagrams {} matched no open request", outcome.strays)?;
    }
    let anew = match outcome.protocol {
        _ if is_fresh => "made",
        Protocol::Http | Protocol::Grpc | Protocol::Stream => "reconnects",
        Protocol::Datagrams => "made anew",
    };
    write!(
        text,
        "sockets   {} {} errors, {} {anew}",
        outcome.faults.count(),
        connection(outcome),
        outcome.reconnects
    )?;
    // In a closed loop nothing is overdue.
    if ran.schedule != Schedule::Saturate {
        let of = if outcome.threads.len() > 1 { " of a thread" } else { "" };
        write!(text, ", at most {} requests{of} waited behind an overdue one", outcome.backlog_max)?;
    }
    writeln!(text)?;
    let Handshakes { full, resumed } = outcome.handshakes;
    if is_fresh && full + resumed > 0 {
        writeln!(text, "          {full} TLS handshakes were full, {resumed} resumed a session")?;
    }
    if outcome.grown > 0 {
        writeln!(
            text,
            "          {} connections were opened because none was free for a request",
            outcome.grown
        )?;
    }
    Ok(())
}

/// The noun for what carries requests: connections or sockets.
fn connection(outcome: &Outcome) -> &'static str {
    match outcome.protocol {
        Protocol::Http | Protocol::Grpc | Protocol::Stream => "connection",
        Protocol::Datagrams => "socket",
    }
}

/// The parts of the service time.
fn split_line(text: &mut String, split: &Split) -> std::fmt::Result {
    let part = |times: &Histogram<u64>| match times.is_empty() {
        true => NONE.to_owned(),
        false => {
            let [p50, p99] = [0.5, 0.99].map(|quantile| time(times.value_at_quantile(quantile)));
            format!("p50 {p50}, p99 {p99}")
        }
    };
    writeln!(text, "service   wire and server {}; client's own {}", part(&split.wire), part(&split.client))
}

/// How often the machine did not run a CPU, and the response times without the requests that were due near that.
fn stalls_line(text: &mut String, outcome: &Outcome, seen: &Witnessed) -> std::fmt::Result {
    let share = 100.0 * seen.left_out_ns as f64 / outcome.duration.as_nanos().max(1) as f64;
    write!(
        text,
        "stalls    {} of CPUs {}, {share:.1} % of the time near them",
        distinct(&seen.stalls),
        seen.cpus
    )?;
    let ladder = [Percentile::P50, Percentile::P99, Percentile::P99_9];
    let without = ladder.iter().filter_map(|percentile| {
        let estimate = estimate(&seen.response, *percentile, None)?;
        Some(format!("{} {}", percentile.label(), time(estimate.value_ns)))
    });
    let without: Vec<String> = without.collect();
    if !without.is_empty() {
        write!(text, "; response without it {}", without.join(", "))?;
    }
    writeln!(text)
}

/// The CPU time and waits of a thread, which say whether the generator influenced the figures above.
fn thread_line(text: &mut String, index: usize, thread: &ThreadCost) -> std::fmt::Result {
    let place = thread.cpus.as_ref().map_or_else(|| "any CPU".to_owned(), |cpus| format!("CPU {cpus}"));
    writeln!(
        text,
        "thread {index}  {place}: {:.0} % busy, waited {} for a CPU, was interrupted {} times",
        thread.busy() * 100.0,
        time(thread.run_queue_ns),
        thread.involuntary_switches,
    )
}

/// The number of checks that passed, and the texts of those that failed.
fn check_lines(text: &mut String, verdict: &RunVerdict) -> std::fmt::Result {
    let judged = verdict.checks.iter().filter(|check| check.passed.is_some()).count();
    write!(text, "checks    {} of {judged} passed", judged - verdict.failed().count())?;
    match verdict.checks.len() - judged {
        0 => writeln!(text)?,
        others => writeln!(text, ", {others} could not be judged")?,
    }
    verdict.failed().try_for_each(|check| {
        let kind = match check.kind {
            CheckWeight::Truth => "failed",
            CheckWeight::Doubt => "doubt",
        };
        writeln!(text, "  {kind:<8}{}: {}", check.id, check.text)
    })
}

pub(super) fn wait(wait: Wait) -> &'static str {
    match wait {
        Wait::Hybrid => "hybrid",
        Wait::Sleep => "sleep",
        Wait::Spin => "spin",
    }
}
