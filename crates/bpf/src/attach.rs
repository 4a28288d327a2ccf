//! Programs at links: by a pinned bpf link where the kernel has tcx (6.6) or netkit (6.7), else by a filter of a clsact
//! qdisc, which holds its program itself.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr;

use linux::Result;
use linux::netlink::FilterInfo;
use serde::{Deserialize, Serialize};

use crate::ffi;

/// Where a packet is when it meets a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hook {
    /// It arrives at a link.
    Ingress,
    /// It is being sent at the other end of a netkit pair.
    NetkitPeer,
}

/// How a program hangs on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attached {
    /// By a pinned link.
    Link,
    /// By a filter of the clsact qdisc.
    Filter,
}

impl Hook {
    fn kind(self) -> libbpf_sys::bpf_attach_type {
        match self {
            Hook::Ingress => libbpf_sys::BPF_TCX_INGRESS,
            Hook::NetkitPeer => libbpf_sys::BPF_NETKIT_PEER,
        }
    }
}

/// The place of our filter among others'.
const HANDLE: u32 = 1;
const PRIORITY: u32 = 1;
/// Where a link can have programs in a list.
const HOOKS: [(&str, libbpf_sys::bpf_attach_type); 4] = [
    ("tcx ingress", libbpf_sys::BPF_TCX_INGRESS),
    ("tcx egress", libbpf_sys::BPF_TCX_EGRESS),
    ("netkit primary", libbpf_sys::BPF_NETKIT_PRIMARY),
    ("netkit peer", libbpf_sys::BPF_NETKIT_PEER),
];
/// What a kernel without tcx says to a bpf link at tc.
const NO_TCX: rustix::io::Errno = rustix::io::Errno::INVAL;

/// Attaches a pinned program to a link of the calling thread's namespace; `pin` is where the bpf link is kept, if it
/// becomes one.
///
/// # Errors
/// Nothing is pinned there, the program is of another kind, or there is a filter in our place already.
pub fn attach(program: &Path, hook: Hook, ifindex: u32, pin: &Path) -> Result<Attached> {
    ffi::listen();
    let program = ffi::open(program)?;
    let target = i32::try_from(ifindex).expect("the kernel counts links by int");
    // SAFETY: the descriptor is open; no options are given.
    let link = unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), target, hook.kind(), ptr::null()) };
    if link == -NO_TCX.raw_os_error() && hook == Hook::Ingress {
        return add_filter(&program, target).map(|()| Attached::Filter);
    }
    let link = ffi::check(link, || format!("attach a program to link {ifindex}"))?;
    // SAFETY: the descriptor was just made and nobody else knows it.
    let link = unsafe { OwnedFd::from_raw_fd(link) };
    ffi::pin(&link, pin)?;
    Ok(Attached::Link)
}

/// Attaches a pinned program as [`attach`] does on a kernel without tcx. Kernels with tcx have filters too.
///
/// # Errors
/// Nothing is pinned there, or there is a filter in our place already.
pub fn attach_filter(program: &Path, ifindex: u32) -> Result<()> {
    ffi::listen();
    add_filter(&ffi::open(program)?, ifindex.cast_signed())
}

/// How a pinned program hangs on a link of the calling thread's namespace, if it does.
pub fn attached(program: &Path, ifindex: u32, pin: &Path) -> Result<Option<Attached>> {
    if pin.exists() {
        return Ok(Some(Attached::Link));
    }
    let (hook, mut filter) = (clsact(ifindex.cast_signed()), filter());
    ffi::listen();
    // SAFETY: both structures tell their length and outlive the call. An error says that there is no such filter.
    let found = unsafe { libbpf_sys::bpf_tc_query(&raw const hook, &raw mut filter) };
    if found != 0 {
        return Ok(None);
    }
    // A filter outlives the mount of its program, and then has its name to be known by.
    let is_ours = if program.exists() {
        ffi::program_info(ffi::open(program)?)?.id == filter.prog_id
    } else {
        let name = ffi::name_of(filter.prog_id)?;
        program.file_name().zip(name).is_some_and(|(file, name)| file == name.as_str())
    };
    Ok(is_ours.then_some(Attached::Filter))
}

/// Whether the packets of a link of the calling thread's namespace meet a pinned program at a hook, and how many others
/// they meet there by tcx or netkit. The kernel is asked: a pin remains when the bpf link behind it was detached.
///
/// # Errors
/// This user may not ask, or there is no such network link. That nothing is pinned is no error.
pub fn met(program: &Path, hook: Hook, ifindex: u32) -> Result<Option<usize>> {
    if !program.exists() {
        return Ok(None);
    }
    ffi::listen();
    let id = ffi::program_info(ffi::open(program)?)?.id;
    let ids = at_hook(ifindex, hook.kind())?;
    if ids.contains(&id) {
        return Ok(Some(ids.len() - 1));
    }
    let (place, mut filter) = (clsact(ifindex.cast_signed()), filter());
    // SAFETY: both structures tell their length and outlive the call. An error says that there is no such filter.
    let found = unsafe { libbpf_sys::bpf_tc_query(&raw const place, &raw mut filter) };
    Ok((found == 0 && filter.prog_id == id && hook == Hook::Ingress).then_some(0))
}

