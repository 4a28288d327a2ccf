//! Programs at their hooks, by bpf links that are pinned or held. A network link has hooks for them where the kernel
//! has tcx (6.6) or netkit (6.7); else a program is in a filter of a clsact qdisc, which holds the program itself. XDP
//! has bpf links since Linux 5.9. A control group has hooks since Linux 4.10, and bpf links since 5.7.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use linux::Result;
use linux::netlink::FilterInfo;
use serde::{Deserialize, Serialize};

use crate::{Hook, HookTarget, ffi, pins};

/// How a program hangs on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attached {
    /// By a bpf link that is pinned, so that it outlives the process.
    Link,
    /// By a filter of the clsact qdisc.
    Filter,
}

/// The place of our filter among others'.
const HANDLE: u32 = 1;
const PRIORITY: u32 = 1;
/// The hooks at which a link has a list of programs, as we call them and as the kernel does.
const HOOKS: [(&str, libbpf_sys::bpf_attach_type); 4] = [
    ("tcx ingress", libbpf_sys::BPF_TCX_INGRESS),
    ("tcx egress", libbpf_sys::BPF_TCX_EGRESS),
    ("netkit primary", libbpf_sys::BPF_NETKIT_PRIMARY),
    ("netkit peer", libbpf_sys::BPF_NETKIT_PEER),
];
/// What a kernel without `clsact` or without filters that are programs says.
const NO_FILTERS: rustix::io::Errno = rustix::io::Errno::NOENT;
/// What a kernel without tcx says to a bpf link at tc.
const NO_TCX: rustix::io::Errno = rustix::io::Errno::INVAL;

/// Attaches a pinned program to a hook; `pin` is where the bpf link is kept, if it becomes one.
///
/// # Errors
/// Nothing is pinned there, the program is of another kind, there is no such target, or there is a filter in our place
/// already.
pub fn attach<'t>(program: &Path, hook: Hook, at: impl Into<HookTarget<'t>>, pin: &Path) -> Result<Attached> {
    // Else programs that are replaced meanwhile would not be replaced here.
    let _alone = program.parent().map(pins::alone).transpose()?;
    ffi::listen();
    let (program, at) = (ffi::open(program)?, at.into());
    let link = match link_to(&program, hook, at) {
        Err(error) if hook == Hook::Ingress && error.errno() == Some(NO_TCX.raw_os_error()) => {
            return match at {
                HookTarget::Link(ifindex) => {
                    add_filter(&program, ifindex.cast_signed()).map(|()| Attached::Filter)
                }
                HookTarget::Cgroup(_) => Err(error),
            };
        }
        link => link?,
    };
    ffi::pin(&link, pin)?;
    Ok(Attached::Link)
}

/// Attaches a program that has no pin until what is returned is dropped, or the process dies of whatever.
///
/// # Errors
/// The program is of another kind, there is no such target, or the target or this kernel has no such hook; with XDP
/// there is another program, or a program in the other mode.
pub(crate) fn hold<'t>(program: impl AsFd, hook: Hook, at: impl Into<HookTarget<'t>>) -> Result<Unpinned> {
    ffi::listen();
    link_to(program, hook, at.into()).map(Unpinned)
}

/// Makes the bpf link between a program and a hook.
fn link_to(program: impl AsFd, hook: Hook, at: HookTarget<'_>) -> Result<OwnedFd> {
    let program = program.as_fd();
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as u64,
        flags: hook.flags(),
        ..Default::default()
    };
    let link = at.with_number(|target| {
        // SAFETY: the descriptors are open, and the options contain their length and outlive the call.
        Ok(unsafe {
            libbpf_sys::bpf_link_create(program.as_raw_fd(), target, hook.kind(), &raw const options)
        })
    })?;
    let link = ffi::check(link, || format!("attach a program to {at}"))?;
    // SAFETY: the descriptor was just made and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// Attaches a pinned program as [`attach`] does on a kernel without tcx. Kernels with tcx have filters too.
///
/// # Errors
/// Nothing is pinned there, or there is a filter in our place already.
pub fn attach_filter(program: &Path, ifindex: u32) -> Result<()> {
    let _alone = program.parent().map(pins::alone).transpose()?;
    ffi::listen();
    add_filter(&ffi::open(program)?, ifindex.cast_signed())
}

