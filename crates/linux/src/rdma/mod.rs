//! RDMA: devices whose programs hand messages and memory over past the sockets of the kernel.
//!
//! [`RdmaLink`] is a device that the kernel makes itself. [`VerbsDevice`] and [`VerbsConnection`] use any device, of
//! software or of a card, by libibverbs, which is loaded when the first is opened.

mod connection;
mod device;
mod library;
mod link;
mod memory;

pub use connection::{VerbsAddress, VerbsConnection, VerbsWait};
pub use device::VerbsDevice;
pub use link::{RdmaLink, RdmaName};
