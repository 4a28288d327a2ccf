//! Whether eBPF programs can be loaded and attached, tried with the smallest possible ones (bpf(2)).
//!
//! Structures and numbers are those of include/uapi/linux/bpf.h. Each object made here ends with its descriptor.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

/// Commands of bpf(2), from `enum bpf_cmd`.
const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
/// The kind of program that tc and netkit run.
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
/// Where a link attaches it: packets that come in, in a list of programs (Linux 6.6).
const BPF_TCX_INGRESS: u32 = 46;
/// The helper `bpf_redirect_peer` (Linux 5.10).
const REDIRECT_PEER: i32 = 155;
/// The kinds of programs that a control group's sockets meet, and that a message meets on its way into a socket.
const BPF_PROG_TYPE_SOCK_OPS: u32 = 13;
const BPF_PROG_TYPE_SK_MSG: u32 = 16;
/// The attach type of the latter, which the kernel requires at load time.
const BPF_SK_MSG_VERDICT: u32 = 7;
/// The kind of program that a control group's sockets meet with the addresses that they call, and its attach type for
/// connect(2), which the kernel requires at load time.
const BPF_PROG_TYPE_CGROUP_SOCK_ADDR: u32 = 18;
const BPF_CGROUP_INET4_CONNECT: u32 = 10;
/// The helper `bpf_set_retval` (for this kind of programs Linux 6.1).
const SET_RETVAL: i32 = 187;
/// A map of sockets by a key of any length.
const BPF_MAP_TYPE_SOCKHASH: u32 = 18;
/// The helper `bpf_get_netns_cookie` (for both kinds of programs Linux 5.15).
const GET_NETNS_COOKIE: i32 = 122;
/// The kernel's types (BTF), which programs use to locate fields at load time.
const TYPES: &str = "/sys/kernel/btf/vmlinux";
/// Enough for the verifier's log of four instructions.
const LOG_BYTES: usize = 4096;
/// That of the project's programs; some helpers are for programs under the GPL alone.
const LICENSE: &CStr = c"Dual MIT/GPL";

/// `struct bpf_insn`. The two registers are four bits each, and no instruction here has a source register.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    register: u8,
    offset: i16,
    immediate: i32,
}

/// The part of `union bpf_attr` for [`BPF_PROG_LOAD`] that kernels since 4.17 know.
#[repr(C)]
struct LoadProgram {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    device: u32,
    attach_type: u32,
}

/// The part of `union bpf_attr` for [`BPF_MAP_CREATE`] that all kernels know.
#[repr(C)]
struct CreateMap {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

/// The part of `union bpf_attr` for [`BPF_LINK_CREATE`] that all kinds of links have.
#[repr(C)]
struct CreateLink {
    program: u32,
    index: u32,
    attach_type: u32,
    flags: u32,
}

/// Tries what the data paths need: a tc program, a program that redirects packets to a veth's peer, and a filesystem
/// that keeps programs. Returns the reason if one of them does not work.
pub(super) fn try_programs() -> Result<(), String> {
    load(BPF_PROG_TYPE_SCHED_CLS, &[set(0, 0), exit()])?;
    let redirect = [set(1, 1), set(2, 0), call(REDIRECT_PEER), exit()];
    load(BPF_PROG_TYPE_SCHED_CLS, &redirect).map_err(|why| format!("bpf_redirect_peer: {why}"))?;
    mount().map_err(|error| format!("no filesystem of kind bpf: {}", words(error.into())))?;
    Ok(())
}

/// The first kernel with which splicing is trusted. With 6.1 streams under load were seen to deliver bytes that were
/// not those sent, for a reason that is not known.
const SOCKETS_SINCE: (u32, u32) = (6, 12);

/// Whether a release, as `uname -r` prints it, is older than a version. One that is not understood is not.
fn is_before(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
    matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < version)
}

/// Tries what splicing two sockets needs: a hierarchy of control groups, the kernel's own types, programs at a group's
/// sockets and at messages that can both read the network namespace, and maps of sockets. Returns the reason if one of
/// them is missing.
pub(super) fn try_sockets() -> Result<(), String> {
    let release = super::release();
    if is_before(&release, SOCKETS_SINCE) {
        let (major, minor) = SOCKETS_SINCE;
        return Err(format!(
            "Linux {release} is older than {major}.{minor}: with 6.1 a spliced stream was seen to arrive with wrong bytes under load"
        ));
    }
    crate::cgroup::hierarchy().map_err(|error| error.reason())?;
    if !std::path::Path::new(TYPES).exists() {
        return Err(format!("there is no {TYPES}: the kernel was built without CONFIG_DEBUG_INFO_BTF"));
    }
    let asks_for_cookie = [call(GET_NETNS_COOKIE), set(0, 1), exit()];
    load(BPF_PROG_TYPE_SOCK_OPS, &asks_for_cookie)
        .map_err(|why| format!("programs of kind sock_ops: {why}"))?;
    load(BPF_PROG_TYPE_SK_MSG, &asks_for_cookie).map_err(|why| format!("programs of kind sk_msg: {why}"))?;
    let map = CreateMap { kind: BPF_MAP_TYPE_SOCKHASH, key_bytes: 4, value_bytes: 4, entries: 1, flags: 0 };
    // SAFETY: `CreateMap` is what this command reads, and has no pointers.
    let map = unsafe { bpf(BPF_MAP_CREATE, &map) };
    map.map(drop).map_err(|error| format!("maps of sockets: {}", words(error)))
}

