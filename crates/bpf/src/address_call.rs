//! The hooks of a control group at which a program sees the address of a socket's call.

use serde::{Deserialize, Serialize};

/// Calls of sockets that have an address, by the socket's family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are those of the calls")]
pub enum AddressCall {
    Connect4,
    Connect6,
    Sendmsg4,
    Sendmsg6,
    Recvmsg4,
    Recvmsg6,
    Peername4,
    Peername6,
}

impl AddressCall {
    /// Every call, in the order in which programs are attached: what shows an address comes before what exchanges it,
    /// so that no answer shows another address than was called.
    pub const ALL: &[AddressCall] = &[
        AddressCall::Recvmsg4,
        AddressCall::Recvmsg6,
        AddressCall::Peername4,
        AddressCall::Peername6,
        AddressCall::Connect4,
        AddressCall::Connect6,
        AddressCall::Sendmsg4,
        AddressCall::Sendmsg6,
    ];

    /// The name of the function of its program, and of the program's pin.
    pub fn name(self) -> &'static str {
        match self {
            AddressCall::Connect4 => "connect4",
            AddressCall::Connect6 => "connect6",
            AddressCall::Sendmsg4 => "sendmsg4",
            AddressCall::Sendmsg6 => "sendmsg6",
            AddressCall::Recvmsg4 => "recvmsg4",
            AddressCall::Recvmsg6 => "recvmsg6",
            AddressCall::Peername4 => "peername4",
            AddressCall::Peername6 => "peername6",
        }
    }

    /// The hook of a control group for it.
    pub(crate) fn kind(self) -> libbpf_sys::bpf_attach_type {
        match self {
            AddressCall::Connect4 => libbpf_sys::BPF_CGROUP_INET4_CONNECT,
            AddressCall::Connect6 => libbpf_sys::BPF_CGROUP_INET6_CONNECT,
            AddressCall::Sendmsg4 => libbpf_sys::BPF_CGROUP_UDP4_SENDMSG,
            AddressCall::Sendmsg6 => libbpf_sys::BPF_CGROUP_UDP6_SENDMSG,
            AddressCall::Recvmsg4 => libbpf_sys::BPF_CGROUP_UDP4_RECVMSG,
            AddressCall::Recvmsg6 => libbpf_sys::BPF_CGROUP_UDP6_RECVMSG,
            AddressCall::Peername4 => libbpf_sys::BPF_CGROUP_INET4_GETPEERNAME,
            AddressCall::Peername6 => libbpf_sys::BPF_CGROUP_INET6_GETPEERNAME,
        }
    }
}
