//! From one generation of a node's programs to the next: which of the maps that are there the next one takes over, and
//! how what it brings along gets its pins.
//!
//! Programs that are loaded together have their maps in one format, a number that is pinned with them. It goes up with
//! every change by which two generations would read the same bytes as something else.

mod at_links;
mod build;

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapInfo, MapType, Object, OpenMap, OpenObject};
use linux::{Error, Result};

pub(crate) use at_links::AtLinks;
pub use at_links::Replaced;
pub(crate) use build::{Build, build_of};

use crate::ffi;

const FIRST_FORMAT: u32 = 1;
/// What the pin of something begins with before it takes the place of what is pinned.
pub(crate) const NEW: &str = "new_";
/// What to do with maps that cannot be taken over.
const REMEDY: &str = "unload the node and load it again";

/// The maps of programs that are loaded together.
pub(crate) struct Maps {
    /// What an error calls them.
    pub(crate) called: &'static str,
    /// The map that has their format, and its pin. A folder without it is of the first format.
    pub(crate) format: &'static str,
    /// The format of those that are made today.
    pub(crate) newest: u32,
    /// What can be found out again: maps that are made again if their form has changed.
    pub(crate) caches: &'static [&'static str],
    /// The maps that the first format did not have, each with the first that has it; but for the one with the format.
    pub(crate) since: &'static [(&'static str, u32)],
    /// Of which build the programs are that are loaded today.
    pub(crate) build: Build,
}

impl Maps {
    /// The format of those in a folder.
    ///
    /// # Errors
    /// Another version made them, and these programs do not know how to read them.
    pub(crate) fn format_of(&self, folder: &Path) -> Result<u32> {
        match self.read_format(folder)? {
            Some(format) if self.knows(format) => Ok(format),
            Some(format) => {
                let theirs =
                    format!("{} are of format {format}, which another version of hostgap made", self.called);
                Err(refused(folder, format!("{theirs}; this one knows {}; {REMEDY}", self.known())))
            }
            None => Err(refused(folder, format!("its map {} has no number", self.format))),
        }
    }

    /// Whether those in a folder are of a format that these programs know. True also where nothing is loaded.
    pub(crate) fn are_of_this_format(&self, folder: &Path) -> Result<bool> {
        Ok(self.read_format(folder)?.is_some_and(|format| self.knows(format)))
    }

    /// The number in a folder; `None`: the map for it has none.
    fn read_format(&self, folder: &Path) -> Result<Option<u32>> {
        let Some(map) = pinned(folder, self.format)? else { return Ok(Some(FIRST_FORMAT)) };
        let value = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let value = value.map_err(|error| ffi::failed(attempted(folder), &error))?;
        Ok(value.and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes))
    }

    fn knows(&self, format: u32) -> bool {
        (FIRST_FORMAT..=self.newest).contains(&format)
    }

    fn known(&self) -> String {
        match self.newest {
            FIRST_FORMAT => format!("format {FIRST_FORMAT}"),
            newest => format!("the formats {FIRST_FORMAT} to {newest}"),
        }
    }

    /// Gives programs that are not loaded yet the maps that are pinned in a folder, which are of the format `from`. The
    /// names of the others, which are made when the programs are loaded.
    ///
    /// # Errors
    /// A map is not there, or is of another form, and cannot be made again.
    pub(crate) fn take_over(&self, folder: &Path, from: u32, open: &mut OpenObject) -> Result<Vec<String>> {
        let mut made = Vec::new();
        for mut map in open.maps_mut().filter(|map| is_pinned(&map.name().to_string_lossy())) {
            let name = name_of(&map);
            match self.fate(folder, &map, from)? {
                Fate::Keep => map
                    .reuse_pinned_map(folder.join(name))
                    .map_err(|error| ffi::failed(attempted(folder), &error))?,
                Fate::Make => made.push(name),
            }
        }
        Ok(made)
    }

    fn fate(&self, folder: &Path, ours: &OpenMap<'_>, from: u32) -> Result<Fate> {
        let name = name_of(ours);
        let is_cache = self.caches.contains(&name.as_str());
        let Some(theirs) = pinned(folder, &name)? else {
            let was_before = |(later, since): &(&str, u32)| *later == name && from < *since;
            let is_later = name == self.format || self.since.iter().any(was_before);
            return if is_cache || is_later {
                Ok(Fate::Make)
            } else {
                Err(refused(folder, format!("there is no map {name}; were its programs loaded?")))
            };
        };
        let theirs = Form::of_loaded(&theirs).map_err(|error| ffi::failed(attempted(folder), &error))?;
        let ours = Form::of_ours(ours);
        match theirs == ours {
            true => Ok(Fate::Keep),
            false if is_cache => Ok(Fate::Make),
            false => {
                let why = format!("its map {name} is a {theirs}, and the new programs need a {ours}");
                Err(refused(folder, format!("{why}; {REMEDY}")))
            }
        }
    }

    /// Pins those that were made, but for the one that has the format.
    pub(crate) fn pin_made(&self, folder: &Path, object: &mut Object, made: &[String]) -> Result<()> {
        for mut map in object.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if made.contains(&name) && name != self.format {
                pin_over(folder, &name, |path| {
                    map.pin(path).map_err(|error| ffi::failed(attempted(folder), &error))
                })?;
            }
        }
        Ok(())
    }

    /// Writes into a folder that its maps are of today's format. Until then they are what they were,
    /// so this comes last.
    pub(crate) fn seal(&self, folder: &Path, object: &mut Object, made: &[String]) -> Result<()> {
        let failed = |error: libbpf_rs::Error| ffi::failed(attempted(folder), &error);
        let mut maps = object.maps_mut();
        let mut map = maps.find(|map| map.name() == self.format).expect("the programs have such a map");
        self.write_format(&map).map_err(failed)?;
        if made.iter().any(|name| name == self.format) {
            pin_over(folder, self.format, |path| map.pin(path).map_err(failed))?;
        }
        Ok(())
    }

    /// Writes today's format into its map.
    pub(crate) fn write_format(&self, map: &impl MapCore) -> libbpf_rs::Result<()> {
        map.update(&0_u32.to_ne_bytes(), &self.newest.to_ne_bytes(), MapFlags::ANY)
    }
}

