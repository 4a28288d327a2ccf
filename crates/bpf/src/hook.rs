//! Where a program can be attached: at links and control groups.

use std::fmt;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use linux::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::AddressCall;

/// The event at which a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hook {
    /// A packet that arrives at a link (tcx, or a filter).
    Ingress,
    /// A packet that is being sent at the other end of a netkit pair.
    NetkitPeer,
    /// A frame that arrives at a link, before it meets anything else (XDP). A link has one such program.
    Xdp(XdpMode),
    /// A TCP socket of a task in a control group (of version 2), whenever its state changes.
    SockOps,
    /// A call of a socket of a task in a control group (of version 2), with the address that it names or is to show.
    Address(AddressCall),
}

/// What runs a program of XDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum XdpMode {
    /// The link's driver, on its own buffer. Some drivers have no XDP, and some refuse a large MTU.
    Native,
    /// The kernel, after it has made an `sk_buff` of the frame: at every link.
    Generic,
}

/// What a hook belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookTarget<'t> {
    /// At the link of this index in the calling thread's namespace.
    Link(u32),
    /// At a control group: its directory.
    Cgroup(&'t Path),
}

impl From<u32> for HookTarget<'_> {
    fn from(ifindex: u32) -> Self {
        HookTarget::Link(ifindex)
    }
}

impl<'t> From<&'t Path> for HookTarget<'t> {
    fn from(cgroup: &'t Path) -> Self {
        HookTarget::Cgroup(cgroup)
    }
}

impl fmt::Display for HookTarget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HookTarget::Link(ifindex) => write!(f, "link {ifindex}"),
            HookTarget::Cgroup(cgroup) => write!(f, "control group {}", cgroup.display()),
        }
    }
}

impl HookTarget<'_> {
    /// Calls with the number by which the kernel knows it: an index, or a descriptor that is open for the length of the
    /// call.
    pub(crate) fn with_number<T>(self, work: impl FnOnce(i32) -> Result<T>) -> Result<T> {
        match self {
            HookTarget::Link(ifindex) => work(ifindex.cast_signed()),
            HookTarget::Cgroup(cgroup) => {
                let open = File::open(cgroup).map_err(|error| Error::new(format!("open {self}"), error))?;
                work(open.as_raw_fd())
            }
        }
    }
}

impl Hook {
    pub(crate) fn kind(self) -> libbpf_sys::bpf_attach_type {
        match self {
            Hook::Ingress => libbpf_sys::BPF_TCX_INGRESS,
            Hook::NetkitPeer => libbpf_sys::BPF_NETKIT_PEER,
            Hook::Xdp(_) => libbpf_sys::BPF_XDP,
            Hook::SockOps => libbpf_sys::BPF_CGROUP_SOCK_OPS,
            Hook::Address(call) => call.kind(),
        }
    }

    /// What a bpf link there is made with.
    pub(crate) fn flags(self) -> u32 {
        match self {
            Hook::Xdp(XdpMode::Native) => libbpf_sys::XDP_FLAGS_DRV_MODE,
            Hook::Xdp(XdpMode::Generic) => libbpf_sys::XDP_FLAGS_SKB_MODE,
            Hook::Ingress | Hook::NetkitPeer | Hook::SockOps | Hook::Address(_) => 0,
        }
    }
}