/// Attaches a pinned program to a link's ingress so that packets meet it at once: in a filter, where the kernel has
/// them, though it may have tcx. A program comes to tcx only after a grace period of RCU (`tcx_entry_sync`, 8 to 12 ms
/// with `CONFIG_HZ=250`), and until then the kernel's lock on all links (RTNL) is held. The filter takes the link's one
/// ingress qdisc.
///
/// # Errors
/// As for [`attach`].
pub fn attach_at_once(program: &Path, ifindex: u32, pin: &Path) -> Result<Attached> {
    match attach_filter(program, ifindex) {
        Err(error) if error.errno() == Some(NO_FILTERS.raw_os_error()) => {
            attach(program, Hook::Ingress, ifindex, pin)
        }
        result => result.map(|()| Attached::Filter),
    }
}

/// How a pinned program hangs on a link of the calling thread's namespace, if it does.
pub fn attached(program: &Path, ifindex: u32, pin: &Path) -> Result<Option<Attached>> {
    if pin.exists() {
        return Ok(Some(Attached::Link));
    }
    ffi::listen();
    let Some(id) = in_filter(ifindex) else { return Ok(None) };
    // A filter outlives the mount of its program, and then has its name to be known by.
    let is_ours = if program.exists() {
        ffi::is_generation_of(&ffi::open(program)?, id)?
    } else {
        let name = ffi::name_of(id)?;
        program.file_name().zip(name).is_some_and(|(file, name)| file == name.as_str())
    };
    Ok(is_ours.then_some(Attached::Filter))
}

/// Whether what passes a hook meets a pinned program there, and how many others by bpf links. The kernel is asked: a
/// pin remains when the bpf link behind it was detached.
///
/// # Errors
/// This user may not ask, or there is no such target. That nothing is pinned is no error.
pub fn met<'t>(program: &Path, hook: Hook, at: impl Into<HookTarget<'t>>) -> Result<Option<usize>> {
    if !program.exists() {
        return Ok(None);
    }
    ffi::listen();
    let (program, at) = (ffi::open(program)?, at.into());
    let ids = ids_at(at, hook)?;
    for id in &ids {
        if ffi::is_generation_of(&program, *id)? {
            return Ok(Some(ids.len() - 1));
        }
    }
    let HookTarget::Link(ifindex) = at else { return Ok(None) };
    match in_filter(ifindex).filter(|_| hook == Hook::Ingress) {
        Some(id) => Ok(ffi::is_generation_of(&program, id)?.then_some(0)),
        None => Ok(None),
    }
}

/// The names of the programs that are met at a hook.
///
/// # Errors
/// There is no such target, or this user may not ask.
pub(crate) fn names_at<'t>(hook: Hook, at: impl Into<HookTarget<'t>>) -> Result<Vec<String>> {
    ffi::listen();
    let ids = ids_at(at.into(), hook)?;
    let names: Result<Vec<Option<String>>> = ids.into_iter().map(ffi::name_of).collect();
    Ok(names?.into_iter().flatten().collect())
}

/// The number of the program in the filter in our place, if there is one.
fn in_filter(ifindex: u32) -> Option<u32> {
    let (place, mut filter) = (clsact(ifindex.cast_signed()), filter());
    // SAFETY: both structures contain their length and outlive the call. An error says that there is no such filter.
    let found = unsafe { libbpf_sys::bpf_tc_query(&raw const place, &raw mut filter) };
    (found == 0).then_some(filter.prog_id)
}

