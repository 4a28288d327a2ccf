//! Services by the calls of sockets: programs that exchange a Service's address for that of a backend, attached to a
//! control group, and their tables.
//!
//! [`load`] pins programs and maps in a folder of their own ([`crate::pins`]); everything after that finds them there.

mod entries;
mod layout;
mod replace;

use std::fmt;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};

use libbpf_rs::OpenObject;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use linux::Result;

pub use entries::{FoundService, Protocol, Service, ServiceAddress, add, find, list, remove, set};
pub use replace::{FORMAT, Replaced, are_of_this_build, is_of_this_format, replace};
use skeleton::types::service_count as list_of_counts;

use crate::attach::unpin;
use crate::{AddressCall, Hook, ffi, generation, pins};

#[expect(
    unreachable_pub,
    unused_qualifications,
    clippy::allow_attributes,
    clippy::needless_pass_by_value,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    reason = "it is generated"
)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/services.skel.rs"));
}

/// What the pins of bpf links begin with.
const LINK: &str = "link_";
const COUNTS: &str = "service_counts";

const _: () =
    assert!(ServiceCounter::ALL.len() == list_of_counts::SERVICE_COUNTS.0 as usize, "the lists are as long");

/// What the programs count, by the numbers of `enum service_count` of `services.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServiceCounter {
    /// Calls that were led to a backend.
    Led,
    /// Of these, those to the same backend as before.
    Kept,
    /// Calls of a Service without backends.
    Refused,
    /// Calls of a Service whose backends were not to be found. There are none unless an entry was damaged.
    Lost,
}

impl ServiceCounter {
    /// Every counter, in the order of their numbers.
    pub const ALL: &[ServiceCounter] =
        &[ServiceCounter::Led, ServiceCounter::Kept, ServiceCounter::Refused, ServiceCounter::Lost];

    /// A short name, for tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            ServiceCounter::Led => "led",
            ServiceCounter::Kept => "kept",
            ServiceCounter::Refused => "refused",
            ServiceCounter::Lost => "lost",
        }
    }
}

impl fmt::Display for ServiceCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ServiceCounter::Led => "calls led to a backend",
            ServiceCounter::Kept => "of these, to the same one as before",
            ServiceCounter::Refused => "calls refused: the Service has no backend",
            ServiceCounter::Lost => "calls refused: the Service's backends were not to be found",
        })
    }
}

/// Loads the programs and pins them and their maps in a folder. Nothing meets them yet.
///
/// # Errors
/// The kernel refuses a program (the text has the verifier's words) or a map.
pub fn load(folder: &Path) -> Result<()> {
    ffi::listen();
    load_and_pin(folder)
        .map_err(|error| ffi::failed(format!("load the services of {}", folder.display()), &error))
}

fn load_and_pin(folder: &Path) -> libbpf_rs::Result<()> {
    let mut object = MaybeUninit::uninit();
    let mut skeleton = open(&mut object)?.load()?;
    replace::MAPS.write_format(&skeleton.maps.service_format)?;
    generation::pin_maps(skeleton.object_mut(), folder)?;
    for mut program in skeleton.object_mut().progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        program.pin(folder.join(name))?;
    }
    Ok(())
}

/// The programs, not loaded yet.
fn open(object: &mut MaybeUninit<OpenObject>) -> libbpf_rs::Result<skeleton::OpenServicesSkel<'_>> {
    let mut open = skeleton::ServicesSkelBuilder::default().open(object)?;
    open.maps.rodata_data.as_mut().expect("the programs have read-only data").build = skeleton::BUILD;
    Ok(open)
}

/// Whether they are loaded in a folder: all programs, which are pinned after the maps.
pub fn is_loaded(folder: &Path) -> bool {
    AddressCall::ALL.iter().all(|call| program_pin(folder, *call).exists())
}

/// Attaches them to a control group by pinned bpf links: from now on calls of the sockets that tasks in it have opened
/// are looked at.
///
/// # Errors
/// Nothing is loaded, one is attached already, or there is no such control group. What was attached until then stays.
pub fn attach(folder: &Path, cgroup: &Path) -> Result<()> {
    for call in AddressCall::ALL {
        let (program, link) = (program_pin(folder, *call), link_pin(folder, *call));
        crate::attach(&program, Hook::Address(*call), cgroup, &link)?;
    }
    Ok(())
}

/// Whether any of them is attached to a control group, by its pin.
pub fn is_attached(folder: &Path) -> bool {
    AddressCall::ALL.iter().any(|call| link_pin(folder, *call).exists())
}

/// The calls at a control group that meet one of these programs. The kernel is asked: a pin remains when the bpf link
/// behind it was detached.
///
/// # Errors
/// There is no such control group, or this user may not ask. That nothing is loaded is no error.
pub fn met(folder: &Path, cgroup: &Path) -> Result<Vec<AddressCall>> {
    let mut met = Vec::new();
    for call in AddressCall::ALL {
        if crate::met(&program_pin(folder, *call), Hook::Address(*call), cgroup)?.is_some() {
            met.push(*call);
        }
    }
    Ok(met)
}

/// Whether a control group has such programs, of whatever version and wherever they are pinned: one for each call.
///
/// # Errors
/// There is no such control group, or this user may not ask.
pub fn are_at(cgroup: &Path) -> Result<bool> {
    for call in AddressCall::ALL {
        if !crate::attach::names_at(Hook::Address(*call), cgroup)?.iter().any(|name| name == call.name()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Detaches those that are attached. Connections stay as they are; what a connected socket shows is its backend then.
///
/// # Errors
/// A pin cannot be removed, or the kernel refuses.
pub fn detach(folder: &Path) -> Result<()> {
    // What exchanges addresses goes before what shows them.
    for call in AddressCall::ALL.iter().rev() {
        let link = link_pin(folder, *call);
        if link.exists() {
            drop(unpin(&link)?);
        }
    }
    Ok(())
}

/// The counters of a folder, summed over its CPUs, since the programs were loaded.
///
/// # Errors
/// Nothing is loaded in this folder, or this user may not read it.
pub fn counters(folder: &Path) -> Result<Vec<(ServiceCounter, u64)>> {
    ffi::listen();
    let counts = ffi::counts(&folder.join(COUNTS), ServiceCounter::ALL.len() as u32);
    let counts = counts.map_err(|error| {
        ffi::failed(format!("read the counters of the services of {}", folder.display()), &error)
    })?;
    Ok(ServiceCounter::ALL.iter().copied().zip(counts).collect())
}

/// Holds a folder whose maps these programs can read.
fn alone(folder: &Path) -> Result<std::fs::File> {
    let held = pins::alone(folder)?;
    replace::MAPS.format_of(folder).map(|_| held)
}

fn program_pin(folder: &Path, call: AddressCall) -> PathBuf {
    folder.join(call.name())
}

fn link_pin(folder: &Path, call: AddressCall) -> PathBuf {
    folder.join(format!("{LINK}{}", call.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_order() {
        for (at, counter) in ServiceCounter::ALL.iter().enumerate() {
            assert_eq!(*counter as usize, at);
        }
    }
}
