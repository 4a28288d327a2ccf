//! A race that runs elsewhere, in a virtual machine or on another machine: its events and the lines of its record come
//! back over one stream.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use record::Writer;

use crate::race::{Finished, concluded};
use crate::{Event, LabError};

/// What stands before an event on its stdout.
const EVENT: &str = "event ";
/// What stands before a line of its record.
const RECORD: &str = "record ";
/// Where in a line of a record its content begins (docs/record.md), and how its last line's does.
const PAYLOAD: usize = r#"{"crc32":"01234567","line":"#.len();
const END: &[u8] = br#"{"end":"#;

/// The side that races: says what happens, and what has been written to the record since.
#[derive(Debug)]
pub struct Outward {
    path: PathBuf,
    record: Option<BufReader<File>>,
}

impl Outward {
    /// For a record that may not be there yet.
    pub fn new(record: &Path) -> Outward {
        Outward { path: record.to_owned(), record: None }
    }

    /// Writes an event, and before it the lines of the record that are new.
    ///
    /// # Errors
    /// The reader has closed its end, or the record cannot be read.
    pub fn emit(&mut self, event: &Event, to: &mut dyn Write) -> io::Result<()> {
        self.lines(to)?;
        writeln!(to, "{EVENT}{}", serde_json::to_string(event)?)
    }

    /// Writes the new lines of the record.
    ///
    /// # Errors
    /// Those of [`Outward::emit`].
    pub fn lines(&mut self, to: &mut dyn Write) -> io::Result<()> {
        if self.record.is_none() {
            self.record = match File::open(&self.path) {
                Ok(file) => Some(BufReader::new(file)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            };
        }
        let Some(record) = &mut self.record else { return Ok(()) };
        let mut line = Vec::new();
        // Each is appended by one write of this very process, so none is seen half.
        while record.read_until(b'\n', &mut line)? > 0 {
            to.write_all(RECORD.as_bytes())?;
            to.write_all(&line)?;
            line.clear();
        }
        Ok(())
    }
}

/// The side that keeps the record: takes the words of the other apart.
pub(crate) struct Listener<'a> {
    writer: Writer,
    emit: &'a mut dyn FnMut(Event),
    /// Why nothing more is written down.
    failed: Option<LabError>,
    /// When the first round began, by this machine's clock.
    racing: Option<Instant>,
}

impl<'a> Listener<'a> {
    /// Writes into this record, and reports events.
    pub(crate) fn new(writer: Writer, emit: &'a mut dyn FnMut(Event)) -> Listener<'a> {
        Listener { writer, emit, failed: None, racing: None }
    }

    /// Whether there is a reason to hear no more.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Why nothing more was written down.
    pub(crate) fn failure(&mut self) -> Option<LabError> {
        self.failed.take()
    }

    /// Ends the record of a race that has run since `started`, with what became of it.
    pub(crate) fn conclude(
        self,
        started: Instant,
        result: Result<Finished, LabError>,
    ) -> Result<Finished, LabError> {
        concluded(self.writer, started, result)
    }

    /// Takes a line of the other side. What is neither an event nor of the record is not for it.
    pub(crate) fn take(&mut self, line: &[u8]) {
        if let Some(line) = line.strip_prefix(RECORD.as_bytes()) {
            // Its end is written here, with the time that has passed here.
            let is_end = line.get(PAYLOAD..).is_some_and(|payload| payload.starts_with(END));
            if !is_end && self.failed.is_none() {
                self.failed = self.writer.copy(line).err().map(LabError::from);
            }
        } else if let Some(event) = line.strip_prefix(EVENT.as_bytes()) {
            match serde_json::from_slice(event) {
                // The file that it writes there is gone with it.
                Ok(Event::Recording { .. }) => {}
                Ok(Event::Round { done, of: Some(of), .. }) => {
                    let left = self.racing.map_or(Duration::ZERO, |since| {
                        since.elapsed() * of.saturating_sub(done) / done.max(1)
                    });
                    (self.emit)(Event::Round { done, of: Some(of), left });
                }
                Ok(event) => {
                    if matches!(event, Event::Trial { .. }) {
                        self.racing.get_or_insert_with(Instant::now);
                    }
                    (self.emit)(event);
                }
                // Both sides are one program; a line that a dying guest tore is no loss.
                Err(_) => {}
            }
        }
    }
}
