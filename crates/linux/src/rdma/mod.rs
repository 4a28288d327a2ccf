//! RDMA: devices whose programs read and write memory of another machine, past the sockets of the kernel.

mod link;

pub use link::{RdmaLink, RdmaName};
