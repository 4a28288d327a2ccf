//! The calls of libbpf that libbpf-rs has no face for, and its messages.

use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::Once;

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, PrintLevel};
use linux::{Error, Result};
use rustix::io::Errno;

use crate::XdpMode;

thread_local! {
    /// What libbpf said last, so that an error can repeat it: the verifier's complaint is worth more than an error
    /// number. It prints on the thread that called it, and what it prints for another call is of no use here.
    static WARNINGS: RefCell<String> = const { RefCell::new(String::new()) };
}
/// Bytes of it that are kept.
const WARNINGS_BYTES_MAX: usize = 4096;
/// Entries that are read with one call, unless a bucket has more.
const BATCH: usize = 4096;

/// Collects libbpf's warnings instead of having them on stderr.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Warn, |_, message| {
            WARNINGS.with_borrow_mut(|warnings| keep(warnings, &message));
        })));
    });
    WARNINGS.with_borrow_mut(String::clear);
}

/// Adds a warning; of more than [`WARNINGS_BYTES_MAX`] the end is kept.
fn keep(warnings: &mut String, message: &str) {
    warnings.push_str(message);
    let excess = warnings.len().saturating_sub(WARNINGS_BYTES_MAX);
    let cut = (excess..warnings.len()).find(|at| warnings.is_char_boundary(*at)).unwrap_or(0);
    warnings.drain(..cut);
}

/// An error of libbpf with its own words.
pub(crate) fn failed(attempted: String, error: &libbpf_rs::Error) -> Error {
    let warnings = WARNINGS.with_borrow(String::clone);
    let lines =
        warnings.lines().map(|line| line.trim_start_matches("libbpf: ")).collect::<Vec<_>>().join("; ");
    let text = if lines.is_empty() { format!("{error:#}") } else { format!("{error:#} ({lines})") };
    // Only the text is carried on: a chain of causes would say the same again.
    let kind = match error.kind() {
        libbpf_rs::ErrorKind::NotFound => io::ErrorKind::NotFound,
        libbpf_rs::ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
        libbpf_rs::ErrorKind::AlreadyExists => io::ErrorKind::AlreadyExists,
        _ => io::ErrorKind::Other,
    };
    Error::new(attempted, io::Error::new(kind, text))
}

/// A negative error number of libbpf's as an error.
pub(crate) fn check(result: i32, attempted: impl FnOnce() -> String) -> Result<i32> {
    if result >= 0 { Ok(result) } else { Err(Error::new(attempted(), io::Error::from_raw_os_error(-result))) }
}

pub(crate) fn c_string(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::new(format!("use {} as a path", path.display()), io::ErrorKind::InvalidInput))
}

/// Opens a pinned program, map or link.
pub(crate) fn open(path: &Path) -> Result<OwnedFd> {
    let name = c_string(path)?;
    // SAFETY: the string ends with a zero and outlives the call.
    let fd = unsafe { libbpf_sys::bpf_obj_get(name.as_ptr()) };
    let fd = check(fd, || format!("open {}", path.display()))?;
    // SAFETY: the descriptor was just made and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Pins what a descriptor stands for.
pub(crate) fn pin(fd: &OwnedFd, path: &Path) -> Result<()> {
    let name = c_string(path)?;
    // SAFETY: the string ends with a zero, and the descriptor is open.
    let result = unsafe { libbpf_sys::bpf_obj_pin(fd.as_raw_fd(), name.as_ptr()) };
    check(result, || format!("pin {}", path.display())).map(drop)
}

/// Takes away the pin of a bpf link, which stays as long as the descriptor that this opens.
pub(crate) fn unpin(pin: &Path) -> Result<OwnedFd> {
    let link = open(pin)?;
    std::fs::remove_file(pin).map_err(|error| Error::new(format!("remove {}", pin.display()), error))?;
    Ok(link)
}

/// Ends a bpf link, whoever else holds it. With its last holder it would end too, but on some kernels some time after
/// (`bpf_link_put` leaves it to a worker), and when the program sees its last packet would be unknown.
pub(crate) fn end_link(link: &OwnedFd) -> Result<()> {
    // SAFETY: the descriptor is open.
    let result = unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) };
    // OPNOTSUPP and INVAL: this kernel cannot do it (5.9); the link ends with its last holder.
    if ![Errno::OPNOTSUPP, Errno::INVAL].map(|errno| -errno.raw_os_error()).contains(&result) {
        check(result, || "end a bpf link".to_owned())?;
    }
    Ok(())
}

/// What the kernel reports about a program.
pub(crate) fn program_info(program: impl AsFd) -> Result<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut bytes = u32::try_from(size_of_val(&info)).expect("a structure of a few hundred bytes");
    let fd = program.as_fd().as_raw_fd();
    // SAFETY: the structure is as long as is said, all zero, and outlives the call.
    let result = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(fd, &raw mut info, &raw mut bytes) };
    check(result, || "ask about a program".to_owned())?;
    Ok(info)
}

