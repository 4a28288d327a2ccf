//! Other programs in the place of a node's, while packets flow.
//!
//! The new programs are loaded with the maps that are there, so that they know what the old ones knew. Then each hook
//! gets them in one stroke, so that every packet meets an old program or a new one. A process that dies on the way
//! leaves a node of which some hooks have the old programs and some the new: both work, and the next [`replace`] finds
//! all of them.

use std::fmt;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use libbpf_rs::skel::{OpenSkel, Skel};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapInfo, MapType, OpenMap};
use linux::{Error, Netlink, Result};

use super::skeleton::types::size;
use super::{NodeConfig, Program, prefixes};
use crate::{attach, ffi, pins, splice};

/// The format of the maps that [`super::load`] makes. `forward.h` has the list of all.
pub const FORMAT: u32 = size::FORMAT.0;
/// The map that says it, and its pin. A folder without it is of the first format.
const FORMAT_MAP: &str = "format";
const FIRST_FORMAT: u32 = 1;
/// What the pin of something begins with before it takes the place of what is pinned.
const NEW: &str = "new_";
/// What can be found out again: maps that are made again if their form has changed.
const CACHES: [&str; 6] = ["routes4", "routes6", "recent4", "recent6", "homes4", "homes6"];
/// What else the first format did not have.
const NOT_IN_FIRST: [&str; 2] = [FORMAT_MAP, "prefixes"];

/// Why a node with a splice keeps its programs. The two ends of a stream share its record, and the kernel gives a socket
/// the programs that the map has when it joins (`sock_map_link`): one end could have programs of another version.
const NO_SPLICE: &str = "it splices sockets, and those that have joined keep their programs as long as they live; unload \
                         the node and load it anew";

/// What [`replace`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    /// The format of the maps that were there.
    pub from: u32,
    /// Bpf links that have the new programs.
    pub links: usize,
    /// Filters that have the new programs.
    pub filters: usize,
    /// Maps that were not there, or were of another form and could be emptied.
    pub made: Vec<String>,
}

/// Replaces the programs of a node's folder by those of [`super::load`], with this configuration, while packets flow.
/// Every packet meets either the old programs or the new ones. What pods, tunnels and counters there are stays; the
/// prefixes become those of the configuration, as [`super::set_prefixes`] does it. Filters are replaced at the links of
/// the calling thread's namespace, bpf links (tcx since Linux 6.6, netkit since 6.7) wherever they are.
///
/// It can be called again after it was killed or has failed at any point.
///
/// # Errors
/// Nothing is loaded in the folder, or a splice ([`crate::splice`]) as well; its maps are of a newer format, or a map is of another form than ours and cannot be
/// emptied; the kernel refuses a program. Until then nothing is changed. Afterwards the kernel may still refuse to
/// attach a program or to pin it.
pub fn replace(folder: &Path, config: &NodeConfig) -> Result<Replaced> {
    let _alone = pins::alone(folder)?;
    ffi::listen();
    let failed = |error: libbpf_rs::Error| ffi::failed(attempted(folder), &error);
    if splice::is_loaded(folder) {
        return Err(refused(folder, NO_SPLICE.to_owned()));
    }
    let from = format_of(folder)?;
    let mut object = MaybeUninit::uninit();
    let mut open = super::open(&mut object, config).map_err(failed)?;
    let mut made = Vec::new();
    for mut map in open.open_object_mut().maps_mut().filter(|map| is_pinned(&name_of(map))) {
        let name = name_of(&map);
        match fate(folder, &map, from)? {
            Fate::Keep => map.reuse_pinned_map(folder.join(name)).map_err(failed)?,
            Fate::Make => made.push(name),
        }
    }
    let mut skeleton = open.load().map_err(failed)?;
    let mut programs = Vec::new();
    for program in skeleton.object_mut().progs_mut() {
        let fd = program.as_fd().try_clone_to_owned();
        programs.push((program.name().to_string_lossy().into_owned(), fd.map_err(|e| failed(e.into()))?));
    }
    let links = links(folder, &programs)?;
    // From here on the folder changes.
    prefixes::fill(&skeleton.maps.prefixes, &config.pods, &config.cluster).map_err(failed)?;
    for mut map in skeleton.object_mut().maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if made.contains(&name) && name != FORMAT_MAP {
            pin_over(folder, &name, |path| map.pin(path).map_err(failed))?;
        }
    }
    let mut replaced = Replaced { from, links: 0, filters: 0, made };
    for (pin, link, program) in &links {
        replaced.links += usize::from(ffi::update_link(link, &programs[*program].1, pin)?);
    }
    replaced.filters = replace_filters(&programs)?;
    for (name, program) in &programs {
        pin_over(folder, name, |path| ffi::pin(program, path))?;
    }
    // Last: until then it is what it was.
    write_format(&skeleton.maps.format).map_err(failed)?;
    if replaced.made.iter().any(|name| name == FORMAT_MAP) {
        pin_over(folder, FORMAT_MAP, |path| skeleton.maps.format.pin(path).map_err(failed))?;
    }
    Ok(replaced)
}

