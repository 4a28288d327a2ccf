//! The record file on disk: lines with checksums ([`crate::framing`]). See `docs/record.md`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::framing::{decode, encode};
use crate::{End, Header, Line, RaceRecord, RecordError, SCHEMA, SearchRecord};

/// Writes a record, line by line; what `append` has returned from survives a loss of power.
#[derive(Debug)]
pub struct Writer {
    file: File,
    path: PathBuf,
    lines: usize,
}

impl Writer {
    /// Creates the file.
    ///
    /// # Errors
    ///
    /// The file exists (a race is never overwritten) or cannot be created.
    pub fn create(path: &Path) -> Result<Writer, RecordError> {
        let failed = |why| RecordError::Io { doing: "create record", path: path.to_owned(), why };
        let file = File::create_new(path).map_err(failed)?;
        // Without this the file's name may be gone after a loss of power, with all its synced lines.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
        Ok(Writer { file, path: path.to_owned(), lines: 0 })
    }

    /// Where the record is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True until a line was written.
    pub fn is_empty(&self) -> bool {
        self.lines == 0
    }

    /// Appends a line and waits until it is on the disk.
    ///
    /// # Errors
    ///
    /// The disk returned an error, or JSON cannot represent the line, such as a rate that is not a number.
    pub fn append(&mut self, line: &Line) -> Result<(), RecordError> {
        let bytes = encode(line).map_err(|why| RecordError::Unwritable { path: self.path.clone(), why })?;
        self.write(&bytes)
    }

    /// Appends a line of another record, as it stands there, without its newline.
    ///
    /// # Errors
    ///
    /// It is not whole, or the disk refused.
    pub fn copy(&mut self, line: &[u8]) -> Result<(), RecordError> {
        let damaged = |why| RecordError::Damaged { path: self.path.clone(), line: self.lines + 1, why };
        decode(line).map_err(damaged)?;
        self.write(&[line, b"\n"].concat())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), RecordError> {
        self.file.write_all(bytes).and_then(|()| self.file.sync_data()).map_err(|why| RecordError::Io {
            doing: "append to record",
            path: self.path.clone(),
            why,
        })?;
        self.lines += 1;
        Ok(())
    }
}

/// What a file can be the record of.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Record {
    Race(Box<RaceRecord>),
    /// A search for settings.
    Search(Box<SearchRecord>),
}

impl Record {
    /// Reads a record file, whichever it is.
    ///
    /// # Errors
    ///
    /// Those of [`RaceRecord::read`] and [`SearchRecord::from_bytes`].
    pub fn read(path: &Path) -> Result<Record, RecordError> {
        let bytes = bytes_of(path)?;
        if SearchRecord::is_in(&bytes) {
            return SearchRecord::from_bytes(&bytes, path).map(Box::new).map(Record::Search);
        }
        RaceRecord::from_bytes(&bytes, path).map(Box::new).map(Record::Race)
    }
}

/// A long race of many candidates has some ten megabytes; a sparse file or a device has as many as it likes.
const BYTES_MAX: u64 = 1 << 30;

