//! The short cut of TCP between two pods of a node: loaded, attached to a cgroup, and given its members.
//!
//! [`load`] pins programs and maps beside the forwarding programs of the node ([`crate::pins`]), under names that begin
//! with [`PREFIX`]; everything after that finds them there. Which sockets are looked at is decided by the cgroup of the
//! task that opens them, which of those are spliced by their addresses and network namespaces.

mod replace;

use std::fmt;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, OpenObject};
use linux::{Error, Result};

pub use replace::{FORMAT, Replaced};
pub(crate) use replace::{Successor, are_of_this_build};
use skeleton::types::{address, splice_counter as list};

use crate::attach::unpin;
use crate::generation::{self, NEW};
use crate::layout::lies_as;
use crate::{Hook, ffi, pins};

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
    include!(concat!(env!("OUT_DIR"), "/splice.skel.rs"));
}

/// What the names of all its pins begin with.
pub const PREFIX: &str = "splice_";
/// The program that is attached to the cgroup.
const ENDS: &str = "splice_ends";
/// The bpf link by which it is.
const LINK: &str = "splice_link";
/// The hooks of the map of sockets.
const MESSAGE: libbpf_sys::bpf_attach_type = libbpf_sys::BPF_SK_MSG_VERDICT;
const FROM_WIRE: libbpf_sys::bpf_attach_type = libbpf_sys::BPF_SK_SKB_VERDICT;
const MEMBERS: &str = "splice_members";
const STREAMS: &str = "splice_streams";
const COUNTERS: &str = "splice_counters";

const _: () = assert!(SpliceCounter::ALL.len() == list::SPLICE_COUNTERS.0 as usize, "the lists are as long");
lies_as!(address: words 16);

/// What the programs count, by the numbers of `enum splice_counter` of `splice.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpliceCounter {
    /// Sockets that were put into the map.
    Joined = list::SPLICE_JOINED.0 as isize,
    /// Messages that went past TCP.
    Messages = list::SPLICE_MESSAGES.0 as isize,
    /// Messages left to TCP: the other end is not in the map.
    Alone = list::SPLICE_ALONE.0 as isize,
    /// Messages left to TCP: earlier ones are on their way there.
    InFlight = list::SPLICE_IN_FLIGHT.0 as isize,
    /// Messages left to TCP: the receiver lags behind.
    Full = list::SPLICE_FULL.0 as isize,
    /// Sockets that the kernel did not take into the map.
    Unjoined = list::SPLICE_UNJOINED.0 as isize,
}

impl SpliceCounter {
    /// Every counter, in the order of `splice.h`.
    pub const ALL: &[SpliceCounter] = &[
        SpliceCounter::Joined,
        SpliceCounter::Messages,
        SpliceCounter::Alone,
        SpliceCounter::InFlight,
        SpliceCounter::Full,
        SpliceCounter::Unjoined,
    ];

    /// A short name, for tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            SpliceCounter::Joined => "joined",
            SpliceCounter::Messages => "messages",
            SpliceCounter::Alone => "alone",
            SpliceCounter::InFlight => "in_flight",
            SpliceCounter::Full => "full",
            SpliceCounter::Unjoined => "unjoined",
        }
    }
}

impl fmt::Display for SpliceCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SpliceCounter::Joined => "sockets of pods joined",
            SpliceCounter::Messages => "messages past TCP",
            SpliceCounter::Alone => "messages by TCP: the other end is not joined",
            SpliceCounter::InFlight => "messages by TCP: earlier ones are on their way there",
            SpliceCounter::Full => "messages by TCP: the receiver lags behind",
            SpliceCounter::Unjoined => "sockets that the kernel did not take",
        })
    }
}

/// Loads the programs and pins them and their maps in a node's folder: beside the node's forwarding programs, or in a
/// folder of their own, which is made. Nothing meets them yet.
///
/// # Errors
/// The kernel refuses a program (the text has the verifier's words) or a map. What was pinned until then is taken away.
pub fn load(folder: &Path) -> Result<()> {
    ffi::listen();
    if !pins::exists(folder) {
        pins::make(folder)?;
    }
    load_and_pin(folder).map_err(|error| {
        ffi::failed(format!("load the splice of {}", folder.display()), &error).and_left(remove(folder))
    })
}

