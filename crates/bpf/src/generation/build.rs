//! Of which build pinned programs are, so that they are replaced once and not whenever a process begins.
//!
//! The format of the maps does not say it: most changes to programs leave the maps as they are. So each program has a
//! number in its read-only data, made of all that was compiled ([`Build`]). Two builds of one source by other compilers
//! differ in it, and then programs are replaced that do the same: nothing is lost by that.

use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use linux::Result;

use super::Maps;
use crate::ffi;

/// How the name of the map ends that is a program's read-only data.
const READ_ONLY: &str = ".rodata";

/// A build of programs that are loaded together.
pub(crate) struct Build {
    /// What it is known by.
    pub(crate) number: u64,
    /// Where that is in their read-only data. In another build's it may be elsewhere: then something else is there.
    pub(crate) at: usize,
}

/// The build whose skeleton is in this module.
macro_rules! build_of {
    ($skeleton:ident) => {
        $crate::generation::Build {
            number: $skeleton::BUILD,
            at: std::mem::offset_of!($skeleton::types::rodata, build),
        }
    };
}
pub(crate) use build_of;

impl Maps {
    /// Whether the pinned programs are of this build, all of them, and their maps of its format.
    ///
    /// Pins are the last that a replacement changes ([`super::AtLinks`]), and the format comes after them: where it is
    /// so, it is so at every link.
    ///
    /// # Errors
    /// A pin cannot be opened, or this user may not ask what a program's maps are.
    pub(crate) fn are_of_this_build(
        &self,
        folder: &Path,
        pins: impl IntoIterator<Item = PathBuf>,
    ) -> Result<bool> {
        ffi::listen();
        if self.read_format(folder)? != Some(self.newest) {
            return Ok(false);
        }
        for pin in pins {
            // One that this build has and the folder lacks is no error: another build made it.
            if !pin.exists() || !self.build.is_of(&pin)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Build {
    fn is_of(&self, pin: &Path) -> Result<bool> {
        let failed =
            |error: libbpf_rs::Error| ffi::failed(format!("ask of which build {} is", pin.display()), &error);
        for id in ffi::maps_of(&ffi::open(pin)?)? {
            let map = MapHandle::from_map_id(id).map_err(failed)?;
            if map.name().to_string_lossy().ends_with(READ_ONLY) {
                let data = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
                return Ok(data.is_some_and(|data| self.is_in(&data)));
            }
        }
        Ok(false)
    }

    fn is_in(&self, data: &[u8]) -> bool {
        data.get(self.at..).and_then(<[u8]>::first_chunk) == Some(&self.number.to_ne_bytes())
    }
}