fn bytes_of(path: &Path) -> Result<Vec<u8>, RecordError> {
    let read = || {
        let too_large = || io::Error::new(io::ErrorKind::FileTooLarge, "it has more than 1 GiB");
        let file = File::open(path)?;
        if file.metadata()?.len() > BYTES_MAX {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > BYTES_MAX { Err(too_large()) } else { Ok(bytes) }
    };
    read().map_err(|why| RecordError::Unread { path: path.to_owned(), why })
}

impl RaceRecord {
    /// Reads a record file.
    ///
    /// A last line that is cut or damaged is left out, with a note: that is the usual result of a crash. A note also
    /// lists missing rounds ([`RaceRecord::missing_rounds`]).
    ///
    /// # Errors
    ///
    /// See [`RecordError`]; a damaged line before the last is an error.
    pub fn read(path: &Path) -> Result<RaceRecord, RecordError> {
        RaceRecord::from_bytes(&bytes_of(path)?, path)
    }

    /// Reads the content of a record file; `path` is for messages.
    ///
    /// # Errors
    ///
    /// Fails like [`RaceRecord::read`].
    pub fn from_bytes(bytes: &[u8], path: &Path) -> Result<RaceRecord, RecordError> {
        let (payloads, notes) = payloads(bytes, path)?;
        let mut lines = payloads.iter().enumerate().map(|(index, payload)| (index + 1, *payload));
        let (_, first) = lines.next().ok_or(RecordError::Empty {
            path: path.to_owned(),
            why: if bytes.is_empty() { "it is empty" } else { "its first line is cut or damaged" },
        })?;
        let header = header(first, path)?;
        let mut race = RaceRecord {
            header,
            capacities: vec![],
            loads: vec![],
            witness: None,
            rounds: vec![],
            looks: vec![],
            profiles: vec![],
            late: vec![],
            end: None,
            notes,
        };
        for (number, payload) in lines {
            let line = serde_json::from_slice(payload).map_err(|why| RecordError::Unknown {
                path: path.to_owned(),
                line: number,
                hostgap: race.header.hostgap.clone(),
                why,
            })?;
            race.add(line).map_err(|why| RecordError::Inconsistent {
                path: path.to_owned(),
                line: number,
                why,
            })?;
        }
        race.notes.extend(lacking(&race.missing_rounds()));
        Ok(race)
    }

    /// Takes the next line, if it fits to what came before.
    fn add(&mut self, line: Line) -> Result<(), String> {
        if self.end.is_some() {
            return Err("it comes after the end of the race".to_owned());
        }
        match line {
            Line::Header(_) => return Err("it is a second header".to_owned()),
            Line::Capacity(capacity) => self.capacities.push(capacity),
            Line::Loads(_) if !self.loads.is_empty() => return Err("the loads appear twice".to_owned()),
            Line::Loads(loads) => self.loads = loads,
            Line::Witness(_) if self.witness.is_some() => {
                return Err("the witness appears twice".to_owned());
            }
            Line::Witness(witness) => self.witness = Some(witness),
            Line::Round(round) => {
                if self.rounds.last().is_some_and(|last| last.round >= round.round) {
                    return Err(format!("round {} is not later than the one before it", round.round));
                }
                if self.header.experiment.until.is_none() && round.round >= self.header.experiment.rounds {
                    let rounds = self.header.experiment.rounds;
                    return Err(format!("round {} is none of the {rounds} that were asked for", round.round));
                }
                let stranger = |trial: &crate::TrialRecord| {
                    trial.entrant >= self.header.entrants.len() || trial.load >= self.loads.len()
                };
                if round.trials.iter().any(stranger) {
                    return Err(format!("round {} has a trial of an unknown entrant or load", round.round));
                }
                if round.broken.iter().any(|broken| broken.entrant >= self.header.entrants.len()) {
                    return Err(format!("in round {} a candidate broke that is no entrant", round.round));
                }
                self.rounds.push(round);
            }
            Line::Look(look) => {
                self.expects(&look)?;
                self.looks.push(look);
            }
            Line::Profile(profile) => {
                if profile.entrant >= self.header.entrants.len() || profile.load >= self.loads.len() {
                    return Err("a profile is of an unknown entrant or load".to_owned());
                }
                let same =
                    |other: &crate::Profile| (other.entrant, other.load) == (profile.entrant, profile.load);
                if self.profiles.iter().any(same) {
                    return Err("a profile appears twice".to_owned());
                }
                self.profiles.push(profile);
            }
            Line::Late(late) => {
                if late.entrant >= self.header.entrants.len() || late.load >= self.loads.len() {
                    return Err("late answers are of an unknown entrant or load".to_owned());
                }
                let same = |other: &crate::Late| (other.entrant, other.load) == (late.entrant, late.load);
                if self.late.iter().any(same) {
                    return Err("late answers of an entrant at a load appear twice".to_owned());
                }
                self.late.push(late);
            }
            Line::End { wall_s, stopped } => self.end = Some(End { wall_s, stopped }),
        }
        Ok(())
    }
}

/// A note on rounds that are missing, by the numbers that they have in the file.
fn lacking(missing: &[RangeInclusive<u32>]) -> Option<String> {
    let numbers = |range: &RangeInclusive<u32>| {
        if range.start() == range.end() {
            range.start().to_string()
        } else {
            format!("{} to {}", range.start(), range.end())
        }
    };
    let ranges: Vec<String> = missing.iter().map(numbers).collect();
    let one = matches!(missing, [range] if range.start() == range.end());
    let (rounds, are) = if one { ("round", "is") } else { ("rounds", "are") };
    (!ranges.is_empty()).then(|| {
        let ranges = ranges.join(", ");
        format!(
            "{rounds} {ranges} (counted from 0) {are} missing: the record is not whole, and the figures are of the other \
             rounds alone"
        )
    })
}

/// What all whole lines carry, and a note on the last if it is not whole.
fn payloads<'a>(bytes: &'a [u8], path: &Path) -> Result<(Vec<&'a [u8]>, Vec<String>), RecordError> {
    let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let lines: Vec<&[u8]> =
        if text.is_empty() { vec![] } else { text.split(|byte| *byte == b'\n').collect() };
    let mut payloads = Vec::with_capacity(lines.len());
    for (index, line) in lines.iter().enumerate() {
        match decode(line) {
            Ok(payload) => payloads.push(payload),
            Err(why) if index + 1 == lines.len() => {
                let note =
                    format!("line {} is left out because {why}: the race was cut off there", index + 1);
                return Ok((payloads, vec![note]));
            }
            Err(why) => return Err(RecordError::Damaged { path: path.to_owned(), line: index + 1, why }),
        }
    }
    Ok((payloads, vec![]))
}

/// Reads the header. Its version is checked first, because a newer version may have changed the other fields.
fn header(payload: &[u8], path: &Path) -> Result<Header, RecordError> {
    #[derive(Deserialize)]
    struct Versioned {
        header: Version,
    }
    #[derive(Deserialize)]
    struct Version {
        schema: u32,
        hostgap: String,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Whole {
        header: Header,
    }
    let unknown = |hostgap: &str, why| RecordError::Unknown {
        path: path.to_owned(),
        line: 1,
        hostgap: hostgap.to_owned(),
        why,
    };
    let Versioned { header: Version { schema, hostgap } } =
        serde_json::from_slice(payload).map_err(|source| unknown("of an unknown version", source))?;
    if schema > SCHEMA {
        return Err(RecordError::Newer { path: path.to_owned(), found: schema, hostgap });
    }
    let whole: Whole = serde_json::from_slice(payload).map_err(|source| unknown(&hostgap, source))?;
    match whole.header.entrants.len() {
        entrants @ 0..2 => Err(RecordError::Inconsistent {
            path: path.to_owned(),
            line: 1,
            why: format!("it has {entrants} entrants, and a race has the reference twice"),
        }),
        _ => Ok(whole.header),
    }
}
