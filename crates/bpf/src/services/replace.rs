//! Other programs in the place of those that lead calls to backends, while sockets call.
//!
//! The new ones are loaded with the maps that are there. Then each bpf link gets its program in one stroke, so that
//! every call meets an old one or a new one. A process that dies on the way leaves some of either, and the next
//! [`replace`] finds all of them.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::Path;

use libbpf_rs::skel::{OpenSkel, Skel};
use linux::{Error, Result};

use super::skeleton::types::services_size;
use super::{link_pin, program_pin, skeleton};
use crate::generation::{Maps, attempted, build_of, pin_over};
use crate::{AddressCall, ffi, pins};

/// The format of the maps that [`super::load`] makes. `services.h` has the list of all.
pub const FORMAT: u32 = services_size::SERVICES_FORMAT.0;
pub(super) const MAPS: Maps = Maps {
    called: "the maps of its services",
    format: "service_format",
    newest: FORMAT,
    caches: &["service_choices", "service_flows", "service_socket_choices"],
    since: &[],
    build: build_of!(skeleton),
};

/// What became of the programs of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    /// The format of the maps that were there.
    pub from: u32,
    /// Bpf links that have the new programs.
    pub links: usize,
    /// Maps that were of another form and could be emptied.
    pub made: Vec<String>,
}

/// Whether the maps of a folder are of a format that these programs know. True also where nothing is loaded.
///
/// # Errors
/// A map cannot be read.
pub fn is_of_this_format(folder: &Path) -> Result<bool> {
    MAPS.are_of_this_format(folder)
}

/// Whether the programs of a folder are those of [`super::load`], and their maps are of that one's format. False also
/// where nothing is loaded.
///
/// # Errors
/// A pin cannot be opened, or this user may not ask what a program's maps are.
pub fn are_of_this_build(folder: &Path) -> Result<bool> {
    MAPS.are_of_this_build(folder, AddressCall::ALL.iter().map(|call| program_pin(folder, *call)))
}

/// Replaces the programs of a folder by those of [`super::load`], while sockets call. Services and their backends stay.
///
/// It can be called again after it was killed or has failed at any point.
///
/// # Errors
/// Nothing is loaded in the folder; its maps are of another format than these programs know, or a map is of another
/// form and cannot be emptied; the kernel refuses a program. Until then nothing is changed. Afterwards the kernel may
/// still refuse to attach a program or to pin it.
pub fn replace(folder: &Path) -> Result<Replaced> {
    let _alone = pins::alone(folder)?;
    ffi::listen();
    let failed = |error: libbpf_rs::Error| ffi::failed(attempted(folder), &error);
    let from = MAPS.format_of(folder)?;
    let mut object = MaybeUninit::uninit();
    let mut open = super::open(&mut object).map_err(failed)?;
    let made = MAPS.take_over(folder, from, open.open_object_mut())?;
    let mut skeleton = open.load().map_err(failed)?;
    // From here on the folder changes.
    MAPS.pin_made(folder, skeleton.object_mut(), &made)?;
    let mut links = 0;
    for program in skeleton.object().progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let call = AddressCall::ALL.iter().find(|call| call.name() == name);
        let call = *call.expect("the list has every function");
        let fd = program.as_fd().try_clone_to_owned();
        let fd = fd.map_err(|error| Error::new(attempted(folder), error))?;
        let link = link_pin(folder, call);
        if link.exists() && ffi::update_link(&ffi::open(&link)?, &fd, &link)? {
            links += 1;
        }
        pin_over(folder, call.name(), |path| ffi::pin(&fd, path))?;
    }
    MAPS.seal(folder, skeleton.object_mut(), &made)?;
    Ok(Replaced { from, links, made })
}
