//! What a run gave, as people and programs read it.

use std::fmt::Write;

use ::load::{Histogram, Outcome, Schedule, ThreadCost, Wait};
use serde_json::{Value, json};

use super::Job;
use crate::units::time;

/// What is shown of a distribution, beside its maximum.
const PERCENTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999), ("p99.999", 0.99999)];

/// A percentile is shown if at least this many samples lie beyond it; with fewer it is the fate of a few requests.
const BEYOND_MIN: f64 = 10.0;

/// The table for stdout.
pub(super) fn table(job: &Job, outcome: &Outcome) -> String {
    let mut text = String::new();
    lines(&mut text, job, outcome).expect("writing to a string does not fail");
    text
}

/// The same for programs. Times are nanoseconds; a percentile with too few samples beyond it is null. The schema's
/// version goes up when a field changes its meaning or goes.
pub(super) fn json(job: &Job, outcome: &Outcome, complaints: &[String]) -> Value {
    let missed = &outcome.missed;
    let oldest = |age| (missed.count() > 0).then_some(age);
    json!({
        "schema": 1,
        "url": job.url,
        "connections": job.connections.iter().sum::<usize>(),
        "threads": job.connections.len(),
        "wait": wait(job.run.wait),
        "duration_s": outcome.duration.as_secs_f64(),
        "valid": complaints.is_empty(),
        "complaints": complaints,
        "requested_rps": outcome.rate_per_s,
        "sent_rps": outcome.sent_per_s(),
        "answered_rps": outcome.answered_per_s(),
        "intended": outcome.intended,
        "sent": outcome.sent,
        "sent_in_schedule": outcome.sent_in_schedule,
        "answered": outcome.answered,
        "answered_in_schedule": outcome.answered_in_schedule,
        "missed": {
            "count": missed.count(),
            "age_min_ns": oldest(missed.ages.min()),
            "age_max_ns": oldest(missed.ages.max()),
        },
        "unexpected": { "status": outcome.unexpected.status, "length": outcome.unexpected.length },
        "connection_errors": outcome.connection_errors,
        "reconnects": outcome.reconnects,
        "backlog_max": outcome.backlog_max,
        "response_ns": distribution(&outcome.response),
        "service_ns": distribution(&outcome.service),
        "lag_ns": distribution(&outcome.lag),
        "late_ns": distribution(&outcome.late),
        "generator": outcome.threads.iter().map(thread_json).collect::<Vec<_>>(),
    })
}

fn lines(text: &mut String, job: &Job, outcome: &Outcome) -> std::fmt::Result {
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    writeln!(
        text,
        "{}: {}, {}, {} wait, {}",
        job.url,
        count(job.connections.iter().sum(), "connection"),
        count(job.connections.len(), "thread"),
        wait(job.run.wait),
        time(outcome.duration.as_nanos() as u64),
    )?;
    writeln!(text)?;
    writeln!(text, "{:<10}{:>12}{:>12}{:>12}{:>12}", "", "response", "service", "lag", "late")?;
    let columns = [&outcome.response, &outcome.service, &outcome.lag, &outcome.late];
    for (name, quantile) in PERCENTILES {
        let cells = columns.map(|times| percentile(times, quantile).map_or("–".to_owned(), time));
        writeln!(text, "{name:<10}{}", row(&cells))?;
    }
    let cells = columns.map(|times| if times.is_empty() { "–".to_owned() } else { time(times.max()) });
    writeln!(text, "{:<10}{}", "max", row(&cells))?;
    writeln!(text)?;
    rate_line(text, job, outcome)?;
    request_lines(text, outcome)?;
    outcome.threads.iter().enumerate().try_for_each(|(index, thread)| thread_line(text, index, thread))
}

fn row(cells: &[String]) -> String {
    cells.iter().map(|cell| format!("{cell:>12}")).collect()
}

fn rate_line(text: &mut String, job: &Job, outcome: &Outcome) -> std::fmt::Result {
    let asked = match job.run.schedule {
        Schedule::Constant { rate_per_s } | Schedule::Poisson { rate_per_s, .. } => {
            format!("{rate_per_s}/s asked, {:.2}/s sent, ", outcome.sent_per_s())
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
    writeln!(text, ", {} unexpected answers", outcome.unexpected.count())?;
    writeln!(
        text,
        "sockets   {} connection errors, {} reconnects, at most {} requests waited for a connection",
        outcome.connection_errors, outcome.reconnects, outcome.backlog_max
    )
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

fn distribution(times: &Histogram<u64>) -> Value {
    let mut map = serde_json::Map::new();
    map.insert("samples".to_owned(), times.len().into());
    for (name, quantile) in PERCENTILES {
        map.insert(name.to_owned(), percentile(times, quantile).into());
    }
    map.insert("max".to_owned(), (!times.is_empty()).then(|| times.max()).into());
    map.into()
}

/// The value below which that share of the samples lies, if enough lie beyond it.
fn percentile(times: &Histogram<u64>, quantile: f64) -> Option<u64> {
    // A little slack, because 1 − 0.999 is not 0.001 in binary.
    let beyond = times.len() as f64 * (1.0 - quantile);
    (beyond + 1e-6 >= BEYOND_MIN).then(|| times.value_at_quantile(quantile).min(times.max()))
}

fn thread_json(thread: &ThreadCost) -> Value {
    json!({
        "cpus": thread.cpus.as_ref().map(ToString::to_string),
        "cpu_ns": thread.cpu_ns,
        "wall_ns": thread.wall_ns,
        "voluntary_switches": thread.voluntary_switches,
        "involuntary_switches": thread.involuntary_switches,
        "run_queue_ns": thread.run_queue_ns,
    })
}

fn wait(wait: Wait) -> &'static str {
    match wait {
        Wait::Hybrid => "hybrid",
        Wait::Sleep => "sleep",
        Wait::Spin => "spin",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(samples: u64, quantile: f64, shown: bool) {
        let mut times = Histogram::new_with_bounds(1, 1_000_000, 3).unwrap();
        times.record_n(100, samples).unwrap();
        assert_eq!(percentile(&times, quantile).is_some(), shown, "{samples} samples, {quantile}");
    }

    #[test]
    fn a_percentile_needs_ten_samples_beyond_it() {
        check(0, 0.5, false);
        check(19, 0.5, false);
        check(20, 0.5, true);
        check(999, 0.99, false);
        check(1000, 0.99, true);
        check(9_999, 0.999, false);
        check(10_000, 0.999, true);
        check(1_000_000, 0.99999, true);
    }
}
