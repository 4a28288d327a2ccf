//! Another kernel: runs one command on a Debian kernel in QEMU, over the files of this machine.
//!
//! The guest's root is the host's `/`, shared read-only through virtiofs, under an overlay in the guest's memory.
//! Every program and every build product is there at its usual path, and the guest cannot change the host. There is no
//! disk image and no network: output and status come back over virtio-serial ports, and network cards, if requested,
//! are connected only to each other, or to bridges that the caller has made.
//!
//! Kernel, QEMU and other missing programs are fetched as Debian packages and unpacked into a [`Cache`]. No package is
//! installed, and the host's apt keeps its sources and lists.
//!
//! This crate does not manage machines. A [`Vm`] lives for one command.

mod apt;
mod boot;
mod bzimage;
mod cache;
mod error;
mod guest;
mod initramfs;
mod kernel;
mod kernel_spec;
mod kvm;
mod limits;
mod local;
mod lz4;
mod machine;
mod nic;
mod package_request;
mod process;
mod qemu;
mod run;
mod sources;
mod workdir;

pub mod deb;

pub use cache::Cache;
pub use error::Error;
pub use kernel::{Flavour, Kernel};
pub use kernel_spec::{KernelSpec, names};
pub use limits::{Accelerator, Limits, Timing};
pub use machine::{UNGUARDED, Vm};
pub use nic::{Bridges, Join, Nic};
pub use qemu::Qemu;
pub use run::{Output, Watch};
pub use workdir::Workdir;

/// What every fallible function of this crate returns.
pub type Result<T> = std::result::Result<T, Error>;
