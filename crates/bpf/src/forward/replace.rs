//! Other forwarding programs in the place of a node's, while packets flow.
//!
//! The new programs are loaded with the maps that are there, so that they know what the old ones knew. Then each hook
//! gets them in one stroke, so that every packet meets an old program or a new one. A process that dies on the way
//! leaves a node of which some hooks have the old programs and some the new: both work, and the next [`replace`] finds
//! all of them.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::{fs, io};

use libbpf_rs::Object;
use libbpf_rs::skel::{OpenSkel, Skel};
use linux::{Error, Netlink, Result};

use super::skeleton::types::size;
use super::{NodeConfig, Program, prefixes};
use crate::generation::{self, Maps, pin_over, refused};
use crate::{attach, ffi};

/// The format of the maps that [`super::load`] makes. `forward.h` has the list of all.
pub const FORMAT: u32 = size::FORMAT.0;
pub(super) const MAPS: Maps = Maps {
    called: "its maps",
    format: "format",
    newest: FORMAT,
    caches: &["routes4", "routes6", "recent4", "recent6", "homes4", "homes6"],
    since: &[("prefixes", 2), ("uplinks", 3)],
};

/// The first format in which a pod's entry says whether it is queued.
const QUEUED_SINCE: u32 = 4;

/// What became of a node's forwarding programs.
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

/// Does what [`crate::replace`] says of the forwarding programs, for who holds the folder.
///
/// # Errors
/// As there: until the new programs are loaded nothing is changed.
pub(crate) fn replace(folder: &Path, config: &NodeConfig) -> Result<Replaced> {
    let failed = |error: libbpf_rs::Error| ffi::failed(generation::attempted(folder), &error);
    let from = MAPS.format_of(folder)?;
    let mut object = MaybeUninit::uninit();
    let mut open = super::open(&mut object, config).map_err(failed)?;
    let made = MAPS.take_over(folder, from, open.open_object_mut())?;
    let mut skeleton = open.load().map_err(failed)?;
    let programs = programs(folder, skeleton.object())?;
    let links = links(folder, &programs)?;
    // From here on the folder changes.
    prefixes::fill(&skeleton.maps.prefixes, &config.pods, &config.cluster).map_err(failed)?;
    MAPS.pin_made(folder, skeleton.object_mut(), &made)?;
    let mut replaced = Replaced { from, links: 0, filters: 0, made };
    for (pin, link, program) in &links {
        replaced.links += usize::from(ffi::update_link(link, &programs[*program].1, pin)?);
    }
    replaced.filters = replace_filters(&programs)?;
    for (name, program) in &programs {
        pin_over(folder, name, |path| ffi::pin(program, path))?;
    }
    MAPS.seal(folder, skeleton.object_mut(), &replaced.made)?;
    Ok(replaced)
}

/// Checks that a node's programs hand nothing past the queue of a pod that is queued.
///
/// # Errors
/// They do: they are of a format of before.
pub(super) fn check_that_pods_queue(folder: &Path) -> Result<()> {
    let format = MAPS.format_of(folder)?;
    if format >= QUEUED_SINCE {
        return Ok(());
    }
    let why = format!(
        "its programs, of format {format}, hand packets past every queue; `hostgap bpf replace` replaces them"
    );
    Err(Error::new(format!("limit what a pod of {} receives", folder.display()), io::Error::other(why)))
}

/// Loaded programs with the names of their functions, which are those of their pins.
fn programs(folder: &Path, object: &Object) -> Result<Vec<(String, OwnedFd)>> {
    let program = |program: libbpf_rs::ProgramMut<'_>| {
        let fd = program.as_fd().try_clone_to_owned();
        let fd = fd.map_err(|error| Error::new(generation::attempted(folder), error))?;
        Ok((program.name().to_string_lossy().into_owned(), fd))
    };
    object.progs_mut().map(program).collect()
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
