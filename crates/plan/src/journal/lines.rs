//! The lines of a journal's file: how one is written, and what those of a file say.

use std::io;
use std::path::Path;

use super::Seal;
use super::order::JournalOrder;
use super::v2::Reader;
use crate::entry::{Entry, Header, VERSION};
use crate::{JournalError, crc32};

/// What a line of a damaged journal still proves.
#[derive(Debug)]
pub struct Salvaged {
    /// The line, from 1.
    pub line: usize,
    /// Its content, or what is wrong with it.
    pub entry: Result<Entry, String>,
}

/// Every line of a journal by itself, for people: which checksums hold, and what those lines say. Nothing is undone by
/// it, since a damaged line may be the one that says otherwise.
///
/// # Errors
/// The file cannot be read.
pub fn salvage(path: &Path) -> Result<Vec<Salvaged>, JournalError> {
    let bytes = std::fs::read(path).map_err(|why| JournalError::File {
        attempted: "read",
        path: path.to_owned(),
        why,
    })?;
    let mut reader = Reader::default();
    let mut entry = |text| {
        let json = sound_json(text)?;
        reader.entry(json).map_err(|error| error.to_string())
    };
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').enumerate();
    Ok(lines.map(|(index, text)| Salvaged { line: index + 1, entry: entry(text) }).collect())
}

/// A line as it stands in the file.
pub(super) fn line(entry: &Entry) -> String {
    let json =
        serde_json::to_string(entry).expect("journal entries have only text keys and no foreign types");
    format!("{:08x} {json}\n", crc32::of(json.as_bytes()))
}

/// What the sound lines of a journal say.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sound {
    /// Its first line, with version and boot id.
    pub(crate) header: Header,
    /// All of its lines, the first among them.
    pub(crate) entries: Vec<Entry>,
    /// Of all of them.
    pub(crate) seal: Seal,
}

impl Sound {
    /// Reads a journal as it is, without its lock and without cutting off a damaged end; `None`: there is none.
    pub(crate) fn read(path: &Path) -> Result<Option<(Sound, Vec<u8>)>, JournalError> {
        match std::fs::read(path) {
            Ok(bytes) => Ok(Some((parse(path, &bytes)?, bytes))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(why) => Err(JournalError::File { attempted: "read", path: path.to_owned(), why }),
        }
    }
}

/// All sound lines; see the parent module's header for what is forgiven.
pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Sound, JournalError> {
    let mut entries = Vec::new();
    let (mut order, mut reader) = (JournalOrder::default(), Reader::default());
    let mut sound_bytes = 0;
    for (index, text) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let end = sound_bytes + text.len();
        let damaged = |why| JournalError::Damaged { path: path.to_owned(), line: index + 1, why };
        let json = match sound_json(text) {
            Ok(json) => json,
            Err(_) if end == bytes.len() => break,
            Err(why) => return Err(damaged(why)),
        };
        if index == 0 {
            check_version(path, json)?;
        }
        // A line that came whole and cannot be understood was written by other code: never to be passed over.
        let entry = reader.entry(json).map_err(|error| damaged(error.to_string()))?;
        order.take(&entry).map_err(damaged)?;
        entries.push(entry);
        sound_bytes = end;
    }
    let Some(Entry::Header(header)) = entries.first().cloned() else {
        return Err(JournalError::NoHeader { path: path.to_owned() });
    };
    let seal = Seal::default().and(&bytes[..sound_bytes], order.steps());
    Ok(Sound { header, entries, seal })
}

/// Looks at the version alone, since another version's header may hold other things.
fn check_version(path: &Path, json: &str) -> Result<(), JournalError> {
    #[derive(serde::Deserialize)]
    struct AnyHeader {
        header: AnyVersion,
    }
    #[derive(serde::Deserialize)]
    struct AnyVersion {
        version: u32,
    }
    match serde_json::from_str(json) {
        Ok(AnyHeader { header: AnyVersion { version: 2 | VERSION } }) => Ok(()),
        Ok(AnyHeader { header: AnyVersion { version: found } }) => {
            Err(JournalError::Version { path: path.to_owned(), found, known: VERSION })
        }
        Err(_) => Err(JournalError::NoHeader { path: path.to_owned() }),
    }
}

/// The content of a line whose end and checksum are there.
fn sound_json(text: &[u8]) -> Result<&str, String> {
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    let text = text.strip_suffix('\n').ok_or("it has no end")?;
    let (crc, json) = text.split_once(' ').ok_or("no checksum stands before its content")?;
    let expected = format!("{:08x}", crc32::of(json.as_bytes()));
    if crc != expected {
        return Err(format!("its checksum is {crc:?} and its content's is {expected}"));
    }
    Ok(json)
}