/// The number of the program of a bpf link.
pub(crate) fn program_of_link(link: &OwnedFd) -> Result<u32> {
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut bytes = u32::try_from(size_of_val(&info)).expect("a structure of a few hundred bytes");
    // SAFETY: the structure is as long as is said, all zero, and outlives the call.
    let result =
        unsafe { libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut bytes) };
    check(result, || "ask about a bpf link".to_owned())?;
    Ok(info.prog_id)
}

/// Attaches a program to a raw tracepoint until the descriptor is closed; without a name to the one that it was loaded
/// for. `None` if this kernel does not have the tracepoint, or one with fewer arguments.
pub(crate) fn attach_raw(tracepoint: Option<&CStr>, program: &OwnedFd) -> Result<Option<OwnedFd>> {
    let name = tracepoint.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: the name, if there is one, ends with a zero and outlives the call, and the descriptor is open.
    let link = unsafe { libbpf_sys::bpf_raw_tracepoint_open(name, program.as_raw_fd()) };
    if [Errno::NOENT, Errno::INVAL].iter().any(|errno| link == -errno.raw_os_error()) {
        return Ok(None);
    }
    let name = tracepoint.map_or("of the program".into(), CStr::to_string_lossy);
    let link = check(link, || format!("attach to the tracepoint {name}"))?;
    // SAFETY: the descriptor was just made and has no other owner.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(link) }))
}

/// Puts another program into a bpf link, in one stroke: a packet meets the one or the other. False: what it was
/// attached to is gone, and no packet meets it any more.
pub(crate) fn update_link(link: &OwnedFd, program: &OwnedFd, pin: &Path) -> Result<bool> {
    // SAFETY: both descriptors are open; no options are given.
    let result = unsafe { libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), ptr::null()) };
    if result == -Errno::NOLINK.raw_os_error() {
        return Ok(false);
    }
    check(result, || format!("put another program into {}", pin.display())).map(|_| true)
}

/// Maps of one program; more than any of ours has.
const MAPS_MAX: usize = 64;

/// The numbers of a program's maps.
pub(crate) fn maps_of(program: impl AsFd) -> Result<Vec<u32>> {
    let mut ids = [0_u32; MAPS_MAX];
    let mut info = libbpf_sys::bpf_prog_info {
        nr_map_ids: u32::try_from(ids.len()).expect("a few dozen"),
        map_ids: ids.as_mut_ptr() as u64,
        ..Default::default()
    };
    let mut bytes = u32::try_from(size_of_val(&info)).expect("a structure of a few hundred bytes");
    let fd = program.as_fd().as_raw_fd();
    // SAFETY: the structure is as long as is said and contains the array's length; both outlive the call.
    let result = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(fd, &raw mut info, &raw mut bytes) };
    check(result, || "ask for a program's maps".to_owned())?;
    Ok(ids[..(info.nr_map_ids as usize).min(MAPS_MAX)].to_vec())
}

/// Whether the program of a number is this one, or one of the same function and maps that was loaded at another time.
pub(crate) fn is_generation_of(program: &OwnedFd, id: u32) -> Result<bool> {
    let own = program_info(program)?;
    if own.id == id {
        return Ok(true);
    }
    let Some(other) = open_program(id)? else { return Ok(false) };
    if program_info(&other)?.name != own.name {
        return Ok(false);
    }
    let maps = maps_of(program)?;
    Ok(maps_of(&other)?.iter().any(|map| maps.contains(map)))
}

/// Programs of one kind at a link; more than anyone stacks there.
const PROGRAMS_MAX: usize = 64;

/// The programs at a hook of a target, by their numbers: of a link by its index, of a control group or a map by its
/// descriptor. A kernel or a link without that hook has none.
pub(crate) fn query(
    target: i32,
    hook: libbpf_sys::bpf_attach_type,
    attempted: impl FnOnce() -> String,
) -> Result<Vec<u32>> {
    let mut ids = [0_u32; PROGRAMS_MAX];
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as u64,
        prog_ids: ids.as_mut_ptr(),
        ..Default::default()
    };
    options.__bindgen_anon_1.count = u32::try_from(ids.len()).expect("a few dozen");
    // SAFETY: the structure contains its length, and the array's is in it; both outlive the call.
    let result = unsafe { libbpf_sys::bpf_prog_query_opts(target, hook, &raw mut options) };
    // INVAL: no such hook in this kernel; NXIO and ACCES: no netkit link, or its inner end.
    let without = [Errno::INVAL, Errno::NXIO, Errno::ACCESS].map(|errno| -errno.raw_os_error());
    if without.contains(&result) {
        return Ok(Vec::new());
    }
    check(result, attempted)?;
    // SAFETY: both members are the same number.
    let count = unsafe { options.__bindgen_anon_1.count };
    Ok(ids[..count as usize].to_vec())
}

