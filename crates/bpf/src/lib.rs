//! The eBPF programs: C sources, their skeletons, and what loads, pins, attaches and fills them.
//!
//! Programs and maps outlive the process that loads them: they are pinned in a bpffs of their own, one a node, and
//! attached to links by pinned bpf links. So packets flow with no process of ours alive, and one unmount takes a
//! node's programs away ([`pins`]). Functions here act in the calling thread's network namespace.

mod address_call;
pub mod afxdp;
mod attach;
mod entry;
mod ffi;
pub mod forward;
mod generation;
pub mod guard;
mod hook;
pub mod late;
mod layout;
pub mod packets;
pub mod pins;
mod program;
mod replace;
pub mod services;
pub mod splice;
pub mod witness;

pub use address_call::AddressCall;
pub use attach::{Attached, Unpinned, attach, attach_at_once, attach_filter, attached, detach, met};
pub use attach::{is_our_place, program_ids_at, programs_at, remove_qdisc};
pub use hook::{Hook, HookTarget, XdpMode};
pub use replace::{Replaced, are_of_this_build, replace};
