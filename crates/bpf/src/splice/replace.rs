//! Other programs in the place of a splice's, while streams pass.
//!
//! Each of the three is replaced in one stroke: those of the map of sockets by being attached to it (`psock_set_prog`
//! swaps the two), that of the control group by its bpf link (`__cgroup_bpf_replace`). From then on sockets that join
//! have the new programs.
//!
//! Those that have joined keep the old ones until they close. The kernel copies a map's programs to a socket when it
//! joins and refuses to do so again (`EBUSY` in `sock_map_link`), and a socket that leaves the map to join anew loses
//! what lies unread in its queue. So the two ends of one stream can have programs of two generations, and old ones can
//! run for as long as a connection lasts. Both is sound because all of them have the same maps in the same format, of
//! which the record of a stream is a part (`splice.h`).

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use libbpf_rs::OpenObject;
use libbpf_rs::skel::{OpenSkel, Skel};
use linux::{Error, Result};

use super::skeleton::SpliceSkel;
use super::skeleton::types::splice_size;
use super::{ENDS, FROM_WIRE, LINK, MESSAGE, connections, give_to_map, skeleton};
use crate::ffi;
use crate::generation::{Maps, attempted, build_of, pin_over};

/// The format of the maps that [`super::load`] makes. `splice.h` has the list of all.
pub const FORMAT: u32 = splice_size::SPLICE_FORMAT.0;
pub(super) const MAPS: Maps = Maps {
    called: "the maps of its splice",
    format: "splice_format",
    newest: FORMAT,
    caches: &[],
    since: &[],
    build: build_of!(skeleton),
};

/// What became of a node's splice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    /// The format of the maps that were there.
    pub from: u32,
    /// Whether the sockets of a control group meet the new programs; else none meets any.
    pub is_attached: bool,
    /// Connections that were open: they keep the old programs until they end.
    pub connections: usize,
    /// Maps that were not there.
    pub made: Vec<String>,
}

/// Whether the programs of a node's splice are those of [`super::load`], for [`crate::are_of_this_build`].
///
/// # Errors
/// As there.
pub(crate) fn are_of_this_build(folder: &Path) -> Result<bool> {
    // Of the three it is put in its place last, and is the only one with a pin.
    MAPS.are_of_this_build(folder, [folder.join(ENDS)])
}

/// Programs that are loaded with the maps of a folder, and that nothing meets yet.
pub(crate) struct Successor<'o> {
    skeleton: SpliceSkel<'o>,
    ends: OwnedFd,
    from: u32,
    made: Vec<String>,
}

impl<'o> Successor<'o> {
    /// Loads them. Changes nothing.
    ///
    /// # Errors
    /// The maps in the folder are of a format that these programs do not know, or one is missing or of another form;
    /// the kernel refuses a program.
    pub(crate) fn load(folder: &Path, object: &'o mut MaybeUninit<OpenObject>) -> Result<Successor<'o>> {
        let failed = |error: libbpf_rs::Error| ffi::failed(attempted(folder), &error);
        let from = MAPS.format_of(folder)?;
        let mut open = super::open(object).map_err(failed)?;
        let made = MAPS.take_over(folder, from, open.open_object_mut())?;
        let skeleton = open.load().map_err(failed)?;
        let ends = skeleton.progs.splice_ends.as_fd().try_clone_to_owned();
        let ends = ends.map_err(|error| Error::new(attempted(folder), error))?;
        Ok(Successor { skeleton, ends, from, made })
    }

    /// Puts them in the place of those that are there. A process that was killed here, or has failed, leaves some old
    /// and some new ones, which work together, and the next replacement finds all of them.
    ///
    /// # Errors
    /// The kernel refuses to attach or to pin a program.
    pub(crate) fn put(mut self, folder: &Path) -> Result<Replaced> {
        MAPS.pin_made(folder, self.skeleton.object_mut(), &self.made)?;
        let connections = connections(folder)?;
        let old = self.of_map(folder)?;
        give_to_map(&self.skeleton).map_err(|error| ffi::failed(attempted(folder), &error))?;
        let pin = folder.join(LINK);
        let is_attached = pin.exists() && ffi::update_link(&ffi::open(&pin)?, &self.ends, &pin)?;
        pin_over(folder, ENDS, |path| ffi::pin(&self.ends, path))?;
        MAPS.seal(folder, self.skeleton.object_mut(), &self.made)?;
        drop(old);
        Ok(Replaced { from: self.from, is_attached, connections, made: self.made })
    }

    /// The programs that the map of sockets has now. While they are held, a socket that is about to join and has looked
    /// one up gets it; else the kernel might find it gone (`bpf_prog_inc_not_zero` in `sock_map_link`), and the socket
    /// would stay with TCP. A kernel before 5.17 does not say what they are.
    fn of_map(&self, folder: &Path) -> Result<Vec<OwnedFd>> {
        let sockets = self.skeleton.maps.splice_sockets.as_fd().as_raw_fd();
        let mut held = Vec::new();
        for kind in [MESSAGE, FROM_WIRE] {
            for id in ffi::query(sockets, kind, || attempted(folder))? {
                held.extend(ffi::open_program(id)?);
            }
        }
        Ok(held)
    }
}
