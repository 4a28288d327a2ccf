//! The check of what pods send, for links on which the kernel forwards: each frame has its pod's own addresses, or it
//! is dropped and counted.
//!
//! [`load`] pins the program and its maps in a folder of their own ([`crate::pins`]). The forwarding programs
//! ([`crate::forward`]) check by the same rules, so no link has both.

mod replace;

use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use libbpf_rs::OpenObject;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use linux::{Error, Mac, Result};
pub use replace::{FORMAT, is_of_this_build, is_of_this_format, replace};

use crate::entry::{self, Entry};
use crate::forward::Counter;
pub use crate::generation::Replaced;
use crate::layout::lies_as;
use crate::program::Program;
use crate::{ffi, generation, pins};

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
    include!(concat!(env!("OUT_DIR"), "/guard.skel.rs"));
}

use skeleton::types::{guarded, source};

lies_as!(guarded: container 8, v6 16, v4 4, mac 6, unused 6);
lies_as!(source: container 8, address 16);

/// The most links to pods, and the most addresses of pods.
pub const GUARDED_MAX: u32 = skeleton::types::guard_size::GUARDED_MAX.0;
/// What the program counts: each is a drop.
pub const COUNTERS: &[Counter] = &[
    Counter::DropShort,
    Counter::DropSpoofedMac,
    Counter::DropSpoofedAddress,
    Counter::DropVlan,
    Counter::DropProtocol,
];

/// An interface of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guarded {
    /// The index of the node's end of its link.
    pub link: u32,
    /// The cookie of its network namespace. Interfaces with the same one may send from each other's addresses.
    pub container: u64,
    /// The only Ethernet address from which the interface may send.
    pub mac: Mac,
    /// The addresses from which it may send, one of each family at most.
    pub addresses: Vec<IpAddr>,
}

/// Loads the program and pins it and its maps in a folder. Nothing meets it yet.
///
/// # Errors
/// The kernel refuses the program (the text has the verifier's words) or a map.
pub fn load(folder: &Path) -> Result<()> {
    ffi::listen();
    load_and_pin(folder)
        .map_err(|error| ffi::failed(format!("load the guard of {}", folder.display()), &error))
}

fn load_and_pin(folder: &Path) -> libbpf_rs::Result<()> {
    let mut object = MaybeUninit::uninit();
    let mut skeleton = open(&mut object)?.load()?;
    replace::MAPS.write_format(&skeleton.maps.guard_format)?;
    generation::pin_maps(skeleton.object_mut(), folder)?;
    skeleton.progs.guard.pin(Program::Guard.pin(folder))
}

/// The program, not loaded yet.
fn open(object: &mut MaybeUninit<OpenObject>) -> libbpf_rs::Result<skeleton::OpenGuardSkel<'_>> {
    let mut open = skeleton::GuardSkelBuilder::default().open(object)?;
    open.maps.rodata_data.as_mut().expect("the program has read-only data").build = skeleton::BUILD;
    Ok(open)
}

/// Whether it is loaded in a folder.
pub fn is_loaded(folder: &Path) -> bool {
    Program::Guard.pin(folder).exists()
}

/// Lets an interface send from its own addresses and from those of the same container's other interfaces.
///
/// # Errors
/// The link or one of the addresses is there already; a map is full; nothing is loaded in the folder, or a program
/// whose maps are of another format than this version knows. What was written until then is taken back.
pub fn add(folder: &Path, guarded: &Guarded) -> Result<()> {
    let attempted = || format!("add link {} to the guard of {}", guarded.link, folder.display());
    // A replacement may change the format.
    let _alone = pins::alone(folder)?;
    replace::MAPS.format_of(folder).map_err(|error| Error::new(attempted(), error.source))?;
    entry::add_all(folder, &guarded.entries())
}

/// Whether any part of an interface's entries is there: `Some(true)`, all of it.
pub fn has(folder: &Path, guarded: &Guarded) -> Result<Option<bool>> {
    entry::find_all(folder, &guarded.entries())
}

/// Takes away those of an interface's entries that are as [`add`] writes them. What is sent at the
/// link is dropped then.
pub fn remove(folder: &Path, guarded: &Guarded) -> Result<()> {
    // A replacement may copy the entries to other maps.
    let _alone = pins::alone(folder)?;
    entry::remove_all(folder, &guarded.entries())
}

/// What was dropped, by reason, summed over the CPUs, in packets since the program was loaded.
///
/// # Errors
/// Nothing is loaded in this folder, or this user may not read it.
pub fn counters(folder: &Path) -> Result<Vec<(Counter, u64)>> {
    let all = crate::forward::counters(folder)?;
    Ok(all.into_iter().filter(|(counter, _)| COUNTERS.contains(counter)).collect())
}

impl Guarded {
    fn entries(&self) -> Vec<Entry> {
        let by_link =
            Entry { map: "guarded", key: self.link.to_ne_bytes().to_vec(), value: self.bytes().to_vec() };
        let by_address = self.addresses.iter().map(|address| {
            let mapped = match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => *v6,
            };
            let key = [&self.container.to_ne_bytes()[..], &mapped.octets()].concat();
            Entry { map: "sources", key, value: self.link.to_ne_bytes().to_vec() }
        });
        std::iter::once(by_link).chain(by_address).collect()
    }

    /// As `struct guarded` lies in memory.
    fn bytes(&self) -> [u8; size_of::<guarded>()] {
        let v4 = self.addresses.iter().find_map(|address| match address {
            IpAddr::V4(v4) => Some(*v4),
            IpAddr::V6(_) => None,
        });
        let v6 = self.addresses.iter().find_map(|address| match address {
            IpAddr::V6(v6) => Some(*v6),
            IpAddr::V4(_) => None,
        });
        let (v4, v6) = (v4.unwrap_or(Ipv4Addr::UNSPECIFIED), v6.unwrap_or(Ipv6Addr::UNSPECIFIED));
        let fields = [&self.container.to_ne_bytes()[..], &v6.octets(), &v4.octets(), &self.mac.0, &[0; 6]];
        fields.concat().try_into().expect("the fields are as long as the structure")
    }
}