/// The number of the XDP program that a link of the calling thread's namespace has in a mode.
pub(crate) fn xdp_program(ifindex: u32, mode: XdpMode) -> Result<Option<u32>> {
    let mut found = libbpf_sys::bpf_xdp_query_opts {
        // Up to there libbpf asks the kernel for the link alone.
        sz: offset_of!(libbpf_sys::bpf_xdp_query_opts, feature_flags) as u64,
        ..Default::default()
    };
    // SAFETY: the structure is longer than the length that it contains, and outlives the call.
    let result = unsafe { libbpf_sys::bpf_xdp_query(ifindex.cast_signed(), 0, &raw mut found) };
    check(result, || format!("ask for the XDP program of link {ifindex}"))?;
    let id = match mode {
        XdpMode::Native => found.drv_prog_id,
        XdpMode::Generic => found.skb_prog_id,
    };
    Ok((id != 0).then_some(id))
}

/// Opens a loaded program; `None` if there is none of this number any more.
pub(crate) fn open_program(id: u32) -> Result<Option<OwnedFd>> {
    // SAFETY: the call takes a number.
    let fd = unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) };
    if fd == -Errno::NOENT.raw_os_error() {
        return Ok(None);
    }
    let fd = check(fd, || format!("open program {id}"))?;
    // SAFETY: the descriptor was just made and has no other owner.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// The name of a loaded program, up to 15 bytes of it; `None` if there is none of this number any more.
pub(crate) fn name_of(id: u32) -> Result<Option<String>> {
    let Some(program) = open_program(id)? else { return Ok(None) };
    let name = program_info(&program)?.name;
    // A character of C has a sign on some machines.
    let bytes = name.iter().flat_map(|byte| byte.to_ne_bytes()).take_while(|byte| *byte != 0);
    Ok(Some(String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()))
}

/// The first counters of a pinned array that each CPU has for itself, summed over the CPUs.
pub(crate) fn counts(path: &Path, counters: u32) -> libbpf_rs::Result<Vec<u64>> {
    let map = MapHandle::from_pinned_path(path)?;
    let mut counts = Vec::new();
    for counter in 0..counters {
        let cpus = map.lookup_percpu(&counter.to_ne_bytes(), MapFlags::ANY)?;
        let each = cpus.into_iter().flatten();
        counts.push(each.map(|value| u64::from_ne_bytes(value.try_into().expect("eight bytes"))).sum());
    }
    Ok(counts)
}

/// All entries of a hash map, keys with values, many with a call.
///
/// The kernel ends a batch early where the next bucket has no room in it, and says by `ENOENT` that there is no more.
/// (The iterator of libbpf-rs 0.26 takes any batch that is not full for the last one.)
pub(crate) fn entries(map: &MapHandle) -> libbpf_rs::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let (key_bytes, value_bytes) = (map.key_size() as usize, map.value_size() as usize);
    let (mut room, mut found) = (BATCH, Vec::new());
    // Where the kernel goes on: the number of a bucket.
    let mut next: Option<u32> = None;
    loop {
        let (mut keys, mut values) = (vec![0_u8; room * key_bytes], vec![0_u8; room * value_bytes]);
        let (mut from, mut behind, mut count) = (next.unwrap_or(0), 0_u32, room as u32);
        let begin = if next.is_some() { ptr::from_mut(&mut from).cast() } else { ptr::null_mut() };
        // SAFETY: keys and values have room for `count` entries of the map's own sizes, the kernel's place in a hash
        // map has four bytes, and all outlive the call. No options are a null pointer.
        let result = unsafe {
            libbpf_sys::bpf_map_lookup_batch(
                map.as_fd().as_raw_fd(),
                begin,
                ptr::from_mut(&mut behind).cast(),
                keys.as_mut_ptr().cast(),
                values.as_mut_ptr().cast(),
                &raw mut count,
                ptr::null(),
            )
        };
        let is_last = match result {
            0 => false,
            _ if result == -Errno::NOENT.raw_os_error() => true,
            _ if result == -Errno::INTR.raw_os_error() => continue,
            // One bucket has more than that.
            _ if result == -Errno::NOSPC.raw_os_error() => {
                room *= 2;
                continue;
            }
            _ => return Err(io::Error::from_raw_os_error(-result).into()),
        };
        let pairs = keys.chunks_exact(key_bytes).zip(values.chunks_exact(value_bytes));
        found.extend(pairs.take(count as usize).map(|(key, value)| (key.to_vec(), value.to_vec())));
        if is_last {
            return Ok(found);
        }
        next = Some(behind);
    }
}