fn load_and_pin(folder: &Path) -> libbpf_rs::Result<()> {
    let mut object = MaybeUninit::uninit();
    let mut skeleton = open(&mut object)?.load()?;
    replace::MAPS.write_format(&skeleton.maps.splice_format)?;
    // Before the first socket is in the map: one takes the programs that the map has when it joins.
    give_to_map(&skeleton)?;
    generation::pin_maps(skeleton.object_mut(), folder)?;
    skeleton.progs.splice_ends.pin(folder.join(ENDS))
}

/// The programs, not loaded yet.
fn open(object: &mut MaybeUninit<OpenObject>) -> libbpf_rs::Result<skeleton::OpenSpliceSkel<'_>> {
    let mut open = skeleton::SpliceSkelBuilder::default().open(object)?;
    open.maps.rodata_data.as_mut().expect("the programs have read-only data").build = skeleton::BUILD;
    Ok(open)
}

/// The map of sockets holds two of the programs and gives them to each socket that joins. It has one place for each
/// kind: what was there before goes in the same stroke.
fn give_to_map(skeleton: &skeleton::SpliceSkel<'_>) -> libbpf_rs::Result<()> {
    let sockets = skeleton.maps.splice_sockets.as_fd();
    attach_to_map(&skeleton.progs.splice_message, sockets, MESSAGE)?;
    attach_to_map(&skeleton.progs.splice_from_wire, sockets, FROM_WIRE)
}

fn attach_to_map(
    program: impl AsFd,
    map: impl AsFd,
    kind: libbpf_sys::bpf_attach_type,
) -> libbpf_rs::Result<()> {
    let (program, map) = (program.as_fd().as_raw_fd(), map.as_fd().as_raw_fd());
    // SAFETY: both descriptors are open for the length of the call, which has no pointers.
    let result = unsafe { libbpf_sys::bpf_prog_attach(program, map, kind, 0) };
    if result < 0 { Err(libbpf_rs::Error::from_raw_os_error(-result)) } else { Ok(()) }
}

/// Whether anything of it is in the folder.
pub fn is_loaded(folder: &Path) -> bool {
    ours(folder).is_ok_and(|pins| !pins.is_empty())
}

/// Takes it away: no socket joins any more, and those that have are TCP's again. What lies unread in a socket's queue
/// at that moment is lost. A folder in which nothing else is goes with it.
///
/// # Errors
/// A pin cannot be removed.
pub fn remove(folder: &Path) -> Result<()> {
    for pin in ours(folder)? {
        fs::remove_file(&pin).map_err(|error| failed("remove", &pin, error))?;
    }
    if pins::is_empty(folder) {
        pins::remove(folder)?;
    }
    Ok(())
}

fn ours(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| failed("list", folder, error))?,
    };
    let mut pins = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| failed("list", folder, error))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // A replacement that was killed leaves a pin that has not taken its place.
        if name.strip_prefix(NEW).unwrap_or(&name).starts_with(PREFIX) {
            pins.push(entry.path());
        }
    }
    // The link that brings sockets in goes before the maps that hold them.
    pins.sort_by_key(|pin| !pin.ends_with(LINK));
    Ok(pins)
}

/// Attaches it to a cgroup by a pinned bpf link: from now on the sockets that tasks in it open are looked at.
///
/// # Errors
/// Nothing is loaded, or it is attached already.
pub fn attach(folder: &Path, cgroup: &Path) -> Result<()> {
    crate::attach(&folder.join(ENDS), Hook::SockOps, cgroup, &folder.join(LINK)).map(drop)
}

/// Whether it is attached to a cgroup.
pub fn is_attached(folder: &Path) -> bool {
    folder.join(LINK).exists()
}

/// Whether sockets that tasks in a cgroup open are looked at. The kernel is asked: a pin remains when the bpf link
/// behind it was detached.
///
/// # Errors
/// There is no such cgroup, or this user may not ask. That nothing is loaded is no error.
pub fn is_met(folder: &Path, cgroup: &Path) -> Result<bool> {
    Ok(crate::met(&folder.join(ENDS), Hook::SockOps, cgroup)?.is_some())
}

