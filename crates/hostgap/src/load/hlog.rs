//! The result of a run as an interval log of HdrHistogram, which its tools in every language read.
//!
//! One interval, the whole run, for each of the three times, distinguished by tags. Values are nanoseconds.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use ::load::plain;
use anyhow::Context;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use linux::clock;

use super::Ran;
use super::job::Job;

/// The greatest value beside each interval is for human readers; by the tools' convention it is in milliseconds.
const MAX_DIVISOR: f64 = 1e6;

/// A log to be written at the end of a run.
pub(super) struct Hlog<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> Hlog<'a> {
    /// Makes the file before the run, so that an unwritable file is not noticed only after an hour.
    pub(super) fn create(path: &'a Path) -> anyhow::Result<Hlog<'a>> {
        let file = File::create(path).with_context(|| format!("could not create {}", shown(path)))?;
        Ok(Hlog { path, file })
    }

    /// Of several runs, the log starts with the first.
    pub(super) fn write(self, job: &Job, runs: &[Ran]) -> anyhow::Result<()> {
        let Some(first) = runs.first() else { return Ok(()) };
        let passed = Duration::from_nanos(clock::now_ns().saturating_sub(first.outcome.started_ns));
        let started = SystemTime::now().checked_sub(passed).unwrap_or(SystemTime::UNIX_EPOCH);
        let mut file = BufWriter::new(self.file);
        let written = write(&mut file, job, runs, started).and_then(|()| Ok(file.flush()?));
        written.with_context(|| format!("could not write {}", shown(self.path)))
    }
}

fn write(to: &mut impl Write, job: &Job, runs: &[Ran], started: SystemTime) -> anyhow::Result<()> {
    // The standard reader accepts only compressed histograms.
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder.add_comment("[Histogram log format version 1.3]");
    for ran in runs {
        builder.add_comment(&about(job, ran));
    }
    let mut log = builder
        .with_start_time(started)
        .with_base_time(started)
        .with_max_value_divisor(MAX_DIVISOR)
        .begin_log_with(to, &mut serializer)?;
    let start_ns = runs.first().map_or(0, |ran| ran.outcome.started_ns);
    for Ran { outcome, .. } in runs {
        let since = Duration::from_nanos(outcome.started_ns.saturating_sub(start_ns));
        let times = [("response", &outcome.response), ("service", &outcome.service), ("lag", &outcome.lag)];
        for (tag, times) in times {
            log.write_histogram(times, since, outcome.duration, Tag::new(tag))?;
        }
    }
    Ok(())
}

fn shown(path: &Path) -> String {
    plain(&path.display().to_string())
}

fn about(job: &Job, ran: &Ran) -> String {
    let outcome = &ran.outcome;
    let rate = ran.schedule.rate_per_s().map_or("closed loop".to_owned(), |rate| format!("{rate}/s"));
    format!(
        "hostgap load {} {rate}: {} intended, {} answered, {} missed, which are in no histogram; nanoseconds",
        plain(&job.url),
        outcome.intended,
        outcome.answered,
        outcome.missed.count()
    )
}
