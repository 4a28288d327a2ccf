//! Entries of the maps that are pinned in a node's folder.

use std::io;
use std::path::Path;

use libbpf_rs::{ErrorKind, MapCore as _, MapFlags, MapHandle};
use linux::Result;

use crate::ffi;

/// One key and its value in one map.
pub(crate) struct Entry {
    pub(crate) map: &'static str,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

/// Adds all of them, or none.
///
/// # Errors
/// One is there already; a map is full; nothing is loaded in the folder. What was written until then is taken back.
pub(crate) fn add_all(folder: &Path, entries: &[Entry]) -> Result<()> {
    for (at, entry) in entries.iter().enumerate() {
        if let Err(error) = entry.add(folder) {
            let taken_back = entries[..at].iter().map(|written| written.remove(folder)).collect::<Vec<_>>();
            return Err(error.and_left(taken_back.into_iter().collect()));
        }
    }
    Ok(())
}

/// Whether any of them is there, or another in its place: `Some(true)`, all of them are.
pub(crate) fn find_all(folder: &Path, entries: &[Entry]) -> Result<Option<bool>> {
    let mut found = Vec::new();
    for entry in entries {
        found.push(entry.find(folder)?);
    }
    Ok(found.iter().any(Option::is_some).then(|| found.iter().all(|same| *same == Some(true))))
}

/// Removes those that are there as they are here, the last one first.
pub(crate) fn remove_all(folder: &Path, entries: &[Entry]) -> Result<()> {
    for entry in entries.iter().rev() {
        if entry.find(folder)? == Some(true) {
            entry.remove(folder)?;
        }
    }
    Ok(())
}

impl Entry {
    pub(crate) fn add(&self, folder: &Path) -> Result<()> {
        self.with(folder, "add an entry to", |map| {
            let added = map.update(&self.key, &self.value, MapFlags::NO_EXIST);
            added.map_err(|error| match error.kind() {
                // The kernel's word for it is "argument list too long".
                ErrorKind::TooBig => io::Error::other(full(map)).into(),
                _ => error,
            })
        })
    }

    pub(crate) fn remove(&self, folder: &Path) -> Result<()> {
        self.with(folder, "remove an entry of", |map| map.delete(&self.key))
    }

    /// `Some(true)` if it is there, `Some(false)` if another is in its place.
    pub(crate) fn find(&self, folder: &Path) -> Result<Option<bool>> {
        self.with(folder, "read an entry of", |map| {
            Ok(map.lookup(&self.key, MapFlags::ANY)?.map(|value| value == self.value))
        })
    }

    pub(crate) fn with<T>(
        &self,
        folder: &Path,
        attempted: &str,
        work: impl FnOnce(&MapHandle) -> libbpf_rs::Result<T>,
    ) -> Result<T> {
        ffi::listen();
        let path = folder.join(self.map);
        MapHandle::from_pinned_path(&path)
            .and_then(|map| work(&map))
            .map_err(|error| ffi::failed(format!("{attempted} {}", path.display()), &error))
    }
}

fn full(map: &MapHandle) -> String {
    let max = map.max_entries();
    format!("it is full with {max} entries; remove pods or nodes that are no more, or use a second node")
}