/// Detaches it: sockets that have joined stay.
///
/// # Errors
/// It is not attached.
pub fn detach(folder: &Path) -> Result<()> {
    unpin(&folder.join(LINK)).map(drop)
}

/// Lets the sockets of a pod join: those with one of its addresses in the network namespace of this cookie.
///
/// # Errors
/// One of the addresses is a pod's already; nothing is loaded. What was written until then is taken back.
pub fn add_member(folder: &Path, cookie: u64, addresses: &[IpAddr]) -> Result<()> {
    with_members(folder, "add a pod to", |map| {
        for (at, address) in addresses.iter().enumerate() {
            let value = cookie.to_ne_bytes();
            if let Err(error) = map.update(&bytes_of(*address), &value, MapFlags::NO_EXIST) {
                for written in &addresses[..at] {
                    map.delete(&bytes_of(*written))?;
                }
                return Err(error);
            }
        }
        Ok(())
    })
}

/// Whether any of the addresses is a pod's: `Some(true)`, all are this pod's.
pub fn has_member(folder: &Path, cookie: u64, addresses: &[IpAddr]) -> Result<Option<bool>> {
    with_members(folder, "look for a pod in", |map| {
        let mut found = Vec::new();
        for address in addresses {
            let value = map.lookup(&bytes_of(*address), MapFlags::ANY)?;
            found.push(value.map(|value| value == cookie.to_ne_bytes()));
        }
        Ok(found.iter().any(Option::is_some).then(|| found.iter().all(|same| *same == Some(true))))
    })
}

/// Lets no more sockets of the pod join. Takes away those entries that are as [`add_member`] writes them.
pub fn remove_member(folder: &Path, cookie: u64, addresses: &[IpAddr]) -> Result<()> {
    with_members(folder, "remove a pod from", |map| {
        for address in addresses {
            let key = bytes_of(*address);
            if map.lookup(&key, MapFlags::ANY)?.is_some_and(|value| value == cookie.to_ne_bytes()) {
                map.delete(&key)?;
            }
        }
        Ok(())
    })
}

/// The counters of a node, summed over its CPUs, since the programs were loaded.
///
/// # Errors
/// Nothing is loaded in this folder, or this user may not read it.
pub fn counters(folder: &Path) -> Result<Vec<(SpliceCounter, u64)>> {
    ffi::listen();
    let counts = ffi::counts(&folder.join(COUNTERS), SpliceCounter::ALL.len() as u32).map_err(|error| {
        ffi::failed(format!("read the splice's counters of {}", folder.display()), &error)
    })?;
    Ok(SpliceCounter::ALL.iter().copied().zip(counts).collect())
}

/// Connections of which at least one end has joined.
///
/// # Errors
/// Nothing is loaded in this folder, or this user may not read it.
pub fn connections(folder: &Path) -> Result<usize> {
    ffi::listen();
    MapHandle::from_pinned_path(folder.join(STREAMS)).map(|map| map.keys().count()).map_err(|error| {
        ffi::failed(format!("count the spliced connections of {}", folder.display()), &error)
    })
}

fn with_members<T>(
    folder: &Path,
    attempted: &str,
    work: impl FnOnce(&MapHandle) -> libbpf_rs::Result<T>,
) -> Result<T> {
    ffi::listen();
    let path = folder.join(MEMBERS);
    MapHandle::from_pinned_path(&path)
        .and_then(|map| work(&map))
        .map_err(|error| ffi::failed(format!("{attempted} {}", path.display()), &error))
}

/// As `struct address` lies in memory.
fn bytes_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn failed(what: &str, path: &Path, error: io::Error) -> Error {
    Error::new(format!("{what} {}", path.display()), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_order() {
        for (at, counter) in SpliceCounter::ALL.iter().enumerate() {
            assert_eq!(*counter as usize, at);
        }
    }

    #[test]
    fn an_address_lies_in_memory_as_the_programs_read_it() {
        let v4 = bytes_of("10.244.1.2".parse().unwrap());
        assert_eq!(v4, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 244, 1, 2]);
    }
}
