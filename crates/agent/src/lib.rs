//! One network over many nodes: where leases come from, and the loop that keeps the node as they say.
//!
//! A [`source::LeaseSource`] yields whole [`lease::Snapshot`]s, whose network is read by [`network::NetworkConfig`].
//! [`desired::desired`] turns one into plans, and [`run`] brings the node to them whenever the source, the kernel or a
//! timer says that something may have changed. Nothing here needs to run for packets to flow.

pub mod check;
pub mod cloud;
pub mod desired;
pub mod files;
pub mod keys;
pub mod lease;
pub mod migrate;
pub mod network;
pub mod source;
pub mod status;

mod backend;
mod backoff;
mod endpoint;
mod error;
mod flannel;
mod health;
mod installation;
mod keep;
mod latest;
mod offload;
mod path_mtu;
mod reason_log;
mod rehearse;
mod run;
mod settings;
mod standby;

pub use endpoint::Endpoint;
pub use error::AgentError;
pub use offload::{Offload, OffloadFault, Tunnel};
pub use rehearse::preview;
pub use run::run;
pub use settings::Settings;
