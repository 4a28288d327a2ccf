//! Other programs in the place of all that a node has, under traffic.

use std::mem::MaybeUninit;
use std::path::Path;

use linux::Result;

use crate::{ffi, forward, pins, splice};

/// What [`replace`] found and changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    /// To the forwarding programs.
    pub forward: forward::Replaced,
    /// To the splice, if the node has one.
    pub splice: Option<splice::Replaced>,
}

/// Whether the programs of a node's folder are those of [`forward::load`] and, if it has a splice,
/// [`splice::load`], and their maps of those ones' formats: [`replace`] would change nothing but the configuration.
/// False also where nothing is loaded.
///
/// # Errors
/// A pin cannot be opened, or this user may not ask what a program's maps are.
pub fn are_of_this_build(folder: &Path) -> Result<bool> {
    let is_spliced_so = !splice::is_loaded(folder) || splice::are_of_this_build(folder)?;
    Ok(is_spliced_so && forward::are_of_this_build(folder)?)
}

/// Replaces the programs of a node's folder by those of [`forward::load`], with this configuration, and of
/// [`splice::load`], while packets and streams pass.
///
/// Every packet meets either the old programs or the new ones. What pods, tunnels and counters there are stays; the
/// prefixes become those of the configuration, as [`forward::set_prefixes`] does it. Filters are replaced at the links
/// of the calling thread's namespace, bpf links (tcx since Linux 6.6, netkit since 6.7) wherever they are.
///
/// Sockets that a splice takes in from now on have its new programs. Those that it has keep the old ones until they
/// close, and no byte of theirs is lost.
///
/// It can be called again after it was killed or has failed at any point.
///
/// # Errors
/// Nothing is loaded in the folder; its maps are of another format than these programs know, or a map is of another
/// form and cannot be emptied; the kernel refuses a program. Until then nothing is changed. Afterwards the kernel may
/// still refuse to attach a program or to pin it.
pub fn replace(folder: &Path, config: &forward::NodeConfig) -> Result<Replaced> {
    let _alone = pins::alone(folder)?;
    ffi::listen();
    let mut object = MaybeUninit::uninit();
    // Loaded first, and put in its place last: what is refused of either leaves both as they were.
    let successor =
        splice::is_loaded(folder).then(|| splice::Successor::load(folder, &mut object)).transpose()?;
    let forward = forward::replace(folder, config)?;
    let splice = successor.map(|successor| successor.put(folder)).transpose()?;
    Ok(Replaced { forward, splice })
}
