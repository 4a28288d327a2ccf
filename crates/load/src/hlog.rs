//! The results of runs as an interval log of HdrHistogram, which its tools in every language read.
//!
//! One interval, the whole run, for each of the three times, distinguished by tags. Values are nanoseconds.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, IntervalLogWriterError, Tag};
use hdrhistogram::serialization::{V2DeflateSerializeError, V2DeflateSerializer};
use linux::clock;

use crate::CheckedRun;

/// The greatest value beside each interval is for human readers; by the tools' convention it is in milliseconds.
const MAX_DIVISOR: f64 = 1e6;

/// Why a log could not be written.
#[derive(Debug, thiserror::Error)]
pub enum HlogError {
    /// The file takes no more.
    #[error(transparent)]
    Write(#[from] io::Error),
    /// A histogram cannot be written in this form.
    #[error(transparent)]
    Histogram(#[from] IntervalLogWriterError<V2DeflateSerializeError>),
}

/// Writes the log of runs that have just ended, beginning with the first of them; without runs the log is empty.
/// `what` names the load in the log's comments.
///
/// # Errors
/// When writing to `to` fails.
pub fn write(to: &mut impl Write, what: &str, runs: &[CheckedRun]) -> Result<(), HlogError> {
    let Some(first) = runs.first() else { return Ok(()) };
    let start_ns = first.outcome.started_ns;
    let passed = Duration::from_nanos(clock::now_ns().saturating_sub(start_ns));
    let started = SystemTime::now().checked_sub(passed).unwrap_or(SystemTime::UNIX_EPOCH);
    // The standard reader accepts only compressed histograms.
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder.add_comment("[Histogram log format version 1.3]");
    for run in runs {
        builder.add_comment(&format!("{what} {}", about(run)));
    }
    let mut log = builder
        .with_start_time(started)
        .with_base_time(started)
        .with_max_value_divisor(MAX_DIVISOR)
        .begin_log_with(to, &mut serializer)?;
    for CheckedRun { outcome, .. } in runs {
        let since = Duration::from_nanos(outcome.started_ns.saturating_sub(start_ns));
        let times = [("response", &outcome.response), ("service", &outcome.service), ("lag", &outcome.lag)];
        for (tag, times) in times {
            log.write_histogram(times, since, outcome.duration, Tag::new(tag))?;
        }
    }
    Ok(())
}

fn about(run: &CheckedRun) -> String {
    let outcome = &run.outcome;
    let rate = run.schedule.rate_per_s().map_or("closed loop".to_owned(), |rate| format!("{rate}/s"));
    format!(
        "{rate}: {} intended, {} answered, {} missed, which are in no histogram; nanoseconds",
        outcome.intended,
        outcome.answered,
        outcome.missed.count()
    )
}
