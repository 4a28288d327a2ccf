//! Another guard in the place of a node's, while pods send.
//!
//! The new program is loaded with the maps that are there, so that it knows what the old one knew, and then comes to
//! the links ([`AtLinks`]): every frame is judged by the one or the other, by the same entries.

use std::mem::MaybeUninit;
use std::path::Path;

use libbpf_rs::skel::{OpenSkel, Skel};
use linux::Result;

use super::skeleton;
use super::skeleton::types::guard_size;
use crate::generation::{self, AtLinks, Maps, Replaced, build_of};
use crate::program::Program;
use crate::{ffi, pins};

/// The format of the maps that [`super::load`] makes. `guard.h` has the list of all.
pub const FORMAT: u32 = guard_size::GUARD_FORMAT.0;
pub(super) const MAPS: Maps = Maps {
    called: "the maps of its guard",
    format: "guard_format",
    newest: FORMAT,
    caches: &[],
    since: &[],
    build: build_of!(skeleton),
};

/// Whether the maps of a folder are of a format that this version knows. True also where nothing is loaded.
///
/// # Errors
/// A map cannot be read.
pub fn is_of_this_format(folder: &Path) -> Result<bool> {
    MAPS.are_of_this_format(folder)
}

/// Whether the program of a folder is that of [`super::load`], and its maps are of that one's format. False also
/// where nothing is loaded.
///
/// # Errors
/// A pin cannot be opened, or this user may not ask what a program's maps are.
pub fn is_of_this_build(folder: &Path) -> Result<bool> {
    MAPS.are_of_this_build(folder, [Program::Guard.pin(folder)])
}

/// Replaces the program of a folder by that of [`super::load`], while pods send: each frame meets the old one or the
/// new one. What pods and counters there are stays. Filters are replaced at the links of the calling thread's
/// namespace, bpf links (tcx since Linux 6.6) wherever they are.
///
/// It can be called again after it was killed or has failed at any point.
///
/// # Errors
/// Nothing is loaded in the folder; its maps are of another format than this version knows, or one is of another form;
/// the kernel refuses the program. Until then nothing is changed. Afterwards the kernel may still refuse to attach the
/// program or to pin it.
pub fn replace(folder: &Path) -> Result<Replaced> {
    let _alone = pins::alone(folder)?;
    ffi::listen();
    let failed = |error: libbpf_rs::Error| ffi::failed(generation::attempted(folder), &error);
    let from = MAPS.format_of(folder)?;
    let mut object = MaybeUninit::uninit();
    let mut open = super::open(&mut object).map_err(failed)?;
    let made = MAPS.take_over(folder, from, open.open_object_mut())?;
    let mut skeleton = open.load().map_err(failed)?;
    let at_links = AtLinks::find(folder, skeleton.object())?;
    // From here on the folder changes.
    at_links.put(&MAPS, folder, skeleton.object_mut(), Replaced { from, links: 0, filters: 0, made })
}
