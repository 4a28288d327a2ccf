//! What a run gave, as people read it.

use std::fmt::Write;

use ::load::checks::{Kind, Percentile, told};
use ::load::{Histogram, Outcome, Schedule, Split, ThreadCost, Wait};

use super::Ran;
use super::job::Job;
use super::slo::Slo;
use super::verdict::Verdict;
use crate::units::time;

/// What is not known.
const NONE: &str = "–";

/// The table for stdout.
pub(super) fn table(job: &Job, ran: &Ran) -> String {
    let mut text = String::new();
    lines(&mut text, job, ran).expect("writing to a string does not fail");
    text
}

/// The one line of what was found.
pub(super) fn found(slo: &Slo, ran: &Ran) -> String {
    let rate_per_s = ran.schedule.rate_per_s().unwrap_or_default();
    format!("{rate_per_s}/s is the highest rate that was found with {slo}\n")
}

fn lines(text: &mut String, job: &Job, ran: &Ran) -> std::fmt::Result {
    let Ran { outcome, verdict, .. } = ran;
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    writeln!(
        text,
        "{}: {}, {}, {} wait, {}",
        job.url,
        count(job.connections(), "connection"),
        count(job.pools.len(), "thread"),
        wait(job.run.wait),
        time(outcome.duration.as_nanos() as u64),
    )?;
    writeln!(text)?;
    percentile_lines(text, outcome, verdict.independent)?;
    writeln!(text)?;
    rate_line(text, ran)?;
    request_lines(text, outcome)?;
    outcome.threads.iter().enumerate().try_for_each(|(index, thread)| thread_line(text, index, thread))?;
    check_lines(text, verdict)
}

/// The interval is shown of the response time alone, which is what a run is for; the JSON has all.
fn percentile_lines(text: &mut String, outcome: &Outcome, independent: Option<u64>) -> std::fmt::Result {
    let columns = [&outcome.response, &outcome.service, &outcome.lag, &outcome.late];
    let row = |name: &str, [response, service, lag, late]: [String; 4], interval: &str| {
        format!("{name:<10}{response:>10}  {interval:<20}{service:>10}{lag:>10}{late:>10}\n")
    };
    let names = ["response", "service", "lag", "late"].map(str::to_owned);
    text.write_str(&row("", names, "95 % interval"))?;
    for percentile in Percentile::LADDER {
        let all = columns.map(|times| told(times, *percentile, independent));
        let interval = match all[0].map(|told| told.interval_ns) {
            Some(Some((low, high))) => format!("{} – {}", time(low), time(high)),
            Some(None) | None => String::new(),
        };
        let cells = all.map(|told| told.map_or(NONE.to_owned(), |told| time(told.value_ns)));
        text.write_str(&row(percentile.label(), cells, &interval))?;
    }
    let max = columns.map(|times| if times.is_empty() { NONE.to_owned() } else { time(times.max()) });
    text.write_str(&row("max", max, ""))
}

fn rate_line(text: &mut String, ran: &Ran) -> std::fmt::Result {
    let outcome = &ran.outcome;
    let asked = match ran.schedule {
        Schedule::Constant { rate_per_s } => {
            format!("{rate_per_s}/s asked, {:.2}/s sent, ", outcome.sent_per_s())
        }
        Schedule::Poisson { rate_per_s, .. } => {
            format!("{rate_per_s}/s on average asked, {:.2}/s sent, ", outcome.sent_per_s())
        }
        Schedule::Saturate => "as many as go, ".to_owned(),
    };
    writeln!(text, "rate      {asked}{:.2}/s answered", outcome.answered_per_s())
}

fn request_lines(text: &mut String, outcome: &Outcome) -> std::fmt::Result {
    let missed = &outcome.missed;
    write!(
        text,
        "requests  {} intended, {} answered, {} missed",
        outcome.intended,
        outcome.answered,
        missed.count()
    )?;
    if missed.count() > 0 {
        write!(text, " (given up when {} to {} old)", time(missed.ages.min()), time(missed.ages.max()))?;
    }
    if outcome.dropped > 0 {
        write!(text, ", {} dropped", outcome.dropped)?;
    }
    writeln!(text, ", {} unexpected answers", outcome.unexpected.count())?;
    if outcome.strays > 0 {
        writeln!(text, "datagrams {} came that answered nothing that was open", outcome.strays)?;
    }
    writeln!(
        text,
        "sockets   {} connection errors, {} reconnects, at most {} requests waited for a connection",
        outcome.faults.count(),
        outcome.reconnects,
        outcome.backlog_max
    )?;
    if outcome.grown > 0 {
        writeln!(
            text,
            "          {} connections were opened for requests that none was free for",
            outcome.grown
        )?;
    }
    outcome.split.as_ref().map_or(Ok(()), |split| split_line(text, split))
}

/// Where the service time went.
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

/// Whether the figures above are the server's or this program's own.
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

/// How many checks passed, and what those say that failed.
fn check_lines(text: &mut String, verdict: &Verdict) -> std::fmt::Result {
    let judged = verdict.checks.iter().filter(|check| check.passed.is_some()).count();
    write!(text, "checks    {} of {judged} passed", judged - verdict.failed().count())?;
    match verdict.checks.len() - judged {
        0 => writeln!(text)?,
        others => writeln!(text, ", {others} could not be judged")?,
    }
    verdict.failed().try_for_each(|check| {
        let kind = match check.kind {
            Kind::Truth => "failed",
            Kind::Doubt => "doubt",
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