/// Tries what Services by socket calls need: a hierarchy of control groups, and a program at connect(2) that can refuse
/// a call as one to a closed port (`ECONNREFUSED`). Returns the reason if one of them is missing.
pub(super) fn try_services() -> Result<(), String> {
    crate::cgroup::hierarchy().map_err(|error| error.reason())?;
    let refuse = [set(1, -libc::ECONNREFUSED), call(SET_RETVAL), set(0, 0), exit()];
    load(BPF_PROG_TYPE_CGROUP_SOCK_ADDR, &refuse).map_err(|why| format!("programs at connect(2): {why}"))?;
    mount().map_err(|error| format!("no filesystem of kind bpf: {}", words(error.into())))?;
    Ok(())
}

/// Tries to attach a program as a link (tcx) to the device of that index in the calling thread's namespace.
pub(super) fn try_tcx(index: u32) -> Result<(), String> {
    let program = load(BPF_PROG_TYPE_SCHED_CLS, &[set(0, 0), exit()])?;
    let program = u32::try_from(program.as_raw_fd()).expect("descriptors are not negative");
    let attributes = CreateLink { program, index, attach_type: BPF_TCX_INGRESS, flags: 0 };
    // SAFETY: `CreateLink` is what this command reads, and has no pointers.
    unsafe { bpf(BPF_LINK_CREATE, &attributes) }.map(drop).map_err(words)
}

/// Loads a program; it lives as long as its descriptor. The error has the verifier's words, if it has any.
fn load(kind: u32, instructions: &[Instruction]) -> Result<OwnedFd, String> {
    let mut log = [0_u8; LOG_BYTES];
    let attributes = LoadProgram {
        kind,
        instruction_count: u32::try_from(instructions.len()).expect("a few"),
        instructions: instructions.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log_level: 1,
        log_bytes: u32::try_from(LOG_BYTES).expect("a few thousand"),
        log: log.as_mut_ptr() as u64,
        kernel_version: 0,
        flags: 0,
        name: [0; 16],
        device: 0,
        attach_type: match kind {
            BPF_PROG_TYPE_SK_MSG => BPF_SK_MSG_VERDICT,
            BPF_PROG_TYPE_CGROUP_SOCK_ADDR => BPF_CGROUP_INET4_CONNECT,
            _ => 0,
        },
    };
    // SAFETY: `LoadProgram` is what this command reads. Its pointers lead to the instructions, whose count it holds,
    // to a string that ends with a zero, and to a log buffer whose length it holds, which only the kernel writes to
    // during the call. All live until the call returns.
    let loaded = unsafe { bpf(BPF_PROG_LOAD, &attributes) };
    loaded.map_err(|error| {
        let log = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
        verdict(&log).map_or_else(|| words(error), str::to_owned)
    })
}

/// The verifier's reason: the last line of its log before its count of instructions.
fn verdict(log: &str) -> Option<&str> {
    log.lines().rfind(|line| !line.is_empty() && !line.starts_with("processed "))
}

/// bpf(2) with a command that answers with a new descriptor.
///
/// # Safety
/// `A` is the part of `union bpf_attr` that the command reads, without padding, and its pointers are valid for what the
/// command does with them.
unsafe fn bpf<A>(command: libc::c_int, attributes: &A) -> io::Result<OwnedFd> {
    // SAFETY: the attributes are readable for the given number of bytes; the caller is responsible for their contents.
    let answer = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<A>() as libc::c_uint)
    };
    let descriptor = i32::try_from(answer).ok().filter(|descriptor| *descriptor >= 0);
    let descriptor = descriptor.ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just made the descriptor, and no other code knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Makes a detached filesystem for programs, so that it leaves no trace (`fsopen`, Linux 5.2).
fn mount() -> rustix::io::Result<OwnedFd> {
    let filesystem = rustix::mount::fsopen("bpf", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&filesystem)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    rustix::mount::fsmount(&filesystem, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

fn words(error: io::Error) -> String {
    crate::Error::new("use bpf", error).reason()
}

/// The instruction `register = value`.
fn set(register: u8, value: i32) -> Instruction {
    Instruction { code: 0xb7, register, offset: 0, immediate: value }
}

/// The instruction that calls a helper by its number.
fn call(helper: i32) -> Instruction {
    Instruction { code: 0x85, register: 0, offset: 0, immediate: helper }
}

/// The instruction that ends the program; register 0 has its result.
fn exit() -> Instruction {
    Instruction { code: 0x95, register: 0, offset: 0, immediate: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_numbers() {
        for old in ["6.1.0-56-cloud-amd64", "5.15.0", "6.11.9", "6.1"] {
            assert!(is_before(old, (6, 12)), "{old}");
        }
        for new in ["6.12.95+deb12-amd64", "6.18.0", "7.0.1-rc2", "6.12-custom", "custom"] {
            assert!(!is_before(new, (6, 12)), "{new}");
        }
    }

    #[test]
    fn the_verifiers_reason_is_found() {
        let log = "0: R1=ctx() R10=fp0\n0: (b7) r1 = 1\n2: (85) call unknown#155\ninvalid func unknown#155\n\
                   processed 3 insns (limit 1000000) max_states_per_insn 0\n";
        assert_eq!(verdict(log), Some("invalid func unknown#155"));
        assert_eq!(verdict(""), None);
    }

    #[test]
    fn structures_have_the_kernels_sizes() {
        assert_eq!(size_of::<Instruction>(), 8);
        assert_eq!((size_of::<LoadProgram>(), size_of::<CreateLink>()), (72, 16));
    }
}
