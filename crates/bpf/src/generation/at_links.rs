//! Programs at network links, in the place of earlier ones.
//!
//! Each hook gets its new program in one stroke, so that every packet meets an old program or a new one. A process that
//! dies on the way leaves a node of which some hooks have the old programs and some the new: both work, and the next
//! replacement finds all of them.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use libbpf_rs::Object;
use linux::{Error, Netlink, Result};

use super::{Maps, attempted, pin_over, refused};
use crate::program::Program;
use crate::{attach, ffi};

/// What became of programs at links.
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

/// Programs that are loaded with the maps of a folder and that nothing meets yet, and the bpf links of the folder.
pub(crate) struct AtLinks {
    /// By the names of their functions, which are those of their pins.
    programs: Vec<(String, OwnedFd)>,
    /// Pin, link, and which of the programs is a later one of the link's.
    links: Vec<(PathBuf, OwnedFd, usize)>,
}

impl AtLinks {
    /// Finds for each bpf link of the folder which of the programs belongs there. Changes nothing.
    ///
    /// # Errors
    /// A link has another program than an earlier one of these.
    pub(crate) fn find(folder: &Path, object: &Object) -> Result<AtLinks> {
        let programs = programs(folder, object)?;
        let links = links(folder, &programs)?;
        Ok(AtLinks { programs, links })
    }

    /// Puts them in the place of the earlier ones: in bpf links wherever they are, in filters at the links of the
    /// calling thread's namespace. Then pins them, and the maps that were made.
    ///
    /// # Errors
    /// The kernel refuses to attach or to pin a program.
    pub(crate) fn put(
        self,
        maps: &Maps,
        folder: &Path,
        object: &mut Object,
        mut replaced: Replaced,
    ) -> Result<Replaced> {
        maps.pin_made(folder, object, &replaced.made)?;
        for (pin, link, program) in &self.links {
            replaced.links += usize::from(ffi::update_link(link, &self.programs[*program].1, pin)?);
        }
        replaced.filters = replace_filters(&self.programs)?;
        for (name, program) in &self.programs {
            pin_over(folder, name, |path| ffi::pin(program, path))?;
        }
        maps.seal(folder, object, &replaced.made)?;
        Ok(replaced)
    }
}

fn programs(folder: &Path, object: &Object) -> Result<Vec<(String, OwnedFd)>> {
    let program = |program: libbpf_rs::ProgramMut<'_>| {
        let fd = program.as_fd().try_clone_to_owned();
        let fd = fd.map_err(|error| Error::new(attempted(folder), error))?;
        Ok((program.name().to_string_lossy().into_owned(), fd))
    };
    object.progs_mut().map(program).collect()
}

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