/// What every error of a replacement begins with.
pub(crate) fn attempted(folder: &Path) -> String {
    format!("replace the programs of {}", folder.display())
}

pub(crate) fn refused(folder: &Path, why: String) -> Error {
    Error::new(attempted(folder), io::Error::other(why))
}

/// Pins the maps of programs that are loaded in a folder, each under its name.
pub(crate) fn pin_maps(object: &mut Object, folder: &Path) -> libbpf_rs::Result<()> {
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if is_pinned(&name) {
            map.pin(folder.join(name))?;
        }
    }
    Ok(())
}

/// Whether a map has a pin: the read-only data is its programs' own.
fn is_pinned(name: &str) -> bool {
    !name.contains('.')
}

/// Pins something under a name that may be taken: at every moment one of the two is there.
pub(crate) fn pin_over(folder: &Path, name: &str, pin: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let (new, place) = (folder.join(format!("{NEW}{name}")), folder.join(name));
    match fs::remove_file(&new) {
        // It is there if a process was killed here.
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::new(format!("remove {}", new.display()), error)),
    }
    pin(&new)?;
    fs::rename(&new, &place)
        .map_err(|error| Error::new(format!("rename {} to {}", new.display(), place.display()), error))
}

/// The map that is pinned under a name, if one is.
fn pinned(folder: &Path, name: &str) -> Result<Option<MapHandle>> {
    let path = folder.join(name);
    if !path.exists() {
        return Ok(None);
    }
    MapHandle::from_pinned_path(&path)
        .map(Some)
        .map_err(|error| ffi::failed(format!("open {}", path.display()), &error))
}

fn name_of(map: &OpenMap<'_>) -> String {
    map.name().to_string_lossy().into_owned()
}

/// What becomes of a map.
enum Fate {
    /// The one that is there is the new programs' too.
    Keep,
    /// It has no pin yet and is made empty.
    Make,
}

/// What two maps must have in common for one to stand for the other.
#[derive(Debug, PartialEq, Eq)]
struct Form {
    kind: MapType,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

impl Form {
    fn of_ours(map: &OpenMap<'_>) -> Form {
        Form {
            kind: map.map_type(),
            key_bytes: map.key_size(),
            value_bytes: map.value_size(),
            entries: map.max_entries(),
            flags: map.map_flags(),
        }
    }

    fn of_loaded(map: &MapHandle) -> libbpf_rs::Result<Form> {
        let info = MapInfo::new(map.as_fd())?.info;
        Ok(Form {
            kind: map.map_type(),
            key_bytes: map.key_size(),
            value_bytes: map.value_size(),
            entries: map.max_entries(),
            flags: info.map_flags,
        })
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Form { kind, key_bytes, value_bytes, entries, flags } = self;
        write!(f, "{kind:?} of {entries} entries, keys of {key_bytes} bytes and values of {value_bytes}")?;
        write!(f, " (flags {flags:#x})")
    }
}
