//! Small files of ours, each an object of JSON with a checksum of its own: under its name there is always a whole one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::crc32;
use crate::overwrite::overwrite;

/// The key of the checksum of all the others.
const CRC32: &str = "crc32";
/// The key of the version of the format.
const VERSION: &str = "schema";

/// Why a file says nothing.
#[derive(Debug)]
pub(crate) enum Unsealed {
    /// It cannot be read.
    File(io::Error),
    /// Its checksum does not hold, so it is not what was written.
    Damaged(String),
}

/// What a file says whose checksum holds; `None` if there is no such file.
pub(crate) fn read<T: DeserializeOwned>(path: &Path, version: u32) -> Result<Option<T>, Unsealed> {
    match fs::read(path) {
        Ok(bytes) => content(&bytes, version).map(Some).map_err(Unsealed::Damaged),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Unsealed::File(error)),
    }
}

/// Writes a value that has fields, one of which is `schema`.
pub(crate) fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let text = sealed(value);
    let fresh = path.with_extension("new");
    let written = File::create(&fresh).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
    });
    written.inspect_err(|_| {
        let _ = fs::remove_file(&fresh);
    })
}

/// Writes a value over one in memory (`/run`) that is there, for which a full disk has room if it is no
/// longer than that one. A death between two pages of it (4 KiB) leaves a file that is damaged, and is found so.
pub(crate) fn write_over(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let text = sealed(value);
    let file = OpenOptions::new().write(true).open(path)?;
    overwrite(&file, &text)?;
    file.set_len(text.len() as u64)
}

fn sealed(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).expect("these types have only text keys");
    let Value::Object(mut object) = value else { unreachable!("these types have fields") };
    let crc32 = crc32_of(&object);
    object.insert(CRC32.to_owned(), crc32.into());
    serde_json::to_string(&object).expect("the keys of an object are texts")
}

fn content<T: DeserializeOwned>(bytes: &[u8], version: u32) -> Result<T, String> {
    let mut object: Map<String, Value> = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let found = object.get(VERSION).and_then(Value::as_u64);
    if found != Some(u64::from(version)) {
        let found = found.map_or_else(|| "none".to_owned(), |found| found.to_string());
        return Err(format!("it has schema {found}, this hostgap knows {version}"));
    }
    let crc32 = object.remove(CRC32);
    if crc32.as_ref().and_then(Value::as_u64) != Some(u64::from(crc32_of(&object))) {
        return Err("its checksum is not that of its content".to_owned());
    }
    serde_json::from_value(Value::Object(object)).map_err(|error| error.to_string())
}

fn crc32_of(object: &Map<String, Value>) -> u32 {
    crc32::of(&serde_json::to_vec(object).expect("the keys of an object are texts"))
}