/// Writes [`FORMAT`] into its map.
pub(super) fn write_format(map: &impl MapCore) -> libbpf_rs::Result<()> {
    map.update(&0_u32.to_ne_bytes(), &FORMAT.to_ne_bytes(), MapFlags::ANY)
}

fn attempted(folder: &Path) -> String {
    format!("replace the programs of {}", folder.display())
}

fn refused(folder: &Path, why: String) -> Error {
    Error::new(attempted(folder), io::Error::other(why))
}

/// Whether a map has a pin: the read-only data is its programs' own.
fn is_pinned(name: &str) -> bool {
    !name.contains('.')
}

fn name_of(map: &OpenMap<'_>) -> String {
    map.name().to_string_lossy().into_owned()
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

/// The format of the maps in a folder.
fn format_of(folder: &Path) -> Result<u32> {
    let Some(map) = pinned(folder, FORMAT_MAP)? else { return Ok(FIRST_FORMAT) };
    let value = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
    let value = value.map_err(|error| ffi::failed(attempted(folder), &error))?;
    let number = value.and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
    match number {
        Some(format @ FIRST_FORMAT..=FORMAT) => Ok(format),
        Some(format) => Err(refused(
            folder,
            format!(
                "its maps are of format {format}, which another version of hostgap made; this one knows the formats \
                {FIRST_FORMAT} to {FORMAT}"
            ),
        )),
        None => Err(refused(folder, format!("its map {FORMAT_MAP} has no number"))),
    }
}

/// What becomes of a map.
enum Fate {
    /// The one that is there is the new programs' too.
    Keep,
    /// It has no pin yet and is made empty.
    Make,
}

fn fate(folder: &Path, ours: &OpenMap<'_>, from: u32) -> Result<Fate> {
    let name = name_of(ours);
    let is_cache = CACHES.contains(&name.as_str());
    let Some(theirs) = pinned(folder, &name)? else {
        let is_later = from == FIRST_FORMAT && NOT_IN_FIRST.contains(&name.as_str());
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
            Err(refused(folder, format!("{why}; unload the node and load it again")))
        }
    }
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

/// The bpf links of a node: pin, link, and which of the programs is a later one of the link's.
fn links(folder: &Path, programs: &[(String, OwnedFd)]) -> Result<Vec<(PathBuf, OwnedFd, usize)>> {
    let failed = |error| Error::new(format!("list {}", folder.display()), error);
    let mut links = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let pin = entry.map_err(failed)?.path();
        let name = pin.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with(Program::LINK) {
            continue;
        }
        let link = ffi::open(&pin)?;
        let id = ffi::program_of_link(&link)?;
        let mut found = None;
        for (at, (_, program)) in programs.iter().enumerate() {
            if ffi::is_generation_of(program, id)? {
                found = Some(at);
            }
        }
        let Some(program) = found else {
            return Err(refused(folder, format!("{name} has a program that is not of this node")));
        };
        links.push((pin, link, program));
    }
    Ok(links)
}

/// Puts the programs into the filters of earlier ones; how many.
fn replace_filters(programs: &[(String, OwnedFd)]) -> Result<usize> {
    let netlink = Netlink::open()?;
    let mut replaced = 0;
    for link in netlink.links()? {
        if netlink.filters(link.index)?.into_iter().any(attach::is_our_place) {
            let programs = programs.iter().map(|(_, program)| program);
            replaced += usize::from(attach::replace_filter(link.index, programs)?);
        }
    }
    Ok(replaced)
}

/// Pins something under a name that may be taken: at every moment one of the two is there.
fn pin_over(folder: &Path, name: &str, pin: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
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
