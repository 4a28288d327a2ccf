//! Other forwarding programs in the place of a node's, while packets flow.
//!
//! The new programs are loaded with the maps that are there, so that they know what the old ones knew, and then come to
//! the links ([`AtLinks`]).

use std::io;
use std::mem::MaybeUninit;
use std::path::Path;

use libbpf_rs::skel::{OpenSkel, Skel};
use linux::{Error, Result};

use super::skeleton::types::size;
use super::{NodeConfig, prefixes, skeleton};
use crate::ffi;
use crate::generation::{self, AtLinks, Maps, Replaced, build_of};
use crate::program::Program;

/// The format of the maps that [`super::load`] makes. `forward.h` has the list of all.
pub const FORMAT: u32 = size::FORMAT.0;
pub(super) const MAPS: Maps = Maps {
    called: "its maps",
    format: "format",
    newest: FORMAT,
    caches: &["routes4", "routes6", "recent4", "recent6", "homes4", "homes6"],
    since: &[("prefixes", 2), ("uplinks", 3)],
    build: build_of!(skeleton),
};

/// The first format in which a pod's entry says whether it is queued.
const QUEUED_SINCE: u32 = 4;

/// Does what [`crate::replace`] says of the forwarding programs, for a caller that holds the folder.
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
    let at_links = AtLinks::find(folder, skeleton.object())?;
    // From here on the folder changes.
    prefixes::fill(&skeleton.maps.prefixes, &config.pods, &config.cluster).map_err(failed)?;
    at_links.put(&MAPS, folder, skeleton.object_mut(), Replaced { from, links: 0, filters: 0, made })
}

/// Whether the programs of a folder are those of [`super::load`], for [`crate::are_of_this_build`].
///
/// # Errors
/// As there.
pub(crate) fn are_of_this_build(folder: &Path) -> Result<bool> {
    MAPS.are_of_this_build(folder, Program::FORWARD.iter().map(|program| program.pin(folder)))
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
