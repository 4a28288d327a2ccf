//! A tree that holds two looks at a machine, to be diagnosed on another one.
//!
//! ```text
//! DIR/collected.json          format, and when each look was
//! DIR/before/proc/…  sys/…    copies of the files that doctor reads, under their own paths
//! DIR/before/answers.json     sockets, queueing disciplines, cards and sizes of paths, which are asked for
//! DIR/before/unseen.json      what could not be read
//! DIR/after/…                 the same at the end
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use linux::{Files, NetnsName};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{DoctorError, Snapshot};

/// The version of the tree's form.
const SCHEMA: u32 = 1;
const HEAD: &str = "collected.json";

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    schema: u32,
    before_ns: u64,
    after_ns: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    netns: Option<NetnsName>,
}

/// A snapshot with the texts from which it was made.
pub type Taken = (Snapshot, BTreeMap<String, String>);

/// Writes two looks, each with the files that were read for it ([`Files::taken`]).
///
/// # Errors
/// The directory has something in it, or cannot be written.
pub fn collect(directory: &Path, before: &Taken, after: &Taken) -> Result<(), DoctorError> {
    let occupied = fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some());
    if occupied {
        return Err(DoctorError::Occupied(directory.to_owned()));
    }
    for (name, (snapshot, texts)) in [("before", before), ("after", after)] {
        let place = directory.join(name);
        for (path, text) in texts {
            write(&place.join(path), text)?;
        }
        write(&place.join("answers.json"), &json(&snapshot.answers))?;
        write(&place.join("unseen.json"), &json(&snapshot.unseen))?;
    }
    // Last, so that a tree that was cut short is none.
    let (before, after) = (&before.0, &after.0);
    let head =
        Head { schema: SCHEMA, before_ns: before.at_ns, after_ns: after.at_ns, netns: after.netns.clone() };
    write(&directory.join(HEAD), &json(&head))
}

/// Reads both looks of a tree.
///
/// # Errors
/// It is no collected tree, or one of a later form.
pub fn open(directory: &Path) -> Result<(Snapshot, Snapshot), DoctorError> {
    let path = directory.join(HEAD);
    let head: Head = parsed(&path)?;
    if head.schema != SCHEMA {
        let why = format!("its schema is {}, and this hostgap reads {SCHEMA}", head.schema);
        return Err(DoctorError::Tree { path, why });
    }
    let look = |name: &str, at_ns: u64| -> Result<Snapshot, DoctorError> {
        let place = directory.join(name);
        let mut snapshot = Snapshot::read(&Files::at(&place), parsed(&place.join("answers.json"))?);
        snapshot.at_ns = at_ns;
        snapshot.netns.clone_from(&head.netns);
        if snapshot.kernel.is_empty() || snapshot.stat.cpus.is_empty() {
            let why =
                "it has no proc/sys/kernel/osrelease or no proc/stat: part of the tree is missing".to_owned();
            return Err(DoctorError::Tree { path: place, why });
        }
        // What could not be read there is what matters, and not that it is missing here.
        snapshot.unseen = parsed(&place.join("unseen.json"))?;
        Ok(snapshot)
    };
    Ok((look("before", head.before_ns)?, look("after", head.after_ns)?))
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("numbers, texts and lists of them are always JSON") + "\n"
}

fn write(path: &Path, text: &str) -> Result<(), DoctorError> {
    let attempted = format!("write {}", path.display());
    let failed = |source: io::Error| DoctorError::Unwritten(linux::Error::new(attempted.clone(), source));
    fs::create_dir_all(path.parent().expect("a file lies in a directory")).map_err(failed)?;
    fs::write(path, text).map_err(failed)
}

fn parsed<T: DeserializeOwned>(path: &Path) -> Result<T, DoctorError> {
    let text = fs::read_to_string(path);
    let text = text
        .map_err(|error| DoctorError::Unread(linux::Error::new(format!("read {}", path.display()), error)))?;
    serde_json::from_str(&text)
        .map_err(|error| DoctorError::Tree { path: path.to_owned(), why: error.to_string() })
}
