//! A tree that holds two snapshots of a machine, to be diagnosed on another machine.
//!
//! ```text
//! DIR/collected.json          format, and the time of each snapshot
//! DIR/before/proc/…  sys/…    copies of the files that doctor reads, under their own paths
//! DIR/before/answers.json     sockets, queueing disciplines, cards and path MTUs, which are no files
//! DIR/before/unseen.json      the parts that could not be read
//! DIR/after/…                 the second snapshot, in the layout of the first
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use linux::tree::{NewTree, Tree};
use linux::{Files, NetnsName};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{DoctorError, Snapshot};

/// The version of the tree's form.
const SCHEMA: u32 = 1;
const HEAD: &str = "collected.json";
const ANSWERS: &str = "answers.json";
const UNSEEN: &str = "unseen.json";

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

/// Makes the directory for a tree, so that an obstacle shows before the machine is read.
///
/// # Errors
/// The path belongs to anything but an empty directory, for example a symbolic link, or cannot be made.
pub fn destination(directory: &Path) -> Result<NewTree, DoctorError> {
    NewTree::create(directory).map_err(|error| {
        let taken = |what| DoctorError::Occupied { path: directory.to_owned(), what };
        match error.errno().map(Errno::from_raw_os_error) {
            Some(Errno::NOTEMPTY) => taken("is not empty"),
            Some(Errno::EXIST | Errno::NOTDIR) => taken("is no directory"),
            Some(Errno::LOOP) => taken("is a symbolic link"),
            _ => DoctorError::Unwritten(error),
        }
    })
}

/// Writes two snapshots, each with the files that were read for it ([`Files::taken`]). If a write fails, the files
/// already written are removed.
///
/// # Errors
/// The tree cannot be written, for example because the disk is full.
pub fn collect(tree: NewTree, before: &Taken, after: &Taken) -> Result<(), DoctorError> {
    let written = write(&tree, before, after);
    if written.is_err() {
        // Report the first error; a tree without its head is invalid anyway.
        let _ = tree.discard();
    }
    written.map_err(DoctorError::Unwritten)
}

fn write(tree: &NewTree, before: &Taken, after: &Taken) -> linux::Result<()> {
    for (name, (snapshot, texts)) in [("before", before), ("after", after)] {
        for (path, text) in texts {
            tree.write(&format!("{name}/{path}"), text)?;
        }
        tree.write(&format!("{name}/{ANSWERS}"), &json(&snapshot.answers))?;
        tree.write(&format!("{name}/{UNSEEN}"), &json(&snapshot.unseen))?;
    }
    // Last, so that a tree that was cut short is none.
    let (before, after) = (&before.0, &after.0);
    let head =
        Head { schema: SCHEMA, before_ns: before.at_ns, after_ns: after.at_ns, netns: after.netns.clone() };
    tree.write(HEAD, &json(&head))
}

/// Reads both snapshots of a tree. The tree is not trusted: no file outside of it is read ([`Tree`]). Parts that could
/// not be read are in [`Snapshot::unseen`].
///
/// # Errors
/// It is not a collected tree, or one of a later format.
pub fn open(directory: &Path) -> Result<(Snapshot, Snapshot), DoctorError> {
    let tree = Tree::open(directory).map_err(DoctorError::Unread)?;
    let head = head(&tree)?;
    let before = look(&tree, "before", head.before_ns, head.netns.as_ref())?;
    let after = look(&tree, "after", head.after_ns, head.netns.as_ref())?;
    Ok((before, after))
}

/// Reads the head. Its version is checked first, because a later version may have changed the other fields.
fn head(tree: &Tree) -> Result<Head, DoctorError> {
    #[derive(Deserialize)]
    struct Version {
        schema: u32,
    }
    let is_wrong = |why| DoctorError::Tree { path: tree.place(HEAD), why };
    let Version { schema } = parsed(tree, HEAD)?;
    if schema != SCHEMA {
        return Err(is_wrong(format!("its schema is {schema}, and this hostgap reads {SCHEMA}")));
    }
    let head: Head = parsed(tree, HEAD)?;
    if head.before_ns >= head.after_ns {
        let (before, after) = (head.before_ns, head.after_ns);
        return Err(is_wrong(format!(
            "its second look ({after} ns) is not later than its first ({before} ns)"
        )));
    }
    Ok(head)
}

fn look(tree: &Tree, name: &str, at_ns: u64, netns: Option<&NetnsName>) -> Result<Snapshot, DoctorError> {
    let path = tree.place(name);
    let tree = Arc::new(tree.below(name).map_err(DoctorError::Unread)?);
    let mut snapshot = Snapshot::read(&Files::of_tree(tree.clone()), parsed(&tree, ANSWERS)?);
    snapshot.at_ns = at_ns;
    snapshot.netns = netns.cloned();
    let mut unread = std::mem::replace(&mut snapshot.unseen, parsed(&tree, UNSEEN)?);
    unread.extend(tree.refused().into_iter().map(|text| format!("could not {text}")));
    for text in unread {
        if !snapshot.unseen.contains(&text) && !is_explained(&text, &path, &snapshot.unseen) {
            snapshot.unseen.push(text);
        }
    }
    if snapshot.kernel.is_empty() || snapshot.stat.cpus.is_empty() {
        let mut why = "proc/sys/kernel/osrelease or proc/stat is missing or cannot be read".to_owned();
        let of_these = |text: &&String| text.contains("proc/stat") || text.contains("osrelease");
        snapshot.unseen.iter().filter(of_these).for_each(|text| why += &format!("; {text}"));
        return Err(DoctorError::Tree { path, why });
    }
    Ok(snapshot)
}

/// Whether a file is missing in the tree because it could not be read there, which `unseen` already lists.
fn is_explained(text: &str, place: &Path, unseen: &[String]) -> bool {
    let there = text.replace(&format!("{}/", place.display()), "/");
    let Some((attempted, _)) = there.split_once(": ") else { return false };
    unseen.iter().any(|known| known.strip_prefix(attempted).is_some_and(|rest| rest.starts_with(": ")))
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("numbers, texts and lists of them are always JSON") + "\n"
}

fn parsed<T: DeserializeOwned>(tree: &Tree, name: &str) -> Result<T, DoctorError> {
    let missing = || {
        let place = tree.place(name).display().to_string();
        linux::Error::new(format!("read {place}"), io::Error::from(Errno::NOENT))
    };
    let text = tree.read(name).and_then(|text| text.ok_or_else(missing)).map_err(DoctorError::Unread)?;
    serde_json::from_str(&text)
        .map_err(|error| DoctorError::Tree { path: tree.place(name), why: error.to_string() })
}
