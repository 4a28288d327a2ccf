//! What a run gave as an interval log of HdrHistogram, which its tools in every language read.
//!
//! One interval, the whole run, for each of the three times, told apart by tags. Values are nanoseconds.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use ::load::Outcome;
use anyhow::Context;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use linux::clock;

use super::Job;

/// The greatest value beside each interval is there for people; the tools' own convention for it is milliseconds.
const MAX_DIVISOR: f64 = 1e6;

/// A log to be written at the end of a run.
pub(super) struct Hlog<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> Hlog<'a> {
    /// Makes the file, before the run: that it cannot be written should not come out after an hour.
    pub(super) fn create(path: &'a Path) -> anyhow::Result<Hlog<'a>> {
        let file = File::create(path).with_context(|| format!("could not create {}", path.display()))?;
        Ok(Hlog { path, file })
    }

    pub(super) fn write(self, job: &Job, outcome: &Outcome) -> anyhow::Result<()> {
        let passed = Duration::from_nanos(clock::now_ns().saturating_sub(outcome.started_ns));
        let started = SystemTime::now().checked_sub(passed).unwrap_or(SystemTime::UNIX_EPOCH);
        let mut file = BufWriter::new(self.file);
        let written = write(&mut file, job, outcome, started).and_then(|()| Ok(file.flush()?));
        written.with_context(|| format!("could not write {}", self.path.display()))
    }
}

fn write(to: &mut impl Write, job: &Job, outcome: &Outcome, started: SystemTime) -> anyhow::Result<()> {
    let about = format!(
        "hostgap load {}: {} intended, {} answered, {} missed, which are in no histogram; nanoseconds",
        job.url,
        outcome.intended,
        outcome.answered,
        outcome.missed.count()
    );
    // The standard reader takes compressed histograms alone.
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("[Histogram log format version 1.3]")
        .add_comment(&about)
        .with_start_time(started)
        .with_base_time(started)
        .with_max_value_divisor(MAX_DIVISOR)
        .begin_log_with(to, &mut serializer)?;
    let times = [("response", &outcome.response), ("service", &outcome.service), ("lag", &outcome.lag)];
    for (tag, times) in times {
        log.write_histogram(times, Duration::ZERO, outcome.duration, Tag::new(tag))?;
    }
    Ok(())
}