/// Takes a program off a link. `with_qdisc`: the clsact qdisc was made for it and holds nothing else, and they go in one
/// stroke.
pub fn detach(how: Attached, ifindex: u32, pin: &Path, with_qdisc: bool) -> Result<()> {
    match how {
        Attached::Link => ffi::end_link(pin),
        Attached::Filter if with_qdisc => remove_qdisc(ifindex),
        Attached::Filter => {
            ffi::listen();
            let (hook, filter) = (clsact(ifindex.cast_signed()), filter());
            // SAFETY: both structures tell their length and outlive the call.
            let result = unsafe { libbpf_sys::bpf_tc_detach(&raw const hook, &raw const filter) };
            ffi::check(result, || format!("remove the filter of link {ifindex}")).map(drop)
        }
    }
}

/// Whether a filter stands where [`attach_filter`] puts ours.
pub fn is_our_place(filter: FilterInfo) -> bool {
    let FilterInfo { ingress, priority, handle } = filter;
    ingress && u32::from(priority) == PRIORITY && [0, HANDLE].contains(&handle)
}

/// The programs that hang on a link of the calling thread's namespace by tcx or netkit, whoever attached them: hook and
/// name of each, in the order in which packets meet them. None on a kernel that has neither.
///
/// # Errors
/// This user may not ask, or there is no such link.
pub fn programs_at(ifindex: u32) -> Result<Vec<(&'static str, String)>> {
    let mut programs = Vec::new();
    for (hook, kind) in HOOKS {
        for id in at_hook(ifindex, kind)? {
            // One that has gone since is at no link.
            programs.extend(ffi::name_of(id)?.map(|name| (hook, name)));
        }
    }
    Ok(programs)
}

/// The numbers of the same programs, which no later program gets: hook and number of each, in the same order.
///
/// # Errors
/// As for [`programs_at`].
pub fn program_ids_at(ifindex: u32) -> Result<Vec<(&'static str, u32)>> {
    let mut programs = Vec::new();
    for (hook, kind) in HOOKS {
        let ids = at_hook(ifindex, kind)?;
        programs.extend(ids.into_iter().map(|id| (hook, id)));
    }
    Ok(programs)
}

fn at_hook(ifindex: u32, kind: libbpf_sys::bpf_attach_type) -> Result<Vec<u32>> {
    ffi::query(ifindex.cast_signed(), kind, || format!("ask for the programs of link {ifindex}"))
}

/// Removes the clsact qdisc of a link.
pub fn remove_qdisc(ifindex: u32) -> Result<()> {
    ffi::listen();
    let mut hook = clsact(ifindex.cast_signed());
    // Both directions: that is the qdisc itself.
    hook.attach_point = libbpf_sys::BPF_TC_INGRESS | libbpf_sys::BPF_TC_EGRESS;
    // SAFETY: the structure tells its length and outlives the call.
    let result = unsafe { libbpf_sys::bpf_tc_hook_destroy(&raw mut hook) };
    ffi::check(result, || format!("remove the clsact qdisc of link {ifindex}")).map(drop)
}

fn add_filter(program: &OwnedFd, ifindex: i32) -> Result<()> {
    let mut hook = clsact(ifindex);
    // SAFETY: the structure tells its length and outlives the call.
    let made = unsafe { libbpf_sys::bpf_tc_hook_create(&raw mut hook) };
    if made != -rustix::io::Errno::EXIST.raw_os_error() {
        ffi::check(made, || format!("make a clsact qdisc on link {ifindex}"))?;
    }
    let mut filter = libbpf_sys::bpf_tc_opts { prog_fd: program.as_raw_fd(), ..filter() };
    // SAFETY: both structures tell their length and outlive the call; the descriptor is open.
    let result = unsafe { libbpf_sys::bpf_tc_attach(&raw const hook, &raw mut filter) };
    ffi::check(result, || format!("add a filter to the clsact qdisc of link {ifindex}")).map(drop)
}

fn clsact(ifindex: i32) -> libbpf_sys::bpf_tc_hook {
    libbpf_sys::bpf_tc_hook {
        sz: size_of::<libbpf_sys::bpf_tc_hook>() as u64,
        ifindex,
        attach_point: libbpf_sys::BPF_TC_INGRESS,
        ..Default::default()
    }
}

fn filter() -> libbpf_sys::bpf_tc_opts {
    libbpf_sys::bpf_tc_opts {
        sz: size_of::<libbpf_sys::bpf_tc_opts>() as u64,
        handle: HANDLE,
        priority: PRIORITY,
        ..Default::default()
    }
}