/// Puts one of these programs into the filter of a link, in the place of an earlier one of the same function and maps,
/// in one stroke: a packet meets the one or the other (`cls_bpf_change` swaps the two in its list). False: there is
/// none.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn replace_filter<'p>(
    ifindex: u32,
    programs: impl IntoIterator<Item = &'p OwnedFd>,
) -> Result<bool> {
    ffi::listen();
    let Some(id) = in_filter(ifindex) else { return Ok(false) };
    for program in programs {
        if ffi::is_generation_of(program, id)? {
            put_filter(program, ifindex.cast_signed(), libbpf_sys::BPF_TC_F_REPLACE)?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// A bpf link that has no pin, or none any more. It ends when this is dropped or its process ends, and until then
/// packets meet its program.
#[derive(Debug)]
pub struct Unpinned(OwnedFd);

/// Takes away the pin of a bpf link.
pub(crate) fn unpin(pin: &Path) -> Result<Unpinned> {
    ffi::unpin(pin).map(Unpinned)
}

impl Drop for Unpinned {
    fn drop(&mut self) {
        // Where this fails, the link ends with the descriptor.
        let _ = ffi::end_link(&self.0);
    }
}

/// Takes a program off a link. `with_qdisc`: the clsact qdisc was made for it and holds nothing else, and they go in
/// one stroke.
///
/// A bpf link ends when what is returned is dropped. That waits until no CPU runs the program any more (a grace period
/// of RCU, 8 to 12 ms with `CONFIG_HZ=250`), unless the network link has been deleted before: it takes the program with
/// it.
///
/// # Errors
/// There is no such pin, filter or qdisc, or the kernel refuses.
pub fn detach(how: Attached, ifindex: u32, pin: &Path, with_qdisc: bool) -> Result<Option<Unpinned>> {
    match how {
        Attached::Link => return unpin(pin).map(Some),
        Attached::Filter if with_qdisc => remove_qdisc(ifindex)?,
        Attached::Filter => {
            ffi::listen();
            let (hook, filter) = (clsact(ifindex.cast_signed()), filter());
            // SAFETY: both structures contain their length and outlive the call.
            let result = unsafe { libbpf_sys::bpf_tc_detach(&raw const hook, &raw const filter) };
            ffi::check(result, || format!("remove the filter of link {ifindex}"))?;
        }
    }
    Ok(None)
}

/// Whether a filter stands where [`attach_filter`] puts ours.
pub fn is_our_place(filter: FilterInfo) -> bool {
    let FilterInfo { ingress, priority, handle } = filter;
    ingress && u32::from(priority) == PRIORITY && [0, HANDLE].contains(&handle)
}

/// The programs that hang on a link of the calling thread's namespace by tcx or netkit, ours and others': hook and
/// name of each, in the order in which packets meet them. None on a kernel that has neither.
///
/// # Errors
/// This user may not ask, or there is no such link.
pub fn programs_at(ifindex: u32) -> Result<Vec<(&'static str, String)>> {
    let mut programs = Vec::new();
    for (hook, kind) in HOOKS {
        for id in at_hook(ifindex.into(), kind)? {
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
        let ids = at_hook(ifindex.into(), kind)?;
        programs.extend(ids.into_iter().map(|id| (hook, id)));
    }
    Ok(programs)
}

fn ids_at(at: HookTarget<'_>, hook: Hook) -> Result<Vec<u32>> {
    match (hook, at) {
        // The kernel has no list of them: a link names its one program of each mode.
        (Hook::Xdp(mode), HookTarget::Link(ifindex)) => {
            Ok(ffi::xdp_program(ifindex, mode)?.into_iter().collect())
        }
        _ => at_hook(at, hook.kind()),
    }
}

fn at_hook(at: HookTarget<'_>, kind: libbpf_sys::bpf_attach_type) -> Result<Vec<u32>> {
    at.with_number(|target| ffi::query(target, kind, || format!("ask for the programs of {at}")))
}

/// Removes the clsact qdisc of a link.
pub fn remove_qdisc(ifindex: u32) -> Result<()> {
    ffi::listen();
    let mut hook = clsact(ifindex.cast_signed());
    // Both directions: that is the qdisc itself.
    hook.attach_point = libbpf_sys::BPF_TC_INGRESS | libbpf_sys::BPF_TC_EGRESS;
    // SAFETY: the structure contains its length and outlives the call.
    let result = unsafe { libbpf_sys::bpf_tc_hook_destroy(&raw mut hook) };
    ffi::check(result, || format!("remove the clsact qdisc of link {ifindex}")).map(drop)
}

fn add_filter(program: &OwnedFd, ifindex: i32) -> Result<()> {
    let mut hook = clsact(ifindex);
    // SAFETY: the structure contains its length and outlives the call.
    let made = unsafe { libbpf_sys::bpf_tc_hook_create(&raw mut hook) };
    let is_there = made == -rustix::io::Errno::EXIST.raw_os_error();
    if !is_there {
        ffi::check(made, || format!("make a clsact qdisc on link {ifindex}"))?;
    }
    put_filter(program, ifindex, 0)
        .map_err(|error| if is_there { error } else { error.and_left(remove_qdisc(ifindex.cast_unsigned())) })
}

fn put_filter(program: &OwnedFd, ifindex: i32, flags: u32) -> Result<()> {
    let hook = clsact(ifindex);
    let mut filter = libbpf_sys::bpf_tc_opts { prog_fd: program.as_raw_fd(), flags, ..filter() };
    // SAFETY: both structures contain their length and outlive the call; the descriptor is open.
    let result = unsafe { libbpf_sys::bpf_tc_attach(&raw const hook, &raw mut filter) };
    ffi::check(result, || format!("put a filter into the clsact qdisc of link {ifindex}")).map(drop)
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
